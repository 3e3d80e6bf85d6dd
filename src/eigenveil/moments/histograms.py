"""Counts: histograms of rows' norms and of single columns, and how many entries there are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments import loops
from eigenveil.moments.accumulators import WEIGHT_BITS, Accumulator, counted
from eigenveil.moments.exact import Integers, Spec, spec_of
from eigenveil.moments.norms import FloatArray
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.moments.rows import (
    DTYPE,
    Block,
    Precision,
    RowRule,
    basis_bits,
    scaled_basis,
    seen_through,
)
from eigenveil.privacy.statistics import StatisticName


class CountSum(Accumulator):
    """Counts of rows, or the sums of their shares."""

    prepares = False
    weighted: bool
    _counts: NDArray[np.int64]

    adds = ("_counts",)

    @property
    def grid(self) -> int:
        return -WEIGHT_BITS if self.weighted else 0

    def integers(self) -> Integers:
        return self._counts.reshape(self.shape).copy()


# Halves of octaves, [1, 3/2) and [3/2, 2) times powers of 2 from 2**-30 to 2**30, for either sign;
# one bin for what is smaller (zero too) and one on each side for what is larger.
LOWEST, HIGHEST = -30, 30
_HALVES = 2 * (HIGHEST - LOWEST)
_MIDDLE = _HALVES + 1
MAGNITUDE_BINS = 2 * _HALVES + 3
# Equal bins over a given range, and one on each side of it.
EQUAL_BINS = 32
RANGE_BINS = EQUAL_BINS + 2
_WITHIN = 0.5 * EQUAL_BINS
# Entries are clipped there, in half widths of the range.
RANGE_LIMIT = 1.0 + 1.0 / _WITHIN
# An entry of a level's column is 0 or 1.
_IS_LEVEL = 0.5
# The ten upper bits of a number in single precision are its sign, exponent and half of the octave;
# so many of them are those of the largest number below the half octaves.
_SHIFT, _SIGN, _BELOW = 22, 9, 2 * (127 + LOWEST) - 1
_OF_A_NUMBER = (_SHIFT, _SIGN, _BELOW, _BELOW + _HALVES + 1, _MIDDLE)


def magnitude_edges() -> NDArray[np.float64]:
    """Edges of the bins of magnitudes, shape (MAGNITUDE_BINS + 1,), ascending; infinite ends."""
    halves = np.append(np.ldexp([1.0, 1.5], np.arange(LOWEST, HIGHEST)[:, None]), 2.0**HIGHEST)
    return np.concatenate([[-np.inf], -halves[::-1], halves, [np.inf]])


def range_of(middle: NDArray[np.float64], half: NDArray[np.float64], *, holes: bool) -> Preparation:
    """The preparation under which histograms have equal bins over ``middle -+ half``, (D,) each."""
    return Preparation(middle, half, limit=RANGE_LIMIT, holes=holes)


class ColumnHistogram(CountSum):
    """Of each column, how many rows have which value: on one public grid, or within ranges."""

    statistic: StatisticName = "column-histogram"

    def __init__(
        self,
        features: int,
        *,
        precision: Precision,
        preparation: Preparation = AS_IT_IS,
        variables: NDArray[np.float64] | None = None,
        weighted: bool = False,
    ) -> None:
        self.features, self.precision, self.preparation = features, precision, preparation
        self.variables, self.weighted = variables, weighted
        self.bins = MAGNITUDE_BINS if preparation.scale is None else RANGE_BINS
        self._levels = levels_of(variables)
        alone = np.ones(features, dtype=np.bool_)
        for columns in self._levels:
            alone[columns] = False
        self._numbers = np.flatnonzero(alone)
        self._counts = np.zeros((features, self.bins), dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The bins of the first column, of the second, and so on."""
        return (self._counts.size,)

    @property
    def parameters(self) -> dict[str, float]:
        return {"variables": count_variables(self.features, self.variables)}

    def update(self, block: Block) -> None:
        columns = self._numbers
        rows = self._rows(block)
        shares = counted(block, weighted=self.weighted)
        if block.left_out.size:
            rows = block.taking_part(rows)
            shares = None if shares is None else block.taking_part(shares)
        if columns.size < self.features:
            rows = rows[:, columns]
        holes = self._holes(block)
        if shares is None and holes is None and loops.takes(rows):
            within = 0.0 if self.preparation.scale is None else _WITHIN
            loops.COMPILED.column_bins(rows, columns, self._counts, within, *_OF_A_NUMBER)
        else:
            places = _magnitudes(rows) if self.preparation.scale is None else _within_ranges(rows)
            self._add(columns, places, shares, holes)
        if self._levels:
            self._add_levels(block, shares)

    def _add(
        self,
        columns: NDArray[np.intp],
        places: NDArray[np.uint8],
        shares: NDArray[np.int64] | None,
        holes: NDArray[np.bool_] | None,
    ) -> None:
        """Count the bins of some columns' entries, shape (n, columns), or their rows' shares."""
        for index, each in enumerate(np.ascontiguousarray(places.T)):
            weights = shares
            if holes is not None:
                seen = ~holes[:, index]
                each, weights = each[seen], None if shares is None else shares[seen]
            found = np.bincount(each, weights, minlength=self.bins)
            # shares of a block add up exactly in double precision
            self._counts[columns[index]] += found.astype(np.int64, copy=False)

    def _rows(self, block: Block) -> FloatArray:
        """Prepared rows; those that are left out are found out."""
        with np.errstate(over="ignore", invalid="ignore"):
            rows = self.preparation(block.values, DTYPE[self.precision])
            sums = [np.sum(each, dtype=np.float64) for each in (block.values, rows)]
        if np.isfinite(sums).all():  # no norms are needed, and no entry is wrong
            block.left_out = block.left_out[:0]
            return rows
        return block.residuals(None, self.precision, self.preparation)[0]

    def _holes(self, block: Block) -> NDArray[np.bool_] | None:
        """Which entries were not observed, where some may not have been."""
        if not self.preparation.holes:
            return None
        return np.asarray(np.isnan(block.taking_part(block.values[:, self._numbers])))

    def _add_levels(self, block: Block, shares: NDArray[np.int64] | None) -> None:
        values = block.taking_part(block.values)
        for columns in self._levels:
            has = np.asarray(values[:, columns] > _IS_LEVEL)
            some = has.any(axis=1)
            level = columns[np.argmax(has, axis=1)[some]]
            counts = np.bincount(
                level, None if shares is None else shares[some], minlength=self.features
            )
            self._counts[:, 0] += counts.astype(np.int64)


