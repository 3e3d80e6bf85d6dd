"""Noise over the blocks of a stream: one Gaussian release for all its prefixes (streams.md).

What is released is ``w = C g + z``, C Toeplitz with ``c(x) = 1 + sum_i weight_i x / (1 - decay_i
x)``, close to the best factor ``(1 - x)**(-1/2)`` but with a buffer per term (arXiv 2404.16706).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

# Weights and ``1 - decay`` are multiples of this, for exact arithmetic in 64-bit integers.
PARTS = 1 << 31
# More terms are not taken once the error is this close to that of the best Toeplitz factor.
_CLOSE = 1.005
_MOST_TERMS = 6


class StreamFactor(BaseModel):
    """The factor C for so many blocks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    blocks: int = Field(ge=1, le=1 << 30)  # T, the horizon
    weights: tuple[int, ...] = ()  # `weight_i` and `1 - decay_i`, in units of `1 / PARTS`
    losses: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _terms_fit(self) -> StreamFactor:
        if len(self.weights) != len(self.losses):
            raise ValueError("a stream's factor has as many weights as losses")
        if not all(0 < part < PARTS for part in (*self.weights, *self.losses)):
            raise ValueError("a stream's weights and losses are between 0 and 1")
        return self

    def norm(self) -> float:
        """Euclidean norm of C's first column, its longest: how far one row moves w."""
        weights, decays = _terms(self)
        products = np.multiply.outer(decays, decays)
        squares = np.multiply.outer(weights, weights) * _geometric(products, self.blocks - 1)
        return math.sqrt(1.0 + math.fsum(squares.ravel())) * (1.0 + 1e-12)

    def rounding(self) -> float:
        """Most that rounding moves the difference of two neighbours' w, per coordinate."""
        weights, decays = _terms(self)
        kept = _geometric(decays, self.blocks - 1)
        return float(np.sum(1.0 + weights * kept))

    def spread(self, block: int) -> float:
        """Deviation of a prefix sum's noise after so many blocks, over that of z."""
        return math.sqrt(_squared_row(*_terms(self), block))


def toeplitz_error(blocks: int) -> float:
    """Error of the last prefix sum under the best Toeplitz factor, over a single release's."""
    k = np.arange(1, blocks)
    squares = np.cumprod(((2 * k - 1) / (2 * k)) ** 2)
    return 1.0 + float(np.sum(squares))


@lru_cache(maxsize=32)
def best_factor(blocks: int) -> StreamFactor:
    """A factor for this horizon with nearly the smallest largest error of any prefix sum."""
    best = StreamFactor(blocks=blocks)
    goal = _CLOSE * toeplitz_error(min(blocks, 1 << 20))
    for terms in range(1, _MOST_TERMS + 1):
        if blocks < 2 or _error(best) <= goal:
            break
        found = _fitted(blocks, terms)
        if _error(found) < _error(best):
            best = found
    return best


def _fitted(blocks: int, terms: int) -> StreamFactor:
    """The best factor that a local search finds with so many terms."""
    # decays at equal distances in log(1 - decay), between one block and the horizon
    span = math.log(max(2.0, 2.0 * blocks))
    places = span * (np.arange(terms) + 0.5) / terms
    start = np.concatenate([np.log(np.full(terms, 0.5 / terms)) - 0.5 * places, -0.3 - places])
    found = scipy.optimize.minimize(
        lambda point: math.log(_error_of(*_free_terms(point), blocks)),
        start,
        method="Nelder-Mead" if terms == 1 else "L-BFGS-B",
    )
    weights, decays = _free_terms(found.x)
    return StreamFactor(
        blocks=blocks,
        weights=tuple(int(np.clip(round(w * PARTS), 1, PARTS - 1)) for w in weights),
        losses=tuple(int(np.clip(round((1 - d) * PARTS), 1, PARTS - 1)) for d in decays),
    )


def _free_terms(point: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    terms = point.size // 2
    bounded = np.minimum(point, -1e-6)
    return np.exp(bounded[:terms]), -np.expm1(bounded[terms:])


def _terms(factor: StreamFactor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    weights = np.array(factor.weights, dtype=float) / PARTS
    return weights, 1.0 - np.array(factor.losses, dtype=float) / PARTS


def _error(factor: StreamFactor) -> float:
    return _error_of(*_terms(factor), factor.blocks)


def _error_of(weights: NDArray[np.float64], decays: NDArray[np.float64], blocks: int) -> float:
    """Deviation of the last prefix sum's noise, over that of a single release."""
    products = np.multiply.outer(decays, decays)
    column = 1.0 + np.sum(np.multiply.outer(weights, weights) * _geometric(products, blocks - 1))
    return math.sqrt(float(column) * _squared_row(weights, decays, blocks))


def _squared_row(weights: NDArray[np.float64], decays: NDArray[np.float64], block: int) -> float:
    """Variance of a prefix sum's noise after so many blocks, over that of z.

    C's inverse is ``1 - sum_i v_i x / (1 - e_i x)`` with e the eigenvalues of
    ``diag(decay) - r r'``, ``r = sqrt(weight)``, and v the squares of r along its eigenvectors. The
    prefix sum takes of the noise k blocks ago the running sum of that, ``a + sum_i b_i e_i**k``.
    """
    if weights.size == 0:
        return float(block)
    root = np.sqrt(weights)
    values, vectors = np.linalg.eigh(np.diag(decays) - np.multiply.outer(root, root))
    parts = (vectors.T @ root) ** 2 / (1.0 - values)
    limit = 1.0 / (1.0 + float(np.sum(weights / (1.0 - decays))))
    products = np.multiply.outer(values, values)
    squares = np.multiply.outer(parts, parts) * _geometric(products, block)
    crossed = 2.0 * limit * parts * _geometric(values, block)
    return float(limit * limit * block + np.sum(crossed) + np.sum(squares))


def _geometric(ratio: NDArray[np.float64], terms: int) -> NDArray[np.float64]:
    """``1 + ratio + ... + ratio**(terms - 1)``, for ratios below 1; 0 of no terms."""
    if terms < 1:
        return np.zeros_like(ratio)
    near = ratio > 0.5
    positive = np.where(near, ratio, 0.5)
    raised = np.where(
        near, np.expm1(terms * np.log(positive)), np.where(near, 0.0, ratio) ** terms - 1
    )
    return np.asarray(-raised / (1.0 - ratio))
