"""Mergeable sums over rows: exact monoids, which chunks, threads, files, sites and trees merge."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments import loops
from eigenveil.moments.exact import (
    Description,
    ExactSum,
    Integers,
    Spec,
    appended,
    product_parts,
    spec_of,
)
from eigenveil.moments.norms import FloatArray, integer_rows, squared_norms, upper_norms
from eigenveil.moments.preparation import Preparation
from eigenveil.moments.release import Release, release_sum, release_vectors
from eigenveil.moments.rows import DTYPE, Block, RowRule, RowWeights, basis_bits, integer_basis
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.calibration import Shape
from eigenveil.privacy.releases import ReleaseRecord
from eigenveil.privacy.statistics import STATISTICS, Layout, StatisticName


class Accumulator(ABC):
    """A mergeable sum over rows."""

    statistic: StatisticName
    """Its name in records."""
    prepares: ClassVar[bool] = True
    """Whether a rule's bits say how fine the entries are that are added up."""
    stores: ClassVar[bool] = False
    """Whether it writes prepared rows to its own memory: others then read them there."""
    adds: ClassVar[tuple[str, ...]] = ("_sum",)
    """What two of them merge: their attributes that are exact sums, or counts."""
    multiplies: ClassVar[bool] = True
    """Whether entries are multiplied, so that they cannot be finer than the rule's usual."""

    @property
    def layout(self) -> Layout:
        """In which coordinates its noise is isometric."""
        return STATISTICS[self.statistic].layout

    @property
    @abstractmethod
    def grid(self) -> int:
        """Its values are integer multiples of ``2**grid``."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of :meth:`integers`."""

    @property
    def size(self) -> int:
        """Number of independent coordinates."""
        return math.prod(self.shape)

    @property
    def parameters(self) -> dict[str, float]:
        """What its sensitivity depends on beyond its name."""
        return {}

    def calibrated_by(self) -> Shape:
        return Shape(self.statistic, self.shape, self.size, self.grid, self.parameters)

    def made_with(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _arguments(type(self))}

    def merge_key(self) -> tuple[Any, ...]:
        """Everything that two sums must share to be merged."""
        return tuple(key for value in self.made_with().values() for key in _keys(value))

    def empty(self) -> Self:
        """An empty accumulator of the same kind."""
        return type(self)(**self.made_with())

    def spec(self) -> Spec:
        """What another process needs to add up the same, and states the number of features by."""
        given = self.made_with()
        given.pop("features", None)
        return spec_of(**given)

    @classmethod
    def from_spec(cls, d: Description, known: Mapping[str, Any]) -> Self:
        """An empty one, as described; ``known`` are the arguments that were made, and arrays."""
        names = _arguments(cls)
        return cls(**{name: known[name] if name in known else getattr(d, name) for name in names})

    @abstractmethod
    def update(self, block: Block) -> None:
        """Add a block of rows."""

    def flush(self) -> None:
        return

    def merge(self, other: Self) -> None:
        """Add the rows that ``other`` has seen; it is left unchanged."""
        check_same_kind(self, other)
        other.flush()
        for name in self.adds:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, ExactSum):
                mine.merge(theirs)
            else:
                setattr(self, name, mine + theirs)

    def integers(self) -> Integers:
        """The sum, in units of ``2**grid``, as a new array."""
        self.flush()
        found: Integers = self._sum.integers()  # type: ignore[attr-defined]
        return found

    def release(self, record: ReleaseRecord, source: RandomSource) -> Release:
        """The sum with the recorded noise, or what its mechanism draws from it."""
        draw = release_sum if record.mechanism.added else release_vectors
        return draw(self, record, source)


@cache
def _arguments(kind: type[Accumulator]) -> tuple[str, ...]:
    return tuple(inspect.signature(kind).parameters)


def _keys(value: Any) -> tuple[Any, ...]:
    """What must be the same of one argument."""
    if isinstance(value, Accumulator):
        return (value.statistic, *value.merge_key())
    return value.merge_key() if isinstance(value, RowRule | Preparation) else (value,)


# A row of weight w is counted in whole parts of one over two to this.
WEIGHT_BITS = 24


def counted(block: Block, *, weighted: bool, bits: int = WEIGHT_BITS) -> NDArray[np.int64] | None:
    """What each row of a block counts, in units of ``2**-bits``; ``None`` where all count 1."""
    return shares_of(block.weights, block.values.shape[0], weighted=weighted, bits=bits)


def shares_of(
    weights: RowWeights | None, rows: int, *, weighted: bool, bits: int = WEIGHT_BITS
) -> NDArray[np.int64] | None:
    """The same of so many rows with some weights, or none."""
    if weights is None:
        return np.full(rows, 1 << bits) if weighted else None
    if not weighted:
        raise AssertionError("rows with weights in a sum without: a defect")
    return weights.shares(1 << bits)


