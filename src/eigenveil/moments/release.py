"""From an exact sum to one noisy release and its record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import PrivacyError
from eigenveil.noise import draws
from eigenveil.noise.grid import grid_exponent, spread, wishart_unit
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import ALONE, Noise, NoiseKind, ReleaseRecord, Sharing

if TYPE_CHECKING:
    from eigenveil.moments.accumulators import Accumulator

# Directions are released rounded to this: fine enough for any use, and far coarser than the
# arithmetic they were drawn in, which would otherwise give the rows' eigenvectors away.
VECTOR_GRID = -20


@dataclass(frozen=True)
class Release:
    """Noisy values and what was spent on them. Whatever is computed from one is free."""

    record: ReleaseRecord
    values: NDArray[np.float64]


def calibrated_record(
    accumulator: Accumulator,
    *,
    name: str,
    adjacency: Adjacency,
    kind: NoiseKind,
    budget: StepBudget,
    draws_count: int = 1,
    sharing: Sharing = ALONE,
) -> ReleaseRecord:
    """The record of a release that spends exactly ``budget``; nothing is drawn.

    ``sharing`` says how many parties draw the noise together and how their rows are weighted.
    """
    statistic_grid = accumulator.grid - sharing.weight_bits

    def record(scale: float, grid: int | None) -> ReleaseRecord:
        return ReleaseRecord(
            name=name,
            statistic="bingham-vectors" if kind == "bingham" else accumulator.statistic,
            adjacency=adjacency,
            noise=Noise(
                kind=kind,
                scale=scale,
                size=accumulator.size,
                grid=grid,
                shares=sharing.shares,
                masks=sharing.masks,
            ),
            draws=draws_count,
            exposure=sharing.exposure,
            **accumulator.parameters,
        )

    def on_grid(scale: float) -> ReleaseRecord:
        if kind == "bingham":
            return record(scale, VECTOR_GRID)
        rows = accumulator.shape[0]
        grid = grid_exponent(statistic_grid, spread(kind, scale, accumulator.size, rows))
        if kind == "wishart":
            grid = min(statistic_grid, max(grid, wishart_unit(scale)))
            if grid < wishart_unit(scale):
                raise AssertionError("rows are prepared too finely for Wishart noise: a defect")
        return record(scale, grid)

    unit = record(1.0, None)
    if kind == "gaussian":  # the sampler's error is part of what the budget was made from
        assert budget.mu is not None
        return on_grid(math.nextafter(unit.sensitivity() / budget.mu, math.inf))
    assert budget.epsilon is not None
    # the loss is inversely proportional to the scale; what the sampler's error adds comes on top
    error = on_grid(unit.epsilon() / budget.epsilon).sampling_error().log_ratio
    left = budget.epsilon - 4.0 * error
    if left < 0.5 * budget.epsilon:
        raise PrivacyError(
            f"{name}: epsilon = {budget.epsilon:.3g} is less than what the arithmetic of "
            f"{accumulator.size} values of {kind} noise can promise.",
            hint="Give a larger epsilon, or a delta above 0.",
            code="epsilon-below-resolution",
        )
    return on_grid(math.nextafter(unit.epsilon() / left, math.inf))


def release_sum(accumulator: Accumulator, record: ReleaseRecord, source: RandomSource) -> Release:
    """Add the recorded noise to the exact sum."""
    grid = record.noise.grid
    assert grid is not None
    total = accumulator.integers()
    total <<= accumulator.grid - grid
    total += noise_integers(accumulator, record, source)
    return Release(
        record=record, values=np.multiply(total, math.ldexp(1.0, grid), dtype=np.float64)
    )


def noise_integers(
    accumulator: Accumulator, record: ReleaseRecord, source: RandomSource
) -> NDArray[np.int64]:
    """Noise of the recorded kind in the accumulator's coordinates, in units of the grid."""
    noise, grid = record.noise, record.noise.grid
    assert grid is not None
    total_shape = accumulator.shape
    symmetric = accumulator.layout == "symmetric"
    match noise.kind:
        case "gaussian" if symmetric:
            return draws.isometric_symmetric(
                total_shape[0], sigma=noise.scale, grid=grid, source=source
            )
        case "gaussian":
            return draws.gaussian(total_shape, sigma=noise.scale, grid=grid, source=source)
        case "laplace":
            return draws.laplace(total_shape, scale=noise.scale, grid=grid, source=source)
        case "wishart":
            return draws.wishart_difference(
                total_shape[0], scale=noise.scale, grid=grid, source=source
            )
        case "vector" if symmetric:
            return draws.vector_symmetric(
                total_shape[0], scale=noise.scale, grid=grid, source=source
            )
        case "vector":
            flat = draws.vector(math.prod(total_shape), scale=noise.scale, grid=grid, source=source)
            return flat.reshape(total_shape)
        case "bingham":
            raise AssertionError("bingham vectors are drawn, not added")
