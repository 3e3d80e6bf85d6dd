"""Rows made ready: centred, of norm at most 1, and rounded to integers, each by itself.

A prepared row is ``q * 2**-bits`` with an integer vector q and ``|q| <= 2**bits``: sums are exact,
and their sensitivity is the one proved (Casacuberta et al. 2022 show what rounding can cost). An
invalid row becomes a zero row and is not counted (docs/proofs/missing.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.norms import (
    FloatArray,
    integer_rows,
    squared_norms,
    upper_norms,
    within_range,
)
from eigenveil.moments.preparation import AS_IT_IS, Apart, Preparation
from eigenveil.origins import Origin

Precision = Literal["single", "double"]
Weighting = Literal["none", "linear", "square"]
"""How rows count with their weights: not, in sums of rows, or in sums of products of two."""

# Bits of a prepared entry, by arithmetic. Products of two entries then have 18 of 24 bits, or 36 of
# 53, and the rest is room for adding rows up before the sum moves to a 64-bit integer.
BITS: dict[Precision, int] = {"single": 9, "double": 18}
MANTISSA: dict[Precision, int] = {"single": 24, "double": 53}
DTYPE: dict[Precision, Any] = {"single": np.float32, "double": np.float64}


class RowWeights(NamedTuple):
    """With what weight rows count, of which a unit has several (tables.md, section 1)."""

    divisors: NDArray[np.int64]  # A row counts 1 over this; 0 for a row that does not count at all
    # The row's number among its unit's in this pass, from 0; below the divisor
    ranks: NDArray[np.int64]

    def shares(self, whole: int) -> NDArray[np.int64]:
        """Each row's part of ``whole``, a whole number: those of a unit's rows never exceed it."""
        divisors = np.maximum(self.divisors, 1)
        steps = (whole * (self.ranks + 1)) // divisors - (whole * self.ranks) // divisors
        return np.asarray(np.where(self.divisors > 0, steps, 0))

    def limits(self, whole: int, power: int) -> NDArray[np.float64]:
        """``floor(whole / divisor**power)``, exact; 0 of rows that do not count."""
        divided = whole // np.maximum(self.divisors, 1) ** power
        return np.where(self.divisors > 0, divided, 0).astype(np.float64)


# Largest divisor: its square, and a share of 2**30 times a rank, stay within 64 bits.
MOST_ROWS_A_UNIT = 1 << 31

# Columns that rows are seen through before all products of two are taken.
MOST_SEEN = 20


@dataclass(frozen=True)
class RowRule:
    """How a row becomes a prepared row."""

    # Subtracted first. Released or public, never computed from rows without noise.
    center: NDArray[np.float64] | None = None
    # Rows longer than this are shortened to it, then all are divided by it; 0 makes every row a
    # unit row (a zero row stays zero)
    bound: float = 0.0
    # Arithmetic and with it the rounding of entries: to multiples of 2**-9 or 2**-18
    precision: Precision = "double"
    # Finer rounding, for statistics that do not multiply entries by one another (at most 2), or
    # coarser (negative), for noise that must live on a coarser grid
    extra_bits: int = 0
    preparation: Preparation = AS_IT_IS  # What comes first. Centre and bound are in its units.
    # Public or released. A row is then what is seen of it through the columns, `basis.T x`,
    # shortened to `clip` and divided by it. Of norm at most 1 for any basis
    # (docs/proofs/adaptive.md).
    basis: NDArray[np.float64] | None = None
    clip: float = 1.0  # Used with a basis only
    # Whether a row is then all products of two entries of what is seen of it, of norm at most 1
    # (docs/proofs/ica.md). With a basis only.
    products: bool = False
    # Categories whose columns the preparation leaves out. Without a basis only.
    apart: Apart | None = None

    def merge_key(self) -> tuple[Any, ...]:
        own = (self.center, self.bound, self.precision, self.extra_bits, self.basis, self.clip)
        apart = () if self.apart is None else (str(self.apart),)
        return (*own, self.products, *apart, *self.preparation.merge_key())

    def width(self, features: int) -> int:
        """Entries of a prepared row, of rows with so many features."""
        seen = features if self.basis is None else self.basis.shape[1]
        return seen * (seen + 1) // 2 if self.products else seen

    @property
    def bits(self) -> int:
        """Prepared entries are integer multiples of ``2**-bits``."""
        return BITS[self.precision] + self.extra_bits

    @property
    def exact_below(self) -> float:
        """Integers below this magnitude add up exactly in the arithmetic."""
        return math.ldexp(1.0, MANTISSA[self.precision])

    def __call__(
        self, block: Block, out: FloatArray | None = None, *, weighting: Weighting = "square"
    ) -> tuple[FloatArray, FloatArray]:
        """Prepare a block of n rows, into ``out`` if given."""
        if block.weights is None:
            weighting = "none"
        key = (
            *(id(self.center), id(self.preparation), id(self.basis), self.clip, self.products),
            *(self.bound, self.precision, self.extra_bits, weighting, self.apart),
        )
        # also where another sum of the pass has the same rule: it says which rows are left out
        residuals = block.residuals(self.center, self.precision, self.preparation)
        if key in block.prepared:
            ready, squares = block.prepared[key]
            if out is not None:
                out[...] = ready
                ready = out
            return ready, squares
        whole = limits = self.limits(block, weighting)
        if self.apart is not None:
            limits = whole - len(self.apart.categories) * self.apart.entries(whole) ** 2
        if self.basis is None:
            rows, norms = residuals
            longest = np.maximum(norms, self.bound)
        elif self.products:
            rows = products_of(self._seen(block, weighting="none")[0], block)
            longest = np.maximum(upper_norms(rows), math.ldexp(1.0, 2 * self.bits))
        else:
            # exact integers, so that a row does not depend on its neighbours in the block
            rows, norms = seen_through(*self._integers, replace(self, basis=None), block)
            unit = math.ldexp(self.clip, self.bits + basis_bits(self.precision))
            longest = np.maximum(norms, unit)
        if not longest.all():
            longest[longest == 0.0] = np.inf  # a zero row stays zero
        rows, longest = within_range(rows, longest)
        factors = (np.sqrt(limits) * self._margin(rows.shape[1], limits)) / longest
        if out is None:
            out = block.new(rows.shape, rows.dtype)
        found = integer_rows(rows, factors, limits, out)
        block.prepared[key] = found if self.apart is None else self._beside(block, found[0], whole)
        return block.prepared[key]

    def _beside(
        self, block: Block, ready: FloatArray, whole: NDArray[np.float64] | float
    ) -> tuple[FloatArray, FloatArray]:
        """Prepared rows with their levels' entries, and their exact squared norms."""
        assert self.apart is not None
        levels = self.apart.levels(block.values)
        levels[block.left_out] = False
        entries = np.broadcast_to(self.apart.entries(whole), levels.shape[:1])
        ready[:, self.apart.columns] = levels * entries[:, None]
        return ready, squared_norms(ready)

    @cached_property
    def _seen(self) -> RowRule:
        """The rule of what is seen of a row, before it is multiplied."""
        return replace(self, products=False)

    @cached_property
    def _integers(self) -> tuple[FloatArray, FloatArray | None]:
        assert self.basis is not None
        return scaled_basis(self.basis, self)

    def limits(self, block: Block, weighting: Weighting) -> NDArray[np.float64] | float:
        """Largest squared norm of each prepared row: whole numbers, and one where all agree."""
        whole = 1 << (2 * self.bits)
        if block.weights is None or weighting == "none":
            return float(whole)
        return block.weights.limits(whole, 1 if weighting == "square" else 2)

    def _margin(self, features: int, limits: NDArray[np.float64] | float) -> Any:
        """A public factor just under 1, so that rounding seldom lengthens a row past the bound."""
        # rounding adds features/12 to the squared norm (of 4**bits) and about 2**bits / sqrt(3) of
        # spread; two spreads leave a few rows in a hundred to mend
        four = np.maximum(limits, 1.0)
        spread = np.sqrt(four / 3.0)
        return np.sqrt(np.maximum(0.25, 1.0 - (features / 12.0 + 2.0 * spread) / four))


