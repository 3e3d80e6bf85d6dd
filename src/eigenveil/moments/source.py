"""Sources of rows: arrays and sparse matrices, read a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from eigenveil.moments.rows import Block, FloatArray

# Entries of a block: large enough for the matrix product to run at speed, small enough for the
# processor's cache to hold what preparation makes of it (measured: 1024 rows at 784 features).
_BLOCK_ENTRIES = 1 << 20
_FEWEST_ROWS, _MOST_ROWS = 512, 1 << 16


class RowSource(Protocol):
    """Rows that can be read several times, a block at a time."""

    @property
    def features(self) -> int:
        """Number of columns."""
        ...

    @property
    def names(self) -> Sequence[str] | None:
        """Names of the columns, if they have any."""
        ...

    @property
    def single(self) -> bool:
        """Whether the rows are stored in single precision."""
        ...

    def blocks(self) -> Iterator[Block]:
        """All rows once, in order."""
        ...


def block_rows(features: int) -> int:
    """Rows of a block for this many features: a power of two."""
    fitting = 1 << max(0, (_BLOCK_ENTRIES // max(features, 1)).bit_length() - 1)
    return int(np.clip(fitting, _FEWEST_ROWS, _MOST_ROWS))


class ArrayRows:
    """Rows of an array in memory (or memory-mapped); blocks are views, nothing is copied.

    Parameters
    ----------
    array : array of shape (n, D), floating
    """

    def __init__(
        self,
        array: FloatArray,
        *,
        names: Sequence[str] | None = None,
        origin: str = "",
        rows_a_block: int | None = None,
    ) -> None:
        self._array, self.names, self._origin = array, names, origin
        self.features = int(array.shape[1])
        self.single = array.dtype == np.float32
        self._step = rows_a_block or block_rows(self.features)

    def blocks(self) -> Iterator[Block]:
        """Views of consecutive rows."""
        for start in range(0, self._array.shape[0], self._step):
            yield Block(
                self._array[start : start + self._step], origin=self._origin, first_row=start
            )


# -- Rows of a scipy sparse matrix, made dense a block at a time.


class SparseRows:
    """Rows of a CSR matrix of shape (n, D)."""

    def __init__(
        self, matrix: Any, *, names: Sequence[str] | None = None, origin: str = ""
    ) -> None:
        self._matrix, self.names, self._origin = matrix.tocsr(), names, origin
        self.features = int(matrix.shape[1])
        self.single = matrix.dtype == np.float32

    def blocks(self) -> Iterator[Block]:
        """Dense copies of consecutive rows."""
        step = block_rows(self.features)
        dtype = np.float32 if self.single else np.float64
        for start in range(0, self._matrix.shape[0], step):
            dense = self._matrix[start : start + step].toarray().astype(dtype, copy=False)
            yield Block(dense, origin=self._origin, first_row=start)
