"""What the owner of files is told about them: what is in their columns, and what a schema misses.

Everything here is read from rows and as private as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, short_name
from eigenveil.files import Place
from eigenveil.io.files import reading
from eigenveil.io.formats.registry import USUAL, ReadOptions
from eigenveil.io.formats.tabular import Table
from eigenveil.io.open import as_written, check_tables, open_tables
from eigenveil.moments.source import block_rows
from eigenveil.tables.draft import Distinct, Seen, SeenNumbers, SeenTexts, seen_by_type
from eigenveil.tables.encode import RowEncoder, encoded, labels, words
from eigenveil.tables.reading import Dialect
from eigenveil.tables.schema import Column, Schema

_MOST_UNKNOWN = 1000  # levels that are counted


def look_at(
    paths: Sequence[str | Path | Place], *, read: ReadOptions = USUAL
) -> tuple[list[Seen], Dialect]:
    """What was seen of each column, and how all files are written as their lines of names show."""
    tables = open_tables(paths, read=read)
    first = tables[0]
    first.check_names()
    for table in tables[1:]:
        if set(table.columns) != set(first.columns):
            name = sorted(set(table.columns) ^ set(first.columns))[0]
            raise DataError(
                "column-in-one-file", column=short_name(name), first=first.path, other=table.path
            )
    found = {name: _seen(tables, name) for name in first.columns}
    as_text = [name for name, seen in found.items() if seen.as_text]
    kinds = [Column(name, seen.kind) for name, seen in found.items()]
    encoder = RowEncoder(kinds, reading=Dialect(na=read.dialect.na))
    for batch in _batches(tables, list(first.columns), as_text):
        plain = encoder.without_codes(batch)
        for name, seen in found.items():
            seen.add(plain.column(name))
    written = {table.written for table in tables if table.written is not None}
    return list(found.values()), written.pop() if len(written) == 1 else read.dialect


def _seen(tables: Sequence[Table], name: str) -> Seen:
    """By the column's types; as a text where files disagree."""
    found = {seen_by_type(table.types[name], flag=name in table.flags) for table in tables}
    kinds = [kind for kind in found if kind is not None] or [SeenNumbers]
    seen = kinds[0](name) if len(kinds) == 1 else SeenTexts(name)
    seen.labels = next((table.labels[name] for table in tables if name in table.labels), {})
    return seen


def _batches(
    tables: Sequence[Table], columns: Sequence[str], texts: Sequence[str]
) -> Iterator[Any]:
    for table in tables:
        with reading(table.path):
            yield from table.batches(columns, block_rows(len(columns)), texts=texts)


# -- What a schema says and what the files have.


class ColumnReport:
    """What the owner should know of one column that the schema reads: numbers, days and truths."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.rows = self.holes = 0  # Holes: missing values, and cells that are not of the kind
        self.outside = 0  # Values outside of the public range, which are taken to its ends
        # Levels that the schema does not have, and cells that are no date or truth value
        self.unknown = Counter[str]()
        self._low, self._high = np.inf, -np.inf

    def add(self, encoder: RowEncoder, batch: Any) -> None:
        values = encoder.values(self.column, batch.column)
        self.rows += batch.num_rows
        self.holes += int(np.isnan(values[:, 0]).sum())
        self._add(values[~np.isnan(values[:, 0])])
        for name in encoder.texts.intersection(self.column.sources):
            cells = batch.column(name)
            self._look(words(cells)[self._misfits(encoded(encoder.sources[name], cells))])

    def _look(self, texts: NDArray[np.object_]) -> None:
        for text in texts.tolist():
            if text is not None and (text in self.unknown or len(self.unknown) < _MOST_UNKNOWN):
                self.unknown[text] += 1

    def _misfits(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = np.isnan(values[:, 0])
        return found

    def _add(self, values: NDArray[Any]) -> None:
        found = values[:, 0]
        low, high = self.column.bounds
        self.outside += int(np.count_nonzero((found < low) | (found > high)))
        if found.size:
            self._low, self._high = min(self._low, found.min()), max(self._high, found.max())

    @property
    def findings(self) -> list[str]:
        """What is to be mended, or known, in sentences without a full stop."""
        if self.rows == self.holes and not self.unknown:
            return ["no value" if self.rows else "no rows"]
        return list(self._found())

    @property
    def _constant(self) -> bool:
        return bool(self._low == self._high)

    _misfit = "cells that are no date, and count as missing"

    def _found(self) -> Iterator[str]:
        if self.outside:
            ends = f"{self._low:g} to {self._high:g}"
            yield f"{self.outside:,} values outside of the range: {ends}"
        if self._constant:
            yield "constant"
        if self.unknown:
            shown = ", ".join(repr(short_name(level)) for level, _ in self.unknown.most_common(5))
            yield f"{self.unknown.total():,} {self._misfit}: {shown}"


class NumberReport(ColumnReport):
    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self._whole, self._distinct = True, Distinct()

    def _add(self, values: NDArray[Any]) -> None:
        super()._add(values)
        found = values[:, 0]
        self._whole = self._whole and bool((found == np.floor(found)).all())
        if self._whole:
            self._distinct.add(found.tolist())

    def _found(self) -> Iterator[str]:
        yield from super()._found()
        if self._whole and self._distinct.all_differ:
            yield "all values are whole numbers and differ: is it an identifier?"


class LevelReport(ColumnReport):
    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self._levels: set[int] = set()

    _misfit = "rows with levels that the schema does not have"

    def _add(self, values: NDArray[Any]) -> None:
        self._levels.update(np.flatnonzero(values.any(axis=0)).tolist())

    @property
    def _constant(self) -> bool:
        return len(self._levels) <= 1 and not self.unknown

    def _misfits(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return np.logical_not(values.any(axis=1))  # a hole is NaN, and no word


class TruthReport(ColumnReport):
    _misfit = "cells that are no truth value, and count as missing"


_REPORTS = {"number": NumberReport, "category": LevelReport, "boolean": TruthReport}


@dataclass
class UnitReport:
    """Rows of each unit."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    without: int = 0

    def add(self, units: NDArray[np.object_]) -> None:
        named = [unit for unit in units.tolist() if unit is not None]
        self.counts.update(named)
        self.without += units.size - len(named)

    @property
    def rows_of_each(self) -> tuple[int, float, int]:
        """Fewest, median and most rows of a unit; zeros where there is none."""
        if not self.counts:
            return 0, 0.0, 0
        counts = np.fromiter(self.counts.values(), np.int64)
        return int(counts.min()), float(np.median(counts)), int(counts.max())


