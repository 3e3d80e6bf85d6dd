"""The transport of a study between organisations: two verbs, whatever the network does.

A party that does not answer costs a call's whole time once. From then on it gets a short
question first, so that it costs next to nothing while it stays silent and takes part again when
it is back. A party that was started again while it worked on a question is sent the question
again at once: its ledger sends the stored answer, or makes it now. An answer that comes after its
time is dropped.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from eigenveil.errors import EigenveilError, ProtocolError, received_code
from eigenveil.federated.running import Traffic
from eigenveil.federation.protocol.requests import Replies
from eigenveil.network.channel import (
    ABORTED,
    BYE,
    HELLO,
    NO_ANSWER,
    RESTARTED,
    UNREACHABLE,
    Answer,
    Stop,
    Wire,
    sentence,
)

# Seconds: for a sign of life; between two of them while an answer is awaited; between two tries
# to reach somebody; and for the end of all.
PROBE = 1.0
WATCH = 2.0
AGAIN = 0.3
LAST_WORDS = 3.0
_GLANCE = 0.1


class FlareTransport:
    """Asks parties over a wire, each in a thread of its own.

    Parameters
    ----------
    wire : Wire
    names : sequence of str
        The parties.
    aborted : callable
        Whether the study is to stop.
    members : callable
        The list of members that a first question brings.

    Attributes
    ----------
    seconds : dict of str to float
        How long each step took, until all had answered or the time was over.
    traffic : dict of str to Traffic
        Of each party, as in one process.
    replayed_seconds : float
        Of ``seconds``, those of calls that an earlier process of the run carried.
    """

    def __init__(
        self,
        wire: Wire,
        names: Sequence[str],
        aborted: Callable[[], bool],
        members: Callable[[], bytes] = bytes,
    ) -> None:
        self._wire, self._names, self._aborted = wire, tuple(names), aborted
        self.members = members
        self._silent: set[str] = set()
        self._processes: dict[str, str] = {}
        self._ending = False
        self.traffic = {name: Traffic() for name in names}
        self.seconds: dict[str, float] = {}
        self.replayed_seconds = 0.0

    def sites(self) -> Sequence[str]:
        """Names of the parties."""
        return self._names

    def hurry(self) -> None:
        """From now on calls are last words: they are short, and go out although it is over."""
        self._ending = True

    def call(self, method: str, payloads: Mapping[str, bytes], timeout: float) -> Replies:
        """Give each party its message.

        Raises
        ------
        ProtocolError
            ``aborted`` when the study was stopped.
        """
        if self._ending:
            timeout = min(timeout, LAST_WORDS)
        known = {name: body for name, body in payloads.items() if name in self.traffic}
        failures: dict[str, EigenveilError] = {
            name: ProtocolError("there is no such party here", code="unknown-party")
            for name in payloads
            if name not in known
        }
        begun = time.monotonic()
        answers = self._all(
            known,
            lambda name, stop, end: self._errand(name, method, known[name], end, stop),
            timeout,
        )
        self.seconds[method] = self.seconds.get(method, 0.0) + time.monotonic() - begun
        replies: dict[str, bytes] = {}
        for name, body in known.items():
            answer = answers.get(name, Answer(NO_ANSWER))
            if answer.code in (NO_ANSWER, UNREACHABLE, RESTARTED):
                self._silent.add(name)
            if answer.code:
                failures[name] = ProtocolError(
                    sentence(answer.code), code=received_code(answer.code)
                )
                continue
            self._silent.discard(name)
            replies[name] = answer.payload
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
            self.traffic[name].count(method, payloads[name], reply)

    def hello(self, names: Sequence[str], timeout: float) -> dict[str, str]:
        """A sign of life of each: an empty code where it is there and has admitted the job."""
        found = self._all(
            names, lambda name, stop, end: self._quick(name, HELLO, stop, end), timeout
        )
        return {name: found.get(name, Answer(NO_ANSWER)).code for name in names}

    def bye(self) -> None:
        """Tell everybody that the job is over; who misses it hears it from FLARE."""
        self.hurry()
        self._all(
            self._names, lambda name, stop, end: self._quick(name, BYE, stop, end), LAST_WORDS
        )

    # -- one thread a party

    def _all(
        self, names: Iterable[str], errand: Callable[[str, Stop, float], Answer], timeout: float
    ) -> dict[str, Answer]:
        """What comes of each party's errand until the deadline; what comes later is dropped."""
        deadline = time.monotonic() + timeout
        box: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()
        stops = {name: Stop() for name in names}

        def run(name: str) -> None:
            box.put((name, errand(name, stops[name], deadline)))

        for name in stops:
            threading.Thread(target=run, args=(name,), daemon=True, name=f"ask {name}").start()
        found: dict[str, Answer] = {}
        try:
            while len(found) < len(stops):
                left = deadline - time.monotonic()
                self._check_going_on()
                if left <= 0:
                    break
                try:
                    name, answer = box.get(timeout=min(left, _GLANCE))
                except queue.Empty:
                    continue
                found[name] = answer
        finally:
            for stop in stops.values():
                stop.trigger()
        return found

    def _check_going_on(self) -> None:
        if self._aborted() and not self._ending:
            raise ProtocolError(
                "The study was stopped.",
                hint="What was released until then stays charged; run it again as a new study run.",
                code=ABORTED,
            )

    def _errand(self, name: str, step: str, body: bytes, deadline: float, stop: Stop) -> Answer:
        """The answer to a step, repeated for as long as that may help."""
        if name in self._silent:
            probe = self._quick(name, HELLO, stop, deadline)
            if probe.code:
                return probe
        while True:
            answer = self._watched(name, step, body, deadline, stop)
            if answer.code not in (UNREACHABLE, RESTARTED):
                return answer
            if stop.triggered or time.monotonic() + AGAIN >= deadline:
                return answer
            time.sleep(AGAIN)

    def _watched(self, name: str, step: str, body: bytes, deadline: float, stop: Stop) -> Answer:
        """The answer to one question, or that the process that had it is gone."""
        request = self._processes.get(name, "")
        own, box = Stop(), queue.SimpleQueue[Answer]()

        def send() -> None:
            box.put(self._wire.query(name, step, body, max(0.01, deadline - time.monotonic()), own))

        threading.Thread(target=send, daemon=True, name=f"send {name}").start()
        watch = time.monotonic() + WATCH
        try:
            while True:
                try:
                    answer = box.get(timeout=_GLANCE)
                except queue.Empty:
                    if stop.triggered or time.monotonic() >= deadline:
                        return Answer(NO_ANSWER)
                    if time.monotonic() < watch:
                        continue
                    self._quick(name, HELLO, own, deadline)
                    if request and self._processes.get(name, request) != request:
                        return Answer(RESTARTED)
                    watch = time.monotonic() + WATCH
                else:
                    self._note(name, answer)
                    return answer
        finally:
            own.trigger()

    def _quick(self, name: str, step: str, stop: Stop, deadline: float) -> Answer:
        left = max(0.01, deadline - time.monotonic())
        body = self.members() if step == HELLO else b""
        answer = self._wire.query(name, step, body, min(PROBE, left), stop)
        self._note(name, answer)
        return answer

    def _note(self, name: str, answer: Answer) -> None:
        if answer.process:
            self._processes[name] = answer.process
