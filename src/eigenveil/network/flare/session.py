"""A lead's session with the aggregator: submit studies, follow them, stop them, fetch results."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.study.study import Study
from eigenveil.files import replacing
from eigenveil.network.channel import (
    ABORT_COMMAND,
    ASK_COMMAND,
    PARTIES_COMMAND,
    RESULT_COMMAND,
    STATUS_COMMAND,
    UNSIGNED,
)
from eigenveil.network.flare.authority import need_flare
from eigenveil.network.flare.job import (
    STUDY_PROPERTY,
    Ordered,
    parties_of,
    read_proposal,
    read_session,
    sign_job,
    write_job,
)
from eigenveil.network.kit import Kit, prepare
from eigenveil.network.results import FILES, MOST_BYTES
from eigenveil.network.signed import (
    identity_of,
    list_of,
    members_of,
    signed_abort,
    signed_order,
)
from eigenveil.network.status import State, error_from
from eigenveil.network.survey import NOT_CONNECTED, Report, ask_parties

# Seconds to wait for the aggregator: for a connection, and for one answer.
CONNECT = 10.0
ANSWER = 30.0
_CLOSE = 3.0
_TRIES = 3


@dataclass(frozen=True)
class StudyStatus:
    """How far a study is.

    Attributes
    ----------
    job : str
    name, study_hash : str
        Of the study.
    state : State
        "waiting" (for sites, or their owners), "running", "finished" (the result can be fetched),
        "failed", "aborted", or "lost": the aggregator stopped in the middle of it.
    flare : str
        FLARE's own word, which may lag behind or be wrong after a crash.
    step : str
        Of the protocol.
    answered : int
        Parties that have answered it.
    missing : dict of str to str
        Parties that are missing, and why; of a study that waits, who it waits for where known.
    error : EigenveilError or None
        Why it failed.
    """

    job: str
    name: str
    study_hash: str
    state: State
    flare: str
    step: str = ""
    answered: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)
    error: EigenveilError | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.state not in ("waiting", "running")


class StudySession:
    """A lead's session; use it in a ``with`` block.

    Parameters
    ----------
    kit : Kit
        The lead's.

    Raises
    ------
    OutputError
        ``no-flare`` or ``other-flare`` when FLARE is not there in a version that was tested.
    ProtocolError
        ``no-aggregator`` when it cannot be reached, ``not-let-in`` when it does not know the lead.
    """

    def __init__(self, kit: Kit, *, timeout: float = CONNECT) -> None:
        need_flare()
        self._kit, self._timeout = kit, timeout
        self._cells: list[Any] = []
        prepare(kit)
        self._flare: Any = self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session; studies go on."""
        try:
            _within(_CLOSE, self._flare.close)
        except Exception:
            _stop(self._cells)

    # -- what a lead can do

    def submit(self, study: Study, *, timeout: float = 600.0) -> str:
        """Give a study to the aggregator; the job's name.

        Parameters
        ----------
        study : Study
            With its protocol settled.
        timeout : float
            Seconds that a site has for an answer, 1 to 604800.

        Raises
        ------
        DataError
            ``unsettled``; when a site's name cannot be one in FLARE.
        ProtocolError
            When the aggregator does not take it.
        """
        signed_job = sign_job(study, os.urandom(12).hex(), timeout)
        identity, lead = identity_of(self._kit), self._kit.name
        order = signed_order(
            identity,
            lead,
            study=study.hash,
            session=signed_job.session,
            timeout=signed_job.timeout,
        )
        ordered = Ordered(lead, order, list_of(identity))
        with tempfile.TemporaryDirectory(prefix="eigenveil-") as place:
            folder = Path(place) / "job"  # FLARE writes its signatures into it
            folder.mkdir()
            write_job(signed_job, ordered, folder)
            return str(self._query(lambda: self._flare.submit_job(str(folder))))

    def status(self, job: str) -> StudyStatus:
        """How far a study is.

        Raises
        ------
        ProtocolError
            ``no-such-job``.
        """
        meta = self._query(lambda: self._flare.get_job_meta(job))
        found = self._command(f"{STATUS_COMMAND} {job}")
        return _status(
            job,
            meta,
            found.get("progress"),
            alive=bool(found.get("alive")),
            connected=found.get("connected"),
        )

    def studies(self) -> dict[str, StudyStatus]:
        """The lead's studies by job, the newest first."""
        listed = self._query(lambda: self._flare.list_jobs(detailed=False, limit=100, reverse=True))
        found = {}
        for each in listed or ():
            job = str(each.get("job_id", ""))
            try:
                found[job] = self.status(job)
            except ProtocolError as error:
                if error.code not in ("no-such-job", "not-allowed"):
                    raise
        return found

    def ask(self, names: Sequence[str], study: Study | None = None) -> list[Report]:
        """Ask parties what was decided about a study, and for their schemas, before it runs.

        A study that no owner has seen waits for each one from then on.

        Parameters
        ----------
        names : sequence of str
        study : Study, optional
            With its protocol settled; without one schemas are asked for, and nothing waits.

        Returns
        -------
        list of Report
            One a party, as the party signed it.

        Raises
        ------
        DataError
            ``unsettled``, ``study-too-large``.
        """
        identity = identity_of(self._kit)
        found = self._command(PARTIES_COMMAND)
        try:
            if listed := bytes.fromhex(str(found["members"])):
                members_of(identity).adopt_newer(listed)
            connected = {str(each) for each in found["connected"]}
        except (KeyError, TypeError, ValueError):
            raise _strange("who is connected") from None

        def carry(name: str, data: bytes) -> bytes | str:
            if name not in connected:
                return NOT_CONNECTED
            text = base64.b64encode(data).decode()
            came = self._command(f"{ASK_COMMAND} {name} {text}")
            try:
                return base64.b64decode(came["answer"], validate=True)
            except (KeyError, TypeError, ValueError):
                return str(came.get("code") or UNSIGNED)

        self._flare.set_timeout(ANSWER / 2)  # FLARE's own is 5 s
        try:
            return ask_parties(names, study, identity, carry)
        finally:
            self._flare.unset_timeout()

    def abort(self, job: str) -> None:
        """Stop a study, with a signature; what its sites have answered stays charged.

        Raises
        ------
        ProtocolError
            ``no-such-job``, or ``not-allowed`` where it is another lead's.
        """
        meta = self._query(lambda: self._flare.get_job_meta(job))
        study = read_proposal(meta)
        if study is None:
            raise _strange("what it knows of the job")
        word = signed_abort(
            identity_of(self._kit), self._kit.name, study=study.hash, session=read_session(meta)
        )
        self._command(f"{ABORT_COMMAND} {job} {word.hex()}")

    def fetch(self, job: str, folder: Path) -> tuple[Path, ...]:
        """Bring the result's files (model, certificate, summary) into a folder that exists.

        Raises
        ------
        ProtocolError
            ``no-result`` while there is none.
        OutputError
            When the folder cannot be written.
        """
        contents = {name: self._file(job, name) for name in FILES}
        for name, content in contents.items():
            with replacing(folder / name) as scratch:
                scratch.write_bytes(content)
        return tuple(folder / name for name in FILES)

    # -- FLARE

    def _file(self, job: str, name: str) -> bytes:
        content = bytearray()
        while True:
            found = self._command(f"{RESULT_COMMAND} {job} {name} {len(content)}")
            try:
                piece = base64.b64decode(found["data"], validate=True)
                size, digest = int(found["size"]), str(found["sha256"])
            except (KeyError, TypeError, ValueError):
                raise _strange("a piece of the result") from None
            content += piece
            if max(size, len(content)) > MOST_BYTES:
                raise _strange(f"{name} with more than {MOST_BYTES >> 20} MiB")
            if len(content) >= size:
                break
            if not piece:
                raise _strange("a piece of the result")
        if hashlib.sha256(content).hexdigest() != digest:
            raise _strange("the result")
        return bytes(content)

    def _command(self, text: str) -> dict[str, Any]:
        def send() -> Any:
            return self._flare._get_dict_data(self._flare._do_command(text, enforce_meta=False))

        found = self._query(send)
        if not isinstance(found, dict):
            raise _strange("an answer")
        return found

    def _connect(self) -> Any:
        from nvflare.fuel.f3.cellnet.core_cell import CoreCell
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        before = set(CoreCell.ALL_CELLS)
        with (
            redirect_stdout(StringIO()),
            ExitStack() as undo,
        ):  # FLARE states there that it connects
            undo.callback(lambda: _stop(_since(before)))
            found = _translated(
                lambda: new_secure_session(
                    username=self._kit.name,
                    startup_kit_location=str(self._kit.folder),
                    timeout=self._timeout,
                    auto_login_max_tries=1,
                ),
                self._kit,
                3 * self._timeout,  # FLARE counts each of its stages
            )
            undo.pop_all()
        self._cells = _since(before)
        return found

    def _query(self, what: Callable[[], Any]) -> Any:
        """Ask, in a new session where FLARE has closed this one."""
        for _ in range(_TRIES - 1):
            try:
                return _translated(what, self._kit)
            except ProtocolError as error:
                if error.code not in ("session-closed", "no-aggregator"):
                    raise
                time.sleep(0.5)
                self.close()
                self._flare = self._connect()
        return _translated(what, self._kit)


