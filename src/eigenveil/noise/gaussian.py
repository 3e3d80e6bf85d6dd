"""The sampler of Gaussian noise: a part of it is Gaussian noise of a smaller scale."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise import draws
from eigenveil.noise.sampler import NoiseSampler
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.releases import Noise
from eigenveil.privacy.statistics import Layout


class GaussianSampler(NoiseSampler):
    """Of :class:`eigenveil.privacy.mechanisms.gaussian.Gaussian`."""

    def noise(
        self, layout: Layout, shape: tuple[int, ...], noise: Noise, source: RandomSource
    ) -> NDArray[np.int64]:
        """Independent in isometric coordinates, of a deviation smaller by the root of shares."""
        assert noise.grid is not None
        sigma = noise.scale / math.sqrt(noise.noise_parts)
        return draws.isometric_entries(layout, shape, sigma=sigma, grid=noise.grid, source=source)


SAMPLER = GaussianSampler()
