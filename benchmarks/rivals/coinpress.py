"""CoinPress: Biswas, Dong, Kamath & Ullman 2020, the iterative covariance estimator (MVC)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size, clipped, largest_norm, leading

# As in the paper's experiments: most of the budget goes to the last step; chance that a Gaussian
# row is shortened.
SHARES = (0.25, 0.75)
SHORTENED = 0.1


@dataclass(frozen=True)
class Known:
    """The covariance's largest eigenvalue, and the largest norm of a row."""

    upper: float
    norm: float


class CoinPress(Rival):
    """Rows scaled so that their covariance is below I, a noisy moment, and again in its metric."""

    name = "CoinPress"
    paper = "Biswas, Dong, Kamath, Ullman 2020"
    told = "centre, number of rows, largest eigenvalue, largest norm"

    def tell(self, rows: Array, size: Size, budget: Budget) -> Known:  # noqa: ARG002
        """Both bounds, exactly."""
        upper = float(leading_value(rows.T @ rows)) / size.rows
        return Known(upper, largest_norm(rows))

    def components(self, rows: Array, size: Size, told: Known, budget: Budget) -> Array:
        """Each step learns the covariance of ``A x`` and makes A smaller where it is small."""
        n, features = size.rows, size.features
        metric = np.eye(features) / math.sqrt(told.upper)  # A x has a covariance below I
        longest = told.norm / math.sqrt(told.upper)
        drift = math.sqrt(features / n)
        eta = drift + drift**2 / 2  # sampling error of a whitened covariance, as its authors set it
        moment = np.eye(features)
        for step, share in enumerate(SHARES):
            bound = min(gaussian_norm(features, n), longest)
            inside = clipped(rows @ metric, bound)
            moment = budget.symmetric(inside.T @ inside / n, bound**2 / n, share)
            values, vectors = np.linalg.eigh(moment)
            if step + 1 < len(SHARES):
                spread = bound**2 / (n * budget.mu * math.sqrt(share))
                upper = np.maximum(values, 0.0) + eta + spread * math.sqrt(2 * features)
                root = (vectors / np.sqrt(upper)) @ vectors.T
                metric = metric @ root
                longest /= math.sqrt(float(upper.min()))
        back = np.linalg.inv(metric)
        return leading(back.T @ moment @ back, size.components)


def gaussian_norm(features: int, rows: int) -> float:
    """What a standard Gaussian row's norm exceeds with chance ``SHORTENED`` over all rows."""
    log = math.log(rows / SHORTENED)
    return math.sqrt(features + 2 * math.sqrt(features * log) + 2 * log)


def leading_value(matrix: Array) -> float:
    """The largest eigenvalue."""
    return float(np.linalg.eigvalsh(matrix)[-1])