def _status(
    job: str, meta: Mapping[str, Any], progress: Any, *, alive: bool, connected: object
) -> StudyStatus:
    """FLARE's word, the aggregator's own and whether its process lives, put together."""
    flare = str(meta.get("status", ""))
    study = (meta.get("custom_props") or {}).get(STUDY_PROPERTY) or {}
    over = flare.startswith("FINISHED")
    found = progress if isinstance(progress, Mapping) else {}
    state: State = found.get("state", "waiting")
    error = found.get("error")
    why = error_from(error) if isinstance(error, Mapping) else None
    missing = dict(found.get("missing") or {})
    if not found and not over:
        missing = _waits_for(meta, connected)
    # a study whose process was killed goes on in another one, which FLARE does not know
    if state in ("waiting", "running") and not alive and (over or flare == "RUNNING"):
        state, why = _end_without_word(flare, started=bool(found), meta=meta)
    if state == "lost" and why is None:  # the aggregator noted it when it was started again
        why = _lost()
    return StudyStatus(
        job=job,
        name=str(study.get("name") or meta.get("name", "")),
        study_hash=str(found.get("study_hash", "")),
        state=state,
        flare=flare,
        step=str(found.get("step", "")),
        answered=int(found.get("answered", 0)),
        missing=missing,
        error=why,
    )


