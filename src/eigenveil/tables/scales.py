"""Middles and scales of columns, from released histograms of them (tables.md, section 2).

Everything here is post-processing of releases. Three rounds zoom in on every column at once: half
octaves of magnitudes give a range; 32 bins over that range give a closer one where few of them hold
all; and 32 bins over that give the mean and the standard deviation. Where the second range is
fine enough, the third round counts over it again and both are averaged, so that no budget is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from eigenveil.checks import LARGEST, SMALLEST
from eigenveil.errors import DataError, listed
from eigenveil.moments.histograms import (
    EQUAL_BINS,
    MAGNITUDE_BINS,
    RANGE_BINS,
    levels_of,
    magnitude_edges,
)
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.moments.release import Release
from eigenveil.origins import Origin
from eigenveil.privacy.releases import ReleaseRecord

# The core must stand this many of its own noise deviations above zero: among the 50000 runs of a
# histogram of noise alone, the best does in one of a hundred (simulated).
CORE = 4.5
# It grows by windows of up to this many bins that stand out by this much.
_REACH, _TAIL = 8, 3.5


def run_strengths(counts: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Entries (i, j): what bins i to j - 1 hold, in deviations of the noise in so many bins."""
    below = np.concatenate([[0.0], np.cumsum(counts)]) / deviation
    factors, none = _widths(below.size)
    return np.asarray((below[None, :] - below[:, None]) * factors + none)


