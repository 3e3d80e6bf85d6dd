"""The one rule by which every claim is judged, the papers' and this package's alike.

A claim is a question about *effects*: differences (or ratios) between two series, between two ends
of one, or between a series and a level. Each effect has its value over the runs and an interval of
Student's t, and the intervals of one claim miss the truth with a chance of at most 5 % *together*
(Bonferroni). The interval, not the value, is held against a margin that is stated beforehand:

- wholly on the claim's side of the margin: *shown*;
- wholly on the other side: *excluded*;
- else it cannot be told, whatever the value.

The rule never asks whose claim it is. Told of the other method with the data exchanged, it says the
same; a difference that was not found counts for nobody, unless the interval is narrow enough to
show that there is none.

To add a claim: choose or make a :class:`Measure`, and call :func:`better`, :func:`no_worse`,
:func:`same`, :func:`rises`, :func:`reaches`, :func:`epsilon_ratios` or :func:`holds_for`; or build
effects and parts and call :func:`decide`. A part is what the claim is about one by one: a panel, a
data set. Of its parts a claim's verdict is:

==================  ==============================================================
holds               shown in all parts
in part             shown in some of them, or within some of them at some positions
does not hold       shown in none, and excluded in at least one
cannot be told      neither shown nor excluded in any
not tested          no part has points, or no setting reached the one claimed
==================  ==============================================================
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from eigenveil_papers.reproduction.experiment import Claim, Verdict
from eigenveil_papers.reproduction.matched_utility import MatchedUtility, matched_utility
from eigenveil_papers.reproduction.numbers import Curve, Numbers

FloatArray = NDArray[np.float64]

OURS = "eigenveil"
"""Where a claim stands that is this package's own."""
MISSES = 0.05
"""Chance that any interval of a claim misses its truth."""
POWER = 0.9
"""Chance with which the difference that is told as one that could have been shown is shown."""
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity that is compared.

    Attributes
    ----------
    unit : str
        In words, after a number: ``"of the exact energy"``.
    margin : float
        Smaller differences are none; for ratios a factor above 1.
    ratio : bool
        Whether values are divided (their logarithms are averaged), not subtracted.
    less : bool
        Whether less is better, as of errors and times.
    digits : str
        Format of a number.
    most : float
        No difference is larger: printed intervals end there.
    """

    unit: str
    margin: float
    ratio: bool = False
    less: bool = False
    digits: str = ".3f"
    most: float = math.inf

    @property
    def room(self) -> float:
        """The margin in the terms of effects."""
        return math.log(self.margin) if self.ratio else self.margin

    def between(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """By how much the first is better, run by run: positive where it is."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.log(first) - np.log(second) if self.ratio else first - second
        return -gains if self.less else gains

    def say(self, value: float) -> str:
        """An effect in words."""
        if self.ratio:
            return f"{math.exp(value):.3g}"
        return format(value, f"+{self.digits}")


class Interval(NamedTuple):
    """Where the truth is."""

    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """A number that was measured in runs, with what is known of it.

    Attributes
    ----------
    at : str
        Where: ``"epsilon 0.1"``; may be empty.
    value : float
    error : float
        Standard error; 0 of what is computed and not drawn, infinite of a single run.
    free : float
        Degrees of freedom of the error.
    below, above : bool
        Whether the truth may lie any distance below or above, as where a curve ends before it
        reaches a level.
    """

    at: str
    value: float
    error: float
    free: float = math.inf
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
class Part:
    """What a claim is about one by one, and the question that is asked of it.

    Attributes
    ----------
    name : str
        A data set or panel, for the text.
    effects : tuple of Effect
        At its positions; positive in the claim's favour where it compares.
    asks : Question
        ``"better"``: above the margin at some position, and below minus the margin at none.
        ``"not worse"``: above minus the margin everywhere. ``"same"``: within the margin
        everywhere. ``"at least"``, ``"at most"``: above, below ``level`` everywhere.
        ``"somewhere"``: above ``level`` at some position. ``"rises"``: the first effect, from
        end to end, above the margin, and the others, the steps, above minus the margin.
    level : float
        Of ``"at least"``, ``"at most"`` and ``"somewhere"``, in the terms of effects.
    open_end : bool
        Of ``"somewhere"``: whether it may be reached beyond the last position, since the series
        is not shown to have stopped rising there; the part is then not tested, not excluded.
    """

    name: str
    effects: tuple[Effect, ...]
    asks: Question
    level: float = 0.0
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


