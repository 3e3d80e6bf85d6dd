"""The parties in their own processes: what a site or noise helper admits and answers.

A party answers about studies that its owner approved, from its own copy of them, in runs that a
lead signed, and only questions that the aggregator signed for it and that run. What carries them is
not believed: a question, an end or a job that somebody else made changes nothing. FLARE is not
known here: see :mod:`eigenveil.network.flare.party`.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Protocol

from eigenveil.errors import DataError, EigenveilError, ProtocolError
from eigenveil.federation.ledger.ledger import Ledger, SessionKey
from eigenveil.federation.protocol.envelope import (
    MOST_BESIDE,
    Envelope,
    clocks_differ,
    seal,
)
from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import AGGREGATOR, decode
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import Study
from eigenveil.federation.x509_identity import Identity
from eigenveil.models.inputs import told_owner
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.source import RowSource
from eigenveil.network import channel
from eigenveil.network.approvals import MOST_WAITING, ask_owner, decided_study, keep
from eigenveil.network.channel import BYE, HELLO, Answer, largest_message
from eigenveil.network.decisions import Decisions, Standing
from eigenveil.network.flare.job import SignedJob, is_job, is_session, parties_of
from eigenveil.network.health import Connection
from eigenveil.network.kit import Kit, write_json
from eigenveil.network.metrics import Activity
from eigenveil.network.signed import (
    KitIdentity,
    aggregator_at,
    list_of,
    members_of,
    open_learning,
)
from eigenveil.network.survey import Respondent, Telling
from eigenveil.network.x509_members import LARGEST, KnownMembers
from eigenveil.noise.source import RandomSource

Approve = Literal["manual", "all"]
Say = Callable[[str], None]
# Runs that wait for the aggregator to begin them; the oldest is forgotten.
_MOST_ADMITTED = 16
_log = logging.getLogger(__name__)


class _Role(Protocol):
    def handle(self, request: bytes) -> bytes: ...


@dataclass(frozen=True)
class Admission:
    """A run that a party answers.

    Attributes
    ----------
    job : str
        FLARE's name of it.
    study : str
        Hash of the study.
    session : str
        The run's name, as the lead signed it.
    limit : int
        Most bytes of a question in it.
    """

    job: str
    study: str
    session: str
    limit: int

    @property
    def run(self) -> tuple[str, str]:
        """What a question must be about."""
        return self.study, self.session


class Party(ABC):
    """A party of studies, whatever carries its messages.

    It signs its keys and its answers with its certificate, and takes other parties' keys only with
    theirs: the aggregator passes keys on and could put its own in their place.

    Runs are admitted as FLARE brings them, which ends nothing: a run takes the place of another
    when the aggregator signs the first question of it. A run that has ended is never admitted
    again, so an old job that somebody brings once more is refused.

    Parameters
    ----------
    kit : Kit
    approve : "manual" or "all"
        Whether a study waits for the owner, or is approved as it comes: of a site, a decision of
        its owner that is recorded in the ledger.
    say : callable, optional
        Called with sentences: what the owner should know.
    telling : Telling, optional
        What leads may read of this party before a study runs.

    Attributes
    ----------
    connection : Connection
        Whether the party is part of its federation's network.
    doubted : threading.Event
        Set when something unsigned states that the answered run is over: the aggregator is
        consulted.
    activity : Activity
        What came, for the owner's monitoring.
    """

    def __init__(
        self,
        kit: Kit,
        *,
        approve: Approve = "manual",
        say: Say = print,
        telling: Telling | None = None,
    ) -> None:
        self.kit, self.approve, self.say = kit, approve, say
        self.connection = Connection()
        self._aggregator = aggregator_at(kit.host)
        self._process = os.urandom(16).hex()
        self._admission, self._admitted = _read_admissions(kit)
        self._keys = KitIdentity(kit, lambda: self._admission is not None)
        self._over = _read_ended(kit)
        self._refused = ("", "")
        self._clocks_differ = False
        self._on_end: dict[str, Callable[[], None]] = {}
        self.activity = Activity(is_ready=self.connection.is_up)
        self.doubted = threading.Event()
        if self._admission is not None:
            self.doubted.set()
            self.members.settle()
        self._guard = threading.RLock()
        # one message at a time, and none of FLARE's threads is held while a sum is computed
        self._work = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eigenveil")
        self._role: tuple[Admission, _Role] | None = None
        self._respondent = Respondent(self, self._keys, telling or Telling())

    @property
    def identity(self) -> Identity:
        """The key that signs now, and who is in the federation as far as this party has seen."""
        return self._keys.now()

    @property
    def members(self) -> KnownMembers:
        """Who is in the federation, as far as this party has seen."""
        return members_of(self.identity)

    @property
    def admission(self) -> Admission | None:
        """The run that is answered, if any."""
        return self._admission

    @property
    def limit(self) -> int:
        """Most bytes of a question, envelope and all, in the runs that are known."""
        known = [*self._admitted, *([self._admission] if self._admission else [])]
        return MOST_BESIDE + max([LARGEST, *(each.limit for each in known)])

    # -- what FLARE's side reports

    def propose(self, study: Study, *, most: int = MOST_WAITING) -> str:
        """Why a study cannot be run here yet; empty where it can. The owner decides if need be.

        This only helps FLARE to wait: the decision that counts is made in
        :meth:`admit` and before every answer.

        Parameters
        ----------
        most : int
            Studies that may wait for the owner, this one among them.

        Raises
        ------
        DataError
            ``too-many-waiting``.
        """
        if self.kit.name not in parties_of(study):
            return f"{self.kit.name} is not part of this study"
        standing = self.standing(study.hash)
        if standing.approved:
            return ""
        if standing.state == "refused":
            told = f": {standing.reason}" if standing.tell_lead and standing.reason else ""
            return f"refused by this site's owner{told}"
        if standing.waits and ask_owner(self.kit, study, most=most):
            self.say(
                f"Study {study.name!r} (hash {study.hash[:12]}) waits for approval: "
                f"eigenveil site approve --kit {self.kit.folder} --list"
            )
        return "study not approved by this site's owner"

    def admit(self, job: str, signed_job: SignedJob, on_end: Callable[[], None]) -> None:
        """Answer this run from the aggregator's first question of it on.

        Parameters
        ----------
        on_end : callable
            Called once when the run is over for this party.

        Raises
        ------
        ProtocolError
            When the owner has not approved the study, it is not about this party, or the run was
            admitted before or has ended.
        """
        study = signed_job.study
        if not is_job(job):
            raise ProtocolError("The job has a name that is not valid.", code="job-refused")
        if why := self.propose(study):
            refused = self.standing(study.hash).state == "refused"
            raise ProtocolError(
                f"Study {study.name!r}: {why}.",
                code=channel.OWNER_REFUSED if refused else channel.NOT_APPROVED,
            )
        keep(self.kit, study)  # of a study that is approved as it comes, there is no copy yet
        new = Admission(job, study.hash, signed_job.session, largest_message(study))
        with self._guard:
            known = [*self._admitted, *([self._admission] if self._admission else [])]
            if new.session in self._over or self._has_ended(new):
                raise ProtocolError(
                    f"Study {study.name!r}: a run that is over was brought again, as job {job}.",
                    hint="It was refused; a lead's new run has a name of its own.",
                    code=channel.REFUSED,
                )
            if new.session in (each.session for each in known):
                raise ProtocolError(
                    f"Study {study.name!r}: a run that is known was brought again, as job {job}.",
                    hint="It was refused; the run goes on.",
                    code=channel.REFUSED,
                )
            self._admitted = [*self._admitted, new][-_MOST_ADMITTED:]
            self._on_end[new.session] = on_end
            self._store()
        self.say(f"Study {study.name!r} (hash {study.hash[:12]}) is admitted, job {job}.")

    def refuse(self, session: str, error: EigenveilError) -> None:
        """Tell the owner why a job was not admitted, and the aggregator only that it was not.

        ``session`` is empty where the job could not be read so far.
        """
        self.say(str(error))
        known = error.code in (channel.NOT_APPROVED, channel.OWNER_REFUSED)
        self._refused = (session, error.code if known else channel.REFUSED)

    def answer(self, data: bytes | bytearray | memoryview) -> bytes | Future[bytes]:
        """What to reply to a question, at once or later; nothing where nobody signed it for us."""
        try:
            query = open_learning(
                data,
                self.identity,
                sender=self._aggregator,
                recipient=self.kit.name,
                limit=self.limit,
            )
        except ProtocolError as error:
            _log.warning("refused: %s", error.message)
            return b""
        self.activity.note(query.step)
        self._check_clock(query)
        if query.step == HELLO and query.payload and (code := self._learn(query)):
            known = list_of(self.identity) if code == channel.OLDER_MEMBERS else b""
            return self._sealed(query, self._reply(code, known))
        admission = self._turn_to(query)
        if admission is None:
            session, code = self._refused
            mine = bool(code) and session in ("", query.session)
            return self._sealed(query, self._reply(code if mine else channel.NOT_ADMITTED))
        if query.step == HELLO:
            return self._sealed(query, self._reply(""))
        if query.step == BYE:
            self.end(admission.session, "left by the aggregator")
            return self._sealed(query, self._reply(""))
        return self._work.submit(lambda: self._sealed(query, self._checked_step(admission, query)))

    def respond(self, data: bytes | bytearray | memoryview) -> bytes:
        """The signed answer to a lead's question before a study runs; also while one runs.

        Nothing where no lead of the federation signed the question.
        """
        return self._respondent.answer(data)

    def _learn(self, query: Envelope) -> str:
        """Take over a newer list of members; a code where it is refused.

        It comes with the aggregator's first question, before keys are exchanged: keys of whoever
        is not in it any more are refused from then on. An aggregator with an older one is given
        this one, but not in the middle of a run: with whom that is was settled at its beginning.
        """
        try:
            if self.members.adopt(query.payload):
                self.say("A newer list of the federation's members has come.")
        except EigenveilError as error:
            if error.code != channel.OLDER_MEMBERS:
                self.say(str(error))
                return channel.BAD_MEMBERS
            admission = self._admission
            if admission is None or admission.run != (query.study, query.session):
                return channel.OLDER_MEMBERS
        return ""

    def _check_clock(self, query: Envelope) -> None:
        """Tell the owner once that the clocks differ; nothing depends on it."""
        differ = clocks_differ(query)
        if differ and not self._clocks_differ:
            self.say(differ)
        self._clocks_differ = bool(differ)

    def doubt(self) -> None:
        """Something unsigned states that the run is over: find out from the aggregator itself."""
        if self._admission is not None:
            self.doubted.set()

    def end(self, session: str, outcome: str) -> None:
        """The run is over for this party: it answers it no more.

        Called only for what the aggregator has signed.
        """
        with self._guard:
            admission = self._admission
            if admission is None or admission.session != session:
                return
            self._admission = None
            self.members.release()
            self.doubted.clear()
            self._note_over(session)
            self._store()
            on_end = self._on_end.pop(session, _nothing)
            self._work.submit(self._forget, admission, outcome)
        on_end()

    def _turn_to(self, query: Envelope) -> Admission | None:
        """The run that a signed question is about, in place of any other; if it is admitted."""
        run = query.study, query.session
        with self._guard:
            if self._admission is not None and self._admission.run == run:
                return self._admission
            new = next((each for each in self._admitted if each.run == run), None)
            if new is None:
                return None
            if self._admission is not None:
                self.end(self._admission.session, "replaced")
            self._admission = new
            self.members.settle()
            self._admitted = [each for each in self._admitted if each is not new]
            self._refused = ("", "")
            self._store()
        self.activity.runs += 1
        self.say(f"A run of study {new.study[:12]} begins, job {new.job}.")
        return new

    def _store(self) -> None:
        """Keep what is admitted, so that a party that is started again goes on."""
        if self._admission is None and not self._admitted:
            self.kit.session_file.unlink(missing_ok=True)
            return
        waiting = [asdict(each) for each in self._admitted]
        now = None if self._admission is None else asdict(self._admission)
        write_json(self.kit.session_file, {"now": now, "waiting": waiting})

    def _note_over(self, session: str) -> None:
        self._over.add(session)
        try:
            with self.kit.ended_file.open("a", encoding="ascii") as file:
                file.write(f"{session}\n")
        except OSError as error:  # no room, for example: a site's ledger has it all the same
            self.say(f"{self.kit.ended_file} cannot be written: {error.strerror or error}.")

    # -- one message

    def _checked_step(self, admission: Admission, query: Envelope) -> Answer:
        """The answer, if what is inside is what the envelope states."""
        try:
            inside = decode(query.payload, sender=AGGREGATOR, limit=len(query.payload))
        except ProtocolError:
            return self._step(admission, query.payload)  # the role states what is wrong with it
        if inside.session != query.session:
            return self._reply(channel.OTHER_SESSION)
        if inside.step != query.step:
            return self._reply(channel.BAD_REQUEST)
        return self._step(admission, query.payload)

    def _step(self, admission: Admission, payload: bytes) -> Answer:
        if self._admission != admission:
            return self._reply(channel.NOT_ADMITTED)
        try:
            study = decided_study(self.kit, admission.study)
            if study is None or not self._may_run(admission):
                return self._reply(channel.NOT_APPROVED)
            if self._role is None or self._role[0] != admission:
                self._role = (admission, self._open(study))
            answer = self._role[1].handle(payload)
            self._after(self._role[1])
        except EigenveilError as error:
            self.say(str(error))
            code = channel.DATA if isinstance(error, DataError) else error.code
            return self._reply(code if code == channel.DATA else channel.TROUBLE)
        except Exception:
            _log.exception("a message could not be answered")
            self.say(f"A message could not be answered: see {self.kit.folder / 'log.txt'}.")
            return self._reply(channel.TROUBLE)
        return self._reply("", answer)

    def _reply(self, code: str, payload: bytes = b"") -> Answer:
        return Answer(code, payload, self._process)

    def _sealed(self, query: Envelope, answer: Answer) -> bytes:
        """An answer to this question alone, signed."""
        reply = replace(
            query,
            sender=self.kit.name,
            recipient=AGGREGATOR,
            payload=answer.payload,
            request_digest=query.mark,
            code=answer.code,
            process=answer.process,
        )
        return seal(reply, self.identity)[0]

    def _forget(self, admission: Admission, outcome: str) -> None:
        self._role = None
        try:
            self._ended(admission, outcome)
        except EigenveilError as error:
            self.say(str(error))

    @abstractmethod
    def standing(self, study: str) -> Standing:
        """Where a study stands, by its hash."""

    @abstractmethod
    def _may_run(self, admission: Admission) -> bool:
        """Whether a run may begin or go on now."""

    @abstractmethod
    def _open(self, study: Study) -> _Role:
        """The role that answers."""

    @abstractmethod
    def _after(self, role: Any) -> None:
        """What is to be done after an answer."""

    @abstractmethod
    def _ended(self, admission: Admission, outcome: str) -> None:
        """What is to be done when a job is over."""

    def _has_ended(self, admission: Admission) -> bool:
        """Whether this party remembers elsewhere that a run is over."""
        del admission
        return False


class SiteParty(Party):
    """A site: its rows, ledger and approvals.

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
        telling: Telling | None = None,
    ) -> None:
        super().__init__(kit, approve=approve, say=say, telling=telling)
        self._open_rows, self._ledger, self._data_set = open_rows, ledger, data_set
        self._source = source
        self._decisions = Decisions(kit, ledger)
        if approve == "all":
            self._decisions.allow_every_study()
        else:
            self._decisions.end_every_study()
        self._reported: EigenveilError | None = None
        self._reported_invalid: InvalidRows | None = None

    def standing(self, study: str) -> Standing:
        """Where a study stands, by the ledger's decisions."""
        return self._decisions.standing(study)

    def _may_run(self, admission: Admission) -> bool:
        """Asked of the ledger before every answer, so a revocation counts from the next one on."""
        record = self._decisions.record(admission.study)
        begun = record.begun.get(SessionKey(admission.study, admission.session))
        return record.standing(admission.study).allows(begun)

    def _open(self, study: Study) -> Site:
        self._reported = self._reported_invalid = None
        return Site(
            name=self.kit.name,
            terms=settle(study),
            rows=self._open_rows(study),
            ledger=self._ledger,
            data_set=self._data_set,
            source=self._source,
            identity=self.identity,  # type: ignore[arg-type]
        )

    def _after(self, role: Site) -> None:
        if role.last_error is not None and role.last_error is not self._reported:
            self._reported = role.last_error
            self.say(f"A message was refused: {role.last_error}")
        if role.invalid is not None and role.invalid != self._reported_invalid:
            self._reported_invalid = role.invalid
            said = told_owner(role.invalid, role.plan)
            self.say(f"Study {role.study.name!r}: {said} Only you see this.")

    def _ended(self, admission: Admission, outcome: str) -> None:
        """Free what the session still reserves: nobody can go on with it."""
        try:
            self._ledger.end(SessionKey(admission.study, admission.session), outcome)
        except ProtocolError as error:
            if error.code != "unknown-session":  # it never began here
                raise
        self.say(f"Job {admission.job} is over for this site ({outcome}).")

    def _has_ended(self, admission: Admission) -> bool:
        """Whether the ledger has the run, and that it is over."""
        key = SessionKey(admission.study, admission.session)
        try:
            return any(each.key == key and not each.is_open for each in self._ledger.sessions())
        except EigenveilError as error:
            if error.code == "no-ledger":
                return False
            raise


