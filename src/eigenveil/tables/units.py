"""Units of privacy: rows of one person, household or device count together as one.

Neighbouring data sets differ in all rows of one unit. A row of a unit with m rows counts with
weight 1 / max(c, m), c the ``max_rows_per_unit``, so that what a unit adds to a sum is within the
sensitivity of one row (docs/proofs/units.md). Identifiers stay in the process that reads the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

from eigenveil.errors import DataError
from eigenveil.moments.rows import MOST_ROWS_A_UNIT, Block, RowWeights
from eigenveil.moments.source import FoundT, PartitionedRows, Reading, RowsOf, RowSource
from eigenveil.tables.entries import identifiers, numbered
from eigenveil.tables.schema import Schema


@dataclass(frozen=True)
class UnitCount:
    """What a count of units found. For the owner of the rows only."""

    units: int
    rows: int  # Rows with an identifier
    most: int  # The most rows of one unit
    without: int  # Rows that have no identifier, and do not count


@dataclass(frozen=True)
class UnitTable:
    """The units of some rows, as a first pass counted them."""

    codes: dict[str, int]  # A number for each identifier, from 0
    before: NDArray[np.int64]  # Rows that each unit has in parts that come before
    until: NDArray[np.int64]  # These, and those of the unit here; rows beyond do not count
    # One row of a unit counts 1 over this: that of the unit's rows in all parts, or c
    divisors: NDArray[np.int64]


class LabelledRows(RowsOf):
    """Rows of a source, with units that were given beside them: these are looked at once."""

    def __init__(self, rows: RowSource, units: NDArray[Any]) -> None:
        super().__init__(rows)
        self._units = units
        self._weighed: tuple[UnitTable, NDArray[np.int64], RowWeights] | None = None

    def read_by(self, reader: Callable[[RowSource], RowSource]) -> LabelledRows:
        return LabelledRows(reader(self._rows), self._units)

    def blocks(self) -> Iterator[Block]:
        yield from (block for block, _ in self._parts())

    def weighed_blocks(self, table: UnitTable) -> Iterator[Block]:
        """Blocks with the weights of a table of units."""
        if self._weighed is None or self._weighed[0] is not table:
            codes, numbers = self.numbered
            known = np.fromiter((table.codes.get(unit, -1) for unit in codes), np.int64, len(codes))
            units = np.append(known, -1)[numbers]
            found = _weights(units, table.until, table.divisors, table.before.copy())
            self._weighed = table, units, found
        _, units, weights = self._weighed
        for block, part in self._parts():
            block.unidentified = int(np.count_nonzero(units[part] < 0))
            block.weights = RowWeights(weights.divisors[part], weights.ranks[part])
            yield block

    @cached_property
    def numbered(self) -> tuple[dict[str, int], NDArray[np.int64]]:
        """A number for each identifier, from 0, and that of each row, -1 where it has none."""
        return numbered(self._units)

    def _parts(self) -> Iterator[tuple[Block, slice]]:
        start = 0
        for block in self._rows.blocks():
            part = slice(start, start + block.values.shape[0])
            block.units, start = self._units[part], part.stop
            yield block, part


class WeighedRows(RowsOf):
    """Rows with the weights of a table of units: rows beyond what it counted do not count."""

    def __init__(self, rows: RowSource, table: UnitTable) -> None:
        super().__init__(rows)
        self._table = table

    def blocks(self) -> Iterator[Block]:
        if isinstance(self._rows, LabelledRows):
            yield from self._rows.weighed_blocks(self._table)
            return
        table, seen = self._table, self._table.before.copy()
        for block in self._rows.blocks():
            units = _coded(block, table.codes)
            block.unidentified = int(np.count_nonzero(units < 0))
            block.weights = _weights(units, table.until, table.divisors, seen)
            yield block


class UnitRows(RowsOf):
    """Rows with the weights of their units.

    The rows are read once to count those of each unit, over all blocks and files; each pass counts
    again, and a row that goes beyond the first count does not count at all: whatever is read, a
    unit never weighs more than 1.
    """

    def __init__(self, rows: RowSource, most: int = 1) -> None:
        super().__init__(rows)
        self._most = most
        self._counted: tuple[UnitCount, list[UnitTable]] | None = None

    def count(self) -> UnitCount:
        """The units, and their rows: one pass, when it is first asked for."""
        return self._tables()[0]

    def blocks(self) -> Iterator[Block]:
        (table,) = self._tables()[1]
        yield from WeighedRows(self._rows, table).blocks()

    def _tables(self) -> tuple[UnitCount, list[UnitTable]]:
        if self._counted is None:
            self._counted = _tables_of(self._rows.fold(_CountUnits()), self._most)
        return self._counted


class PartitionedUnits(UnitRows, PartitionedRows):
    """The same of rows in parts, whose units may have rows in several.

    What is counted of each part comes together here, identifiers too, and goes back as the part's
    table: fixed for all passes, so that a part that is read again cannot change what others count.
    Identifiers travel between machines of the rows' owner, and nowhere else.
    """

    _rows: PartitionedRows

    def fold(self, reading: Reading[FoundT]) -> FoundT:
        return self._rows.read_by(WeighedRows, self._tables()[1]).fold(reading)

    def read_by(
        self, reader: Callable[..., RowSource], own: Sequence[Any] | None = None
    ) -> PartitionedRows:
        return self._rows.read_by(WeighedRows, self._tables()[1]).read_by(reader, own)

    def blocks(self) -> Iterator[Block]:
        return self._rows.blocks()


def unit_rows(rows: RowSource, most: int = 1) -> UnitRows:
    """Rows with the weights of their units, wherever they are read."""
    made = PartitionedUnits if isinstance(rows, PartitionedRows) else UnitRows
    return made(rows, most)


@dataclass(frozen=True)
class _PartUnits:
    """Of each part of the rows: its units, the rows of each, and rows that have none."""

    rows: int
    parts: tuple[tuple[dict[str, int], NDArray[np.int64], int], ...]


class _CountUnits(Reading[_PartUnits]):
    def read(self, rows: RowSource) -> _PartUnits:
        if isinstance(rows, LabelledRows):
            codes, numbers = rows.numbered
            counts = np.bincount(numbers[numbers >= 0], minlength=len(codes))
            without = int(np.count_nonzero(numbers < 0))
            return _PartUnits(numbers.size, ((codes, counts, without),))
        codes = {}
        counts, without, read = np.zeros(1024, dtype=np.int64), 0, 0
        for block in rows.blocks():
            found = _coded(block, codes, add=True)
            read += found.size
            without += int(np.count_nonzero(found < 0))
            if len(codes) > counts.size:
                counts = np.append(counts, np.zeros(len(codes), dtype=np.int64))
            found = found[found >= 0]
            counts[: len(codes)] += np.bincount(found, minlength=len(codes))
        return _PartUnits(read, ((codes, counts[: len(codes)], without),))

    def merge(self, parts: Sequence[_PartUnits]) -> _PartUnits:
        every = tuple(each for part in parts for each in part.parts)
        return _PartUnits(sum(part.rows for part in parts), every)


def _tables_of(found: _PartUnits, most: int) -> tuple[UnitCount, list[UnitTable]]:
    """What was counted, and each part's table."""
    if len(found.parts) == 1:
        codes, own, _ = found.parts[0]
        places = [np.arange(own.size)]
    else:
        codes = {}
        for each, _, _ in found.parts:
            for unit in each:
                codes.setdefault(unit, len(codes))
        places = [
            np.fromiter(map(codes.__getitem__, each), np.int64, len(each))
            for each, _, _ in found.parts
        ]
    total, seen = np.zeros(len(codes), dtype=np.int64), []
    for at, (_, own, _) in zip(places, found.parts, strict=True):
        seen.append(total[at])
        total[at] = np.minimum(seen[-1] + own, MOST_ROWS_A_UNIT)
    divisors = np.maximum(total, most)
    tables = [
        UnitTable(each, before, np.minimum(before + own, MOST_ROWS_A_UNIT), divisors[at])
        for at, before, (each, own, _) in zip(places, seen, found.parts, strict=True)
    ]
    without = sum(each for _, _, each in found.parts)
    count = UnitCount(total.size, int(total.sum()), int(total.max(initial=0)), without)
    return count, tables