def judge(part: Part, measure: Measure, count: int) -> Verdict:
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


def decide(
    statement: str, where: str, parts: Iterable[Part], measure: Measure, *, aside: str = ""
) -> Claim:
    """A claim with its verdict, its effects with their intervals, and what could have been shown.

    Parameters
    ----------
    statement, where : str
        As of :class:`Claim`. Neither has a say in the verdict.
    parts : iterable of Part
        Those without effects were not measured and are left out.
    aside : str
        Further numbers for the text, which have no say in the verdict.
    """
    found = [part for part in parts if part.effects]
    count = sum(len(part.effects) for part in found)
    verdicts = [judge(part, measure, count) for part in found]
    if not found:
        return Claim(
            statement=statement,
            where=where,
            measured="Its points were not measured.",
            verdict="not tested",
        )
    texts = _texts(found, verdicts, measure, count)
    return Claim(
        statement=statement,
        where=where,
        measured="; ".join([*texts, aside] if aside else texts) + ".",
        verdict=together(verdicts),
        compared=_compared(found, measure, count),
    )


# -- Usual claims


def effects(
    numbers: Numbers,
    panel: str,
    first: str,
    second: str,
    measure: Measure,
    *,
    axis: str = "",
) -> tuple[Effect, ...]:
    """How much better the first series of a panel is, at each position that both have.

    Runs are paired: both series of a run are of the same rows. Runs without a number of either are
    left out.
    """
    one, two = numbers.by_run(panel, first), numbers.by_run(panel, second)
    found = []
    for x in sorted(one.keys() & two.keys()):
        runs = sorted(one[x].keys() & two[x].keys())
        if runs:
            values = [np.array([of[x][run] for run in runs]) for of in (one, two)]
            gains = measure.between(values[0], values[1])
            found.append(Effect.of(f"{axis} {x:g}".strip(), gains))
    return tuple(found)


Panels = Iterable[str]
Others = str | Sequence[str]


def _against(
    asks: Question,
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Panels,
    first: Others,
    second: Others,
    measure: Measure,
) -> Claim:
    firsts, seconds = _listed(first), _listed(second)
    parts = [
        Part(
            name=", ".join(
                [panel]
                + ([one] if len(firsts) > 1 else [])
                + ([f"beside {two}"] if len(seconds) > 1 else [])
            ),
            effects=effects(numbers, panel, one, two, measure),
            asks=asks,
        )
        for panel in panels
        for one in firsts
        for two in seconds
    ]
    return decide(statement, where, parts, measure)


def better(
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Panels,
    first: Others,
    second: Others,
    measure: Measure,
) -> Claim:
    """Each of the first series is better than each of the second: see :class:`Part`."""
    return _against("better", statement, where, numbers, panels, first, second, measure)


def no_worse(
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Panels,
    first: Others,
    second: Others,
    measure: Measure,
) -> Claim:
    """Each of the first series is shown not to be worse than each of the second anywhere."""
    return _against("not worse", statement, where, numbers, panels, first, second, measure)


def same(
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Panels,
    first: Others,
    second: Others,
    measure: Measure,
) -> Claim:
    """Both series are shown to be within the margin of each other everywhere."""
    return _against("same", statement, where, numbers, panels, first, second, measure)


