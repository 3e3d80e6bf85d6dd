"""EMCov: Amin, Dick, Kulesza, Munoz Medina & Vassilvitskii 2019, Algorithm 1."""

from __future__ import annotations

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size, clipped, largest_norm

MOST_WORK = 1e10


class EMCov(Rival):
    """Eigenvectors one after the other, each by the exponential mechanism in what is left.

    The paper also releases eigenvalues, and is purely epsilon private. Here all of the budget goes
    to the K vectors that are wanted, drawn exactly, and they are composed with delta.
    """

    name = "EMCov"
    paper = "Amin, Dick, Kulesza, Munoz Medina, Vassilvitskii 2019"
    told = "centre, largest norm"

    def suits(self, size: Size) -> bool:
        """One eigendecomposition a component: minutes for 50 of 784 columns."""
        return size.components * size.features**3 < MOST_WORK

    def tell(self, rows: Array, size: Size, budget: Budget) -> float:  # noqa: ARG002
        """The largest norm."""
        return largest_norm(rows)

    def components(self, rows: Array, size: Size, told: float, budget: Budget) -> Array:
        """A row adds 0 to ``bound**2`` to the score ``u' (sum x x') u``."""
        inside = clipped(rows, told)
        return budget.directions(inside.T @ inside, told**2, size.components)
