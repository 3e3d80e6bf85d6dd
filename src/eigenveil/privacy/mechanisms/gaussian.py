"""Gaussian noise: independent in isometric coordinates (docs/proofs/gaussian.md)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from eigenveil.privacy.mechanisms.base import Mechanism, Norm, SamplingError, lattice_error

if TYPE_CHECKING:
    from eigenveil.privacy.releases import Noise, ReleaseRecord


class Gaussian(Mechanism):
    """Deviation ``scale`` in isometric coordinates; the loss is a Gaussian-DP mu."""

    name = "gaussian"
    pure = False
    norm: ClassVar[Norm] = "l2"
    proof = "gaussian.md"
    entrywise = True
    of_prefixes = True
    test = "the output along the direction in which the neighbours differ (likelihood ratio)"

    def loss(self, record: ReleaseRecord) -> float:
        """Mu, of the view that the adversary has (docs/proofs/views.md)."""
        return record.exposure * record.sensitivity() / record.noise.scale

    def sampling_error(self, noise: Noise, *, copies: int, blocks: int) -> SamplingError:
        """That of the lattice, once for each part and each mask whose sum a coordinate is."""
        assert noise.grid is not None
        return lattice_error(
            noise.size * blocks,
            steps_a_scale=math.ldexp(noise.scale, -noise.grid),
            draws=noise.noise_parts + noise.masks,
            copies=copies,
        )

    def growth(self, rows: int, before: int, columns: int | None) -> float:
        if columns is None:
            return math.sqrt(rows / before)
        return (math.sqrt(rows) + math.sqrt(columns)) / (math.sqrt(before) + math.sqrt(columns))
