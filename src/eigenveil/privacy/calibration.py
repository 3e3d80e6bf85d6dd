"""Calibration: the record that spends exactly its budget, on its grid (proofs/release-grid.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from eigenveil.errors import PrivacyError
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.mechanisms import MECHANISMS, NoiseKind
from eigenveil.privacy.releases import ALONE, STREAM_UNIT, Noise, ReleaseRecord, Sharing
from eigenveil.privacy.statistics import STATISTICS, StatisticName

# Grid steps in one noise scale: 2**26 makes the rounded and the discrete Gaussian the same to a
# factor of exp(2**-48).
_STEPS_A_SCALE = 26
# A coordinate's noise in rows' largest contributions; also keeps every value within 64 bits.
_LARGEST_SPREAD = 2.0**16


class Calibrated(Protocol):
    """A sum whose noise can be calibrated."""

    def calibrated_by(self) -> Shape: ...


@dataclass(frozen=True)
class Shape:
    """What a sum is calibrated from; of one that is not there yet, on its coarsest grid."""

    statistic: StatisticName
    shape: tuple[int, ...]
    size: int
    grid: int = 0
    parameters: Mapping[str, float] = field(default_factory=dict)

    def calibrated_by(self) -> Shape:
        return self


def calibrated_record(
    accumulator: Calibrated,
    *,
    name: str,
    adjacency: Adjacency,
    kind: NoiseKind,
    budget: StepBudget,
    draws_count: int = 1,
    sharing: Sharing = ALONE,
) -> ReleaseRecord:
    """The record of a release that spends exactly its budget; nothing is drawn."""
    shape = accumulator.calibrated_by()

    def record(noise: Noise) -> ReleaseRecord:
        known = {"name": name, "adjacency": adjacency, "draws": draws_count}
        return record_of(shape, noise, sharing, **known)

    def on_grid(scale: float) -> ReleaseRecord:
        grid = release_grid(kind, scale, shape.grid, shape.size, shape.shape[0], sharing)
        return record(noise_of(shape, kind, scale, grid, sharing))

    unit = record(noise_of(shape, kind, 1.0, None, sharing))
    if not unit.pure:  # the sampler's error is part of what the budget was made from
        assert budget.mu is not None
        return on_grid(math.nextafter(unit.mu() / budget.mu, math.inf))
    assert budget.epsilon is not None
    # the loss is inversely proportional to the scale; what the sampler's error adds comes on top
    left = 0.0
    if budget.epsilon > 0:  # beside Gaussian noise nothing may be left
        error = on_grid(unit.epsilon() / budget.epsilon).sampling_error().log_ratio
        left = budget.epsilon - 4.0 * error
    if not left > 0.5 * budget.epsilon:
        raise PrivacyError(
            "epsilon-below-noise", name=name, epsilon=budget.epsilon, values=shape.size, kind=kind
        )
    return on_grid(math.nextafter(unit.epsilon() / left, math.inf))


def release_grid(
    kind: NoiseKind, scale: float, own: int, size: int, rows: int, sharing: Sharing
) -> int:
    """Exponent of the grid of a release with this noise, of a sum on the grid ``2**own``."""
    mechanism = MECHANISMS[kind]
    fixed, finest = mechanism.fixed_grid(), mechanism.finest_grid(scale)
    if fixed is not None:
        return fixed
    own -= sharing.weight_bits
    if sharing.stream is not None:
        own = min(own, STREAM_UNIT)
    grid = grid_exponent(own, mechanism.spread(scale, size, rows))
    if finest is not None:
        grid = min(own, max(grid, finest))
        if grid < finest:
            raise AssertionError(f"rows are prepared too finely for {kind} noise: a defect")
    return grid


def noise_of(
    accumulator: Calibrated, kind: NoiseKind, scale: float, grid: int | None, sharing: Sharing
) -> Noise:
    """This noise for a sum."""
    size, parts = accumulator.calibrated_by().size, sharing.noise_parts
    return Noise(
        kind=kind, scale=scale, size=size, grid=grid, noise_parts=parts, masks=sharing.masks
    )


def record_of(
    accumulator: Calibrated, noise: Noise, sharing: Sharing = ALONE, **known: Any
) -> ReleaseRecord:
    """The record of a sum with this noise; the sum itself says how sensitive it is."""
    shape = accumulator.calibrated_by()
    return ReleaseRecord(
        statistic=released_statistic(shape.statistic, noise.kind),
        noise=noise,
        exposure=sharing.exposure,
        stream=sharing.stream,
        disjoint=sharing.disjoint,
        sites=sharing.sites,
        **known,
        **shape.parameters,
    )


def released_statistic(statistic: StatisticName, kind: NoiseKind) -> StatisticName:
    """What is released of a sum: itself with noise, or what a mechanism draws from it."""
    mechanism = MECHANISMS[kind]
    if mechanism.added:
        return statistic
    return next(each.name for each in STATISTICS.values() if mechanism in each.mechanisms)


def grid_exponent(statistic_grid: int, noise_spread: float) -> int:
    """Exponent of the coarsest grid that holds the statistic exactly and is fine for the noise."""
    if noise_spread > _LARGEST_SPREAD:
        raise PrivacyError("hopeless-noise", spread=noise_spread)
    return min(statistic_grid, math.floor(math.log2(noise_spread)) - _STEPS_A_SCALE)
