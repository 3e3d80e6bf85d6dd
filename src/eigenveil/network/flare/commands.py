"""Commands of the aggregator's own process: whether a run goes on, for sites and for its lead.

FLARE sends sites the ends of jobs in messages that anybody could have made, so a site checks here
before it ends anything, and believes only what is signed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import RunProcessKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobReturnCode
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.fuel.hci.conn import Connection
from nvflare.fuel.hci.proto import MetaStatusValue, make_meta
from nvflare.fuel.hci.reg import CommandModule, CommandModuleSpec, CommandSpec
from nvflare.fuel.hci.server.authz import PreAuthzReturnCode
from nvflare.fuel.hci.server.constants import ConnProps
from nvflare.private.fed.server.job_cmds import JobCommandModule

from eigenveil.errors import EigenveilError
from eigenveil.federation.protocol.envelope import MOST_BESIDE, Envelope, open_sealed, seal
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.network.channel import (
    ABORT_COMMAND,
    ASK_COMMAND,
    CHANNEL,
    GOING_ON,
    MOST_SURVEYED,
    OVER,
    PARTIES_COMMAND,
    RESULT_COMMAND,
    STATUS_COMMAND,
    SURVEY,
    UNKNOWN,
    WHEREABOUTS,
    Stop,
)
from eigenveil.network.flare.controller import CellCarrier
from eigenveil.network.flare.job import is_job, read_proposal, read_session
from eigenveil.network.kit import Kit, open_kit
from eigenveil.network.results import FILES
from eigenveil.network.signed import KitIdentity, Word, identity_of, list_of, party_called
from eigenveil.network.status import GOING_ON as RUNNING_STATES
from eigenveil.network.status import goes_on, read_progress
from eigenveil.network.survey import NOT_CONNECTED


class Whereabouts(FLComponent):  # type: ignore[misc]
    """Answers sites about runs."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """At the start of the system."""
        if event_type != EventType.SYSTEM_START:
            return
        engine = fl_ctx.get_engine()
        kit = open_kit(engine.args.workspace, role="aggregator")
        keys = KitIdentity(kit, lambda: True)  # another key is for another process

        def answer(message: Any) -> Any:
            name = str(message.get_header(MessageHeaderKey.ORIGIN) or "")
            identity = keys.now()
            try:
                request = open_sealed(
                    message.payload,
                    identity,
                    sender=party_called(name),
                    recipient=AGGREGATOR,
                    limit=0,
                )
            except (EigenveilError, TypeError):
                return new_cell_message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, b"")
            reply = Envelope(
                request.study,
                request.session,
                WHEREABOUTS,
                AGGREGATOR,
                name,
                request_digest=request.mark,
                code=_state(kit, engine, request.session),
            )
            data, _ = seal(reply, identity)
            return new_cell_message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}, data)

        engine.cell.register_request_cb(channel=CHANNEL, topic=WHEREABOUTS, cb=answer)


def _state(kit: Kit, engine: Any, session: str) -> str:
    """Of the run of this name, from the aggregator's own files."""
    for folder in kit.results.iterdir():
        found = read_progress(folder)
        if found is not None and found.get("session") == session:
            alive = is_alive(engine, folder.name) or goes_on(kit, folder.name)
            return GOING_ON if found["state"] in RUNNING_STATES and alive else OVER
    return UNKNOWN


# -- What a lead requests of the aggregator beyond FLARE's own commands: a study's state, result and
# end.
#
# FLARE gives a job's result away only once it calls the job finished, which is late, or never
# after a crash. Two of these commands read the aggregator's own files at any time, for the lead
# who submitted the job and nobody else. The third ends a study, by what that lead has signed; a
# session with FLARE, whoever has it, does not.


# Bytes of a file that travel at once.
PIECE = 1 << 21
# Seconds that a party has for the answer to a lead; it reads its ledger, and computes nothing.
SURVEY_PATIENCE = 10.0