class StreamUnits:
    """The units of a stream, whose rows come once and cannot be counted ahead.

    A row counts 1/c, and of a unit no more than c rows count, the first that come. It holds
    identifiers: it is as private as the rows.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._codes: dict[str, int] = {}
        self._seen = np.zeros(0, dtype=np.int64)
        self._next = self._seen

    def weighted(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Blocks with weights; :meth:`keep` counts them as seen, once they are added."""
        self._next = self._seen.copy()
        for block in blocks:
            units = _coded(block, self._codes, add=True)
            missing = max(0, len(self._codes) - self._next.size)
            self._next = np.append(self._next, np.zeros(missing, dtype=np.int64))
            block.unidentified = int(np.count_nonzero(units < 0))
            limits = np.full(self._next.size, self._most, dtype=np.int64)
            block.weights = _weights(units, limits, limits, self._next)
            yield block

    def keep(self) -> None:
        """The blocks were added."""
        self._seen = self._next

    def merge(self, other: StreamUnits) -> None:
        if shared := len(self._codes.keys() & other._codes.keys()):
            raise DataError("unit-twice", shared=shared)
        for unit in other._codes:
            self._codes[unit] = len(self._codes)
        self._seen = self._next = np.append(self._seen, other._seen)


def _coded(block: Block, codes: dict[str, int], *, add: bool = False) -> NDArray[np.int64]:
    """The numbers of a block's units, -1 where a row has no identifier or a new one."""
    if block.units is None:
        raise DataError("no-units", whose=block.origin.name or "The rows")
    given = identifiers(block.units)
    if add:
        for unit in dict.fromkeys(given):
            if unit is not None:
                codes.setdefault(unit, len(codes))
    found = (-1 if unit is None else codes.get(unit, -1) for unit in given)
    return np.fromiter(found, np.int64, len(given))


