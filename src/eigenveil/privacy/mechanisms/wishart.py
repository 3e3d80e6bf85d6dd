"""The difference of two Wishart matrices (docs/proofs/wishart-difference.md; privacy.md 9)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eigenveil.privacy.mechanisms.base import (
    FEWEST_STEPS,
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
    from eigenveil.privacy.releases import Noise, ReleaseRecord

# An entry's deviation over that of the Gaussian noise added to hide the lattice.
SMOOTHING = 64.0
# Upper edge of the free difference of two Marchenko-Pastur laws of ratio 1.
_EDGE = math.sqrt((11 + 5 * math.sqrt(5)) / 2)
# Sums that differ by a semidefinite matrix may be off it by rounding.
_SEMIDEFINITE = -1e-6


class Wishart(Mechanism):
    """``scale (G G' - H H')``: pure epsilon, for symmetric sums bounded in the nuclear norm."""

    name = "wishart"
    norm: ClassVar[Norm] = "nuclear"
    proof = "wishart-difference.md"
    audited = 0.5
    test = (
        "smallest eigenvalue of the output less the larger sum: where it is positive the ratio of "
        "likelihoods is exp(epsilon)"
    )

    def loss(self, record: ReleaseRecord) -> float:
        """Of a density in the trace of both matrices over twice the scale."""
        return record.sensitivity() / (2.0 * record.noise.scale)

    def sampling_error(self, noise: Noise, *, copies: int, blocks: int) -> SamplingError:
        """Of the difference drawn on a lattice and smoothed (docs/proofs/wishart-difference.md)."""
        # in units of the product's rounding, an entry has deviation 2**46 sqrt(2 (D + 1)) or more
        # and is off by at most `off`; the smoothing noise has a 64th of it, off the diagonal 2**0.5
        # less
        assert noise.grid is not None
        size, noise_parts = noise.size, noise.noise_parts
        steps = math.ldexp(noise.scale, -noise.grid)
        rows = (math.isqrt(8 * size + 1) - 1) // 2
        columns = noise_parts * -(-(rows + 1) // noise_parts)
        spread = steps * math.sqrt(2.0 * (rows + 1))
        smaller = 1.0 / (SMOOTHING * math.sqrt(2.0))
        if spread < STEPS_A_SPREAD or spread * smaller < FEWEST_STEPS * math.sqrt(noise_parts):
            return UNPROVED
        longest = math.sqrt(columns) + 14.0  # rows of G, in deviations, but for a chance of 2**-130
        # rounding half a step in each of two factors, twice (G and H); every party floors twice
        off = (
            2.0 * 2.0 * 0.5 * 2.0**0.5 * longest * math.sqrt(columns) * 2.0 ** (50 - 54)
            + 2 * noise_parts
        )
        smoothing = 2.0**46 * math.sqrt(2.0 * (rows + 1)) * smaller
        hidden = hidden_error(
            size,
            off=math.sqrt(size) * off / smoothing,
            smoothing=STEPS_A_SPREAD * smaller,
            noise_parts=noise_parts,
        )
        drawn = lattice_error(2 * rows * columns + noise_parts * size, steps_a_scale=2.0**50)
        return SamplingError(hidden + drawn.log_ratio, drawn.distance)

    def spread(self, scale: float, size: int, rows: int) -> float:
        return scale * math.sqrt(2 * rows)

    def finest_grid(self, scale: float) -> int:
        """Exponent of the unit in which products of the lattice matrices are kept."""
        return math.floor(math.log2(scale)) - 46

    def deviation(self, noise: Noise, rows: int) -> float:
        return noise.scale * math.sqrt(4.0 * (rows + 1))

    def edge(self, noise: Noise, rows: int, columns: int) -> float:
        """Of the free difference: 3.33 D times the scale."""
        return _EDGE * rows * noise.scale

    def growth(self, rows: int, before: int, columns: int | None) -> float:
        return rows / before

    def parts_drawn(self, parties: int, noise_parts: int, rows: int) -> float:
        """Each party draws whole columns, as many as it takes."""
        needed = rows + 1
        return parties * math.ceil(needed / noise_parts) / needed

    def part(self, scale: float, rows: int, noise_parts: int) -> str:
        columns = rows + 1
        each = math.ceil(columns / noise_parts)
        return f"{each} of {columns} columns of either half of the Wishart difference"

    def test_of(self, one: FloatArray, two: FloatArray) -> str:
        """Where neither sum is larger, that of a direction."""
        if _larger(one, two) is None:
            return "the output along the direction in which the neighbours differ"
        return self.test

    def distinguished(self, values: FloatArray, one: FloatArray, two: FloatArray) -> FloatArray:
        """Where one sum exceeds the other by a semidefinite matrix, whether the output does."""
        larger = _larger(one, two)
        if larger is None:
            return super().distinguished(values, one, two)
        side = math.isqrt(one.size)
        seen = (values - larger).reshape(-1, side, side)
        return np.asarray(np.linalg.eigvalsh(seen)[:, 0], dtype=np.float64)


def _larger(one: FloatArray, two: FloatArray) -> FloatArray | None:
    """The sum that exceeds the other by a positive semi-definite matrix, if one does."""
    side = math.isqrt(one.size)
    spectrum = np.linalg.eigvalsh((one - two).reshape(side, side))
    if spectrum[0] > _SEMIDEFINITE:
        return one
    return two if spectrum[-1] < -_SEMIDEFINITE else None
