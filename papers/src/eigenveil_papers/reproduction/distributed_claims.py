"""What the claims about PCA of several sites share: the measure, and the authors' curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from eigenveil.privacy.accountant import epsilon_of_mu
from eigenveil.privacy.views import published_cape_mu
from eigenveil_papers.published.sn import gauss_deviation
from eigenveil_papers.reproduction.authors import AuthorsCurve
from eigenveil_papers.reproduction.numbers import Curve, Numbers
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Measure

ENERGY = Measure(unit="of the exact energy", margin=0.005, most=1.0)
"""Captured energy over that of the exact directions."""
LEVELS = (0.01, 0.1, 1.0)
"""Epsilons of the first series whose energy is what the second must reach."""
SQRT2 = math.sqrt(2.0)
AUTHORS = Measure(unit="of the exact energy, as their rows are others", margin=0.02)


def at_its_guarantee(curve: Curve, *, rows: int, sites: int, delta: float) -> Curve:
    """A curve of capePCA over the epsilon that its noise really gives, in place of the claimed.

    Against the aggregator, who sees all messages, and for one row changed: the Frobenius
    sensitivity is sqrt(2)/N, and the messages' mu is :func:`published_cape_mu`. Points whose noise
    has this delta already with epsilon 0 are left out.
    """
    real = []
    for epsilon in curve.x:
        tau = gauss_deviation(rows // sites, epsilon=float(epsilon), delta=delta)
        alone = SQRT2 * sites / rows / tau
        real.append(epsilon_of_mu(published_cape_mu(sites, claimed_mu=float(alone)), delta))
    x = np.array(real)
    kept = x > 0.0
    mean, error, deviation = curve.mean[kept], curve.error[kept], curve.deviation[kept]
    return Curve(x[kept], mean, error, deviation, curve.runs[kept])


def as_authors(
    numbers: Numbers, curves: Mapping[str, Mapping[str, AuthorsCurve]]
) -> list[ClaimPart]:
    """That the authors' stored curves come out, panel by panel, at every position and series.

    The authors stored means of ten runs without errors: theirs are taken to be as large as ours.
    """
    return [
        ClaimPart(panel, tuple(_from_authors(numbers, panel, of)), "same")
        for panel, of in curves.items()
    ]


def sharper(numbers: Numbers, series: str) -> list[ClaimPart]:
    """The steepest step over the rows, in data sets of 54, 200 and 784 features."""
    steepest = {}
    for name in ("covtype", "synthetic", "mnist"):
        x, values = numbers.complete(f"{name}-rows", series)
        if len(x) > 1 and len(values):
            steepest[name] = (np.diff(values) / np.diff(np.log(x))).max(axis=1)
    parts = []
    for small, large in pairwise(steepest):
        both = min(len(steepest[small]), len(steepest[large]))
        effect = Effect.of("", steepest[small][:both] - steepest[large][:both])
        parts.append(ClaimPart(f"{small} less {large}", (effect,), "better"))
    return parts


def _from_authors(
    numbers: Numbers, panel: str, curves: Mapping[str, AuthorsCurve]
) -> Iterator[Effect]:
    """Ours less theirs, wherever both have a point."""
    for series, (x, values) in curves.items():
        curve = numbers.curve(panel, series)
        for i, at in enumerate(curve.x):
            for place in np.flatnonzero(np.isclose(x, at, rtol=0.01)):
                runs = int(curve.runs[i])
                error = SQRT2 * float(curve.error[i]) if runs > 1 else math.inf
                value = float(curve.mean[i] - values[place])
                yield Effect(f"{at:g} ({series})", value, error, max(1.0, runs - 1.0))
