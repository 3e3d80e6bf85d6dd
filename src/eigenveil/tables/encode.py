"""Rows of numbers from the columns of a table, as its schema says (tables.md, section 5).

A category becomes one column a level: 1 in that of its level. A level that the schema does not have
is 1 in the column of the others where there is one, and zeros everywhere else. A truth value is 0
or 1, a date its days since the column's origin, an age the years between two dates, and a missing
value NaN in all columns of its variable. What a cell becomes depends on that cell alone, and is the
same in every format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.norms import FloatArray
from eigenveil.tables.entries import INFINITE, MISSING, NUMBER, TRUTHS, codes_of, identifiers
from eigenveil.tables.reading import PLAIN, Dialect, date_pattern
from eigenveil.tables.schema import FIRST_DAY, Column, Schema

# Also in German, French, Spanish, Italian, Portuguese, Dutch, Danish, Polish, Czech and Turkish.
TRUE_WORDS = frozenset(
    (
        *("true", "t", "yes", "y", "1", "ja", "j", "wahr", "oui", "vrai", "sí", "sì", "si", "sim"),
        *("tak", "ano", "evet"),
    )
)
FALSE_WORDS = frozenset(
    (
        *("false", "f", "no", "n", "0", "nein", "falsch", "non", "faux", "não", "nao", "nee"),
        *("nej", "nei", "nie", "ne", "hay\u0131r", "hayir"),
    )
)
DAYS_A_YEAR = 365.25
"""Of what is told in years."""
_DAY = r"^\d{4}-\d{2}-\d{2}([T ].*)?$"
_DAY_FIRST = r"^(\d{2})\.(\d{2})\.(\d{4})"
_WHOLE = r"^([+-]?\d+)\.0*$"


class RowEncoder:
    """How a batch of a table becomes rows."""

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        unit: str | None = None,
        schema: Schema | None = None,
        reading: Dialect = PLAIN,
    ) -> None:
        self._read, self.unit, self.schema = tuple(columns), unit, schema
        self.names = tuple(name for column in columns for name in column.encoded_names)
        self._widths = [len(column.encoded_names) for column in columns]
        self._own = [name for column in columns for name in column.sources]
        self._fractions = any(len(column.sources) > 1 for column in columns)
        self.sources = {each.name: each for each in _sources(columns, unit, schema, reading)}
        """The columns of the table that are needed, and how their cells are read."""
        self.columns = tuple(self.sources)
        texts = {name for name, each in self.sources.items() if _reader(each).of_texts}
        self.texts = frozenset(texts if unit is None else {*texts, unit})
        """Those whose cells are wanted as they stand, where the table is a text."""
        codes = [(code, name) for name, each in self.sources.items() for code in each.na]
        self.found = Counter(dict.fromkeys(codes, 0))
        """Cells that were missing by a code, by the code and the column's name."""

    @classmethod
    def of_numbers(
        cls, names: Sequence[str], *, unit: str | None = None, reading: Dialect = PLAIN
    ) -> RowEncoder:
        return cls([Column(name, "number") for name in names], unit=unit, reading=reading)

    @classmethod
    def of_schema(cls, schema: Schema) -> RowEncoder:
        return cls(schema.read, unit=schema.unit, schema=schema, reading=schema.reading)

    def without_codes(self, batch: Any) -> Any:
        """A batch with nothing in place of codes for missing values."""
        if not self.found:
            return batch
        names = batch.schema.names
        columns = [
            without_codes(self.sources.get(name) or Column(name), cells, self.found)
            for name, cells in zip(names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=names)

    def values(self, column: Column, cells: Callable[[str], Any]) -> NDArray[Any]:
        """What one of its columns becomes, of the table's cells by name, shape (n, its width)."""
        found = [(self.sources[name], cells(name)) for name in column.sources]
        if len(found) == 1:
            return encoded(*found[0])
        since, until = (encoded(replace(day, origin=FIRST_DAY), cells) for day, cells in found)
        years: FloatArray = (until - since) / DAYS_A_YEAR
        return years

    def check_types(self, whose: str, types: Mapping[str, Any]) -> None:
        """Refuse columns whose type cannot be of their kind."""
        for column in (self.sources[name] for name in self._own):
            if not _reader(column).fits(_inner(types[column.name])):
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
        return self.rows(self.without_codes(batch))

    def rows(self, batch: Any) -> tuple[FloatArray, NDArray[np.object_] | None]:
        """The same, of a batch whose codes were taken out."""
        schema = batch.schema
        place = {name: index for index, name in enumerate(schema.names)}
        types = schema.types  # Arrow makes the list anew each time
        narrow = not self._fractions and all(
            name in self.texts or types[place[name]] in HELD_BY_SINGLE for name in self._own
        )
        dtype = np.float32 if narrow else np.float64  # each holds every entry exactly
        # column by column, as a table is stored: each is one piece of memory
        columns = np.empty((len(self.names), batch.num_rows), dtype)
        first = 0

        def cells(name: str) -> Any:
            return batch.column(place[name])  # by name it takes Arrow long

        for column, width in zip(self._read, self._widths, strict=True):
            columns[first : first + width] = self.values(column, cells).T
            first += width
        if self.unit is None:
            return columns.T, None
        return columns.T, labels(cells(self.unit))


def _sources(
    columns: Sequence[Column], unit: str | None, schema: Schema | None, reading: Dialect
) -> Iterator[Column]:
    """The columns of the table, with what is said of all of them where one says nothing."""
    names = dict.fromkeys(name for column in columns for name in column.sources)
    own = {column.name: column for column in columns if column.sources == (column.name,)}
    for name in names if unit is None else names | {unit: None}:
        found = own.get(name) or (schema and schema.column(name)) or Column(name)
        if name not in own and name != unit:  # one of two dates
            found = replace(found, kind="date")
        yield found.read_as(reading)


def without_codes(column: Column, cells: Any, found: Counter[Any] | None = None) -> Any:
    """Cells with nothing in place of a column's codes for missing values; ``found`` counts them."""
    if not column.na or pa.types.is_null(cells.type):
        return cells
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    left = cells
    for code, here in _coded(column, cells):
        if found is not None:
            found[code, column.name] += here.true_count
        left = pc.if_else(here, pa.scalar(None, cells.type), left)
    return left


def _coded(column: Column, cells: Any) -> Iterator[tuple[str, Any]]:
    """The codes for missing values, and which cells are one: as numbers, days or texts."""
    reader = _reader(column)
    numbers = {c: value for c, value in reader.codes(column).items() if not np.isnan(value)}
    if numbers:
        values = encoded(column, cells)[:, 0]
        yield from ((code, pa.array(values == value)) for code, value in numbers.items())
    words = [code for code in column.na if code not in numbers]
    if words and (reader.of_texts or pa.types.is_binary(cells.type)):
        texts = texts_of(cells)
        for code, text in zip(words, texts_of(pa.array(words)).to_pylist(), strict=True):
            yield code, pc.fill_null(pc.equal(texts, text), False)


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
    found = _reader(column).read(column, cells)
    return found[:, None] if found.ndim == 1 else found


def _levels(column: Column, cells: Any) -> NDArray[np.float64]:
    levels = column.levels
    texts = texts_of(cells)
    wanted = texts_of(pa.array(levels, pa.string()))
    codes = pc.index_in(texts, value_set=wanted)
    words = [word for word in MISSING if word not in levels]
    missing = _without(texts, words).is_null().to_numpy(zero_copy_only=False)
    found = np.zeros((len(cells), len(column.encoded_names)))
    known = codes.is_valid().to_numpy(zero_copy_only=False) & ~missing
    found[np.flatnonzero(known), codes.fill_null(0).to_numpy()[known]] = 1.0
    if column.other:
        found[~known, -1] = 1.0
    found[missing] = np.nan
    return found


def _truths(column: Column, cells: Any) -> NDArray[np.float64]:
    texts = pc.utf8_lower(texts_of(cells))
    found = np.full(len(cells), np.nan)
    known: list[Collection[str]] = [TRUE_WORDS, FALSE_WORDS]
    if column.true_words and not pa.types.is_boolean(cells.type):
        known = [column.true_words, column.false_words]
    for value, words in zip((1.0, 0.0), known, strict=True):
        these = pc.utf8_lower(texts_of(pa.array(sorted(words), pa.string())))
        is_one = pc.is_in(texts, value_set=these)
        found[is_one.to_numpy(zero_copy_only=False)] = value
    return found


def _iso(texts: Any, date_format: str | None) -> Any:
    """Texts of dates of a format as 2024-12-31; others of the usual two."""
    if date_format is None:
        return pc.replace_substring_regex(texts, _DAY_FIRST, r"\3-\2-\1")
    parts = pc.extract_regex(texts, date_pattern(date_format))
    year, month, day = (pc.struct_field(parts, part) for part in "Ymd")
    month, day = (pc.utf8_lpad(part, 2, "0") for part in (month, day))
    return pc.binary_join_element_wise(year, month, day, "-")


def _days(column: Column, cells: Any) -> NDArray[np.float64]:
    """Whole days since the column's origin; the time of day does not count."""
    if _is_text(cells.type):
        texts = _iso(texts_of(cells), column.date_format)
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
        if cells.type.tz is not None:  # some days of a zone begin after midnight
            cells = pc.local_timestamp(cells)
        cells = pc.floor_temporal(cells, unit="day")
    days = cells.cast(pa.date32(), safe=False).cast(pa.int32()).cast(pa.float64())
    found: NDArray[np.float64] = days.to_numpy(zero_copy_only=False)
    return found - float((column.origin - FIRST_DAY).days)


# -- Numbers, in whichever type a column holds them.


HELD_BY_SINGLE = frozenset(
    [pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.float16(), pa.float32()]
)


def is_numeric(kind: Any) -> bool:
    types = pa.types
    numeric = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
    return any(is_one(kind) for is_one in numeric)


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
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return any(is_one(kind) for is_one in (*texts, types.is_binary, types.is_null))


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
    # What codes for missing values are, where they are compared as numbers; NaN for words
    codes: Callable[[Column], Mapping[str, float]] = lambda _: {}


_READERS: Mapping[str | None, _KindReader] = {
    "number": _KindReader(
        lambda kind: is_numeric(kind) or pa.types.is_null(kind),
        lambda _, cells: numbers_of(cells),
        of_texts=False,
        codes=lambda column: codes_of(column.na),
    ),
    "boolean": _KindReader(lambda kind: is_numeric(kind) or _is_text(kind), _truths),
    "category": _KindReader(_is_label, _levels),
    "date": _KindReader(
        _is_day,
        _days,
        codes=lambda column: dict(zip(column.na, _days(column, pa.array(column.na)), strict=True)),
    ),
    None: _KindReader(_is_label, lambda _, cells: labels(cells)),
}


def _reader(column: Column) -> _KindReader:
    return _READERS[column.kind]
