"""Entries of no one type, each made into a number or a text by itself.

What an entry becomes depends on it alone, and none is refused: whether others can be read does not
depend on it.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBER = r"^[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
"""A text that is a number."""
INFINITE = r"(?i)^[ \t]*[+-]?inf(inity)?[ \t]*$"
"""One that is beyond all numbers, as programs write it."""
TRUTHS = {1.0: ("true", "True", "TRUE"), 0.0: ("false", "False", "FALSE")}
_NUMBER = re.compile(f"{NUMBER}|{INFINITE.removeprefix('(?i)')}", re.IGNORECASE)
_WORDS = {word: value for value, words in TRUTHS.items() for word in words}


def number(entry: Any) -> float:
    """An entry as a number: NaN where it is none, infinity beyond all range."""
    if isinstance(entry, bytes):
        entry = entry.decode("latin-1")
    if isinstance(entry, str):
        return float(entry) if _NUMBER.fullmatch(entry) else _WORDS.get(entry, np.nan)
    if entry is np.ma.masked or isinstance(entry, complex | np.complexfloating | np.ndarray):
        return np.nan
    try:
        return float(entry)
    except OverflowError:
        return np.inf
    except Exception:  # whatever an object does: it is no number
        return np.nan


def numbers(entries: Iterable[Any]) -> NDArray[np.float64]:
    return np.array([number(entry) for entry in entries], dtype=np.float64)


def text(entry: Any) -> str | None:
    """An entry as a text; ``None`` where it is missing."""
    if entry is None or entry is np.ma.masked:
        return None
    try:
        if isinstance(entry, bytes):
            found = entry.decode(errors="replace")
        elif isinstance(entry, bool | np.bool_):
            found = str(bool(entry)).lower()
        elif isinstance(entry, datetime.date):
            found = entry.isoformat()
        else:
            found = str(entry)
    except Exception:  # whatever an object does: it is no text
        return None
    return found.encode(errors="replace").decode()  # halves of characters have no UTF-8


def rows_of_numbers(rows: Sequence[Any]) -> NDArray[np.float64] | None:
    """Rows as numbers, NaN where not as long as most; None where most are no rows of entries."""
    every = [_entries(row) or [] for row in rows]
    # the first row does not decide by itself: it is one person's
    sizes = Counter(0 if own and _entries(own[0]) is not None else len(own) for own in every)
    size = sizes.most_common(1)[0][0] if sizes else 0
    if size == 0:
        return None
    found = np.full((len(rows), size), np.nan)
    for place, own in enumerate(every):
        if len(own) == size:
            found[place] = numbers(own)
    return found


def _entries(row: Any) -> list[Any] | None:
    if isinstance(row, list | tuple) or getattr(row, "ndim", 0) == 1:
        return list(row)
    return None


MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>"),
    *("NaN", "nan", "NaT", "NULL", "null", "None"),
)
"""Texts that stand for no value."""


def codes_of(na: Sequence[str]) -> dict[str, float]:
    """The numbers that codes for missing values are, however they are written; NaN for words."""
    return {code: number(code.strip().replace(",", ".")) for code in na}


_MANTISSA = 53
_MOST_DIGITS = 1000
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)(\.0*)?")
_BEGINS_A_NUMBER = frozenset("-0123456789")  # as each of these does
_SCIENTIFIC = re.compile(r"-?[0-9]+(\.[0-9]+)?[eE][+-][0-9]{1,3}")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?(Z|\+00:00)?", flags=re.ASCII)
_TRUTHS = {"true": "1", "false": "0"}
_SURROGATE = re.compile("[\ud800-\udfff]")
# No two values of different ones of these types are equal.
_APART = frozenset((str, bytes, int, type(None)))


def identifiers(cells: NDArray[Any] | Sequence[Any]) -> list[str | None]:
    """Each identifier in its one form; ``None`` for one that is missing.

    Floating-point numbers from where not all whole numbers are held (2**53; of float32 2**24) are
    no identifiers: several persons' would be one, or one person's several.
    """
    if isinstance(cells, np.ma.MaskedArray):
        cells = cells.filled(np.nan) if cells.dtype.kind == "f" else cells.tolist()
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind == "f":
            held = 2.0 ** min(np.finfo(cells.dtype).nmant + 1, _MANTISSA)
            return [_number(each) if abs(each) < held else None for each in cells.tolist()]
        if cells.dtype.kind == "M":
            cells = np.datetime_as_string(cells)
        cells = cells.tolist()
    if _APART.issuperset(map(type, cells)):
        known = {each: identifier(each) for each in dict.fromkeys(cells)}
        return [known[each] for each in cells]
    return [identifier(each) for each in cells]


def numbered(cells: NDArray[Any]) -> tuple[dict[str, int], NDArray[np.int64]]:
    """A number for each identifier, from 0, and that of each cell's: -1 where it is missing."""
    if cells.dtype.kind in "iu" and not isinstance(cells, np.ma.MaskedArray):
        values, numbers = np.unique(cells, return_inverse=True)
        names = map(str, values.tolist())
        return {name: index for index, name in enumerate(names)}, numbers.astype(np.int64)
    given = identifiers(cells)
    codes: dict[str, int] = {}
    for unit in filter(None, dict.fromkeys(given)):
        codes[unit] = len(codes)
    each = (-1 if unit is None else codes[unit] for unit in given)
    return codes, np.fromiter(each, np.int64, len(given))


