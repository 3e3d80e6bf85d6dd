"""Rows of a text file or of standard input in their order, as they come, each read once."""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.io.files import reading
from eigenveil.io.formats.dialect import PLAIN, Dialect, PlainLines, Settled, settle
from eigenveil.io.formats.tabular import Table
from eigenveil.io.formats.text import (
    BAD_CELL,
    BAD_LINE,
    cells_of_first_line,
    codes_of,
    conversion,
    plain,
    tell_guesses,
)
from eigenveil.io.open import select
from eigenveil.io.stopping import Stop
from eigenveil.moments.rows import Block
from eigenveil.moments.source import rechunk
from eigenveil.origins import TextOrigin
from eigenveil.tables.encode import numbers_of
from eigenveil.tables.names import check_width, numbered_names

STANDARD_INPUT = Path("standard input")
_READ_BYTES, _LONGEST_LINE = 1 << 20, 1 << 24
_ASCII = bytes(byte if byte < 128 else ord("?") for byte in range(256))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


_Part = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Rows, and the line of each."""


class StreamedRows:
    """Rows of delimited text under a line of names (or without one), each read once.

    Only what was read and not yet given is kept, some megabytes at most.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        columns: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        dialect: Dialect = PLAIN,
        stop: Stop | None = None,
        strict: bool = True,
    ) -> None:
        self._strict = strict
        stop = Stop() if stop is None else stop
        self._text = _Pieces(None if path is None else Path(path), stop=stop, dialect=dialect)
        self._columns, self._exclude, self._dialect = columns, exclude, dialect
        self.path = self._text.path
        self.names: Sequence[str] | None = None
        """The columns, once the line of names was read."""

    def blocks(self, size: int, *, limit: int | None = None) -> Generator[Block]:
        """Rows as they come, ``size`` at a time; only the last block may have fewer."""
        problem: list[DataError] = []
        for values, lines in rechunk(_at_most(self._parts(problem), limit), size):
            yield Block(values, origin=TextOrigin(str(self.path), partial(_line_of, lines)))
        if problem:
            raise problem[0]

    def _parts(self, problem: list[DataError]) -> Iterator[_Part]:
        try:
            yield from self._read()
        except DataError as error:  # raised when the rows before it were given
            problem.append(error)

    def _read(self) -> Iterator[_Part]:
        parser: _Parser | None = None
        line, told = 1, False
        for piece in self._text:
            rest = piece
            if parser is None:
                first = next((begin for begin, text in self._text.lines(piece) if text.strip()), -1)
                if first < 0:  # empty lines only
                    line += piece.count(b"\n")
                    continue
                end = first + len(next(self._text.lines(piece[first:]))[1])
                names = _Names(self._text, piece[first:end], header=self._dialect.header)
                parser = _Parser(
                    self._text,
                    names,
                    self._columns,
                    self._exclude,
                    strict=self._strict,
                    na=self._dialect.na,
                )
                self.names = parser.names
                begin = end if self._dialect.header else first
                line += piece[:begin].count(b"\n")
                rest = piece[begin:].removeprefix(_BYTE_ORDER_MARK)
            if rest.strip() and not told:
                assert self._text.settled is not None
                tell_guesses(self.path, self._text.settled)
                told = True
            yield from parser.rows(rest, line)
            line += rest.count(b"\n")


def _line_of(lines: NDArray[np.int64], index: int) -> int | None:
    return int(lines[index]) or None


def _at_most(parts: Iterator[_Part], limit: int | None) -> Iterator[_Part]:
    left = limit
    while left is None or left > 0:
        part = next(parts, None)
        if part is None:
            return
        if left is not None:
            part = (part[0][:left], part[1][:left])
            left -= part[0].shape[0]
        yield part


def _read_csv(text: bytes, **options: Any) -> Any:
    while True:
        try:
            return pa.csv.read_csv(pa.BufferReader(text), **options)
        except pa.lib.ArrowCancelled:
            # pyarrow gives up on Ctrl-C; these lines are still to be read (see Stop)
            continue


