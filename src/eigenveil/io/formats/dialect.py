"""How delimited text is written: what is between cells, decimal points, characters, missing values.

What nobody says is guessed from the line of names (the first row where there is none), which is
public, and never from other rows: what a cell is depends on it alone. So where cells are not parted
by commas, each number may have a decimal point or a decimal comma.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

from eigenveil.tables.reading import Dialect

EITHER = ".,"
"""Of decimals: a point or a comma, each cell by itself."""
SEPARATORS = (",", ";", "\t", "|")
"""What is looked for between cells."""
_SHOWN = {"\t": "tab"}
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# Of lines that are looked at for a decimal comma.
_LINES = 30
_COMMA = re.compile(r"[ \t]*[+-]?\d+,\d+([eE][+-]?\d+)?[ \t]*")
_POINT = re.compile(r"[ \t]*[+-]?\d*\.\d+([eE][+-]?\d+)?[ \t]*")
_THOUSANDS = re.compile(r"[ \t]*[+-]?\d{1,3}((,\d{3})+|(\.\d{3})+)[ \t]*")


@dataclass(frozen=True)
class SettledDialect:
    """A dialect without anything open."""

    separator: str
    decimal: str  # A point, a comma, or both
    likely: str  # The one that the first rows have: only how fast text is read depends on it
    encoding: str
    skipped: int  # Lines before the first that counts
    # What was guessed and is not as usual, in words; empty where nothing was
    guessed: tuple[str, ...] = ()

    def said(self, dialect: Dialect) -> Dialect:
        """A dialect that also says what the line of names shows: separator and encoding."""
        return replace(dialect, separator=self.separator, encoding=self.encoding)


def settle(dialect: Dialect, head: bytes, *, usual: str) -> SettledDialect:
    """What a file's first lines say, where nobody does."""
    encoding = dialect.encoding or _encoding_of(head, header=dialect.header)
    text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head)
    lines = text.removeprefix("\ufeff").splitlines()[: 10 * _LINES]
    skipped = _comments(lines, dialect.comment, dialect.separator)
    said = sum(bool(line.strip()) for line in lines[:skipped])
    lines = [line for line in lines[skipped:] if line.strip()][: _LINES + 1]
    rows = lines[1:] if dialect.header else lines
    separator = dialect.separator or _separator_of(lines[:1] if dialect.header else lines, usual)
    decimal = dialect.decimal or ("." if separator == "," else EITHER)
    likely = _decimal_of(rows, separator) if decimal == EITHER else decimal
    guessed = [
        f"{name} {_SHOWN.get(found, found)!r}"
        for name, found, said, plain in (
            ("separator", separator, dialect.separator, usual),
            # whoever has said what is between cells has seen these; cells have either
            ("decimal", likely, dialect.decimal or dialect.separator, "."),
            ("encoding", encoding, dialect.encoding, "utf-8"),
        )
        if said is None and found != plain
    ]
    if said and dialect.comment is None:
        guessed.append(f"{said} line{'' if said == 1 else 's'} of comments before the names")
    return SettledDialect(separator, decimal, likely, encoding, skipped, tuple(guessed))


class PlainLines:
    """Makes each line what it is by itself: lines that are no rows empty, and cells closed."""

    def __init__(self, settled: SettledDialect, dialect: Dialect) -> None:
        self._skipped = settled.skipped
        self._comment = None if dialect.comment is None else dialect.comment.encode()
        self._closed = None if dialect.newlines_in_cells else _closed_cells(settled.separator)

    def __call__(self, lines: bytes) -> bytes:
        """Whole lines, those that go on where the last ones ended."""
        if self._skipped or self._comment is not None:
            kept = []
            for line in lines.splitlines(keepends=True):
                comment = self._comment is not None and line.startswith(self._comment)
                kept.append(b"\n" if comment or self._skipped > 0 else line)
                self._skipped = max(0, self._skipped - 1)
            lines = b"".join(kept)
        if self._closed is None or b'"' not in lines:
            return lines
        one, every = self._closed
        if every.fullmatch(lines):
            return lines
        found = (each.groups() for each in _LINE.finditer(lines))
        return b"".join(
            text + (b"" if b'"' not in text or one.fullmatch(text) else b'"') + end
            for text, end in found
        )


