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

To add a claim: choose or make a :class:`Measure`, and ask a :class:`Scope`; or build effects and
parts and call :func:`decide`. A part is what the claim is about one by one: a panel, a
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from eigenveil_papers.reproduction.effects import (
    ClaimPart,
    Effect,
    Measure,
    Question,
    judge,
    together,
)
from eigenveil_papers.reproduction.experiment import Claim
from eigenveil_papers.reproduction.matched_utility import MatchedUtility, matched_utility
from eigenveil_papers.reproduction.numbers import Curve, Numbers
from eigenveil_papers.reproduction.rule_words import compared, texts_of

__all__ = [
    "OURS",
    "TIMES",
    "ClaimPart",
    "Effect",
    "Measure",
    "Question",
    "Scope",
    "decide",
    "effects",
    "ratios",
]


OURS = "eigenveil"
"""Where a claim stands that is this package's own."""


def decide(
    statement: str, where: str, parts: Iterable[ClaimPart], measure: Measure, *, aside: str = ""
) -> Claim:
    """A claim, its verdict, its effects with intervals, and what could have been shown."""
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
    texts = texts_of(found, verdicts, measure, count)
    return Claim(
        statement=statement,
        where=where,
        measured="; ".join([*texts, aside] if aside else texts) + ".",
        verdict=together(verdicts),
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
            ClaimPart(
                name=name, effects=_steps(self.numbers, panel, of, self.measure), asks="rises"
            )
            for panel, of, name in self._each(series)
        ]
        return decide(statement, self.where, parts, self.measure)

    def reaches(
        self,
        statement: str,
        series: Others,
        level: float,
        *,
        beyond: bool = True,
        aside: str = "",
    ) -> Claim:
        """Each series comes to a level somewhere; not tested where it may beyond the last point.

        That is where the last step is not shown to be below the margin: the curve may still rise.
        Not so with ``beyond=False``, of a claim that names its last position.
        """
        parts = []
        for panel, of, name in self._each(series):
            found = _values(self.numbers, panel, of)
            steps = _steps(self.numbers, panel, of, self.measure)
            most = self.measure.room
            rising = not steps or steps[-1].interval(max(1, len(found))).high > most
            parts.append(
                ClaimPart(
                    name=name,
                    effects=found,
                    asks="somewhere",
                    level=level,
                    open_end=beyond and rising,
                )
            )
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
                name=panel,
                effects=ratios(self.numbers, panel, first, second, positions, level, less=less),
                asks=asks,
                level=math.log(wanted),
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
                name=name,
                effects=_values(self.numbers, panel, series, ratio=ratio),
                asks=asks,
                level=math.log(wanted) if ratio else wanted,
            )
            for name, panel, series in found
        ]
        return decide(statement, self.where, parts, self.measure, aside=aside)

    def _against(self, asks: Question, statement: str, first: Others, second: Others) -> Claim:
        seconds = _listed(second)
        parts = [
            ClaimPart(
                name=name + (f", beside {two}" if len(seconds) > 1 else ""),
                effects=effects(self.numbers, panel, one, two, self.measure),
                asks=asks,
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
    """Which of the two is given, and what it is."""
    if least is not None and most is None:
        return "at least", least
    if most is not None and least is None:
        return "at most", most
    raise ValueError("say one of least and most")


def _values(
    numbers: Numbers, panel: str, series: str, *, ratio: bool = False
) -> tuple[Effect, ...]:
    """The values of a series at each of its positions, or their logarithms."""
    runs = numbers.by_run(panel, series)
    values = [(x, np.array(list(runs[x].values()))) for x in sorted(runs)]
    return tuple(Effect.of(f"{x:g}", np.log(v) if ratio else v) for x, v in values)


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
    """The curve of some runs' means."""
    wanted = set(runs)
    x = [at for at in sorted(found) if found[at].keys() & wanted]
    mean = [float(np.mean([v for run, v in found[at].items() if run in wanted])) for at in x]
    nothing = np.zeros(len(x))
    return Curve(np.array(x), np.array(mean), nothing, nothing, np.ones(len(x), dtype=np.int64))


def _listed(names: Others) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
