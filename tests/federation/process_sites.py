"""Sites that are processes of their own, and die where a test says.

Every site is forked from this process and runs :meth:`Site.handle` over its own ledger file. What
it does is counted in events of ``sys.setprofile``: every call and return, of Python and of C alike,
in the package, SQLAlchemy and sqlite3. A :class:`Fatal` names the event at which the process kills
itself with SIGKILL; the transport then sees the end of the stream, starts the site again over the
same ledger, and says that the call has failed.
"""

import gc
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum

from eigenveil.errors import ProtocolError
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.tables import Tables
from eigenveil.federation.protocol import site as site_module
from eigenveil.federation.protocol.messages import AGGREGATOR, REFUSED, decode

# A site that says nothing for so long hangs: the test fails.
_PATIENCE = 120.0
_DEADLY = (signal.SIGKILL, signal.SIGALRM, signal.SIGXFSZ)


class Stage(IntEnum):
    """What a site is doing."""

    STARTING = 0
    WAITING = 1  # for a request
    READING = 2  # the request, the ledger's state, the rows
    BEGINNING = 3  # a session, not yet durable
    BEGUN = 4  # the session is durable; no answer is
    COMMITTING = 5  # an answer, which is not made yet
    ANSWERING = 6  # making it: noise is drawn here
    WRITING = 7  # it is made, and not durable
    DATABASE = 8  # inside SQLite's own commit
    DURABLE = 9  # answer and charge are durable; nothing has left
    AGAIN = 10  # the same, of an answer that was stored before
    HALF = 11  # half of the answer has left
    SENT = 12  # all of it has left


@dataclass(frozen=True)
class Fatal:
    """Where a life ends: at the ``events``-th event of it, or after it came to a stage.

    Within a call of C no event happens; there the kernel ends it, by signals that nobody handles
    and that do then what SIGKILL does: with ``delay``, so many seconds after it came to the stage
    (SIGALRM); with ``size``, when it writes to a file beyond so many bytes (SIGXFSZ).
    """

    events: int
    step: str = ""
    stage: Stage | None = None
    delay: float | None = None
    size: int | None = None


@dataclass(frozen=True)
class Death:
    """Where a site died: doing what, for which call, and what it left behind."""

    site: str
    step: str
    stage: Stage
    events: int
    by: signal.Signals
    left: str = ""


@dataclass
class Log:
    """Everything that ever came out of the sites, by (site, session, step)."""

    requests: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    replies: dict[tuple[str, str, str], list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )
    cut: list[tuple[tuple[str, str, str], bytes]] = field(default_factory=list)
    """Beginnings of answers whose ends never came."""
    deaths: list[Death] = field(default_factory=list)
    failed: Counter = field(default_factory=Counter)
    """Failed calls by (site, session, step)."""

    def refused(self):
        """Refusals: by (site, session, step), their codes."""
        found = {}
        for place, replies in self.replies.items():
            message = decode(replies[-1], sender=place[0], limit=1 << 30)
            if message.step == REFUSED:
                found[place] = message.body["code"]
        return found


@dataclass
class _Child:
    pid: int
    stream: socket.socket
    board: memoryview