class CountedSum(Accumulator):
    """A sum of rows, and with ``count_weight`` the count of those that are not left out."""

    adds = ("_sum", "_count")
    rule: RowRule
    count_weight: float
    _sum: ExactSum
    _count = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._sum.shape[0] + (self.count_weight > 0),)

    @property
    def _count_unit(self) -> int:
        """What one row adds to the count, on the sum's grid."""
        return round(math.ldexp(self.count_weight, -self.grid))

    def _count_rows(self, block: Block) -> None:
        """Count the rows of a block that is prepared, so that those left out are known."""
        if block.weights is None:
            self._count += (block.values.shape[0] - block.left_out.size) * self._count_unit
        else:
            shares = block.weights.shares(self._count_unit)
            self._count += int(block.taking_part(shares).sum())

    def integers(self) -> Integers:
        total = self._sum.integers()
        return total if self.count_weight == 0 else appended(total, self._count)


class RowSum(CountedSum):
    """Sum of prepared rows, in units of the bound; with ``count_weight`` also of the row count.

    With ``blocks`` the sum of each of so many sites, one after the other: rows add to the block of
    ``place`` alone, so that they move it no further than a sum of all.
    """

    statistic: StatisticName = "row-sum"
    multiplies = False

    def __init__(
        self,
        rule: RowRule,
        *,
        features: int,
        count_weight: float,
        blocks: int = 0,
        place: int | None = None,
    ) -> None:
        self.rule, self.features, self.count_weight = rule, features, count_weight
        self.blocks, self.place = blocks, place
        self._sum = ExactSum((rule.width(features),), largest_term=math.ldexp(1.0, rule.bits))

    @property
    def shape(self) -> tuple[int, ...]:
        (size,) = super().shape
        return (size * max(1, self.blocks),)

    def integers(self) -> Integers:
        own = super().integers()
        if not self.blocks:
            return own
        assert self.place is not None
        whole = np.zeros((self.blocks, own.size), own.dtype)
        whole[self.place] = own
        return whole.reshape(-1)

    def spec(self) -> Spec:
        given = self.made_with()
        del given["features"], given["place"]
        return spec_of(**given)

    @property
    def grid(self) -> int:
        return -self.rule.bits

    @property
    def parameters(self) -> dict[str, float]:
        return {"count_weight": math.ldexp(self._count_unit, -self.rule.bits)}

    def update(self, block: Block) -> None:
        rows, _ = self.rule(block, weighting="linear")
        step = int(self.rule.exact_below) >> self.rule.bits
        for start in range(0, rows.shape[0], step):
            part = rows[start : start + step]
            self._sum.add(np.ones(part.shape[0], part.dtype) @ part, part.shape[0])
        self._count_rows(block)


# Prepared rows that wait for a product: adding a product to the sum costs as much as 50 rows of it.
_ROWS_A_PRODUCT = 4096


class SecondMoment(Accumulator):
    """``X.T @ X`` of prepared rows."""

    statistic: StatisticName = "second-moment"
    stores = True

    def __init__(self, rule: RowRule, *, features: int) -> None:
        self.rule, self.features, self._width = rule, features, rule.width(features)
        self._sum = ExactSum(self.shape, largest_term=math.ldexp(1.0, 2 * rule.bits))
        self._waiting: FloatArray | None = None
        self._waiting_rows = 0

    @property
    def grid(self) -> int:
        return -2 * self.rule.bits

    @property
    def size(self) -> int:
        return self._width * (self._width + 1) // 2

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._width, self._width)

    def update(self, block: Block) -> None:
        # products are cheaper a row the more rows they have: prepared rows wait until there are
        # enough
        count = block.values.shape[0]
        if self._waiting is None or self._waiting_rows + count > self._waiting.shape[0]:
            self._multiply()
            if self._waiting is None or count > self._waiting.shape[0]:
                dtype = DTYPE[self.rule.precision]
                self._waiting = np.empty((max(count, _ROWS_A_PRODUCT), self._width), dtype)
        end = self._waiting_rows + count
        self.rule(block, out=self._waiting[self._waiting_rows : end])
        self._waiting_rows = end

    def flush(self) -> None:
        self._multiply()
        self._waiting = None  # may be larger than the sum

    def _multiply(self) -> None:
        if self._waiting is None or self._waiting_rows == 0:
            return
        rows, self._waiting_rows = self._waiting[: self._waiting_rows], 0
        self._sum.add_gram(rows, self.rule.exact_below)


