"""The largest eigenvalue of a matrix of independent noise, where entries differ in variance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Relative width of the bracket that is left, and steps in which a level above the edge must show.
_CLOSE, _STEPS, _STILL = 5e-3, 60, 1e-3


def edge_of_variances(variances: NDArray[np.float64]) -> float:
    """What the largest eigenvalue of a large symmetric matrix of such noise tends to, from above.

    Parameters
    ----------
    variances : array of shape (D, D), symmetric
        Of the entries.

    Returns
    -------
    float
        The least ``max_i (1/u_i + sum_j v_ij u_j)`` over positive u (Lehner 1999; Bandeira,
        Boedihardjo & van Handel 2023: within a factor that tends to 1), rounded up by at most one
        part in a hundred. ``2 sqrt(D v)`` where all are v; never more than twice the root of the
        largest row.
    """
    sums = variances.sum(axis=1)
    high = 2.0 * math.sqrt(float(sums.max(initial=0.0)))
    if high == 0.0 or float(sums.min()) > (1.0 - _CLOSE) * float(sums.max()):
        return high
    low, start = 0.5 * high, np.zeros(sums.size)
    while high - low > _CLOSE * high:
        middle = 0.5 * (low + high)
        found = _solution(variances, middle, start)
        if found is None:
            low = middle
        else:
            high, start = middle, found  # that of a lower level is larger
    return high


def _solution(
    variances: NDArray[np.float64], level: float, start: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """The least u with ``1/u = level - V u``; ``None`` where none shows in a few steps."""
    u = start
    for _ in range(_STEPS):
        left = level - variances @ u
        if not float(left.min()) > 0:
            return None
        u, before = 1.0 / left, u
        if float(np.max(u - before)) <= _STILL * float(np.max(u)):
            return u
    return None