class ProcessSites:
    """A transport to sites, each of which is a process.

    Parameters
    ----------
    makers : mapping of name to callable
        Each makes its site, in the child.
    fault_plan : mapping of name to sequence of Fatal, optional
        Where the site's first life ends, its second, and so on; after the last it lives on.
    log : Log, optional
    series_style : callable, optional
        Given a dead site's name, says what it left behind.
    measure : bool
        Whether to count the events of lives that do not end.
    """

    def __init__(self, makers, fault_plan=None, *, log=None, series_style=None, measure=False):
        self.log = log or Log()
        self._series_style, self._measure = series_style or (lambda name: ""), measure
        self.events = dict.fromkeys(makers, 0)
        """Events of the site's life at its last answer."""
        self.commit_seconds = dict.fromkeys(makers, 0.0)
        """Mean time of a commit inside SQLite, in this life."""
        self._makers = dict(makers)
        self._fates = {name: list((fault_plan or {}).get(name, ())) for name in makers}
        self._children = {}

    def __enter__(self):
        for name in self._makers:
            self._start(name)
        return self

    def __exit__(self, *_):
        for name in list(self._children):
            os.kill(self._children[name].pid, signal.SIGKILL)
            self._bury(name)

    # -- a transport's two verbs

    def sites(self):
        return tuple(self._makers)

    def call(self, method, payloads, timeout):
        del timeout
        places = {name: self._place(name, method, request) for name, request in payloads.items()}
        for name, request in payloads.items():
            asked = self.log.requests.setdefault(places[name], request)
            assert asked == request, f"{name} is asked {method!r} again, in other bytes"
            with suppress(OSError):  # it is dead, as reading will show
                self._children[name].stream.sendall(_framed(method.encode()) + _framed(request))
        replies, failures = {}, {}
        for name in payloads:
            reply = self._answer(name, places[name])
            if reply is None:
                self.log.failed[places[name]] += 1
                failures[name] = ProtocolError.relayed("it was killed", code="killed")
            else:
                replies[name] = reply
        return replies, failures

    # --

    @staticmethod
    def _place(name, method, request):
        session = decode(request, sender=AGGREGATOR, limit=1 << 30).session
        return name, session, method

    def _answer(self, name, place):
        """The answer; ``None`` when the site died of this call, be it after it had answered."""
        child = self._children[name]
        reply, whole = _receive(child.stream)
        if whole:
            self.log.replies[place].append(reply)
            if _read(child.stream, 1):
                self.events[name], self.commit_seconds[name] = child.board[1], child.board[2] / 1e9
                return reply
        elif reply:
            self.log.cut.append((place, reply))
        pid, board = child.pid, child.board
        status = self._bury(name)
        assert os.WIFSIGNALED(status), f"site {name} ended by itself: {status}"
        by = signal.Signals(os.WTERMSIG(status))
        assert by in _DEADLY, f"site {name} ({pid}) ended by {by!r}"
        self.log.deaths.append(
            Death(name, place[2], Stage(board[0]), board[1], by, self._series_style(name))
        )
        self._start(name)
        return None

    def _start(self, name):
        fate = self._fates[name].pop(0) if self._fates[name] else None
        board = memoryview(mmap.mmap(-1, 64)).cast("q")
        ours, its = socket.socketpair()
        with warnings.catch_warnings():
            # linear algebra's idle threads, which it starts anew in a child
            warnings.filterwarnings("ignore", "This process .* is multi-threaded")
            pid = os.fork()
        if pid == 0:
            ours.close()
            for other in self._children.values():
                other.stream.close()
            _live(self._makers[name], its, _Life(board, fate, self._measure))
        its.close()
        ours.settimeout(_PATIENCE)
        self._children[name] = _Child(pid, ours, board)

    def _bury(self, name):
        child = self._children.pop(name)
        child.stream.close()
        return os.waitpid(child.pid, 0)[1]


# -- in the child


def _live(make, stream, life):
    """A site's life: never returns."""
    try:
        gc.freeze()  # what the parent has is the parent's to clear away
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for by in (signal.SIGALRM, signal.SIGXFSZ):
            signal.signal(by, signal.SIG_DFL)
        _serve(make, stream, life)
    except BaseException:
        sys.setprofile(None)
        text = traceback.format_exc().encode()
        stream.sendall(struct.pack(">cQ", b"E", len(text)) + text)
    finally:
        os._exit(1)


def _serve(make, stream, life):
    life.begin("")
    site = make()
    while True:
        life.enter(Stage.WAITING)
        method, _ = _receive(stream)
        request, whole = _receive(stream)
        if not whole:
            os._exit(0)
        life.begin(method.decode())
        life.enter(Stage.READING)
        answer = _framed(site.handle(request))
        middle = len(answer) // 2
        stream.sendall(answer[:middle])
        life.enter(Stage.HALF)
        stream.sendall(answer[middle:])
        life.enter(Stage.SENT)
        life.note()
        stream.sendall(b".")


