"""Exact products and sums of integers of any size, and the description of a sum."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from eigenveil.moments.norms import FloatArray
from eigenveil.moments.rows import Precision, RowRule
from eigenveil.privacy.statistics import STATISTICS, StatisticName

_DOUBLE_EXACT = 2.0**53
# Integers of this size and less add up within 64 bits, two of them too.
INT64_EXACT = 2.0**62
# 64-bit integers, or Python's where those do not hold them.
Integers = NDArray[Any]
_ROWS_FOR_MARGIN = 1 << 16
# Of fewer rows at once, products cost more than those that are tried in vain.
_FEWEST_A_PRODUCT = 512


def gram_parts(rows: FloatArray, exact_below: float) -> Iterator[tuple[FloatArray, int]]:
    """Exact matrices that add up to ``rows.T @ rows``, each with its number of rows."""
    # exact, as every partial sum is at most the larger of two columns' sums of squares: the
    # diagonal has them, and where that is too large the rows are halved
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
    """An array of integer sums: floats while they are exact, integers beyond."""

    def __init__(self, shape: tuple[int, ...], *, largest_term: float) -> None:
        self.shape = shape
        self.largest_term = largest_term
        self._pending: FloatArray | None = None  # made with the first part: it may be large
        self._pending_rows = 0
        self._settled: IntegerSum | None = None
        self._rows_a_product = sys.maxsize

    def add_gram(self, rows: FloatArray, exact_below: float) -> None:
        """Add ``rows.T @ rows``, of rows of integers."""
        while rows.shape[0]:
            some, rows = rows[: self._rows_a_product], rows[self._rows_a_product :]
            for part, count in gram_parts(some, exact_below):
                self.add(part, count)
                # a product that was not exact is lost: the next ones begin with fewer rows
                if count < some.shape[0]:
                    fewer = min(self._rows_a_product, count)
                    self._rows_a_product = max(_FEWEST_A_PRODUCT, fewer)

    def add(self, part: FloatArray, rows: int) -> None:
        """Add exact integers that ``rows`` rows contributed."""
        if (self._pending_rows + rows) * self.largest_term > _DOUBLE_EXACT:
            self._flush()
        if self._pending is None:
            self._pending = np.zeros(self.shape)
        self._pending += part
        self._pending_rows += rows

    def merge(self, other: ExactSum) -> None:
        """Add another sum of the same kind; it is left unchanged."""
        if other._pending is not None:
            self.add(other._pending, other._pending_rows)
        if other._settled is not None:
            self._flush()
            assert self._settled is not None
            self._settled.merge(other._settled)

    def integers(self) -> Integers:
        floats = np.zeros(self.shape) if self._pending is None else self._pending
        pending = floats.astype(np.int64)
        return pending if self._settled is None else sum_of(self._settled.integers(), pending)

    def _flush(self) -> None:
        if self._settled is None:
            self._settled = IntegerSum(self.shape, largest_term=self.largest_term)
        if self._pending is not None:
            self._settled.add(self._pending.astype(np.int64), self._pending_rows)
            self._pending.fill(0.0)
            self._pending_rows = 0


_LOW_BITS = 32
_LOW = (1 << _LOW_BITS) - 1


class IntegerSum:
    """An array of sums of 64-bit integers, of any size."""

    def __init__(self, shape: tuple[int, ...], *, largest_term: float) -> None:
        self._largest_term = largest_term
        self._low = np.zeros(shape, dtype=np.int64)
        self._most = 0.0  # that an entry of the low part can be
        # in units of 2**32; made when the low part could leave 64 bits
        self._high: NDArray[np.int64] | None = None

    def add(self, part: NDArray[np.int64], rows: int) -> None:
        """Add what ``rows`` rows contributed, at most ``2**62`` an entry."""
        self._make_room(rows * self._largest_term)
        self._low += part

    def merge(self, other: IntegerSum) -> None:
        """Add another sum of the same kind; it is left unchanged."""
        self._make_room(other._most)
        self._low += other._low
        if other._high is not None:
            self._high = other._high.copy() if self._high is None else self._high + other._high

    def integers(self) -> Integers:
        """The sums, as a new array: of Python's integers where 64 bits might not hold them."""
        if self._high is None:
            return self._low.copy()
        return np.asarray((self._high.astype(object) << _LOW_BITS) + self._low)

    def _make_room(self, more: float) -> None:
        """Carry, where the low part might no longer hold so much more."""
        if self._most + more > INT64_EXACT:
            carried = self._low >> _LOW_BITS
            self._high = carried if self._high is None else self._high + carried
            self._low &= _LOW
            self._most = float(_LOW)
        self._most += more


def sum_of(first: Integers, second: Integers) -> Integers:
    """The exact sum of two arrays of integers, of 2**62 at the most where both have 64 bits."""
    if first.dtype != second.dtype:
        return np.asarray(first.astype(object) + second.astype(object))
    return np.asarray(first + second)


def appended(integers: Integers, number: int) -> Integers:
    """Integers with one more at the end."""
    if abs(number) > INT64_EXACT:
        integers = integers.astype(object)
    return np.append(integers, np.array([number], dtype=integers.dtype))


def largest_of(integers: Integers) -> float:
    """The largest magnitude, 0 of none."""
    return float(max(int(integers.max(initial=0)), -int(integers.min(initial=0))))


def scaled_sum(integers: Integers, factor: int, bits: int, other: NDArray[np.int64]) -> Integers:
    """``(integers * factor << bits) + other`` exactly; ``integers`` is written to."""
    largest = largest_of(integers) * factor * 2.0**bits + largest_of(other)
    if integers.dtype != object and largest > 2.0 * INT64_EXACT - 2048.0:  # 64 bits, and a rounding
        integers = integers.astype(object)
    integers *= factor
    integers <<= bits
    integers += other
    return integers