_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n|$)")


@cache
def _closed_cells(separator: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Patterns of lines whose quotes are closed: they count at the beginning of a cell only."""
    between = re.escape(separator.encode())
    rest = b"[^" + between + rb"\r\n]*+"
    cell = rb'(?>"(?:[^"\r\n]|"")*+"' + rest + rb'|(?!")' + rest + rb")"
    line = cell + b"(?:" + between + cell + b")*+"
    return re.compile(line), re.compile(b"(?:(?>" + line + rb")(?:\r\n|\r|\n))*+(?:" + line + b")?")


def _encoding_of(head: bytes, *, header: bool) -> str:
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    first = head.lstrip(b"\r\n").split(b"\n", 1)[0]
    if first[1::2] and not any(first[1::2].rstrip(b"\r")) and any(first[::2]):
        return "utf-16-le"
    if not header:  # no row decides by itself
        rows = [line for line in head.splitlines()[:_LINES] if not line.isascii()]
        strange = sum("\ufffd" in line.decode(errors="replace") for line in rows)
        return "iso8859-1" if strange > max(1, len(rows) - strange) else "utf-8"
    start = b""
    for line in head.splitlines(keepends=True):
        start += line
        if line.strip() and not line.startswith(b"#"):
            break
    try:
        start.decode()
    except UnicodeDecodeError as error:
        # a line that is longer than what was read may end within a character
        if len(start) < len(head) or error.start < len(start) - 4:
            return "iso8859-1"
    return "utf-8"


def _comments(lines: Sequence[str], comment: str | None, separator: str | None) -> int:
    """How many lines come before the first that counts."""
    mark = comment or "#"
    count = next(
        (place for place, line in enumerate(lines) if line.strip() and not line.startswith(mark)), 0
    )
    if comment is not None or count == 0:
        return count
    first, last = lines[count], lines[count - 1]
    if last[1:2].isspace():
        return count
    # names may begin with the same sign, as in #chrom
    between = [separator] if separator else SEPARATORS
    cells = max(_cells(first, each) for each in between)
    return count - 1 if 1 < cells == max(_cells(last, each) for each in between) else count


def _separator_of(lines: Sequence[str], usual: str) -> str:
    if not lines:
        return usual
    found = {  # of most lines: the first of several rows is one person's
        each: Counter(_cells(line, each) for line in lines).most_common(1)[0][0]
        for each in dict.fromkeys((usual, *SEPARATORS))
    }
    return max(found, key=lambda each: found[each])  # the usual one of several


def _decimal_of(rows: Sequence[str], separator: str) -> str:
    cells = [cell for row in rows for cell in _split(row, separator)]
    # 1,234 and 1.234 may be thousands
    clear = [cell for cell in cells if not _THOUSANDS.fullmatch(cell)]
    if any(_POINT.fullmatch(cell) for cell in clear):
        return "."
    return "," if any(_COMMA.fullmatch(cell) for cell in clear) else "."


def _cells(line: str, separator: str) -> int:
    return len(_split(line, separator))


def _split(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(line), delimiter=separator), [])
    except csv.Error:
        return line.split(separator)


def records(stream: Any, separator: str) -> Iterator[tuple[int, int]]:
    """The first line, from 1, and the number of cells of each record of a text that has any."""
    lines = io.TextIOWrapper(stream, encoding="latin-1", newline="")
    number = 0
    for line in lines:
        number += 1
        if '"' in line:
            reader = csv.reader(chain([line], lines), delimiter=separator)
            try:
                cells = len(next(reader))
            except csv.Error:  # a cell longer than the module takes: what follows is not told
                return
            yield number, cells
            number += reader.line_num - 1
        elif line.rstrip("\r\n"):
            yield number, line.count(separator) + 1