@dataclass
class SchemaReport:
    """What the owner of files is told about them and their schema."""

    rows: int
    columns: list[ColumnReport]
    unit: UnitReport | None
    unread: tuple[str, ...]  # Columns that files have and the schema does not name
    unconfirmed: tuple[str, ...]  # Columns of which the schema has what was only seen in the data
    codes: Mapping[str, int]  # Cells that each code for missing values was

    @property
    def clean(self) -> bool:
        """Whether nothing is to be mended; holes are the fit's to treat."""
        whole = self.unit is None or (not self.unit.without and bool(self.unit.counts))
        return whole and not self.unconfirmed and not any(c.findings for c in self.columns)


def check_files(
    paths: Sequence[str | Path | Place], schema: Schema, *, read: ReadOptions = USUAL
) -> SchemaReport:
    """Compare files with their schema: one pass."""
    found, read = as_written(schema, read)
    tables, encoder = open_tables(paths, read=read), RowEncoder.of_schema(found or schema)
    check_tables(encoder, tables)
    columns = [_REPORTS.get(str(each.kind), ColumnReport)(each) for each in schema.read]
    unit = None if schema.unit is None else UnitReport(schema.unit)
    rows = 0
    for batch in _batches(tables, encoder.columns, tuple(encoder.texts)):
        rows += batch.num_rows
        plain = encoder.without_codes(batch)
        for each in columns:
            each.add(encoder, plain)
        if unit is not None:
            unit.add(labels(plain.column(unit.name)))
    named = {column.name for column in schema.columns}
    unread = dict.fromkeys(name for table in tables for name in table.columns if name not in named)
    seen = tuple(column.name for column in schema.read if not column.confirmed)
    return SchemaReport(rows, columns, unit, tuple(unread), seen, _counted(encoder, schema))


def _counted(encoder: RowEncoder, schema: Schema) -> dict[str, int]:
    """Cells of each code: of those of all columns together, and by column of its own."""
    found = Counter[str]()
    own = {(code, column.name) for column in schema.columns for code in column.na}
    for (code, name), count in encoder.found.items():
        found[f"{code!r} of {name!r}" if (code, name) in own else repr(code)] += count
    return found


def as_json(report: SchemaReport) -> Mapping[str, Any]:
    unit = report.unit
    return {
        "clean": report.clean,
        "rows": report.rows,
        "columns": {
            each.column.name: {
                "kind": each.column.kind,
                "role": each.column.role,
                "holes": each.holes,
                "outside": each.outside,
                "unknown_levels": dict(each.unknown.most_common(20)),
                "findings": each.findings,
            }
            for each in report.columns
        },
        "unread": list(report.unread),
        "unconfirmed": list(report.unconfirmed),
        "codes": dict(report.codes),
        "unit": None
        if unit is None
        else {
            "column": unit.name,
            "units": len(unit.counts),
            "rows_of_each": dict(zip(("fewest", "median", "most"), unit.rows_of_each, strict=True)),
            "rows_without": unit.without,
        },
    }
