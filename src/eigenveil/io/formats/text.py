"""Delimited text: CSV and TSV, gzipped or not."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from eigenveil.errors import DataError, FileDialectWarning, callers_level
from eigenveil.files import Place
from eigenveil.io.files import Lent, reading
from eigenveil.io.formats.dialect import EITHER, PlainLines, SettledDialect, records, settle
from eigenveil.io.formats.tabular import Table
from eigenveil.origins import FileOrigin, TextOrigin
from eigenveil.tables.encode import is_numeric, numbers_of, without_codes
from eigenveil.tables.entries import MISSING, codes_of
from eigenveil.tables.names import check_width, numbered_names
from eigenveil.tables.reading import PLAIN, Dialect
from eigenveil.tables.schema import Column

# Bytes read at a time, more where lines are so long that one does not fit. pyarrow holds some 50
# times as much, and is no faster with more.
_READ_BYTES, _MOST_READ_BYTES = 1 << 20, 1 << 24
# Of the beginning, which says how a text is written.
_HEAD_BYTES = 1 << 18
# Columns read cell by cell; where there are more, all are, for each means to start again.
_FEW = 2
# Rows that say how many cells a row has, where no line of names does.
_FIRST_ROWS = 30
_LONG_LINE = re.compile("straddling object|CSV parse error: Empty CSV file or block")
# pyarrow's message about a cell or a line, up to where it quotes it: the owner's data has no
# business in a message. Its rows count from 1, with the line of names.
_EMPTY = pa.array([*(word.encode() for word in MISSING), None], pa.binary())
_BAD_CELL = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+)")


class DelimitedTable(Table):
    """Lines of values under a line of names, or without one: then the names are c1, c2, ...

    How they are written is said, or guessed from the first lines, with a warning that says what was
    guessed: :class:`~eigenveil.io.formats.dialect.Dialect`. A cell is a number, or one of the words
    true and false (1 and 0), whatever its column's first lines look like; any other is NaN, as are
    empty ones. A line with too many cells or too few is a row of NaN; such rows come last. A column
    most of whose cells in the first lines, as many as are read at once, are other texts is one of
    texts: that it is one is taken for public.
    """

    def __init__(self, path: Place, *, dialect: Dialect = PLAIN) -> None:
        self._dialect = dialect
        self._given_names: list[str] | None = None
        kind = path.name.lower()
        self._settled: SettledDialect
        self._usual = "\t" if kind.removesuffix(".gz").endswith(".tsv") else ","
        self._read_bytes = _READ_BYTES
        self._cell_by_cell: set[str] = set()
        self._width = self.malformed = 0
        self.newlines_in_cells = dialect.newlines_in_cells
        self._lines: dict[tuple[int, bool], int] = {}
        super().__init__(path)
        self.flags = frozenset(self._words)
        self.nan = "nan (an empty cell, or text that is not a number)"
        self.written = self._settled.said(dialect)
        tell_guesses(path, self._settled)

    def require_numeric(self, name: str) -> None:
        if not is_numeric(self.types[name]):
            raise self.not_numeric(name, "is of texts, as most of its first lines show")

    def _fields(self) -> list[tuple[str, Any]]:
        with self._raw() as stream:
            self._settled = settle(self._dialect, stream.read(_HEAD_BYTES), usual=self._usual)
        with self._text() as stream:
            lines = 1 if self._dialect.header else _FIRST_ROWS
            self._width = width = cells_of_first_line(stream, self._settled.separator, lines)
        if not width:
            raise DataError("no-rows", path=self.path)
        check_width(str(self.path), width)  # pyarrow takes 20 KB a column
        if not self._dialect.header:
            self._given_names = numbered_names(width)
        try:
            with self._batch_reader(self._options()) as reader:
                schema = reader.stream.schema
            seen = [(field.name, field.type) for field in schema]
            numeric = {name for name, kind in seen if is_numeric(kind) or pa.types.is_null(kind)}
            numeric |= self._of_numbers([name for name, _ in seen if name not in numeric])
        except _AgainError:
            return self._fields()
        self._names = [name for name, _ in seen]
        self._words = {name for name, kind in seen if pa.types.is_boolean(kind)}
        return [(name, pa.float64() if name in numeric else kind) for name, kind in seen]

    def _of_numbers(self, names: Sequence[str]) -> set[str]:
        """Those of these columns most of whose cells in the first lines are no other text."""
        if not names:
            return set()
        kinds = dict.fromkeys(names, pa.binary())
        convert = self._options(include_columns=list(names), column_types=kinds)
        with self._batch_reader(convert) as reader:
            first = reader.next()
        if first is None:
            return set()
        found = set()
        for name, cells in zip(names, first.columns, strict=True):
            column = Column(name, "number", na=tuple(self._dialect.na))
            plainly = without_codes(column, plain(cells, self._settled.decimal))
            empty = pc.is_in(plainly, value_set=_EMPTY).to_numpy(zero_copy_only=False)
            texts = ~np.isfinite(numbers_of(plainly)) & ~empty
            if 2 * np.count_nonzero(texts) <= len(cells):
                found.add(name)
        return found

    @property
    def kinds(self) -> Mapping[str, Any]:
        """Nothing: a cell is what it reads as, whatever the first lines look like."""
        return dict.fromkeys(self.types, pa.null())

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        given = 0  # rows, should it be necessary to start again
        while True:
            seen = 0
            self.malformed = 0
            try:
                with self._batch_reader(self._convert(columns, texts)) as reader:
                    while (batch := reader.next()) is not None:
                        batch = self._plain_batch(batch, texts)
                        new = batch.slice(min(max(given - seen, 0), batch.num_rows))
                        seen += batch.num_rows
                        given = max(given, seen)
                        yield new
                return
            except _AgainError:
                continue

    def _convert(self, columns: Sequence[str], texts: Collection[str]) -> Any:
        """How cells become values: fast where all of a column's are of one kind, as most are."""
        if len(self._cell_by_cell) > _FEW:
            self._cell_by_cell |= set(columns)
        # the first lines may look like whole numbers where later ones have decimals
        kinds = {name: pa.bool_() if name in self._words else pa.float64() for name in columns}
        wordy = columns if any(map(math.isnan, codes_of(self._dialect.na).values())) else ()
        as_bytes = self._cell_by_cell.union(texts, wordy)
        kinds |= {name: pa.binary() for name in columns if name in as_bytes}
        return self._options(include_columns=list(columns), column_types=kinds)

    def _options(self, **more: Any) -> Any:
        return conversion((), self._settled.likely, **more)

    def _plain_batch(self, batch: Any, texts: Collection[str]) -> Any:
        """A batch whose cells of text are as of plain text, where the dialect is another."""
        decimal = self._settled.decimal
        if decimal == ".":
            return batch
        columns = [
            cells if name in texts else plain(cells, decimal)
            for name, cells in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _raw(self) -> Any:
        return _raw(self.path)

    def _text(self, lent: Lent | None = None) -> Any:
        """The text in UTF-8, each line as it is by itself."""
        plain = PlainLines(self._settled, self._dialect)
        endless = self._dialect.newlines_in_cells
        lines = _Utf8Lines(self._raw(), self._settled.encoding, plain, endless=endless)
        if lent is None:
            return pa.PythonFile(lines, "r")
        return pa.PythonFile(lent(lines), "r")  # with all that is Python's below it

    def _stream(self, lent: Lent) -> Any:
        """The same; a line of names alone, without an end, gets one."""
        if self._read_bytes == _MOST_READ_BYTES:
            text = self._text()
            start = text.read(_MOST_READ_BYTES)
            if start and b"\n" not in start and b"\r" not in start and not text.read(1):
                return pa.BufferReader(start + b"\n")
        return self._text(lent)

    def _skipping(self) -> Callable[[Any], str]:
        def skip(row: Any) -> str:
            del row
            self.malformed += 1
            return "skip"

        return skip

    def _opened(self, convert: Any, lent: Lent) -> Any:
        return pa.csv.open_csv(
            self._stream(lent),
            # reading in steps has one thread anyway, and without more pyarrow reports the row
            read_options=pa.csv.ReadOptions(
                block_size=self._read_bytes, use_threads=False, column_names=self._given_names
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=self._settled.separator,
                newlines_in_values=self._dialect.newlines_in_cells,
                invalid_row_handler=lent(self._skipping()),
            ),
            convert_options=convert,
        )

    @contextmanager
    def _batch_reader(self, convert: Any) -> Iterator[_Reader]:
        lent, reader = Lent(), _Reader()
        try:
            with lent, reader:
                reader.stream = self._opened(convert, lent)
                yield reader
        except pa.ArrowInvalid as error:
            if _LONG_LINE.match(str(error)) and self._read_bytes < _MOST_READ_BYTES:
                self._read_bytes *= 4
                raise _AgainError from None
            if cell := _BAD_CELL.match(str(error)):
                self._cell_by_cell.add(self._names[int(cell[1])])
                raise _AgainError from None
            if str(error).startswith("straddling object"):
                most = _MOST_READ_BYTES >> 20
                raise DataError("line-too-long", path=self.path, mebibytes=most) from None
            raise

    def origin(self) -> FileOrigin:
        return TextOrigin(str(self.path), partial(self._line_of, whole=True))

    def origin_of_malformed(self) -> FileOrigin:
        return TextOrigin(str(self.path), partial(self._line_of, whole=False))

    def _line_of(self, index: int, *, whole: bool) -> int | None:
        """The line, from 1, of a row with as many cells as names, or of one of the others."""
        known = self._lines.get((index, whole))
        if known is None:
            with self._text() as stream:
                found = (
                    line
                    for line, cells in records(stream, self._settled.separator)
                    if (cells == self._width) == whole
                )
                named = whole and self._dialect.header
                known = next(islice(found, index + named, None), None)
            if known is not None:
                self._lines[index, whole] = known
        return known


def _raw(path: Place) -> Any:
    source = str(path) if isinstance(path, Path) else path.open("rb")
    packed = path.name.lower().endswith(".gz")
    return pa.input_stream(source, compression="gzip" if packed else None)


def check_encoding(path: Place, encoding: str) -> None:
    """Refuse an encoding that a text is not in, for its owner: all of it is read."""
    decoder, in_bytes, in_text = codecs.getincrementaldecoder(encoding)(), False, False
    with reading(path), _raw(path) as stream, suppress(UnicodeError):
        while more := stream.read(_READ_BYTES):
            text = decoder.decode(more)
            if "\0" in text:
                break
            in_bytes, in_text = in_bytes or b"\n" in more, in_text or "\n" in text
        else:
            decoder.decode(b"", True)
            if in_text or not in_bytes:  # else two of its bytes were taken for one character
                return
    raise DataError("not-in-encoding", path=path, encoding=encoding)


def tell_guesses(path: Place, settled: SettledDialect) -> None:
    """Warn the owner of what was guessed and is not as usual."""
    if settled.guessed:
        warnings.warn(
            f"{path}: read with {', '.join(settled.guessed)}, as its first lines look. "
            "To state it: [reading] in a schema; --separator, --decimal, --encoding and --comment; "
            "dialect= in Python.",
            FileDialectWarning,
            stacklevel=callers_level(),
        )


def conversion(na: Sequence[str], decimal: str, **more: Any) -> Any:
    words = [*pa.csv.ConvertOptions().null_values, *na]
    return pa.csv.ConvertOptions(decimal_point=decimal, null_values=words, **more)


def plain(cells: Any, decimal: str) -> Any:
    """Cells of numbers as text (others stay) with points for decimals."""
    if decimal == "." or not pa.types.is_binary(cells.type):
        return cells
    both = pc.match_substring(cells, ".")  # 1.500,5; or 1.500 where commas are decimal
    if decimal == EITHER:
        both = pc.and_(both, pc.match_substring(cells, ","))
    return pc.replace_substring(pc.if_else(both, pa.scalar(None, pa.binary()), cells), ",", ".")


class _Reader:
    """The only reference to pyarrow's reader, which ends with it."""

    stream: Any = None

    def next(self) -> Any:
        return next(iter(self.stream), None)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.stream = None


class _Utf8Lines(io.RawIOBase):
    """A text in UTF-8, whose lines are made plain.

    What has no characters in its encoding becomes others. Of a line that is too long to be read the
    beginning is left out, so that it is one row, which is not valid.
    """

    def __init__(self, stream: Any, encoding: str, plain: PlainLines, *, endless: bool) -> None:
        self._stream, self._plain, self._endless = stream, plain, endless
        self._plainly_coded = encoding == "utf-8"
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._ready, self._rest = b"", b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._ready:
            more = self._stream.read(_READ_BYTES)
            text = self._rest + self._in_utf8(more)
            # an end of a line may be \r, which may be half of one
            end = (text.rfind(b"\n") + 1 or text.rfind(b"\r", 0, -1) + 1) if more else len(text)
            self._ready, self._rest = self._plain(text[:end]), text[end:]
            if len(self._rest) > _MOST_READ_BYTES - _READ_BYTES and not self._endless:
                self._rest = b"?"
            if not more:
                break
        size = len(self._ready) if size < 0 else size
        found, self._ready = self._ready[:size], self._ready[size:]
        return found

    def _in_utf8(self, data: bytes) -> bytes:
        """What is no UTF-8 becomes some: pyarrow decodes the lines that it leaves out."""
        if self._plainly_coded and data and data.isascii() and not self._decoder.getstate()[0]:
            return data
        return self._decoder.decode(data, not data).encode()


class _AgainError(Exception):
    """The text is to be read again: more at a time, or a column cell by cell."""


def cells_of_first_line(text: Any, delimiter: str, most: int = 1) -> int:
    """How many cells the first line with any has, found by reading little further than its end."""
    start: bytes = text.read(_READ_BYTES)
    if b"\n" not in start.strip():
        start += text.read(_MOST_READ_BYTES)
    lines = csv.reader(io.StringIO(start.decode("latin-1"), newline=""), delimiter=delimiter)
    try:
        found = Counter(islice((len(cells) for cells in lines if cells), most))
        return found.most_common(1)[0][0] if found else 0
    except csv.Error:  # pyarrow reports what is wrong, if it is
        return start.count(delimiter.encode()) + 1
