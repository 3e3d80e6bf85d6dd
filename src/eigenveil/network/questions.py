"""The aggregator's side: what it asks parties, over a mailbox that may lose, double and delay.

One thread takes the aggregator's mail and gives each answer to the question whose plaintext it
names; a question that waits is put again from time to time, the same bytes, and answered again by
the party with the stored answer. No thread waits for one party.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federated.running import Traffic
from eigenveil.federation.identity import Identity
from eigenveil.federation.protocol.messages import AGGREGATOR
from eigenveil.federation.protocol.requests import Replies
from eigenveil.network import channel
from eigenveil.network.channel import Answer, failure, opening, room
from eigenveil.network.envelopes import (
    Envelope,
    OtherMembers,
    Post,
    brought_list,
    is_hello,
    list_of_hello,
)
from eigenveil.network.mailbox import Mailbox, digest_of
from eigenveil.network.members import KnownMembers
from eigenveil.network.orders import Order, fewest_parties, parties_of
from eigenveil.network.sizes import bound

JOIN = "join"
EXPIRED = "expired-list"
# Seconds: of one look into the mailbox; between two puts of a question that waits, at first and at
# the most; of patience for parties that are missing while enough are there; for those that were
# silent before; and for last words.
WAIT = 10.0
AGAIN, SELDOM = 3.0, 60.0
PATIENCE = 60.0
GRACE = 2.0
LAST_WORDS = 3.0
_GLANCE = 0.1
_NOTICES = 600.0
MOST_APART = 120.0
_SHORTLY = 0.3
_MOST_LISTS = 5
_ASKS, _KNOWN = b"?", b"."
_log = logging.getLogger(__name__)


def greet(post: Post, members: KnownMembers, to: str, *, with_list: bool = False) -> bytes:
    """A hello, which asks for one where the other's key is not known; it may bring the list."""
    listed = members.data() if with_list else b""
    return post.hello(to, (_KNOWN if post.knows(to) else _ASKS) + listed)


def meet(post: Post, members: KnownMembers, data: bytes) -> tuple[str, bytes]:
    """Take a hello and the list that it brings: who sent it, and the hello to send back, if any."""
    brought = brought_list(data)
    if brought[1:]:
        members.adopt(brought[1:])
    name = post.learn(data)
    differs = list_of_hello(data) != members.digest
    if not differs and brought[:1] != _ASKS:
        return name, b""
    return name, greet(post, members, name, with_list=differs)


def clock_problem(found: Envelope) -> str:
    """A sentence where this clock is behind: a message can be late, but not early."""
    ahead = found.sent - time.time()
    if ahead <= MOST_APART:
        return ""
    return (
        f"The clocks differ: that of {found.sender} is {ahead / 60:.0f} minutes ahead of this "
        "machine's. Correct the one that is wrong: lists, decisions and ledgers are dated by it."
    )


@dataclass(eq=False)
class Question:
    """One question to one party; ``code`` says what is known while there is no answer."""

    envelope: Envelope
    room: int
    batch: Batch
    mark: str = ""
    sealed: bytes = b""
    code: str = channel.NOT_CONNECTED
    again: float = 0.0
    pause: float = AGAIN
    lists: int = 0
    until: float = 0.0

    @property
    def name(self) -> str:
        """Who is asked."""
        return self.envelope.recipient


class Closed(Exception):
    """The aggregator is being stopped: the run goes on when it is started again."""


class Batch:
    """Questions that somebody waits for together."""

    def __init__(self) -> None:
        self.open: dict[str, Question] = {}
        self.answers: dict[str, Answer] = {}
        self._changed = threading.Event()

    def take(self, question: Question, answer: Answer) -> None:
        """An answer has come."""
        if self.open.pop(question.name, None) is not None:
            self.answers[question.name] = answer
            if not self.open:
                self._changed.set()

    def wait(self, seconds: float) -> None:
        """Return when all have answered, or after these seconds."""
        self._changed.wait(seconds)


