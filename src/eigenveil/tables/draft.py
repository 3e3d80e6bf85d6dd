"""Schemas that are made: drafted from what an owner sees in a table, or common to several tables.

What is read from values here is as private as the rows. It is for the owner, who has to confirm
that it is public (tables.md, section 5).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.tables.names import looks_like_identifier
from eigenveil.tables.schema import FIRST_DAY, Column, Schema, parse_schema, shown_value

MOST_LEVELS = 50
"""A text with more values is no category in a draft."""
MOST_TOLD_APART = 1_000_000
"""Values that are remembered to see whether all differ."""
_FEWEST_DISTINCT = 20  # fewer rows may differ by chance


@dataclass
class Distinct:
    """Whether all values of a column differ, as far as they are remembered."""

    seen: set[Any] = field(default_factory=set)
    repeats: bool = False

    def add(self, values: Iterable[Any]) -> None:
        """Look at more values."""
        if self.repeats or len(self.seen) >= MOST_TOLD_APART:
            return
        for value in values:
            if value in self.seen:
                self.repeats, self.seen = True, set()
                return
            self.seen.add(value)

    @property
    def all_differ(self) -> bool:
        """Whether no value came twice, among enough."""
        return not self.repeats and len(self.seen) >= _FEWEST_DISTINCT


@dataclass
class Seen:
    """What was seen of one column."""

    name: str
    kind: str  # By the file's type
    rows: int = 0
    missing: int = 0
    low: float = np.inf  # Of numbers, and of dates in days since 1970-01-01
    high: float = -np.inf
    whole: bool = True  # Whether every number is a whole one
    # Values of a text and how often each is there, up to one more than `MOST_LEVELS`
    levels: dict[str, int] = field(default_factory=dict)
    distinct: Distinct = field(default_factory=Distinct)  # Of whole numbers and texts

    def add_numbers(self, values: NDArray[np.floating[Any]]) -> None:
        """Numbers, or days, of more rows; NaN where one is missing."""
        found = values[np.isfinite(values)]
        self.rows += values.size
        self.missing += values.size - found.size
        if found.size:
            self.low = min(self.low, float(found.min()))
            self.high = max(self.high, float(found.max()))
        self.whole = self.whole and bool((found == np.floor(found)).all())
        if self.whole:
            self.distinct.add(found.tolist())

    def add_texts(self, values: NDArray[np.object_]) -> None:
        """Texts of more rows; ``None`` where one is missing."""
        found = [value for value in values.tolist() if value is not None]
        self.rows += values.size
        self.missing += values.size - len(found)
        self.distinct.add(found)
        for value in found:
            if value in self.levels or len(self.levels) <= MOST_LEVELS:
                self.levels[value] = self.levels.get(value, 0) + 1

    @property
    def empty(self) -> bool:
        """Whether there is no value."""
        return self.missing == self.rows

    @property
    def all_differ(self) -> bool:
        """Whether the values look like an identifier's: whole numbers or texts that all differ."""
        counted = self.kind == "text" or (self.kind == "number" and self.whole)
        return counted and self.distinct.all_differ


@dataclass(frozen=True)
class Drafted:
    """A column as it is drafted, and why, in words for the owner."""

    column: Column
    why: str


def draft(seen: Sequence[Seen]) -> list[Drafted]:
    """A column of a schema for each that was seen."""
    return [_drafted(each) for each in seen]


def schema_of_draft(drafted: Sequence[Drafted]) -> Schema:
    """The schema of these columns."""
    return Schema(tuple(each.column for each in drafted))


def _drafted(seen: Seen) -> Drafted:
    column = Column(seen.name)
    if looks_like_identifier(seen.name, is_text=seen.kind == "text"):
        several = seen.distinct.repeats and "; its values repeat: does it say whose each row is?"
        return Drafted(
            replace(column, role="identifier"), f"its name is an identifier's{several or ''}"
        )
    if seen.empty:
        return Drafted(replace(column, role="ignore"), "there is no value in it")
    if seen.all_differ:
        return Drafted(replace(column, role="identifier"), "all of its values differ")
    if seen.kind == "boolean":
        return Drafted(replace(column, kind="boolean"), "true or false")
    if seen.kind == "text":
        if len(seen.levels) > MOST_LEVELS:
            return Drafted(
                replace(column, role="ignore"), f"a text with more than {MOST_LEVELS} values"
            )
        levels = tuple(sorted(seen.levels))
        found = replace(column, kind="category", levels=levels, confirmed=False)
        return Drafted(found, f"{len(levels)} level{'s' if len(levels) > 1 else ''} in the data")
    if seen.kind == "date":
        low, high = (FIRST_DAY + datetime.timedelta(days=d) for d in (seen.low, seen.high))
        return _ranged(replace(column, kind="date"), low, high)
    return _ranged(replace(column, kind="number"), seen.low, seen.high)