def _weights(
    units: NDArray[np.int64],
    counts: NDArray[np.int64],
    divisors: NDArray[np.int64],
    seen: NDArray[np.int64],
) -> RowWeights:
    """Weights of a block's rows; ``seen``, the rows of each unit so far, goes on."""
    ranks = np.zeros(units.size, dtype=np.int64)
    own = np.zeros(units.size, dtype=np.int64)
    order = np.argsort(units, kind="stable")
    order = order[np.searchsorted(units[order], 0) :]  # none without an identifier
    if order.size:
        sorted_units = units[order]
        starts = np.flatnonzero(np.append(True, np.diff(sorted_units) != 0))
        lengths = np.diff(np.append(starts, order.size))
        within = np.arange(order.size) - np.repeat(starts, lengths)
        ranks[order] = seen[sorted_units] + within
        own[order] = np.where(ranks[order] < counts[sorted_units], divisors[sorted_units], 0)
        seen[sorted_units[starts]] += lengths
    return RowWeights(own, ranks)


def unit_ids(groups: ArrayLike, rows: int) -> NDArray[np.generic]:
    """Identifiers of rows from what a caller gave: a list, an array, a column of a frame."""
    found = exact(groups)
    if found.ndim != 1 or found.shape[0] != rows:
        raise DataError("bad-groups", shape=found.shape, rows=rows)
    return found


def exact(groups: Any) -> NDArray[Any]:
    """Identifiers of which none becomes of another type for the sake of another one."""
    series = nw.from_native(groups, allow_series=True, pass_through=True)
    if isinstance(series, nw.Series):
        groups = series.to_numpy()
        if groups.dtype.kind == "f" and not series.dtype.is_float():
            groups = series.to_list()
    if not isinstance(groups, list | tuple) or (groups and np.ndim(groups[0]) > 0):
        return np.ma.asarray(groups) if np.ma.isMaskedArray(groups) else np.asarray(groups)
    found = np.empty(len(groups), dtype=object)
    for row, each in enumerate(groups):
        found[row] = each
    return found


def whose_rows(
    unit: str | None, *, one_row_per_person: bool, schema: Schema | None = None
) -> str | None:
    """The column that says whose each row is; ``None`` where each person has one row.

    A command requires the answer: by a unit, by a schema that names one, or that there is none.
    """
    known = unit or (None if schema is None else schema.unit)
    if known is None and not one_row_per_person:
        raise DataError("whose-rows")
    if known is not None and one_row_per_person:
        raise DataError("whose-rows-twice", column=repr(known))
    return known


def unit_of(rows: RowSource, unit: str | None, *, taken: bool) -> str | None:
    """The column whose units are read with rows, which are then never protected one by one."""
    own = rows.unit
    if None not in (own, unit) and own != unit:
        raise DataError("unit-differs", unit=unit, own=own)
    if own is not None and not taken:
        raise DataError("units-not-taken", own=own)
    return own or unit
