"""Gamma variables of any shape: what shares of pure noise are mixed with.

Marsaglia and Tsang (2000) for shapes of 16 and more; smaller ones are such a variable times powers
of uniform ones. All randomness comes from the lattice sampler, and docs/proofs/shares.md bounds how
far roundings move a variable and its law.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import RandomSource

# Lattice steps in a unit of the normal and exponential deviates.
_STEPS = 2.0**55
# From this shape on, a candidate's cube root is below a tenth with chance under 2**-130.
_LEAST_SHAPE = 16.0
_LOWEST = 0.1


def exponential(size: int, source: RandomSource) -> NDArray[np.float64]:
    """Standard exponential deviates, moved to the middle of intervals of ``2**-55``."""
    z = lattice_noise(size, scale=_STEPS, power=1, source=source)
    # -1, -2, ... count as 0, 1, ...: both sides together are exactly geometric
    z ^= z >> np.int64(63)
    return np.asarray((z + 0.5) / _STEPS)


def gamma(size: int, *, shape: float, source: RandomSource) -> NDArray[np.float64]:
    """``size`` independent Gamma(shape) variables of scale 1."""
    # Gamma(a) is Gamma(a + 1) times the a-th root of a uniform variable, as often as it takes
    extra = max(0, math.ceil(_LEAST_SHAPE - shape))
    drawn = _large(size, shape + extra, source)
    if extra:
        roots = shape + np.arange(extra, dtype=np.float64)
        log_u = exponential(extra * size, source).reshape(extra, size)
        drawn *= np.exp(-np.sum(log_u / roots[:, None], axis=0))
    return drawn


def _large(size: int, shape: float, source: RandomSource) -> NDArray[np.float64]:
    d = shape - 1.0 / 3.0
    out = np.empty(size, dtype=np.float64)
    filled = 0
    # more than 0.98 are kept, so that one pass is almost always enough
    for _ in range(64):
        need = size - filled
        drawn = _candidates(need + need // 32 + 8, d, source)
        take = min(drawn.size, need)
        out[filled : filled + take] = drawn[:take]
        filled += take
        if filled == size:
            return out
    raise RuntimeError("the randomness source rejects almost every candidate: it is broken")


def _candidates(count: int, d: float, source: RandomSource) -> NDArray[np.float64]:
    """Those of ``count`` candidates for Gamma(d + 1/3) that are kept."""
    x = lattice_noise(count, scale=_STEPS, power=2, source=source) / _STEPS
    root, log_chance = _proposal(x, d)
    keep = (root > _LOWEST) & (exponential(count, source) > -log_chance)
    root = root[keep]
    return np.asarray(d * (root * root * root))


def _proposal(x: NDArray[np.float64], d: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cube root of the candidate over ``d`` (at least a tenth), and the log-chance to keep it."""
    root = np.maximum(1.0 + x / (3.0 * math.sqrt(d)), _LOWEST)
    return root, 0.5 * (x * x) + d * (1.0 - root * root * root + 3.0 * np.log(root))
