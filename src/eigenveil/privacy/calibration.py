"""Calibration: the record that spends exactly its budget, on its grid (proofs/release-grid.md)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from eigenveil.errors import PrivacyError
from eigenveil.privacy.budget import StepBudget
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
    kind: NoiseKind,
    budget: StepBudget,
    fraction: float = 1.0,
    sharing: Sharing = ALONE,
    **known: Any,
) -> ReleaseRecord:
    """The record of a release that spends exactly a fraction of a budget; nothing is drawn."""
    shape, budget = accumulator.calibrated_by(), budget.scaled(fraction)

    def record(scale: float, grid: int | None) -> ReleaseRecord:
        return record_of(shape, kind=kind, scale=scale, grid=grid, sharing=sharing, **known)

    def on_grid(scale: float) -> ReleaseRecord:
        rows = shape.shape[0]
        return record(scale, release_grid(kind, scale, shape.grid, shape.size, rows, sharing))

    unit = record(1.0, None)
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
            "epsilon-below-noise",
            name=unit.name,
            epsilon=budget.epsilon,
            values=shape.size,
            kind=kind,
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


def grids_of(kind: NoiseKind, scale: float, shape: Shape, sharing: Sharing) -> tuple[int, int]:
    """Exponents of the finest and the coarsest grid that a sum with this noise may have."""
    coarsest = shape.grid - sharing.weight_bits
    spread = MECHANISMS[kind].spread(scale, shape.size, shape.shape[0])
    return grid_exponent(coarsest, spread), coarsest


def record_of(
    accumulator: Calibrated,
    *,
    kind: NoiseKind,
    scale: float,
    grid: int | None,
    sharing: Sharing = ALONE,
    **known: Any,
) -> ReleaseRecord:
    """The record of a sum with this noise; the sum itself says how sensitive it is."""
    shape = accumulator.calibrated_by()
    return ReleaseRecord(
        statistic=released_statistic(shape.statistic, kind),
        noise=Noise(
            kind=kind,
            scale=scale,
            size=shape.size,
            grid=grid,
            noise_parts=sharing.noise_parts,
            masks=sharing.masks,
        ),
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
