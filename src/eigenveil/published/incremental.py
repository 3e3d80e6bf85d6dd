"""scikit-learn's IncrementalPCA (Ross et al. 2008) with the trackers' interface; not private."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.decomposition import IncrementalPCA

from eigenveil.published.trackers import (
    Blocks,
    FloatArray,
    Reader,
    checked_count,
    no_components,
)


class Incremental:
    """IncrementalPCA fed block by block.

    Unlike the other trackers it subtracts the mean of the rows seen so far, and there is no way to
    ask it not to: where the rows have a mean, it looks for other directions than they do.

    Parameters
    ----------
    n_components : int
        r.
    block : int or None
        Rows of a block, ``n_components`` or more; by default 5 times as many as components. Rows of
        a block that is not full are not read yet.
    """

    def __init__(self, *, n_components: int, block: int | None = None) -> None:
        self.n_components = checked_count("n_components", n_components)
        size = 5 * n_components if block is None else block
        self._blocks = Blocks(max(size, n_components))
        self._reader = Reader()
        self._inner = IncrementalPCA(n_components=n_components)

    def partial_fit(self, rows: ArrayLike) -> Self:
        """Read rows, shape (n, D)."""
        exact = self._reader.rows(rows, least_features=self.n_components)
        for block in self._blocks.full(exact):
            with np.errstate(invalid="ignore"):  # it divides by the variance, 0 of equal rows
                self._inner.partial_fit(block, check_input=False)
        return self

    @property
    def components(self) -> FloatArray:
        """Orthonormal rows, shape (r, D), strongest first; of centred rows.

        Raises
        ------
        DataError
            Before the first block is full.
        """
        self._check_fitted()
        return np.array(self._inner.components_)

    @property
    def strengths(self) -> FloatArray:
        """Singular values of the centred rows, shape (r,)."""
        self._check_fitted()
        return np.array(self._inner.singular_values_)

    def _check_fitted(self) -> None:
        if not hasattr(self._inner, "components_"):
            raise no_components(f"the first block is not full, {self._blocks.waiting} rows wait")
