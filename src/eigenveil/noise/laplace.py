"""The sampler of Laplace noise (docs/proofs/laplace.md, shares.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.draws import open_uniform
from eigenveil.noise.lattice import gamma, lattice_noise
from eigenveil.noise.sampler import NoiseSampler
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.mechanisms.base import SHARE_SMOOTHING
from eigenveil.privacy.statistics import Layout


class LaplaceSampler(NoiseSampler):
    """Of :class:`eigenveil.privacy.mechanisms.laplace.Laplace`."""

    def entries(
        self, layout: Layout, shape: tuple[int, ...], *, source: RandomSource, **how: Any
    ) -> NDArray[np.int64]:
        """Independent entries; of arrays without symmetry, since the L1 norm is of entries."""
        assert layout in ("vector", "matrix")
        return laplace(shape, source=source, **how).ravel()


def laplace(
    shape: tuple[int, ...], *, scale: float, grid: int, source: RandomSource, noise_parts: int = 1
) -> NDArray[np.int64]:
    """Independent Laplace entries, density exp(-|z|/scale)."""
    # a part: the difference of two Gamma variables, and noise of a 32nd of the scale in all
    # together, which hides the arithmetic
    b = math.ldexp(scale, -grid)
    size = math.prod(shape)
    if noise_parts == 1:
        return lattice_noise(size, scale=b, power=1, source=source).reshape(shape)
    up, down = gamma(2 * size, shape=1.0 / noise_parts, source=source).reshape(2, size)
    total = _rounded_at_random(b * (up - down), source)
    smoothing = b * math.sqrt(2.0 / (SHARE_SMOOTHING * noise_parts))
    total += lattice_noise(size, scale=smoothing, power=2, source=source)
    return total.reshape(shape)


def _rounded_at_random(values: NDArray[np.float64], source: RandomSource) -> NDArray[np.int64]:
    """Each value rounded up or down, with the chances that leave its mean as it is."""
    below = np.floor(values)
    up = open_uniform(values.size, source) < values - below
    return np.asarray(below.astype(np.int64) + up)


SAMPLER = LaplaceSampler()
