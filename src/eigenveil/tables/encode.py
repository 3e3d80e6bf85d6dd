"""Rows of numbers from the columns of a table, as its schema says (tables.md, section 5).

A category becomes one column a level: 1 in that of its level, and zeros everywhere for a level that
the schema does not have. A truth value is 0 or 1, a date its days since the column's origin, and a
missing value NaN in all columns of its variable. What a cell becomes depends on that cell alone,
and is the same in every format.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.norms import FloatArray
from eigenveil.tables.entries import INFINITE, MISSING, NUMBER, TRUTHS, identifiers
from eigenveil.tables.schema import FIRST_DAY, Column, Schema

_TRUE = ("true", "t", "yes", "y", "1")
_FALSE = ("false", "f", "no", "n", "0")
_DAY = r"^\d{4}-\d{2}-\d{2}([T ].*)?$"
_WHOLE = r"^([+-]?\d+)\.0*$"


class RowEncoder:
    """How a batch of a table becomes rows."""

    def __init__(
        self, columns: Sequence[Column], *, unit: str | None = None, schema: Schema | None = None
    ) -> None:
        self._read, self.unit, self.schema = tuple(columns), unit, schema
        self.names = tuple(name for column in columns for name in column.encoded_names)
        self._widths = [len(column.encoded_names) for column in columns]
        named = [column.name for column in columns]
        self.columns = tuple(named if unit is None or unit in named else [*named, unit])
        """The columns of the table that are needed."""
        texts = {c.name for c in columns if _READERS[str(c.kind)].of_texts}
        self.texts = frozenset(texts if unit is None else {*texts, unit})
        """Those whose cells are wanted as they stand, where the table is a text."""

    @classmethod
    def of_numbers(cls, names: Sequence[str], *, unit: str | None = None) -> RowEncoder:
        return cls([Column(name, "number") for name in names], unit=unit)

    @classmethod
    def of_schema(cls, schema: Schema) -> RowEncoder:
        return cls(schema.read, unit=schema.unit, schema=schema)

    def check_types(self, whose: str, types: Mapping[str, Any]) -> None:
        """Refuse columns whose type cannot be of their kind."""
        for column in self._read:
            if not _READERS[str(column.kind)].fits(_inner(types[column.name])):
                raise DataError(
                    "column-kind",
                    whose=whose,
                    column=column.name,
                    found=types[column.name],
                    kind=column.kind,
                )
        if self.unit is not None and not _is_label(_inner(types[self.unit])):
            raise DataError("unit-kind", whose=whose, unit=self.unit, kind=types[self.unit])

    def __call__(self, batch: Any) -> tuple[FloatArray, NDArray[np.object_] | None]:
        """Rows of an Arrow batch, shape (n, D) in Fortran order, and whose they are."""
        schema = batch.schema
        place = {name: index for index, name in enumerate(schema.names)}
        types = schema.types  # Arrow makes the list anew each time
        narrow = all(
            name in self.texts or types[place[name]] in HELD_BY_SINGLE
            for name in (column.name for column in self._read)
        )
        dtype = np.float32 if narrow else np.float64  # each holds every entry exactly
        # column by column, as a table is stored: each is one piece of memory
        columns = np.empty((len(self.names), batch.num_rows), dtype)
        first = 0
        for column, width in zip(self._read, self._widths, strict=True):
            cells = batch.column(place[column.name])
            columns[first : first + width] = encoded(column, cells).T
            first += width
        if self.unit is None:
            return columns.T, None
        return columns.T, labels(batch.column(place[self.unit]))


def labels(column: Any) -> NDArray[np.object_]:
    """Identifiers in their one form, shape (n,); ``None`` where one is missing."""
    kind = _inner(column.type)
    if kind != column.type:
        column = column.dictionary_decode()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_temporal(kind):
        column = column.cast(pa.string())
    if pa.types.is_floating(kind):
        return _objects(identifiers(column.to_numpy(zero_copy_only=False)))
    return _objects(identifiers(column.to_pylist()))


def words(column: Any) -> NDArray[np.object_]:
    """Cells as texts, shape (n,); ``None`` where one is missing."""
    return _objects(_without(texts_of(column), MISSING).to_pylist())


def _objects(found: Sequence[str | None]) -> NDArray[np.object_]:
    return np.array(found, dtype=np.object_)


def texts_of(column: Any) -> Any:
    """Cells as an Arrow array of texts, without blanks around them; ``17.0`` is ``17``."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = _decoded(column)
    texts = pc.ascii_trim_whitespace(column.cast(pa.string()))
    return pc.replace_substring_regex(texts, _WHOLE, r"\1")


def _decoded(column: Any) -> Any:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:  # some cell is no UTF-8
        cells = column.to_pylist()
        return pa.array([None if c is None else c.decode(errors="replace") for c in cells])


def _without(texts: Any, missing: Sequence[str]) -> Any:
    gone = pc.is_in(texts, value_set=pa.array(missing, pa.string()))
    return pc.if_else(gone, pa.scalar(None, pa.string()), texts)


# -- One function a kind: an array of shape (n,) or (n, levels) from an Arrow column.


