"""What is done to entries of rows before all else, by public or released numbers.

Each row by itself, so that no sensitivity changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments import loops
from eigenveil.moments.norms import FloatArray

# What may be asked of rows, so that no product of such numbers leaves the arithmetic but by way of
# a row's own entries: centres and middles are no larger, bounds and scales in between (or 0),
# limits far within single precision.
SMALLEST_ASKED, LARGEST_ASKED, LARGEST_LIMIT = 1e-150, 1e150, 1e30
_FAR_WITHIN_SINGLE = 1e30

# Between these, entries are taken, so that no product with an effect leaves the arithmetic.
_LARGEST_BESIDE: dict[Any, float] = {np.dtype(np.float32): 1e25, np.dtype(np.float64): 1e250}
LARGEST_EFFECT = 1e6


@dataclass(frozen=True, eq=False)
class Effects:
    """Linear effects of some columns on the others, to be taken off (tables.md, section 4)."""

    columns: tuple[int, ...]  # The q covariates, in the order of the effects' columns
    # Released; of magnitude 1e6 at most. Those on covariates are not looked at.
    sizes: NDArray[np.float64]

    def taken_off(self, rows: FloatArray) -> FloatArray:
        """``x - B z`` of each row, and 0 in the covariates' columns, entry by entry."""
        # a matrix product would round a row differently beside others (docs/proofs/release-grid.md)
        most = _LARGEST_BESIDE[rows.dtype]
        found = np.clip(rows, -most, most)
        given = found[:, list(self.columns)]
        for index in range(len(self.columns)):
            sizes = self.sizes[:, index].astype(rows.dtype)
            found -= given[:, index, None] * sizes
        found[:, list(self.columns)] = 0.0
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class Preparation:
    """Entries become ``clip((x - offset) / scale, -limit, limit)`` before anything else.

    By public or released numbers, each row by itself, so that no sensitivity changes.
    """

    # In the data's units; 0 and 1 where there are none. A column of scale 0 becomes 0. No scale is
    # so small that one over it is infinite.
    offset: NDArray[np.float64] | None = None
    scale: NDArray[np.float64] | None = None
    limit: float = math.inf  # In scales; infinite for none
    # Whether an entry that is not a number was not observed, rather than wrong: it becomes the
    # centre's, and the row's norm that of a whole row, `|x_observed| sqrt(D / observed)`
    holes: bool = False
    # Of covariates, in the units that entries then have. They are taken off when the centre was
    # subtracted, not by calling this.
    effects: Effects | None = None

    def merge_key(self) -> tuple[Any, ...]:
        effects = self.effects
        return (
            *(self.offset, self.scale, self.limit, self.holes),
            *((None, None) if effects is None else (effects.columns, effects.sizes)),
        )

    @cached_property
    def factors(self) -> NDArray[np.float64] | None:
        if self.scale is None:
            return None
        some = self.scale > 0
        return np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=some)

    def __call__(self, values: FloatArray, dtype: Any) -> FloatArray:
        """The entries of some rows; those that are not finite are left for the caller."""
        return self.less(values, None, dtype)

    def less(
        self,
        values: FloatArray,
        center: NDArray[np.float64] | None,
        dtype: Any,
        new: loops.New = np.empty,
    ) -> FloatArray:
        """The same, less a centre, in an array that ``new(shape, dtype)`` makes."""
        # nothing of how a number is stored may show: only the wanted arithmetic decides
        # a centre may be so far off that single precision does not show what is left of an entry
        near = center is None and (self.is_nothing or self._within_single)
        return loops.prepared(
            values,
            kind=np.float32 if near and dtype == np.float32 else np.float64,
            dtype=dtype,
            offset=self.offset,
            factors=self.factors,
            limit=self.limit,
            center=center,
            new=new,
        )

    @cached_property
    def is_nothing(self) -> bool:
        """Whether entries stay as they are."""
        return self.offset is None and self.scale is None and self.limit == math.inf

    @cached_property
    def _within_single(self) -> bool:
        """Whether offsets and factors are far within the range of single precision."""
        given = [each for each in (self.offset, self.factors) if each is not None]
        return all(bool(np.all(np.abs(each) < _FAR_WITHIN_SINGLE)) for each in given)


AS_IT_IS = Preparation()

# What levels leave of a row's squared norm at the least.
LEAST_KEPT = 0.25


@dataclass(frozen=True)
class Apart:
    """Categories whose levels are not shortened with a row's other entries (proofs/groups.md).

    A prepared row has ``length`` in the column of its level, and the others have what is left of
    its squared norm.
    """

    categories: tuple[tuple[int, ...], ...]  # Columns of each one's levels
    length: float

    @property
    def columns(self) -> list[int]:
        return [column for own in self.categories for column in own]

    @property
    def kept(self) -> float:
        """What is left of a squared norm of 1."""
        return 1.0 - len(self.categories) * self.length**2

    def entries(self, limits: NDArray[np.float64] | float) -> Any:
        """The whole numbers that stand for a level, where squared norms have these limits."""
        return np.floor(self.length * np.sqrt(limits))

    def levels(self, values: FloatArray) -> NDArray[np.bool_]:
        """Which columns are 1: of each category the first alone, whatever a row holds."""
        found = values[:, self.columns] == 1.0
        first = 0
        for own in self.categories:
            some = found[:, first : first + len(own)]
            some[:, 1:] &= ~np.logical_or.accumulate(some, axis=1)[:, :-1]
            first += len(own)
        return np.asarray(found)

    def left_out(self, preparation: Preparation, features: int) -> Preparation:
        """The same with 0 in their columns, which are then of no row's norm."""
        scale = np.ones(features) if preparation.scale is None else np.array(preparation.scale)
        scale[self.columns] = 0.0
        return replace(preparation, scale=scale)