def levels_of(variables: NDArray[np.float64] | None) -> list[NDArray[np.intp]]:
    """The columns of each category: of each variable that has more than one."""
    if variables is None:
        return []
    _, which, sizes = np.unique(variables, return_inverse=True, return_counts=True)
    return [np.flatnonzero(which == index) for index in np.flatnonzero(sizes > 1)]


def count_variables(features: int, variables: NDArray[np.float64] | None) -> int:
    return features if variables is None else int(np.unique(variables).size)


def _magnitudes(rows: FloatArray) -> NDArray[np.uint8]:
    """Bins of magnitudes: functions of each entry, rounded to single precision, alone."""
    with np.errstate(over="ignore"):  # infinite is in the bin of the largest, too
        single = np.ascontiguousarray(rows, dtype=np.float32)
    upper = (single.view(np.uint32) >> np.uint32(_SHIFT)).astype(np.int16)
    negative = upper >> _SIGN
    upper &= (1 << _SIGN) - 1
    np.clip(upper, _BELOW, _BELOW + _HALVES + 1, out=upper)
    upper -= _BELOW
    upper ^= -negative  # all its bits where there is a sign: with the next line, its negative
    upper += negative
    upper += _MIDDLE
    return upper.astype(np.uint8)


def _within_ranges(rows: FloatArray) -> NDArray[np.uint8]:
    """Bins over ranges: functions of each entry alone."""
    kind = rows.dtype.type
    places = rows * kind(_WITHIN)
    places += kind(_WITHIN + 1)
    np.clip(places, 0, RANGE_BINS - 1, out=places)
    return np.asarray(places.astype(np.uint8))  # rounds down


class ObservedCounts(CountSum):
    """How many rows have an entry in each column, shape (D,); NaN is none."""

    statistic: StatisticName = "column-counts"

    def __init__(self, features: int, *, weighted: bool = False) -> None:
        self.features, self.weighted = features, weighted
        self._counts = np.zeros(self.shape, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """A number a column."""
        return (self.features,)

    def spec(self) -> Spec:
        return spec_of(holes=True, weighted=self.weighted)

    def update(self, block: Block) -> None:
        valid = np.asarray(~np.isinf(block.values).any(axis=1))
        there = np.asarray(~np.isnan(block.values)) & valid[:, None]
        shares = counted(block, weighted=self.weighted)
        self._counts += self._added(there, shares).astype(np.int64)

    def _added(self, there: NDArray[np.bool_], shares: NDArray[np.int64] | None) -> NDArray[Any]:
        if shares is None:
            return np.asarray(there.sum(axis=0))
        return np.asarray(shares.astype(np.float64) @ there)  # whole numbers below 2**53


class ObservedPairs(ObservedCounts):
    """How many rows have entries in both columns of each pair, shape (D, D)."""

    statistic: StatisticName = "pair-counts"

    @property
    def size(self) -> int:
        return self.features * (self.features + 1) // 2

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features, self.features)

    def _added(self, there: NDArray[np.bool_], shares: NDArray[np.int64] | None) -> NDArray[Any]:
        entries = there.astype(np.float64)
        weighted = entries if shares is None else entries * shares[:, None]
        return np.asarray(weighted.T @ entries)  # whole numbers below 2**53


