"""DP-EM: Park, Foulds, Chaudhuri & Welling 2017, for spherical Gaussians of one known variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import clipped, largest_norm

# Of the norm bound: the weight of a row's responsibilities beside the row itself in a step's sums.
COUNT_WEIGHT = 0.25


@dataclass(frozen=True)
class DpEm:
    """Steps of EM, each from noisy sums of responsibilities and of rows weighted by them.

    The paper perturbs weights, means and covariances of each step one by one, and adds up the
    steps by moments. Here both sums of a step are one release (a row moves them by at most
    ``bound sqrt(1 + COUNT_WEIGHT**2)``, since squared responsibilities sum to 1 or less), the
    variance costs nothing, and steps add up exactly. The start is public, and says nothing.
    """

    steps: int
    paper = "Park, Foulds, Chaudhuri, Welling 2017"
    told = "variance of the components, length of their means, largest norm"

    @property
    def name(self) -> str:
        """With the number of steps."""
        return f"DP-EM, {self.steps} steps from a random start"

    def tell(self, rows: Array) -> float:
        """The largest norm."""
        return largest_norm(rows)

    def means(
        self, rows: Array, start: Array, variance: float, told: float, budget: Budget
    ) -> Array:
        """Means (K, D) after all steps."""
        inside = clipped(rows, told)
        means, weights = start, np.full(len(start), 1.0 / len(start))
        counted = COUNT_WEIGHT * told
        sensitivity = told * np.sqrt(1 + COUNT_WEIGHT**2)
        for _ in range(self.steps):
            each = responsibilities(inside, means, weights, variance)
            exact = np.column_stack([each.T @ inside, counted * each.sum(axis=0)])
            sums = budget.gaussian(exact, float(sensitivity), 1.0 / self.steps)
            # a component that noise leaves without rows is taken to have as many as noise shows
            noise = sensitivity / (budget.mu * np.sqrt(1.0 / self.steps)) / counted
            counts = np.maximum(sums[:, -1] / counted, noise)
            means, weights = sums[:, :-1] / counts[:, None], counts / counts.sum()
        return np.asarray(means)


def responsibilities(rows: Array, means: Array, weights: Array, variance: float) -> Array:
    """Of each component for each row, (n, K)."""
    log = np.log(weights) + (rows @ means.T - np.sum(means**2, axis=1) / 2) / variance
    log -= log.max(axis=1, keepdims=True)
    each = np.exp(log)
    return np.asarray(each / each.sum(axis=1, keepdims=True))


DP_EM = (DpEm(10), DpEm(20))
