"""Schemas that are drafted from what an owner sees in a table.

What is read from values here is as private as the rows. It is for the owner, who has to confirm
that it is public (tables.md, section 5).
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from eigenveil.tables.encode import encoded, is_numeric, words
from eigenveil.tables.names import looks_like_identifier
from eigenveil.tables.schema import FIRST_DAY, Column

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


@dataclass(frozen=True)
class Drafted:
    """A column as it is drafted, and why, in words for the owner."""

    column: Column
    why: str


class Seen(ABC):
    """What was seen of one column."""

    is_text: ClassVar[bool] = False
    as_text: ClassVar[bool] = False  # Whether its cells are wanted as they stand

    def __init__(self, name: str) -> None:
        self.column = Column(name)
        self.missing = self.rows = 0
        self.distinct = Distinct()  # Of whole numbers and texts

    @abstractmethod
    def add(self, cells: Any) -> None:
        """Look at the cells of more rows."""

    @property
    def all_differ(self) -> bool:
        """Whether the values look like an identifier's."""
        return self.distinct.all_differ

    @abstractmethod
    def _drafted(self) -> Drafted:
        """The column by its values, of which there are some that do not look like identifiers."""

    def drafted(self) -> Drafted:
        if looks_like_identifier(self.column.name, is_text=self.is_text):
            several = (
                self.distinct.repeats and "; its values repeat: does it say whose each row is?"
            )
            return self._as(f"its name is an identifier's{several or ''}", role="identifier")
        if self.missing == self.rows:
            return self._as("there is no value in it", role="ignore")
        if self.all_differ:
            return self._as("all of its values differ", role="identifier")
        return self._drafted()

    def _as(self, why: str, **fields: Any) -> Drafted:
        return Drafted(replace(self.column, **fields), why)


class SeenNumbers(Seen):
    kind: ClassVar[str] = "number"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.low, self.high, self.whole = np.inf, -np.inf, True

    def add(self, cells: Any) -> None:
        values = encoded(replace(self.column, kind=self.kind), cells)[:, 0]
        found = values[np.isfinite(values)]
        self.rows += values.size
        self.missing += values.size - found.size
        if found.size:
            self.low = min(self.low, float(found.min()))
            self.high = max(self.high, float(found.max()))
        self.whole = self.whole and bool((found == np.floor(found)).all())
        if self.whole:
            self.distinct.add(found.tolist())

    @property
    def all_differ(self) -> bool:
        return self.whole and super().all_differ

    def _drafted(self) -> Drafted:
        low, high = self._ends()
        if low == high:
            return self._as(f"constant in the data: {low}", kind=self.kind)
        why = f"{low} to {high} in the data"
        return self._as(why, kind=self.kind, range=(low, high), confirmed=False)

    def _ends(self) -> tuple[Any, Any]:
        whole = self.low.is_integer() and self.high.is_integer() and self.low < self.high
        return (int(self.low), int(self.high)) if whole else (self.low, self.high)


class SeenDates(SeenNumbers):
    """Days since 1970-01-01."""

    kind, as_text = "date", True

    all_differ = False

    def _ends(self) -> tuple[Any, Any]:
        low, high = (FIRST_DAY + datetime.timedelta(days=d) for d in (self.low, self.high))
        return low, high


class SeenTruths(SeenDates):
    kind = "boolean"

    def _drafted(self) -> Drafted:
        return self._as("true or false", kind=self.kind)


class SeenTexts(Seen):
    is_text = as_text = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.levels: set[str] = set()  # One more than `MOST_LEVELS` at most

    def add(self, cells: Any) -> None:
        found = [value for value in words(cells).tolist() if value is not None]
        self.rows += len(cells)
        self.missing += len(cells) - len(found)
        self.distinct.add(found)
        for value in found:
            if len(self.levels) <= MOST_LEVELS:
                self.levels.add(value)

    def _drafted(self) -> Drafted:
        if len(self.levels) > MOST_LEVELS:
            return self._as(f"a text with more than {MOST_LEVELS} values", role="ignore")
        why = f"{len(self.levels)} level{'s' if len(self.levels) > 1 else ''} in the data"
        levels = tuple(sorted(self.levels))
        return self._as(why, kind="category", levels=levels, confirmed=False)


def seen_by_type(kind: Any, *, flag: bool) -> type[Seen] | None:
    """How a column of an Arrow type is looked at; None where it has no cell."""
    types = pa.types
    if flag or types.is_boolean(kind):
        return SeenTruths
    if types.is_date(kind) or types.is_timestamp(kind):
        return SeenDates
    if types.is_null(kind):
        return None
    return SeenNumbers if is_numeric(kind) else SeenTexts
