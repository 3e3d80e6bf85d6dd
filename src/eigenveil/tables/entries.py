"""Entries of no one type, each made into a number or a text by itself.

What an entry becomes depends on it alone, and none is refused: whether others can be read does not
depend on it.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Sequence
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
    """An entry as a number; NaN where it is none, infinity where it is beyond all range.

    A text is one as in a file: its digits, or true and false.
    """
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
    """Entries as numbers, shape (n,)."""
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
    """Rows of entries, as many as most have, as numbers; ``None`` where most are no such rows.

    What is no row, or has more entries or fewer, is a row of NaN.
    """
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
    """The entries of a row, if it is one."""
    if isinstance(row, list | tuple) or getattr(row, "ndim", 0) == 1:
        return list(row)
    return None