# Quarter octaves from 2**-40 to 2**40, with one bin below (zero rows too) and one above.
OCTAVE_PARTS = 4

LOWEST_OCTAVE, HIGHEST_OCTAVE = -40, 40

BINS = OCTAVE_PARTS * (HIGHEST_OCTAVE - LOWEST_OCTAVE) + 2

# A norm this little above an edge counts below it: norms are rounded up by less, so that rows of
# the same length, such as unit rows, are in one bin. Clipped at the edge they lose no more than it.
ABOVE_EDGE = 1.0 + 2.0**-9


def bin_upper_edges() -> NDArray[np.float64]:
    """Upper edge of each norm bin, shape (BINS,); the last is infinite."""
    quarters = [2.0 ** (part / OCTAVE_PARTS) for part in range(OCTAVE_PARTS)]
    inner = np.ldexp(quarters, np.arange(LOWEST_OCTAVE, HIGHEST_OCTAVE)[:, None])
    return np.append(inner, [math.ldexp(1.0, HIGHEST_OCTAVE), np.inf])


# Doubles compare as their bit patterns do: an exponent, then 52 bits of a fraction.
_FRACTION = np.int64((1 << 52) - 1)

_EDGES_OF_AN_OCTAVE = tuple(
    np.float64(2.0 ** (part / OCTAVE_PARTS) * ABOVE_EDGE).view(np.int64) & _FRACTION
    for part in range(OCTAVE_PARTS)
)

_LOWEST_EXPONENT = 1023 + LOWEST_OCTAVE


def norm_bins(
    norms: NDArray[np.float64], shares: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """How many norms are in which bin, or their shares: shape (BINS,)."""
    if shares is None and loops.takes(norms):
        counts = np.zeros(BINS, dtype=np.int64)
        loops.COMPILED.norm_bins(norms, counts, _LOWEST_EXPONENT, *map(int, _EDGES_OF_AN_OCTAVE))
        return counts
    patterns = norms.view(np.int64)
    index = ((patterns >> 52) - _LOWEST_EXPONENT) * OCTAVE_PARTS
    fractions = patterns & _FRACTION
    for edge in _EDGES_OF_AN_OCTAVE:
        index += fractions > edge
    np.clip(index, 0, BINS - 1, out=index)
    return np.asarray(np.bincount(index, shares, minlength=BINS)).astype(np.int64)


class NormHistogram(CountSum):
    """How many rows have which norm, on a fixed public grid; the last number counts all rows."""

    # a coordinate of its own, because the sum of the noisy bins is far too noisy

    statistic: StatisticName = "norm-histogram"

    def __init__(
        self,
        center: NDArray[np.float64] | None,
        *,
        precision: Precision,
        basis: NDArray[np.float64] | None = None,
        bound: float = 0.0,
        preparation: Preparation = AS_IT_IS,
        weighted: bool = False,
    ) -> None:
        self.center, self.precision = center, precision
        self.basis, self.bound = basis, bound
        self.preparation, self.weighted = preparation, weighted
        self._rule = RowRule(
            center=center, bound=bound, precision=precision, preparation=preparation
        )
        self._basis = None if basis is None else scaled_basis(basis, self._rule)
        self._counts = np.zeros(BINS + 1, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._counts.shape

    def update(self, block: Block) -> None:
        norms, shares = self._norms(block), counted(block, weighted=self.weighted)
        norms = block.taking_part(norms)
        shares = None if shares is None else block.taking_part(shares)
        self._counts[:BINS] += norm_bins(norms, shares)
        self._counts[BINS] += norms.size if shares is None else int(shares.sum())

    def _norms(self, block: Block) -> NDArray[np.float64]:
        if self._basis is None:
            return block.residuals(self.center, self.precision, self.preparation)[1]
        _, norms = seen_through(*self._basis, self._rule, block)
        unit = self.bound or 1.0
        return norms * math.ldexp(unit, -self._rule.bits - basis_bits(self.precision))