class HelperParty(Party):
    """The trusted noise helper: it has neither rows nor a ledger, and draws masks for any study."""

    def __init__(self, kit: Kit, *, approve: Approve = "all", say: Say = print) -> None:
        super().__init__(kit, approve=approve, say=say)

    def standing(self, study: str) -> Standing:
        """As the helper was started."""
        del study
        return Standing("approved" if self.approve == "all" else "waiting")

    def _may_run(self, admission: Admission) -> bool:
        return self.standing(admission.study).approved

    def _open(self, study: Study) -> Helper:
        memory = self.kit.state / "masks.json"
        return Helper(settle(study), identity=self.identity, memory=memory)  # type: ignore[arg-type]

    def _after(self, role: Any) -> None:
        pass

    def _ended(self, admission: Admission, outcome: str) -> None:
        """Forget the run's secrets."""
        del admission, outcome
        (self.kit.state / "masks.json").unlink(missing_ok=True)


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
        When the process was not started by :func:`eigenveil.network.flare.entry.run_site`.
    """
    if _current is None:
        raise ProtocolError(
            "This process has no party.",
            hint="Start it with 'eigenveil site start', never with FLARE's own scripts.",
            code="no-party",
        )
    return _current


def _read_admissions(kit: Kit) -> tuple[Admission | None, list[Admission]]:
    """The run that was being answered when this party stopped, and those that waited."""
    try:
        fields = json.loads(kit.session_file.read_text(encoding="utf-8"))
        now = None if fields["now"] is None else _admission_of(fields["now"])
        return now, [_admission_of(each) for each in fields["waiting"]][-_MOST_ADMITTED:]
    except (OSError, ValueError, TypeError, KeyError):
        return None, []


def _admission_of(fields: Any) -> Admission:
    found = Admission(
        str(fields["job"]), str(fields["study"]), str(fields["session"]), int(fields["limit"])
    )
    if not is_job(found.job) or not is_session(found.session):
        raise ValueError("no run")
    return found


def _read_ended(kit: Kit) -> set[str]:
    """Names of runs that are over here."""
    try:
        return set(kit.ended_file.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return set()


def _nothing() -> None:
    """For a run that was admitted before this process began."""
