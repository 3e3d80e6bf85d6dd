"""What a party shows to its own monitoring: counts of messages, budgets, dates; never of rows.

Each metric is declared here with where its value comes from, and a test walks through all of them:
no source has rows. Of messages only that they came is counted, and not what was answered, since a
refusal may be due to a row. A site's monitoring would be the same whatever its rows are.

``/metrics`` needs prometheus-client; health and readiness need nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from eigenveil.errors import EigenveilError, OutputError
from eigenveil.network.kit import Kit
from eigenveil.network.status import STATES, read_progress

# What a metric may be computed from; none of these has rows.
Source = Literal["messages", "ledger", "certificate", "status", "process"]
SOURCES: tuple[Source, ...] = get_args(Source)
Kind = Literal["counter", "gauge"]


@dataclass
class Activity:
    """What came to a party, as it counts it: steps of signed questions, not what was in them.

    Attributes
    ----------
    messages : Counter
        By kind of step.
    runs : int
        Begun.
    last : float
        When a signed question came last, in seconds since 1970; 0 while none has.
    is_ready : callable
        Whether the party can be asked.
    """

    messages: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    last: float = 0.0
    is_ready: Callable[[], bool] = lambda: True

    def note(self, step: str) -> None:
        """A signed question of this step came."""
        kind = step.partition(" ")[0]
        self.messages[kind if kind in STEPS else "other"] += 1
        self.last = time.time()


# Steps by their first word: labels are of this list alone, whatever the aggregator sends.
STEPS = (
    "hello", "join", "keys", "shares", "round", "survivors", "unmask", "masks", "sign", "finish",
    "bye",
)  # fmt: skip


@dataclass(frozen=True)
class Party:
    """What metrics are computed from.

    Attributes
    ----------
    kit : Kit
    activity : Activity
    ledger : object or None
        Of a site: has ``standings()``.
    """

    kit: Kit
    activity: Activity
    ledger: Any = None


Samples = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class Metric:
    """One number, or one for each value of its labels.

    Attributes
    ----------
    name, help : str
    kind : "counter" or "gauge"
    source : Source
        What it is computed from.
    labels : tuple of str
    read : callable
        Its values now, by the labels' values.
    """

    name: str
    help: str
    kind: Kind
    source: Source
    read: Callable[[Party], Samples]
    labels: tuple[str, ...] = ()


def _messages(party: Party) -> Samples:
    return {(step,): float(count) for step, count in party.activity.messages.items()}


def _one(value: float) -> Samples:
    return {(): value}


def _budgets(value: Callable[[Any], float]) -> Callable[[Party], Samples]:
    def read(party: Party) -> Samples:
        if party.ledger is None:
            return {}
        found = party.ledger.standings()
        return {(each.budget.data_set, each.budget.unit): value(each) for each in found}

    return read


def _days_left(party: Party) -> Samples:
    from eigenveil.network.certificates import days_left, read_certificate

    kit = party.kit
    files = {"tls": kit.certificate, "root": kit.root_certificate}
    if kit.signing_certificate.exists():
        files["signing"] = kit.signing_certificate
    return {(name,): days_left(read_certificate(file)) for name, file in files.items()}


def _studies(party: Party) -> Samples:
    found = [read_progress(folder) for folder in party.kit.results.glob("*")]
    states = Counter(each["state"] for each in found if each is not None)
    return {(state,): float(states[state]) for state in STATES}


METRICS = (
    Metric(
        "eigenveil_up",
        "1 while the process answers.",
        "gauge",
        "process",
        lambda _: _one(1.0),
    ),
    Metric(
        "eigenveil_ready",
        "1 while the party is part of its federation's network.",
        "gauge",
        "process",
        lambda party: _one(float(party.activity.is_ready())),
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
        "eigenveil_rounds",
        "Signed questions for a round that came, repeated ones too.",
        "counter",
        "messages",
        lambda party: _one(float(party.activity.messages["round"])),
    ),
    Metric(
        "eigenveil_runs",
        "Runs of studies that began here.",
        "counter",
        "messages",
        lambda party: _one(float(party.activity.runs)),
    ),
    Metric(
        "eigenveil_last_question_timestamp_seconds",
        "When a signed question came last; 0 while none has since the start.",
        "gauge",
        "messages",
        lambda party: _one(party.activity.last),
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
        "eigenveil_certificate_days_left",
        "Days until a certificate ends.",
        "gauge",
        "certificate",
        _days_left,
        ("certificate",),
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

    def __init__(self, party: Party) -> None:
        self._party = party

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        for metric in METRICS:
            if metric.source == "status" and self._party.kit.role != "aggregator":
                continue
            made = families[metric.kind](metric.name, metric.help, labels=metric.labels)
            try:
                samples = metric.read(self._party)
            except EigenveilError:  # a ledger that is busy: this number is missing, others are not
                continue
            for labels, value in samples.items():
                made.add_metric(labels, value)
            yield made


def exposition(party: Party) -> tuple[str, bytes]:
    """The metrics as Prometheus reads them: content type and text.

    Raises
    ------
    OutputError
        ``no-prometheus``.
    """
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
    except ImportError:
        raise OutputError(
            "Metrics need prometheus-client, which is not installed.",
            hint="Install it: pip install 'eigenveil[metrics]'.",
            code="no-prometheus",
        ) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(party))
    return CONTENT_TYPE_LATEST, generate_latest(registry)
