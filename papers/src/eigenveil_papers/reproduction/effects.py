"""Effects with their intervals, and the verdict that they give on a part of a claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from eigenveil_papers.reproduction.experiment import Verdict

FloatArray = NDArray[np.float64]

MISSES = 0.05
"""Chance that any interval of a claim misses its truth."""
POWER = 0.9
"""Chance with which the difference that is told as one that could have been shown is shown."""
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity that is compared."""

    unit: str  # In words, after a number: `"of the exact energy"`
    margin: float  # Smaller differences are none; for ratios a factor above 1
    # Whether values are divided (their logarithms are averaged), not subtracted
    ratio: bool = False
    less: bool = False  # Whether less is better, as of errors and times
    digits: str = ".3f"  # Format of a number
    most: float = math.inf  # No difference is larger: printed intervals end there

    @property
    def room(self) -> float:
        """The margin in the terms of effects."""
        return math.log(self.margin) if self.ratio else self.margin

    def between(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """By how much the first is better, run by run: positive where it is."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.log(first) - np.log(second) if self.ratio else first - second
        return -gains if self.less else gains

    def say(self, value: float, *, signed: bool = True) -> str:
        """An effect in words."""
        if self.ratio:
            return f"{math.exp(value):.3g}"
        return format(value, f"+{self.digits}" if signed else self.digits)


class Interval(NamedTuple):
    """Where the truth is."""

    low: float
    high: float


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

    def named(self, at: str) -> Effect:
        """The same under another name."""
        return replace(self, at=at)

    @classmethod
    def of(cls, at: str, values: FloatArray, *, below: bool = False, above: bool = False) -> Effect:
        """The mean of independent runs."""
        count = len(values)
        error = float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else math.inf
        return cls(at, float(np.mean(values)), error, max(1.0, count - 1.0), below, above)

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


@dataclass(frozen=True, kw_only=True)
class ClaimPart:
    """What a claim is about one by one, and the question that is asked of it."""

    name: str  # A data set or panel, for the text
    # At its positions; positive in the claim's favour where it compares
    effects: tuple[Effect, ...]
    # `"better"`: above the margin at some position, and below minus the margin at none. `"not
    # worse"`: above minus the margin everywhere. `"same"`: within the margin everywhere. `"at
    # least"`, `"at most"`: above, below `level` everywhere. `"somewhere"`: above `level` at some
    # position. `"rises"`: the first effect, from end to end, above the margin, and the others, the
    # steps, above minus the margin.
    asks: Question
    level: float = 0.0  # Of `"at least"`, `"at most"` and `"somewhere"`, in the terms of effects
    # Of `"somewhere"`: whether it may be reached beyond the last position, since the series is not
    # shown to have stopped rising there; the part is then not tested, not excluded
    open_end: bool = False


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a claim of the verdicts on its parts."""
    told = [verdict for verdict in verdicts if verdict != "not tested"]
    if not told:
        return "not tested"
    if all(verdict == "holds" for verdict in verdicts):
        return "holds"
    if any(verdict in ("holds", "in part") for verdict in told):
        return "in part"
    return "does not hold" if "does not hold" in told else "cannot be told"


def judge(part: ClaimPart, measure: Measure, count: int) -> Verdict:
    """The verdict on one part of a claim that has so many effects."""
    if not part.effects:
        return "not tested"
    ends = [effect.interval(count) for effect in part.effects]
    low = np.array([end.low for end in ends])
    high = np.array([end.high for end in ends])
    room = measure.room
    match part.asks:
        case "better":
            ahead, behind = low > room, high < -room
            if ahead.any():
                return "holds" if bool(np.all(low > -room)) else "in part"
            if behind.any() or bool(np.all(high < room)):
                return "does not hold"
            return "cannot be told"
        case "rises":
            if low[0] > room:
                return "holds" if bool(np.all(low[1:] > -room)) else "in part"
            if high[0] < room:
                return "does not hold"
            return "cannot be told"
        case "somewhere":
            if bool(np.any(low >= part.level - _ROUNDING)):
                return "holds"
            if bool(np.all(high < part.level)):
                return "not tested" if part.open_end else "does not hold"
            return "cannot be told"
        case "not worse":
            shown, excluded = low > -room, high < -room
        case "same":
            shown, excluded = (low >= -room) & (high <= room), (low > room) | (high < -room)
        case "at least":
            shown, excluded = low >= part.level - _ROUNDING, high < part.level
        case "at most":
            shown, excluded = high <= part.level + _ROUNDING, low > part.level
    each: list[Verdict] = [
        "holds" if yes else "does not hold" if no else "cannot be told"
        for yes, no in zip(shown, excluded, strict=True)
    ]
    return together(each)


def compares(part: ClaimPart) -> bool:
    """Whether its effects are differences that a margin applies to."""
    return part.asks in ("better", "not worse", "same", "rises")
