"""A vocabulary: words, one a line."""

from __future__ import annotations

from pathlib import Path

from eigenveil.errors import DataError
from eigenveil.headers import check_names, check_width
from eigenveil.io.reading import reading


def read_vocabulary(path: str | Path) -> list[str]:
    """Words of a text file, one a line, in its order; the first is the name of the first column.

    Raises
    ------
    DataError
        Naming the file, and the line that is empty or has a word that was there before; where it is
        a table of rows, which would be published as words.
    """
    place = Path(path)
    with reading(place):
        words = [line.strip() for line in place.read_text(encoding="utf-8-sig").splitlines()]
    while words and not words[-1]:
        words.pop()
    if not words:
        raise DataError(f"{place} has no word.", hint="Give a file with one word a line.")
    check_width(str(place), len(words), sparse=True)
    check_names(str(place), words, of_words=True)
    if len(words) > 1 and all(any(mark in word for mark in ",;\t") for word in words):
        raise DataError(
            f"{place} has a comma, a semicolon or a tab in every line, as a table of rows has.",
            hint="Give a file with one word a line.",
            code="header-is-data",
        )
    seen: dict[str, int] = {}
    for number, word in enumerate(words, start=1):
        if not word:
            raise DataError(
                f"{place}: line {number} is empty.", hint="Give one word a line, for each column."
            )
        if (first := seen.setdefault(word, number)) != number:
            raise DataError(
                f"{place}: line {number} has {word!r} again, as line {first}.",
                hint="Every column needs a name of its own.",
                code="duplicate-column",
            )
    return words
