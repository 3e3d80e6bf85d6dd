"""What is recorded of a release: exactly the parameters that its privacy loss follows from.

A record never holds a value computed from rows. ``certify`` recomputes every guarantee from
records alone, so a record's meaning never changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from eigenveil.privacy import sensitivity
from eigenveil.privacy.guarantee import Adjacency

NoiseKind = Literal["gaussian", "laplace", "vector", "wishart", "bingham"]
Statistic = Literal[
    "norm-histogram", "row-sum", "second-moment", "sketch", "component-energy", "bingham-vectors"
]

PROOFS: dict[NoiseKind, str] = {
    "gaussian": "gaussian.md",
    "laplace": "laplace.md",
    "vector": "vector.md",
    "wishart": "wishart-difference.md",
    "bingham": "bingham.md",
}


class Noise(BaseModel):
    """The noise of one release.

    ``scale`` is, by kind: the standard deviation in isometric coordinates (gaussian); ``b`` of the
    density exp(-|z|/b) per coordinate (laplace) or of the whole vector (vector); the factor of
    G G' - H H' (wishart); the inverse of the exponent (bingham). Released values are integer
    multiples of ``2**grid``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: NoiseKind
    scale: float = Field(gt=0, allow_inf_nan=False)
    size: int = Field(gt=0, description="number of independent coordinates")
    grid: int | None = Field(default=None, description="exponent of the release grid")


class ReleaseRecord(BaseModel):
    """One noisy release of one statistic of rows with norm at most 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    statistic: Statistic
    adjacency: Adjacency
    noise: Noise
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    gain: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    count_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    draws: int = Field(default=1, gt=0, description="sequential draws of the bingham mechanism")

    @model_validator(mode="after")
    def _noise_fits_statistic(self) -> ReleaseRecord:
        allowed = _NOISE_OF_STATISTIC[self.statistic]
        if self.noise.kind not in allowed:
            raise ValueError(
                f"{self.statistic} cannot be released with {self.noise.kind} noise; "
                f"proved for: {', '.join(allowed)}"
            )
        return self

    def sensitivity(self) -> float:
        """How far the statistic moves between neighbours, in the norm its noise is made for."""
        return _SENSITIVITY[self.noise.kind](self)

    def mu(self) -> float:
        """The Gaussian-DP loss, for Gaussian noise."""
        assert self.noise.kind == "gaussian"
        return self.sensitivity() / self.noise.scale

    def epsilon(self) -> float:
        """The pure loss, for every other noise."""
        assert self.noise.kind != "gaussian"
        if self.noise.kind == "wishart":
            return self.sensitivity() / (2.0 * self.noise.scale)
        return self.draws * self.sensitivity() / self.noise.scale

    def discretisation_delta(self) -> float:
        """Bound on the distance between the noise drawn and the noise proved, added to delta.

        Per coordinate ``2**-49`` for the sampler's arithmetic and ``(grid/scale)**2 / 16`` between
        the Gaussian on the grid and the rounded Gaussian (docs/proofs/release-grid.md).
        """
        if self.noise.kind != "gaussian":
            return 0.0
        if self.noise.grid is None:
            return math.inf
        return self.noise.size * gaussian_grid_distance(self.noise.scale, self.noise.grid)


def gaussian_grid_distance(scale: float, grid: int) -> float:
    """Total-variation distance, per coordinate, of our lattice sampler from a rounded Gaussian."""
    ratio = math.ldexp(1.0, grid) / scale
    return 2.0**-49 + ratio * ratio / 16 if ratio <= 0.25 else math.inf


_NOISE_OF_STATISTIC: dict[Statistic, tuple[NoiseKind, ...]] = {
    "norm-histogram": ("gaussian", "laplace"),
    "row-sum": ("gaussian", "vector"),
    "second-moment": ("gaussian", "wishart", "vector"),
    "sketch": ("gaussian", "vector"),
    "component-energy": ("gaussian", "laplace"),
    "bingham-vectors": ("bingham",),
}


def _l2(record: ReleaseRecord) -> float:
    a = record.adjacency
    match record.statistic:
        case "norm-histogram":
            return sensitivity.norm_histogram(a)
        case "row-sum":
            return sensitivity.row_sum(a, count_weight=record.count_weight)
        case "second-moment":
            return sensitivity.second_moment(a)
        case "sketch":
            return sensitivity.sketch(a, clip=record.clip)
        case "component-energy":
            return sensitivity.component_energy(
                a, gain=record.gain, count_weight=record.count_weight
            )
        case "bingham-vectors":
            return sensitivity.bingham_score(a)


def _l1(record: ReleaseRecord) -> float:
    if record.statistic == "norm-histogram":
        return sensitivity.norm_histogram_l1(record.adjacency)
    return sensitivity.component_energy_l1(
        record.adjacency, gain=record.gain, count_weight=record.count_weight
    )


_SENSITIVITY: dict[NoiseKind, Callable[[ReleaseRecord], float]] = {
    "gaussian": _l2,
    "laplace": _l1,
    "vector": _l2,
    "wishart": lambda record: sensitivity.wishart_trace(record.adjacency),
    "bingham": _l2,
}