class Sketch(Accumulator):
    """``sum x p(x).T`` with ``p(x) = clip(basis.T x) / clip``: one pass, D x R (privacy.md 6)."""

    statistic: StatisticName = "sketch"

    def __init__(self, rule: RowRule, basis: NDArray[np.float64], *, clip: float) -> None:
        self.rule, self.basis, self.clip = rule, basis, clip
        self._basis = integer_basis(basis, rule)
        self._sum = ExactSum(basis.shape, largest_term=math.ldexp(1.0, 2 * rule.bits))

    @property
    def grid(self) -> int:
        return -2 * self.rule.bits

    @property
    def shape(self) -> tuple[int, ...]:
        return self.basis.shape

    def update(self, block: Block) -> None:
        rows, _ = self.rule(block)
        # exact integers in units of 2**-(row bits + basis bits)
        seen: FloatArray = rows @ self._basis
        limits = self.rule.limits(block, "square")
        radius = np.sqrt(limits)
        unit = math.ldexp(self.clip, basis_bits(self.rule.precision))
        norms = upper_norms(seen.astype(np.float64, copy=False))
        longest = np.maximum(norms, radius * unit)
        longest[longest == 0.0] = np.inf  # a row that does not count
        seen, _ = integer_rows(seen, radius / longest, limits)
        for part, count in product_parts(rows, seen, self.rule.exact_below):
            self._sum.add(part, count)


# More than the arithmetic of an eigenvalue can be off, and enough that a record cannot lose it.
_GAIN_MARGIN = 1.0 + 2.0**-14


class ComponentEnergy(CountedSum):
    """Squares along released components, the rest of each row's energy, and perhaps the count.

    Of one row they add up to at most ``gain``, so that all together move no further than one could.
    """

    statistic: StatisticName = "component-energy"
    _BITS = 16  # of a projection; its square has 32

    def __init__(
        self, rule: RowRule, components: NDArray[np.float64], *, count_weight: float
    ) -> None:
        self.rule, self.components, self.count_weight = rule, components, count_weight
        self._basis = integer_basis(components.T, rule)
        rounded = np.ldexp(self._basis.astype(np.float64), -basis_bits(rule.precision))
        # projections are rounded towards zero, so that rounding makes no row's energy larger
        self._gain = max(1.0, float(np.linalg.eigvalsh(rounded.T @ rounded)[-1])) * _GAIN_MARGIN
        self._sum = ExactSum(
            (components.shape[0] + 1,), largest_term=math.ldexp(2.0, 2 * self._BITS)
        )

    @property
    def grid(self) -> int:
        return -2 * self._BITS

    @property
    def parameters(self) -> dict[str, float]:
        return {"gain": self._gain, "count_weight": self.count_weight}

    def spec(self) -> Spec:
        return spec_of(self.rule, basis=self.components.T, count_weight=self.count_weight)

    @classmethod
    def from_spec(cls, d: Description, known: Mapping[str, Any]) -> Self:
        return cls(known["rule"], known["basis"].T, count_weight=d.count_weight)

    def update(self, block: Block) -> None:
        rows, lengths = self.rule(block)
        bits, shift = self.rule.bits, basis_bits(self.rule.precision)
        # exact integers, so that a row's projections do not depend on its neighbours in the block
        projected = rows @ self._basis
        factor, scale = 2.0 ** (self._BITS - bits - shift), 4.0 ** (self._BITS - bits)
        if loops.takes(projected) and loops.takes(lengths) and lengths.dtype == projected.dtype:
            part = np.zeros(projected.shape[1] + 1)
            loops.COMPILED.energies(projected, factor, lengths, scale, part)
        else:
            part = _energies(projected, factor, lengths, scale)
        self._sum.add(part, rows.shape[0])
        self._count_rows(block)


def _energies(
    projected: FloatArray, factor: float, lengths: FloatArray, scale: float
) -> NDArray[np.float64]:
    """Sums of whole squares along each direction, and of what rows have beside: exact."""
    projected *= projected.dtype.type(factor)
    along = np.trunc(projected, out=projected).astype(np.float64, copy=False)
    energies = squared_norms(along)
    whole = np.floor(lengths.astype(np.float64) * scale)
    rest = np.maximum(0.0, whole - energies)
    np.square(along, out=along)
    return np.append(np.ones(along.shape[0]) @ along, rest.sum())


def check_same_kind(mine: Accumulator, other: Accumulator) -> None:
    """Raise where two sums are not of one kind."""
    if type(mine) is not type(other) or not same_keys(mine.merge_key(), other.merge_key()):
        raise DataError("merge-mismatch", kind=type(other).__name__, own=type(mine).__name__)


def same_keys(mine: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two merge keys of one kind are the same."""
    # array_equal also compares numbers, names and None
    return all(np.array_equal(first, second) for first, second in zip(mine, other, strict=True))


def share_rules(sums: Iterable[Accumulator]) -> None:
    """Let sums of rows that are prepared alike have one rule, so that a pass prepares them once."""
    rules: list[RowRule] = []
    for each in sums:
        if isinstance(each, RowSum | SecondMoment):
            key = each.rule.merge_key()
            each.rule = next((r for r in rules if same_keys(r.merge_key(), key)), each.rule)
            rules.append(each.rule)