def identifier(value: Any) -> str | None:
    """One identifier in its one form: a text, trimmed and in NFC.

    A whole number is its shortest decimal text, a truth value 1 or 0 as in databases, a time its
    ISO text (in UTC where it has a zone) less what is zero at its end, and another number what
    Python writes; also where these are given as texts. Anything else is its text.
    """
    try:
        if isinstance(value, str):
            return _text(value)
        if value is None or value is np.ma.masked:
            return None
        if isinstance(value, bytes):
            return _text(value.decode(errors="replace"))
        if isinstance(value, bool | np.bool_):
            return str(int(value))
        if isinstance(value, Integral):
            return str(int(value))
        if isinstance(value, Real):
            mantissa = np.finfo(type(value)).nmant if isinstance(value, np.floating) else 52
            held = 2.0 ** min(mantissa + 1, _MANTISSA)
            return _number(float(value)) if abs(float(value)) < held else None
        if isinstance(value, Decimal):
            known = value.is_finite() and abs(value.adjusted()) < _MOST_DIGITS
            return _text(f"{value.normalize():f}") if known else None
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            value = value.astimezone(datetime.UTC)
        if "__str__" not in _methods(type(value)) and "__repr__" not in _methods(type(value)):
            return None  # its text would be a place in memory
        return _text(str(value))
    except Exception:  # whatever an object does: it is no identifier
        return None


def _methods(kind: type) -> set[str]:
    return {name for each in kind.__mro__[:-1] for name in vars(each)}


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _text(text: str) -> str | None:
    if not text.isascii():
        text = unicodedata.normalize("NFC", _SURROGATE.sub("\ufffd", text))
    text = text.strip()
    if text in MISSING:
        return None
    if text[0] not in _BEGINS_A_NUMBER:
        return _TRUTHS.get(text.lower(), text)
    if _WHOLE.fullmatch(text):
        text = text.partition(".")[0]
        return "0" if text == "-0" else text
    if _SCIENTIFIC.fullmatch(
        text
    ):  # so some programs write decimals; 1E5 may be a place on a plate
        return identifier(float(text))
    if time := _TIME.fullmatch(text):
        day, minute, second, fraction, zone = time.groups(default="")
        clock = minute + (second or ":00") + fraction.rstrip("0").rstrip(".")
        zone = zone and "Z"
        return day if clock == "00:00:00" and not zone else f"{day} {clock}{zone}"
    return _TRUTHS.get(text.lower(), text)
