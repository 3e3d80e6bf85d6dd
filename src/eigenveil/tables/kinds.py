"""Kinds of columns, one object each: what a schema says of their values, and how it is given."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eigenveil.checks import LARGEST, is_number
from eigenveil.errors import DataError, short_name

if TYPE_CHECKING:
    from eigenveil.tables.schema import Column


class ColumnKind:
    """A kind of columns."""

    name: ClassVar[str]
    own: ClassVar[tuple[str, ...]] = ()  # Fields of a column that have a meaning
    needed: ClassVar[tuple[str, ...]] = ()  # Those that it must have to be read
    public: ClassVar[str] = "range"  # The field that says what is public of its values
    ends: ClassVar[tuple[float, float]] = (np.nan, np.nan)  # Of all its columns, if they have some
    levelled: ClassVar[bool] = False  # Whether it becomes a column a level
    of_days: ClassVar[bool] = False  # Whether its cells are dates

    def names(self, column: Column) -> tuple[str, ...]:
        """Names of the columns that it becomes."""
        return (column.name,)

    def bounds(self, column: Column) -> tuple[float, float]:
        """Smallest and largest value of each of them; NaN where none is public."""
        if column.range is None:
            return self.ends
        low, high = (self.encoded(column, value) for value in column.range)
        return low, high

    def encoded(self, column: Column, value: Any) -> float:
        return float(value)

    def complete(self, column: Column) -> bool:
        return all(getattr(column, key) for key in self.needed)

    def incomplete(self, where: str) -> DataError:
        what = f"kind {self.name!r} needs {' and '.join(self.needed)}"
        return DataError("bad-schema", where=where, what=what)

    def limits(self, where: str, given: Sequence[Any]) -> Sequence[Any]:
        """The two ends of a range, checked."""
        if not all(is_number(each) and abs(each) <= LARGEST for each in given):
            what = f"range = {given!r:.60} is not two finite numbers"
            raise DataError("bad-schema", where=where, what=what)
        return given

    def said(self, parts: Sequence[str]) -> list[Any]:
        """What is public, of what a person typed."""
        return list(parts)

    def shown(self, column: Column) -> str:
        """In words, for whoever agrees to it."""
        return self.name


class NumberKind(ColumnKind):
    name = "number"
    own: ClassVar[tuple[str, ...]] = ("range", "unit_of_measure")

    def said(self, parts: Sequence[str]) -> list[Any]:
        return [_number(part) for part in parts]


class CategoryKind(ColumnKind):
    """One column a level, called ``name=level``, and one of all others where they have a name."""

    name, own, needed = "category", ("levels", "other"), ("levels",)
    public, ends, levelled = "levels", (0.0, 1.0), True

    def incomplete(self, where: str) -> DataError:
        return DataError("category-without-levels", where=where)

    def names(self, column: Column) -> tuple[str, ...]:
        levels = (*column.levels, *filter(None, [column.other]))
        return tuple(f"{column.name}={level}" for level in levels)

    def shown(self, column: Column) -> str:
        return f"{len(column.levels)} levels{' and all others' if column.other else ''}"


class BooleanKind(ColumnKind):
    name, own, ends = "boolean", ("true_words", "false_words"), (0.0, 1.0)


class DateKind(ColumnKind):
    """Days since the column's origin."""

    name, own, of_days = "date", ("range", "origin", "date_format"), True

    def encoded(self, column: Column, value: Any) -> float:
        return float((value - column.origin).days)

    def limits(self, where: str, given: Sequence[Any]) -> Sequence[Any]:
        return [day_of(where, "range", each) for each in given]


class YearsKind(NumberKind):
    """Years between the dates of two other columns of the table, such as birth and visit."""

    name, own = "years", ("range", "unit_of_measure", "since", "until")
    needed = ("since", "until", "range")

    def shown(self, column: Column) -> str:
        return f"years from {short_name(column.since)} to {short_name(column.until)}"


def day_of(where: str, key: str, given: Any) -> datetime.date:
    """A day of a schema, as TOML has it or as a text."""
    try:
        if isinstance(given, str):
            return datetime.date.fromisoformat(given)
    except ValueError:
        pass
    if isinstance(given, datetime.date) and not isinstance(given, datetime.datetime):
        return given
    raise DataError("not-a-day", where=where, key=key, given=given)


def _number(text: str) -> Any:
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text


KINDS: Mapping[str, ColumnKind] = {
    kind.name: kind
    for kind in (NumberKind(), CategoryKind(), BooleanKind(), DateKind(), YearsKind())
}
