"""Takes what comes to a party's mailbox, and has it answered.

A question stays in the mailbox until its answer was put, so a party that was killed finds it there
again, and its ledger has the answer if there was one. What carries mail is not believed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.network.channel import NOT_APPROVED, OTHER_MEMBERS, OVER, SURVEY, Reply
from eigenveil.network.endpoint import Endpoint, Received
from eigenveil.network.envelopes import Envelope
from eigenveil.network.mailbox import CarrierError, Mailbox, digest_of
from eigenveil.network.orders import is_session
from eigenveil.network.parties import StudyParty
from eigenveil.network.questions import EXPIRED, JOIN
from eigenveil.network.survey import told

# Seconds: of one look into the mailbox, also while the owner's decision is awaited; between two
# tries to reach it, or to be known; and between two looks for runs that nobody goes on with.
WAIT, SOON = 10.0, 0.3
RETRY = 1.0
HELLO = 5.0
_SWEEP = 3600.0
# Questions that are held at once; others stay in the mailbox.
_MOST_BUSY = 64
_MOST_UNDECIDED = 32
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Held:
    """A question that is in the mailbox still; ``waits``: for the owner's decision."""

    digest: str
    query: Envelope
    waits: bool = False


class Attendant:
    """Attends a party's mailbox; sums are computed in one thread beside."""

    def __init__(self, party: StudyParty, mailbox: Mailbox) -> None:
        self.party, self.say = party, party.say
        self.at = Endpoint(party.folder, mailbox, party.say)
        for session in self.at.post.sessions:  # its end was cut off
            if party.runs.find(session) is None:
                self.at.post.end(session)
        self._held: dict[str, _Held] = {}  # by mark
        self._guard = threading.RLock()
        self._work: ThreadPoolExecutor | None = None
        self._greeted = self._looked = self._swept = 0.0
        self._problem: str | None = ""
        self._unanswered = ""

    def serve(self, stop: threading.Event | None = None) -> None:
        """Answer until told to stop."""
        stop = stop or threading.Event()
        self._work = ThreadPoolExecutor(max_workers=1, thread_name_prefix="eigenveil")
        try:
            while not stop.is_set():
                if not self.attend(SOON if self._held else WAIT):
                    stop.wait(RETRY)
        finally:
            self._work.shutdown(cancel_futures=True)

    def attend(self, wait: float) -> bool:
        """One :meth:`turn`; a mailbox that cannot be reached is told to the owner once."""
        party = self.party
        try:
            self.turn(wait)
        except EigenveilError as error:
            if error.message != self._problem:
                self.say(f"{party.name} cannot reach its mailbox, and keeps trying: {error}")
            self._problem = error.message
            party.activity.lost()
            return False
        except Exception:
            _log.exception("a look into the mailbox failed")
            return False
        if self._problem is not None:
            self._problem = None
            where = party.folder.mailbox_address()
            self.say(f"{party.name} is connected to its mailbox at {where}.")
            if warned := self.at.members.warning():
                self.say(warned)
        return True

    def turn(self, wait: float) -> None:
        now, at = time.monotonic(), self.at
        at.limit = max(at.limit, self.party.runs.largest)
        if not self._greeted or (now > self._greeted + HELLO and not at.post.knows(AGGREGATOR)):
            at.greet(AGGREGATOR)
            self._greeted = now
        with self._guard:
            known = frozenset(each.digest for each in self._held.values())
        if len(known) >= _MOST_BUSY:
            time.sleep(min(wait, SOON))
            mail = []
        else:
            mail = at.mailbox.take(wait, known)
        self.party.activity.reached()
        for data in mail:
            if len(self._held) >= _MOST_BUSY:
                break
            digest = digest_of(data)
            if self._received(digest, data):
                at.mailbox.forget([digest])
        now = time.monotonic()
        if now > self._looked + SOON and any(each.waits for each in list(self._held.values())):
            self._looked = now
            self._look_for_decisions()
        if not self._swept or now > self._swept + _SWEEP:
            self._swept = now
            for session in self.party.runs.silent():
                self._submit(lambda name=session: self._end(name))  # type: ignore[misc]

    def _received(self, digest: str, data: bytes) -> bool:
        """Deal with a message; whether nothing more is to be done about it."""
        try:
            came = self.at.receive(data)
            query = came.message
            if query is None or query.question or self._is_answered_at_once(came, query):
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
            if query.mark in self._held:
                return True
            held = self._held[query.mark] = _Held(digest, query)
        self._submit(lambda: self._deal_with(held))
        return False

    def _is_answered_at_once(self, came: Received, query: Envelope) -> bool:
        """A lead's question, or one by another list; of what nobody may ask, an error."""
        if query.session and query.step in (SURVEY, OVER):
            raise ProtocolError("asked-in-a-run", sender=query.sender)
        if query.step == SURVEY:
            if not came.same_members:
                self.at.greet(query.sender, with_list=True)
            self.at.reply(query, told(self.party, query, known=came.same_members))
            return True
        if query.sender != AGGREGATOR:
            raise ProtocolError("only-of-another-role", sender=query.sender, role="the aggregator")
        self.party.activity.note(query.step)
        begins = query.step == JOIN and self.party.runs.find(query.session) is None
        if came.same_members or not begins:
            return False
        self.at.greet(AGGREGATOR, with_list=True)
        self.at.reply(query, Reply(OTHER_MEMBERS))
        return True

    def _submit(self, work: Callable[[], None]) -> None:
        if self._work is None:
            work()
        else:
            self._work.submit(work)

    def _deal_with(self, held: _Held) -> None:
        """Answer a question of a run, put the answer, and let go of the question."""
        query = held.query
        try:
            if query.step == OVER:
                self._end(query.payload.decode("ascii", "replace"))
                answer = Reply()
            else:
                answer = self.party.answer(query)
            was_waiting, held.waits = held.waits, answer.code == NOT_APPROVED
            if not (was_waiting and held.waits):  # said already
                self._reply(query, answer)
            if held.waits and self._undecided() <= _MOST_UNDECIDED:
                return
            self.at.mailbox.forget([held.digest])
        except EigenveilError as error:  # the question is still there
            if error.message != self._unanswered:
                self.say(f"A question is not answered yet, and is tried again: {error}")
            self._unanswered = error.message
            time.sleep(RETRY)
        except Exception:
            _log.exception("a question could not be dealt with")
            time.sleep(RETRY)
        with self._guard:
            self._held.pop(query.mark, None)

    def _undecided(self) -> int:
        with self._guard:
            return sum(each.waits for each in self._held.values())

    def _reply(self, query: Envelope, answer: Reply) -> None:
        run = self.party.runs.find(query.session)
        size = 0 if run is None else run.sizes.bound(query.step, answer=True)
        self.at.reply(query, answer, size)

    def _look_for_decisions(self) -> None:
        with self._guard:
            waiting = [each for each in self._held.values() if each.waits]
        decided: dict[str, bool] = {}
        for held in waiting:
            study = held.query.study
            if study not in decided:
                found = self.party.standing(study)
                decided[study] = found.approved or not found.waits
            if decided[study]:
                self._submit(lambda each=held: self._deal_with(each))  # type: ignore[misc]

    def _end(self, session: str) -> None:
        """The aggregator says that a run is over: nothing of it is answered any more."""
        if not is_session(session):
            return
        with self._guard:
            of_it = [each for each in self._held.values() if each.query.session == session]
            left = [each for each in of_it if each.waits]
            for each in left:
                del self._held[each.query.mark]
        self.at.post.end(session)
        if left:
            self.at.mailbox.forget([each.digest for each in left])
        self.party.end(session)
