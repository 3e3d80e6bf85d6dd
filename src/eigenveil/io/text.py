"""Delimited text: CSV and TSV, gzipped or not."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from eigenveil.errors import DataError
from eigenveil.headers import check_width, numbered_names
from eigenveil.io.files import ending
from eigenveil.io.reading import reading
from eigenveil.io.tabular import Table, is_numeric

# Bytes read at a time, more where lines are so long that one does not fit. pyarrow holds some 50
# times as much, and is no faster with more.
_READ_BYTES, _MOST_READ_BYTES = 1 << 20, 1 << 24
_LONG_LINE = re.compile("straddling object|CSV parse error: Empty CSV file or block")
# What pyarrow says about a cell or a line, up to where it quotes it: the owner's data has no
# business in a message. Its rows count from 1, with the line of names.
BAD_CELL = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+)")
BAD_LINE = re.compile(r"CSV parse error: (?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


class TextTable(Table):
    """Lines of values under a line of names, or without one: then the names are c1, c2, ...

    Columns are read as doubles whatever their first lines look like; a column of the words true and
    false is read as such. Empty cells and the usual words for a missing value are NaN.

    Parameters
    ----------
    path : Path
        Named in messages as it was given.
    header : bool
        Whether the first line has the names; otherwise it is a row.
    """

    def __init__(self, path: Path, *, header: bool = True) -> None:
        self._header = header
        self._given_names: list[str] | None = None
        kind = ending(path) or ""
        self._delimiter = "\t" if kind.startswith(".tsv") else ","
        self._compression = "gzip" if kind.endswith(".gz") else None
        self._read_bytes = _READ_BYTES
        super().__init__(path)

    def require_numeric(self, name: str) -> None:
        """Raise a DataError that names the column, and the row, unless it is numeric."""
        if not is_numeric(self.types[name]):
            with reading(self.path):
                for _ in self._batches([name]):  # meets what made it text
                    pass
            super().require_numeric(name)

    def _fields(self) -> list[tuple[str, Any]]:
        with pa.input_stream(str(self.path), compression=self._compression) as stream:
            width = cells_of_first_line(stream, self._delimiter)
        check_width(str(self.path), width)  # pyarrow takes 20 KB a column
        if not self._header:
            self._given_names = numbered_names(width)
        try:
            with self._batch_reader(pa.csv.ConvertOptions()) as reader:
                seen = [(field.name, field.type) for field in reader.schema]
        except _LongLineError:
            return self._fields()
        self._names = [name for name, _ in seen]
        self._words = {name for name, kind in seen if pa.types.is_boolean(kind)}
        return [
            (name, pa.float64() if is_numeric(kind) or pa.types.is_null(kind) else kind)
            for name, kind in seen
        ]

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        # the first lines may look like whole numbers where later ones have decimals
        kinds = {name: pa.bool_() if name in self._words else pa.float64() for name in columns}
        convert = pa.csv.ConvertOptions(include_columns=list(columns), column_types=kinds)
        given = 0  # rows, should it be necessary to start again
        while True:
            seen = 0
            try:
                with self._batch_reader(convert) as reader:
                    for batch in reader:
                        new = batch.slice(min(max(given - seen, 0), batch.num_rows))
                        seen += batch.num_rows
                        given = max(given, seen)
                        yield new
                return
            except _LongLineError:
                continue

    @contextmanager
    def _batch_reader(self, convert: Any) -> Iterator[Any]:
        try:
            with pa.csv.open_csv(
                pa.input_stream(str(self.path), compression=self._compression),
                # reading in steps has one thread anyway, and without more pyarrow tells the row
                read_options=pa.csv.ReadOptions(
                    block_size=self._read_bytes,
                    use_threads=False,
                    column_names=self._given_names,
                ),
                parse_options=pa.csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True
                ),
                convert_options=convert,
            ) as reader:
                yield reader
        except pa.ArrowInvalid as error:
            if _LONG_LINE.match(str(error)) and self._read_bytes < _MOST_READ_BYTES:
                self._read_bytes *= 4
                raise _LongLineError from None
            raise self._located(str(error)) or error from None

    def _located(self, complaint: str) -> DataError | None:
        """Make the error that names the place, if pyarrow tells it."""
        if cell := BAD_CELL.match(complaint):
            column, row, kind = cell.groups()
            wanted = "true or false" if kind == "bool" else "a number"
            return self.not_numeric(self._names[int(column)], f"is not {wanted}{self._place(row)}")
        if line := BAD_LINE.match(complaint):
            row, expected, found = line.groups()
            what = f"{self._place(row)}: {found} columns instead of {expected}"
        elif complaint.startswith("straddling object"):
            what = f": a line is longer than {_MOST_READ_BYTES >> 20} MiB, or a quote never ends"
        else:
            return None
        return DataError(
            f"{self.path} cannot be read{what}.",
            hint="Mend or remove that line.",
            code="unreadable",
        )

    def _place(self, row: str | None) -> str:
        # pyarrow counts lines from 1, the line of names too
        return "" if row is None else f" at row {int(row) - 1 - self._header}"


class _LongLineError(Exception):
    """A line did not fit; more is read at a time from now on."""


def cells_of_first_line(text: Any, delimiter: str) -> int:
    """How many cells the first line with any has, found by reading no further than its end.

    Parameters
    ----------
    text : binary file
        Read from where it stands, some megabytes at most.
    delimiter : str
        What is between two cells.
    """
    start: bytes = text.read(_READ_BYTES)
    if b"\n" not in start.strip():
        start += text.read(_MOST_READ_BYTES)
    lines = csv.reader(io.StringIO(start.decode("latin-1"), newline=""), delimiter=delimiter)
    try:
        return next((len(cells) for cells in lines if cells), 0)
    except csv.Error:  # pyarrow says what is wrong, if it is
        return start.count(delimiter.encode()) + 1
