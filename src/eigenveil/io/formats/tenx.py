"""Single cells as 10x Genomics' CellRanger writes them: ``.h5`` files, and ``.mtx`` with two lists.

Both have a row for each gene and a column for each cell, and are read as cells x genes. Where
features are of several types, those of gene expression are read.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterator, Sequence
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
from eigenveil.io.files import GZIP_GROWTH, MOST_UNPACKED, reading, too_large, unreadable
from eigenveil.io.formats.arrays import ArrayFile, Header, NamedSparseFile, SparseArrayFile, slices
from eigenveil.io.formats.hierarchy import Compressed, child, is_array, opened, whole
from eigenveil.origins import FileOrigin
from eigenveil.tables.names import MOST_SPARSE_COLUMNS, check_names, check_width, gene_names

# -- Word counts: vocabularies, Matrix Market files and bags of words.


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
        yield from slices(matrix, step)

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


_MATRIX = re.compile(r"(.*)matrix\.mtx(\.gz)?", re.IGNORECASE)
_FEATURES, _BARCODES = ("features.tsv", "genes.tsv"), ("barcodes.tsv",)
_EXPRESSION = "Gene Expression"
_MOST_TEXT = MOST_UNPACKED // 4  # a list of names takes several times its text


class _TenX(NamedSparseFile):
    """What both formats have in common: names, barcodes, and which features are kept."""

    label_names = ("barcode",)
    _kept: NDArray[np.int64] | None = None

    def _of_features(
        self, names: Sequence[str], ids: Sequence[str] | None, types: Sequence[str] | None
    ) -> list[str]:
        if types is not None and len({*types}) > 1 and _EXPRESSION in types:
            self._kept = np.flatnonzero(np.asarray(types, dtype=object) == _EXPRESSION)
            names = [names[place] for place in self._kept.tolist()]
            ids = None if ids is None else [ids[place] for place in self._kept.tolist()]
        others = {} if ids is None else {"gene_ids": lambda: ids}
        return gene_names(f"{self.path}: its list of features", names, others)

    def _cells(self, part: Any) -> Any:
        return part if self._kept is None else part[:, self._kept]

    def _names(self) -> Sequence[str]:
        return self._genes

    def _checked(self, shape: tuple[int, int], kind: np.dtype[Any], features: int) -> Header:
        """The header of cells x genes; ``features`` are those that the lists have."""
        if shape != (len(self._barcodes), features):
            raise unreadable(
                self.path,
                f"it has {shape[1]} features of {shape[0]} cells, and there are names of "
                f"{features} features and {len(self._barcodes)} barcodes",
            )
        return Header((shape[0], len(self._genes)), fortran=False, dtype=kind)

    def row_labels(self, name: str) -> NDArray[np.object_]:
        return np.fromiter(self._barcodes, np.object_)

    _genes: list[str]
    _barcodes: Sequence[str]


class TenXFile(_TenX):
    """A ``.h5`` file of CellRanger, of version 3 or before: read a block at a time."""

    def sparse_parts(self, step: int) -> Iterator[Any]:
        with opened(self.path) as root:
            group = self._group(root)
            # its columns are cells, so that they are rows here
            stored = Compressed.of_group(
                self.path, group, shape=self._whole, by_rows=True, entry_type=self._entry_type
            )
            for part in stored.parts(step):
                yield self._cells(part)

    def _header(self) -> Header:
        with opened(self.path) as root:
            group = self._group(root)
            shape = whole(self.path, group, "shape").tolist()
            self._barcodes = whole(self.path, group, "barcodes").tolist()
            if "features" in group:
                features = child(self.path, group, "features")
                names = whole(self.path, features, "name").tolist()
                ids = whole(self.path, features, "id").tolist()
                types = whole(self.path, features, "feature_type").tolist()
            else:
                names = whole(self.path, group, "gene_names").tolist()
                ids, types = whole(self.path, group, "genes").tolist(), None
            kind = child(self.path, group, "data", array=True).dtype
        self._genes = self._of_features(names, ids, types)
        self._whole = (int(shape[-1]), int(shape[0]))
        return self._checked(self._whole, kind, len(names))

    def _group(self, root: Any) -> Any:
        if "matrix" in root and not is_array(root["matrix"]):
            return root["matrix"]
        found = [name for name in root if not is_array(root[name]) and "barcodes" in root[name]]
        if len(found) == 1:
            return root[found[0]]
        held = ", ".join(repr(str(name)[:40]) for name in list(root)[:10]) or "nothing"
        raise DataError("no-counts-of-cells", path=self.path, held=held)


# -- Matrix Market with the names of genes and cells in two files beside it.


def open_market(path: Place) -> ArrayFile:
    """A ``.mtx`` file: cells where CellRanger's lists are beside it, else as it is."""
    features, barcodes = _lists(path)
    if features is None and barcodes is None:
        return MatrixMarketFile(path)
    if features is None or barcodes is None:
        raise DataError(
            "no-lists-beside",
            path=path,
            lists="barcodes.tsv" if barcodes is None else "features.tsv or genes.tsv",
        )
    return TenXMarket(path, features, barcodes)


def beside(path: Place) -> tuple[Path, ...]:
    features, barcodes = _lists(path)
    return () if features is None or barcodes is None else (features, barcodes)


def _lists(path: Place) -> tuple[Path | None, Path | None]:
    found = _MATRIX.fullmatch(path.name)
    if found is None or not isinstance(path, Path):  # a store has its file alone
        return None, None
    before = found[1]

    def first(names: Sequence[str]) -> Path | None:
        places = (path.with_name(before + name + end) for name in names for end in ("", ".gz"))
        return next((place for place in places if place.is_file()), None)

    return first(_FEATURES), first(_BARCODES)


class TenXMarket(_TenX):
    """A matrix of genes x cells with its lists: loaded whole, and sparse, for it is a text."""

    def __init__(self, path: Place, features: Path, barcodes: Path) -> None:
        self._lists = features, barcodes
        self._loaded: Any = None
        super().__init__(path)

    def sparse_parts(self, step: int) -> Iterator[Any]:
        if self._loaded is None:
            stored = scipy.sparse.csc_array(scipy.io.mmread(self.path, spmatrix=False))
            cells = stored.T if self._turned else stored
            self._loaded = self._cells(cells.tocsr()).astype(self._entry_type)
        yield from slices(self._loaded, step)

    def _header(self) -> Header:
        features, barcodes = self._lists
        lines = [line.split("\t") for line in _lines(features)]
        ids = [line[0] for line in lines]
        names = [line[1] if len(line) > 1 else line[0] for line in lines]
        types = [line[2] for line in lines] if all(len(line) > 2 for line in lines) else None
        self._barcodes = [line.split("\t")[0] for line in _lines(barcodes)]
        self._genes = self._of_features(names, ids, types)
        stored = market_header(self.path)
        rows, columns = stored.shape
        # genes x cells, as CellRanger writes it, unless the lists say that it was turned
        wanted = (len(names), len(self._barcodes))
        self._turned = (rows, columns) == wanted or (columns, rows) != wanted
        shape = (columns, rows) if self._turned else (rows, columns)
        return self._checked(shape, stored.dtype, len(names))


def _lines(path: Place) -> list[str]:
    """Lines of a text, unpacked where its name ends in ``.gz``."""
    with reading(path):
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            content = file.read(_MOST_TEXT + 1)
        if len(content) > _MOST_TEXT:
            raise too_large(path, f"a list of names has more than {_MOST_TEXT:,} bytes")
        return content.decode("utf-8-sig").splitlines()