class _Pieces:
    """Delimited text in pieces of whole lines, as they come; the last may have no newline."""

    def __init__(self, path: Path | None, *, stop: Stop, dialect: Dialect) -> None:
        if dialect.newlines_in_cells:
            raise DataError("no-cells-over-lines")
        self.path = STANDARD_INPUT if path is None else path
        self._file, self._stop, self._dialect = path, stop, dialect
        self._usual = "," if path is None else _usual_separator(path)
        self._decoder: codecs.IncrementalDecoder | None = None
        self._plain = True
        self._plain_lines: PlainLines | None = None
        self._head, self._decided = b"", False
        self.settled: Settled | None = None
        """How the text is written, once its first line is there."""

    @property
    def separator(self) -> str:
        """What is between two cells."""
        return self._usual if self.settled is None else self.settled.separator

    def __iter__(self) -> Iterator[bytes]:
        """Whole lines, some 16 MiB at most."""
        kept = b""
        with reading(self.path), self._opened() as file:
            while file is not None and (data := self._more(file)):
                kept += self._in_utf8(data)
                end = self._whole_lines(kept)
                if end:
                    self._head = b"" if self._decided else self._head + kept[:end]
                    yield self._plainly(kept[:end])
                    kept = kept[end:]
                elif len(kept) > _LONGEST_LINE:
                    kept = b"?"  # one row, which is not valid
        if kept and not self._stop.requested:
            self._whole_lines(kept + b"\n")  # for the separator
            yield self._plainly(kept)

    def lines(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Each line of a piece with where it begins."""
        place = 0
        for line in piece.splitlines(keepends=True):
            yield place, line
            place += len(line)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        if self._file is None:
            yield sys.stdin.buffer
            return
        path = self._file
        # opening a pipe waits for its writer
        file = self._stop.wait(lambda: path.open("rb", buffering=0))
        try:
            yield file
        finally:
            if file is not None:
                file.close()

    def _more(self, file: Any) -> bytes:
        """What there is, after waiting for it; nothing at the end."""
        # what a buffered reader has is taken as it comes, not when a megabyte is full
        read = getattr(file, "read1", file.read)
        data: bytes | None = self._stop.wait(lambda: read(_READ_BYTES))
        if not data and self._file is not None and not self._stop.requested:
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode) and found.st_size < file.tell():
                raise DataError("file-moved", path=self.path, moved="was made shorter")
        return data or b""

    def _whole_lines(self, text: bytes) -> int:
        """Where the last whole line of a text ends; 0 if none does."""
        end = text.rfind(b"\n") + 1
        if end and not self._decided:
            self._settle(self._head + text[:end])
        return end

    def _plainly(self, lines: bytes) -> bytes:
        return lines if self._plain_lines is None else self._plain_lines(lines)

    def _settle(self, start: bytes) -> None:
        """How text that begins like this is written; its decimal point shows in the first row."""
        found = settle(replace(self._dialect, encoding="utf-8"), start, usual=self._usual)
        if self._plain_lines is None:
            self._plain_lines = PlainLines(found, self._dialect)
        self.settled = found
        lines = [line for line in start.splitlines() if line.strip()]
        self._decided = len(lines) - found.skipped > self._dialect.header

    def _in_utf8(self, data: bytes) -> bytes:
        if self._decoder is None:
            encoding = self._dialect.encoding or settle(self._dialect, data, usual=",").encoding
            self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            self._plain = encoding == "utf-8"
        return data if self._plain else self._decoder.decode(data).encode()


def _usual_separator(path: Path) -> str:
    with reading(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise DataError("no-such-file", path=path) from None
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        return "\t" if kind == ".tsv" else ","
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        raise DataError("not-watched", path=path)
    return ","


class _Names(Table):
    """The columns of text, of which no more is known than the first line."""

    def __init__(self, text: _Pieces, line: bytes, *, header: bool) -> None:
        self._line, self._delimiter = line.removeprefix(_BYTE_ORDER_MARK), text.separator
        self._header = header
        super().__init__(text.path)

    def _fields(self) -> list[tuple[str, Any]]:
        width = cells_of_first_line(io.BytesIO(self._line), self._delimiter)
        check_width(str(self.path), width)
        self.all_names: list[str] = self._read_names() if self._header else numbered_names(width)
        return [(name, pa.float64()) for name in self.all_names]

    def _read_names(self) -> list[str]:
        names: list[str] = _read_csv(
            self._line,
            parse_options=pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=False),
        ).schema.names
        return names

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        raise NotImplementedError


class _Parser:
    """Lines made into numbers."""

    def __init__(
        self,
        text: _Pieces,
        names: _Names,
        columns: Sequence[str] | None,
        exclude: Sequence[str],
        *,
        strict: bool,
        na: Sequence[str],
    ) -> None:
        self._text, self._strict, self._na = text, strict, na
        self._codes = list(codes_of(na).values())
        self._table = names
        self.names = select([self._table], columns, exclude)
        self._kinds: dict[str, Any] | None = None

    def rows(self, piece: bytes, line: int) -> Iterator[_Part]:
        """The numbers of whole lines, the first of which is number ``line``, and their lines.

        A line is 0 where nobody is going to ask for it.
        """
        if not piece.strip(b"\r\n"):
            return
        if not self._strict:
            values = self._cell_by_cell(piece)
            yield values, self._lines_of(piece, line, values)
            return
        if self._kinds is None:
            self._kinds = self._kinds_of(piece)
        try:
            table = self._parsed(piece, self._kinds)
        except pa.ArrowInvalid as error:
            problem, place = self._located(str(error), piece, line)
            # the rows before it are good, or one of them has a problem of its own
            yield from self.rows(piece[:place], line)
            raise problem from None
        values = np.empty((table.num_rows, len(self.names)))
        for index, name in enumerate(self.names):
            values[:, index] = table.column(name).cast(pa.float64()).to_numpy()
        wrong, lines = ~np.isfinite(values), np.zeros(values.shape[0], np.int64)
        if not wrong.any():
            yield values, lines
            return
        row, column = (int(index) for index in np.argwhere(wrong)[0])
        if row:
            yield values[:row], lines[:row]
        place = self._place(piece, row)
        line += piece[:place].count(b"\n")
        origin = TextOrigin(str(self._text.path), lambda _: line)
        raise DataError(
            "not-finite", place=origin.cell(row, column, self.names), value=values[row, column]
        )

    def _lines_of(self, piece: bytes, line: int, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The line of each row, where one of them is going to be named."""
        if np.isfinite(values).all():
            return np.zeros(values.shape[0], np.int64)
        lines = []
        for _, text in self._text.lines(piece):
            if text.strip(b"\r\n"):
                lines.append(line)
            line += text.count(b"\n")
        return np.resize(np.array(lines, np.int64), values.shape[0])

    def _cell_by_cell(self, piece: bytes) -> NDArray[np.float64]:
        """The same with NaN for what is no number, and for all cells of a line that is no row."""
        malformed: list[int] = []

        def skip(row: Any) -> str:
            malformed.append(row.number - 1)
            return "skip"

        # pyarrow decodes the lines that it leaves out; what is no ASCII is no number anyway
        piece = piece.translate(_ASCII)
        table = self._parsed(piece, dict.fromkeys(self.names, pa.binary()), skip)
        values = np.full((table.num_rows + len(malformed), len(self.names)), np.nan)
        rows = np.ones(values.shape[0], dtype=bool)
        rows[malformed] = False
        for index, name in enumerate(self.names):
            cells = table.column(name).combine_chunks()
            found = numbers_of(plain(cells, self._na, self._settled.decimal, number=True))
            values[rows, index] = np.where(np.isin(found, self._codes), np.nan, found)
        return values

    def _parsed(
        self, piece: bytes, kinds: dict[str, Any], skip: Callable[[Any], str] | None = None
    ) -> Any:
        return _read_csv(
            piece,
            read_options=pa.csv.ReadOptions(
                column_names=self._table.all_names,
                use_threads=False,  # pyarrow then reports the row
                block_size=len(piece) + 1,
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=self._text.separator, newlines_in_values=False, invalid_row_handler=skip
            ),
            convert_options=conversion(
                self._na, self._settled.likely, include_columns=list(self.names), column_types=kinds
            ),
        )

    @property
    def _settled(self) -> Settled:
        assert self._text.settled is not None  # there are rows
        return self._text.settled

    def _kinds_of(self, piece: bytes) -> dict[str, Any]:
        """Doubles, but truth values where the first row has one."""
        kinds = dict.fromkeys(self.names, pa.float64())
        first = next(text for _, text in self._text.lines(piece) if text.strip(b"\r\n"))
        try:
            seen = self._parsed(first, {}).schema
        except pa.ArrowInvalid:  # found again with its place
            return kinds
        words = {field.name: field.type for field in seen if pa.types.is_boolean(field.type)}
        return kinds | words

    def _located(self, complaint: str, piece: bytes, line: int) -> tuple[DataError, int]:
        """The error that names the line, without quoting it, and where in the piece that begins."""
        cell, cells = BAD_CELL.match(complaint), BAD_LINE.match(complaint)
        row = (cell and cell[2]) or (cells and cells[1])
        if row is None:
            what = "a line between here and the end of what is there"
            return self._unreadable(f"{what} cannot be read", line), 0
        place = self._place(piece, int(row) - 1)
        line += piece[:place].count(b"\n")
        if cells:
            return self._unreadable(f"{cells[3]} columns instead of {cells[2]}", line), place
        assert cell is not None
        name = self._table.all_names[int(cell[1])]
        wanted = "true or false" if cell[3] == "bool" else "a number"
        return self._table.not_numeric(name, f"is not {wanted} at line {line}"), place

    def _unreadable(self, what: str, line: int) -> DataError:
        return DataError("bad-line", path=self._text.path, line=line, what=what)

    def _place(self, piece: bytes, row: int) -> int:
        """Where a row begins; empty lines are no rows."""
        begins = [begin for begin, text in self._text.lines(piece) if text.strip(b"\r\n")]
        return begins[min(row, len(begins) - 1)]
