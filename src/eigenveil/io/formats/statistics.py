"""Files of statistics programs: of SPSS, Stata and SAS by pyreadstat, of R by pyreadr.

What a column holds is what the file states of it, whatever is in its cells. Of SPSS, Stata and SAS
a value is its code, whatever its label. What the program calls missing is missing.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from eigenveil.checks import library
from eigenveil.errors import DataError
from eigenveil.files import Place
from eigenveil.io.files import MOST_UNPACKED, check_unpacked, reading, unreadable
from eigenveil.io.formats.tabular import Table
from eigenveil.moments.source import part_rows
from eigenveil.tables.reading import PLAIN, Dialect
from eigenveil.tables.schema import FIRST_DAY

_DAY = 86400.0
_DATE, _TIME = pa.date32(), pa.timestamp("s")
_CALENDAR = (date.min - FIRST_DAY).days * _DAY, (date.max - FIRST_DAY).days * _DAY


def _moments(values: ArrayLike, step: float, kind: Any, first: date = FIRST_DAY) -> Any:
    """Dates or times of numbers of so many seconds since a day; none where no calendar has it."""
    seconds = np.round(np.asarray(values, np.float64) * step, 3)
    seconds += (first - FIRST_DAY).days * _DAY
    beyond = ~((seconds >= _CALENDAR[0]) & (seconds <= _CALENDAR[1]))
    unit, held = (_DAY, np.int32) if kind == _DATE else (1.0, np.int64)
    whole = np.floor(np.where(beyond, 0.0, seconds) / unit).astype(held)
    return pa.array(whole, mask=beyond).cast(kind)


@dataclass(frozen=True)
class _Program:
    """How a program stores days and times: as numbers, with formats that say so."""

    reader: str
    first: date
    day: float  # In seconds
    days: str
    time: float
    times: str


_SPSS = _Program(
    *("read_sav", date(1582, 10, 14)),
    *(1.0, r"([AEJS]?DATE|QYR|MOYR|WKYR)\d*"),
    *(1.0, r"(DATETIME|YMDHMS)[\d.]*"),
)
_STATA = _Program("read_dta", date(1960, 1, 1), _DAY, "%-?t?d.*", 1e-3, "%-?t[cC].*")
_SAS = _Program(
    *("read_sas7bdat", date(1960, 1, 1)),
    *(_DAY, r"(DATE|(DDMM|MMDD|YYMM)YY[BCDNPS]?|YYMMDD[BCDNPS]?|(WEEK|WORD)DAT[EX]|JULIAN|MONYY"
      r"|(E8601|B8601|IS8601)DA)[\d.]*"),
    *(1.0, r"(DATETIME|DTDATE|DATEAMPM|MDYAMPM|(E8601|B8601|IS8601)D[TNZ])[\d.]*"),
)  # fmt: skip
_PROGRAMS = {".sav": _SPSS, ".zsav": _SPSS, ".dta": _STATA, ".sas7bdat": _SAS}


class StatisticsTable(Table):
    """A file of SPSS, Stata or SAS, some rows at a time."""

    def __init__(self, path: Place, *, dialect: Dialect = PLAIN) -> None:
        self._encoding, self._program = dialect.encoding, _PROGRAMS[path.suffix.lower()]
        super().__init__(path)

    def _read(self, encoding: str | None, **part: Any) -> tuple[Any, Any]:
        pyreadstat = library("pyreadstat", extra="statistics", what=f"A {self.path.suffix} file")
        self.path.open("rb").close()  # the system's own words for what is wrong
        plain = {"output_format": "dict", "disable_datetime_conversion": True}
        with reading(self.path, Exception):
            found: tuple[Any, Any] = getattr(pyreadstat, self._program.reader)(
                os.fspath(self.path), encoding=encoding, **plain, **part
            )
        return found

    def _fields(self) -> list[tuple[str, Any]]:
        _, about = self._read(self._encoding, metadataonly=True)
        self._written = self._encoding or about.file_encoding or "utf-8"
        formats, self.labels = about.original_variable_types, about.variable_value_labels
        return [
            (name, self._kind(kind, formats[name] or ""))
            for name, kind in about.readstat_variable_types.items()
        ]

    def _kind(self, kind: str, how: str) -> Any:
        if kind.startswith("string"):
            return pa.string()
        if re.fullmatch(self._program.days, how):
            return _DATE
        return _TIME if re.fullmatch(self._program.times, how) else pa.float64()

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        step, first, count = part_rows(len(columns)), 0, 0
        while count == first:
            found = self._part(columns, row_offset=first, row_limit=step)
            cells = [self._cells(self.types[name], found[name]) for name in columns]
            yield pa.RecordBatch.from_arrays(cells, list(columns))
            first, count = first + step, count + len(cells[0])

    def _part(self, columns: Sequence[str], **part: int) -> dict[str, Any]:
        """Cells of some rows; one person's, with bytes that are no text, ends no pass."""
        try:
            return dict(self._read(self._encoding, usecols=list(columns), **part)[0])
        except DataError:  # Latin-1 has each byte
            latin = {name: name.encode(self._written).decode("latin-1") for name in columns}
            found, _ = self._read("LATIN1", usecols=list(latin.values()), **part)
            return {name: [self._decoded(cell) for cell in found[latin[name]]] for name in columns}

    def _decoded(self, cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        return cell.encode("latin-1").decode(self._written, errors="replace")

    def _cells(self, kind: Any, cells: Sequence[Any]) -> Any:
        if kind == pa.string():
            return pa.array(cells, kind)
        if kind == pa.float64():
            return pa.array(np.array(cells, np.float64))
        step = self._program.day if kind == _DATE else self._program.time
        return _moments(np.array(cells, np.float64), step, kind, self._program.first)


class RdsTable(Table):
    """A data frame of R's, which is read as a whole when it is opened."""

    def _fields(self) -> list[tuple[str, Any]]:
        pyreadr = library("pyreadr._pyreadr_parser", extra="statistics", what="An .rds file")
        self._check_size()
        parser = pyreadr.PyreadrParser()
        with reading(self.path, Exception):
            parser.parse(os.fsencode(os.fspath(self.path)))
        found = parser.table_data
        names = [each for one in found for each in one.column_names_special.values()]
        if len(found) != 1 or found[0].dim_num or len(names) != len(found[0].columns):
            raise unreadable(self.path, "it is not one data frame")
        cells = [
            _of_r(found[0].column_types[place].name, column, found[0].value_labels.get(place))
            for place, column in enumerate(found[0].columns)
        ]
        self._rows = pa.RecordBatch.from_arrays(cells, names)
        return [(field.name, field.type) for field in self._rows.schema]

    def _check_size(self) -> None:
        with self.path.open("rb") as file:
            start, size = file.read(6), 0
            file.seek(0)
            unpacks: dict[bytes, Any] = {
                b"\x1f\x8b": gzip.open,
                b"BZ": bz2.open,
                b"\xfd7": lzma.open,
            }
            if (unpack := unpacks.get(start[:2])) is not None:
                with unpack(file) as text:
                    while size <= MOST_UNPACKED and (piece := text.read(1 << 22)):
                        size += len(piece)
        check_unpacked(self.path, size, "it")

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        yield self._rows.select(list(columns))


_NA = np.iinfo(np.int32).min  # R's missing whole number


def _of_r(kind: str, column: Any, levels: dict[int, str] | None) -> Any:
    """An Arrow array of a column of R's; a factor is the texts of its levels."""
    if kind == "CHARACTER":
        return pa.array([each if isinstance(each, str) else None for each in column], pa.string())
    if kind in ("DATE", "TIMESTAMP"):
        return _moments(column, _DAY, _DATE) if kind == "DATE" else _moments(column, 1.0, _TIME)
    if kind == "NUMERIC":
        return pa.array(np.asarray(column, np.float64))
    numbers = np.asarray(column, np.int64)
    found = pa.array(numbers, mask=numbers == _NA)
    if levels is not None:
        known = pa.array([None, *(levels[each] for each in sorted(levels))], pa.string())
        return known.take(found)
    return found.cast(pa.bool_()) if kind == "LOGICAL" else found.cast(pa.float64())
