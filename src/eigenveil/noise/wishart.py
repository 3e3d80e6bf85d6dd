"""The sampler of Wishart differences, in integers (docs/proofs/wishart-difference.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise import draws
from eigenveil.noise.entries import coordinates
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.sampler import NoiseSampler
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.mechanisms.wishart import SMOOTHING, Wishart
from eigenveil.privacy.statistics import Layout

_MECHANISM = Wishart()
_LIMB_BITS = 18


class WishartSampler(NoiseSampler):
    """Of :class:`eigenveil.privacy.mechanisms.wishart.Wishart`."""

    def entries(
        self, layout: Layout, shape: tuple[int, ...], *, source: RandomSource, **how: Any
    ) -> NDArray[np.int64]:
        assert layout == "symmetric"
        return coordinates(layout, wishart_difference(shape[0], source=source, **how))


def wishart_difference(
    size: int, *, scale: float, grid: int, source: RandomSource, noise_parts: int = 1
) -> NDArray[np.int64]:
    """``scale (G G' - H H')`` with G, H standard Gaussian, size x (size + 1) (privacy.md 9).

    In integers throughout; isometric Gaussian noise of a 64th of an entry's deviation hides what
    lattice and rounding could show. A part has its share of the columns, rounded up.
    """
    unit = _MECHANISM.finest_grid(scale)  # products are kept to multiples of 2**unit
    if grid < unit:
        raise ValueError(f"a grid of 2**{grid} is finer than the noise's own, 2**{unit}")
    columns = -(-(size + 1) // noise_parts)
    # in lattice steps: 2**50 or a little more; a product of two entries is 2**54 times finer than
    # the unit
    deviation = math.sqrt(math.ldexp(scale, 3 * _LIMB_BITS - unit))
    smoothing = scale * math.sqrt(2.0 * (size + 1) / noise_parts) / SMOOTHING
    noise = draws.isometric_symmetric(size, sigma=smoothing, grid=grid, source=source)
    total = _exact_gram((size, columns), deviation, source)
    total -= _exact_gram((size, columns), deviation, source)
    noise += _shifted_at_random(total, grid - unit, source)
    return noise


def _shifted_at_random(
    matrix: NDArray[np.int64], bits: int, source: RandomSource
) -> NDArray[np.int64]:
    """A symmetric matrix over ``2**bits``, rounded up or down so that the mean stays."""
    size = matrix.shape[0]
    words = source.words(size * (size + 1) // 2) & np.uint64((1 << bits) - 1)
    more = words.view(np.int64)
    matrix += draws.symmetric_from_triangle(more[:size], more[size:])
    matrix >>= np.int64(bits)
    return matrix


def _exact_gram(
    shape: tuple[int, int], deviation: float, source: RandomSource
) -> NDArray[np.int64]:
    """``G G'`` of an integer matrix, rounded down to multiples of 2**54, in that unit."""
    # limbs of 18 bits, whose products add up exactly in double precision; only that of the two
    # lowest, below a 2**18th of the unit, is left out
    g = lattice_noise(math.prod(shape), scale=deviation, power=2, source=source)
    half = 1 << (_LIMB_BITS - 1)
    low = ((g + half) & (2 * half - 1)) - half
    rest = (g - low) >> _LIMB_BITS
    middle = ((rest + half) & (2 * half - 1)) - half
    limbs = [(rest - middle) >> _LIMB_BITS, middle, low]
    a, b, c = (limb.astype(np.float64).reshape(shape) for limb in limbs)

    def both(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.int64]:
        product = (left @ right.T).astype(np.int64)
        return np.asarray(product + product.T)

    # carries from the lowest products upwards; flooring twice is flooring once
    total = both(b, c) >> _LIMB_BITS
    total += both(a, c) + (b @ b.T).astype(np.int64)
    total >>= _LIMB_BITS
    total += both(a, b)
    total += (a @ a.T).astype(np.int64) << _LIMB_BITS
    return total


SAMPLER = WishartSampler()
