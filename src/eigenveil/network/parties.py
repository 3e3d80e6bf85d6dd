"""A site or noise helper: what it takes from its mailbox, admits and answers.

A party answers about studies that its owner approved, from its own copy of them, in runs that a
lead signed, and only questions that the aggregator signed for it and that run. What carries them is
not believed. A question stays in the mailbox until its answer was put, so a party that was killed
finds it there again, and its ledger has the answer if there was one.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from eigenveil.errors import DataError, DecisionRefused, EigenveilError, ProtocolError
from eigenveil.federation.approvals.desk import Decisions
from eigenveil.federation.approvals.record import Standing
from eigenveil.federation.approvals.studies import MOST_WAITING, ask_owner, keep
from eigenveil.federation.identity import Identity
from eigenveil.federation.ledger.ledger import Ledger, SessionKey
from eigenveil.federation.protocol.helper import Helper
from eigenveil.federation.protocol.messages import AGGREGATOR, decode
from eigenveil.federation.protocol.site import Site
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import Study
from eigenveil.models.driver import told_owner
from eigenveil.moments.engine import InvalidRows
from eigenveil.moments.source import RowSource
from eigenveil.network import channel
from eigenveil.network.channel import Answer, opened, room
from eigenveil.network.envelopes import Envelope, FileKeys, OtherMembers, Post, is_hello
from eigenveil.network.folder import PartyFolder, identity_of, sealing_of, write_json
from eigenveil.network.health import Activity
from eigenveil.network.mailbox import CarrierError, Mailbox, digest_of
from eigenveil.network.members import KnownMembers
from eigenveil.network.orders import Order, is_session, kept_order, parties_of, read_order
from eigenveil.network.questions import EXPIRED, JOIN, clock_problem, greet, meet
from eigenveil.network.sizes import Sizes
from eigenveil.network.survey import Telling, told
from eigenveil.noise.source import RandomSource

Approve = Literal["manual", "all"]
Say = Callable[[str], None]
# Seconds: of one look into the mailbox, also while the owner's decision is awaited; between two
# tries to reach it, or to be known.
WAIT, SOON = 10.0, 0.3
RETRY = 1.0
HELLO = 5.0
_MOST_OPEN = 4
# Questions that are held at once; others stay in the mailbox.
_MOST_BUSY = 64
_MOST_UNDECIDED = 32
_log = logging.getLogger(__name__)


class _Role(Protocol):
    def handle(self, request: bytes) -> bytes: ...


@dataclass(frozen=True)
class Run:
    """A run that a party answers, under the list of members of its beginning."""

    order: Order
    members: str

    @cached_property
    def sizes(self) -> Sizes:
        """Of its messages."""
        return Sizes(self.order.study)

    @property
    def key(self) -> SessionKey:
        """Its name in the ledger."""
        return SessionKey(self.order.study.hash, self.order.session)


def note_members(members: KnownMembers, ledger: Ledger) -> None:
    """Have a ledger know the newest list of members; raise where it knew a newer one."""
    known = ledger.members()
    if known is not None:
        members.not_before(known.number, known.digest)
    ledger.note_members(*members.mark())


class Party(ABC):
    """A party of studies, whatever carries its messages.

    With ``approve="all"`` a study is approved as it comes: of a site, a decision of its owner that
    is recorded in the ledger. ``say`` is called with sentences for the owner.
    """

    def __init__(
        self,
        folder: PartyFolder,
        *,
        approve: Approve = "manual",
        say: Say = print,
        telling: Telling | None = None,
    ) -> None:
        self.folder, self.approve, self.say = folder, approve, say
        self.telling = telling or Telling()
        self.name = folder.name
        self.members, self._identity = folder.known, identity_of(folder)
        self.post = Post(self._identity, sealing_of(folder), FileKeys(folder.state / "sessions"))
        self.activity = Activity()
        self._runs: OrderedDict[str, tuple[Run, _Role | None]] = OrderedDict()
        self._over = _lines(folder.ended_file)
        for session in self.post.sessions & self._over:
            self.post.end(session)
        self._busy: set[str] = set()
        self._marks: set[str] = set()
        self._undecided: dict[str, tuple[str, Envelope]] = {}
        self._guard = threading.RLock()
        self._work: ThreadPoolExecutor | None = None
        self._greeted = self._looked = 0.0
        self._limit = channel.MOST_STUDY
        for file in folder.runs.glob("*.json"):
            self._run(file.stem)
        self._problem: str | None = ""
        self._unanswered = ""
        self._clock_told = False

    @property
    def identity(self) -> Identity:
        """The key that signs, and who is in the federation as far as this party has seen."""
        return self._identity.now()

    # -- the mailbox

    def about(self) -> dict[str, str]:
        """Study and name of the run that was asked about last, for a log."""
        for session, (run, _) in reversed(self._runs.items()):
            return {"study": run.key.study, "run": session}
        return {}

    def serve(self, mailbox: Mailbox, stop: threading.Event | None = None) -> None:
        """Answer until told to stop; sums are computed in one thread beside."""
        stop = stop or threading.Event()
        self._work = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eigenveil")
        try:
            while not stop.is_set():
                if not self.attend(mailbox, SOON if self._busy else WAIT):
                    stop.wait(RETRY)
        finally:
            self._work.shutdown(wait=False, cancel_futures=True)

    def attend(self, mailbox: Mailbox, wait: float) -> bool:
        """One :meth:`turn`; a mailbox that cannot be reached is told to the owner once."""
        try:
            self.turn(mailbox, wait)
        except EigenveilError as error:
            if error.message != self._problem:
                self.say(f"{self.name} cannot reach its mailbox, and keeps trying: {error}")
            self._problem = error.message
            self.activity.lost()
            return False
        except Exception:
            _log.exception("a look into the mailbox failed")
            return False
        if self._problem is not None:
            self._problem = None
            self.say(f"{self.name} is connected to its mailbox at {self.folder.mailbox_address()}.")
            if told := self.members.warning():
                self.say(told)
        return True

    def turn(self, mailbox: Mailbox, wait: float) -> int:
        """Take what has come and deal with it; how many messages that were."""
        now = time.monotonic()
        if not self._greeted or (now > self._greeted + HELLO and not self.post.knows(AGGREGATOR)):
            mailbox.put(AGGREGATOR, greet(self.post, self.members, AGGREGATOR))
            self._greeted = now
        with self._guard:
            known = frozenset(self._busy)
        if len(known) >= _MOST_BUSY:
            time.sleep(min(wait, SOON))
            mail = []
        else:
            mail = mailbox.take(wait, known)
        self.activity.reached()
        for data in mail:
            if len(self._busy) >= _MOST_BUSY:
                break
            digest = digest_of(data)
            if self._received(mailbox, digest, data):
                mailbox.forget([digest])
        if self._undecided and time.monotonic() > self._looked + SOON:
            self._look_for_decisions(mailbox)
        return len(mail)

    def _received(self, mailbox: Mailbox, digest: str, data: bytes) -> bool:
        """Deal with a message; whether nothing more is to be done about it."""
        try:
            if is_hello(data):
                name, back = meet(self.post, self.members, data)
                if back:
                    mailbox.put(name, back)
                return True
            known = True
            try:
                query = self.post.open(data, limit=self._limit)
            except OtherMembers as other:
                known, query = False, other.envelope
            self._check_clock(query)
            if query.question:
                return True
            if query.session and query.step in (channel.SURVEY, channel.OVER):
                raise ProtocolError(f"{query.sender} asked in a run what is of none.")
            if query.step == channel.SURVEY:
                if not known:
                    self._bring_list(mailbox, query.sender)
                self._send(mailbox, query, told(self, query, known=known))
                return True
            if query.sender != AGGREGATOR:
                raise ProtocolError(f"{query.sender} asked what only the aggregator may.")
            self.activity.note(query.step)
            if not known and query.step == JOIN and self._run(query.session) is None:
                self._bring_list(mailbox, AGGREGATOR)
                self._send(mailbox, query, Answer(channel.OTHER_MEMBERS))
                return True
        except CarrierError:
            raise
        except EigenveilError as error:
            if error.code == EXPIRED and error.message != self._unanswered:
                self.say(str(error))
                self._unanswered = error.message
            _log.warning("refused: %s", error.message)
            return True
        except Exception:  # or it would come again for ever, before all others
            _log.exception("a message could not be dealt with")
            return True
        with self._guard:
            if query.mark in self._marks:
                return True
            self._marks.add(query.mark)
            self._busy.add(digest)
        self._submit(lambda: self._deal_with(mailbox, digest, query))
        return False

    def _submit(self, work: Callable[[], None]) -> None:
        if self._work is None:
            work()
        else:
            self._work.submit(work)

    def _deal_with(self, mailbox: Mailbox, digest: str, query: Envelope) -> None:
        """Answer a question of a run, put the answer, and let go of the question."""
        try:
            if query.step == channel.OVER:
                self._end(mailbox, query.payload.decode("ascii", "replace"))
                answer = Answer()
            else:
                answer = self._answer(query)
            again = query.mark in self._undecided
            if answer.code == channel.NOT_APPROVED:
                with self._guard:
                    self._undecided[query.mark] = digest, query
                if not again:
                    self._send(mailbox, query, answer)
                if len(self._undecided) <= _MOST_UNDECIDED:
                    return
            self._send(mailbox, query, answer)
            mailbox.forget([digest])
        except EigenveilError as error:  # the question is still there
            if error.message != self._unanswered:
                self.say(f"A question is not answered yet, and is tried again: {error}")
            self._unanswered = error.message
            time.sleep(RETRY)
        except Exception:
            _log.exception("a question could not be dealt with")
            time.sleep(RETRY)
        with self._guard:
            self._undecided.pop(query.mark, None)
            self._marks.discard(query.mark)
            self._busy.discard(digest)

    def _send(self, mailbox: Mailbox, query: Envelope, answer: Answer) -> None:
        """An answer to this question alone, signed, sealed, and padded to its step's size."""
        run = self._runs.get(query.session)
        size = 0 if run is None else run[0].sizes.bound(query.step, answer=True)
        reply = query.answered(answer.payload, answer.code)
        sealed, _ = self.post.seal(reply, bound=max(size, room(answer.payload)))
        mailbox.put(query.sender, sealed)

    def _bring_list(self, mailbox: Mailbox, name: str) -> None:
        mailbox.put(name, greet(self.post, self.members, name, with_list=True))

    def _check_clock(self, query: Envelope) -> None:
        told = clock_problem(query)
        if told and not self._clock_told:
            self.say(told)
            self._clock_told = True

    # -- runs

    def propose(self, study: Study, *, most: int = MOST_WAITING) -> str:
        """Why a study cannot be run here yet, a code; the owner is asked if need be."""
        standing = self.standing(study.hash)
        if standing.approved:
            return ""
        if standing.state == "refused":
            return channel.OWNER_REFUSED
        if standing.waits and ask_owner(self.folder, study, most=most):
            self.say(
                f"Study {study.name!r} (hash {study.hash[:12]}) waits for approval: "
                f"eigenveil site approve --party {self.folder.folder} --list"
            )
        return channel.NOT_APPROVED

    def _look_for_decisions(self, mailbox: Mailbox) -> None:
        self._looked = time.monotonic()
        with self._guard:
            waiting = list(self._undecided.values())
        standings: dict[str, bool] = {}
        for digest, query in waiting:
            if query.study not in standings:
                found = self.standing(query.study)
                standings[query.study] = found.approved or not found.waits
            if standings[query.study]:
                self._submit(lambda d=digest, q=query: self._deal_with(mailbox, d, q))  # type: ignore[misc]

    def _answer(self, query: Envelope) -> Answer:
        try:
            payload, run = query.payload, self._run(query.session)
            if query.step == JOIN:
                run, payload = self._admitted(query)
            if run is None or run.key.study != query.study:
                return Answer(channel.NOT_ADMITTED)
            if not self._may_run(run):
                return Answer(channel.NOT_APPROVED if query.step == JOIN else channel.REFUSED)
            try:
                inside = decode(payload, sender=AGGREGATOR, limit=len(payload))
            except ProtocolError:
                pass  # the role states what is wrong with it
            else:
                if inside.session != query.session:
                    return Answer(channel.OTHER_SESSION)
                if inside.step != query.step:
                    return Answer(channel.BAD_REQUEST)
            role = self._role(run)
            answer = role.handle(payload)
            self._after(role)
            return Answer("", answer)
        except _Coded as coded:
            return coded.answer
        except DecisionRefused as error:  # these are not the rows that were approved
            self.say(str(error))
            return Answer(channel.REFUSED)
        except EigenveilError as error:
            self.say(str(error))
            return Answer(channel.DATA if isinstance(error, DataError) else channel.TROUBLE)
        except Exception:
            _log.exception("a message could not be answered")
            self.say(f"A message could not be answered: see {self.folder.folder / 'log.txt'}.")
            return Answer(channel.TROUBLE)

    def _admitted(self, query: Envelope) -> tuple[Run, bytes]:
        """The run of a first question, if a lead signed it and the owner agrees; its message."""
        line, members, message = opened(query.payload)
        known = self._run(query.session)
        if known is not None and known.order.line == line and known.members == members:
            return known, message
        if known is not None or query.session in self._over:
            self.say("A run that is over, or another one of its name, was brought: it is refused.")
            raise _Coded(channel.REFUSED)
        try:
            self.members.at(members)  # the newest, or one before that this party has seen
        except EigenveilError:
            raise _Coded(channel.OTHER_MEMBERS) from None
        try:
            order = read_order(line, self.identity)
        except ProtocolError as error:
            self.say(str(error))
            raise _Coded(channel.REFUSED) from None
        study = order.study
        if (study.hash, order.session) != (query.study, query.session):
            raise _Coded(channel.OTHER_SESSION)
        if self.name not in parties_of(study):
            self.say(f"Study {study.name!r} was brought, of which {self.name} is no part.")
            raise _Coded(channel.REFUSED)
        try:
            self.members.check_begins(members, (*parties_of(study), AGGREGATOR))
        except ProtocolError as error:
            self.say(f"Study {study.name!r} was refused: {error}")
            raise _Coded(channel.REFUSED) from None
        if code := self.propose(study):
            raise _Coded(code)
        keep(self.folder, study)  # of a study that is approved as it comes, there is no copy yet
        run = Run(order, members)
        write_json(self._file(order.session), {"order": line.decode(), "members": members})
        self._know(run)
        self.activity.runs += 1
        self.say(f"A run of study {study.name!r} (hash {study.hash[:12]}) begins.")
        return run, message

    def _run(self, session: str) -> Run | None:
        """A run that was admitted, by this process or one before."""
        found = self._runs.get(session)
        if found is not None:
            return found[0]
        if not is_session(session) or session in self._over:
            return None
        try:
            fields = json.loads(self._file(session).read_text(encoding="utf-8"))
            run = Run(kept_order(fields["order"].encode()), str(fields["members"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EigenveilError):
            return None
        self._know(run)
        return run

    def _know(self, run: Run) -> None:
        with self._guard:
            self._runs[run.order.session] = run, None
            self._limit = max(self._limit, run.sizes.largest())

    def _role(self, run: Run) -> _Role:
        """What answers in a run; few are held open at a time."""
        session = run.order.session
        found = self._runs[session][1]
        if found is None:
            found = self._open(run)
        with self._guard:
            self._runs[session] = run, found
            self._runs.move_to_end(session)
            held = [each for each, (_, role) in self._runs.items() if role is not None]
            for each in held[:-_MOST_OPEN]:
                self._runs[each] = self._runs[each][0], None
        return found

    def _end(self, mailbox: Mailbox, session: str) -> None:
        """The aggregator says that a run is over: nothing of it is answered any more."""
        if not is_session(session):
            return
        run = self._run(session)
        with self._guard:
            self._over.add(session)
            left = {m: d for m, (d, q) in self._undecided.items() if q.session == session}
            for mark, digest in left.items():
                del self._undecided[mark]
                self._busy.discard(digest)
                self._marks.discard(mark)
        self.post.end(session)
        if left:
            mailbox.forget(left.values())
        if run is None:
            return
        try:
            self._ended(run)
            with self.folder.ended_file.open("a", encoding="ascii") as file:
                file.write(f"{session}\n")
            self._file(session).unlink(missing_ok=True)
        except EigenveilError as error:
            self.say(str(error))
        except OSError as error:  # no room, for example: a site's ledger has it all the same
            self.say(f"{self.folder.ended_file} cannot be written: {error.strerror or error}.")
        with self._guard:
            self._runs.pop(session, None)
        self.say(f"The run of study {run.order.study.name!r} is over for {self.name}.")

    def _file(self, session: str) -> Path:
        return self.folder.runs / f"{session}.json"

    @abstractmethod
    def standing(self, study: str) -> Standing:
        """Where a study stands, by its hash."""

    @abstractmethod
    def _may_run(self, run: Run) -> bool: ...

    @abstractmethod
    def _open(self, run: Run) -> _Role: ...

    @abstractmethod
    def _ended(self, run: Run) -> None: ...

    def _after(self, role: Any) -> None:
        """What is to be done after an answer: of a helper, nothing."""
        del role


class _Coded(Exception):
    def __init__(self, code: str) -> None:
        self.answer = Answer(code)


class SiteParty(Party):
    """A site: its rows, ledger and approvals; ``open_rows`` gives the columns of a study."""

    def __init__(
        self,
        folder: PartyFolder,
        open_rows: Callable[[Study], RowSource],
        ledger: Ledger,
        *,
        data_set: str = "default",
        source: RandomSource | None = None,
        approve: Approve = "manual",
        say: Say = print,
        telling: Telling | None = None,
    ) -> None:
        super().__init__(folder, approve=approve, say=say, telling=telling)
        self._open_rows, self._ledger, self._data_set = open_rows, ledger, data_set
        self._source = source
        self._decisions = Decisions(folder, ledger, data_set)
        self._decisions.begin()
        if approve == "all":
            self._decisions.allow_every_study()
        else:
            self._decisions.end_every_study()
        self._reported: tuple[EigenveilError | None, InvalidRows | None] = None, None

    def standing(self, study: str) -> Standing:
        """Where a study stands, by the ledger's decisions."""
        return self._decisions.standing(study)

    def _may_run(self, run: Run) -> bool:
        """Asked of the ledger before every answer, so a revocation counts from the next one on."""
        return self._decisions.may_run(run.key)

    def _open(self, run: Run) -> Site:
        study = run.order.study
        rows = self._open_rows(study)
        self._decisions.check_rows(study.hash, rows.paths)
        note_members(self.members, self._ledger)
        return Site(
            name=self.name,
            terms=settle(study),
            rows=rows,
            ledger=self._ledger,
            data_set=self._data_set,
            source=self._source,
            identity=identity_of(self.folder, run.members),
        )

    def _after(self, role: Site) -> None:
        error, invalid = self._reported
        if role.last_error is not None and role.last_error is not error:
            self.say(f"A message was refused: {role.last_error}")
        if role.invalid is not None and role.invalid != invalid:
            said = told_owner(role.invalid, role.plan)
            self.say(f"Study {role.study.name!r}: {said} Only you see this.")
        self._reported = role.last_error, role.invalid

    def _ended(self, run: Run) -> None:
        """Free what the session still reserves: nobody can go on with it."""
        try:
            if any(each.key == run.key and each.is_open for each in self._ledger.sessions()):
                self._ledger.end(run.key, "left by the aggregator")
        except ProtocolError as error:
            if error.code != "unknown-session":  # it never began here
                raise


class HelperParty(Party):
    """The trusted noise helper: it has neither rows nor a ledger, and draws masks for any study."""

    def __init__(self, folder: PartyFolder, *, approve: Approve = "all", say: Say = print) -> None:
        super().__init__(folder, approve=approve, say=say)

    def standing(self, study: str) -> Standing:
        """As the helper was started."""
        del study
        return Standing("approved" if self.approve == "all" else "waiting")

    def _may_run(self, run: Run) -> bool:
        return self.standing(run.key.study).approved

    def _open(self, run: Run) -> Helper:
        identity = identity_of(self.folder, run.members)
        return Helper(settle(run.order.study), identity=identity, memory=self._memory(run))

    def _ended(self, run: Run) -> None:
        """Forget the run's secrets."""
        self._memory(run).unlink(missing_ok=True)

    def _memory(self, run: Run) -> Path:
        return self.folder.state / f"masks-{run.order.session}.json"


def _lines(file: Path) -> set[str]:
    """Names of runs that are over here."""
    try:
        return set(file.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return set()
