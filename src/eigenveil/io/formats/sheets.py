"""Sheets of .xlsx files, read as the text that they would be as CSV."""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from eigenveil.checks import library
from eigenveil.errors import DataError, FileDialectWarning, callers_level
from eigenveil.files import Place
from eigenveil.io.files import check_unpacked, reading
from eigenveil.io.formats.text import DelimitedTable
from eigenveil.tables.entries import text
from eigenveil.tables.reading import PLAIN, Dialect

# The place of a cell or row, such as AB12 or 12; and what calamine takes for each cell.
_PLACE = re.compile(rb"""<(?:\w+:)?(?:c|row)\s[^>]*?\br=["']([A-Za-z]{0,3})(\d{1,7})""")
_CELL_BYTES = 32


class SheetTable(DelimitedTable):
    """A sheet, which is read as a whole when it is opened: its first row that is not empty has the
    names, and an empty row is none.

    A date is text such as 2020-01-31; a cell of an error, such as #N/A, is empty; a formula is the
    value that was saved with it.
    """

    def __init__(self, path: Place, *, dialect: Dialect = PLAIN, sheet: str | None = None) -> None:
        if not dialect.header:
            raise DataError("bad-dialect", what=f"{path} is read by the names in its first row")
        with reading(path, Exception):
            self._written = pa.py_buffer(_csv(_sheet(path, sheet)).encode())
        super().__init__(
            path, dialect=Dialect(",", ".", "utf-8", na=dialect.na, comment=dialect.comment)
        )
        self.written = None

    def _raw(self) -> Any:
        return pa.BufferReader(self._written)


def _sheet(path: Place, name: str | None) -> Any:
    calamine = library("python_calamine", extra="sheets", what="An .xlsx file")
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        _check_size(path, archive)
    book = calamine.CalamineWorkbook.from_path(os.fspath(path))
    kinds = calamine.SheetTypeEnum
    names = [each.name for each in book.sheets_metadata if each.typ == kinds.WorkSheet]
    if name is None and len(names) > 1:
        warnings.warn(
            f"{path}: of {len(names)} sheets the first, {names[0]!r}, is read; --sheet (sheet= "
            "of ReadOptions) names another.",
            FileDialectWarning,
            stacklevel=callers_level(),
        )
    name = names[0] if name is None and names else name
    if name not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise DataError("missing-sheet", path=path, sheet=name, known=known)
    return book.get_sheet_by_name(name)


def _check_size(path: Place, archive: zipfile.ZipFile) -> None:
    """Refuse what unpacks to too much, and a sheet whose outermost cells are too far apart."""
    check_unpacked(path, sum(each.file_size for each in archive.infolist()), "it")
    for name in archive.namelist():
        if "worksheets/" in name and name.endswith(".xml"):
            with archive.open(name) as member:
                width, height = _extent(member)
            check_unpacked(path, width * height * _CELL_BYTES, f"a sheet of {width:,} x {height:,}")


def _extent(member: Any) -> tuple[int, int]:
    """The greatest numbers of a column and a row that a sheet names."""
    column, row, rest = b"", 0, b""
    while piece := member.read(1 << 20):
        pieces = rest + piece
        found = _PLACE.findall(pieces)
        columns = {column, *(letters.upper() for letters, _ in found)}
        column = max(columns, key=lambda letters: (len(letters), letters))
        row = max((row, *(int(number) for _, number in found)))
        rest = pieces[pieces.rfind(b"<") :]
    width = 0
    for letter in column:
        width = 26 * width + letter - 64
    return width, row


def _csv(sheet: Any) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    rows, empty = sheet.iter_rows(), [""] * (sheet.start or (0, 0))[1]
    while (row := _next(rows)) is not None:
        row = empty + row
        if any(cell != "" for cell in row):
            writer.writerow(cell if isinstance(cell, float) else _line(cell) for cell in row)
        else:
            written.write("\n")
    return written.getvalue()


def _next(rows: Iterator[list[Any]]) -> list[Any] | None:
    """The next row: empty where it has what Python has not, such as a time of 2**31 days."""
    try:
        return next(rows, None)
    except OverflowError:
        return []


def _line(cell: Any) -> str:
    return " ".join((text(cell) or "").splitlines())
