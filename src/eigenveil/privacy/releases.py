"""What is recorded of a release: exactly the parameters that its privacy loss follows from.

A record never holds a value computed from rows. ``certify`` recomputes every guarantee from
records alone, so a record's meaning never changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

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
    shares: int = Field(
        default=1,
        gt=0,
        description="independent equal parts, drawn by as many parties, that make the noise",
    )
    masks: int = Field(
        default=0, ge=0, description="Gaussian masks that the adversary sees beside the noise"
    )


@dataclass(frozen=True)
class Sharing:
    """How parties share the noise of a release; by default one party draws all of it.

    Attributes
    ----------
    shares : int
        The noise is the sum of this many equal parts, one a party; any further party that draws a
        part too makes the noise larger than recorded.
    masks : int
        Gaussian masks that the adversary sees beside the noise.
    exposure : float
        Mu of the adversary's view over that of the noisy sum alone (docs/proofs/views.md).
    weight_bits : int
        Rows count with public weights that are multiples of ``2**-weight_bits``.
    """

    shares: int = 1
    masks: int = 0
    exposure: float = 1.0
    weight_bits: int = 0


ALONE = Sharing()


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
    weight: float = Field(
        default=1.0, gt=0, le=1, description="factor on every row of the data set that is protected"
    )
    exposure: float = Field(
        default=1.0,
        ge=1,
        allow_inf_nan=False,
        description="mu of what the adversary sees over that of the noisy sum alone (views.md)",
    )

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
        return self.weight * _SENSITIVITY[self.noise.kind](self)

    def mu(self) -> float:
        """The Gaussian-DP loss, for Gaussian noise."""
        assert self.noise.kind == "gaussian"
        return self.exposure * self.sensitivity() / self.noise.scale

    def epsilon(self) -> float:
        """The pure loss, for every other noise."""
        assert self.noise.kind != "gaussian"
        if self.noise.kind == "wishart":
            return self.sensitivity() / (2.0 * self.noise.scale)
        return self.draws * self.sensitivity() / self.noise.scale

    def sampling_error(self) -> SamplingError:
        """How far the noise that is drawn is from the noise that is proved."""
        noise = self.noise
        if noise.grid is None:
            return SamplingError(math.inf, math.inf)
        steps = math.ldexp(noise.scale, -noise.grid)
        match noise.kind:
            case "gaussian" | "laplace":
                return lattice_error(
                    noise.size, steps_a_scale=steps, draws=noise.shares + noise.masks
                )
            case "vector":  # the mixed-in normals count too; on the lattice it is exact otherwise
                return lattice_error(2 * noise.size + 1, steps_a_scale=math.inf)
            case "wishart":
                return _wishart_error(noise.size)
            case "bingham":  # ideal arithmetic is assumed, and said in a caveat
                return SamplingError(0.0, 0.0)


class SamplingError(NamedTuple):
    """Bounds on drawn against proved noise, over all coordinates (docs/proofs/release-grid.md).

    Every event has ``P~(S) <= exp(log_ratio) P(S) + distance``, and the same the other way.
    """

    log_ratio: float
    distance: float

    def cost(self, epsilon: float) -> float:
        """What the distance adds to delta at ``epsilon``; the log-ratio adds twice to epsilon.

        ``P~(S) <= e^r P(S) + d <= e^r (e^eps P'(S) + delta) + d``, and the same once more for P'.
        """
        return (1.0 + math.exp(min(epsilon, 700.0))) * self.distance if self.distance else 0.0


def lattice_error(size: int, *, steps_a_scale: float, draws: int = 1) -> SamplingError:
    """Of ``size`` coordinates on a grid with this many steps in a noise scale.

    Per coordinate: a factor ``exp(2**-44)`` for the arithmetic and ``16 / steps**2`` between the
    Gaussian on the grid and the rounded Gaussian; ``2**-120`` for table rounding and the cut tail.
    The arithmetic and the tail count for each of the ``draws`` whose sum a coordinate is.
    """
    if steps_a_scale < 1024 * math.sqrt(draws):
        return SamplingError(math.inf, math.inf)
    return SamplingError(
        size * (draws * 2.0**-44 + 16.0 / steps_a_scale**2), draws * size * 2.0**-120
    )


# A Wishart difference's deviation over that of the Gaussian noise added to hide its lattice.
WISHART_SMOOTHING = 64.0


def _wishart_error(size: int) -> SamplingError:
    """Of a Wishart difference drawn on a lattice and smoothed (docs/proofs/wishart-difference.md).

    In units of the product's rounding, an entry has deviation ``2**46 sqrt(2 (D + 1))`` and differs
    from that of continuous G and H by at most ``e``; beside Gaussian noise of a 64th of that
    deviation (off the diagonal 2**0.5 less) this costs a log-ratio of 13.5 e / noise, an entry.
    """
    rows = (math.isqrt(8 * size + 1) - 1) // 2
    longest = math.sqrt(rows + 1) + 14.0  # rows of G, in deviations, but for a chance of 2**-130
    # rounding half a step in each of two factors, twice (G and H), then flooring
    off = 2.0 * 2.0 * 0.5 * 2.0**0.5 * longest * math.sqrt(rows + 1) * 2.0 ** (50 - 54) + 4.0
    noise = 2.0**46 * math.sqrt(2.0 * (rows + 1)) / WISHART_SMOOTHING / math.sqrt(2.0)
    drawn = lattice_error(2 * rows * (rows + 1) + size, steps_a_scale=2.0**40)
    return SamplingError(
        size * (13.5 * off / noise + off**2 / noise**2) + drawn.log_ratio, drawn.distance
    )


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
