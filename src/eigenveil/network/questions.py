"""The aggregator's side: what it asks parties, over a mailbox that may lose, double and delay.

One thread takes the aggregator's mail and gives each answer to the question whose plaintext it
names; a question that waits is put again from time to time, the same bytes, and answered again by
the party with the stored answer. No thread waits for one party.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federated.running import Traffic
from eigenveil.federation.members import Identity
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.protocol.requests import Replies
from eigenveil.network import channel
from eigenveil.network.channel import Reply, failure, opening, room
from eigenveil.network.endpoint import AGAIN, Endpoint, Question
from eigenveil.network.envelopes import Envelope
from eigenveil.network.mailbox import digest_of
from eigenveil.network.orders import Order, fewest_parties, parties_of
from eigenveil.network.sizes import Sizes

JOIN = "join"
EXPIRED = "expired-list"
# Seconds: of one look into the mailbox; of patience for parties that are missing while enough are
# there; for those that were silent before; and for last words.
WAIT = 10.0
PATIENCE = 60.0
GRACE = 2.0
LAST_WORDS = 3.0
_GLANCE = 0.1
_NOTICES = 600.0
_log = logging.getLogger(__name__)


class Closed(Exception):
    """The aggregator is being stopped: the run goes on when it is started again."""


class Batch:
    """Questions that somebody waits for together, and their answers, by party."""

    def __init__(self, questions: Iterable[Question]) -> None:
        self.open = {each.name: each for each in questions}
        self.answers: dict[str, Reply] = {}
        self._changed = threading.Event()

    def take(self, question: Question, answer: Reply) -> None:
        if self.open.get(question.name) is question:
            del self.open[question.name]
            self.answers[question.name] = answer
            if not self.open:
                self._changed.set()

    def wait(self, seconds: float) -> None:
        self._changed.wait(seconds)


class QuestionDesk:
    """A party's mail: questions go out here, and whatever comes is given to whom it is for.

    ``receive`` gets questions of others, opened.
    """

    def __init__(self, at: Endpoint, receive: Callable[[Envelope], object] = bool) -> None:
        self._at, self._receive = at, receive
        self._open: defaultdict[str, dict[str, tuple[Question, Batch]]] = defaultdict(dict)
        self._notices: list[tuple[float, Batch]] = []
        self._guard = threading.RLock()
        self._stop = threading.Event()
        self._told = False
        self.heard: dict[str, float] = {}
        self.left: set[str] = set()  # mail that is not for this process
        self.problem = ""

    # -- out

    def open(self, questions: Iterable[Question]) -> Batch:
        """Questions that :meth:`again` puts; answers come to the batch."""
        batch = Batch(questions)
        with self._guard:
            for question in batch.open.values():
                self._open[question.name][question.mark] = question, batch
        return batch

    def ask(self, questions: Iterable[Question]) -> Batch:
        batch = self.open(questions)
        self.again(batch)
        return batch

    def again(self, batch: Batch) -> None:
        """Put those questions again for which it is time."""
        now = time.monotonic()
        for question in list(batch.open.values()):
            if question.again <= now:
                self._put(question)

    def drop(self, batch: Batch) -> None:
        """Nobody waits for the answers any more; the questions stay where they are."""
        with self._guard:
            for question in tuple(batch.open.values()):
                self._close(question)

    def notify(self, names: Iterable[str], step: str, payload: bytes) -> None:
        """Say something to parties for which nobody waits; it is repeated for some minutes."""
        told = (Envelope("", "", step, AGGREGATOR, name, payload) for name in names)
        batch = self.ask(Question(each, room(payload)) for each in told)
        with self._guard:
            self._notices.append((time.monotonic() + _NOTICES, batch))

    def _put(self, question: Question) -> None:
        try:
            question.put(self._at)
        except ProtocolError as error:
            self._not_put(question, error)

    def _not_put(self, question: Question, error: ProtocolError) -> None:
        if error.code in ("not-a-member", "revoked-party"):
            self._take(question, Reply(channel.REFUSED))
        self._warn(f"{question.name} was not asked", error)

    def _close(self, question: Question) -> Batch | None:
        _, batch = self._open[question.name].pop(question.mark, (None, None))
        return batch

    def allow(self, size: int) -> None:
        self._at.limit = max(self._at.limit, size)

    # -- in

    def start(self) -> None:
        threading.Thread(target=self._look_after, daemon=True, name="eigenveil mail").start()

    def close(self) -> None:
        self._stop.set()
        self._at.mailbox.close()

    @property
    def is_closed(self) -> bool:
        return self._stop.is_set()

    def _look_after(self) -> None:
        while not self._stop.is_set():
            try:
                self.look(WAIT)
                self._repeat_notices()
                self.problem = ""
            except Exception as error:
                told = error.message if isinstance(error, EigenveilError) else repr(error)
                if told != self.problem and not self._stop.is_set():
                    self._at.say(f"The mailbox cannot be read; still trying: {told}")
                    _log.warning("the mailbox cannot be read", exc_info=True)
                self.problem = told
                self._stop.wait(1.0)

    def look(self, wait: float) -> None:
        mail = {digest_of(data): data for data in self._at.mailbox.take(wait, self.left)}
        self.left |= {digest for digest, data in mail.items() if not self._one(data)}
        if done := mail.keys() - self.left:
            self._at.mailbox.forget(done)

    def _one(self, data: bytes) -> bool:
        """Deal with a message; whether nothing more is to be done about it by anybody."""
        try:
            came = self._at.receive(data)
            self.heard[came.sender] = time.monotonic()
            found = came.message
            if found is None:
                self._met(came.sender)
            elif found.question:
                return self._answered(found)
            else:
                return self._asked(found, same_members=came.same_members)
        except EigenveilError as error:
            self._warn("refused", error)
        except Exception:
            _log.exception("a message could not be dealt with")
        return True

    def _asked(self, found: Envelope, *, same_members: bool) -> bool:
        if same_members:
            self._receive(found)
        else:
            self._at.greet(found.sender, with_list=True)
            self._at.reply(found, Reply(channel.OTHER_MEMBERS))
        return True

    def _warn(self, what: str, error: EigenveilError) -> None:
        """Note it in the log; that the list of members has expired, the operator is told once."""
        _log.warning("%s: %s", what, error.message)
        if error.code == EXPIRED and not self._told:
            self._told = True
            self._at.say(str(error))

    def _met(self, name: str) -> None:
        with self._guard:
            waiting = [question for question, _ in self._open[name].values()]
        for question in waiting:
            if question.code == channel.NOT_CONNECTED:  # for want of the key that came now
                question.pause = AGAIN
                self._put(question)

    def _answered(self, found: Envelope) -> bool:
        with self._guard:
            question, _ = self._open[found.sender].get(found.question, (None, None))
        if question is None:
            return self._answers_nothing(found)
        if (answer := question.take(self._at, found)) is not None:
            self._take(question, answer)
        return True

    def _answers_nothing(self, found: Envelope) -> bool:
        del found
        return True

    def _take(self, question: Question, answer: Reply) -> None:
        with self._guard:
            batch = self._close(question)
        if batch is not None:
            batch.take(question, answer)

    def _repeat_notices(self) -> None:
        now = time.monotonic()
        with self._guard:
            notices = self._notices
            self._notices = [(until, each) for until, each in notices if until > now and each.open]
        for until, batch in notices:
            if until > now:
                self.again(batch)
            else:
                self.drop(batch)


@dataclass
class PartyCalls:
    """Asks the parties of one run, as its lead ordered it.

    ``aborted`` says who stopped the study, if anybody, ``begin`` is called once all have joined,
    and ``note`` with who is missing, and why, while they are awaited. ``waited`` are the seconds
    for owners and absent parties, which are nobody's work.
    """

    desk: QuestionDesk
    order: Order
    identity: Identity
    aborted: Callable[[], str]
    begin: Callable[[], None] = lambda: None
    note: Callable[[Mapping[str, str]], object] = dict
    patience: float = PATIENCE
    seconds: dict[str, float] = field(default_factory=dict)
    waited: float = 0.0
    replayed_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._names, self._sizes = parties_of(self.order.study), Sizes(self.order.study)
        self.traffic = {name: Traffic() for name in self._names}
        self._joined: set[str] = set()
        self._silent: dict[str, float] = {}
        self._ending = self._begun = False

    def hurry(self) -> None:
        self._ending = True

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies:
        begun = time.monotonic()
        failures: dict[str, EigenveilError] = {
            name: ProtocolError("unknown-party") for name in payloads if name not in self.traffic
        }
        if method != JOIN and not self._begun and not self._ending:
            self._begun = True
            self.begin()
        known = {name: body for name, body in payloads.items() if name not in failures}
        self.desk.allow(self._sizes.bound(method, answer=True))
        batch = self.desk.ask(self._question(n, method, body) for n, body in known.items())
        try:
            if method == JOIN and not self._ending:
                begun = self._until_joined(batch)
            else:
                self._until_answered(batch, min(timeout, LAST_WORDS) if self._ending else timeout)
        finally:
            self.desk.drop(batch)
        self.seconds[method] = self.seconds.get(method, 0.0) + time.monotonic() - begun
        replies: dict[str, bytes] = {}
        for name, body in known.items():
            answer = batch.answers.get(name)
            if answer is None:
                left = batch.open.get(name)
                code = channel.NO_ANSWER if left is None or method != JOIN else left.code
                self._silent[name], answer = time.monotonic(), Reply(code)
            if answer.code:
                failures[name] = failure(answer.code)
                continue
            replies[name] = answer.payload
            self._joined.add(name)
            self.traffic[name].count(method, body, answer.payload)
        return replies, failures

    def count_replayed(
        self,
        method: str,
        payloads: Mapping[str, bytes],
        replies: Mapping[str, bytes],
        seconds: float,
    ) -> None:
        """Count a call that an earlier process of the same run carried."""
        self.seconds[method] = self.seconds.get(method, 0.0) + seconds
        self.replayed_seconds += seconds
        for name, reply in replies.items():
            self._joined.add(name)
            self.traffic[name].count(method, payloads[name], reply)

    def over(self) -> None:
        """Tell all that the run has ended: they erase its keys."""
        self.desk.notify(self._names, channel.OVER, self.order.session.encode())

    def _question(self, name: str, method: str, body: bytes) -> Question:
        study, session = self.order.study, self.order.session
        size = self._sizes.bound(method)
        if method == JOIN:
            body = opening(self.order.line, self.identity.members.digest, body)
            size = max(size, room(body))
        return Question(Envelope(study.hash, session, method, AGGREGATOR, name, body), size)

    def _until_answered(self, batch: Batch, timeout: float) -> None:
        """Until all have answered, time is over, or only those are left that are silent."""
        begun = time.monotonic()
        while batch.open:
            self._check_going_on()
            now = time.monotonic()
            if now > begun + timeout:
                return
            if now > begun + GRACE and all(map(self._is_silent, tuple(batch.open))):
                return
            batch.wait(_GLANCE)
            self.desk.again(batch)

    def _until_joined(self, batch: Batch) -> float:
        """Until all have joined, or enough and nobody else has for a while; when the last could.

        Owners may take days to decide; only the lead, or the operator, ends that.
        """
        sites, joined = set(batch.open), len(self._joined)
        needed = fewest_parties(self.order.study) - len(set(self._names) - sites)
        started = could = moved = time.monotonic()
        count, told = -1, None
        while batch.open:
            self._check_going_on()
            now = time.monotonic()
            answers, left = dict(batch.answers), list(batch.open.values())  # others change them
            ready = sum(not answer.code for answer in answers.values())
            if ready != count:
                count, moved = ready, now
            missing = {
                each.name: channel.sentence(each.code)
                for each in left
                if each.code != channel.NO_ANSWER
            }
            missing |= {n: channel.sentence(a.code) for n, a in answers.items() if a.code}
            if missing != told:
                told = missing
                self.note(missing)
            if any(each.code != channel.NO_ANSWER for each in left):
                could = now
            if ready + len(left) < needed:
                break
            if ready >= needed and now - moved > (0.0 if joined else self.patience):
                break
            batch.wait(_GLANCE)
            self.desk.again(batch)
        self.waited += could - started
        return could

    def _is_silent(self, name: str) -> bool:
        since = self._silent.get(name)
        return since is not None and self.desk.heard.get(name, 0.0) <= since

    def _check_going_on(self) -> None:
        if self.desk.is_closed:
            raise Closed
        if not self._ending and (by := self.aborted()):
            raise ProtocolError("aborted", by=by)
