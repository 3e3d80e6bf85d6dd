"""Synthetic rows for trees: a few strong directions, the same at every leaf, under noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Of a row's energy, what lies along the strong directions.
_SIGNAL = 0.5


class TreeRows:
    """Rows of norm 1, made anew for each leaf whenever they are asked for.

    Half of a row's energy lies along ``components`` orthonormal directions, with variances that
    fall from 4 to 1; the other half is spread evenly over all features.

    Parameters
    ----------
    features, components, rows : int
        ``rows`` a leaf.
    seed : int
    """

    def __init__(self, *, features: int, components: int, rows: int, seed: int) -> None:
        self.features, self.rows, self._seed = features, rows, seed
        rng = np.random.default_rng([seed])
        basis, _ = np.linalg.qr(rng.standard_normal((features, components)))
        shares = np.linspace(4.0, 1.0, components)
        deviations = np.sqrt(_SIGNAL * shares / shares.sum())
        self._directions: NDArray[np.float32] = (basis * deviations).T.astype(np.float32)

    def leaf(self, number: int) -> NDArray[np.float64]:
        """The rows of a leaf, shape (rows, features)."""
        rng = np.random.default_rng([self._seed, number])
        scores = rng.standard_normal((self.rows, self._directions.shape[0]), dtype=np.float32)
        rows = rng.standard_normal((self.rows, self.features), dtype=np.float32)
        rows *= np.float32(np.sqrt((1.0 - _SIGNAL) / self.features))
        rows += scores @ self._directions
        rows /= np.sqrt(np.vecdot(rows, rows))[:, None]
        return rows.astype(np.float64)
