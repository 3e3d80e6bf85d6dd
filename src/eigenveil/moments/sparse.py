"""Rows of a scipy sparse matrix, made dense a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eigenveil.moments.rows import Block
from eigenveil.moments.source import block_rows


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
