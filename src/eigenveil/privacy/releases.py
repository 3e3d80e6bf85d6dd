"""The record of a release: exactly the parameters that its privacy loss follows from, of no row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from eigenveil.markup import Node, table
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.mechanisms import MECHANISMS, Mechanism, NoiseKind
from eigenveil.privacy.mechanisms.base import UNPROVED, SamplingError
from eigenveil.privacy.statistics import STATISTICS, StatisticName
from eigenveil.privacy.streams import StreamFactor

NoiseSource = Literal["operating system", "seeded"]
# Sums over the blocks of a stream are kept in units of at most 2 to this, of a row's contribution.
STREAM_UNIT = -36


class Settled(BaseModel):
    """A frozen model: what follows from its fields is settled once, and anew in every copy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __copy__(self) -> Self:
        return super().__copy__()._only_fields()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return BaseModel.__deepcopy__(self.__copy__(), memo)

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        return state | {"__dict__": dict(self)}

    def __iter__(self) -> Any:
        return ((name, getattr(self, name)) for name in type(self).model_fields)

    def copied(self) -> Self:
        """One that shares nothing with it."""
        return self.model_copy(deep=True)

    def _only_fields(self) -> Self:
        object.__setattr__(self, "__dict__", dict(self))
        return self


class Noise(Settled):
    """The noise of one release; what ``scale`` is, its mechanism states."""

    kind: NoiseKind
    scale: float = Field(gt=0, allow_inf_nan=False)
    size: int = Field(gt=0, le=2**60, description="number of independent coordinates")
    grid: int | None = Field(default=None, description="exponent of the release grid")
    noise_parts: int = Field(
        default=1,
        gt=0,
        description="independent equal parts, drawn by as many parties, that make the noise",
    )
    masks: int = Field(
        default=0, ge=0, description="Gaussian masks that the adversary sees beside the noise"
    )

    @cached_property
    def mechanism(self) -> Mechanism:
        return MECHANISMS[self.kind]

    def edge(self, rows: int, columns: int) -> float:
        """Largest eigenvalue (square, symmetric) or singular value (rows > columns) of it alone."""
        return self.mechanism.edge(self, rows, columns)

    def deviation(self, rows: int) -> float:
        """Standard deviation of a coordinate (isometric); ``rows`` is the statistic's side."""
        return self.mechanism.deviation(self, rows)


@dataclass(frozen=True)
class Sharing:
    """How parties share the noise of a release; by default one party draws all of it."""

    # The noise is the sum of this many equal parts, one a party; any further party that draws a
    # part too makes the noise larger than recorded
    noise_parts: int = 1
    masks: int = 0  # Gaussian masks that the adversary sees beside the noise
    # Mu of the adversary's view over that of the noisy sum alone (docs/proofs/views.md)
    exposure: float = 1.0
    weight_bits: int = 0  # Rows count with public weights that are multiples of `2**-weight_bits`
    stream: StreamFactor | None = None  # How the noise is spread over the blocks of a stream
    # Whether it is one of any number of such releases, each of rows that no other has
    disjoint: bool = False
    sites: int = 1  # At so many sites one unit may have rows


ALONE = Sharing()


class ReleaseRecord(Settled):
    """One noisy release of one statistic of rows with norm at most 1."""

    name: str
    statistic: StatisticName
    adjacency: Adjacency
    noise: Noise
    clip: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    gain: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    count_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    square_weight: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="weight of squares beside the sums of expectation maximisation",
    )
    variance: float = Field(
        default=0.0,
        ge=0,
        allow_inf_nan=False,
        description="what a third moment takes off: so much of a row's variance is known",
    )
    variables: int = Field(
        default=1, gt=0, description="histograms of columns: in so many a row counts"
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
    disjoint: bool = Field(
        default=False,
        description="any number of such releases, each of rows that no other has (streams.md)",
    )
    sites: int = Field(default=1, gt=0, description="sites at which one unit may have rows")
    noise_source: NoiseSource = Field(
        default="operating system", description="where the generator's key came from"
    )

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002
        """Refuse noise that does not fit the statistic."""
        statistic = STATISTICS[self.statistic]
        if self.mechanism not in statistic.mechanisms:
            raise ValueError(
                f"{self.statistic} cannot be released with {self.noise.kind} noise; "
                f"proved for: {', '.join(each.name for each in statistic.mechanisms)}"
            )
        if statistic.check is not None:
            statistic.check(self)
        if self.stream is not None and not self.mechanism.of_prefixes:
            raise ValueError(f"nothing is proved of {self.noise.kind} noise of a stream's prefixes")
        if self.stream is not None and self.disjoint:
            raise ValueError("a release is of a stream's prefixes, or of one block, not both")

    @cached_property
    def mechanism(self) -> Mechanism:
        return self.noise.mechanism

    @cached_property
    def pure(self) -> bool:
        return self.mechanism.pure

    def sensitivity(self) -> float:
        """How far the statistic moves between neighbours, in the norm its noise is made for."""
        alone = (
            self.sites * self.weight * STATISTICS[self.statistic].bounds[self.mechanism.norm](self)
        )
        return alone if self.stream is None else self._moved(alone, self.stream)

    def _moved(self, alone: float, stream: StreamFactor) -> float:
        """How far a row moves all that a stream releases: what it should, and rounding."""
        entries = STATISTICS[self.statistic].copies * self.noise.size * stream.blocks
        rounding = math.ldexp(stream.rounding() * math.sqrt(entries), STREAM_UNIT)
        return alone * stream.norm() + rounding

    def mu(self) -> float:
        """The Gaussian-DP loss, where it is not pure."""
        assert not self.pure
        return self._loss

    def epsilon(self) -> float:
        """The pure loss, where it is."""
        assert self.pure
        return self._loss

    def named_loss(self) -> tuple[str, float]:
        """The one of the two that it has, after its name."""
        return "epsilon" if self.pure else "mu", self._loss

    @cached_property
    def _loss(self) -> float:
        return self.mechanism.loss(self)

    def sampling_error(self) -> SamplingError:
        """How far the noise that is drawn is from the noise that is proved."""
        return self._sampling_error

    @cached_property
    def _sampling_error(self) -> SamplingError:
        if self.noise.grid is None:
            return UNPROVED
        return self.mechanism.sampling_error(
            self.noise,
            copies=STATISTICS[self.statistic].copies,
            blocks=1 if self.stream is None else self.stream.blocks,
        )


RELEASES = ("release", "values", "sensitivity", "noise", "loss")
"""Headings of :func:`release_cells`."""


def release_cells(records: Iterable[ReleaseRecord]) -> list[tuple[str, ...]]:
    """Of each release what left the rows, with which noise, at which cost."""
    return [
        (
            record.name,
            str(record.noise.size),
            f"{record.sensitivity():.4g}",
            f"{record.noise.kind}, scale {record.noise.scale:.4g}",
            "{} = {:.4g}".format(*record.named_loss()),
        )
        for record in records
    ]


def releases_node(records: Iterable[ReleaseRecord]) -> Node:
    return table(
        RELEASES,
        release_cells(records),
        caption="Releases: all that was computed from rows",
        right=(False, True, True, False, True),
        style=True,
    )