def rises(
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Panels,
    series: Others,
    measure: Measure,
) -> Claim:
    """Each series gets better from its first position to its last, and nowhere worse."""
    names = _listed(series)
    parts = [
        Part(
            name=f"{panel}, {of}" if len(names) > 1 else panel,
            effects=_steps(numbers, panel, of, measure),
            asks="rises",
        )
        for panel in panels
        for of in names
    ]
    return decide(statement, where, parts, measure)


def _steps(numbers: Numbers, panel: str, series: str, measure: Measure) -> tuple[Effect, ...]:
    """From end to end, and from each position to the next."""
    runs = numbers.by_run(panel, series)
    x = sorted(runs)
    if len(x) < 2:
        return ()
    ends = [(x[0], x[-1])] + (list(pairwise(x)) if len(x) > 2 else [])
    found = []
    for start, stop in ends:
        both = sorted(runs[start].keys() & runs[stop].keys())
        if both:
            values = [np.array([runs[at][run] for run in both]) for at in (stop, start)]
            gains = measure.between(values[0], values[1])
            found.append(Effect.of(f"{start:g} to {stop:g}", gains))
    return tuple(found)


def reaches(
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Panels,
    series: Others,
    level: float,
    measure: Measure,
    *,
    beyond: bool = True,
    aside: str = "",
) -> Claim:
    """Each series comes to a level somewhere; not tested where it may do so beyond the last point.

    That is where the last step is not shown to be below the margin: the curve may still rise. Not
    so with ``beyond=False``, of a claim that names its last position.
    """
    names = _listed(series)
    parts = []
    for panel in panels:
        for of in names:
            runs = numbers.by_run(panel, of)
            found = tuple(
                Effect.of(f"{x:g}", np.array(list(runs[x].values()))) for x in sorted(runs)
            )
            steps = _steps(numbers, panel, of, measure)
            count = len(found)
            rising = not steps or steps[-1].interval(max(1, count)).high > measure.room
            parts.append(
                Part(
                    name=f"{panel}, {of}" if len(names) > 1 else panel,
                    effects=found,
                    asks="somewhere",
                    level=level,
                    open_end=beyond and rising,
                )
            )
    return decide(statement, where, parts, measure, aside=aside)


TIMES = Measure(unit="times", margin=1.0, ratio=True)
"""Ratios of epsilons or of rows; the level that is asked for is in the claim's sentence."""


def epsilon_ratios(
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Panels,
    first: str,
    second: str,
    *,
    least: float | None = None,
    most: float | None = None,
    positions: Sequence[float] | None = None,
    level: float | None = None,
    less: bool = False,
) -> Claim:
    """How many times the first series' epsilon (or rows) the second needs for the same utility.

    The utility is the first's at ``positions`` (or ``level``, or what the worse one reaches at
    all): see :func:`ratios`.

    Parameters
    ----------
    least, most : float
        One of them: the ratio that is claimed.
    less : bool
        Whether less utility is better, as of errors.
    """
    if (least is None) == (most is None):
        raise ValueError("say one of least and most")
    wanted = least if most is None else most
    assert wanted is not None
    parts = [
        Part(
            name=panel,
            effects=ratios(numbers, panel, first, second, positions, level, less=less),
            asks="at least" if most is None else "at most",
            level=math.log(wanted),
        )
        for panel in panels
    ]
    return decide(statement, where, parts, TIMES)


