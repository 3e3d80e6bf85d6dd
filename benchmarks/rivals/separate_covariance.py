"""Separate covariance: Dong, Liang & Yi 2022, SeparateCov."""

from __future__ import annotations

import numpy as np

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size, clipped, largest_norm

HALF = 0.5


class SeparateCovariance(Rival):
    """Eigenvalues with noise of their own, eigenvectors from a noisy second moment, half each.

    Both have sensitivity ``bound**2``: that of the vector of eigenvalues is at most the matrix's in
    the Frobenius norm (Hoffman & Wielandt). The method is made for a small error of the whole
    matrix: of its subspace it says what Analyze Gauss says with half the budget.
    """

    name = "Separate covariance"
    paper = "Dong, Liang, Yi 2022"
    told = "centre, largest norm"

    def tell(self, rows: Array, size: Size, budget: Budget) -> float:  # noqa: ARG002
        """The largest norm."""
        return largest_norm(rows)

    def components(self, rows: Array, size: Size, told: float, budget: Budget) -> Array:
        """The eigenvectors that are given the largest of the noisy eigenvalues."""
        return separate(clipped(rows, told), told, size, budget)


def separate(inside: Array, bound: float, size: Size, budget: Budget) -> Array:
    """Components of rows that are within the bound."""
    moment = inside.T @ inside
    exact = np.linalg.eigvalsh(moment).astype(np.float64)[::-1]
    values = budget.gaussian(exact, bound**2, HALF)
    vectors = np.linalg.eigh(budget.symmetric(moment, bound**2, HALF))[1][:, ::-1]
    # as published: the i-th vector gets the i-th noisy value, and the values decide the order
    order = np.argsort(values)[::-1][: size.components]
    return np.asarray(vectors[:, order].T)