def encoded(column: Column, cells: Any) -> NDArray[Any]:
    """The columns that the cells of an Arrow array become, shape (n, 1) or (n, levels)."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_null(cells.type):
        return np.full((len(cells), len(column.encoded_names)), np.nan)
    found = _READERS[str(column.kind)].read(column, cells)
    return found[:, None] if found.ndim == 1 else found


def _levels(cells: Any, levels: Sequence[str]) -> NDArray[np.float64]:
    texts = texts_of(cells)
    wanted = texts_of(pa.array(levels, pa.string()))
    codes = pc.index_in(texts, value_set=wanted)
    words = [word for word in MISSING if word not in levels]
    missing = _without(texts, words).is_null().to_numpy(zero_copy_only=False)
    found = np.zeros((len(cells), len(levels)))
    known = codes.is_valid().to_numpy(zero_copy_only=False) & ~missing
    found[np.flatnonzero(known), codes.fill_null(0).to_numpy()[known]] = 1.0
    found[missing] = np.nan
    return found


def _truths(cells: Any) -> NDArray[np.float64]:
    texts = pc.utf8_lower(texts_of(cells))
    found = np.full(len(cells), np.nan)
    for value, words in ((1.0, _TRUE), (0.0, _FALSE)):
        is_one = pc.is_in(texts, value_set=pa.array(words, pa.string()))
        found[is_one.to_numpy(zero_copy_only=False)] = value
    return found


def _days(cells: Any, origin: datetime.date) -> NDArray[np.float64]:
    """Whole days since ``origin``; the time of day does not count."""
    if _is_text(cells.type):
        texts = texts_of(cells)
        dated = pc.if_else(
            pc.match_substring_regex(texts, _DAY),
            pc.utf8_slice_codeunits(texts, 0, 10),
            pa.scalar(None, pa.string()),
        )
        stamps = pc.strptime(dated, format="%Y-%m-%d", unit="s", error_is_null=True)
        # the 30th of February reads as a day of March
        same = pc.equal(pc.strftime(stamps, format="%Y-%m-%d"), dated)
        cells = pc.if_else(same, stamps, pa.scalar(None, stamps.type))
    if pa.types.is_timestamp(cells.type):
        cells = pc.floor_temporal(cells, unit="day")
    days = cells.cast(pa.date32(), safe=False).cast(pa.int32()).cast(pa.float64())
    found: NDArray[np.float64] = days.to_numpy(zero_copy_only=False)
    return found - float((origin - FIRST_DAY).days)


# -- Numbers, in whichever type a column holds them.


HELD_BY_SINGLE = frozenset(
    [pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.float16(), pa.float32()]
)


def is_numeric(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
    )


def _cells(column: Any) -> NDArray[np.float64]:
    """Values of cells of text, each by itself; NaN for what is no number."""
    values = np.full(len(column), np.nan)
    numeric = pc.fill_null(pc.match_substring_regex(column, NUMBER), False)
    text = column.filter(numeric).cast(pa.string())
    bare = pc.ascii_ltrim(pc.ascii_trim(text, " \t"), "+")
    values[numeric.to_numpy(zero_copy_only=False)] = bare.cast(pa.float64()).to_numpy()
    infinite = pc.fill_null(pc.match_substring_regex(column, INFINITE), False)
    negative = pc.fill_null(pc.match_substring(column, "-"), False)
    values[infinite.to_numpy(zero_copy_only=False)] = np.inf
    values[pc.and_(infinite, negative).to_numpy(zero_copy_only=False)] = -np.inf
    for value, words in TRUTHS.items():
        found = pc.is_in(column, pa.array(words, pa.binary()))
        values[found.to_numpy(zero_copy_only=False)] = value
    return values


def numbers_of(column: Any) -> NDArray[Any]:
    """Values of an Arrow column, NaN for a null and for a cell of text that is no number."""
    if pa.types.is_binary(column.type):
        return _cells(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type):
        # by way of text: Arrow's own conversion is off by a last digit now and then, and the same
        # number must come out of every format
        column = column.cast(pa.string()).cast(pa.float64())
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


# -- Which types can be of which kind.


def _inner(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_binary(kind)
        or types.is_null(kind)
    )


def _is_day(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind) or _is_text(kind))


def _is_label(kind: Any) -> bool:
    return bool(is_numeric(kind) or _is_day(kind))


@dataclass(frozen=True)
class _KindReader:
    """How the cells of a kind are read."""

    fits: Callable[[Any], bool]  # Whether an Arrow type can be of the kind
    read: Callable[[Column, Any], NDArray[Any]]
    of_texts: bool = True  # Whether cells are wanted as they stand, where the table is a text


_READERS = {
    "number": _KindReader(
        lambda kind: is_numeric(kind) or pa.types.is_null(kind),
        lambda _, cells: numbers_of(cells),
        of_texts=False,
    ),
    "boolean": _KindReader(
        lambda kind: is_numeric(kind) or _is_text(kind), lambda _, cells: _truths(cells)
    ),
    "category": _KindReader(_is_label, lambda column, cells: _levels(cells, column.levels)),
    "date": _KindReader(_is_day, lambda column, cells: _days(cells, column.origin)),
}
