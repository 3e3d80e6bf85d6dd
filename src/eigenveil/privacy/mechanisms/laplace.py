"""Laplace noise: of density ``exp(-|z| / scale)`` a coordinate (docs/proofs/laplace.md)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eigenveil.privacy.mechanisms.base import (
    FEWEST_STEPS,
    SHARE_SMOOTHING,
    STEPS_A_SPREAD,
    UNPROVED,
    FloatArray,
    Mechanism,
    Norm,
    SamplingError,
    hidden_error,
    lattice_error,
)

if TYPE_CHECKING:
    from eigenveil.privacy.releases import Noise


class Laplace(Mechanism):
    """Pure epsilon, for sums whose sensitivity is in the L1 norm."""

    name = "laplace"
    norm: ClassVar[Norm] = "l1"
    proof = "laplace.md"
    entrywise = True
    test = "difference of the output's L1 distances from the two sums (likelihood ratio)"

    def sampling_error(self, noise: Noise, *, copies: int, blocks: int) -> SamplingError:
        """That of the lattice; of parts, see :func:`_parts_error`."""
        assert noise.grid is not None
        steps = math.ldexp(noise.scale, -noise.grid)
        if noise.noise_parts > 1:
            return _parts_error(noise.size, noise.noise_parts, steps)
        return lattice_error(
            noise.size * blocks, steps_a_scale=steps, draws=1 + noise.masks, copies=copies
        )

    def deviation(self, noise: Noise, rows: int) -> float:
        return noise.scale * math.sqrt(2.0)

    def sigma(self, noise: Noise, rows: int) -> float:
        return noise.scale

    def growth(self, rows: int, before: int, columns: int | None) -> float:
        return math.sqrt(rows / before)

    def distinguished(self, values: FloatArray, one: FloatArray, two: FloatArray) -> FloatArray:
        """The likelihood ratio's logarithm, times the scale."""
        return np.asarray(np.abs(values - two).sum(axis=1) - np.abs(values - one).sum(axis=1))


def _parts_error(size: int, noise_parts: int, steps: float) -> SamplingError:
    """Of Gamma variables of shape ``1 / noise_parts``, each as 37 coordinates (shares.md)."""
    smaller = math.sqrt(2.0 / SHARE_SMOOTHING)  # the smoothing noise's deviation over the scale
    # half as fine as noise.grid makes it will do
    if steps < STEPS_A_SPREAD / 2 or steps * smaller < FEWEST_STEPS * math.sqrt(noise_parts):
        return UNPROVED
    relative = 2.0**-43 + noise_parts * 2.0**-56
    total = 2.0 * size + math.sqrt(364.0 * size) + 91.0
    hidden = hidden_error(
        size,
        off=relative * total / smaller,
        smoothing=STEPS_A_SPREAD / 2 * smaller,
        noise_parts=noise_parts,
    )
    drawn = lattice_error(76 * noise_parts * size, steps_a_scale=math.inf)
    return SamplingError(hidden + drawn.log_ratio, drawn.distance)