def ratios(
    numbers: Numbers,
    panel: str,
    first: str,
    second: str,
    positions: Sequence[float] | None,
    level: float | None,
    *,
    less: bool = False,
) -> tuple[Effect, ...]:
    """Logarithms of the ratios of :func:`epsilon_ratios`, one effect a position or level.

    Of the means over the runs; their error is that of the jackknife, which leaves out each run of
    both series in turn.
    """
    one, two = numbers.by_run(panel, first), numbers.by_run(panel, second)
    runs = sorted(
        {run for at in one.values() for run in at} & {run for at in two.values() for run in at}
    )

    def of(kept: Sequence[int], x: float | None) -> MatchedUtility | None:
        ours, theirs = _means(one, kept), _means(two, kept)
        at = level if x is None else ours.at(x)
        if at is not None and math.isnan(at):
            return None
        found = matched_utility(ours, theirs, at, higher=not less)
        return None if math.isnan(found.ratio) else found

    made = []
    for x in (None,) if positions is None else positions:
        whole = of(runs, x)
        if whole is None:
            continue
        parts = [of([kept for kept in runs if kept != run], x) for run in runs]
        known = [part for part in parts if part is not None]
        error, count = math.inf, len(runs)
        if count > 1 and len(known) == count:
            logs = np.log([part.ratio for part in known])
            error = math.sqrt((count - 1) / count * float(np.sum((logs - logs.mean()) ** 2)))
        made.append(
            Effect(
                f"{whole.level:.3g}" + ("" if x is None else f" (at {x:g})"),
                math.log(whole.ratio),
                error,
                max(1.0, count - 1.0),
                below=any(each.bound == "upper" for each in [whole, *known]),
                above=any(each.bound == "lower" for each in [whole, *known]),
            )
        )
    return tuple(made)


def _means(found: dict[float, dict[int, float]], runs: Sequence[int]) -> Curve:
    """The curve of some runs' means."""
    wanted = set(runs)
    x = [at for at in sorted(found) if found[at].keys() & wanted]
    mean = [float(np.mean([v for run, v in found[at].items() if run in wanted])) for at in x]
    nothing = np.zeros(len(x))
    return Curve(np.array(x), np.array(mean), nothing, nothing, np.ones(len(x), dtype=np.int64))


def holds_for(
    statement: str,
    where: str,
    numbers: Numbers,
    found: Iterable[tuple[str, str, str]],
    measure: Measure,
    *,
    least: float | None = None,
    most: float | None = None,
    aside: str = "",
) -> Claim:
    """The values of series themselves, at every position, are at least or at most a number.

    Parameters
    ----------
    found : iterable of (name, panel, series)
    """
    wanted = least if most is None else most
    if wanted is None or (least is None) == (most is None):
        raise ValueError("say one of least and most")
    parts = []
    for name, panel, series in found:
        runs = numbers.by_run(panel, series)
        values = [(x, np.array(list(runs[x].values()))) for x in sorted(runs)]
        parts.append(
            Part(
                name=name,
                effects=tuple(
                    Effect.of(f"{x:g}", np.log(v) if measure.ratio else v) for x, v in values
                ),
                asks="at least" if most is None else "at most",
                level=math.log(wanted) if measure.ratio else wanted,
            )
        )
    return decide(statement, where, parts, measure, aside=aside)


def _listed(names: Others) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


# -- In words


_MOST = 4
"""So many parts are told one by one."""


def _texts(
    parts: Sequence[Part], verdicts: Sequence[Verdict], measure: Measure, count: int
) -> list[str]:
    """Of each part, or of many how many have which verdict, and their two ends."""
    if len(parts) <= _MOST:
        several = len(parts) > 1
        return [
            (f"{part.name}, {verdict}: " if several else f"{part.name}: " if part.name else "")
            + _described(part, measure, count)
            for part, verdict in zip(parts, verdicts, strict=True)
        ]
    counts = Counter(verdicts)
    told = [f"{v} in {counts[v]}" for v in get_args(Verdict) if counts[v]]
    texts = [f"of {len(parts)} parts {', '.join(told)}"]
    if parts[0].asks in ("better", "not worse", "same"):
        ends = [e.interval(count) for part in parts for e in part.effects]
        texts.append(f"of {len(ends)} comparisons {_sides(ends, measure)}")
    each = [(e, part.name) for part in parts for e in part.effects[: _told(part)]]
    each.sort(key=lambda one: one[0].value)
    for what, (effect, name) in (("least", each[0]), ("most", each[-1])):
        texts.append(f"{what} {_one(effect, effect.interval(count), measure)} ({name})")
    lost = [
        f"{part.name} ({verdict})"
        for part, verdict in zip(parts, verdicts, strict=True)
        if verdict in ("does not hold", "not tested")
    ]
    if lost:
        more = f" and {len(lost) - _MOST} more" if len(lost) > _MOST else ""
        texts.append(f"not: {', '.join(lost[:_MOST])}{more}")
    return texts


