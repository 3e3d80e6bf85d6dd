"""What a party shows to its own monitoring over HTTP, on this machine unless its owner says more.

``/healthz`` answers 200 while the process lives, ``/readyz`` 200 while the party reaches its
mailbox and 503 otherwise, ``/metrics`` as Prometheus reads it. Nothing can be sent there.

Each metric is declared here with where its value comes from, and a test walks through all of them:
no source has rows. Of messages only that they came is counted, and not what was answered, since a
refusal may be due to a row.
"""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, get_args

from eigenveil.errors import DataError, EigenveilError, OutputError, of_system
from eigenveil.network.folder import PartyFolder
from eigenveil.network.status import STATES, read_progress

# What a metric may be computed from; none of these has rows.
Source = Literal["messages", "ledger", "members", "status", "process"]
SOURCES: tuple[Source, ...] = get_args(Source)
LONGEST_SILENCE = 45.0
"""Seconds since the mailbox was last reached after which a party is not ready."""
# Steps by their first word: labels are of this list alone, whatever the aggregator sends.
STEPS = ("join", "keys", "shares", "round", "survivors", "unmask", "masks", "end", "over")
_TEXT = "text/plain; charset=utf-8"
_PATIENCE = 10.0


@dataclass
class Activity:
    """What came to a party: steps of signed questions, not what was in them."""

    messages: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    last: float = 0.0
    reached_at: float = -math.inf
    clock: Callable[[], float] = time.monotonic

    def note(self, step: str) -> None:
        """A signed question of this step came."""
        kind = step.partition(" ")[0]
        self.messages[kind if kind in STEPS else "other"] += 1
        self.last = time.time()

    def reached(self) -> None:
        self.reached_at = self.clock()

    def lost(self) -> None:
        self.reached_at = -math.inf

    @property
    def is_ready(self) -> bool:
        return self.clock() - self.reached_at <= LONGEST_SILENCE


@dataclass(frozen=True)
class WatchedParty:
    """What metrics are computed from; the ledger is a site's, and has ``standings()``."""

    party: PartyFolder
    activity: Activity
    ledger: Any = None


Samples = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class Metric:
    """One number, or one for each value of its labels; ``read`` gives them now."""

    name: str
    help: str
    kind: Literal["counter", "gauge"]
    source: Source
    read: Callable[[WatchedParty], Samples]
    labels: tuple[str, ...] = ()


def _messages(watched: WatchedParty) -> Samples:
    return {(step,): float(count) for step, count in watched.activity.messages.items()}


def _one(value: float) -> Samples:
    return {(): value}


def _budgets(value: Callable[[Any], float]) -> Callable[[WatchedParty], Samples]:
    def read(watched: WatchedParty) -> Samples:
        found = () if watched.ledger is None else watched.ledger.standings()
        return {(each.budget.data_set, each.budget.unit): value(each) for each in found}

    return read


def _days_left(watched: WatchedParty) -> Samples:
    left = watched.party.known.current().head.until - datetime.now(UTC)
    return _one(left.total_seconds() / 86400)


def _studies(watched: WatchedParty) -> Samples:
    if watched.party.role != "aggregator":
        return {}
    found = [read_progress(folder) for folder in watched.party.results.glob("*")]
    states = Counter(each["state"] for each in found if each is not None)
    return {(state,): float(states[state]) for state in STATES}


