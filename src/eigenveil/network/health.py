"""What a party shows to its own monitoring over HTTP, on this machine unless its owner says more.

``/healthz`` answers 200 while the process lives, ``/readyz`` 200 while the party reaches its
mailbox and 503 otherwise, ``/metrics`` as Prometheus reads it. Nothing can be sent there.

No metric is computed from rows. Of messages only that they came is counted, and not what was
answered, since a refusal may be due to a row.
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
from typing import Any

from eigenveil.errors import DataError, EigenveilError, OutputError, of_system
from eigenveil.network.folder import PartyFolder
from eigenveil.network.results import STATES, read_progress

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


@dataclass(frozen=True, eq=False)
class WatchedParty:
    """What metrics are computed from; the ledger is a site's, and has ``standings()``."""

    party: PartyFolder
    activity: Activity
    ledger: Any = None

    def collect(self) -> Iterator[Any]:
        """The metrics, when they are asked for."""
        for source in (_of_process, _of_messages, _of_ledger, _of_members, _of_studies):
            try:
                yield from [each for each in source(self) if each.samples]
            except EigenveilError:  # a ledger that is busy: other numbers are there
                continue


def _family(
    name: str,
    told: str,
    found: float | Mapping[Any, float],
    labels: tuple[str, ...] = (),
    *,
    counter: bool = False,
) -> Any:
    """A number, or one for each value of its labels, as prometheus_client has them."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    made = (CounterMetricFamily if counter else GaugeMetricFamily)(name, told, labels=labels)
    for each, value in found.items() if isinstance(found, Mapping) else [((), found)]:
        made.add_metric(each, value)
    return made


def _of_process(watched: WatchedParty) -> Iterator[Any]:
    yield _family("eigenveil_up", "1 while the process answers.", 1.0)
    ready = float(watched.activity.is_ready)
    yield _family("eigenveil_ready", "1 while the party reaches its mailbox.", ready)


def _of_messages(watched: WatchedParty) -> Iterator[Any]:
    activity = watched.activity
    found = {(step,): float(count) for step, count in activity.messages.items()}
    told = "Signed questions that came, by kind of step."
    yield _family("eigenveil_messages", told, found, ("step",), counter=True)
    told = "Runs of studies that began here."
    yield _family("eigenveil_runs", told, float(activity.runs), counter=True)
    told = "When a signed question came last; 0 while none has since the start."
    yield _family("eigenveil_last_question_timestamp_seconds", told, activity.last)


def _of_ledger(watched: WatchedParty) -> Iterator[Any]:
    standings = () if watched.ledger is None else watched.ledger.standings()
    of = {(each.budget.data_set, each.budget.unit): each for each in standings}
    labels = ("data_set", "unit")
    found = {key: float(each.budget.epsilon) for key, each in of.items()}
    yield _family("eigenveil_budget_epsilon", "Epsilon of a budget, at its delta.", found, labels)
    found = {key: float(each.spent_epsilon) for key, each in of.items()}
    told = "Epsilon spent of a budget, at its delta."
    yield _family("eigenveil_budget_spent_epsilon", told, found, labels)
    found = {key: float(each.left_epsilon) for key, each in of.items()}
    told = "Epsilon of the largest study that a budget still covers, at its delta."
    yield _family("eigenveil_budget_left_epsilon", told, found, labels)


def _of_members(watched: WatchedParty) -> Iterator[Any]:
    left = watched.party.known.current().head.until - datetime.now(UTC)
    days = left.total_seconds() / 86400
    yield _family("eigenveil_members_days_left", "Days until the list of members ends.", days)


def _of_studies(watched: WatchedParty) -> Iterator[Any]:
    if watched.party.role == "aggregator":
        folders = watched.party.results.glob("*")
        states = Counter(each["state"] for each in map(read_progress, folders) if each is not None)
        found = {(state,): float(states[state]) for state in STATES}
        yield _family(
            "eigenveil_studies", "Studies at the aggregator, by state.", found, ("state",)
        )


def exposition(watched: WatchedParty) -> tuple[str, bytes]:
    """The metrics as Prometheus reads them: content type and text."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    except ImportError:
        raise OutputError("no-prometheus") from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(watched)
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
    handler = type("Handler", (_Handler,), {"watched": watched})
    try:
        server = ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise OutputError("cannot-listen", address=address, reason=of_system(error)) from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True, name="eigenveil health").start()
    return server


class _Handler(BaseHTTPRequestHandler):
    watched: WatchedParty
    timeout = _PATIENCE
    server_version = "eigenveil"
    sys_version = ""

    def do_GET(self) -> None:
        status, kind, text = self._found(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_HEAD = do_GET  # noqa: N815

    def _found(self, path: str) -> tuple[int, str, bytes]:
        if path == "/healthz":
            return 200, _TEXT, b"ok\n"
        if path == "/readyz":
            ready = self.watched.activity.is_ready
            return (200, _TEXT, b"ready\n") if ready else (503, _TEXT, b"not connected\n")
        if path != "/metrics":
            return 404, _TEXT, b"no such page\n"
        try:
            return 200, *exposition(self.watched)
        except EigenveilError as error:
            return 501, _TEXT, f"{error.message} {error.hint}\n".encode()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: a probe every second is no news."""
