"""The sampler of Gaussian noise: a part of it is Gaussian noise of a smaller scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise import draws
from eigenveil.noise.sampler import NoiseSampler
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.statistics import Layout


class GaussianSampler(NoiseSampler):
    """Of :class:`eigenveil.privacy.mechanisms.gaussian.Gaussian`."""

    def entries(
        self, layout: Layout, shape: tuple[int, ...], *, source: RandomSource, **how: Any
    ) -> NDArray[np.int64]:
        """Independent in isometric coordinates, of a deviation smaller by the root of shares."""
        sigma = how["scale"] / math.sqrt(how["noise_parts"])
        return draws.isometric_entries(layout, shape, sigma=sigma, grid=how["grid"], source=source)


SAMPLER = GaussianSampler()
