"""Effects with their intervals, and the verdict that they give on a part of a claim."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.stats

from eigenveil_papers.reproduction.experiment import Outcome
from eigenveil_papers.reproduction.numbers import FloatArray

MISSES = 0.05
"""Chance that any interval of a claim misses its truth."""
POWER = 0.9
"""Chance with which the difference that is told as one that could have been shown is shown."""
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Measure:
    unit: str  # In words, after a number: `"of the exact energy"`
    margin: float  # Smaller differences are none; for ratios a factor above 1
    # Whether values are divided (their logarithms are averaged), not subtracted
    ratio: bool = False
    less: bool = False  # Whether less is better, as of errors and times
    digits: str = ".3f"  # Format of a number
    most: float = math.inf  # No difference is larger: printed intervals end there

    @property
    def room(self) -> float:
        return math.log(self.margin) if self.ratio else self.margin

    def between(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """By how much the first is better, run by run: positive where it is."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.log(first) - np.log(second) if self.ratio else first - second
        return -gains if self.less else gains

    def say(self, value: float, *, signed: bool = True) -> str:
        if self.ratio:
            return f"{math.exp(value):.3g}"
        return format(value, f"+{self.digits}" if signed else self.digits)


class Interval(NamedTuple):
    low: float
    high: float


ANYWHERE = Interval(-math.inf, math.inf)


@dataclass(frozen=True)
class Effect:
    """A number that was measured in runs, with what is known of it."""

    at: str  # Where: `"epsilon 0.1"`; may be empty
    value: float
    error: float  # Standard error; 0 of what is computed and not drawn, infinite of a single run
    free: float = math.inf  # Degrees of freedom of the error
    # Whether the truth may lie any distance below or above, as where a curve ends before it reaches
    # a level
    below: bool = False
    above: bool = False
    # Where the truth can be at all: a claim that is true of all of it is not tested there
    possible: Interval = ANYWHERE

    def named(self, at: str) -> Effect:
        return replace(self, at=at)

    @classmethod
    def of(cls, at: str, values: FloatArray, **more: Any) -> Effect:
        """The mean of independent runs."""
        count = len(values)
        error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.inf
        return cls(at, float(np.mean(values)), error, max(1.0, count - 1.0), **more)

    def interval(self, together: int) -> Interval:
        """At the level that all intervals of a claim with so many effects hold together."""
        wide = 0.0
        if self.error:
            wide = _quantile(1.0 - MISSES / (2 * together), self.free) * self.error
        low = -math.inf if self.below else self.value - wide
        return Interval(low, math.inf if self.above else self.value + wide)

    def showable(self, together: int) -> float:
        """How far beyond a margin the truth must be to be shown with the chance ``POWER``."""
        if not self.error:
            return 0.0
        beyond = _quantile(1.0 - MISSES / (2 * together), self.free)
        return (beyond + _quantile(POWER, self.free)) * self.error


@lru_cache(maxsize=1000)
def _quantile(level: float, free: float) -> float:
    return float(scipy.stats.t.ppf(level, free))


Question = Literal["better", "not worse", "same", "at least", "at most", "somewhere", "rises"]


@dataclass(frozen=True)
class ClaimPart:
    """What a claim is about one by one, and the question that is asked of it."""

    name: str  # A data set or panel, for the text
    # At its positions; positive in the claim's favour where it compares
    effects: tuple[Effect, ...]
    # What is asked at each position. `"better"`: above the margin. `"not worse"`: above minus the
    # margin. `"same"`: within the margin. `"at least"`, `"at most"`: above, below `level`.
    # `"somewhere"`: above `level` at any of them. `"rises"`: the first effect, from end to end,
    # above the margin, and the others, the steps, above minus the margin.
    asks: Question
    level: float = 0.0  # Of `"at least"`, `"at most"` and `"somewhere"`, in the terms of effects
    # Of `"somewhere"`: whether it may be reached beyond the last position, since the series is not
    # shown to have stopped rising there; the part is then not tested, not excluded
    open_end: bool = False


def judge(part: ClaimPart, measure: Measure, count: int) -> list[Outcome]:
    """The outcome at each position of a part of a claim that has so many effects.

    A part that asks whether a level is reached somewhere has one position, the whole series.
    """
    found = [
        _outcome(effect, _wanted(part, measure, first=not place), count)
        for place, effect in enumerate(part.effects)
    ]
    if part.asks != "somewhere" or not found:
        return found
    if "not tested" in found or "shown" in found:
        return ["not tested" if "not tested" in found else "shown"]
    if "undecided" in found:
        return ["undecided"]
    return ["not tested" if part.open_end else "contradicted"]


def _wanted(part: ClaimPart, measure: Measure, *, first: bool) -> Interval:
    """Where an effect must be for the claim to be true there, both ends among it."""
    beyond = math.nextafter(measure.room, math.inf)
    not_below = math.nextafter(-measure.room, math.inf)
    match part.asks:
        case "better":
            return Interval(beyond, math.inf)
        case "rises":
            return Interval(beyond if first else not_below, math.inf)
        case "not worse":
            return Interval(not_below, math.inf)
        case "same":
            return Interval(-measure.room, measure.room)
        case "at least" | "somewhere":
            return Interval(part.level - _ROUNDING, math.inf)
        case "at most":
            return Interval(-math.inf, part.level + _ROUNDING)


def _outcome(effect: Effect, wanted: Interval, count: int) -> Outcome:
    if _within(effect.possible, wanted):
        return "not tested"
    end = effect.interval(count)
    if _within(end, wanted):
        return "shown"
    return "contradicted" if end.high < wanted.low or end.low > wanted.high else "undecided"


def _within(inner: Interval, outer: Interval) -> bool:
    return outer.low <= inner.low and inner.high <= outer.high


def compares(part: ClaimPart) -> bool:
    """Whether its effects are differences that a margin applies to."""
    return part.asks in ("better", "not worse", "same", "rises")
