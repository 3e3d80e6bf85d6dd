"""The aggregator's job in FLARE: it carries bytes and runs the study.

Verified on FLARE 2.9: its multicast of different payloads fails silently, so every party is
called by itself; ``timeout`` of a call is one of each of its three stages, so whoever calls
keeps a deadline besides. What is carried is bytes: FLARE's own serialisation is never used for it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.utils import new_cell_message

from eigenveil.errors import EigenveilError
from eigenveil.federation.protocol.envelope import MOST_BESIDE
from eigenveil.federation.x509_identity import Current, Identity
from eigenveil.network.channel import (
    ABORTED,
    CHANNEL,
    NO_ANSWER,
    TOPIC,
    UNREACHABLE,
    UNSIGNED,
    Stop,
    largest_message,
)
from eigenveil.network.flare.job import SignedJob, read_signed_job
from eigenveil.network.journal import Journal, Opening
from eigenveil.network.kit import Kit, open_kit
from eigenveil.network.runner import StudyRunner
from eigenveil.network.signed import KitIdentity, SignedWire, Word
from eigenveil.network.status import STATUS, Progress, error_fields, goes_on

# Seconds between two looks at whether a study that was cut off is over.
_BETWEEN_LOOKS = 0.5


class CellCarrier:
    """Carries bytes through a cell; a party's own (parent) process has its name for address."""

    def __init__(self, cell: Any, topic: str = TOPIC) -> None:
        self._cell, self._topic = cell, topic

    def carry(self, name: str, data: bytes, timeout: float, stop: Stop) -> bytes | str:
        """What came back, or a code."""
        try:
            message = self._cell.send_request(
                channel=CHANNEL,
                topic=self._topic,
                target=name,
                request=new_cell_message({}, data),
                timeout=timeout,
                optional=True,
                abort_signal=stop,
            )
        except Exception:  # of FLARE, whatever it is: it has logged it
            return UNREACHABLE
        if stop.triggered:
            return ABORTED
        code = message.get_header(MessageHeaderKey.RETURN_CODE, ReturnCode.OK)
        if code == ReturnCode.TIMEOUT:
            return NO_ANSWER
        if code != ReturnCode.OK:
            return UNREACHABLE
        if not isinstance(message.payload, bytes | bytearray | memoryview):
            return UNSIGNED
        return bytes(message.payload)


def word_of(folder: Path, identity: Identity, signed_job: SignedJob) -> Word:
    """What the lead of a run may sign about its end."""
    study = signed_job.study.hash
    return Word(folder, identity, signed_job.lead, study, signed_job.session)


def runner_of(journal: Journal, cell: Any, identity: Current, folder: Path) -> StudyRunner:
    """What conducts the run of a journal, over a cell of FLARE's, from its first call not done."""
    signed_job = journal.opening.signed_job
    wire = SignedWire(
        CellCarrier(cell),
        identity,
        study=signed_job.study.hash,
        session=signed_job.session,
        limit=largest_message(signed_job.study),
    )
    return StudyRunner(
        signed_job=signed_job,
        wire=wire,
        present=journal.opening.present,
        aborted=word_of(folder, identity.now(), signed_job).is_signed,
        folder=folder,
        identity=identity,
        journal=journal,
    )


def others_go_on(kit: Kit, job: str) -> bool:
    """Whether another study goes on: its first question would end this one's run at the sites."""
    return any(goes_on(kit, file.name) for file in kit.journals.glob("*") if file.name != job)


# -- The one class that a job may name at the aggregator: it conducts a study.


# Of the study of this process; a job's process has one.
_limit = 0


def signed_job_limit() -> int:
    """Most bytes of an answer in the study of this process; 0 before it is known."""
    return _limit


class StudyController(Controller):  # type: ignore[misc]
    """Conducts a study in its own process at the aggregator; FLARE's tasks are not used.

    Parameters
    ----------
    study : dict
        The study's fields.
    session : str
        The run's name.
    timeout : float
        Seconds that a site has for an answer.
    lead, order, members : str
        Who wants it, signed, and the list of members.
    """

    def __init__(
        self,
        study: dict[str, Any],
        session: str,
        timeout: float,
        lead: str,
        order: str,
        members: str,
    ) -> None:
        super().__init__()
        # FLARE's copies; the signed ones are read when it begins
        del study, session, timeout, lead, order, members

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """The study. Only what its lead has signed ends it, not a stop that FLARE reports."""
        global _limit
        del abort_signal
        engine = fl_ctx.get_engine()
        try:
            kit = open_kit(engine.get_workspace().get_root_dir(), role="aggregator")
            job, keys = str(fl_ctx.get_job_id()), KitIdentity(kit, lambda: True)
            identity = keys.now()
            folder = kit.results / job
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            signed_job = _signed_job(kit, job, identity)
            _limit = MOST_BESIDE + largest_message(signed_job.study)
            present = tuple(client.name for client in engine.get_clients())
            word = word_of(folder, identity, signed_job)
            while others_go_on(kit, job) and not word.is_signed():
                time.sleep(_BETWEEN_LOOKS)
            journal = Journal.begin(kit.journals / job, Opening(signed_job, present))
            problem = runner_of(journal, engine.get_cell(), keys, folder).run()
        except EigenveilError as error:
            problem = error
        if problem is not None:
            # without it FLARE would call the job completed
            self.system_panic(f"the study ended without a result: {problem.code}", fl_ctx)


def _signed_job(kit: Kit, job: str, identity: Identity) -> SignedJob:
    """What the lead has signed; that there is nothing of the kind is reported where it is read.

    Raises
    ------
    ProtocolError
    """
    try:
        return read_signed_job(kit.runs / job / "app_server", identity)
    except EigenveilError as error:
        status = Progress(kit.results / job / STATUS, study="", study_hash="", session="")
        status.state, status.error = "failed", error_fields(error)
        status.write()
        raise
