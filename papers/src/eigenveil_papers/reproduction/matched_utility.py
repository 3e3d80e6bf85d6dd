"""How many times more epsilon one mechanism needs than another for the same result."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenveil_papers.reproduction.numbers import Curve

FloatArray = NDArray[np.float64]


class MatchedUtility(NamedTuple):
    """At a level of utility: the epsilons of both, and their ratio."""

    ratio: float  # Of the worse's epsilon to the better's; nan where it cannot be said
    level: float  # The mean at which they are compared
    better: float  # Epsilon at which each reaches it; nan where it never does
    worse: float
    # `"lower"`: the ratio is at least this, since the better one reaches the level already at its
    # smallest epsilon, or the worse one never does (then the ratio is of the worse's largest
    # epsilon). `"upper"`: at most this, for the same reasons the other way round.
    bound: Literal["exact", "lower", "upper"]

    def __str__(self) -> str:
        if math.isnan(self.ratio):
            return "not comparable"
        sign = {"exact": "", "lower": "at least ", "upper": "at most "}[self.bound]
        return f"{sign}{self.ratio:.3g}"


def matched_utility(
    better: Curve, worse: Curve, level: float | None = None, *, higher: bool = True
) -> MatchedUtility:
    """Compare two curves over epsilon where they reach the same mean.

    Epsilon is interpolated in its logarithm, on the monotone envelope of the means (a mechanism
    with more epsilon may always add noise, so a dip is noise of the measurement).
    """
    sign = 1.0 if higher else -1.0
    nothing = MatchedUtility(math.nan, math.nan, math.nan, math.nan, "exact")
    if better.x.size == 0 or worse.x.size == 0:
        return nothing
    own, other = (_envelope(curve, sign) for curve in (better, worse))
    wanted = min(own[-1], other[-1]) if level is None else sign * level
    at_better, better_low = _reach(better.x, own, wanted)
    at_worse, worse_low = _reach(worse.x, other, wanted)
    level = sign * wanted
    if math.isnan(at_better):
        if math.isnan(at_worse):
            return nothing._replace(level=level)
        ratio = at_worse / float(better.x[-1])
        return MatchedUtility(ratio, level, math.nan, at_worse, "upper")
    if math.isnan(at_worse):
        ratio = float(worse.x[-1]) / at_better
        return MatchedUtility(ratio, level, at_better, math.nan, "lower")
    if better_low and worse_low:  # both are there from the start: nothing can be said
        return nothing._replace(level=level, better=at_better, worse=at_worse)
    bound: Literal["exact", "lower", "upper"] = (
        "lower" if better_low else "upper" if worse_low else "exact"
    )
    return MatchedUtility(at_worse / at_better, level, at_better, at_worse, bound)


def _envelope(curve: Curve, sign: float) -> FloatArray:
    return np.asarray(np.maximum.accumulate(sign * curve.mean), dtype=np.float64)


def _reach(x: FloatArray, values: FloatArray, level: float) -> tuple[float, bool]:
    """Where rising values first reach a level, and whether that is at the very start."""
    reached = np.flatnonzero(values >= level - 1e-12)
    if reached.size == 0:
        return math.nan, False
    first = int(reached[0])
    if first == 0:
        return float(x[0]), bool(values[0] > level + 1e-12 or values.size == 1)
    if values[first] <= level + 1e-12:
        return float(x[first]), False
    part = (level - values[first - 1]) / (values[first] - values[first - 1])
    logs = np.log(x[first - 1 : first + 1])
    return float(np.exp(logs[0] + part * (logs[1] - logs[0]))), False
