"""Spherical Kendall: Kim & Jung 2025 (g-DPPCA with the spatial sign)."""

from __future__ import annotations

import numpy as np

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size, leading

# Each row is paired with this many before and after it in a public order; all pairs would change
# nothing but the sampling error.
PARTNERS = 16


class SphericalKendall(Rival):
    """The second moment of unit differences of rows: no centre and no bound is needed.

    A row is in ``2 PARTNERS`` pairs, each of which adds a matrix of norm 1. The sum over pairs,
    divided by that, has sensitivity 1, and the energy of half as many rows as there are.
    """

    name = "Spherical Kendall"
    paper = "Kim, Jung 2025"
    told = "number of rows"

    def tell(self, rows: Array, size: Size, budget: Budget) -> Array:  # noqa: ARG002
        """Public distances within the order of the rows, which says nothing about them."""
        most = max((size.rows - 1) // 2, 1)
        rng = np.random.default_rng(0)
        return rng.choice(np.arange(1, most + 1), min(PARTNERS, most), replace=False)

    def components(self, rows: Array, size: Size, told: Array, budget: Budget) -> Array:
        """Pairs of positions among ``size.rows``; those whose row is missing are left out."""
        moment = np.zeros((size.features, size.features))
        start = np.arange(size.rows)
        for distance in told:
            other = (start + distance) % size.rows
            both = (start < len(rows)) & (other < len(rows))
            pairs = rows[start[both]] - rows[other[both]]
            norms = np.linalg.norm(pairs, axis=1)
            pairs /= np.where(norms > 0, norms, 1.0)[:, None]
            moment += pairs.T @ pairs
        return leading(budget.symmetric(moment / (2 * told.size), 1.0), size.components)
