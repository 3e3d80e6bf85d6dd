"""Histograms of single columns: how many rows have an entry of which size.

A row counts once in each column's histogram, so that all of them together are one statistic of L2
sensitivity ``sqrt(V)``, V the number of variables (docs/proofs/scales.md; tables.md, section 2).
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import Accumulator, check_same_kind
from eigenveil.moments.exact import Description, Integers, Parts, Spec
from eigenveil.moments.rows import DTYPE, Block, FloatArray, Precision
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
# An entry of a level's column is 0 or 1.
_IS_LEVEL = 0.5

# Floats as integers: bits of the fraction, bias of the exponent.
_LAYOUTS: dict[Precision, tuple[Any, int, int]] = {
    "single": (np.int32, 23, 127),
    "double": (np.int64, 52, 1023),
}


def magnitude_edges() -> NDArray[np.float64]:
    """Edges of the bins of magnitudes, shape (MAGNITUDE_BINS + 1,), ascending; the last are infinite.

    The bin of what is smaller than all half octaves lies between the two edges next to 0.
    """
    halves = np.exp2(np.arange(2 * LOWEST, 2 * HIGHEST + 1) / 2.0)
    return np.concatenate([[-np.inf], -halves[::-1], halves, [np.inf]])


class ColumnHistogram(Accumulator):
    """Of each column, how many rows have which value: on one public grid, or within given ranges.

    A row whose entry is no number counts in no bin of that column.

    Parameters
    ----------
    features : int
    precision : {"single", "double"}
        Arithmetic in which the rows are stored.
    offset, scale : arrays of shape (D,), optional
        Public or released: the bins are of ``(x - offset) / scale``, ``EQUAL_BINS`` between -1 and
        1 and one on each side; in a column of scale 0 all is in one bin. Without them they are
        half octaves of ``|x|`` for either sign.
    variables : array of shape (D,), optional
        The variable that each column belongs to: columns of one variable are the levels of a
        category, of which a row has one (the first whose entry is above one half). They share a
        histogram: a row counts in the first bin of its level's column, and the others are empty. By
        default each column is a variable.
    """

    statistic: StatisticName = "column-histogram"
    layout: Layout = "vector"
    prepares = False
    grid = 0  # counts

    def __init__(
        self,
        features: int,
        *,
        precision: Precision,
        offset: NDArray[np.float64] | None = None,
        scale: NDArray[np.float64] | None = None,
        variables: NDArray[np.float64] | None = None,
    ) -> None:
        self.features, self.precision = features, precision
        self.offset, self.scale, self.variables = offset, scale, variables
        self.bins = MAGNITUDE_BINS if scale is None else RANGE_BINS
        self._levels = levels_of(variables)
        self._numbers = np.setdiff1d(np.arange(features), np.concatenate([[], *self._levels]))
        self._counts = np.zeros((features, self.bins), dtype=np.int64)

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
        return (self.features, self.precision, self.offset, self.scale, self.variables)

    def empty(self) -> Self:
        """Empty histograms of the same kind."""
        return type(self)(
            self.features,
            precision=self.precision,
            offset=self.offset,
            scale=self.scale,
            variables=self.variables,
        )

    def spec(self) -> Spec:
        """What another process needs to add up the same."""
        arrays = {"offset": self.offset, "scale": self.scale, "variables": self.variables}
        given = {name: array for name, array in arrays.items() if array is not None}
        return Spec({"precision": self.precision}, arrays=given)

    @classmethod
    def from_spec(cls, d: Description, parts: Parts) -> Self:
        """Empty ones, as described."""
        return cls(d.features, precision=d.precision, **parts.arrays)

    def update(self, block: Block) -> None:
        """Add a block of rows."""
        rows = block.residuals(None, self.precision)[0]
        self._add(self._numbers, self._places(rows[:, self._numbers]))
        for columns in self._levels:
            has = rows[:, columns] > _IS_LEVEL
            level = columns[np.argmax(has, axis=1)[has.any(axis=1)]]
            self._counts[:, 0] += np.bincount(level, minlength=self.features)

    def _add(self, columns: NDArray[np.intp], places: NDArray[np.int64]) -> None:
        """Count the bins of some columns, shape (n, columns)."""
        places += np.arange(columns.size) * self.bins
        found = np.bincount(places.ravel(), minlength=columns.size * self.bins)
        self._counts[columns] += found.reshape(columns.size, self.bins)

    def _places(self, rows: FloatArray) -> NDArray[np.int64]:
        """The bin of every entry: a function of that entry alone."""
        if self.scale is None or self.offset is None:
            return _magnitudes(rows, self.precision)
        kind = DTYPE[self.precision]
        offset, scale = self.offset[self._numbers], self.scale[self._numbers]
        with np.errstate(all="ignore"):
            inverse = np.where(scale > 0, 0.5 * EQUAL_BINS / scale, 0.0).astype(kind)
            places = (rows - offset.astype(kind)) * inverse
        np.clip(places, -0.5 * EQUAL_BINS - 1, 0.5 * EQUAL_BINS, out=places)
        return np.asarray(np.floor(places) + (0.5 * EQUAL_BINS + 1), dtype=np.int64)

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
    kind, bits, bias = _LAYOUTS[precision]
    patterns = np.ascontiguousarray(rows).view(kind)
    fractions = patterns & ((1 << bits) - 1)
    exponents = (patterns >> bits) & (2 * bias + 1)
    half = int(np.float64(np.sqrt(2.0)).view(np.int64)) & ((1 << 52) - 1)
    upper = fractions > (half >> (52 - bits))
    place = 2 * (exponents.astype(np.int64) - (bias + LOWEST)) + upper
    np.clip(place, -1, _HALVES, out=place)
    place += 1
    np.negative(place, out=place, where=patterns < 0)
    place += _MIDDLE
    return place
