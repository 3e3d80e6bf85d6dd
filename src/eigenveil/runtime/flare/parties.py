"""What answers in a site's or a noise helper's own process, and whom.

A party answers one job at a time: the one that it admitted, asked by that job's process at the
aggregator and nobody else, about a study that its owner approved, from its own copy of it, in the
session that the lead signed. FLARE is not known here: see :mod:`eigenveil.runtime.flare.party`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from eigenveil.errors import DataError, EigenveilError, ProtocolError
from eigenveil.federation.helper import Helper
from eigenveil.federation.identity import Identity
from eigenveil.federation.ledger import Ledger, SessionKey
from eigenveil.federation.messages import AGGREGATOR, decode
from eigenveil.federation.site import Site
from eigenveil.federation.study import Study
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.source import RowSource
from eigenveil.noise.source import RandomSource
from eigenveil.runtime.flare import channel
from eigenveil.runtime.flare.approvals import approve as approve_study
from eigenveil.runtime.flare.approvals import approved_study, ask_owner
from eigenveil.runtime.flare.channel import Answer, aggregator_of, read_question
from eigenveil.runtime.flare.job import Order, is_job, parties_of
from eigenveil.runtime.flare.kit import Kit, write_json

Approve = Literal["manual", "all"]
Say = Callable[[str], None]
_log = logging.getLogger(__name__)


class _Role(Protocol):
    def handle(self, request: bytes) -> bytes: ...


@dataclass(frozen=True)
class Admission:
    """The job that a party answers.

    Attributes
    ----------
    job : str
        FLARE's name of it.
    study : str
        Hash of the study.
    session : str
        The run's name, as the lead signed it.
    """

    job: str
    study: str
    session: str


class Party(ABC):
    """A party of studies, whatever carries its messages.

    It signs its keys with its certificate, and takes other parties' keys only with theirs: the
    aggregator passes keys on and could put its own in their place.

    Parameters
    ----------
    kit : Kit
    approve : "manual" or "all"
        Whether a study waits for the owner, or is approved as it comes.
    say : callable, optional
        Told, in sentences, what the owner should know.

    Attributes
    ----------
    connected : threading.Event
        Set when the party is part of its federation's network.
    """

    def __init__(self, kit: Kit, *, approve: Approve = "manual", say: Say = print) -> None:
        self.kit, self.approve, self.say = kit, approve, say
        self.connected = threading.Event()
        self._identity = Identity.from_files(
            key=kit.key, certificate=kit.certificate, root=kit.root_certificate
        )
        self._process = os.urandom(16).hex()
        self._admission = _read_admission(kit)
        self._refused = ("", "")
        self._on_end: Callable[[], None] = _nothing
        self._guard = threading.RLock()
        # one message at a time, and none of FLARE's threads is held while a sum is computed
        self._work = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eigenveil")
        self._role: tuple[Admission, _Role] | None = None

    @property
    def admission(self) -> Admission | None:
        """The job that is answered, if any."""
        return self._admission

    # -- what FLARE's side tells

    def propose(self, study: Study) -> str:
        """Why a study cannot be run here yet; empty where it can. The owner is asked if need be.

        What is said here only helps FLARE to wait: the decision that counts is made in
        :meth:`admit` and before every answer.
        """
        if self.kit.name not in parties_of(study):
            return f"{self.kit.name} is not part of this study"
        if approved_study(self.kit, study.hash) is not None:
            return ""
        if self.approve == "all":
            return ""
        if ask_owner(self.kit, study):
            self.say(
                f"Study {study.name!r} (hash {study.hash[:12]}) waits for approval: "
                f"eigenveil site approve --kit {self.kit.folder} --list"
            )
        return "study not approved by this site's owner"

    def admit(self, job: str, order: Order, on_end: Callable[[], None]) -> None:
        """Answer this job from now on, in place of any other.

        Parameters
        ----------
        on_end : callable
            Called once when the job is over for this party.

        Raises
        ------
        ProtocolError
            When the owner has not approved the study, or it is not about this party.
        """
        study = order.study
        if not is_job(job):
            raise ProtocolError("The job has a name that none can have.", code="job-refused")
        if self.approve == "all" and self.kit.name in parties_of(study):
            approve_study(self.kit, study)
        if why := self.propose(study):
            raise ProtocolError(f"Study {study.name!r}: {why}.", code=channel.NOT_APPROVED)
        with self._guard:
            if self._admission is not None:
                self.end(self._admission.job, "replaced")
            admission = Admission(job, study.hash, order.session)
            write_json(self.kit.session_file, asdict(admission))
            self._admission, self._on_end = admission, on_end
        self.say(f"Study {study.name!r} (hash {study.hash[:12]}) begins, job {job}.")

    def refuse(self, job: str, error: EigenveilError) -> None:
        """Tell the owner why a job was not admitted, and the job only that it was not."""
        self.say(str(error))
        known = error.code == channel.NOT_APPROVED
        self._refused = (job, error.code if known else channel.REFUSED)

    def answer(self, origin: str, fields: object) -> Answer | Future[Answer]:
        """What to reply to a question that came from ``origin``, at once or later."""
        admission = self._admission
        if admission is None or origin != aggregator_of(admission.job):
            job, code = self._refused
            if job and origin == aggregator_of(job):
                return self._reply(code)
            _log.warning("refused: a question from %r, which is not the admitted job", origin[:80])
            return self._reply(channel.NOT_ADMITTED)
        question = read_question(fields)
        if isinstance(question, str):
            return self._reply(question)
        verb, payload = question
        if verb == "hello":
            return self._reply("")
        if verb == "bye":
            self.end(admission.job, "left by the aggregator")
            return self._reply("")
        return self._work.submit(self._step, admission, payload)

    def end(self, job: str, outcome: str) -> None:
        """The job is over for this party: it answers it no more."""
        with self._guard:
            admission = self._admission
            if admission is None or admission.job != job:
                return
            self._admission = None
            on_end, self._on_end = self._on_end, _nothing
            self.kit.session_file.unlink(missing_ok=True)
            self._work.submit(self._forget, admission, outcome)
        on_end()

    # -- one message

    def _step(self, admission: Admission, payload: bytes) -> Answer:
        if self._admission != admission:
            return self._reply(channel.NOT_ADMITTED)
        try:
            _check_session(payload, admission)
            study = approved_study(self.kit, admission.study)
            if study is None:
                return self._reply(channel.NOT_APPROVED)
            if self._role is None or self._role[0] != admission:
                self._role = (admission, self._open(study))
            answer = self._role[1].handle(payload)
            self._after(self._role[1])
        except EigenveilError as error:
            self.say(str(error))
            code = channel.DATA if isinstance(error, DataError) else error.code
            known = code in (channel.DATA, channel.OTHER_SESSION)
            return self._reply(code if known else channel.TROUBLE)
        except Exception:
            _log.exception("a message could not be answered")
            self.say(f"A message could not be answered: see {self.kit.folder / 'log.txt'}.")
            return self._reply(channel.TROUBLE)
        return self._reply("", answer)

    def _reply(self, code: str, payload: bytes = b"") -> Answer:
        return Answer(code, payload, self._process)

    def _forget(self, admission: Admission, outcome: str) -> None:
        self._role = None
        try:
            self._ended(admission, outcome)
        except EigenveilError as error:
            self.say(str(error))

    @abstractmethod
    def _open(self, study: Study) -> _Role:
        """The role that answers."""

    @abstractmethod
    def _after(self, role: Any) -> None:
        """What is to be done after an answer."""

    @abstractmethod
    def _ended(self, admission: Admission, outcome: str) -> None:
        """What is to be done when a job is over."""


class SiteParty(Party):
    """A site: its owner's rows, ledger and say.

    Parameters
    ----------
    open_rows : callable
        The rows with the columns of a study.
    ledger : Ledger
    data_set : str
        The rows' name in the ledger.
    source : RandomSource, optional
        Of the noise; operating-system entropy by default.
    """

    def __init__(
        self,
        kit: Kit,
        open_rows: Callable[[Study], RowSource],
        ledger: Ledger,
        *,
        data_set: str = "default",
        source: RandomSource | None = None,
        approve: Approve = "manual",
        say: Say = print,
    ) -> None:
        super().__init__(kit, approve=approve, say=say)
        self._open_rows, self._ledger, self._data_set = open_rows, ledger, data_set
        self._source = source
        self._told: EigenveilError | None = None
        self._told_invalid: InvalidRows | None = None

    def _open(self, study: Study) -> Site:
        self._told = self._told_invalid = None
        return Site(
            name=self.kit.name,
            study=study,
            rows=self._open_rows(study),
            ledger=self._ledger,
            data_set=self._data_set,
            source=self._source,
            identity=self._identity,
        )

    def _after(self, role: Site) -> None:
        if role.trouble is not None and role.trouble is not self._told:
            self._told = role.trouble
            self.say(f"A message was refused: {role.trouble}")
        if role.invalid is not None and role.invalid != self._told_invalid:
            self._told_invalid = role.invalid
            self.say(f"Study {role.study.name!r}: {role.invalid}. Nobody else is told.")

    def _ended(self, admission: Admission, outcome: str) -> None:
        """Free what the session still reserves: nobody can go on with it."""
        try:
            self._ledger.end(SessionKey(admission.study, admission.session), outcome)
        except ProtocolError as error:
            if error.code != "unknown-session":  # it never began here
                raise
        self.say(f"Job {admission.job} is over for this site ({outcome}).")


class HelperParty(Party):
    """The trusted noise helper: it has neither rows nor a ledger, and draws masks for any study."""

    def __init__(self, kit: Kit, *, approve: Approve = "all", say: Say = print) -> None:
        super().__init__(kit, approve=approve, say=say)

    def _open(self, study: Study) -> Helper:
        return Helper(study, identity=self._identity)

    def _after(self, role: Any) -> None:
        pass

    def _ended(self, admission: Admission, outcome: str) -> None:
        pass


_current: Party | None = None


def set_party(party: Party) -> None:
    """Make this the party of this process.

    FLARE makes its components itself, from names in a file, and hands them nothing: a variable of
    this module is the only way from the entry point to them. There is one party a process.
    """
    global _current
    _current = party


def current_party() -> Party:
    """The party of this process.

    Raises
    ------
    ProtocolError
        When the process was not started by :func:`eigenveil.runtime.flare.entry.run_site`.
    """
    if _current is None:
        raise ProtocolError(
            "This process has no party.",
            hint="Start it with 'eigenveil site start', never with FLARE's own scripts.",
            code="no-party",
        )
    return _current


def _check_session(payload: bytes, admission: Admission) -> None:
    """The lead signed one run: the aggregator cannot make others of it."""
    try:
        session = decode(payload, sender=AGGREGATOR, limit=len(payload)).session
    except ProtocolError:
        return  # the role says what is wrong with it
    if session != admission.session:
        raise ProtocolError(
            "The aggregator asked in another session than the lead signed.",
            hint="It was refused.",
            code=channel.OTHER_SESSION,
        )


def _read_admission(kit: Kit) -> Admission | None:
    """The job that was being answered when this party stopped."""
    try:
        fields = json.loads(kit.session_file.read_text(encoding="utf-8"))
        found = Admission(**{name: str(value) for name, value in fields.items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found if is_job(found.job) else None


def _nothing() -> None:
    """For a job that was admitted before this process began."""
