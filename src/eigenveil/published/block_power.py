"""The streaming block power method (Mitliagkas, Caramanis & Jain 2013): a baseline, not private."""

from __future__ import annotations

from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from eigenveil.published.trackers import (
    Blocks,
    FloatArray,
    Reader,
    as_components,
    checked_count,
)


class BlockPower:
    """One step of orthogonal iteration for each block: ``S = X'(X Q)/B``, ``Q = qr(S)``.

    Nothing is remembered of a block but Q, so with noise the accuracy is that of one block, however
    long the stream: the authors let blocks grow with the stream for that reason.

    Parameters
    ----------
    n_components : int
        r.
    block : int
        B, rows of a block. Rows of a block that is not full are not read yet.
    random_state : int, Generator or None
        For the first basis, drawn uniformly.
    """

    def __init__(
        self,
        *,
        n_components: int,
        block: int = 100,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_components = checked_count("n_components", n_components)
        self._rng = np.random.default_rng(random_state)
        self._reader = Reader()
        self._blocks = Blocks(block)

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D)."""
        started = self._reader.features > 0
        exact = self._reader.rows(rows, least_features=self.n_components)
        if not started:
            shape = exact.shape[1], self.n_components
            self._basis: FloatArray = np.linalg.qr(self._rng.standard_normal(shape))[0]
            self._values = np.zeros(self.n_components)
        for block in self._blocks.full(exact):
            step = block.T @ (block @ self._basis)
            if np.any(step):  # a block of zeros, or one that sees nothing of Q, tells nothing
                # the same span as that of a QR factorisation, ordered by strength
                self._basis, self._values, _ = scipy.linalg.svd(step, full_matrices=False)
        return self

    @property
    def components(self) -> FloatArray:
        """Orthonormal rows, shape (r, D), strongest in the last block first.

        Raises
        ------
        DataError
            Before the first row.
        """
        self._reader.check_started()
        return as_components(self._basis)

    @property
    def strengths(self) -> FloatArray:
        """About the singular values of the last block, shape (r,); 0 before the first is full."""
        self._reader.check_started()
        return np.asarray(np.sqrt(self._values))
