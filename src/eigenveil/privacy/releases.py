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
from eigenveil.privacy.streams import StreamFactor

NoiseSource = Literal["operating system", "seeded"]
NoiseKind = Literal["gaussian", "laplace", "vector", "wishart", "bingham"]
Statistic = Literal[
    "norm-histogram",
    "row-sum",
    "second-moment",
    "sketch",
    "component-energy",
    "bingham-vectors",
    "third-moment",
    "document-pairs",
    "document-sketch",
    "document-triples",
]
# Sums over the blocks of a stream are kept in units of at most 2 to this, of a row's contribution.
STREAM_UNIT = -36
# Symmetric tensors of three modes.
TENSORS: frozenset[Statistic] = frozenset({"third-moment", "document-triples"})

PROOFS: dict[NoiseKind, str] = {
    "gaussian": "gaussian.md",
    "laplace": "laplace.md",
    "vector": "vector.md",
    "wishart": "wishart-difference.md",
    "bingham": "bingham.md",
}
# Of the sensitivities that the proofs of the noise do not list themselves.
PROOFS_OF_STATISTIC: dict[Statistic, str] = {
    "third-moment": "third-moment.md",
    "document-pairs": "documents.md",
    "document-sketch": "documents.md",
    "document-triples": "documents.md",
}


def tensor_size(rows: int) -> int:
    """Independent coordinates of a symmetric tensor of three modes with so many rows in each."""
    return rows * (rows + 1) * (rows + 2) // 6


