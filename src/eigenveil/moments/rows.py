"""Rows made ready: centred, of norm at most 1, and rounded to integers.

A prepared row is ``q * 2**-bits`` with an integer-valued vector q and ``|q| <= 2**bits``. Integers
add up without rounding, so every sum over rows is exact: it does not depend on the order of the
rows, on blocks, threads, files or the tree of merges, and its sensitivity is the one proved, not
the one plus floating-point error (Casacuberta et al. 2022 show what the latter can cost). What a
row becomes depends on that row alone.

A row is valid if every entry is a finite number. An invalid row becomes a zero row: it is counted,
and adds nothing to any other sum, about whatever centre. So no row decides whether there is a
result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.norms import FloatArray as FloatArray
from eigenveil.moments.norms import squared_norms, upper_norms

Precision = Literal["single", "double"]

# Bits of a prepared entry, by arithmetic. Products of two entries then have 18 of 24 bits, or 36 of
# 53, and the rest is room for adding rows up before the sum moves to a 64-bit integer.
BITS: dict[Precision, int] = {"single": 9, "double": 18}
MANTISSA: dict[Precision, int] = {"single": 24, "double": 53}
DTYPE: dict[Precision, Any] = {"single": np.float32, "double": np.float64}


@dataclass(frozen=True)
class RowRule:
    """How a row becomes a prepared row.

    Parameters
    ----------
    centre : array of shape (D,) or None
        Subtracted first. Released or public, never computed from rows without noise.
    bound : float
        Rows longer than this are shortened to it, then all are divided by it; 0 makes every row a
        unit row (a zero row stays zero).
    precision : {"single", "double"}
        Arithmetic and with it the rounding of entries: to multiples of 2**-9 or 2**-18.
    extra_bits : int
        Finer rounding, for statistics that do not multiply entries by one another (at most 2), or
        coarser (negative), for noise that must live on a coarser grid.
    """

    centre: NDArray[np.float64] | None = None
    bound: float = 0.0
    precision: Precision = "double"
    extra_bits: int = 0

    def kind(self) -> tuple[Any, ...]:
        """Everything that decides what a row becomes."""
        return (self.centre, self.bound, self.precision, self.extra_bits)

    @property
    def bits(self) -> int:
        """Prepared entries are integer multiples of ``2**-bits``."""
        return BITS[self.precision] + self.extra_bits

    @property
    def exact_below(self) -> float:
        """Integers below this magnitude add up exactly in the arithmetic."""
        return math.ldexp(1.0, MANTISSA[self.precision])

    def __call__(
        self, block: Block, out: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Prepare a block of n rows, into ``out`` if given.

        Returns
        -------
        rows : array of shape (n, D)
            Integer-valued, each row's norm at most ``2**bits``.
        squares : array of shape (n,)
            Their squared norms, exact.
        """
        key = (id(self.centre), self.bound, self.precision, self.extra_bits)
        if key in block.prepared:  # another sum of the same pass has the same rule
            ready, squares = block.prepared[key]
            if out is not None:
                out[...] = ready
                ready = out
            return ready, squares
        rows, norms = block.residuals(self.centre, self.precision)
        radius = math.ldexp(1.0, self.bits)
        longest = np.maximum(norms, self.bound)
        longest[longest == 0.0] = np.inf  # a zero row stays zero
        rows, longest = _within_range(rows, longest)
        factors = (radius * self._margin(rows.shape[1])) / longest
        block.prepared[key] = integer_rows(rows, factors, radius, out)
        return block.prepared[key]

    def _margin(self, features: int) -> float:
        """A public factor just under 1, so that rounding seldom lengthens a row past the bound.

        Rounding adds features/12 to the squared norm (of ``4**bits``) and about
        ``2**bits / sqrt(3)`` of spread; two spreads leave a few rows in a hundred to mend.
        """
        four = math.ldexp(1.0, 2 * self.bits)
        spread = math.ldexp(1.0, self.bits) / math.sqrt(3.0)
        return math.sqrt(max(0.25, 1.0 - (features / 12.0 + 2.0 * spread) / four))


class InvalidPlace(NamedTuple):
    """What is wrong with a row; numbers count from 0 within its block."""

    row: int
    column: int | None
    what: str
    """As the end of a sentence that begins with the row and the column."""


