"""What the schemas of several tables have in common, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from eigenveil.errors import DataError
from eigenveil.tables.schema import Column, Schema, parse_schema, shown_value

# What must be the same for a column to be one column.
_SAME = ("role", "kind", "unit_of_measure", "origin", "other", "since", "until")
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
    schemas = {table: schema.agreed() for table, schema in schemas.items()}
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
