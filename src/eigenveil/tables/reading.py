"""How a file is written: what each site knows of its own, and no part of what sites agree on."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from eigenveil.errors import DataError

_SPELLED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
_DATE_PARTS = "Ymd"


@dataclass(frozen=True)
class Dialect:
    """How files are written; of text, ``None`` is as each file's first lines look.

    A schema has the same under ``[reading]``. What is said of missing values, dates and truth
    values holds in every format.

    Parameters
    ----------
    separator : str, optional
        One character between two cells; "tab", "comma", "semicolon" and "pipe" are names of such.
    decimal : {".", ","}, optional
        What is before the decimals of a number; by default either, where commas do not part cells.
    encoding : str, optional
        Of the characters, such as "utf-8", "utf-16" or "latin-1".
    na : sequence of str
        Cells that stand for missing values, beside those that are no numbers anyway. A code that is
        a number or a date is one however it is written.
    comment : str, optional
        One character that lines begin with which are no rows. By default "#", before the names
        only.
    header : bool
        Whether the first line has the names. If not, it is a row, and the names are c1, c2, ...
    newlines_in_cells : bool
        Whether a quoted cell goes on over the ends of lines. By default it ends with its line, so
        that what a line is depends on that line alone; otherwise a quote that is not closed takes
        in all lines after it, and the certificate states as an assumption that none is.
    date_format : str, optional
        Of columns that a schema reads as dates: such as ``"%m/%d/%Y"``, of ``%Y`` (four digits),
        ``%m`` and ``%d`` (one or two). By default 2024-12-31 and 31.12.2024.
    true_words, false_words : sequence of str
        Of columns that a schema reads as truth values: the words for them, in place of those that
        are known, such as yes and no. Upper and lower case are one.

    Raises
    ------
    DataError
        With code ``bad-dialect``, for what cannot be.
    """

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    na: Sequence[str] = ()
    comment: str | None = None
    header: bool = True
    newlines_in_cells: bool = False
    date_format: str | None = None
    true_words: Sequence[str] = ()
    false_words: Sequence[str] = ()

    def __post_init__(self) -> None:
        separator = self.separator
        if separator is not None:
            separator = _SPELLED.get(separator.lower(), separator)
            _check_character("separator", separator, self.separator)
            object.__setattr__(self, "separator", separator)
        if self.comment is not None:
            _check_character("comment", self.comment, self.comment)
        if self.decimal not in (None, ".", ","):
            raise _bad(f"decimal = {self.decimal!r} is not '.' or ','")
        if self.decimal is not None and self.decimal == separator:
            raise _bad(f"decimal and separator are both {separator!r}, so that no cell has an end")
        for name in ("na", "true_words", "false_words"):
            words = getattr(self, name)
            if isinstance(words, str):
                raise _bad(f"{name} = {words!r} is not a sequence of words")
            object.__setattr__(self, name, tuple(words))
        if self.encoding is not None:
            try:
                name = codecs.lookup(self.encoding).name
                "".encode(name)  # some change bytes into bytes
            except (LookupError, ValueError):
                raise DataError("unknown-encoding", encoding=self.encoding) from None
            object.__setattr__(self, "encoding", name)
        self._check_words()

    def _check_words(self) -> None:
        parts = sorted(re.findall("%(.)", self.date_format or ""))
        if self.date_format is not None and parts != sorted(_DATE_PARTS):
            raise _bad(
                f"date_format = {self.date_format!r} does not have each of %Y (the year in four "
                "digits), %m and %d once, as %d.%m.%Y has"
            )
        true, false = (
            {word.lower() for word in each} for each in (self.true_words, self.false_words)
        )
        if bool(true) != bool(false):
            raise _bad("true_words and false_words are given together, or neither")
        if both := sorted(true & false):
            raise _bad(f"{both[0]!r} is among true_words and false_words")

    def over(self, other: Dialect) -> Dialect:
        """The other, where this one says nothing."""
        return replace(other, **self.said())

    def said(self) -> dict[str, Any]:
        """What is not left open, by name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: each for name, each in found.items() if each != getattr(PLAIN, name)}


PLAIN = Dialect()
"""Files whose first lines say how they are written."""


def date_pattern(date_format: str) -> str:
    """The regular expression of dates of a format, whose groups are Y, m and d."""
    some = "2" if re.search("%[Ymd]%", date_format) else "1,2"  # nothing tells where one ends
    found = re.escape(date_format)
    for part, digits in zip(_DATE_PARTS, ("4", some, some), strict=True):
        found = found.replace(f"%{part}", rf"(?P<{part}>\d{{{digits}}})")
    return f"^{found}(?:[T ].*)?$"


def _check_character(name: str, value: str, given: str | None) -> None:
    if len(value) != 1 or not value.isascii() or value in '"\r\n\0' or value.isalnum():
        raise _bad(f"{name} = {given!r} is not one character that is no letter, digit or quote")


def _bad(what: str) -> DataError:
    return DataError("bad-dialect", what=what)
