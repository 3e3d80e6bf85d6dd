"""The releases that a plan makes, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eigenveil.moments.histograms import MAGNITUDE_BINS, RANGE_BINS
from eigenveil.privacy.statistics import StatisticName

Step = Literal[
    "missing",
    "columns",
    "scale",
    "center",
    "covariates",
    "moment",
    "variance",
    "scores",
    "tensor",
    "sums",
    "cumulants",
]


@dataclass(frozen=True)
class Planned:
    """One release of a plan's schedule."""

    name: str  # No other release of the schedule has it
    step: Step  # The step whose budget pays for it
    statistic: StatisticName
    fraction: float = 1.0
    draws: int = 1  # Sequential draws of the bingham mechanism
    beside: bool = False  # Whether it is released in the same round as the release before it
    # How many numbers it may have, without a row count, where the statistic and the plan's features
    # do not say
    sizes: Sequence[int] | None = None
    square_weight: float = 0.0  # At which squares are in it, beside sums
    counts: bool = False  # Whether it has counts of its own, however many rows are known to be
    # Why a fit ends after its round where it shows nothing; empty where the fit goes on
    ends: str = ""


NO_NORMS = "the released histogram of the rows' norms shows nothing above its noise"
NO_BOUND = f"{NO_NORMS}, so that no bound on them can be chosen"
_NO_SCALES = "no column's released histogram shows anything above its noise"

# Names of the releases that find a private centre, in order (tables.md, section 2a).
SCALE, CENTER = "scale", "center"
NEAR_SCALE, SECOND_CENTER = "scale about the center", "center, second stage"

# Of the centres of single sites, where these are asked for.
SITE_MEANS = "means of sites"

# Of the norms about the centre that is kept.
CENTERED_SCALE = "scale of centered rows"

# What is counted where entries are missing, by what is made of it.
OBSERVED = "observed entries"
COUNTS_OF_HOLES: Mapping[str, StatisticName] = {
    "independent": "column-counts",
    "pairs": "pair-counts",
}

# Of the columns' middles and scales, in order (tables.md, section 2).
COLUMNS, COLUMN_RANGES = "columns", "columns, over ranges"
CLOSER_RANGES = "columns, over closer ranges"

# Parts of the step's share: the first round's bins are the most, and hold the fewest rows each.
_OF_COLUMNS = {COLUMNS: 0.4, COLUMN_RANGES: 0.3, CLOSER_RANGES: 0.3}


def column_schedule(features: int) -> tuple[Planned, ...]:
    """The releases that find the columns' scales."""
    bins = {COLUMNS: MAGNITUDE_BINS, COLUMN_RANGES: RANGE_BINS, CLOSER_RANGES: RANGE_BINS}
    return tuple(
        Planned(
            name,
            "columns",
            "column-histogram",
            fraction=fraction,
            sizes=exactly(features * bins[name]),
            ends=_NO_SCALES if name == CLOSER_RANGES else "",
        )
        for name, fraction in _OF_COLUMNS.items()
    )


def exactly(size: int) -> range:
    """The sizes of what can have no other."""
    return range(size, size + 1)


def center_schedule(
    *, bounded: bool, scale: tuple[float, float], center: tuple[float, float], near: bool = False
) -> tuple[Planned, ...]:
    """The releases that find a private centre."""
    if bounded:
        return (Planned(CENTER, "center", "row-sum", fraction=sum(center)),)
    if near:
        return (
            Planned(SCALE, "scale", "norm-histogram", fraction=sum(scale), ends=NO_BOUND),
            Planned(CENTER, "center", "row-sum", fraction=sum(center)),
        )
    return (
        Planned(SCALE, "scale", "norm-histogram", fraction=scale[0], ends=NO_BOUND),
        Planned(CENTER, "center", "row-sum", fraction=center[0]),
        Planned(NEAR_SCALE, "scale", "norm-histogram", fraction=scale[1]),
        Planned(SECOND_CENTER, "center", "row-sum", fraction=center[1]),
    )
