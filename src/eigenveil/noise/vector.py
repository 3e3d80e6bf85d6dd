"""The sampler of vector noise: Gaussian noise of a random deviation (docs/proofs/vector.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise import draws
from eigenveil.noise.entries import coordinates
from eigenveil.noise.lattice import gamma
from eigenveil.noise.sampler import NoiseSampler
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.mechanisms.base import SHARE_SMOOTHING
from eigenveil.privacy.statistics import Layout, tensor_size

# Grid steps in the standard deviation, at the least: 1024 in every entry's own, smaller by sqrt(2)
# in matrices and by sqrt(6) in tensors.
_COARSEST = 2048.0
_COARSEST_TENSOR = 4096.0


class VectorSampler(NoiseSampler):
    """Of :class:`eigenveil.privacy.mechanisms.vector.Vector`."""

    def entries(
        self, layout: Layout, shape: tuple[int, ...], *, source: RandomSource, **how: Any
    ) -> NDArray[np.int64]:
        return coordinates(layout, vector(layout, shape, source=source, **how))


def vector(
    layout: Layout,
    shape: tuple[int, ...],
    *,
    scale: float,
    grid: int,
    source: RandomSource,
    noise_parts: int = 1,
) -> NDArray[np.int64]:
    """An array of density exp(-||z||_2 / scale) over its isometric coordinates z.

    A Gaussian vector whose deviation is itself random: so its coordinates come from the lattice
    sampler, and no common factor is left in them to be found.
    """
    size, coarsest = _size(layout, shape)
    sigma = _mixed_sigma(size, scale, grid, noise_parts, source, coarsest=coarsest)
    return draws.isometric(layout, shape, sigma=sigma, grid=grid, source=source)


def _size(layout: Layout, shape: tuple[int, ...]) -> tuple[int, float]:
    """The independent coordinates, and how many grid steps a deviation must have."""
    match layout:
        case "symmetric":
            return shape[0] * (shape[0] + 1) // 2, _COARSEST
        case "tensor":
            return tensor_size(shape[0]), _COARSEST_TENSOR
        case _:
            return math.prod(shape), _COARSEST


def _mixed_sigma(
    size: int, scale: float, grid: int, noise_parts: int, source: RandomSource, *, coarsest: float
) -> float:
    """Standard deviation of a part of a vector of density exp(-||z||_2 / scale), drawn."""
    # drawn again in the rare case (2**-30 for one coordinate, less for more) that the lattice is
    # too coarse for it, which keeps the guarantee exactly (docs/proofs/vector.md); parts are
    # smoothed
    if noise_parts > 1:
        mixed = float(gamma(1, shape=(size + 1) / (2.0 * noise_parts), source=source)[0])
        return scale * math.sqrt(2.0 * mixed + (size + 1) / (SHARE_SMOOTHING * noise_parts))
    for _ in range(100):
        z = draws.standard_normal(size + 1, source)
        sigma = scale * math.sqrt(float(z @ z))
        if math.ldexp(sigma, -grid) >= coarsest:
            return sigma
    raise RuntimeError("the randomness source gives only small numbers: it is broken")


SAMPLER = VectorSampler()