def _end_without_word(
    flare: str, *, started: bool, meta: Mapping[str, Any]
) -> tuple[State, EigenveilError]:
    """What became of a study whose process ended without saying so."""
    if started:  # FLARE may call it aborted; an aborted study reports it
        return "lost", _killed()
    if flare == "FINISHED:ABORTED":
        return "aborted", ProtocolError("The study was stopped.", code="aborted")
    if not flare.startswith("FINISHED"):
        return "lost", _killed()
    details = "; ".join(str(each) for each in meta.get("job_deploy_detail") or ())
    return "failed", ProtocolError(
        f"The study could not be started ({flare}): {details or 'FLARE does not say why'}.",
        hint="The aggregator's log has more details.",
        code="not-started",
    )


def _killed() -> EigenveilError:
    return ProtocolError(
        "The study's process at the aggregator was killed, or crashed; the aggregator goes on.",
        hint="Run it again: sites charge only for what they answer. The aggregator's log may say "
        "more.",
        code="killed",
    )


def _lost() -> EigenveilError:
    return ProtocolError(
        "The aggregator stopped in the middle of the study.",
        hint="Run it again: sites charge only for what they answer.",
        code="lost",
    )


def _waits_for(meta: Mapping[str, Any], connected: object) -> dict[str, str]:
    """Whom a study waits for: who is not connected, and what sites last reported."""
    study = read_proposal(meta)
    names = () if study is None else parties_of(study)
    history = [str(each) for each in meta.get("schedule_history") or ()]
    details = history[-1].partition("Details: ")[2] if history else ""
    found = {}
    for name, _, why in (each.partition(": ") for each in details.split("; ")):
        if name in names:
            found[name] = why
    if isinstance(connected, list):
        found |= {name: "not connected" for name in names if name not in connected}
    return found


def _since(before: set[str]) -> list[Any]:
    """FLARE's ends of connections that were made since."""
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    return [cell for name, cell in list(CoreCell.ALL_CELLS.items()) if name not in before]


def _stop(cells: Sequence[Any]) -> None:
    """End connections that FLARE would try to make for ever: the process could not end."""
    for cell in cells:
        for end in (cell.stop, cell.communicator.stop):
            with suppress(Exception):
                _within(_CLOSE, end)


def _within(seconds: float, what: Callable[[], Any]) -> Any:
    """What a call of FLARE's API returns; some of them wait for ever.

    Raises
    ------
    TimeoutError
        When it did not return in time; it is left to itself.
    """
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(what())
        except BaseException as error:  # also FLARE's way to end a process
            found.set_exception(error)

    threading.Thread(target=run, daemon=True, name="ask the aggregator").start()
    return found.result(seconds)


def _translated(what: Callable[[], Any], kit: Kit, seconds: float = ANSWER) -> Any:
    """What FLARE's API returns, its errors as ours."""
    from nvflare.fuel.flare_api import api_spec

    try:
        return _within(seconds, what)
    except (api_spec.NoConnection, api_spec.NoReply, TimeoutError):
        raise ProtocolError(
            f"The aggregator at {kit.host}:{kit.port} cannot be reached.",
            hint="Check that it runs ('eigenveil aggregator start') and can be reached from here.",
            code="no-aggregator",
        ) from None
    except api_spec.SessionClosed:
        raise ProtocolError(
            "The aggregator has closed the session.", hint="Try again.", code="session-closed"
        ) from None
    except api_spec.JobNotFound:
        raise ProtocolError(
            "The aggregator knows no such job.",
            hint="'eigenveil study status' lists the jobs.",
            code="no-such-job",
        ) from None
    except api_spec.AuthenticationError:
        raise ProtocolError(
            f"The aggregator at {kit.host}:{kit.port} does not know {kit.name}.",
            hint="Use the lead's kit of this federation.",
            code="not-let-in",
        ) from None
    except api_spec.AuthorizationError:
        raise ProtocolError(
            f"The aggregator does not let {kit.name} do this.",
            hint="Only a lead may submit studies, and follow or stop those it submitted.",
            code="not-allowed",
        ) from None
    except EigenveilError:
        raise
    except Exception as error:
        raise ProtocolError(
            f"The aggregator refused: {type(error).__name__}: {error}.",
            hint="Its log has more details.",
            code="refused",
        ) from None


def _strange(what: str) -> ProtocolError:
    return ProtocolError(
        f"The aggregator sent {what} that cannot be read.",
        hint="Check that it runs the same version of eigenveil.",
        code="malformed",
    )
