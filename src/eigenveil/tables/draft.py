"""Schemas that are drafted from what an owner sees in a table.

What is read from values here is as private as the rows. It is for the owner, who has to confirm
that it is public (tables.md, section 5).
"""

from __future__ import annotations

import datetime
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.errors import short_name
from eigenveil.tables.encode import FALSE_WORDS, TRUE_WORDS, encoded, is_numeric, words
from eigenveil.tables.names import looks_like_identifier
from eigenveil.tables.schema import FIRST_DAY, Column

MOST_LEVELS = 50
"""A text with more values is no category in a draft."""
MOST_TOLD_APART = 1_000_000
"""Values that are remembered to see whether all differ."""
DATE_FORMATS = (None, "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y%m%d")
"""How dates are looked for in texts; the first are those that need not be said."""
_MOST_LABELS = 5
_FEWEST_DISTINCT = 20  # fewer rows may differ by chance
# Values beside others that may be codes: so many at each end, in so many cells and so much of all,
# so many times as far from the next ones as those are from each other
_MOST_CODES, _FEWEST_CODED, _LEAST_CODED, _BESIDE, _FAR = 3, 3, 1e-3, 4, 4
_OUTERMOST = _MOST_CODES + _BESIDE
_NO_DATE = re.compile(r"\D*|[+-]?\d{1,5}")  # no part of a date, as "k.A." and -9 are


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

    kind: ClassVar[str | None] = None
    is_text: ClassVar[bool] = False
    as_text: ClassVar[bool] = False  # Whether its cells are wanted as they stand

    def __init__(self, name: str) -> None:
        self.column = Column(name)
        self.missing = self.rows = 0
        self.distinct = Distinct()  # Of whole numbers and texts
        self.labels: Mapping[Any, str] = {}  # What the file says that values are called

    @abstractmethod
    def add(self, cells: Any) -> None:
        """Look at the cells of more rows."""

    @property
    def all_differ(self) -> bool:
        """Whether the values look like an identifier's."""
        return self.distinct.all_differ

    @property
    def several(self) -> str:
        """A question where rows have a value together."""
        return "; its values repeat: does it say whose each row is?" * self.distinct.repeats

    @abstractmethod
    def _drafted(self) -> Drafted:
        """The column by its values, of which there are some that do not look like identifiers."""

    def drafted(self) -> Drafted:
        if looks_like_identifier(self.column.name, is_text=self.is_text):
            return self._as(f"its name is an identifier's{self.several}", role="identifier")
        if self.missing == self.rows:
            return self._as("there is no value in it", role="ignore")
        if self.all_differ:
            return self._as("all of its values differ", role="identifier")
        return self._drafted()

    def _as(self, why: str, **fields: Any) -> Drafted:
        labels = [
            f"{str(value).removesuffix('.0')} is {short_name(label)!r}"
            for value, label in islice(self.labels.items(), _MOST_LABELS)
        ]
        return Drafted(replace(self.column, **fields), "; ".join((why, *labels)))


def drafted(seen: Sequence[Seen]) -> list[Drafted]:
    """The columns; the one named as an identifier whose values repeat is proposed as the unit."""
    found = [each.drafted() for each in seen]
    several = [
        place
        for place, each in enumerate(seen)
        if each.distinct.repeats and found[place].column.role == "identifier"
    ]
    if len(several) == 1:
        found[several[0]] = seen[several[0]]._as(found[several[0]].why, role="unit")
    return found


def _asked(codes: Mapping[str, int]) -> str:
    """A question to the owner about values, each with the number of its cells."""
    if not codes:
        return ""
    cells = ", ".join(
        f"{code} in {count:,} cell{'s' * (count > 1)}" for code, count in codes.items()
    )
    one = "a code for a missing value" if len(codes) == 1 else "codes for missing values"
    return f", and {cells}: {one}? (na)"


