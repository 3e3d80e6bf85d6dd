"""The one rule by which every claim is judged, the papers' and this package's alike.

A claim is a question about *effects*: differences (or ratios) between two series, between two ends
of one, or between a series and a level. Each effect has its value over the runs and an interval of
Student's t, and the intervals of one claim miss the truth with a chance of at most 5 % *together*
(Bonferroni). The interval, not the value, is held against a margin that is stated beforehand:

- wholly on the claim's side of the margin: *shown* there;
- wholly on the other side: *contradicted* there;
- else *undecided*, whatever the value;
- *not tested* where no possible value of the quantity (:attr:`Effect.possible`) would contradict
  the claim, as where a bound exceeds the largest value there is; or where the settings do not
  reach what is claimed.

The rule never asks whose claim it is. Told of the other method with the data exchanged, it says the
same. A verdict counts positions: all those of all parts of the claim (panels, data sets), so that
a claim which is true at some and false at others is told as just that, with the smallest difference
that could have been shown.

To add a claim: choose or make a :class:`Measure`, and ask a :class:`Scope`; or build effects and
parts and call :func:`decide`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from eigenveil_papers.reproduction.effects import ClaimPart as ClaimPart
from eigenveil_papers.reproduction.effects import Effect as Effect
from eigenveil_papers.reproduction.effects import Interval as Interval
from eigenveil_papers.reproduction.effects import Measure as Measure
from eigenveil_papers.reproduction.effects import Question as Question
from eigenveil_papers.reproduction.effects import judge
from eigenveil_papers.reproduction.experiment import Claim, Verdict
from eigenveil_papers.reproduction.numbers import Curve, FloatArray, Numbers
from eigenveil_papers.reproduction.rule_words import compared, smallest, texts_of

OURS = "eigenveil"
"""Where a claim stands that is this package's own."""


def decide(
    statement: str, where: str, parts: Iterable[ClaimPart], measure: Measure, *, aside: str = ""
) -> Claim:
    """A claim, its verdict, its effects with intervals, and what could have been shown."""
    found = [part for part in parts if part.effects]
    if not found:
        said = "Its points were not measured."
        return Claim(statement=statement, where=where, measured=said, verdict=Verdict())
    count = sum(len(part.effects) for part in found)
    judged = [judge(part, measure, count) for part in found]
    outcomes = [outcome for each in judged for outcome in each]
    texts = texts_of(found, [Verdict.of(each) for each in judged], measure, count)
    return Claim(
        statement=statement,
        where=where,
        measured="; ".join([*texts, aside] if aside else texts) + ".",
        verdict=Verdict.of(outcomes, smallest(found, measure, count)),
        compared=compared(found, measure, count),
    )


# -- Usual claims

TIMES = Measure(unit="times", margin=1.0, ratio=True)
"""Ratios of epsilons or of rows; the level that is asked for is in the claim's sentence."""


Others = str | Sequence[str]


