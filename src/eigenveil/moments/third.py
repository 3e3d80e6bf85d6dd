"""Third moments of rows seen through a few released directions: tensors of three modes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import Accumulator, counted
from eigenveil.moments.exact import ExactSum, Integers
from eigenveil.moments.norms import integer_rows
from eigenveil.moments.rows import Block, RowRule, basis_bits, integer_basis, seen_through
from eigenveil.noise.entries import coordinates, from_coordinates
from eigenveil.privacy.statistics import StatisticName, tensor_size

# Bits of a projected entry: a product of three has 36, as has the variance times an entry. Where
# rows have weights, 33 and these.
_BITS, _WEIGHTED_BITS, _SHARE_BITS = 12, 11, 8
# Rows that are multiplied at once: so many products of 41 bits (39 in documents/triples.py) add up
# exactly in double precision, and those of a few components stay in the processor's cache.
ROWS_A_PRODUCT = 2048


class ThirdMoment(Accumulator):
    """``sum y(x)y(x)y - variance (y(x)I + two permutations)``, y what is seen of a row."""

    statistic: StatisticName = "third-moment"
    adds = ("_sum", "_cubes")

    def __init__(
        self,
        rule: RowRule,
        basis: NDArray[np.float64],
        *,
        clip: float,
        variance: float,
        weighted: bool = False,
    ) -> None:
        self.rule, self.basis, self.clip, self.weighted = rule, basis, clip, weighted
        self._bits = _WEIGHTED_BITS if weighted else _BITS
        self._variance = round(math.ldexp(variance, 2 * self._bits))
        self._basis = integer_basis(basis, rule)
        rows, largest = basis.shape[1], -self.grid
        self._sum = ExactSum((rows,), largest_term=math.ldexp(1.0, largest - 2 * self._bits))
        self._cubes = ExactSum((rows, rows, rows), largest_term=math.ldexp(1.0, largest))
        # columns are rows of the data, each times its share in the second array
        self._waiting: NDArray[np.float64] | None = None
        self._waiting_rows = 0

    @property
    def grid(self) -> int:
        return -3 * self._bits - (_SHARE_BITS if self.weighted else 0)

    @property
    def variance(self) -> float:
        return math.ldexp(self._variance, -2 * self._bits)

    @property
    def parameters(self) -> dict[str, float]:
        return {"variance": self.variance}

    @property
    def shape(self) -> tuple[int, ...]:
        return self._cubes.shape

    @property
    def size(self) -> int:
        return tensor_size(self.shape[0])

    def update(self, block: Block) -> None:
        seen, norms = seen_through(self._basis, None, self.rule, block)
        radius = math.ldexp(1.0, self._bits)
        unit = math.ldexp(self.clip, self.rule.bits + basis_bits(self.rule.precision))
        rows, _ = integer_rows(seen, radius / np.maximum(norms, unit), radius * radius)
        shares = counted(block, weighted=self.weighted, bits=_SHARE_BITS)
        if shares is not None:
            counts = shares > 0
            rows, shares = rows[counts], shares[counts]
        if self._waiting is None:
            self._waiting = np.empty((1 + self.weighted, self.shape[0], ROWS_A_PRODUCT))
        start = 0
        while start < rows.shape[0]:
            part = slice(start, start + ROWS_A_PRODUCT - self._waiting_rows)
            columns = rows[part].T
            end = self._waiting_rows + columns.shape[1]
            self._waiting[0, :, self._waiting_rows : end] = columns
            if shares is not None:
                self._waiting[1, :, self._waiting_rows : end] = columns * shares[part]
            self._waiting_rows, start = end, part.stop
            if end == ROWS_A_PRODUCT:
                self.flush()

    def flush(self) -> None:
        if self._waiting is None or self._waiting_rows == 0:
            return
        columns, count = self._waiting[:, :, : self._waiting_rows], self._waiting_rows
        self._waiting_rows = 0
        self._sum.add(columns[-1].sum(axis=1), count)
        self._cubes.add(cube_sums(columns[0], columns[-1]), count)

    def integers(self) -> Integers:
        self.flush()
        total = whole_cube(self._cubes.integers())
        less = self._variance * self._sum.integers().astype(total.dtype)
        for i in range(self.shape[0]):
            total[:, i, i] -= less
            total[i, :, i] -= less
            total[i, i, :] -= less
        return total


def cube_sums(
    columns: NDArray[np.float64], weighted: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """``sum y(x)y(x)y`` over columns (K, n): the entries with ``i >= j`` and ``i >= k``."""
    rows, weighted = columns.shape[0], columns if weighted is None else weighted
    total = np.zeros((rows, rows, rows))
    for i in range(rows):
        up_to = columns[: i + 1]
        total[i, : i + 1, : i + 1] = (up_to * weighted[i]) @ up_to.T
    return total


def whole_cube(lower: Integers) -> Integers:
    """The symmetric tensor with the entries ``i >= j >= k`` of an array."""
    return from_coordinates("tensor", lower.shape, coordinates("tensor", lower))
