"""From an exact sum to one noisy release and its record."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import Accumulator
from eigenveil.noise import draws
from eigenveil.noise.grid import grid_exponent
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import Noise, NoiseKind, ReleaseRecord


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
) -> ReleaseRecord:
    """The record of a release that spends exactly ``budget``; nothing is drawn."""

    def record(scale: float, grid: int | None) -> ReleaseRecord:
        return ReleaseRecord(
            name=name,
            statistic="bingham-vectors" if kind == "bingham" else accumulator.statistic,
            adjacency=adjacency,
            noise=Noise(kind=kind, scale=scale, size=accumulator.size, grid=grid),
            draws=draws_count,
            **accumulator.parameters,
        )

    unit = record(1.0, None)
    if kind == "gaussian":
        assert budget.mu is not None
        scale = unit.sensitivity() / budget.mu
    else:
        assert budget.epsilon is not None
        scale = unit.epsilon() / budget.epsilon  # the loss is inversely proportional to the scale
    scale = math.nextafter(scale, math.inf)
    if kind == "bingham":
        return record(scale, None)
    return record(scale, grid_exponent(accumulator.grid, scale))


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
