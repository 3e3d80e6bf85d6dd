"""Adaptive covariance: Dong, Liang & Yi 2022, AdaptiveCov."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size, clipped, leading
from benchmarks.rivals.separate_covariance import HALF, separate

# The paper halves the bound from 1; quantiles of the norms are at least as good a choice.
QUANTILES = (1.0, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05)


@dataclass(frozen=True)
class Choice:
    """A norm bound, and whether eigenvalues and eigenvectors are released separately."""

    bound: float
    separate: bool


class AdaptiveCovariance(Rival):
    """A norm bound where noise and shortening do equal harm, then the better of two mechanisms.

    The paper finds the bound with the sparse vector technique and compares bounds of the errors.
    Here both are chosen at no cost, by the least expected error in the Frobenius norm.
    """

    name = "Adaptive covariance"
    paper = "Dong, Liang, Yi 2022"
    told = "centre, best norm bound, better of its two mechanisms"

    def tell(self, rows: Array, size: Size, budget: Budget) -> Choice:
        """The choice of least expected error."""
        moment = rows.T @ rows
        spectrum = np.linalg.eigvalsh(moment)[::-1]
        norms = np.linalg.norm(rows, axis=1)
        found = []
        for quantile in QUANTILES:
            bound = float(np.quantile(norms, quantile))
            if bound <= 0:
                continue
            inside = clipped(rows, bound)
            bias = float(np.sum((moment - inside.T @ inside) ** 2))
            deviation = bound**2 / budget.mu
            whole = deviation**2 * size.features * (size.features + 1) / 2
            found.append((whole + bias, Choice(bound, separate=False)))
            # the paper's trace-sensitive bound: the values' noise, and vectors turned by the noise
            # of half a budget, at most twice the matrix itself
            turned = 2 * np.sqrt(2 * size.features) * deviation / np.sqrt(HALF)
            apart = deviation**2 / HALF * size.features + min(
                turned * float(spectrum.sum()), 4 * float(np.sum(spectrum**2))
            )
            found.append((apart + bias, Choice(bound, separate=True)))
        return min(found, key=lambda pair: pair[0])[1]

    def components(self, rows: Array, size: Size, told: Choice, budget: Budget) -> Array:
        """By the mechanism that was chosen."""
        inside = clipped(rows, told.bound)
        if told.separate:
            return separate(inside, told.bound, size, budget)
        return leading(budget.symmetric(inside.T @ inside, told.bound**2), size.components)