class Desk:
    """The aggregator's mail: questions go out here, and whatever comes is given to whom it is for.

    ``receive`` gets questions of others, opened; it answers with :meth:`reply`.
    """

    def __init__(
        self,
        post: Post,
        mailbox: Mailbox,
        members: KnownMembers,
        *,
        receive: Callable[[Envelope], None],
        say: Callable[[str], None],
    ) -> None:
        self._post, self._mailbox, self._members = post, mailbox, members
        self._receive, self._say = receive, say
        self._open: dict[tuple[str, str], Question] = {}
        self._unknown: dict[str, set[Question]] = {}
        self._notices: list[Question] = []
        self._guard = threading.RLock()
        self._stop = threading.Event()
        self._limit = channel.MOST_STUDY
        self._clocks: set[str] = set()
        self._told = False
        self.heard: dict[str, float] = {}
        self.problem = ""

    # -- out

    def ask(self, batch: Batch, questions: Iterable[tuple[Envelope, int]]) -> None:
        """Put questions, each padded to its size; answers come to the batch."""
        asked = [Question(envelope, size, batch) for envelope, size in questions]
        batch.open.update((each.name, each) for each in asked)  # before the first answer comes
        for question in asked:
            self._put(question)

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
        batch, size = Batch(), room(payload)
        self.ask(batch, [(Envelope("", "", step, AGGREGATOR, n, payload), size) for n in names])
        with self._guard:
            until = time.monotonic() + _NOTICES
            for question in tuple(batch.open.values()):
                question.until = until
                self._notices.append(question)

    def reply(self, query: Envelope, answer: Answer, size: int = 0) -> None:
        """Answer a question that somebody has put."""
        found = query.answered(answer.payload, answer.code)
        sealed, _ = self._post.seal(found, bound=max(size, room(answer.payload)))
        self._mailbox.put(query.sender, sealed)

    def allow(self, size: int) -> None:
        """Envelopes of this size may come from now on."""
        self._limit = max(self._limit, size)

    def _put(self, question: Question) -> None:
        question.again = time.monotonic() + question.pause
        question.pause = min(2 * question.pause, SELDOM)
        name = question.name
        try:
            self._members.role(name)  # it may have been revoked since
            if not question.sealed:
                if not self._post.knows(name):
                    with self._guard:
                        self._unknown.setdefault(name, set()).add(question)
                    self._mailbox.put(name, greet(self._post, self._members, name))
                    return
                sealed, question.mark = self._post.seal(question.envelope, bound=question.room)
                with self._guard:
                    question.sealed = sealed
                    self._open[name, question.mark] = question
                if question.code == channel.NOT_CONNECTED:
                    question.code = channel.NO_ANSWER
            self._mailbox.put(name, question.sealed)
        except ProtocolError as error:
            if error.code in ("not-a-member", "revoked-party"):
                self._take(question, Answer(channel.REFUSED))
            self._warn(f"{name} was not asked", error)

    def _close(self, question: Question) -> None:
        self._open.pop((question.name, question.mark), None)
        self._unknown.get(question.name, set()).discard(question)

    # -- in

    def start(self) -> None:
        """Look after the mail in a thread of its own."""
        threading.Thread(target=self._look_after, daemon=True, name="eigenveil mail").start()

    def close(self) -> None:
        """Take no more mail."""
        self._stop.set()
        self._mailbox.close()

    @property
    def is_closed(self) -> bool:
        """Whether no more mail is taken."""
        return self._stop.is_set()

    def _look_after(self) -> None:
        while not self._stop.is_set():
            try:
                mail = self._mailbox.take(WAIT)
                for data in mail:
                    self._one(data)
                if mail:
                    self._mailbox.forget([digest_of(data) for data in mail])
                self._repeat_notices()
                self.problem = ""
            except Exception as error:
                told = error.message if isinstance(error, EigenveilError) else repr(error)
                if told != self.problem and not self._stop.is_set():
                    self._say(f"The mailbox cannot be read; still trying: {told}")
                    _log.warning("the mailbox cannot be read", exc_info=True)
                self.problem = told
                self._stop.wait(1.0)

    def _one(self, data: bytes) -> None:
        try:
            if is_hello(data):
                self._met(*meet(self._post, self._members, data))
                return
            known = True
            try:
                found = self._post.open(data, limit=self._limit)
            except OtherMembers as other:
                known, found = False, other.envelope
            self.heard[found.sender] = time.monotonic()
            if (told := clock_problem(found)) and found.sender not in self._clocks:
                self._clocks.add(found.sender)
                self._say(told)
            if found.question:
                self._answered(found)
            elif not known:
                self._bring_list(found.sender)
                self.reply(found, Answer(channel.OTHER_MEMBERS))
            else:
                self._receive(found)
        except EigenveilError as error:
            self._warn("refused", error)
        except Exception:
            _log.exception("a message could not be dealt with")

    def _warn(self, what: str, error: EigenveilError) -> None:
        """Note it in the log; that the list of members has expired, the operator is told once."""
        _log.warning("%s: %s", what, error.message)
        if error.code == EXPIRED and not self._told:
            self._told = True
            self._say(str(error))

    def _met(self, name: str, back: bytes) -> None:
        self.heard[name] = time.monotonic()
        if back:
            self._mailbox.put(name, back)
        with self._guard:
            waiting = self._unknown.pop(name, set())
        for question in waiting:
            question.pause = AGAIN
            self._put(question)

    def _bring_list(self, name: str) -> None:
        self._mailbox.put(name, greet(self._post, self._members, name, with_list=True))

    def _answered(self, found: Envelope) -> None:
        with self._guard:
            question = self._open.get((found.sender, found.question))
        if question is None:
            return
        if found.code == channel.OTHER_MEMBERS:
            self._exchange_lists(question)
        elif found.code in channel.WAITS:
            question.code = found.code
        else:
            self._take(question, Answer(found.code, found.payload))

    def _take(self, question: Question, answer: Answer) -> None:
        with self._guard:
            self._close(question)
        question.batch.take(question, answer)

    def _exchange_lists(self, question: Question) -> None:
        """The party has another list: bring it this one; should its be newer, that comes."""
        question.code, question.lists = channel.OTHER_MEMBERS, question.lists + 1
        if question.lists > _MOST_LISTS:
            self._take(question, Answer(channel.BAD_MEMBERS))
            return
        self._bring_list(question.name)
        question.sealed, question.pause = b"", AGAIN
        question.again = time.monotonic() + _SHORTLY * question.lists

    def _repeat_notices(self) -> None:
        now = time.monotonic()
        with self._guard:
            waiting = [each for each in self._notices if each.batch.open.get(each.name) is each]
            self._notices = [each for each in waiting if each.until > now]
            for old in waiting:
                if old.until <= now:
                    self._close(old)
        for question in self._notices:
            if question.again <= now:
                self._put(question)


