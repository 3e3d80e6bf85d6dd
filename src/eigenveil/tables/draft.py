"""A schema drafted from what the owner of a table sees in it: names, types and values.

What is read from values here is as private as the rows. It is for the owner, who has to confirm
that it is public (tables.md, section 5).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.tables.identifiers import looks_like_identifier
from eigenveil.tables.schema import FIRST_DAY, Column, Schema

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
