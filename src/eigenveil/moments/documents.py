"""Documents as counts of words: blocks of them, and where they come from.

A document of L words, c_i times word i, is a row of counts. What is added up of them is in
``document_sums.py`` and ``document_triples.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.rows import Block, FloatArray, Precision
from eigenveil.moments.source import RowSource, block_rows
from eigenveil.moments.sparse import SparseRows

# Every triple of words needs three places; sums of longer documents would leave the floats.
FEWEST_WORDS, MOST_WORDS = 3, 1 << 24
# Documents and entries of a block.
MOST_DOCUMENTS = 1 << 15
_MOST_ENTRIES = 1 << 20


class DocumentBlock(Block):
    """Consecutive documents; ``values`` is a CSR array of their counts, in double precision.

    Parameters
    ----------
    counts : array or sparse array of shape (n, D)
        How often each word occurs; left unchanged. Entries at the same place add up.
    origin : str
        The file, for messages to the owner of the documents.
    first_row : int
        Number of the first document within ``origin``, from 0.
    names : sequence of str, optional
        The words.

    Attributes
    ----------
    lengths : array of shape (n,)
        Words of each document.
    entries : int
        Counts that are not 0.

    Raises
    ------
    DataError
        Naming document, word and count where one is not a whole number from 0, and a document with
        fewer than 3 words or more than 2**24.
    """

    def __init__(
        self,
        counts: Any,
        *,
        origin: str = "",
        first_row: int = 0,
        names: Sequence[str] | None = None,
    ) -> None:
        values = scipy.sparse.csr_array(counts, dtype=np.float64, copy=True)
        super().__init__(values, origin=origin, first_row=first_row)
        where = f"{origin}: " if origin else ""
        try:  # an index out of range would be written to
            values.check_format(full_check=True)
        except ValueError as error:
            raise DataError(
                f"{where}the counts are not a valid sparse matrix: {error}.",
                hint="Make the matrix anew.",
                code="damaged-matrix",
            ) from None
        values.sum_duplicates()
        values.eliminate_zeros()
        data = values.data
        wrong = np.flatnonzero(~(np.isfinite(data) & (data >= 0) & (data == np.rint(data))))
        if wrong.size:
            row = int(np.searchsorted(values.indptr, wrong[0], side="right")) - 1
            column, count = int(values.indices[wrong[0]]), float(data[wrong[0]])
            word = str(column) if names is None else names[column]
            finite = math.isfinite(count)
            raise DataError(
                f"{where}document {first_row + row}, word {word!r} is counted {count} times.",
                hint="Counts are whole numbers from 0."
                if finite
                else "Input contains NaN or infinity; remove or fill such entries first.",
                code="not-a-count" if finite else "not-finite",
            )
        with np.errstate(over="ignore"):
            lengths = values.sum(axis=1)
        wrong = np.flatnonzero((lengths < FEWEST_WORDS) | (lengths > MOST_WORDS))
        if wrong.size:
            row, length = int(wrong[0]), float(lengths[wrong[0]])
            short = length < FEWEST_WORDS
            raise DataError(
                f"{where}document {first_row + row} has {length:.15g} "
                f"{'word' if length == 1 else 'words'}.",
                hint=f"Drop documents of fewer than {FEWEST_WORDS} words first."
                if short
                else f"Drop or shorten documents of more than {MOST_WORDS} words first.",
                code="short-document" if short else "long-document",
            )
        self.lengths: NDArray[np.int64] = lengths.astype(np.int64)
        self.entries = int(values.nnz)

    def residuals(
        self, centre: NDArray[np.float64] | None, precision: Precision
    ) -> tuple[FloatArray, NDArray[np.float64]]:
        """Documents have none."""
        del centre, precision
        raise AssertionError("word counts taken for rows of numbers: a defect")


class DocumentRows:
    """Documents of a sparse matrix or an array of word counts, shape (n, D).

    Parameters
    ----------
    counts : sparse array or array
        Whole numbers, of any numeric type; left unchanged.
    names : sequence of str, optional
        The words.
    origin : str
        The file, for messages.

    Raises
    ------
    DataError
        When it is not a matrix of numbers. What is wrong with a document is found by ``blocks()``.
    """

    def __init__(
        self,
        counts: Any,
        *,
        names: Sequence[str] | None = None,
        origin: str = "",
        documents_a_block: int | None = None,
    ) -> None:
        matrix: Any = counts if scipy.sparse.issparse(counts) else np.asarray(counts)
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise DataError(
                f"{origin + ': ' if origin else ''}word counts are {matrix.dtype} of shape "
                f"{matrix.shape}, not a matrix of numbers.",
                hint="Give one row a document and one column a word.",
                code="not-numeric",
            )
        self.names, self._origin = names, origin
        self.features = int(matrix.shape[1])
        self.single = matrix.dtype == np.float32
        step = min(MOST_DOCUMENTS, block_rows(self.features))
        if scipy.sparse.issparse(matrix):
            if matrix.format != "csr":  # entries at the same place add up: not in a small integer
                matrix = matrix.astype(np.float64).tocsr()
            entries = max(1, matrix.nnz // max(1, matrix.shape[0]))
            step = int(np.clip(_MOST_ENTRIES // entries, 1, MOST_DOCUMENTS))
        self._matrix, self._step = matrix, documents_a_block or step

    def blocks(self) -> Iterator[Block]:
        """Copies of consecutive documents, checked."""
        for start in range(0, self._matrix.shape[0], self._step):
            yield DocumentBlock(
                self._matrix[start : start + self._step],
                origin=self._origin,
                first_row=start,
                names=self.names,
            )


@runtime_checkable
class SparseSource(RowSource, Protocol):
    """Rows that can also be read without being made dense."""

    def sparse_blocks(self) -> Iterator[Block]:
        """All rows once, in order, as CSR arrays."""
        ...


class TableDocuments:
    """Documents that any source of rows holds as counts: one row a document, one column a word."""

    def __init__(self, rows: RowSource) -> None:
        self._rows = rows
        self.names, self.features, self.single = rows.names, rows.features, rows.single

    def blocks(self) -> Iterator[Block]:
        """The documents of each block of rows, checked."""
        rows = self._rows
        for block in rows.sparse_blocks() if isinstance(rows, SparseSource) else rows.blocks():
            yield DocumentBlock(
                block.values, origin=block.origin, first_row=block.first_row, names=self.names
            )


def as_documents(rows: RowSource) -> RowSource:
    """Rows read as documents; those of a sparse matrix or file are never made dense."""
    if isinstance(rows, DocumentRows | TableDocuments):
        return rows
    if isinstance(rows, SparseRows):
        return DocumentRows(rows._matrix, names=rows.names, origin=rows._origin)
    return TableDocuments(rows)