@dataclass(frozen=True)
class Scope:
    """Where a claim is made: of which numbers, in which part of a paper, on which panels."""

    numbers: Numbers
    where: str
    panels: Iterable[str] = ()
    measure: Measure = TIMES

    def better(self, statement: str, first: Others, second: Others) -> Claim:
        """Each of the first series is better than each of the second: see :class:`ClaimPart`."""
        return self._against("better", statement, first, second)

    def no_worse(self, statement: str, first: Others, second: Others) -> Claim:
        """Each of the first series is shown not to be worse than each of the second anywhere."""
        return self._against("not worse", statement, first, second)

    def same(self, statement: str, first: Others, second: Others) -> Claim:
        """Both series are shown to be within the margin of each other everywhere."""
        return self._against("same", statement, first, second)

    def rises(self, statement: str, series: Others) -> Claim:
        """Each series gets better from its first position to its last, and nowhere worse."""
        parts = [
            ClaimPart(name, _steps(self.numbers, panel, of, self.measure), "rises")
            for panel, of, name in self._each(series)
        ]
        return decide(statement, self.where, parts, self.measure)

    def reaches(
        self, statement: str, series: Others, level: float, *, beyond: bool = True, aside: str = ""
    ) -> Claim:
        """Each series comes to a level somewhere; not tested where it may beyond the last point.

        That is where the last step is not shown to be below the margin: the curve may still rise.
        Not so with ``beyond=False``, of a claim that names its last position.
        """
        parts = []
        for panel, of, name in self._each(series):
            found = values(self.numbers, panel, of)
            steps = _steps(self.numbers, panel, of, self.measure)
            most = self.measure.room
            rising = not steps or steps[-1].interval(max(1, len(found))).high > most
            parts.append(ClaimPart(name, found, "somewhere", level, open_end=beyond and rising))
        return decide(statement, self.where, parts, self.measure, aside=aside)

    def epsilon_ratios(
        self,
        statement: str,
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
        """
        asks, wanted = _bound(least, most)
        parts = [
            ClaimPart(
                panel,
                ratios(self.numbers, panel, first, second, positions, level, less=less),
                asks,
                math.log(wanted),
            )
            for panel in self.panels
        ]
        return decide(statement, self.where, parts, TIMES)

    def holds_for(
        self,
        statement: str,
        found: Iterable[tuple[str, str, str]],
        *,
        least: float | None = None,
        most: float | None = None,
        aside: str = "",
    ) -> Claim:
        """The values of series themselves, at every position, are at least or at most a number.

        ``found`` are what they are called, their panels and their series.
        """
        asks, wanted = _bound(least, most)
        ratio = self.measure.ratio
        parts = [
            ClaimPart(
                name,
                values(self.numbers, panel, series, ratio=ratio),
                asks,
                math.log(wanted) if ratio else wanted,
            )
            for name, panel, series in found
        ]
        return decide(statement, self.where, parts, self.measure, aside=aside)

    def _against(self, asks: Question, statement: str, first: Others, second: Others) -> Claim:
        seconds = _listed(second)
        parts = [
            ClaimPart(
                name + (f", beside {two}" if len(seconds) > 1 else ""),
                effects(self.numbers, panel, one, two, self.measure),
                asks,
            )
            for panel, one, name in self._each(first)
            for two in seconds
        ]
        return decide(statement, self.where, parts, self.measure)

    def _each(self, series: Others) -> Iterator[tuple[str, str, str]]:
        """Panels, series, and what the part of the claim about both is called."""
        names = _listed(series)
        for panel in self.panels:
            for of in names:
                yield panel, of, f"{panel}, {of}" if len(names) > 1 else panel


def _bound(least: float | None, most: float | None) -> tuple[Question, float]:
    if least is not None and most is None:
        return "at least", least
    if most is not None and least is None:
        return "at most", most
    raise ValueError("say one of least and most")


def values(numbers: Numbers, panel: str, series: str, *, ratio: bool = False) -> tuple[Effect, ...]:
    runs = numbers.by_run(panel, series)
    values = [(x, np.array(list(runs[x].values()))) for x in sorted(runs)]
    return tuple(Effect.of(f"{x:g}", np.log(v) if ratio else v) for x, v in values)


def exactly(found: Mapping[float, float], axis: str = "") -> tuple[Effect, ...]:
    """Of what is computed, or the worst of all runs, at each position: nothing is estimated."""
    return tuple(Effect(f"{axis}{x:g}", value, 0.0) for x, value in found.items())


def effects(
    numbers: Numbers, panel: str, first: str, second: str, measure: Measure, *, axis: str = ""
) -> tuple[Effect, ...]:
    """How much better the first series of a panel is, at each position that both have.

    Runs are paired: both series of a run are of the same rows. Runs without a number of either are
    left out.
    """
    one, two = numbers.by_run(panel, first), numbers.by_run(panel, second)
    both = sorted(one.keys() & two.keys())
    return tuple(e for x in both for e in paired(f"{axis} {x:g}".strip(), one[x], two[x], measure))


def paired(
    at: str, one: Mapping[int, float], two: Mapping[int, float], measure: Measure
) -> tuple[Effect, ...]:
    """How much better the first is, run by run; no effect where no run has a value of both."""
    runs = sorted(one.keys() & two.keys())
    values = [np.array([of[run] for run in runs]) for of in (one, two)]
    return (Effect.of(at, measure.between(*values)),) if runs else ()


def _steps(numbers: Numbers, panel: str, series: str, measure: Measure) -> tuple[Effect, ...]:
    """From end to end, and from each position to the next."""
    runs = numbers.by_run(panel, series)
    x = sorted(runs)
    if len(x) < 2:
        return ()
    ends = [(x[0], x[-1])] + (list(pairwise(x)) if len(x) > 2 else [])
    return tuple(
        effect
        for start, stop in ends
        for effect in paired(f"{start:g} to {stop:g}", runs[stop], runs[start], measure)
    )


class MatchedUtility(NamedTuple):
    ratio: float  # Of the worse's epsilon to the better's; nan where it cannot be said
    level: float  # The mean at which they are compared
    # `"lower"`: the ratio is at least this, since the better one reaches the level already at its
    # smallest epsilon, or the worse one never does (then the ratio is of the worse's largest
    # epsilon). `"upper"`: at most this, for the same reasons the other way round.
    bound: Literal["exact", "lower", "upper"]


def matched_utility(
    better: Curve, worse: Curve, level: float | None = None, *, higher: bool = True
) -> MatchedUtility:
    """Compare two curves over epsilon where they reach the same mean.

    Epsilon is interpolated in its logarithm, on the monotone envelope of the means (a mechanism
    with more epsilon may always add noise, so a dip is noise of the measurement).
    """
    sign = 1.0 if higher else -1.0
    nothing = MatchedUtility(math.nan, math.nan, "exact")
    if better.x.size == 0 or worse.x.size == 0:
        return nothing
    own, other = (_envelope(curve, sign) for curve in (better, worse))
    wanted = min(own[-1], other[-1]) if level is None else sign * level
    at_better, better_low = _reach(better.x, own, wanted)
    at_worse, worse_low = _reach(worse.x, other, wanted)
    level = sign * wanted
    never = math.isnan(at_better) and math.isnan(at_worse)
    if never or (better_low and worse_low):  # or both are there from the start
        return nothing._replace(level=level)
    if math.isnan(at_better):
        at_better, worse_low = float(better.x[-1]), True
    elif math.isnan(at_worse):
        at_worse, better_low = float(worse.x[-1]), True
    bound: Literal["exact", "lower", "upper"] = (
        "lower" if better_low else "upper" if worse_low else "exact"
    )
    return MatchedUtility(at_worse / at_better, level, bound)


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
    """Logarithms of the ratios of :meth:`Scope.epsilon_ratios`, one effect a position or level.

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
    wanted = set(runs)
    x = [at for at in sorted(found) if found[at].keys() & wanted]
    mean = [float(np.mean([v for run, v in found[at].items() if run in wanted])) for at in x]
    nothing = np.zeros(len(x))
    return Curve(np.array(x), np.array(mean), nothing, nothing, np.ones(len(x), dtype=np.int64))


def _listed(names: Others) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