def tensor_rows(size: int) -> int:
    """The rows of which :func:`tensor_size` is ``size``.

    Raises
    ------
    ValueError
        When no symmetric tensor has so many independent coordinates.
    """
    # (n + 1)^3 - (n + 1) = 6 size, so that the cube root is a little below n + 1
    rows = max(1, round(math.cbrt(6.0 * size)) - 1)
    if tensor_size(rows) != size:
        raise ValueError(f"no symmetric tensor has {size} independent coordinates")
    return rows


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
    size: int = Field(gt=0, le=2**60, description="number of independent coordinates")
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
    stream : StreamFactor or None
        How the noise is spread over the blocks of a stream.
    """

    shares: int = 1
    masks: int = 0
    exposure: float = 1.0
    weight_bits: int = 0
    stream: StreamFactor | None = None


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
    variance: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="what a third moment takes off: so much of a row's variance is known",
    )
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
    stream: StreamFactor | None = Field(
        default=None, description="the noise of all prefixes of a stream of blocks (streams.md)"
    )
    noise_source: NoiseSource = Field(
        default="operating system", description="where the generator's key came from"
    )

    @model_validator(mode="after")
    def _noise_fits_statistic(self) -> ReleaseRecord:
        allowed = _NOISE_OF_STATISTIC[self.statistic]
        if self.noise.kind not in allowed:
            raise ValueError(
                f"{self.statistic} cannot be released with {self.noise.kind} noise; "
                f"proved for: {', '.join(allowed)}"
            )
        if self.statistic == "document-pairs" and self.noise.kind == "wishart" and self.clip < 1.0:
            raise ValueError("pairs clipped in the Frobenius norm cannot have wishart noise")
        if self.statistic in TENSORS:
            tensor_rows(self.noise.size)
        if self.stream is not None and self.noise.kind != "gaussian":
            raise ValueError("the noise of a stream's prefixes is proved for gaussian noise only")
        return self

    def sensitivity(self) -> float:
        """How far the statistic moves between neighbours, in the norm its noise is made for."""
        alone = self.weight * _SENSITIVITY[self.noise.kind](self)
        return alone if self.stream is None else self._moved(alone, self.stream)

    def _moved(self, alone: float, stream: StreamFactor) -> float:
        """How far a row moves all that a stream releases: what it should, and rounding."""
        entries = most_copies(self.statistic) * self.noise.size * stream.blocks
        rounding = math.ldexp(stream.rounding() * math.sqrt(entries), STREAM_UNIT)
        return alone * stream.norm() + rounding

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
        copies = most_copies(self.statistic)
        match noise.kind:
            case "laplace" if noise.shares > 1:
                return _laplace_shares_error(noise.size, noise.shares, steps)
            case "gaussian" | "laplace":
                return lattice_error(
                    noise.size * (1 if self.stream is None else self.stream.blocks),
                    steps_a_scale=steps,
                    draws=noise.shares + noise.masks,
                    copies=copies,
                )
            case "vector" if noise.shares > 1:
                return _vector_shares_error(noise.size, noise.shares, steps, copies)
            case "vector":  # the mixed-in normals count too; on the lattice it is exact otherwise
                return lattice_error(2 * noise.size + 1, steps_a_scale=math.inf)
            case "wishart":
                return _wishart_error(noise.size, noise.shares, steps)
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


# Grid steps in the deviation of anything that is drawn, at the least.
_FEWEST_STEPS = 1024.0
_UNPROVED = SamplingError(math.inf, math.inf)


def most_copies(statistic: Statistic) -> int:
    """Entries of the whole array that one coordinate may stand for: 6 of a symmetric tensor.

    A coordinate that stands for m entries is sqrt(m) times each of them, so the noise in an entry
    has a deviation smaller by that. What is no tensor counts as a symmetric matrix.
    """
    return 6 if statistic in TENSORS else 2


def lattice_error(
    size: int, *, steps_a_scale: float, draws: int = 1, copies: int = 2
) -> SamplingError:
    """Of ``size`` coordinates on a grid with this many steps in a noise scale.

    Per coordinate: a factor ``exp(2**-44)`` for the arithmetic and ``8 copies / steps**2`` between
    the Gaussian on the grid and the rounded Gaussian; ``2**-120`` for table rounding and the cut
    tail. The arithmetic and the tail count for each of the ``draws`` whose sum a coordinate is.
    Each must have 1024 steps in its deviation, which is smaller by ``sqrt(copies)`` than the scale
    where it is smallest (:func:`most_copies`).
    """
    if steps_a_scale < _FEWEST_STEPS * math.sqrt(copies * draws):
        return _UNPROVED
    return SamplingError(
        size * (draws * 2.0**-44 + 8.0 * copies / steps_a_scale**2), draws * size * 2.0**-120
    )


# A Wishart difference's deviation over that of the Gaussian noise added to hide its lattice, and
# the variance of Laplace and vector noise over that of the noise added to all shares together.
WISHART_SMOOTHING = 64.0
SHARE_SMOOTHING = 2048.0
# Steps in the spread of noise on a grid that is fine for it: those of ``noise.grid``.
_STEPS_A_SPREAD = 2.0**26


def _longest(size: int) -> float:
    """What so many squared deviations together stay below, but for a chance of 2**-131."""
    return size + 2.0 * math.sqrt(91.0 * size) + 182.0


def _hidden_error(size: int, *, off: float, smoothing: float, shares: int) -> float:
    """Log-ratio of misplaced noise beside lattice Gaussian noise (docs/proofs/shares.md, claim 2).

    Each of ``shares`` parts was rounded to the grid at random without bias, and ``off`` is how far
    the sum is misplaced beyond that: the length over ``size`` coordinates, in deviations of the
    Gaussian noise, which has ``smoothing`` grid steps or more.
    """
    far = _longest(size)
    return off * math.sqrt(far) + 0.5 * off * off + shares * far / (8.0 * smoothing * smoothing)


def _wishart_error(size: int, shares: int, steps: float) -> SamplingError:
    """Of a Wishart difference drawn on a lattice and smoothed (docs/proofs/wishart-difference.md).

    In units of the product's rounding, an entry has deviation ``2**46 sqrt(2 (D + 1))`` or more and
    differs from that of continuous G and H by at most ``off``; the smoothing noise has a 64th of
    that deviation, off the diagonal ``2**0.5`` less.
    """
    rows = (math.isqrt(8 * size + 1) - 1) // 2
    columns = shares * -(-(rows + 1) // shares)
    spread = steps * math.sqrt(2.0 * (rows + 1))
    smaller = 1.0 / (WISHART_SMOOTHING * math.sqrt(2.0))
    if spread < _STEPS_A_SPREAD or spread * smaller < _FEWEST_STEPS * math.sqrt(shares):
        return _UNPROVED
    longest = math.sqrt(columns) + 14.0  # rows of G, in deviations, but for a chance of 2**-130
    # rounding half a step in each of two factors, twice (G and H); every party floors twice
    off = 2.0 * 2.0 * 0.5 * 2.0**0.5 * longest * math.sqrt(columns) * 2.0 ** (50 - 54) + 2 * shares
    noise = 2.0**46 * math.sqrt(2.0 * (rows + 1)) * smaller
    hidden = _hidden_error(
        size,
        off=math.sqrt(size) * off / noise,
        smoothing=_STEPS_A_SPREAD * smaller,
        shares=shares,
    )
    drawn = lattice_error(2 * rows * columns + shares * size, steps_a_scale=2.0**50)
    return SamplingError(hidden + drawn.log_ratio, drawn.distance)


def _laplace_shares_error(size: int, shares: int, steps: float) -> SamplingError:
    """Of Laplace noise made of Gamma variables of shape ``1 / shares`` (docs/proofs/shares.md).

    A Gamma variable is computed to ``relative`` of itself and costs as much as 37 coordinates; the
    sum of all of them is Gamma(2 size).
    """
    smaller = math.sqrt(2.0 / SHARE_SMOOTHING)  # the smoothing noise's deviation over the scale
    # half as fine as noise.grid makes it will do
    if steps < _STEPS_A_SPREAD / 2 or steps * smaller < _FEWEST_STEPS * math.sqrt(shares):
        return _UNPROVED
    relative = 2.0**-43 + shares * 2.0**-56
    total = 2.0 * size + math.sqrt(364.0 * size) + 91.0
    hidden = _hidden_error(
        size,
        off=relative * total / smaller,
        smoothing=_STEPS_A_SPREAD / 2 * smaller,
        shares=shares,
    )
    drawn = lattice_error(76 * shares * size, steps_a_scale=math.inf)
    return SamplingError(hidden + drawn.log_ratio, drawn.distance)


def _vector_shares_error(size: int, shares: int, steps: float, copies: int) -> SamplingError:
    """Of vector noise whose variance is a sum of Gamma variables (docs/proofs/shares.md, claim 5).

    Every share draws ``size`` coordinates and a Gamma variable; what the variables' rounding costs
    is less than four shares more. ``copies`` as in :func:`lattice_error`.
    """
    smoothing = steps * math.sqrt((size + 1) / SHARE_SMOOTHING)
    if smoothing < _FEWEST_STEPS * math.sqrt(copies * shares):
        return _UNPROVED
    return lattice_error((shares + 4) * (size + 64), steps_a_scale=math.inf)


_NOISE_OF_STATISTIC: dict[Statistic, tuple[NoiseKind, ...]] = {
    "norm-histogram": ("gaussian", "laplace"),
    "row-sum": ("gaussian", "vector"),
    "second-moment": ("gaussian", "wishart", "vector"),
    "sketch": ("gaussian", "vector"),
    "component-energy": ("gaussian", "laplace"),
    "bingham-vectors": ("bingham",),
    "third-moment": ("gaussian", "vector"),
    "document-pairs": ("gaussian", "wishart", "vector"),
    "document-sketch": ("gaussian", "vector"),
    "document-triples": ("gaussian", "vector"),
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
        case "third-moment":
            rows = tensor_rows(record.noise.size)
            return sensitivity.third_moment(a, rows=rows, variance=record.variance)
        case "document-pairs":
            return sensitivity.document_pairs(a)
        case "document-sketch":
            return sensitivity.document_sketch(a, gain=record.gain, clip=record.clip)
        case "document-triples":
            return sensitivity.document_triples(a, gain=record.gain)


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
