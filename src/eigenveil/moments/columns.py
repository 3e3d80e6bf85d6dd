"""Histograms of single columns: how many rows have an entry of which size.

A row counts once in each column's histogram, so that all of them together are one statistic of L2
sensitivity ``sqrt(V)``, V the number of variables (docs/proofs/scales.md; tables.md, section 2).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import WEIGHT_BITS, Accumulator, check_same_kind, counted
from eigenveil.moments.exact import Description, Integers, Parts, Spec, spec_of
from eigenveil.moments.rows import AS_IT_IS, Block, FloatArray, Precision, Preparation, RowRule
from eigenveil.privacy.statistics import Layout, StatisticName

# Half octaves of magnitudes from 2**-30 to 2**30, for either sign; one bin for what is smaller
# (zero too) and one on each side for what is larger.
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

# Floats as integers: their type, bits of the fraction, bias of the exponent, and the fraction of
# the first number that is not below the square root of 2.
_PATTERNS: dict[Precision, tuple[Any, int, int, int]] = {
    "single": (np.int32, 23, 127, 0x3504F4),
    "double": (np.int64, 52, 1023, 0x6A09E667F3BCD),
}


def magnitude_edges() -> NDArray[np.float64]:
    """Edges of the bins of magnitudes, shape (MAGNITUDE_BINS + 1,), ascending; the ends infinite.

    The bin of all that is smaller than the half octaves lies between the two edges next to 0.
    """
    halves = np.exp2(np.arange(2 * LOWEST, 2 * HIGHEST + 1) / 2.0)
    return np.concatenate([[-np.inf], -halves[::-1], halves, [np.inf]])


def range_of(middle: NDArray[np.float64], half: NDArray[np.float64], *, holes: bool) -> Preparation:
    """The preparation under which histograms have equal bins over ``middle -+ half``, (D,) each."""
    return Preparation(middle, half, limit=RANGE_LIMIT, holes=holes)


class ColumnHistogram(Accumulator):
    """Of each column, how many rows have which value: on one public grid, or within given ranges.

    An entry that was not observed is in no bin.

    Parameters
    ----------
    features : int
    precision : {"single", "double"}
        Arithmetic in which the rows are stored.
    preparation : Preparation
        Without scales the bins are half octaves of ``|x|`` for either sign. With scales
        (:func:`range_of`) they are ``EQUAL_BINS`` equal ones of what it makes of entries, between
        -1 and 1, and one on each side; in a column of scale 0 all is in one bin.
    variables : array of shape (D,), optional
        The variable that each column belongs to, as a number: columns of one variable are the
        levels of a category, of which a row has one (the first whose entry is above one half). They
        share a histogram: a row counts in the first bin of its level's column. By default each
        column is a variable.
    weighted : bool
        Whether rows have weights: counts are then in units of ``2**-24``.
    """

    statistic: StatisticName = "column-histogram"
    layout: Layout = "vector"
    prepares = False

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
    def grid(self) -> int:
        """Counts, or parts of them."""
        return -WEIGHT_BITS if self.weighted else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The bins of the first column, of the second, and so on."""
        return (self._counts.size,)

    @property
    def parameters(self) -> dict[str, float]:
        """The number of variables."""
        return {"variables": count_variables(self.features, self.variables)}

    def merge_key(self) -> tuple[Any, ...]:
        """What it is a sum of."""
        own = (self.features, self.precision, self.variables, self.weighted)
        return (*own, *self.preparation.merge_key())

    def empty(self) -> Self:
        """Empty histograms of the same kind."""
        return type(self)(
            self.features,
            precision=self.precision,
            preparation=self.preparation,
            variables=self.variables,
            weighted=self.weighted,
        )

    def spec(self) -> Spec:
        """What another process needs to add up the same."""
        rule = RowRule(precision=self.precision, preparation=self.preparation)
        found = spec_of(rule, weighted=self.weighted, categories=self.variables is not None)
        if self.variables is None:
            return found
        return Spec(found.fields, {**found.arrays, "variables": self.variables})

    @classmethod
    def from_spec(cls, d: Description, parts: Parts) -> Self:
        """Empty ones, as described."""
        return cls(
            d.features,
            precision=d.precision,
            preparation=parts.rule.preparation,
            variables=parts.variables,
            weighted=d.weighted,
        )

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        rows = block.residuals(None, self.precision, self.preparation)[0]
        shares = counted(block, weighted=self.weighted)
        whole = self._numbers.size == self.features
        places = self._places(rows if whole else rows[:, self._numbers])
        places += np.arange(self._numbers.size) * self.bins
        per_entry = None if shares is None else np.repeat(shares, self._numbers.size)
        if self.preparation.holes:
            observed = ~np.isnan(block.values[:, self._numbers]).ravel()
            places = places.ravel()[observed]
            per_entry = None if per_entry is None else per_entry[observed]
        size = self._numbers.size * self.bins
        # shares of a block add up exactly in double precision
        found = np.bincount(places.ravel(), per_entry, minlength=size).astype(np.int64)
        self._counts[self._numbers] += found.reshape(-1, self.bins)
        if self._levels:
            self._add_levels(block, shares)

    def _add_levels(self, block: Block, shares: NDArray[np.int64] | None) -> None:
        """Count each category's levels; an invalid row is a row of zeros, which has none."""
        values = block.values
        valid = np.isfinite(values)
        if self.preparation.holes:
            valid |= np.isnan(values)
        is_valid = np.asarray(valid.all(axis=1))
        for columns in self._levels:
            has = np.asarray(values[:, columns] > _IS_LEVEL) & is_valid[:, None]
            some = has.any(axis=1)
            level = columns[np.argmax(has, axis=1)[some]]
            counts = np.bincount(
                level, None if shares is None else shares[some], minlength=self.features
            )
            self._counts[:, 0] += counts.astype(np.int64)

    def _places(self, rows: FloatArray) -> NDArray[np.int64]:
        """The bin of every entry: a function of that entry alone."""
        if self.preparation.scale is None:
            return _magnitudes(rows, self.precision)
        places = np.floor(rows * rows.dtype.type(_WITHIN)) + rows.dtype.type(_WITHIN + 1)
        return np.asarray(np.clip(places, 0, RANGE_BINS - 1), dtype=np.int64)

    def merge(self, other: Self) -> None:
        """Add the rows of others."""
        check_same_kind(self, other)
        self._counts += other._counts

    def integers(self) -> Integers:
        """The counts, shape (D * bins,)."""
        return self._counts.ravel().copy()


def levels_of(variables: NDArray[np.float64] | None) -> list[NDArray[np.intp]]:
    """The columns of each category: of each variable that has more than one."""
    if variables is None:
        return []
    _, which, sizes = np.unique(variables, return_inverse=True, return_counts=True)
    return [np.flatnonzero(which == index) for index in np.flatnonzero(sizes > 1)]


def count_variables(features: int, variables: NDArray[np.float64] | None) -> int:
    """How many variables there are."""
    return features if variables is None else int(np.unique(variables).size)


def _magnitudes(rows: FloatArray, precision: Precision) -> NDArray[np.int64]:
    """Bins of magnitudes, by comparing bit patterns: exact."""
    kind, bits, bias, root = _PATTERNS[precision]
    patterns = np.ascontiguousarray(rows).view(kind)
    place = ((patterns >> bits) & (2 * bias + 1)).astype(np.int64)
    place -= bias + LOWEST
    place *= 2
    place += (patterns & ((1 << bits) - 1)) >= root
    np.clip(place, -1, _HALVES, out=place)
    place += 1
    np.negative(place, out=place, where=patterns < 0)
    place += _MIDDLE
    return np.asarray(place)