class Block:
    """Consecutive rows and where they come from.

    Parameters
    ----------
    values : array of shape (n, D), floating
        Rows with an entry that is not finite are invalid, and taken for zero rows.
    origin : str
        The file, for messages to the owner of the rows.
    first_row : int
        Number of the first row within ``origin``, from 0.
    nan : str
        What an entry that is not a number was, for the same messages.

    Attributes
    ----------
    prepared : dict
        What rules made of the rows, for the sums of one pass: callers must not write to it.
    invalid : int
        How many rows are invalid: known, as is ``first_invalid``, once a sum has prepared the rows.
        For the owner of the rows only.
    first_invalid : InvalidPlace or None
        The first of them.
    """

    def __init__(
        self, values: FloatArray, *, origin: str = "", first_row: int = 0, nan: str = "nan"
    ) -> None:
        self.values = values
        self._nan = nan
        self.origin = origin
        self.first_row = first_row
        self.prepared: dict[tuple[Any, ...], tuple[FloatArray, FloatArray]] = {}
        self.invalid = 0
        self.first_invalid: InvalidPlace | None = None
        self._residuals: dict[tuple[int, Precision], tuple[FloatArray, NDArray[np.float64]]] = {}

    def residuals(
        self, centre: NDArray[np.float64] | None, precision: Precision
    ) -> tuple[FloatArray, NDArray[np.float64]]:
        """Rows less the centre and their norms; computed once for all statistics of a pass.

        Those of invalid rows are zero. Entries that leave the arithmetic's range become the largest
        that it has. The arrays are shared: callers must not write to them.
        """
        key = (id(centre), precision)
        if key not in self._residuals:
            dtype = DTYPE[precision]
            with np.errstate(over="ignore", invalid="ignore"):  # such rows are mended
                rows: FloatArray = np.asarray(self.values, dtype=dtype, order="C")
                if centre is not None:
                    rows = np.asarray(rows - centre.astype(dtype))
            norms = row_norms(rows)
            broken = np.flatnonzero(np.isnan(norms))
            if broken.size:
                rows, norms = self._mended(rows, norms, broken)
            self._residuals[key] = (rows, norms)
        return self._residuals[key]

    def check(self) -> None:
        """Find the invalid rows where no sum is to be made of them."""
        self.residuals(None, "double" if self.values.dtype == np.float64 else "single")

    def _mended(
        self, rows: FloatArray, norms: NDArray[np.float64], broken: NDArray[np.intp]
    ) -> tuple[FloatArray, NDArray[np.float64]]:
        """Residuals without entries that are not finite, in the rows that have some."""
        stored = np.asarray(np.isfinite(self.values[broken]))
        valid = np.asarray(stored.all(axis=1))
        largest = np.finfo(rows.dtype).max
        mended = rows.copy()
        mended[broken] = np.where(valid[:, None], np.clip(rows[broken], -largest, largest), 0)
        norms[broken] = row_norms(mended[broken])
        self.invalid = int(np.count_nonzero(~valid))
        if self.invalid:
            first = int(np.argmin(valid))
            row, column = int(broken[first]), int(np.argmin(stored[first]))
            entry = self.values[row, column]
            what = self._nan if np.isnan(entry) else entry
            self.first_invalid = InvalidPlace(row, column, f"is {what}")
        return mended, norms


def row_norms(rows: FloatArray) -> NDArray[np.float64]:
    """Euclidean norms, shape (n,), rounded up a little: functions of each row alone.

    NaN for a row with an entry that is not finite.
    """
    return upper_norms(rows)


# Times that a row which rounding made too long is shortened; one or two do.
_MENDS = 8


def integer_rows(
    rows: FloatArray,
    factors: NDArray[np.float64],
    radius: float,
    out: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Rows times their factors, rounded to integers with no norm above ``radius``.

    Rows that rounding made too long are shortened a little and rounded again. What a row becomes
    depends on that row alone: its squared norm, returned second, is computed exactly.
    """
    limit = radius * radius
    narrow = factors.astype(rows.dtype)
    rounded = np.multiply(rows, narrow[:, None], out=out)
    np.rint(rounded, out=rounded)
    squares = squared_norms(rounded)
    long = np.flatnonzero(squares > limit)
    for attempt in range(_MENDS):
        if long.size == 0:
            return rounded, squares
        if attempt < _MENDS - 1:  # shorten by what the rounding added, and a little more
            narrow[long] *= np.sqrt(limit / squares[long]) * (1.0 - 0.5 / radius)
            rounded[long] = np.rint(rows[long] * narrow[long, None])
        else:  # rounding towards zero is shorter for certain
            rounded[long] = np.trunc(rows[long] * narrow[long, None])
        squares[long] = squared_norms(rounded[long])
        long = long[squares[long] > limit]
    if long.size:
        raise AssertionError("a prepared row is longer than its bound: a defect")
    return rounded, squares


def _within_range(
    rows: FloatArray, longest: NDArray[np.float64]
) -> tuple[FloatArray, NDArray[np.float64]]:
    """Rows whose factor would leave the arithmetic's range, moved to unit size by powers of 2."""
    extreme = np.flatnonzero((longest < 1e-30) | ((longest > 1e30) & np.isfinite(longest)))
    if extreme.size == 0:
        return rows, longest
    _, exponents = np.frexp(longest[extreme])
    moved = np.array(rows)
    moved[extreme] = np.ldexp(rows[extreme], -exponents[:, None].astype(np.int32))
    longest[extreme] = np.ldexp(longest[extreme], -exponents)
    return moved, longest
