"""Vector noise: of density ``exp(-|z|_2 / scale)`` over all coordinates (docs/proofs/vector.md)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eigenveil.privacy.mechanisms.base import (
    FEWEST_STEPS,
    SHARE_SMOOTHING,
    UNPROVED,
    FloatArray,
    Mechanism,
    Norm,
    SamplingError,
    lattice_error,
)

if TYPE_CHECKING:
    from eigenveil.privacy.releases import Noise


class Vector(Mechanism):
    """Pure epsilon, for sums whose sensitivity is in the L2 norm; it grows with the size."""

    name = "vector"
    norm: ClassVar[Norm] = "l2"
    proof = "vector.md"
    audited = 0.5
    test = "difference of the output's distances from the two sums (likelihood ratio)"

    def sampling_error(self, noise: Noise, *, copies: int, blocks: int) -> SamplingError:
        """That of the lattice, where the mixed-in normals count too; it is exact otherwise."""
        assert noise.grid is not None
        if noise.noise_parts > 1:
            steps = math.ldexp(noise.scale, -noise.grid)
            return _parts_error(noise.size, noise.noise_parts, steps, copies)
        return lattice_error(2 * noise.size + 1, steps_a_scale=math.inf)

    def spread(self, scale: float, size: int, rows: int) -> float:
        return scale * math.sqrt(size + 1)

    def deviation(self, noise: Noise, rows: int) -> float:
        return noise.scale * math.sqrt(noise.size + 1)

    def sigma(self, noise: Noise, rows: int) -> float:
        """That of a Gaussian matrix of the same length."""
        return noise.scale * math.sqrt(noise.size)

    def squared_length(self, expected: float, size: int, tail: float) -> float:
        """Of a length with a Gamma distribution of shape ``size``."""
        return expected * (1.0 + tail / math.sqrt(size)) ** 2

    def growth(self, rows: int, before: int, columns: int | None) -> float:
        more = rows / before
        return float(more**1.5) if columns is None else more

    def distinguished(self, values: FloatArray, one: FloatArray, two: FloatArray) -> FloatArray:
        """The likelihood ratio's logarithm, times the scale; the array's own norm is isometric."""
        return np.asarray(
            np.linalg.norm(values - two, axis=1) - np.linalg.norm(values - one, axis=1)
        )


def _parts_error(size: int, noise_parts: int, steps: float, copies: int) -> SamplingError:
    """Of noise whose variance is a sum of Gamma variables (docs/proofs/shares.md, claim 5)."""
    smoothing = steps * math.sqrt((size + 1) / SHARE_SMOOTHING)
    if smoothing < FEWEST_STEPS * math.sqrt(copies * noise_parts):
        return UNPROVED
    return lattice_error((noise_parts + 4) * (size + 64), steps_a_scale=math.inf)
