"""Series of paper 003's figures held against each other, in words and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from eigenveil.experiments.comparing import Comparison, compared
from eigenveil.experiments.equal import equal_utility
from eigenveil.experiments.experiment import Claim, verdict_of
from eigenveil.experiments.numbers import Numbers
from eigenveil.experiments.paper003_methods import DATA

CLEAR = 0.5  # points below which a difference is none, whatever its error
LEVEL = 90.0  # per cent of the exact subspace's energy at which epsilons are compared
_LEAST_LEVEL = 50.0  # below this a comparison says nothing of use


def in_words(seen: Comparison) -> str:
    """A comparison in words."""
    parts = [f"clearly ahead at {seen.ahead} of {seen.x.size}"]
    if seen.ahead:
        parts.append(f"by up to {seen.gains[seen.best]:.1f} points (at {seen.x[seen.best]:g})")
    if seen.behind:
        worst = seen.worst
        parts.append(
            f"behind at {seen.behind}, by up to {-seen.gains[worst]:.1f} (at {seen.x[worst]:g})"
        )
    return ", ".join(parts)


def compare(numbers: Numbers, panel: str, first: str, second: str) -> Comparison:
    """The first series against the second in a panel; empty where one is absent."""
    return compared(numbers, panel, first, second, least=CLEAR, floored=False)


def present(numbers: Numbers, axis: str) -> list[str]:
    """The panels of an axis that were measured, one for each data set."""
    return [panel for name in DATA if (panel := f"{name}-{axis}") in numbers.panels]


def name_of(panel: str) -> str:
    """The data set of a panel."""
    return panel.rsplit("-", 1)[0]


def claim_of(says: str, where: str, found: Sequence[str], good: Iterable[bool]) -> Claim:
    """A claim with one finding after another: it holds in all, in some or in none of them."""
    verdict = verdict_of(list(good))
    measured = "; ".join(found) + "." if verdict != "not tested" else "no points"
    return Claim(says=says, where=where, measured=measured, verdict=verdict)


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
                found.append(f"{name_of(panel)}, {first} against {second}: {in_words(seen)}")
                good.append(seen.ahead > 0 and seen.behind == 0 and seen.gains.max() >= least)
    return claim_of(says, where, found, good)
