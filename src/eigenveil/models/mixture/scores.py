"""Components found in a released histogram of scores, and how well they are known from it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.mixture.cells import Cells, CellShape, InPlane, hides_halves, paths, price
from eigenveil.models.score_query import MOST_APART, WIDTH, side_of
from eigenveil.models.tensors.whitening import PairMoment, shown
from eigenveil.moments.exact import SHORTEST_SEEN
from eigenveil.moments.release import Release
from eigenveil.moments.scores import MOST_DIRECTIONS

Array = NDArray[np.float64]

# So many components more are tried after the last that paid for itself.
_PATIENCE = 3


@dataclass(frozen=True)
class ScoreGrid:
    """Where rows are counted: along directions of a moment, each in its own scale."""

    directions: Array  # (D, C), orthonormal
    factors: Array  # (C,): of each direction's scores, 1 of the narrowest
    clip: float

    @classmethod
    def of(cls, about: PairMoment, rows: float) -> ScoreGrid:
        """Along what stands out of the rows' moment about their centre: one direction or two."""
        features = about.basis.shape[0]
        count = 1 if features > MOST_DIRECTIONS and shown(about) < MOST_DIRECTIONS else features
        directions = about.basis[:, :MOST_DIRECTIONS][:, :count]
        energies = np.diagonal(about.core)[: directions.shape[1]] + max(about.bulk, 0.0)
        spreads = np.sqrt(np.maximum(energies, 1e-300) / rows)
        narrowest = float(spreads.min())
        factors = np.maximum(narrowest / spreads, 1.0 / MOST_APART)
        clip = min(1.0, max(WIDTH * narrowest, 2.0 * SHORTEST_SEEN))
        return cls(directions, factors, clip)

    @property
    def basis(self) -> Array:
        return np.asarray(self.directions * self.factors)

    def read(self, release: Release, rows: float) -> Cells:
        """The cells that hold what is in them alone: rows beyond were moved to the edge."""
        values = release.values
        side = side_of(values.size, self.factors.size)
        noise = release.record.noise.deviation(values.size)
        edges = (2.0 * np.arange(side) + 1.0) / side - 1.0
        middles = np.array(list(product(edges, repeat=self.factors.size)))
        inside = np.linalg.norm(np.abs(middles) + 1.0 / side, axis=1) <= 1.0
        unit = self.clip / self.factors
        return Cells(values[inside], middles[inside] * unit, 2.0 * unit / side, noise, rows)


@dataclass(frozen=True)
class Known:
    """How well components are known before sums of expectation maximisation.

    A sum's step is taken by the part of what they may be off in that and its own noise.
    """

    directions: Array  # (D, C)
    along: Array  # (K, C, C): covariance of each mean in the plane
    off: Array  # (K,): variance of an entry of each mean off it
    weights: Array  # (K,): deviation of each weight

    def kept(self, shifts: Array, noise: Array) -> tuple[Array, Array]:
        """Shifts (K, D) with noise of these deviations, and what part of them is taken."""
        inside = shifts @ self.directions
        variance = noise[:, None, None] ** 2 * np.eye(inside.shape[1])
        parts = self.along @ np.linalg.inv(self.along + variance)
        rest = self.off / (self.off + noise**2)
        seen = np.einsum("kij,kj->ki", parts, inside)
        taken = (seen - rest[:, None] * inside) @ self.directions.T + rest[:, None] * shifts
        features, directions = self.directions.shape
        squares = np.trace(parts, axis1=1, axis2=2) + (features - directions) * rest
        return np.asarray(taken), np.asarray(squares / features)

    def weighed(self, weights: Array, seen: Array, noise: Array) -> Array:
        """Weights moved to those that were seen with noise of these deviations."""
        part = self.weights**2 / (self.weights**2 + noise**2)
        moved = np.maximum(weights + part * (seen - weights), 1e-4)
        return np.asarray(moved / moved.sum())


@dataclass(frozen=True)
class InCells:
    """What a histogram shows of components."""

    found: InPlane
    paying: int  # How many components describe the cells best
    most: int  # So many were looked for at the most, or are told apart by cells
    hidden: float  # Part of all rows that would pass for one component where it is two
    costs: Array  # Of 1, 2, ... components

    @property
    def there(self) -> NDArray[np.bool_]:
        """Whether each of them is one that the cells show."""
        count = self.found.weights.size
        return np.full(count, self.paying >= count)


def components_of(cells: Cells, shape: CellShape, *, count: int, auto: bool, least: int) -> InCells:
    """As many components as describe the cells best: no fewer than ``least``.

    Of a number that was given, those that gain more than twice their parameters (Akaike 1974).
    """
    most = max(least, _most(cells, shape, count))
    tried: list[InPlane] = []
    costs: list[tuple[float, float]] = []
    for each in paths(cells, shape, most):
        tried.append(each)
        free = shape.parameters(len(tried), cells.widths.size)
        costs.append((each.cost + price(cells, shape, len(tried)), each.cost + 2.0 * free))
        paying, given = (int(np.argmin(kind)) + 1 for kind in zip(*costs, strict=True))
        wanted = max(paying if auto else given, least)
        if len(costs) >= wanted + _PATIENCE:
            break
    found = tried[min(wanted, len(tried)) - 1]
    known = np.array([cost for cost, _ in costs])
    return InCells(found, paying, most, hides_halves(cells, found, shape), known)


def _most(cells: Cells, shape: CellShape, count: int) -> int:
    """Half as many parameters as cells."""
    most = count
    while most > 1 and 2 * shape.parameters(most, cells.widths.size) > cells.counts.size:
        most -= 1
    return most


def known_from(grid: ScoreGrid, found: InPlane, about: PairMoment, rows: float) -> Known:
    """How far the components of cells may be off."""
    count, directions = found.means.shape
    features = grid.directions.shape[0]
    assert found.error is not None
    means = found.error[count:, count:].reshape(count, directions, count, directions)
    along = means[np.arange(count), :, np.arange(count), :]
    # off the plane components have no more energy together than the moment hides
    left = max(about.hidden, about.deviation) / max(features - directions, 1)
    off = left / (rows * np.maximum(found.weights, 1e-3))
    weights = np.sqrt(np.maximum(np.diagonal(found.error)[:count], 0.0))
    return Known(grid.directions, along, off, np.maximum(weights, 1e-6))
