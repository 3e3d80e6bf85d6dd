"""Documents as counts of words: blocks of them, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.moments.norms import FloatArray
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.moments.rows import Block, InvalidPlace, Precision, RowWeights
from eigenveil.moments.source import RowsOf, RowSource, SparseRows, block_rows
from eigenveil.origins import Origin

# Every triple of words needs three places: a shorter document has none, and is valid all the same.
# Sums of longer documents would leave the floats.
FEWEST_WORDS, MOST_WORDS = 3, 1 << 24
# Documents and entries of a block.
MOST_DOCUMENTS = 1 << 15
_MOST_ENTRIES = 1 << 20


class DocumentBlock(Block):
    """Consecutive documents; ``values`` is a CSR array of their counts, in double precision."""

    def __init__(
        self,
        counts: Any,
        *,
        origin: Origin | str = "",
        first_row: int = 0,
        units: NDArray[Any] | None = None,
        weights: RowWeights | None = None,
    ) -> None:
        values = scipy.sparse.csr_array(counts, dtype=np.float64, copy=True)
        super().__init__(values, origin=origin, first_row=first_row, units=units, weights=weights)
        where = f"{self.origin.name}: " if self.origin.name else ""
        try:  # an index out of range would be written to
            values.check_format(full_check=True)
        except ValueError as error:
            raise DataError("damaged-matrix", whose=where, reason=error) from None
        with np.errstate(over="ignore", invalid="ignore"):  # such documents are not valid
            values.sum_duplicates()
            values.eliminate_zeros()
            data = values.data
            counted = (data >= 0) & (data <= MOST_WORDS) & (data == np.rint(data))  # not NaN either
            lengths = values.sum(axis=1)
        wrong = ~(lengths <= MOST_WORDS)
        if not counted.all():
            row_of_entry = np.repeat(np.arange(lengths.size), np.diff(values.indptr))
            wrong[row_of_entry[~counted]] = True
        if wrong.any():
            self.invalid = int(np.count_nonzero(wrong))
            self.first_invalid = _problem(values, int(np.argmax(wrong)), counted, lengths)
        nothing = wrong | (lengths < FEWEST_WORDS)
        if nothing.any():
            values.data[np.repeat(nothing, np.diff(values.indptr))] = 0.0
            values.eliminate_zeros()
            lengths = np.where(nothing, 0.0, lengths)
        self.lengths: NDArray[np.int64] = lengths.astype(np.int64)
        self.entries = int(values.nnz)

    def check(self) -> None:
        """Nothing more is to be found."""

    def residuals(
        self,
        center: NDArray[np.float64] | None,
        precision: Precision,
        preparation: Preparation = AS_IT_IS,
    ) -> tuple[FloatArray, NDArray[np.float64]]:
        """Documents have none."""
        del center, precision, preparation
        raise AssertionError("word counts taken for rows of numbers: a defect")


def _problem(
    values: Any, row: int, counted: NDArray[np.bool_], lengths: NDArray[np.float64]
) -> InvalidPlace:
    """What is wrong with an invalid document."""
    own = slice(values.indptr[row], values.indptr[row + 1])
    if not counted[own].all():
        place = int(np.argmin(counted[own])) + own.start
        what = f"is counted {values.data[place]:.15g} times"
        return InvalidPlace(row, int(values.indices[place]), what)
    return InvalidPlace(
        row, None, f"is a document of {lengths[row]:.15g} words; at most {MOST_WORDS} are valid"
    )


class DocumentRows(RowSource):
    """Documents of a sparse matrix or an array of word counts, shape (n, D)."""

    def __init__(
        self,
        counts: Any,
        *,
        names: Sequence[str] | None = None,
        origin: Origin | str = "",
        documents_a_block: int | None = None,
    ) -> None:
        matrix: Any = counts if scipy.sparse.issparse(counts) else np.asarray(counts)
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            where = origin if isinstance(origin, str) else origin.name
            place = where + ": " if where else ""
            what = f"{place}word counts are {matrix.dtype} of shape {matrix.shape}"
            raise DataError("not-numeric", what=what)
        self.names, self._origin = names, origin
        self.features = int(matrix.shape[1])
        step = min(MOST_DOCUMENTS, block_rows(self.features))
        if scipy.sparse.issparse(matrix):
            if matrix.format != "csr":  # entries at the same place add up: not in a small integer
                matrix = matrix.astype(np.float64).tocsr()
            entries = max(1, matrix.nnz // max(1, matrix.shape[0]))
            step = int(np.clip(_MOST_ENTRIES // entries, 1, MOST_DOCUMENTS))
        self._matrix, self._step = matrix, documents_a_block or step

    def blocks(self) -> Iterator[Block]:
        for start in range(0, self._matrix.shape[0], self._step):
            yield DocumentBlock(
                self._matrix[start : start + self._step], origin=self._origin, first_row=start
            )


class TableDocuments(RowsOf):
    """Documents that any source of rows holds as counts: one row a document, one column a word."""

    def blocks(self) -> Iterator[Block]:
        for block in self._rows.sparse_blocks():
            yield DocumentBlock(
                block.values,
                origin=block.origin,
                first_row=block.first_row,
                units=block.units,
                weights=block.weights,
            )


def as_documents(rows: RowSource) -> RowSource:
    """Rows read as documents; those of a sparse matrix or file are never made dense."""
    if isinstance(rows, DocumentRows | TableDocuments):
        return rows
    if isinstance(rows, SparseRows):
        return DocumentRows(rows._matrix, names=rows.names, origin=rows._origin)
    return TableDocuments(rows)
