"""Names of columns: which read as values, and which are made up.

A table without a line of names would publish its first row in their place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# pandas names the columns of an array by counting; fewer could be a row
_FEWEST_COUNTED = 8
# what readers of tables take for a value that is missing, or a truth value
_WORDS = frozenset(["#N/A", "#N/A N/A", "#NA", "<NA>", "N/A", "NA", "NULL", "NaT", "n/a", "null"])
_TRUTHS = frozenset(["true", "false"])
_DIGITS = re.compile(r"\d")
# thousands apart by a point, comma, apostrophe or space; a decimal point or comma; an exponent
_NUMBER = re.compile(
    r"(?=[+-]?[.,]?\d)[+-]?"
    "(?:\\d{1,3}(?:[.,'\u2019 \u00a0\u202f]\\d{3})+|\\d*)"
    r"(?:[.,]\d*)?(?:[eEdD][+-]?\d+)?\s?%?"
    r"|[+-]?0[xX][0-9a-fA-F]+"
    r"|[+-]?1\.#(?:IND|QNAN|INF)"
)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_GAP = r"[-/., ]{1,2}"
_DAY = (
    r"(?:\d{1,4}[-/.]\d{1,2}(?:[-/.]\d{1,4})?"
    r"|\d{4}-?W\d{2}(?:-?\d)?"
    rf"|(?:\d{{1,4}}{_GAP})?{_MONTH}{_GAP}\d{{1,4}}(?:{_GAP}\d{{2,4}})?"
    rf"|\d{{1,4}}{_GAP}{_MONTH})"
)
# genes that a spreadsheet took for days, of so many names at least, and what part of them at most
_DAMAGED = re.compile(
    r"\d{1,2}-(?:Feb|Mar|Apr|May|Jun|Jul|Sept?|Oct|Nov|Dec)|(?:Mar|Sep|Dec)-\d{2}"
)
_FEWEST_GENES, _MOST_DAMAGED = 100, 0.05
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s?(?:[ap]\.?m\.?)?\s?(?:z|utc|[+-]\d{2}:?\d{2})?"
_TIME = re.compile(rf"{_DAY}(?:[T ,]\s?{_CLOCK})?|{_CLOCK}", re.IGNORECASE)


def reads_as_value(name: str) -> bool:
    """Whether a name is what a cell of a table would be: a number, a date, a time, true, missing.

    Numbers are such with signs, exponents, decimal commas and thousands apart as well, and NaN and
    infinity; dates and times in ISO's form and the usual ones of numbers and English months.
    """
    text = name.strip().replace("\u2212", "-")
    if not text:
        return False
    if text in _WORDS or text.lower() in _TRUTHS:
        return True
    try:
        float(text)
    except ValueError:
        pass
    else:
        return True
    if _DIGITS.search(text) is None:
        return False
    words = text.split()
    if len(words) > 1 and all(map(reads_as_value, words)):  # cells with blanks between
        return True
    return bool(_NUMBER.fullmatch(text) or _TIME.fullmatch(text))


def is_counted(names: Sequence[str]) -> bool:
    """Whether names are 0, 1, ... or 1, 2, ... in order, at least 8: an unnamed array's."""
    count = len(names)
    if count < _FEWEST_COUNTED:
        return False
    return any(
        all(name == str(number) for number, name in enumerate(names, start=start))
        for start in (0, 1)
    )


def are_damaged_genes(names: Sequence[str], wrong: Sequence[str]) -> bool:
    """Whether those that read as dates may be genes that a spreadsheet damaged.

    MARCH1 and SEPT2 become 1-Mar and 2-Sep (Ziemann et al., Gene name errors are widespread in the
    scientific literature, 2016). A few dates of day and month beside at least 100 other names are
    taken for genes: the first row of a table would have publishable texts in all other places.
    """
    many = len(names) >= _FEWEST_GENES and len(wrong) <= _MOST_DAMAGED * len(names)
    return many and all(_DAMAGED.fullmatch(name) for name in wrong)


def numbered_names(columns: int) -> list[str]:
    """c1, c2, ...: names where a file has none."""
    return [f"c{number}" for number in range(1, columns + 1)]