class SeenNumbers(Seen):
    kind: ClassVar[str] = "number"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.whole = True
        self.outermost = Counter[float]()  # The lowest and highest values, each with its cells

    def add(self, cells: Any) -> None:
        values = encoded(replace(self.column, kind=self.kind), cells)[:, 0]
        found = values[np.isfinite(values)]
        self.rows += values.size
        self.missing += values.size - found.size
        self._count(found)
        self.whole = self.whole and bool((found == np.floor(found)).all())
        if self.whole:
            self.distinct.add(found.tolist())

    @property
    def all_differ(self) -> bool:
        return self.whole and super().all_differ

    def _count(self, found: NDArray[Any]) -> None:
        values, counts = np.unique(found.astype(float), return_counts=True)
        kept = np.ones(values.size, dtype=bool)
        kept[_OUTERMOST:-_OUTERMOST] = False
        pairs = zip(values[kept].tolist(), counts[kept].tolist(), strict=True)
        self.outermost.update(dict(pairs))
        for value in sorted(self.outermost)[_OUTERMOST:-_OUTERMOST]:
            del self.outermost[value]  # It never is among the outermost again

    @property
    def codes(self) -> list[float]:
        """Values that repeat far from all others, as -9 and 999 beside 24.8 to 160."""
        values, found = sorted(self.outermost), []
        cells = max(_FEWEST_CODED, _LEAST_CODED * (self.rows - self.missing))
        for outer in (values, values[::-1]):
            for codes in range(min(_MOST_CODES, len(values) - 2), 0, -1):
                beside = outer[codes:][: min(_BESIDE, (len(values) - codes) // 2)]
                far = abs(beside[0] - outer[codes - 1]) >= _FAR * abs(beside[-1] - beside[0])
                many = min(self.outermost[value] for value in outer[:codes]) >= cells
                if len(beside) > 1 and far and many:
                    found += sorted(outer[:codes])
                    break
        return found

    def _drafted(self) -> Drafted:
        codes = self.codes
        others = self.outermost.keys() - codes
        low, high = self._ends(min(others), max(others))
        if low == high:
            return self._as(f"constant in the data: {low}", kind=self.kind)
        why = f"{low} to {high} in the data"
        if self.column.date_format is not None:
            why += f", written as {self.column.date_format}"
        shown = {str(self._ends(each, each)[0]).removesuffix(".0"): each for each in codes}
        why += _asked({name: self.outermost[value] for name, value in shown.items()})
        return self._as(why, kind=self.kind, range=(low, high), confirmed=False)

    def _ends(self, low: float, high: float) -> tuple[Any, Any]:
        whole = low.is_integer() and high.is_integer() and low < high
        return (int(low), int(high)) if whole else (low, high)


class SeenDates(SeenNumbers):
    """Days since 1970-01-01."""

    kind, as_text = "date", True

    all_differ = False

    def __init__(self, name: str, date_format: str | None = None) -> None:
        super().__init__(name)
        self.column = replace(self.column, date_format=date_format)

    def _ends(self, low: float, high: float) -> tuple[Any, Any]:
        return FIRST_DAY + datetime.timedelta(days=low), FIRST_DAY + datetime.timedelta(days=high)


class SeenTruths(SeenDates):
    kind = "boolean"

    def _drafted(self) -> Drafted:
        return self._as("true or false", kind=self.kind)


class SeenTexts(Seen):
    is_text = as_text = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.levels: set[str] = set()  # One more than `MOST_LEVELS` at most
        self._days = [SeenDates(name, written) for written in DATE_FORMATS]
        self._no_dates = Counter[str]()

    def add(self, cells: Any) -> None:
        texts = words(cells).tolist()
        found = [value for value in texts if value is not None]
        for days in self._days:
            days.add(pa.array(texts, pa.string()))
        self.rows += len(cells)
        self.missing += len(cells) - len(found)
        if self._days:
            self._no_dates.update(filter(_NO_DATE.fullmatch, found))
            misfits = self.missing + self._no_dates.total()
            few = len(self._no_dates) <= _MOST_CODES
            self._days = [days for days in self._days if few and days.missing == misfits]
        self.distinct.add(found)
        for value in found:
            if len(self.levels) <= MOST_LEVELS:
                self.levels.add(value)

    @property
    def all_differ(self) -> bool:
        return super().all_differ and not self._dates

    @property
    def _dates(self) -> list[SeenDates]:
        """The formats of dates, where most cells with something in them are dates."""
        dates = self.rows - self.missing - self._no_dates.total()
        return self._days if self._no_dates.total() < dates else []

    @property
    def _truths(self) -> bool:
        """Whether all say true or false, and both are there."""
        said = {level.lower() for level in self.levels}
        both = not said.isdisjoint(TRUE_WORDS) and not said.isdisjoint(FALSE_WORDS)
        return both and said <= TRUE_WORDS | FALSE_WORDS

    def _drafted(self) -> Drafted:
        codes = _asked({repr(short_name(code)): n for code, n in self._no_dates.items()})
        if len(self._dates) == 1:
            found = self._dates[0].drafted()
            return replace(found, why=found.why + codes)
        if self._dates:
            ways = " or ".join(str(days.column.date_format) for days in self._dates)
            why = f"dates as {ways}: date_format says which{codes}"
            return self._as(why, kind="date", role="ignore")
        if self._truths:
            return self._as("true or false", kind="boolean")
        if len(self.levels) > MOST_LEVELS:
            why = f"a text with more than {MOST_LEVELS} values{self.several}"
            return self._as(why, role="ignore")
        why = f"{len(self.levels)} level{'s' if len(self.levels) > 1 else ''} in the data"
        if any("\ufffd" in level for level in self.levels):
            why += ", with letters that could not be read: --encoding, such as latin-1"
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