class _Life:
    """Counts the events of a life, knows its stage, and ends it."""

    def __init__(self, board, fate, measure):
        self._board, self._stage, self._step = board, Stage.STARTING, ""
        self._fate = fate or Fatal(0, "never")
        self._always = measure or (fate is not None and fate.stage is None)
        self._events = 0
        self._last = self._fate.events if fate and fate.stage is None else -1
        self._commits, self._commit_time = 0, 0.0

    def begin(self, step):
        """A request comes; events are counted from where they matter: that takes time."""
        self._step = step
        sys.setprofile(self._counter() if self._always or step == self._fate.step else None)

    def enter(self, stage):
        self._stage = self._board[0] = stage
        fate = self._fate
        if stage is fate.stage and self._step == fate.step:
            self._always = True
            if fate.delay is not None:
                signal.setitimer(signal.ITIMER_REAL, max(fate.delay, 1e-6))
            elif fate.size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (fate.size, fate.size))
            else:
                self._last = self._events + fate.events
                if fate.events == 0:
                    self._die()

    def note(self):
        """Tell the parent, for one who lives on."""
        self._board[1] = self._events
        self._board[2] = round(1e9 * self._commit_time / max(1, self._commits))

    def _counter(self):
        writes = making = None
        before, since = Stage.STARTING, 0.0

        def happens(frame, event, arg):
            nonlocal writes, making, before, since
            self._events += 1
            if self._stage is Stage.DATABASE:  # it has returned
                self._commit_time += time.perf_counter() - since
                self._commits += 1
                writes = None
                self.enter(_DURABLE.get(before, before))
            if self._events == self._last:
                self._die()
            code = frame.f_code
            if event == "call" and code in _ENTRANCES:
                self.enter(_ENTRANCES[code])
            elif event == "call" and code is _WRITER:
                writes = frame.f_locals["self"]._connection
            elif event == "call" and self._stage is Stage.COMMITTING and _makes(frame):
                making = frame
                self.enter(Stage.ANSWERING)
            elif event == "return" and frame is making:
                making = None
                self.enter(Stage.WRITING)
            elif event == "c_call" and arg.__name__ == "commit" and arg.__self__ is writes:
                before, since = self._stage, time.perf_counter()
                self.enter(Stage.DATABASE)

        return happens

    def _die(self):
        self._board[1] = self._events
        os.kill(os.getpid(), signal.SIGKILL)


_COMMIT = Ledger.commit.__code__
_WRITER = Tables.hold.__code__
_ENTRANCES = {Ledger.begin.__code__: Stage.BEGINNING, _COMMIT: Stage.COMMITTING}
_DURABLE = {
    Stage.BEGINNING: Stage.BEGUN,
    Stage.COMMITTING: Stage.AGAIN,
    Stage.WRITING: Stage.DURABLE,
}


def _makes(frame):
    """Whether the ledger has just called what makes an answer."""
    return frame.f_back.f_code is _COMMIT and frame.f_code.co_filename == site_module.__file__


# -- frames: a letter, the length, the bytes


def _framed(data):
    return struct.pack(">cQ", b"D", len(data)) + data


def _receive(stream):
    """A frame's bytes, and whether they are all there."""
    head = _read(stream, 9)
    if len(head) < 9:
        return b"", False
    letter, size = struct.unpack(">cQ", head)
    data = _read(stream, size)
    assert letter == b"D", f"a defect in a site:\n{data.decode()}"
    return data, len(data) == size


def _read(stream, size):
    """So many bytes, or fewer where the stream ends."""
    found = bytearray()
    while len(found) < size:
        try:
            more = stream.recv(size - len(found))
        except TimeoutError:
            raise AssertionError(f"a site said nothing for {_PATIENCE:.0f} seconds") from None
        except ConnectionError:
            break
        if not more:
            break
        found += more
    return bytes(found)