def modulo(integers: Integers) -> NDArray[np.int64]:
    """The integers modulo ``2**64``, as 64-bit integers with a sign."""
    if integers.dtype != object:
        return integers
    return np.asarray(integers & ((1 << 64) - 1)).astype(np.uint64).view(np.int64)


# -- A sum in plain values: what an accumulator states of itself, and is made of in another process.
#
# The description states what to add up, never how large its sensitivity is: whoever rebuilds it
# works that out from what was rebuilt.

Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# A row counts for at most its largest norm.
Weight = Annotated[float, Field(ge=0, le=1)]
# In units of a row's largest squared norm, as it is seen.
Variance = Annotated[float, Field(ge=0, le=1)]
# Far below any clipping of use; shorter, a zero row could no longer be divided by it.
SHORTEST_SEEN = 2.0**-20

Squares = Literal["none", "trace", "diag", "full", "tied"]
"""What sums of expectation maximisation release of products of two columns."""


class MixtureSpec(BaseModel):
    """The mixture that sums of expectation maximisation are about; its arrays travel beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    components: int = Field(gt=0, le=4096)
    squares: Squares
    form: Literal["spherical", "diag", "full"]

    def shapes(self, features: int) -> dict[str, tuple[int, ...]]:
        """Shapes of its arrays; matrices of components stand one below the other."""
        count = self.components
        factors = {"spherical": (count, 1), "diag": (count, features)}
        return {
            "means": (count, features),
            "logs": (count,),
            "factors": factors.get(self.form, (count * features, features)),
            "reaches": (count,),
        }


class Description(BaseModel):
    """What an accumulator adds up, never how sensitive that is; its arrays travel beside it.

    A norm histogram with columns is one of what is seen of rows; with ``of``, of what documents
    contribute to the sum of that name, to which the other fields belong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: StatisticName
    of: StatisticName | None = None
    features: int = Field(gt=0)
    precision: Precision
    bound: Finite = 0.0
    extra_bits: int = Field(default=0, ge=-17, le=2)
    weighted: bool = False
    count_weight: Weight = 0.0
    clip: float = Field(default=1.0, ge=SHORTEST_SEEN, le=1)
    centered: bool = False
    # Of so many sites a centre each; and a sum of each
    centers: int = Field(default=0, ge=0, exclude_if=operator.not_)
    blocks: int = Field(default=0, ge=0, exclude_if=operator.not_)
    offset: bool = False
    scaled: bool = False
    limit: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    holes: bool = False
    covariates: tuple[Annotated[int, Field(ge=0)], ...] = ()
    columns: int = Field(default=0, ge=0)
    variance: Variance = 0.0
    nuclear: bool = False
    categories: bool = False
    mixture: MixtureSpec | None = None
    cells: int = Field(default=0, ge=0)
    groups: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(), exclude_if=operator.not_)
    products: bool = False
    apart: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...] = Field(
        default=(), exclude_if=operator.not_
    )
    level: float = Field(default=0.0, ge=0, lt=1, exclude_if=operator.not_)

    @property
    def with_basis(self) -> bool:
        """Whether an array of shape (features, columns) belongs to it."""
        statistic = STATISTICS[self.of or self.kind]
        return statistic.needs_basis or (statistic.may_have_basis and self.columns > 0)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays that belong to it."""
        shapes: dict[str, tuple[int, ...]] = {}
        of_columns = {
            "center": self.centered,
            "offset": self.offset,
            "scale": self.scaled,
            "variables": self.categories,
        }
        shapes |= {name: (self.features,) for name, there in of_columns.items() if there}
        if self.centered and self.centers:
            shapes["center"] = (self.centers, self.features)
        if self.with_basis:
            shapes["basis"] = (self.features, self.columns)
        if self.covariates:
            shapes["effects"] = (self.features, len(self.covariates))
        return shapes | ({} if self.mixture is None else self.mixture.shapes(self.features))


@dataclass(frozen=True)
class Spec:
    """What an accumulator states of itself: fields of a description, and its arrays."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


# Of a rule, what some sums take by themselves.
_OF_RULE = ("center", "bound", "precision", "preparation")


def spec_of(
    rule: RowRule | None = None,
    *,
    basis: NDArray[np.float64] | None = None,
    variables: NDArray[np.float64] | None = None,
    **fields: Any,
) -> Spec:
    """Of a sum of rows prepared by a rule, given whole or in parts."""
    if rule is None:
        rule = RowRule(**{name: fields.pop(name) for name in _OF_RULE if name in fields})
    first = rule.preparation
    found: dict[str, Any] = {
        "precision": rule.precision,
        "bound": rule.bound,
        "extra_bits": rule.extra_bits,
        "centered": rule.center is not None,
        "centers": 0 if rule.center is None or rule.center.ndim == 1 else len(rule.center),
        "offset": first.offset is not None,
        "scaled": first.scale is not None,
        "limit": None if first.limit == math.inf else first.limit,
        "holes": first.holes,
        "categories": variables is not None,
    }
    arrays = {"center": rule.center, "offset": first.offset, "scale": first.scale, "basis": basis}
    arrays["variables"] = variables
    if first.effects is not None:
        found["covariates"] = first.effects.columns
        arrays["effects"] = first.effects.sizes
    if rule.apart is not None:
        found |= {"apart": rule.apart.categories, "level": rule.apart.length}
    if rule.basis is not None:
        found["clip"] = rule.clip
        found["products"] = rule.products
        arrays["basis"] = basis = rule.basis
    if basis is not None:
        found["columns"] = basis.shape[1]
    return Spec(
        found | fields, {name: array for name, array in arrays.items() if array is not None}
    )
