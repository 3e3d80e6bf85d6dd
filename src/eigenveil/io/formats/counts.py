"""Word counts: vocabularies, Matrix Market files and bags of words."""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import scipy.io
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.files import Place
from eigenveil.io.files import GZIP_GROWTH, reading, too_large
from eigenveil.io.formats.arrays import Header, SparseArrayFile
from eigenveil.origins import FileOrigin
from eigenveil.tables.names import MOST_SPARSE_COLUMNS, check_names, check_width


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
        raise DataError("no-words", place=place)
    check_width(str(place), len(words), most=MOST_SPARSE_COLUMNS)
    check_names(FileOrigin(str(place)), words, of_words=True)
    if len(words) > 1 and all(any(mark in word for mark in ",;\t") for word in words):
        raise DataError("table-as-words", place=place)
    seen: dict[str, int] = {}
    for number, word in enumerate(words, start=1):
        if not word:
            raise DataError("empty-line", place=place, number=number)
        if (first := seen.setdefault(word, number)) != number:
            raise DataError("word-twice", place=place, number=number, word=word, given=first)
    return words


# -- Files of word counts as corpora come: Matrix Market, and the bags of words of UCI.


_FIELDS = {
    "integer": np.int64,
    "unsigned-integer": np.uint64,
    "real": np.float64,
    "pattern": np.uint8,
    "complex": np.complex128,
}


# An entry of text has at least two bytes, and gzip makes at most 1032 of one.
_ENTRY_BYTES = 2


def market_header(path: Place) -> Header:
    rows, columns, entries, _, field, _ = scipy.io.mminfo(path)
    growth = GZIP_GROWTH if path.suffix.lower() == ".gz" else 1
    size = Path(path).stat().st_size
    if entries * _ENTRY_BYTES > size * growth:
        raise too_large(
            path, f"it states {entries:,} entries, more than its {size:,} bytes can have"
        )
    return Header((rows, columns), fortran=False, dtype=np.dtype(_FIELDS[field]))


class MatrixMarketFile(SparseArrayFile):
    """A ``.mtx`` file, gzipped or not: loaded whole, for its entries are in no certain order."""

    def sparse_parts(self, step: int) -> Iterator[Any]:
        if self._stored.shape[0] == 0:  # a dense one without rows ends scipy's reader, and Python
            return
        loaded = scipy.io.mmread(self.path, spmatrix=False)
        matrix = scipy.sparse.csr_array(loaded).astype(self._entry_type)
        for start in range(0, matrix.shape[0], step):
            yield matrix[start : start + step]

    def _header(self) -> Header:
        return market_header(self.path)


_HEADER_LINES = 3
_BAD_ENTRY = re.compile(r"(?:In CSV column #\d+|CSV parse error): Row #(\d+)")


class BagOfWordsFile(SparseArrayFile):
    """A ``docword.NAME.txt`` of the UCI repository, gzipped or not.

    Three lines say how many documents, words and entries there are; every further one is an entry
    ``document word count``, documents and words counted from 1, documents in order.
    """

    def sparse_parts(self, step: int) -> Iterator[Any]:
        documents, size = self._stored.shape
        waiting: list[NDArray[np.int64]] = []
        first, seen, last = 0, 0, 0
        for entries in self._batches():
            self._check(entries, last)
            seen, last = seen + entries.shape[1], int(entries[0, -1])
            waiting.append(entries)
            if last - first > step:  # the last document may go on in the next batch
                joined = np.concatenate(waiting, axis=1)
                while last - first > step:
                    joined, part = _split(joined, first, first + step, size)
                    yield part
                    first += step
                waiting = [joined]
        if seen != self._entries:
            raise DataError(
                "unreadable",
                path=self.path,
                why=f"it has {seen:,} entries, and its third line states {self._entries:,}",
            )
        joined = np.concatenate(waiting, axis=1) if waiting else np.zeros((3, 0), np.int64)
        for start in range(first, documents, step):
            joined, part = _split(joined, start, min(start + step, documents), size)
            yield part

    def _header(self) -> Header:
        with self._open() as file:
            numbers = [int(file.readline().strip()) for _ in range(_HEADER_LINES)]
        if min(numbers) < 0:
            raise ValueError(
                "its first three lines are not the numbers of documents, words and entries"
            )
        documents, words, self._entries = numbers
        return Header((documents, words), fortran=False, dtype=np.dtype(np.int64))

    def _open(self) -> Any:
        return gzip.open(self.path) if self.path.suffix.lower() == ".gz" else self.path.open("rb")

    def _batches(self) -> Iterator[NDArray[np.int64]]:
        names = ["document", "word", "count"]
        kinds = dict.fromkeys(names, pa.int64())
        if self._entries == 0:
            return
        packed = "gzip" if self.path.suffix.lower() == ".gz" else None
        try:
            with (
                # no object of Python's, which pyarrow's threads would hold
                pa.input_stream(os.fspath(self.path), compression=packed) as file,
                pa.csv.open_csv(
                    file,
                    read_options=pa.csv.ReadOptions(
                        column_names=names, skip_rows=_HEADER_LINES, use_threads=False
                    ),
                    parse_options=pa.csv.ParseOptions(delimiter=" "),
                    convert_options=pa.csv.ConvertOptions(column_types=kinds, null_values=[]),
                ) as reader,
            ):
                for batch in reader:
                    if batch.num_rows:
                        yield np.stack([column.to_numpy() for column in batch.columns])
        except pa.ArrowInvalid as error:
            found = _BAD_ENTRY.match(str(error))
            place = "" if found is None else f" at line {found[1]}"
            raise DataError("entry-of-no-numbers", path=self.path, place=place) from None

    def _check(self, entries: NDArray[np.int64], last: int) -> None:
        """Entries within the file's own sizes, their documents in order."""
        limits = self._stored.shape
        for what, numbers, most in zip(("document", "word"), entries[:2], limits, strict=True):
            wrong = np.flatnonzero((numbers < 1) | (numbers > most))
            if wrong.size:
                why = f"an entry of {what} {numbers[wrong[0]]}, and its {what}s are 1 to {most}"
                raise DataError("unreadable", path=self.path, why=f"it has {why}")
        if np.any(np.diff(entries[0], prepend=last) < 0):
            raise DataError("documents-out-of-order", path=self.path)


def _split(
    entries: NDArray[np.int64], start: int, stop: int, size: int
) -> tuple[NDArray[np.int64], Any]:
    """What is left without documents ``start`` to ``stop`` (from 0), and those as rows."""
    ends = np.searchsorted(entries[0], np.arange(start, stop + 1), side="right")
    rest = entries[:, ends[-1] :]
    _, words, counts = entries[:, : ends[-1]]
    part = scipy.sparse.csr_array(
        (counts.astype(np.float64), words - 1, ends), shape=(stop - start, size)
    )
    part.sum_duplicates()  # changes the ends too
    return rest, part
