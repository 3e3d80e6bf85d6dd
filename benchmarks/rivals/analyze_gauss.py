"""Analyze Gauss: Dwork, Talwar, Thakurta & Zhang 2014, Algorithm 1."""

from __future__ import annotations

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size, clipped, largest_norm, leading


class AnalyzeGauss(Rival):
    """The second moment of rows within a norm bound, once, with symmetric Gaussian noise."""

    name = "Analyze Gauss"
    paper = "Dwork, Talwar, Thakurta, Zhang 2014"
    told = "centre, largest norm"

    def tell(self, rows: Array, size: Size, budget: Budget) -> float:  # noqa: ARG002
        """The largest norm."""
        return largest_norm(rows)

    def components(self, rows: Array, size: Size, told: float, budget: Budget) -> Array:
        """``sum x x'`` has sensitivity ``bound**2`` in the Frobenius norm."""
        inside = clipped(rows, told)
        return leading(budget.symmetric(inside.T @ inside, told**2), size.components)
