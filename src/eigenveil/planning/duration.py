"""How long a study takes between organisations: counted exchanges, bytes, and measured rates.

An estimate with its assumptions, not a promise: owners, who may take days to approve, and sites
that are started again are not in it. Exchanges and bytes follow from the study alone. What sites
and the aggregator compute is worked out from rates that are measured on this machine, on made-up
rows, in about a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np

from eigenveil.errors import DataError
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import Study
from eigenveil.moments.accumulators import Accumulator, RowSum, SecondMoment
from eigenveil.moments.engine import accumulate
from eigenveil.moments.rows import RowRule
from eigenveil.moments.source import ArrayRows
from eigenveil.noise.draws import isometric_entries
from eigenveil.noise.source import SecureSource
from eigenveil.planning.forecast import forecast

# Seconds from the submission to the first question, in a federation that waits for studies.
START = 1.0
# Seconds of an exchange beside the network: seals, signatures, ledgers on the disk.
EXCHANGE = 0.08
# Bytes a second: of masks that a site expands for each neighbour; of messages that are hashed, put
# into a ledger or a journal, and carried.
_MASKS, _HANDLED = 4e8, 5e7
_ROWS, _WIDTH, _VALUES = 2000, 256, 1 << 15


@dataclass(frozen=True)
class Network:
    """The connections between the parties."""

    latency: float = 0.05  # Seconds there and back, 0 or more
    # Of each party's connection a second, above 0. All sites send at once, so the aggregator's is
    # the one that counts.
    megabits: float = 100.0

    def __post_init__(self) -> None:
        if not 0 <= self.latency <= 3600:
            raise DataError(
                f"latency = {self.latency:g} is not from 0 to 3600 s.",
                hint="Give seconds there and back, such as 0.05.",
            )
        if not 0 < self.megabits <= 1e7:
            raise DataError(
                f"bandwidth = {self.megabits:g} is not above 0 Mbit/s, and at most 10^7.",
                hint="Give megabits a second, such as 100.",
            )


@dataclass(frozen=True)
class Duration:
    """How long a study takes, in seconds, and why."""

    network: Network  # As assumed
    # Questions that every site answers, one after the other; the most that there can be
    exchanges: int
    bytes: int  # That pass the aggregator's connection in all
    # Until the first question; waiting for exchanges; carrying bytes; what a site computes; what
    # the aggregator computes
    starting: float
    exchanging: float
    carrying: float
    sites: float
    aggregator: float
    rows: int | None  # Of a site, as assumed; without them `sites` has only noise and masks

    @property
    def seconds(self) -> float:
        """In all."""
        return self.starting + self.exchanging + self.carrying + self.sites + self.aggregator

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self) | {"seconds": self.seconds, "text": self.text(), "assumed": self.why()}

    def text(self) -> str:
        """About how long, for people."""
        return _about(self.seconds)

    def why(self) -> str:
        """What was assumed, and what it is made of."""
        rows = "without reading rows, whose number is not given"
        if self.rows is not None:
            rows = f"{self.rows:,} rows a site, read as fast as from memory"
        return (
            f"{self.starting:.0f} s until it begins; {self.exchanges} exchanges of "
            f"{self.exchanging / self.exchanges:.2g} s ({self.network.latency:g} s of them there "
            f"and back); {self.bytes / 1e6:.2g} MB over the aggregator's "
            f"{self.network.megabits:g} Mbit/s, {_short(self.carrying)}; a site's computation, at "
            f"this machine's speed, {_short(self.sites)} ({rows}); the aggregator's, "
            f"{_short(self.aggregator)}; machines that do nothing else"
        )


def duration(study: Study, rows: int | None, network: Network | None = None) -> Duration:
    """How long a study takes once all sites are there and have approved."""
    terms, network = settle(study), network or Network()
    plan, sites = terms.plan, len(terms.names)
    sizes = forecast(study, study.width, None)
    width = min(plan.sketch_columns, plan.features) if study.protocol == "sketch" else plan.features
    exchanges = terms.exchanges
    # what is asked: the columns of a basis or a sketch, in each round but the first
    asked = 8 * plan.features * max(1, plan.n_components) * max(0, len(terms.rounds) - 1)
    total = sites * (sizes.round_bytes + asked)
    values, moments = sizes.round_bytes / 8, sum(one.step == "moment" for one in plan.schedule)
    each = None if rows is None else max(1, round(rows / sites))
    rates = measured_rates()
    computing = values * rates.noise + sizes.round_bytes * (study.degree / _MASKS + 1 / _HANDLED)
    if each is not None:
        read = len(terms.rounds) * each * plan.features * rates.entry
        computing += read + moments * each * plan.features * width * rates.product
    return Duration(
        network=network,
        exchanges=exchanges,
        bytes=total,
        starting=START,
        exchanging=exchanges * (network.latency + EXCHANGE),
        carrying=8 * total / (1e6 * network.megabits),
        sites=computing,
        aggregator=moments * plan.features * width**2 * rates.eigen + total / _HANDLED,
        rows=each,
    )


@dataclass(frozen=True)
class Rates:
    """What this machine takes, in seconds."""

    entry: float  # To prepare and add up an entry of a row
    product: float  # For a product of two entries in a second moment
    noise: float  # To draw a number
    eigen: float  # Eigenvectors of a D x D matrix, divided by D^3


@cache
def measured_rates() -> Rates:
    """The rates of this machine; measured once a process, on made-up rows."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((_ROWS, _WIDTH)) / _WIDTH
    rows, rule = ArrayRows(values, names=None, origin="made up"), RowRule(bound=1.0)
    square = values.T @ values

    def adding(make: Callable[[], Accumulator]) -> float:
        return _fastest(lambda: accumulate(rows, [make()]))

    entry = adding(lambda: RowSum(rule, features=_WIDTH, count_weight=0.0))
    moment = adding(lambda: SecondMoment(rule, features=_WIDTH))
    noise = _fastest(
        lambda: isometric_entries(
            "vector", (_VALUES,), sigma=1000.0, grid=-10, source=SecureSource()
        )
    )
    eigen = _fastest(lambda: np.linalg.eigh(square))
    count = _ROWS * _WIDTH
    return Rates(
        entry / count,
        moment / (count * _WIDTH),
        noise / _VALUES,
        eigen / _WIDTH**3,
    )


def _fastest(what: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of several runs: others may use the machine meanwhile."""
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        what()
        found.append(time.perf_counter() - begun)
    return min(found)


def _short(seconds: float) -> str:
    return "under 0.1 s" if seconds < 0.1 else f"{seconds:.2g} s"


def _about(seconds: float) -> str:
    """A duration in as many digits as it is worth."""
    if seconds < 90:
        return f"about {max(1, round(seconds)):d} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} minutes"
    if seconds < 36 * 3600:
        return f"about {seconds / 3600:.1f} hours"
    return f"about {seconds / 86400:.1f} days"