@lru_cache(maxsize=4)
def _widths(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One over the roots of the widths of all runs; minus infinity where there is no run."""
    width = np.arange(size)[None, :] - np.arange(size)[:, None]
    return 1.0 / np.sqrt(np.maximum(width, 1)), np.where(width > 0, 0.0, -np.inf)


def exceeded(chance: float, *, pure: bool) -> float:
    """Deviations that noise exceeds with this chance: a normal, or where ``pure`` a Laplace one."""
    return -log(2.0 * chance) / sqrt(2.0) if pure else -float(ndtri(chance))


def standing_runs(
    strength: NDArray[np.float64], core: float, further: float
) -> Iterator[tuple[int, int]]:
    """Runs of bins that stand out, grown: the strongest first, then what lies away from it."""
    least = core
    while True:
        first, last = divmod(int(np.argmax(strength)), strength.shape[1])
        if not strength[first, last] >= least:
            return
        first, last = _grown(strength, first, last)
        yield first, last
        strength[:last, first + 1 :] = -np.inf  # what overlaps with it
        least = further


def _grown(strength: NDArray[np.float64], first: int, last: int) -> tuple[int, int]:
    """The run, grown on either side as long as one of the next few windows stands out too.

    So few rows or little budget give a coarser answer before they give none.
    """
    while (step := _next_step(strength[last, last + 1 : last + 1 + _REACH])) > 0:
        last += step
    while (step := _next_step(strength[max(0, first - _REACH) : first, first][::-1])) > 0:
        first -= step
    return first, last


def _next_step(strengths: NDArray[np.float64]) -> int:
    """Bins by which to grow, given the strengths of windows of 1, 2, ... bins; 0 to stop."""
    clear = np.flatnonzero(strengths > _TAIL)
    return int(clear[0]) + 1 if clear.size else 0


Array = NDArray[np.float64]

LIMIT = 6.0
"""Entries of prepared rows are clipped at so many scales."""

# Ranges are wider than the bins that stand out, by this part of theirs on either side.
_WIDER = 0.25
# Fewer bins than this that hold all of a column are looked at more closely.
_FINE = 5
# Laplace noise exceeds so many deviations as seldom as a normal one exceeds CORE.
_CORE_PURE = 8.4
# Fits in which a bin of noise alone stands out.
_FALSE = 1e-3
# Runs of bins for each bin, as far as their noise is not the same.
_RUNS_A_BIN = 10
# A level whose count stands this many deviations of its noise above 0 is there.
_LEVEL = 3.0


def public_center(center: object, features: int) -> NDArray[np.float64] | None:
    """A public centre, checked; ``None`` where ``center`` is True or False."""
    if isinstance(center, bool | np.bool_):
        return None
    try:
        public: NDArray[np.float64] = np.asarray(center, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        public = np.full((), np.nan)
    if public.shape != (features,) or not np.all(np.abs(public) <= LARGEST):
        raise DataError("bad-center", shape=public.shape, largest=LARGEST, features=features)
    return public


def public_preparation(
    scale: object, ranges: object, features: int, names: Sequence[str] | None
) -> Preparation:
    """What public scales or ranges of columns make of rows; ``names`` are the columns'."""
    if ranges is not None:
        if isinstance(ranges, Mapping):
            if others := set(ranges) ^ set(names or ()):
                raise DataError("ranges-of-others", names=listed(sorted(others)))
            ranges = [ranges[name] for name in names or ()]
        low, high = _numbers(ranges, (features, 2), "ranges").T
        if (wrong := np.flatnonzero(low >= high)).size:
            column = wrong[0]
            raise DataError(
                "bad-ranges",
                column=Origin().column(int(column)),
                low=low[column],
                high=high[column],
            )
        half = 0.5 * high - 0.5 * low
        return Preparation(0.5 * low + 0.5 * high, np.where(half < SMALLEST, 0.0, half), limit=1.0)
    if scale is None or isinstance(scale, str):
        return AS_IT_IS
    found = _numbers(scale, (features,), "scale")
    if (wrong := np.flatnonzero((found < SMALLEST) & (found != 0))).size:
        raise DataError(
            "bad-scale",
            column=Origin().column(int(wrong[0])),
            scale=found[wrong[0]],
            smallest=SMALLEST,
        )
    return Preparation(scale=found)


def _numbers(given: object, shape: tuple[int, ...], name: str) -> Array:
    try:
        found = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.full((), np.nan)
    if found.shape != shape or not np.all(np.abs(found) <= LARGEST):
        raise DataError(
            "not-one-a-column", name=name, shape=found.shape, largest=LARGEST, features=shape[0]
        )
    return found


@dataclass(frozen=True)
class Ranges:
    """Where histograms of columns look: between ``middle - half`` and ``middle + half``."""

    middle: Array  # In the data's units; `half` is 0 where nothing of a column was seen
    half: Array
    winsorize: float | None = None  # The share of entries at either end that is left out


@dataclass(frozen=True)
class ColumnScales:
    """What histograms show of columns."""

    # Mean and standard deviation of what was seen; the latter is 0 of a column that shows nothing,
    # or is constant as far as its histogram can tell
    offset: Array
    scale: Array


@dataclass(frozen=True)
class BinNoise:
    """The noise of each bin."""

    deviation: float
    # Deviations that the run must have to stand out, a bin by itself, and a run away from it: so
    # many that of all bins of noise, or runs, one does in a thousand fits. Noise of pure epsilon
    # has longer tails.
    core: float
    alone: float
    further: float

    @classmethod
    def of(cls, record: ReleaseRecord) -> BinNoise:
        """As it was recorded."""
        alone, further = (
            exceeded(_FALSE / count / record.noise.size, pure=record.pure)
            for count in (1, _RUNS_A_BIN)
        )
        core = _CORE_PURE if record.pure else CORE
        return cls(record.noise.deviation(1), core, alone, further)


def ranges_of(release: Release, features: int, winsorize: float | None = None) -> Ranges:
    """Ranges of columns, from their histograms of magnitudes, within which ``winsorize`` is."""
    edges = magnitude_edges()
    edges[[0, -1]] = 2.0 * edges[[1, -2]]  # the open bins, as far as ranges are concerned
    noise = BinNoise.of(release.record)
    middle, half = np.zeros(features), np.zeros(features)
    for column, counts in enumerate(release.values.reshape(features, MAGNITUDE_BINS)):
        seen = _left(counts, _standing(counts, noise), winsorize)
        places = np.flatnonzero(seen)
        if places.size and places.tolist() != [MAGNITUDE_BINS // 2]:  # not the bin around 0 alone
            middle[column], half[column] = _wider(edges[places[0]], edges[places[-1] + 1])
    return Ranges(middle, half, winsorize)


def closer_ranges(release: Release, ranges: Ranges) -> Ranges:
    """Ranges around the bins that stand out, where they are few; the same ones elsewhere."""
    middle, half = ranges.middle.copy(), ranges.half.copy()
    noise = BinNoise.of(release.record)
    for column, counts in enumerate(release.values.reshape(-1, RANGE_BINS)):
        places = np.flatnonzero(_left(counts, _standing(counts, noise), ranges.winsorize))
        if half[column] == 0 or places.size == 0:
            continue
        first, last = max(1, places[0]), min(EQUAL_BINS, places[-1])
        if 0 <= last - first < _FINE - 1:
            edges = _edges(ranges, column)
            middle[column], half[column] = _wider(edges[first], edges[last + 1])
    return Ranges(middle, half, ranges.winsorize)


def scales_of(
    releases: tuple[Release, Release, Release],
    ranges: Ranges,
    closer: Ranges,
    variables: Array | None,
) -> ColumnScales:
    """Means and standard deviations of columns.

    Where ranges are winsorized, middles and scales at which :data:`LIMIT` scales are the quantiles
    of that share from either end; of a category's columns as without.
    """
    features = ranges.half.size
    offset, scale, masses = np.zeros(features), np.zeros(features), np.zeros(features)
    counts = [release.values.reshape(features, -1) for release in releases]
    noise = [BinNoise.of(release.record) for release in releases]
    again = (ranges.middle == closer.middle) & (ranges.half == closer.half)
    levels = levels_of(variables)
    is_level = np.zeros(features, dtype=np.bool_)
    for columns in levels:
        is_level[columns] = True
    for column in np.flatnonzero((closer.half > 0) & ~is_level).tolist():
        parts = [1, 2] if again[column] else [2]
        found, each = _averaged(
            [counts[part][column] for part in parts], [noise[part] for part in parts]
        )
        seen, edges = np.where(_standing(found, each), found, 0.0), _edges(closer, column)
        offset[column], scale[column], masses[column] = _moments(seen, edges)
        if ranges.winsorize is not None and scale[column] > 0:
            low, high = _quantiles(seen, edges, ranges.winsorize)
            offset[column], scale[column] = 0.5 * (low + high), 0.5 * (high - low) / LIMIT
    rows = float(np.median(masses[masses > 0])) if (masses > 0).any() else 0.0
    for columns in levels:
        found, each = _averaged([part[columns, 0] for part in counts], noise)
        found = np.where(found > _LEVEL * each.deviation, found, 0.0)
        share = np.minimum(found / max(rows, float(found.sum()), 1.0), 1.0)
        offset[columns], scale[columns] = share, np.sqrt(share * (1.0 - share))
    return ColumnScales(offset, scale)


def _standing(counts: Array, noise: BinNoise) -> NDArray[np.bool_]:
    """Bins of the runs that stand out, and any others that do by themselves."""
    found = counts > noise.alone * noise.deviation
    strength = run_strengths(counts, noise.deviation)
    for first, last in standing_runs(strength, noise.core, noise.further):
        found[first:last] = True
    return np.asarray(found)


def _left(counts: Array, seen: NDArray[np.bool_], winsorize: float | None) -> NDArray[np.bool_]:
    """Of the bins that are seen, those from the quantile at one end to that at the other."""
    if winsorize is None or not seen.any():
        return seen
    below = np.cumsum(np.where(seen, np.maximum(counts, 0.0), 0.0))
    first, last = np.searchsorted(below, np.array([winsorize, 1.0 - winsorize]) * below[-1])
    bins = np.arange(counts.size)
    return np.asarray(seen & (first <= bins) & (bins <= last))


def _wider(low: float, high: float) -> tuple[float, float]:
    """Middle and half width of a range, widened."""
    return 0.5 * (low + high), (0.5 + _WIDER) * (high - low)


def _edges(ranges: Ranges, column: int) -> Array:
    """Edges of a column's bins; those outside the range are taken to be as wide as the others."""
    steps = np.arange(-1, EQUAL_BINS + 2) / (0.5 * EQUAL_BINS) - 1.0
    return np.asarray(ranges.middle[column] + ranges.half[column] * steps)


def _averaged(counts: list[Array], noise: list[BinNoise]) -> tuple[Array, BinNoise]:
    """Counts of the same bins, averaged by precision, and the noise in each."""
    weights = np.array([each.deviation for each in noise]) ** -2.0
    average = replace(noise[-1], deviation=float(1.0 / np.sqrt(weights.sum())))
    return np.average(counts, axis=0, weights=weights), average


def _quantiles(counts: Array, edges: Array, share: float) -> tuple[float, float]:
    """The quantiles of a histogram this share from either end, even within its bins."""
    counts = np.maximum(counts, 0.0)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    at = np.array([share, 1.0 - share]) * below[-1]
    bins = np.searchsorted(below, at) - 1  # which hold something
    low, high = edges[bins] + (at - below[bins]) / counts[bins] * (edges[1] - edges[0])
    return float(low), float(high)


def _moments(counts: Array, edges: Array) -> tuple[float, float, float]:
    """Mean, standard deviation and mass of a histogram; deviation 0 where one bin holds all."""
    counts = np.maximum(counts, 0.0)
    mass, places = float(counts.sum()), np.count_nonzero(counts)
    if mass == 0.0:
        return 0.0, 0.0, 0.0
    middles = 0.5 * (edges[1:] + edges[:-1])
    mean = float(counts @ middles) / mass
    if places < 2:
        return mean, 0.0, mass
    variance = float(counts @ (middles - mean) ** 2) / mass
    width = float(edges[1] - edges[0])
    if places > 2:
        variance -= width * width / 12.0  # what spreading over a bin adds (Sheppard)
    return mean, float(np.sqrt(max(variance, width * width / 12.0))), mass
