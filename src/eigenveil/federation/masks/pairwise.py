"""Gaussian masks of pairs of sites."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eigenveil.federation.masks.base import Integers, PairMask, Pairs, Part
from eigenveil.noise.entries import tensor_copies
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import KeyedSource
from eigenveil.privacy.statistics import tensor_rows

# A Gaussian mask is drawn on a lattice with at most this many steps a deviation, some thousand
# times finer than the noise that it hides.
_MASK_STEPS = 50


class Pairwise(PairMask):
    """Gaussian integers of each part's deviation."""

    name = "pairwise"
    gaussian = True

    def add(self, pairs: Pairs, parts: Sequence[Part], total: Integers) -> None:
        """One pair after the other."""
        for key, adds in pairs:
            drawn = gaussian(KeyedSource(key), parts)
            if adds:
                total += drawn
            else:
                total -= drawn


def gaussian(source: KeyedSource, parts: Sequence[Part]) -> Integers:
    """Gaussian integers of each part's deviation, as an array."""
    drawn = [_gaussian_part(source, part) for part in parts]
    return np.concatenate(drawn).view(np.uint64)


def _gaussian_part(source: KeyedSource, part: Part) -> NDArray[np.int64]:
    match part.layout:
        case "symmetric":
            drawn = _lattice(source, part.size, part.mask_deviation / math.sqrt(2.0))
            row = np.arange((math.isqrt(8 * part.size + 1) - 1) // 2)
            drawn[row * (row + 3) // 2] = _lattice(source, row.size, part.mask_deviation)
            return drawn
        case "tensor":
            copies = tensor_copies(tensor_rows(part.size))
            drawn = np.empty(part.size, dtype=np.int64)
            for count in (1, 3, 6):
                here = np.flatnonzero(copies == count)
                own = part.mask_deviation / math.sqrt(count)
                drawn[here] = _lattice(source, here.size, own)
            return drawn
        case _:
            return _lattice(source, part.size, part.mask_deviation)


def _lattice(source: KeyedSource, size: int, deviation: float) -> NDArray[np.int64]:
    coarser = max(0, math.ceil(math.log2(deviation)) - _MASK_STEPS)
    scale = math.ldexp(deviation, -coarser)
    return lattice_noise(size, scale=scale, power=2, source=source) << coarser
