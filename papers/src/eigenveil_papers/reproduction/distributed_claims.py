"""How the claims about PCA of several sites are held against the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

from eigenveil.privacy.gaussian import epsilon_of_mu
from eigenveil.privacy.views import published_cape_mu
from eigenveil_papers.published.sn import gauss_deviation
from eigenveil_papers.reproduction.authors import AuthorsCurve
from eigenveil_papers.reproduction.experiment import Claim, Verdict, verdict_of
from eigenveil_papers.reproduction.matched_utility import (
    ERRORS,
    Comparison,
    compared,
    floored_errors,
    matched_utility,
)
from eigenveil_papers.reproduction.numbers import Curve, Numbers

TARGET = 10.0
"""The project's: this many times more epsilon for the published method."""

_CLEAR = 0.005  # of the exact energy: smaller differences are none, whatever their error
_BY_CHANCE = 1e-3  # that two equal series are told apart, over all points together
_AUTHORS = 0.02  # what curves of other rows may differ by besides their errors


def in_words(seen: Comparison) -> str:
    """A comparison in words."""
    parts = [f"{seen.panel}: ahead at {seen.ahead} of {seen.x.size}"]
    if seen.ahead:
        parts.append(f"by up to {_of(seen.gains[seen.best], seen.errors[seen.best])}")
    if seen.behind:
        parts.append(
            f"behind at {seen.behind}, by up to "
            f"{_of(-seen.gains[seen.worst], seen.errors[seen.worst])} (at {seen.x[seen.worst]:g})"
        )
    return ", ".join(parts)


def _of(value: float, error: float) -> str:
    return f"{value:.3f} +- {error:.3f}"


def compare(numbers: Numbers, panel: str, first: str, second: str) -> Comparison:
    """The first series against the second in a panel; empty where one is absent."""
    return compared(numbers, panel, first, second, least=_CLEAR, floored=True)


def better(
    statement: str, where: str, numbers: Numbers, panels: Iterable[str], first: str, second: str
) -> Claim:
    """That one series is better than another: ahead somewhere in each panel, behind nowhere."""
    found = [compare(numbers, panel, first, second) for panel in panels]
    found = [each for each in found if each.x.size]
    if any(each.behind and each.ahead for each in found):
        verdict: Verdict = "in part"
    else:
        verdict = verdict_of([each.ahead > 0 and each.behind == 0 for each in found])
    return Claim(
        statement=statement, where=where, measured=_listed(map(in_words, found)), verdict=verdict
    )


def same(
    statement: str, where: str, numbers: Numbers, panels: Iterable[str], first: str, second: str
) -> Claim:
    """That two series do not differ beyond their errors."""
    found = [compare(numbers, panel, first, second) for panel in panels]
    found = [each for each in found if each.x.size]
    measured = []
    for each in found:
        most = int(np.argmax(np.abs(each.gains)))
        difference = _of(abs(float(each.gains[most])), float(each.errors[most]))
        measured.append(f"{each.panel}: they differ by {difference} at most")
    # where a few runs say little of their spread, three deviations are more of what they show
    runs = [
        int(numbers.curve(each.panel, of).runs.min()) for each in found for of in (first, second)
    ]
    free = max(1, 2 * min(runs, default=2) - 2)
    points = sum(each.x.size for each in found)
    room = float(scipy.stats.t.ppf(1 - _BY_CHANCE / 2 / max(1, points), free))
    held = [
        bool(np.all(np.abs(each.gains) <= np.maximum(_CLEAR, room * each.errors))) for each in found
    ]
    return Claim(
        statement=statement, where=where, measured=_listed(measured), verdict=verdict_of(held)
    )


def rises(
    statement: str, where: str, numbers: Numbers, panels: Iterable[str], series: str, *, falls: bool
) -> Claim:
    """That a series rises (or falls) from end to end, and never clearly goes the other way."""
    held, measured = [], []
    for panel in panels:
        curve = numbers.curve(panel, series)
        if curve.x.size < 2:
            continue
        sign = -1.0 if falls else 1.0
        steps = sign * np.diff(curve.mean)
        errors = floored_errors(curve)
        room = np.maximum(_CLEAR, ERRORS * np.hypot(errors[1:], errors[:-1]))
        gain = sign * float(curve.mean[-1] - curve.mean[0])
        room_of_all = max(_CLEAR, ERRORS * float(np.hypot(errors[0], errors[-1])))
        held.append(bool(gain > room_of_all and np.all(steps > -room)))
        measured.append(f"{panel}: {ends(curve)}")
    return Claim(
        statement=statement, where=where, measured=_listed(measured), verdict=verdict_of(held)
    )


def ends(curve: Curve) -> str:
    """A curve's two ends in words."""
    return (
        f"from {_of(curve.mean[0], curve.error[0])} at {curve.x[0]:g} "
        f"to {_of(curve.mean[-1], curve.error[-1])} at {curve.x[-1]:g}"
    )