_NONE = np.zeros(0, dtype=np.intp)


class InvalidPlace(NamedTuple):
    """What is wrong with a row; numbers count from 0 within its block."""

    row: int
    column: int | None
    what: str
    """As the end of a sentence that begins with the row and the column."""


# Rows, their norms, and which of them are left out.
_Residuals = tuple[FloatArray, NDArray[np.float64], NDArray[np.intp]]


class Room:
    """Memory for the arrays of one block, and then of the next: new memory costs a pass as much as
    its sums do, for the system clears it page by page.
    """

    def __init__(self) -> None:
        self._buffers: list[NDArray[np.uint8]] = []
        self._next = 0

    def array(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array of whatever was there before."""
        size, kind = math.prod(shape), np.dtype(dtype)
        if self._next == len(self._buffers):
            self._buffers.append(np.empty(0, np.uint8))
        if self._buffers[self._next].size < size * kind.itemsize:
            self._buffers[self._next] = np.empty(size * kind.itemsize, np.uint8)
        found = self._buffers[self._next][: size * kind.itemsize]
        self._next += 1
        made: NDArray[Any] = found.view(kind).reshape(shape)
        return made

    def clear(self) -> None:
        """No array of the block is used any more."""
        self._next = 0


class Block:
    """Consecutive rows and where they come from."""

    room: Room | None = None  # Where its arrays may lie; None: each in new memory

    def __init__(
        self,
        values: FloatArray,
        *,
        origin: Origin | str = "",
        first_row: int = 0,
        nan: str = "nan",
        units: NDArray[Any] | None = None,
        weights: RowWeights | None = None,
    ) -> None:
        self.values = values
        self.units, self.weights = units, weights
        self._nan = nan
        self.origin = Origin(origin) if isinstance(origin, str) else origin
        self.first_row = first_row
        self.prepared: dict[tuple[Any, ...], tuple[FloatArray, FloatArray]] = {}
        self.invalid = self.unidentified = 0
        self.first_invalid: InvalidPlace | None = None
        self.left_out: NDArray[np.intp] = _NONE
        self._residuals: dict[tuple[Any, ...], _Residuals] = {}

    def residuals(
        self,
        center: NDArray[np.float64] | None,
        precision: Precision,
        preparation: Preparation = AS_IT_IS,
    ) -> tuple[FloatArray, NDArray[np.float64]]:
        """Rows less the centre and their norms, once for all statistics: not to be written to.

        Those of invalid rows are zero. Entries that leave the arithmetic's range become its
        largest.
        """
        key = (id(center), precision, id(preparation))
        if key not in self._residuals:
            dtype = DTYPE[precision]
            with np.errstate(over="ignore", invalid="ignore"):  # such rows are mended
                rows = preparation.less(self.values, center, dtype, self.new)
                if preparation.effects is not None:
                    rows = preparation.effects.taken_off(rows)
            norms = row_norms(rows)
            whole = not math.isnan(norms.max(initial=0.0))
            broken = _NONE if whole else np.flatnonzero(np.isnan(norms))
            if preparation.limit != math.inf or preparation.effects is not None:
                # what is not finite may have been clipped
                hidden = ~np.isfinite(self.values).all(axis=1)
                broken = np.flatnonzero(hidden | np.isnan(norms))
            left_out = _NONE
            if broken.size:
                rows, norms, left_out = self._mended(rows, norms, broken, holes=preparation.holes)
            self._residuals[key] = (rows, norms, left_out)
        rows, norms, self.left_out = self._residuals[key]
        return rows, norms

    def new(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array that is needed for as long as the block."""
        return np.empty(shape, dtype) if self.room is None else self.room.array(shape, dtype)

    def taking_part(self, each: NDArray[Any]) -> NDArray[Any]:
        """What belongs to each row, without those of rows that are left out."""
        return np.delete(each, self.left_out, axis=0) if self.left_out.size else each

    def check(self) -> None:
        """Find the invalid rows where no sum is to be made of them."""
        self.residuals(None, "double")

    def _mended(
        self,
        rows: FloatArray,
        norms: NDArray[np.float64],
        broken: NDArray[np.intp],
        *,
        holes: bool,
    ) -> _Residuals:
        """Residuals of rows with entries that are not finite; with ``holes`` NaN is none."""
        given = self.values[broken]
        empty = np.isnan(given) if holes else np.zeros(given.shape, dtype=np.bool_)
        found = np.asarray(np.isfinite(given) & ~np.isnan(rows[broken]) | empty)
        valid = np.asarray(found.all(axis=1))
        largest = np.finfo(rows.dtype).max
        mended = rows.copy()
        clipped = np.clip(rows[broken], -largest, largest)
        mended[broken] = np.where(valid[:, None] & ~empty, clipped, 0)
        norms[broken] = row_norms(mended[broken])
        if holes:
            observed = np.maximum(1, rows.shape[1] - np.count_nonzero(empty, axis=1))
            norms[broken] *= np.sqrt(rows.shape[1] / observed)
        left_out = broken[~valid]
        self.invalid = left_out.size
        if self.invalid:
            first = int(np.argmin(valid))
            row, column = int(broken[first]), int(np.argmin(found[first]))
            entry = self.values[row, column]
            what = self._nan if np.isnan(entry) else entry
            self.first_invalid = InvalidPlace(row, column, f"is {what}")
        return mended, norms, left_out


# Rounded up a little; NaN for a row with an entry that is not finite.
row_norms = upper_norms


# -- Rows seen through a basis.

_MOST_DIGITS = 40  # Squares of what is seen through so short a column stay in single precision


def basis_bits(precision: Precision) -> int:
    """Bits of a basis entry: the projection of a prepared row stays exact (norms below 1.9)."""
    return 14 if precision == "single" else 33


def integer_basis(basis: NDArray[np.float64], rule: RowRule) -> FloatArray:
    """A basis in integers of the rule's arithmetic, in units of ``2**-basis_bits``."""
    bits = basis_bits(rule.precision)
    return np.asarray(np.rint(np.ldexp(basis, bits)).astype(DTYPE[rule.precision]))


def scaled_basis(basis: NDArray[np.float64], rule: RowRule) -> tuple[FloatArray, FloatArray | None]:
    """The same, and in what powers of 2 each column is to be taken: ``None``, all in 1.

    In single precision, so that a short column has as many digits as a long one.
    """
    if rule.precision == "double":
        return integer_basis(basis, rule), None
    lengths = np.linalg.norm(basis, axis=0)
    exponents = np.frexp(np.where(lengths > 0, lengths, 1.0))[1]
    units = np.clip(exponents, -_MOST_DIGITS, 0).astype(np.int32)
    return integer_basis(np.ldexp(basis, -units), rule), np.ldexp(np.float32(1.0), units)


def products_of(seen: FloatArray, block: Block) -> FloatArray:
    """Of whole numbers of each row all products of two, those of different ones times root 2.

    A row of norm r becomes one of norm r squared, but for rounding; each by itself.
    """
    first, second = np.tril_indices(seen.shape[1])
    found = block.new((seen.shape[0], first.size), seen.dtype)
    np.multiply(seen[:, first], seen[:, second], out=found)  # exact
    found *= np.where(first == second, 1.0, math.sqrt(2.0)).astype(seen.dtype)
    return found


def seen_through(
    basis: FloatArray, units: FloatArray | None, rule: RowRule, block: Block
) -> tuple[FloatArray, NDArray[np.float64]]:
    """Prepared rows times an integer basis, exactly, and the norms, rounded up a little."""
    rows, _ = rule(block, weighting="none")
    seen = np.matmul(rows, basis, out=block.new((rows.shape[0], basis.shape[1]), rows.dtype))
    if units is None:
        seen = seen.astype(np.float64, copy=False)
    else:
        seen *= units
    return seen, upper_norms(seen)
