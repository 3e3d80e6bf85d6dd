"""Products and sums of integer-valued floats, without any rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.rows import FloatArray

_DOUBLE_EXACT = 2.0**53
_INT64_EXACT = 2.0**62
_ROWS_FOR_MARGIN = 1 << 16


def gram_parts(rows: FloatArray, exact_below: float) -> Iterator[tuple[FloatArray, int]]:
    """Matrices of exact integers that add up to ``rows.T @ rows``, each with its number of rows.

    A product is exact when no partial sum leaves the range in which integers are: every partial sum
    of column products is at most the larger of the two columns' sums of squares, and those stand on
    the diagonal. Where the diagonal is too large the rows are halved; with 2**-9 grids and single
    precision that happens only when one feature carries much of the energy.
    """
    product = rows.T @ rows
    if rows.shape[0] <= 1 or float(product.diagonal().max(initial=0.0)) < exact_below:
        yield product, rows.shape[0]
        return
    del product
    middle = rows.shape[0] // 2
    yield from gram_parts(rows[:middle], exact_below)
    yield from gram_parts(rows[middle:], exact_below)


def product_parts(
    left: FloatArray, right: FloatArray, exact_below: float
) -> Iterator[tuple[FloatArray, int]]:
    """The same for ``left.T @ right``, bounded by Cauchy-Schwarz."""
    energy = _largest_column_energy(left) * _largest_column_energy(right)
    # one part in a hundred for the rounding of the bound itself, 2**-24 a row in single precision
    few = left.shape[0] <= _ROWS_FOR_MARGIN
    if left.shape[0] <= 1 or (few and energy < 0.99 * exact_below * exact_below):
        yield left.T @ right, left.shape[0]
        return
    middle = left.shape[0] // 2
    yield from product_parts(left[:middle], right[:middle], exact_below)
    yield from product_parts(left[middle:], right[middle:], exact_below)


def _largest_column_energy(rows: FloatArray) -> float:
    return float(np.einsum("ij,ij->j", rows, rows).max(initial=0.0))


class ExactSum:
    """An array of integer sums: floats while they are exact, 64-bit integers beyond.

    Parameters
    ----------
    shape : tuple of int
    largest_term : float
        No entry moves by more than this for one row.
    """

    def __init__(self, shape: tuple[int, ...], *, largest_term: float) -> None:
        self.shape = shape
        self.largest_term = largest_term
        self._pending = np.zeros(shape)
        self._pending_rows = 0
        self._settled: NDArray[np.int64] | None = None
        self._rows = 0

    def add(self, part: FloatArray, rows: int) -> None:
        """Add exact integers that ``rows`` rows contributed."""
        self._count(rows)
        if (self._pending_rows + rows) * self.largest_term > _DOUBLE_EXACT:
            self._settle()
        self._pending += part
        self._pending_rows += rows

    def merge(self, other: ExactSum) -> None:
        """Add another sum of the same kind; it is left unchanged."""
        self._count(other._rows)
        rows = self._pending_rows + other._pending_rows
        if rows * self.largest_term > _DOUBLE_EXACT:
            self._settle()
            rows = other._pending_rows
        self._pending += other._pending
        self._pending_rows = rows
        if other._settled is not None:
            self._settle()
            assert self._settled is not None
            self._settled += other._settled

    def integers(self) -> NDArray[np.int64]:
        """The sum, as a new array."""
        pending = self._pending.astype(np.int64)
        if self._settled is not None:
            pending += self._settled
        return pending

    def _count(self, rows: int) -> None:
        self._rows += rows
        if self._rows * self.largest_term > _INT64_EXACT:
            raise DataError(
                f"More than {int(_INT64_EXACT / self.largest_term):.3g} rows in one sum.",
                hint="Split the data into several studies, or fit a sample.",
                code="too-many-rows",
            )

    def _settle(self) -> None:
        if self._settled is None:
            self._settled = np.zeros(self.shape, dtype=np.int64)
        if self._pending_rows:
            self._settled += self._pending.astype(np.int64)
            self._pending.fill(0.0)
            self._pending_rows = 0