METRICS = (
    Metric("eigenveil_up", "1 while the process answers.", "gauge", "process", lambda _: _one(1.0)),
    Metric(
        "eigenveil_ready",
        "1 while the party reaches its mailbox.",
        "gauge",
        "process",
        lambda watched: _one(float(watched.activity.is_ready)),
    ),
    Metric(
        "eigenveil_messages",
        "Signed questions that came, by kind of step.",
        "counter",
        "messages",
        _messages,
        ("step",),
    ),
    Metric(
        "eigenveil_runs",
        "Runs of studies that began here.",
        "counter",
        "messages",
        lambda watched: _one(float(watched.activity.runs)),
    ),
    Metric(
        "eigenveil_last_question_timestamp_seconds",
        "When a signed question came last; 0 while none has since the start.",
        "gauge",
        "messages",
        lambda watched: _one(watched.activity.last),
    ),
    Metric(
        "eigenveil_budget_epsilon",
        "Epsilon of a budget, at its delta.",
        "gauge",
        "ledger",
        _budgets(lambda each: float(each.budget.epsilon)),
        ("data_set", "unit"),
    ),
    Metric(
        "eigenveil_budget_spent_epsilon",
        "Epsilon spent of a budget, at its delta.",
        "gauge",
        "ledger",
        _budgets(lambda each: float(each.spent_epsilon)),
        ("data_set", "unit"),
    ),
    Metric(
        "eigenveil_budget_left_epsilon",
        "Epsilon of the largest study that a budget still covers, at its delta.",
        "gauge",
        "ledger",
        _budgets(lambda each: float(each.left_epsilon)),
        ("data_set", "unit"),
    ),
    Metric(
        "eigenveil_members_days_left",
        "Days until the list of members ends.",
        "gauge",
        "members",
        _days_left,
    ),
    Metric(
        "eigenveil_studies",
        "Studies at the aggregator, by state.",
        "gauge",
        "status",
        _studies,
        ("state",),
    ),
)


class _Collector:
    """Computes the metrics when they are asked for."""

    def __init__(self, watched: WatchedParty) -> None:
        self._watched = watched

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        for metric in METRICS:
            made = families[metric.kind](metric.name, metric.help, labels=metric.labels)
            try:
                samples = metric.read(self._watched)
            except EigenveilError:  # a ledger that is busy: this number is missing, others are not
                continue
            if metric.labels and not samples:
                continue
            for labels, value in samples.items():
                made.add_metric(labels, value)
            yield made


def exposition(watched: WatchedParty) -> tuple[str, bytes]:
    """The metrics as Prometheus reads them: content type and text."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    except ImportError:
        raise OutputError("no-prometheus") from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(watched))
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:9102``; the host is an IPv4 address."""
    host, _, port = text.rpartition(":")
    try:
        number = int(port)
        ipaddress.IPv4Address(host)
        if not 0 <= number < 1 << 16:
            raise ValueError(port)
    except ValueError:
        raise DataError("bad-metrics-address", text=text) from None
    return host, number


def serve(address: str, watched: WatchedParty) -> ThreadingHTTPServer:
    """Answer there until the process ends, in a thread of its own."""
    host, port = parse_address(address)
    handler = type("Handler", (_Handler,), {"answers": _answers(watched)})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise OutputError("cannot-listen", address=address, reason=of_system(error)) from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True, name="eigenveil health").start()
    return server


_Answer = Callable[[], tuple[int, str, bytes]]


def _answers(watched: WatchedParty) -> dict[str, _Answer]:
    def live() -> tuple[int, str, bytes]:
        return 200, _TEXT, b"ok\n"

    def ready() -> tuple[int, str, bytes]:
        if watched.activity.is_ready:
            return 200, _TEXT, b"ready\n"
        return 503, _TEXT, b"not connected\n"

    def metrics() -> tuple[int, str, bytes]:
        try:
            kind, text = exposition(watched)
        except EigenveilError as error:
            return 501, _TEXT, f"{error.message} {error.hint}\n".encode()
        return 200, kind, text

    return {"/healthz": live, "/readyz": ready, "/metrics": metrics}


class _Handler(BaseHTTPRequestHandler):
    answers: dict[str, _Answer]
    timeout = _PATIENCE
    server_version = "eigenveil"
    sys_version = ""

    def do_GET(self) -> None:
        found = self.answers.get(self.path.partition("?")[0])
        status, kind, text = found() if found is not None else (404, _TEXT, b"no such page\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: a probe every second is no news."""
