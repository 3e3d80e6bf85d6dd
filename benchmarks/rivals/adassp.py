"""AdaSSP: Wang 2018, "Revisiting differentially private linear regression", algorithm 2."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.rivals.budget import Array, Budget

NAME, PAPER = "AdaSSP", "Wang 2018"
# The paper's probability that the ridge is chosen for.
_RHO = 0.05


def coefficients(rows: Array, targets: Array, bounds: tuple[float, float], budget: Budget) -> Array:
    """Of centred rows shortened to the first bound, and targets clipped to the second.

    A third of mu squared each for the smallest eigenvalue, X'X and X'y; the ridge is the paper's,
    with the noise's deviation in place of its own.
    """
    most, largest = bounds
    lengths = np.maximum(np.linalg.norm(rows, axis=1), np.finfo(float).tiny)
    x = rows * np.minimum(1.0, most / lengths)[:, None]
    y = np.clip(targets, -largest, largest)
    features, third = rows.shape[1], 1.0 / 3.0
    deviation = most**2 / (budget.mu * math.sqrt(third))
    smallest = float(np.linalg.eigvalsh(x.T @ x)[0])
    seen = float(budget.gaussian(np.array(smallest), most**2, third))
    least = max(0.0, seen - deviation * math.sqrt(2.0 * math.log(6.0 / budget.delta)))
    square = budget.symmetric(x.T @ x, most**2, third)
    across = budget.gaussian(x.T @ y, most * largest, third)
    wanted = deviation * math.sqrt(features * math.log(2.0 * features**2 / _RHO))
    ridge = max(0.0, wanted - least)
    return np.asarray(np.linalg.lstsq(square + ridge * np.eye(features), across, rcond=None)[0])
