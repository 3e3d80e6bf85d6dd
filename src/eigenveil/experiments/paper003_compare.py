"""Series of paper 003's figures held against each other, in words and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.experiments.equal import equal_utility
from eigenveil.experiments.experiment import Claim, Verdict
from eigenveil.experiments.numbers import Numbers
from eigenveil.experiments.paper003_methods import DATA

CLEAR = 0.5  # points below which a difference is none, whatever its error
LEVEL = 90.0  # per cent of the exact subspace's energy at which epsilons are compared
_LEAST_LEVEL = 50.0  # below this a comparison says nothing of use


@dataclass(frozen=True)
class Comparison:
    """One series against another where both were measured.

    Attributes
    ----------
    gains : array of shape (n,)
        Means of the first less those of the second.
    clear : array of bool, shape (n,)
        Where that is more than half a point and than three standard errors.
    x : array of shape (n,)
    """

    x: NDArray[np.float64]
    gains: NDArray[np.float64]
    clear: NDArray[np.bool_]

    @property
    def ahead(self) -> int:
        """At how many positions the first is clearly better."""
        return int(np.sum(self.clear & (self.gains > 0)))

    @property
    def behind(self) -> int:
        """At how many it is clearly worse."""
        return int(np.sum(self.clear & (self.gains < 0)))

    def __str__(self) -> str:
        parts = [f"clearly ahead at {self.ahead} of {self.x.size}"]
        if self.ahead:
            best = int(np.argmax(self.gains))
            parts.append(f"by up to {self.gains[best]:.1f} points (at {self.x[best]:g})")
        if self.behind:
            worst = int(np.argmin(self.gains))
            parts.append(
                f"behind at {self.behind}, by up to {-self.gains[worst]:.1f} (at {self.x[worst]:g})"
            )
        return ", ".join(parts)


def compare(numbers: Numbers, panel: str, first: str, second: str) -> Comparison:
    """The first series against the second in a panel; empty where one is absent."""
    one, two = numbers.curve(panel, first), numbers.curve(panel, second)
    x, i, j = np.intersect1d(one.x, two.x, return_indices=True)
    gains = one.mean[i] - two.mean[j]
    error = np.hypot(one.error[i], two.error[j])
    return Comparison(x, gains, np.abs(gains) > np.maximum(CLEAR, 3.0 * error))


def present(numbers: Numbers, axis: str) -> list[str]:
    """The panels of an axis that were measured, one for each data set."""
    return [panel for name in DATA if (panel := f"{name}-{axis}") in numbers.panels]


def name_of(panel: str) -> str:
    """The data set of a panel."""
    return panel.rsplit("-", 1)[0]


def claim_of(says: str, where: str, found: Sequence[str], good: Iterable[bool]) -> Claim:
    """A claim with one finding after another: it holds in all, in some or in none of them."""
    verdicts = list(good)
    if not verdicts:
        return Claim(says=says, where=where, measured="no points", verdict="not tested")
    verdict: Verdict = "holds" if all(verdicts) else "in part" if any(verdicts) else "does not hold"
    return Claim(says=says, where=where, measured="; ".join(found) + ".", verdict=verdict)


def epsilon_ratios(
    says: str,
    numbers: Numbers,
    panels: Sequence[str],
    pair: tuple[str, str],
    unit: str,
    *,
    least: float = 0.0,
    most: float = math.inf,
) -> Claim:
    """Epsilon of the second over that of the first, at 90 % or what the second reaches at all."""
    found, good = [], []
    for panel in panels:
        better, worse = (numbers.curve(panel, of) for of in pair)
        if not better.x.size or not worse.x.size:
            continue
        neither = max(better.mean.max(), worse.mean.max()) < LEVEL
        ratio = equal_utility(better, worse, None if neither else LEVEL)
        if math.isnan(ratio.ratio) or ratio.level < _LEAST_LEVEL:
            starts, ends = (
                ", ".join(
                    f"{of} {kept.mean[at]:.0f} %"
                    for of, kept in zip(pair, (better, worse), strict=True)
                )
                for at in (0, -1)
            )
            found.append(f"{name_of(panel)}: not comparable (first {starts}; last {ends})")
            continue
        where = [f"at {ratio.level:.0f} %"]
        if not math.isnan(ratio.better):
            where.append(f"epsilon {ratio.better:.2g}")
        if not math.isnan(ratio.worse):
            where.append(f"against {ratio.worse:.2g}")
        found.append(f"{name_of(panel)}: {ratio} {unit} ({' '.join(where)})")
        sure = ratio.bound != ("upper" if least else "lower")
        good.append(least <= ratio.ratio <= most and sure)
    return claim_of(says, "eigenveil", found, good)


def outperforms(
    says: str,
    where: str,
    numbers: Numbers,
    panels: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    *,
    least: float = 0.0,
) -> Claim:
    """Holds where the first is clearly ahead somewhere, by ``least`` points, and never behind."""
    found, good = [], []
    for panel in panels:
        for first, second in pairs:
            seen = compare(numbers, panel, first, second)
            if seen.x.size:
                found.append(f"{name_of(panel)}, {first} against {second}: {seen}")
                good.append(seen.ahead > 0 and seen.behind == 0 and seen.gains.max() >= least)
    return claim_of(says, where, found, good)