def reaches(
    statement: str,
    where: str,
    numbers: Numbers,
    panels: Iterable[str],
    series: str,
    *,
    least: float = 0.95,
) -> Claim:
    """That a series comes to the exact subspace's energy, or this much of it."""
    held, measured = [], []
    for panel in panels:
        curve = numbers.curve(panel, series)
        if curve.x.size:
            top = int(np.argmax(curve.mean))
            held.append(bool(curve.mean[top] >= least))
            measured.append(f"{panel}: {curve.mean[top]:.3f} at {curve.x[top]:g}")
    return Claim(
        statement=statement, where=where, measured=_listed(measured), verdict=verdict_of(held)
    )


def epsilon_ratios(
    statement: str,
    numbers: Numbers,
    panels: Iterable[str],
    first: str,
    second: str,
    *,
    levels: Sequence[float] | None = None,
    least: float = TARGET,
) -> Claim:
    """How much more epsilon the second series needs for what the first has at these epsilons.

    Parameters
    ----------
    levels : sequence of float, optional
        Epsilons of the first series whose energy is the level; by default 0.01, 0.1 and 1.
    least : float
        The ratio wanted at each.
    """
    held, measured = [], []
    for panel in panels:
        one, two = numbers.curve(panel, first), numbers.curve(panel, second)
        parts = []
        for epsilon in levels or (0.01, 0.1, 1.0):
            level = one.at(epsilon)
            if np.isnan(level) or two.x.size == 0:
                continue
            found = matched_utility(one, two, level)
            if np.isnan(found.ratio):
                continue
            held.append(found.ratio >= least)
            parts.append(f"{found} at {level:.2f} (epsilon {epsilon:g})")
        if parts:
            measured.append(f"{panel}: {', '.join(parts)}")
    return Claim(
        statement=statement, where="eigenveil", measured=_listed(measured), verdict=verdict_of(held)
    )


def at_its_guarantee(curve: Curve, *, rows: int, sites: int, delta: float) -> Curve:
    """A curve of capePCA over the epsilon that its noise really gives, in place of the claimed.

    Against the aggregator, who sees all messages, and for one row changed: the Frobenius
    sensitivity is sqrt(2)/N, and the messages' mu is :func:`published_cape_mu`. Points whose noise
    has this delta already with epsilon 0 are left out.
    """
    real = []
    for epsilon in curve.x:
        tau = gauss_deviation(rows // sites, epsilon=float(epsilon), delta=delta)
        alone = np.sqrt(2.0) * sites / rows / tau
        real.append(epsilon_of_mu(published_cape_mu(sites, claimed_mu=float(alone)), delta))
    x = np.array(real)
    kept = x > 0.0
    mean, error, deviation = curve.mean[kept], curve.error[kept], curve.deviation[kept]
    return Curve(x[kept], mean, error, deviation, curve.runs[kept])


@dataclass(frozen=True)
class Difference:
    """A difference from an authors' curve: of which series, where, and how sure."""

    panel: str
    series: str
    x: float
    value: float
    error: float

    @property
    def explained(self) -> bool:
        """Whether it is within the errors of both and what other rows may do."""
        return _beyond(self) <= _AUTHORS

    def __str__(self) -> str:
        return f"{self.panel}: {self.value:+.3f} +- {self.error:.3f} ({self.series} at {self.x:g})"


def from_authors(
    numbers: Numbers, panel: str, curves: Mapping[str, AuthorsCurve]
) -> Difference | None:
    """The difference of a panel furthest beyond its error, ours less theirs.

    The authors stored means of ten runs without errors: theirs are taken to be as large as ours.
    """
    found = []
    for series, (x, values) in curves.items():
        curve = numbers.curve(panel, series)
        for at, mean, error in zip(curve.x, curve.mean, floored_errors(curve), strict=True):
            for place in np.flatnonzero(np.isclose(x, at, rtol=0.01)):
                found.append(
                    Difference(panel, series, float(at), float(mean - values[place]), float(error))
                )
    return max(found, key=_beyond, default=None)


def _beyond(difference: Difference) -> float:
    return abs(difference.value) - ERRORS * math.sqrt(2.0) * difference.error


def as_authors(
    statement: str, where: str, numbers: Numbers, curves: Mapping[str, Mapping[str, AuthorsCurve]]
) -> Claim:
    """That the authors' stored curves come out, panel by panel."""
    found = [from_authors(numbers, panel, of) for panel, of in curves.items()]
    reported = [each for each in found if each is not None]
    verdict = verdict_of([each.explained for each in reported])
    return Claim(
        statement=statement, where=where, measured=_listed(map(str, reported)), verdict=verdict
    )


def _listed(parts: Iterable[str]) -> str:
    listed = "; ".join(parts)
    return f"{listed}." if listed else "Its points were not measured."
