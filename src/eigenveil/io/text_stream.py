"""Rows of a text file or of standard input in their order, as they come, each read once."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
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
from eigenveil.io.formats.dialect import PlainLines, SettledDialect, settle
from eigenveil.io.formats.tabular import Table
from eigenveil.io.formats.text import cells_of_first_line, conversion, plain, tell_guesses
from eigenveil.io.open import select
from eigenveil.io.stopping import Stop
from eigenveil.moments.rows import Block
from eigenveil.moments.source import rechunk
from eigenveil.origins import TextOrigin
from eigenveil.tables.encode import numbers_of, without_codes
from eigenveil.tables.entries import number
from eigenveil.tables.names import check_width, numbered_names
from eigenveil.tables.reading import PLAIN, Dialect
from eigenveil.tables.schema import Column

STANDARD_INPUT = Path("standard input")
_READ_BYTES, _LONGEST_LINE = 1 << 20, 1 << 24
_ASCII = bytes(byte if byte < 128 else ord("?") for byte in range(256))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_EMPTY_LINES = re.compile(rb"(?:[^\S\n]*\n)*")


_Part = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Rows, and the line of each."""


class StreamedRows:
    """Rows of delimited text, each read once; no more is kept than was read and not yet given."""

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
                if not piece.strip():  # empty lines only
                    line += piece.count(b"\n")
                    continue
                first = len(piece) - len(_EMPTY_LINES.sub(b"", piece, count=1))
                end = first + len(piece[first:].splitlines(keepends=True)[0])
                parser = _Parser(
                    self._text, piece[first:end], self._columns, self._exclude, self._dialect
                )
                self.names = parser.names
                begin = end if self._dialect.header else first
                line += piece[:begin].count(b"\n")
                rest = piece[begin:].removeprefix(_BYTE_ORDER_MARK)
            if rest.strip() and not told:
                assert self._text.settled is not None
                tell_guesses(self.path, self._text.settled)
                told = True
            yield from parser.rows(rest, line, strict=self._strict)
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
        self.settled: SettledDialect | None = None
        """How the text is written, once its first line is there."""

    @property
    def separator(self) -> str:
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


class _Parser(Table):
    """Lines made into numbers; of their columns no more is known than the first line."""

    def __init__(
        self,
        text: _Pieces,
        line: bytes,
        columns: Sequence[str] | None,
        exclude: Sequence[str],
        dialect: Dialect,
    ) -> None:
        self._text, self._dialect = text, dialect
        self._line = line.removeprefix(_BYTE_ORDER_MARK)
        super().__init__(text.path)
        self.names = select([self], columns, exclude)

    def _fields(self) -> list[tuple[str, Any]]:
        width = cells_of_first_line(io.BytesIO(self._line), self._text.separator)
        check_width(str(self.path), width)
        names = numbered_names(width)
        if self._dialect.header:
            options = pa.csv.ParseOptions(delimiter=self._text.separator, newlines_in_values=False)
            names = _read_csv(self._line, parse_options=options).schema.names
        self._all_names = names
        return [(name, pa.float64()) for name in names]

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        raise NotImplementedError

    def rows(self, piece: bytes, line: int, *, strict: bool) -> Iterator[_Part]:
        """The numbers of whole lines, the first of which is number ``line``, and their lines.

        NaN are what is no number, and all cells of a line that is no row; if ``strict`` such a one
        is refused. A line is 0 where nobody is going to ask for it.
        """
        if not piece.strip(b"\r\n"):
            return
        values = self._values(piece)
        lines = np.zeros(values.shape[0], np.int64)
        wrong = ~np.isfinite(values).all(axis=1)
        if not wrong.any():
            yield values, lines
            return
        found = [(line + before, text) for before, text in enumerate(piece.splitlines()) if text]
        lines = np.resize(np.array([number for number, _ in found], np.int64), values.shape[0])
        if strict:
            row = int(np.argmax(wrong))
            if row:
                yield values[:row], lines[:row]
            raise self._problem(*found[min(row, len(found) - 1)], values[row])
        yield values, lines

    def _values(self, piece: bytes) -> NDArray[np.float64]:
        """Fast where every cell is a number in the likely way, and cell by cell elsewhere."""
        # pyarrow decodes the lines that it leaves out; what is no ASCII is no number anyway
        piece = piece.translate(_ASCII)
        malformed: list[int] = []

        def skip(row: Any) -> str:
            malformed.append(row.number - 1)
            return "skip"

        try:
            table = self._parsed(piece, pa.float64(), None)
        except pa.ArrowInvalid:
            table = self._parsed(piece, pa.binary(), skip)
        values = np.full((table.num_rows + len(malformed), len(self.names)), np.nan)
        rows = np.ones(values.shape[0], dtype=bool)
        rows[malformed] = False
        for index, name in enumerate(self.names):
            cells = plain(table.column(name).combine_chunks(), self._settled.decimal)
            column = Column(name, "number", na=tuple(self._dialect.na))
            values[rows, index] = numbers_of(without_codes(column, cells))
        return values

    def _parsed(self, piece: bytes, kind: Any, skip: Callable[[Any], str] | None) -> Any:
        return _read_csv(
            piece,
            read_options=pa.csv.ReadOptions(
                column_names=self._all_names,
                use_threads=False,  # pyarrow then reports the row
                block_size=len(piece) + 1,
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=self._text.separator, newlines_in_values=False, invalid_row_handler=skip
            ),
            convert_options=conversion(
                self._dialect.na,
                self._settled.likely,
                include_columns=list(self.names),
                column_types=dict.fromkeys(self.names, kind),
            ),
        )

    @property
    def _settled(self) -> SettledDialect:
        assert self._text.settled is not None  # there are rows
        return self._text.settled

    def _problem(self, line: int, text: bytes, values: NDArray[np.float64]) -> DataError:
        """Why a line is no row of numbers, without quoting it."""
        reader = csv.reader([text.decode(errors="replace")], delimiter=self._text.separator)
        cells = next(reader)
        if len(cells) != len(self._all_names):
            what = f"{len(cells)} columns instead of {len(self._all_names)}"
            return DataError("bad-line", path=self.path, line=line, what=what)
        column = int(np.argmin(np.isfinite(values)))
        name, value = self.names[column], values[column]
        cell = cells[self._all_names.index(name)]
        missing = cell in conversion(self._dialect.na, ".").null_values
        if np.isnan(value) and not missing and np.isnan(number(cell)):
            return self.not_numeric(name, f"is not a number at line {line}")
        place = TextOrigin(str(self.path), lambda _: line).cell(0, column, self.names)
        if np.isnan(value):
            return DataError("missing-value", place=place)
        return DataError("not-finite", place=place, value=value)