def _told(part: Part) -> int | None:
    """How many of its effects are told: of one that rises, that from end to end."""
    return 1 if part.asks == "rises" else None


def _sides(ends: Sequence[Interval], measure: Measure) -> str:
    counts = Counter(_side(end, measure.room) for end in ends)
    return ", ".join(f"{side} at {counts[side]}" for side in _SIDES if counts[side])


def _described(part: Part, measure: Measure, count: int) -> str:
    """How many positions say what, and the two that say most, with their intervals."""
    ends = [effect.interval(count) for effect in part.effects]
    order = sorted(range(len(ends)), key=lambda i: part.effects[i].value)
    if part.asks == "rises":
        falls = sum(end.high < -measure.room for end in ends[1:])
        text = f"{_one(part.effects[0], ends[0], measure)}"
        return text + (f", falling at {falls} of {len(ends) - 1} steps" if falls else "")
    if len(ends) == 1:
        return _one(part.effects[0], ends[0], measure)
    shown = [order[-1], order[0]]
    if part.asks in ("at least", "at most"):
        shown.reverse()
    texts = [_one(part.effects[i], ends[i], measure) for i in dict.fromkeys(shown)]
    if part.asks in ("better", "not worse", "same"):
        counted = _sides(ends, measure)
        return (
            f"{counted} of {len(ends)}; from {texts[1]} to {texts[0]}"
            if len(texts) > 1
            else (f"{counted}; {texts[0]}")
        )
    if part.asks == "somewhere":
        return texts[0]
    return "; ".join(texts)


_SIDES = ("ahead", "behind", "no difference", "cannot be told")


def _side(end: Interval, room: float) -> str:
    if end.low > room:
        return "ahead"
    if end.high < -room:
        return "behind"
    return "no difference" if -room <= end.low and end.high <= room else "cannot be told"


def _one(effect: Effect, end: Interval, measure: Measure) -> str:
    text = measure.say(effect.value)
    if effect.error or effect.below or effect.above:
        text += f" ({_span(end, measure)})"
    return f"{text} at {effect.at}" if effect.at else text


def _span(end: Interval, measure: Measure) -> str:
    low, high = (measure.say(min(max(value, -measure.most), measure.most)) for value in end)
    if math.isinf(end.low):
        return "nothing is known" if math.isinf(end.high) else f"{high} or less"
    return f"{low} or more" if math.isinf(end.high) else f"{low} to {high}"


def _compared(parts: Sequence[Part], measure: Measure, count: int) -> str:
    """The margin, the intervals and what could have been shown."""
    each = [effect for part in parts for effect in part.effects]
    margin = f"Margin {measure.margin:g} {measure.unit}; " if _margined(parts) else ""
    drawn = [effect for effect in each if effect.error]
    if not drawn:
        return f"{margin}computed, not drawn."
    needed = np.array([effect.showable(count) for effect in drawn])
    usable = np.minimum(needed[np.isfinite(needed)], measure.most)
    if not usable.size:
        return f"{margin}of a single run nothing can be told."
    told = [
        f"{math.exp(value) if measure.ratio else value:.2g}"
        for value in (usable.min(), np.median(usable), usable.max())
    ]
    return (
        f"{margin}{100 - 100 * MISSES:g} % intervals for all {count} together. "
        f"{'A factor' if measure.ratio else 'A difference'} of {told[1]} beyond it would have been "
        f"shown with a chance of {100 * POWER:g} % (by position {told[0]} to {told[2]})."
    )


def _margined(parts: Sequence[Part]) -> bool:
    return any(part.asks in ("better", "not worse", "same", "rises") for part in parts)
