"""How little of the captured energy a private method can lose: a local lower bound.

The derivation, and what it does not prove, is in docs/pca.md, "How far from the possible".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Squared angles in radians, of a pair of directions and of one direction against all others: above
# these the expansion to first order is not good, and the pairs are left out of the bound.
SMALL_PAIR = 0.1
SMALL_TOTAL = 0.25


def least_loss(eigenvalues: NDArray[np.float64], components: int, *, rows: int, mu: float) -> float:
    """Least expected loss, a fraction of the best K directions' energy.

    For mu-Gaussian differential privacy (add-remove) and Gaussian rows of a covariance with these
    eigenvalues, among methods that are unbiased near it, to first order in the squared angles:

        loss >= (sum_kj w_kj)^2 / (n^2 (exp(mu^2) - 1) sum_k l_k),
        w_kj = sqrt(l_k l_j / (l_k - l_j)),   k <= K < j,

    over the pairs whose squared angles are small where the bound is reached; any set of pairs gives
    a lower bound, so those that are left out make it lower.

    Parameters
    ----------
    eigenvalues : array of shape (D,)
        In any order and scale; negative ones count as 0.

    Returns
    -------
    float
        NaN where no pair's angle is small: nothing is resolved, and the bound says nothing.
    """
    values = np.sort(np.maximum(eigenvalues, 0.0))[::-1]
    top, rest = values[:components, None], values[None, components:]
    gap = top - rest
    kept = gap > 1e-12 * values[0]
    gap = np.where(kept, gap, 1.0)
    weight = np.sqrt(top * rest / gap)
    information = rows * np.sqrt(np.expm1(mu**2))
    # squared angles where the bound is reached: sum of weights / (information^2 sqrt(c I)), with
    # the loss c = gap of a squared angle and the Fisher information I = gap^2 / (l_k l_j)
    flat = np.where(kept, np.sqrt(np.maximum(top * rest, 0.0)) / gap**1.5, 0.0) / information**2
    while kept.any():
        angles = np.where(kept, float(np.sum(weight[kept])) * flat, 0.0)
        if np.any(angles > SMALL_PAIR):
            kept &= angles <= SMALL_PAIR
            continue
        tops, rests = angles.sum(axis=1), angles.sum(axis=0)
        if max(tops.max(), rests.max()) <= SMALL_TOTAL:
            break
        if tops.max() >= rests.max():
            kept[int(np.argmax(tops))] = False
        else:
            kept[:, int(np.argmax(rests))] = False
    if not kept.any():
        return float("nan")
    return float((np.sum(weight[kept]) / information) ** 2 / np.sum(top))