class StudyCommands(CommandModule):  # type: ignore[misc]
    """The commands of eigenveil's own.

    Three are about a job, for its lead alone. Two are any lead's, before there is a job: who is
    connected, and carrying a sealed question to a party, whose sealed answer comes back.
    """

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    def get_spec(self) -> CommandModuleSpec:
        """Their names."""
        commands: tuple[tuple[str, str, str, Callable[..., Any], Callable[..., Any]], ...] = (
            (PARTIES_COMMAND, "", "who is connected, and the members", self._parties, _check_lead),
            (ASK_COMMAND, "party question", "bring a lead's question", self._ask, _check_lead),
            (STATUS_COMMAND, "job", "how far a study is", self._status, self._check),
            (RESULT_COMMAND, "job file offset", "a piece of a result", self._result, self._check),
            (ABORT_COMMAND, "job word", "end a study", self._abort, self._check),
        )
        specs = [
            CommandSpec(
                name=name,
                description=what,
                usage=f"{name} {words}".rstrip(),
                handler_func=does,
                authz_func=may,
            )
            for name, words, what, does, may in commands
        ]
        return CommandModuleSpec(name="eigenveil", cmd_specs=specs)

    def _check(self, conn: Connection, args: list[str]) -> PreAuthzReturnCode:
        """Only the lead who submitted a job is informed of it."""
        job = args[1] if len(args) > 1 else ""
        engine = conn.app_ctx
        found = None
        if is_job(job):
            with engine.new_context() as fl_ctx:
                found = engine.job_def_manager.get_job(job, fl_ctx)
        if found is None:
            return _refuse(conn, MetaStatusValue.INVALID_JOB_ID, "no such job")
        who = [conn.get_prop(each, "") for each in (ConnProps.USER_NAME, ConnProps.USER_ORG)]
        whose = [found.meta.get(each, "") for each in ("submitter_name", "submitter_org")]
        if conn.get_prop(ConnProps.USER_ROLE, "") != "lead" or who != whose:
            return _refuse(conn, MetaStatusValue.NOT_AUTHORIZED, "not the job's lead")
        return PreAuthzReturnCode.OK

    def _parties(self, conn: Connection, args: list[str]) -> None:
        del args
        conn.append_dict(
            {
                "connected": _connected(conn.app_ctx),
                "members": list_of(identity_of(self._kit)).hex(),
            },
            meta=make_meta(MetaStatusValue.OK),
        )

    def _ask(self, conn: Connection, args: list[str]) -> None:
        """Carry a question; what is in it is between the lead and the party."""
        _, name, text = [*args, "", ""][:3]
        try:
            data = base64.b64decode(text, validate=True)
        except ValueError:
            data = b""
        if not 0 < len(data) <= MOST_BESIDE + MOST_SURVEYED:
            _refuse(conn, MetaStatusValue.SYNTAX_ERROR, "no question")
            return
        came: bytes | str = NOT_CONNECTED
        if name in _connected(conn.app_ctx):
            carrier = CellCarrier(conn.app_ctx.cell, SURVEY)
            came = carrier.carry(name, data, SURVEY_PATIENCE, Stop())
        found = {"code": came} if isinstance(came, str) else {"answer": _text(came)}
        conn.append_dict(found, meta=make_meta(MetaStatusValue.OK))

    def _status(self, conn: Connection, args: list[str]) -> None:
        job = args[1]
        conn.append_dict(
            {
                "progress": read_progress(self._kit.results / job),
                "alive": is_alive(conn.app_ctx, job) or goes_on(self._kit, job),
                "connected": _connected(conn.app_ctx),
            },
            meta=make_meta(MetaStatusValue.OK),
        )

    def _result(self, conn: Connection, args: list[str]) -> None:
        _, job, name, offset = [*args, "", "", ""][:4]
        if name not in FILES or not offset.isdecimal():
            _refuse(conn, MetaStatusValue.SYNTAX_ERROR, "no such file")
            return
        try:
            content = (self._kit.results / job / name).read_bytes()
        except OSError:
            _refuse(conn, MetaStatusValue.ERROR, "no result")
            return
        conn.append_dict(_piece(content, int(offset)), meta=make_meta(MetaStatusValue.OK))

    def _abort(self, conn: Connection, args: list[str]) -> None:
        _, job, data = [*args, ""][:3]
        try:
            word = word_about(self._kit, conn.app_ctx, job)
            if word is None:
                _refuse(conn, MetaStatusValue.INVALID_JOB_ID, "no such job")
                return
            word.keep(bytes.fromhex(data))
        except (EigenveilError, ValueError):
            _refuse(conn, MetaStatusValue.NOT_AUTHORIZED, "not signed by the job's lead")
            return
        conn.set_prop(JobCommandModule.JOB_ID, job)
        JobCommandModule().abort_job(conn, args)


def word_about(kit: Kit, engine: Any, job: str) -> Word | None:
    """What the lead of a job may have signed about its end; none where there is no such job."""
    with engine.new_context() as fl_ctx:
        found = engine.job_def_manager.get_job(job, fl_ctx) if is_job(job) else None
    study = None if found is None else read_proposal(found.meta)
    if found is None or study is None:
        return None
    lead, session = str(found.meta.get("submitter_name", "")), read_session(found.meta)
    return Word(kit.results / job, identity_of(kit), lead, study.hash, session)


def is_alive(engine: Any, job: str) -> bool:
    """Whether a job's process runs."""
    process = engine.run_processes.get(job)
    handle = None if process is None else process.get(RunProcessKey.JOB_HANDLE)
    # FLARE's handles say "unknown" of a process that runs
    ended = handle is not None and handle.poll() not in (None, JobReturnCode.UNKNOWN)
    return process is not None and not ended


def _check_lead(conn: Connection, args: list[str]) -> PreAuthzReturnCode:
    del args
    if conn.get_prop(ConnProps.USER_ROLE, "") != "lead":
        return _refuse(conn, MetaStatusValue.NOT_AUTHORIZED, "not a lead")
    return PreAuthzReturnCode.OK


def _connected(engine: Any) -> list[str]:
    return [client.name for client in engine.get_clients()]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _piece(content: bytes, offset: int) -> dict[str, Any]:
    return {
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "data": _text(content[offset : offset + PIECE]),
    }


def _refuse(conn: Connection, status: str, why: str) -> PreAuthzReturnCode:
    conn.append_error(why, meta=make_meta(status, why))
    return PreAuthzReturnCode.ERROR
