"""How two series of paper 001's tensor experiments compare, point by point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from eigenveil.experiments.numbers import Curve, Numbers
from eigenveil.experiments.paper001_tensor_panels import Sweep

# Means differ clearly when they are so many standard errors apart.
CLEARLY = 4.0
# "Matches the non-private method": within this factor of its error.
MATCHES = 1.25


class Pair(NamedTuple):
    """Two series' means at one point, and the standard error of their difference.

    All series of a run are of the same rows: it is the difference of each run that is averaged.
    """

    sweep: Sweep
    x: float
    first: float
    second: float
    error: float

    @property
    def where(self) -> str:
        """The point, for a person."""
        name = {"epsilon": "ε", "rows": "N", "delta": "δ"}[self.sweep.over]
        return f"{self.sweep.says}, {name}={self.x:g}"


def pairs_of(numbers: Numbers, sweeps: Sequence[Sweep], first: str, second: str) -> Iterator[Pair]:
    """Two series at every point that both have; runs that lack a number of either are left out."""
    for sweep in sweeps:
        runs: dict[float, dict[int, dict[str, float]]] = {}
        for row in numbers.measured:
            if row.panel == sweep.panel and row.series in (first, second):
                runs.setdefault(row.x, {}).setdefault(row.run, {})[row.series] = row.value
        for x, found in sorted(runs.items()):
            values = np.array(
                [[run.get(first, math.nan), run.get(second, math.nan)] for run in found.values()]
            )
            both = values[~np.isnan(values).any(axis=1)]
            if len(both):
                apart = both[:, 0] - both[:, 1]
                error = math.inf  # of a single run nothing is clear
                if len(both) > 1:
                    error = float(np.std(apart, ddof=1)) / math.sqrt(len(both))
                yield Pair(sweep, x, float(both[:, 0].mean()), float(both[:, 1].mean()), error)


def apart(one: Curve, i: int, other: Curve, j: int) -> float:
    """Standard error of the difference of two means; of single runs nothing is clear."""
    if min(one.runs[i], other.runs[j]) < 2:
        return math.inf
    return math.hypot(float(one.error[i]), float(other.error[j]))


def some(where: Sequence[str], most: int = 4) -> str:
    """The first of them, and how many more there are."""
    rest = len(where) - most
    return "; ".join(where[:most]) + (f"; and {rest} more" if rest > 0 else "")


def last(pairs: Sequence[Pair]) -> Pair | None:
    """The one at the right end, if there is any."""
    return pairs[-1] if pairs else None
