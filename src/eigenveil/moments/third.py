"""Third moments of rows seen through a few released directions: tensors of three modes."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import (
    Accumulator,
    basis_bits,
    check_same_kind,
    integer_basis,
    seen_through,
)
from eigenveil.moments.exact import Description, ExactSum, Integers, Parts, Spec, spec_of
from eigenveil.moments.rows import Block, RowRule, integer_rows
from eigenveil.noise.cube import tensor_size
from eigenveil.noise.entries import coordinates, from_coordinates
from eigenveil.privacy.statistics import Layout, StatisticName

# Bits of a projected entry; a product of three has 36, as has the variance times an entry.
_BITS = 12
_VARIANCE_BITS = 2 * _BITS
# Rows that are multiplied at once: so many products of 36 bits (39 in documents/triples.py) add up
# exactly in double precision, and those of a few components stay in the processor's cache.
ROWS_A_PRODUCT = 2048


class ThirdMoment(Accumulator):
    """``sum y(x)y(x)y - variance (y(x)I + two permutations)``, y what is seen of a row.

    The second term takes away what noise of this variance, the same in all directions, adds to the
    third moment of a mixture (docs/proofs/third-moment.md).

    Parameters
    ----------
    rule : RowRule
    basis : array of shape (D, K)
        Near-orthonormal columns; public or released.
    clip : float
        Bound on ``|basis.T x|`` of a prepared row. ``y = clip(basis.T x) / clip``: the released
        statistic is in units of ``(bound clip)**3``.
    variance : float
        From 0 to 1, in units of ``(bound clip)**2``; rounded to a multiple of ``2**-24``.
    """

    statistic: StatisticName = "third-moment"
    layout: Layout = "tensor"
    grid = -3 * _BITS

    def __init__(
        self, rule: RowRule, basis: NDArray[np.float64], *, clip: float, variance: float
    ) -> None:
        self.rule, self.basis, self.clip = rule, basis, clip
        self._variance = round(math.ldexp(variance, _VARIANCE_BITS))
        self._basis = integer_basis(basis, rule)
        rows = basis.shape[1]
        self._sum = ExactSum((rows,), largest_term=math.ldexp(1.0, _BITS))
        self._cubes = ExactSum((rows, rows, rows), largest_term=math.ldexp(1.0, 3 * _BITS))
        self._waiting: NDArray[np.float64] | None = None  # columns are rows of the data
        self._waiting_rows = 0

    @property
    def variance(self) -> float:
        """The variance as it is used."""
        return math.ldexp(self._variance, -_VARIANCE_BITS)

    @property
    def parameters(self) -> dict[str, float]:
        """The variance."""
        return {"variance": self.variance}

    @property
    def shape(self) -> tuple[int, ...]:
        """K x K x K."""
        return self._cubes.shape

    @property
    def size(self) -> int:
        """Entries that differ."""
        return tensor_size(self.shape[0])

    def merge_key(self) -> tuple[Any, ...]:
        """What it is a sum of."""
        return (*self.rule.merge_key(), self.clip, self._variance, self.basis)

    def empty(self) -> Self:
        """An empty moment of the same kind."""
        return type(self)(self.rule, self.basis, clip=self.clip, variance=self.variance)

    def spec(self) -> Spec:
        """What another process needs to add up the same."""
        return spec_of(self.rule, basis=self.basis, clip=self.clip, variance=self.variance)

    @classmethod
    def from_spec(cls, d: Description, parts: Parts) -> Self:
        """An empty one, as described."""
        return cls(parts.rule, parts.known_basis, clip=d.clip, variance=d.variance)

    def update(self, block: Block) -> None:
        """Add a block of rows; what is seen of them waits until there is enough to multiply."""
        seen, norms = seen_through(self._basis, self.rule, block)
        radius = math.ldexp(1.0, _BITS)
        unit = math.ldexp(self.clip, self.rule.bits + basis_bits(self.rule.precision))
        rows, _ = integer_rows(seen, radius / np.maximum(norms, unit), radius)
        if self._waiting is None:
            self._waiting = np.empty((self.shape[0], ROWS_A_PRODUCT))
        while rows.shape[0]:
            part = rows[: ROWS_A_PRODUCT - self._waiting_rows]
            end = self._waiting_rows + part.shape[0]
            self._waiting[:, self._waiting_rows : end] = part.T
            self._waiting_rows = end
            if end == ROWS_A_PRODUCT:
                self.flush()
            rows = rows[part.shape[0] :]

    def flush(self) -> None:
        """Multiply the rows that wait."""
        if self._waiting is None or self._waiting_rows == 0:
            return
        columns, count = self._waiting[:, : self._waiting_rows], self._waiting_rows
        self._waiting_rows = 0
        self._sum.add(columns.sum(axis=1), count)
        self._cubes.add(cube_sums(columns), count)

    def merge(self, other: Self) -> None:
        """Add another moment's rows."""
        check_same_kind(self, other)
        other.flush()
        self._sum.merge(other._sum)
        self._cubes.merge(other._cubes)

    def integers(self) -> Integers:
        """The tensor, shape (K, K, K)."""
        self.flush()
        total = whole_cube(self._cubes.integers())
        less = self._variance * self._sum.integers().astype(total.dtype)
        for i in range(self.shape[0]):
            total[:, i, i] -= less
            total[i, :, i] -= less
            total[i, i, :] -= less
        return total


def cube_sums(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """``sum y(x)y(x)y`` over the columns of a (K, n) array: entries with ``i >= j`` and ``i >= k``.

    Every entry of ``y(x)y`` is multiplied out, and what is left is a matrix product.
    """
    rows = columns.shape[0]
    total = np.zeros((rows, rows, rows))
    for i in range(rows):
        up_to = columns[: i + 1]
        total[i, : i + 1, : i + 1] = (up_to * columns[i]) @ up_to.T
    return total


def whole_cube(lower: Integers) -> Integers:
    """The symmetric tensor with the entries ``i >= j >= k`` of an array."""
    return from_coordinates("tensor", lower.shape, coordinates("tensor", lower))
