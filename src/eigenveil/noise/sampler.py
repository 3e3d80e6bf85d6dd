"""The samplers of the mechanisms: one class a mechanism, in the module of its name beside this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.source import RandomSource
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.releases import Noise
from eigenveil.privacy.statistics import Layout


class NoiseSampler(ABC):
    """Draws the noise of a mechanism that adds it to the sum."""

    def noise(
        self, layout: Layout, shape: tuple[int, ...], noise: Noise, source: RandomSource
    ) -> NDArray[np.int64]:
        """One part of the recorded noise of the independent entries, in units of its grid."""
        assert noise.grid is not None
        how = {"scale": noise.scale, "grid": noise.grid, "noise_parts": noise.noise_parts}
        return self.entries(layout, shape, source=source, **how)

    @abstractmethod
    def entries(
        self, layout: Layout, shape: tuple[int, ...], *, source: RandomSource, **how: Any
    ) -> NDArray[np.int64]:
        """The same; ``how`` has scale, grid and number of parts."""


class ChoiceSampler(ABC):
    """Draws what a mechanism without added noise releases."""

    @abstractmethod
    def chosen(
        self, exponent: NDArray[np.float64], count: int, source: RandomSource
    ) -> NDArray[np.float64]:
        """Orthonormal rows, shape (count, D), one after the other; ``exponent`` is (D, D)."""


@cache
def sampler_of(kind: str) -> NoiseSampler | ChoiceSampler:
    """The sampler of a mechanism: ``SAMPLER`` in the module of its name."""
    found: NoiseSampler | ChoiceSampler = import_module(f"eigenveil.noise.{kind}").SAMPLER
    assert isinstance(found, NoiseSampler if MECHANISMS[kind].added else ChoiceSampler)
    return found