@dataclass
class Run:
    """Asks the parties of one run, as its lead ordered it.

    ``aborted`` says who stopped the study, if anybody, ``begin`` is called once all have joined,
    and ``note`` with who is missing, and why, while they are awaited. ``waited`` are the seconds
    for owners and absent parties, which are nobody's work.
    """

    desk: Desk
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
        self._names = parties_of(self.order.study)
        self.traffic = {name: Traffic() for name in self._names}
        self._joined: set[str] = set()
        self._silent: dict[str, float] = {}
        self._ending = self._begun = False

    def sites(self) -> Sequence[str]:
        """Names of the parties."""
        return self._names

    def hurry(self) -> None:
        """From now on calls are last words: they are short, and go out although it is over."""
        self._ending = True

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies:
        """Give each party its message."""
        begun = time.monotonic()
        failures: dict[str, EigenveilError] = {
            name: ProtocolError("there is no such party here", code="unknown-party")
            for name in payloads
            if name not in self.traffic
        }
        if method != JOIN and not self._begun and not self._ending:
            self._begun = True
            self.begin()
        batch, study = Batch(), self.order.study
        self.desk.allow(bound(study, method, answer=True))
        known = {name: body for name, body in payloads.items() if name not in failures}
        self.desk.ask(batch, (self._question(n, method, body) for n, body in known.items()))
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
                self._silent[name], answer = time.monotonic(), Answer(code)
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

    def _question(self, name: str, method: str, body: bytes) -> tuple[Envelope, int]:
        """A question, and what it is padded to."""
        study, session = self.order.study, self.order.session
        size = bound(study, method)
        if method == JOIN:
            body = opening(self.order.line, self.identity.members.digest, body)
            size = max(size, room(body))
        return Envelope(study.hash, session, method, AGGREGATOR, name, body), size

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
            raise ProtocolError(
                f"The study was stopped {by}.",
                hint="What was released until then stays charged; run it again as a new study run.",
                code=channel.ABORTED,
            )