def _ranged(column: Column, low: Any, high: Any) -> Drafted:
    if low == high:
        return Drafted(column, f"constant in the data: {low}")
    whole = isinstance(low, float) and low.is_integer() and high.is_integer()
    pair = (int(low), int(high)) if whole else (low, high)
    why = f"{pair[0]} to {pair[1]} in the data"
    return Drafted(replace(column, range=pair, confirmed=False), why)


# -- What the schemas of several tables have in common, and where they differ.


# What must be the same for a column to be one column.
_SAME = ("role", "kind", "unit_of_measure", "origin")
_NOT_THERE = "not there"


@dataclass(frozen=True)
class Difference:
    """One thing of one column that tables do not have alike."""

    column: str
    field: str  # Of the column; "column" where some tables do not have it
    values: Mapping[str, str]  # What each table has, by the table's name
    taken: str  # What the common schema has: "left out", or what was put together

    def __str__(self) -> str:
        listed = "; ".join(f"{name}: {value}" for name, value in self.values.items())
        return f"column {self.column!r}, {self.field}: {listed}. Common: {self.taken}."


def common_schema(schemas: Mapping[str, Schema]) -> tuple[Schema, tuple[Difference, ...]]:
    """The columns that all tables have, in the first one's order, and where tables differ.

    A column is left out where a table does not have it (or ignores it), or has it with another
    role, kind, unit of measure or origin. Ranges become the widest one, none where a table has
    none; levels become all of them. Labels do not count.
    """
    kept: list[Column] = []
    found: list[Difference] = []
    names = dict.fromkeys(c.name for schema in schemas.values() for c in schema.columns)
    for name in names:
        columns = {table: schema.column(name) for table, schema in schemas.items()}
        there = {t: c for t, c in columns.items() if c is not None and c.role != "ignore"}
        if not there:
            continue
        if len(there) < len(columns):
            values = {t: _presence(c) for t, c in columns.items()}
            found.append(Difference(name, "column", values, "left out"))
            continue
        wrong = [_difference(name, field, there, "left out") for field in _SAME]
        if any(wrong):
            found += filter(None, wrong)
            continue
        column, merged = _merged(name, there)
        kept.append(column)
        found += merged
    if not any(column.role == "feature" for column in kept):
        raise DataError("no-common-columns", schemas=", ".join(schemas))
    schema = parse_schema(Schema(tuple(kept)).as_dict(), origin="The common schema")
    return schema, tuple(found)


def _presence(column: Column | None) -> str:
    return _NOT_THERE if column is None else "ignored" if column.role == "ignore" else "there"


def _difference(
    name: str, field: str, columns: Mapping[str, Column], taken: str
) -> Difference | None:
    values = {table: getattr(column, field) for table, column in columns.items()}
    if len(set(values.values())) == 1:
        return None
    return Difference(name, field, {t: shown_value(v) for t, v in values.items()}, taken)


def _merged(name: str, columns: Mapping[str, Column]) -> tuple[Column, list[Difference]]:
    """One column for all, of the same kind."""
    ranges = [column.range for column in columns.values()]
    known = [each for each in ranges if each is not None]
    widest: tuple[Any, Any] | None = None
    if len(known) == len(ranges):
        widest = min(low for low, _ in known), max(high for _, high in known)
    levels = tuple(dict.fromkeys(level for c in columns.values() for level in c.levels))
    made = replace(next(iter(columns.values())), range=widest, levels=levels)
    differences = (
        _difference(name, "range", columns, shown_value(widest)),
        _difference(name, "levels", columns, shown_value(levels)),
    )
    return made, [each for each in differences if each is not None]
