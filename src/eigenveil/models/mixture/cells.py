"""Components in a plane, fitted to a released histogram of scores (post-processing).

A cell holds the rows that a mixture puts there, give or take their sampling and the released noise:
components are those with the least sum of squares over both, one more only where it pays for its
parameters (Schwarz 1978, with the noise in the likelihood).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Steps of a fit, the damping that it begins with, and at which gain of the criterion it ends.
_STEPS, _DAMPING, _ENDS = 40, 1e-2, 1e-3
# A cell is looked for where it holds more than so many deviations of its noise.
_HELD = 1.5
# Deviations of a component in cells, at least: narrower ones could be noise in one cell.
_NARROWEST = 0.4
_LEAST_WEIGHT = 1e-3
# Two points a cell, where polynomials of degree three are averaged exactly.
_GAUSS = 0.5 / math.sqrt(3.0)
# Of k-means of the cells that hold rows.
_RESTARTS, _MOVES = 30, 30


@dataclass(frozen=True)
class Cells:
    """A released histogram: of some cells the counts, and where they are."""

    counts: Array  # (m,)
    middles: Array  # (m, C)
    widths: Array  # (C,)
    noise: float  # Deviation of a count's noise
    rows: float

    @property
    def points(self) -> Array:
        """Points (m, 2**C, C) over which a density is averaged."""
        steps = np.array(list(product((-_GAUSS, _GAUSS), repeat=self.widths.size)))
        return self.middles[:, None, :] + steps * self.widths

    @property
    def measure(self) -> float:
        """The rows that a density of 1 puts into a cell."""
        return self.rows * float(np.prod(self.widths))


@dataclass(frozen=True)
class InPlane:
    """Components in the plane of the histogram, and how well they are known."""

    weights: Array
    means: Array  # (K, C)
    roots: Array  # (K, C, C): lower triangles L with covariance L L'
    cost: float = math.inf  # Twice the negative log-likelihood
    error: Array | None = None  # Covariance of weights, then of means (K C), of all of them

    @property
    def covariances(self) -> Array:
        return np.asarray(self.roots @ self.roots.transpose(0, 2, 1))


@dataclass(frozen=True)
class CellShape:
    """What components may have: one variance each, or covariances, their own or all the same."""

    round: bool
    shared: bool

    def parameters(self, count: int, directions: int) -> int:
        own = 1 if self.round else directions * (directions + 1) // 2
        return count * (1 + directions) - 1 + own * (1 if self.shared else count)


def paths(cells: Cells, shape: CellShape, most: int) -> Iterator[InPlane]:
    """The best fit of one component, of two, and so on: of so many as cells can tell apart."""
    found = _fitted(cells, _begun(cells, shape, 1), shape)
    yield found
    spread = np.diagonal(found.roots[0])
    if np.any(spread <= 1.01 * _narrowest(cells, shape)):
        return  # all rows are in a cell or two
    for count in range(2, most + 1):
        starts = [_begun(cells, shape, count), *_one_more(cells, found, shape)]
        found = min((_fitted(cells, each, shape) for each in starts), key=lambda one: one.cost)
        yield found


def price(cells: Cells, shape: CellShape, count: int) -> float:
    """What the parameters of so many components must gain."""
    return shape.parameters(count, cells.widths.size) * math.log(max(cells.rows, 2.0))


def hides_halves(cells: Cells, found: InPlane, shape: CellShape) -> float:
    """The largest part of all rows that would pass for one component where it is two halves.

    Halves that are three of their deviations apart, along the component's longest axis: what they
    change in the cells is less than what a component more must gain. 0 where there are none.
    """
    count = found.weights.size
    wanted = price(cells, shape, count + 1) - price(cells, shape, count)
    whole, each, _ = _expected(cells, found)
    hidden = 0.0
    for k in range(count):
        values, turn = np.linalg.eigh(found.covariances[k])
        step = turn[:, -1] * math.sqrt(values[-1]) * 3.0 / math.sqrt(13.0)
        left = found.covariances[k] - np.outer(step, step)
        if shape.round:
            left = np.eye(values.size) * values[-1] * 4.0 / 13.0
        root = np.linalg.cholesky(left)
        halves = InPlane(
            np.full(2, found.weights[k] / 2),
            found.means[k] + np.stack([step, -step]),
            np.stack([root] * 2),
        )
        one = found.weights[k] * each[k].sum(axis=1)
        changed = (_expected(cells, halves)[0] - one) ** 2 / (whole + cells.noise**2 + 1.0)
        if changed.sum() < wanted:
            hidden = max(hidden, float(found.weights[k]))
    return hidden


def _begun(cells: Cells, shape: CellShape, count: int) -> InPlane:
    """Clusters of the cells that hold rows for certain."""
    held = np.maximum(cells.counts - _HELD * cells.noise, 0.0)
    if np.count_nonzero(held) < count:
        held = np.maximum(cells.counts - cells.counts.min(), 0.0) + 1e-9
    own = clusters(cells.middles, held, count, np.random.default_rng(count))
    means, weights = averages(cells.middles, held, own)
    apart = (cells.middles - means[own]) * np.sqrt(held / held.sum())[:, None]
    within = apart.T @ apart + np.diag(cells.widths**2) / 12.0
    if shape.round:
        within = np.eye(within.shape[0]) * np.trace(within) / within.shape[0]
    root = np.linalg.cholesky(within)
    return InPlane(weights, means, np.repeat(root[None], weights.size, axis=0))


def _one_more(cells: Cells, found: InPlane, shape: CellShape) -> Iterator[InPlane]:
    """A component where most is left over, and each of the widest cut in two."""
    left = (cells.counts - _expected(cells, found)[0]) / cells.noise
    typical = np.tensordot(found.weights, found.roots, axes=1)
    if not shape.shared:
        typical = 0.5 * typical
    near = np.linalg.solve(typical, cells.middles.T)
    squares = np.sum((near[:, :, None] - near[:, None, :]) ** 2, axis=0)
    seen = np.exp(-0.5 * squares) @ left
    place = cells.middles[int(np.argmax(seen))]
    share = 1.0 / (found.weights.size + 1)
    yield InPlane(
        np.append(found.weights * (1.0 - share), share),
        np.vstack([found.means, place]),
        np.concatenate([found.roots, typical[None]]),
    )
    sizes = found.weights * np.linalg.norm(found.covariances, axis=(1, 2))
    widest = int(np.argmax(sizes))
    values, turn = np.linalg.eigh(found.covariances[widest])
    step = turn[:, -1] * math.sqrt(values[-1]) * 0.8
    weights = np.append(found.weights, found.weights[widest] / 2)
    weights[widest] /= 2
    means = np.vstack([found.means, found.means[widest] + step])
    means[widest] -= step
    root = found.roots[widest] * (0.7 if not shape.shared else 1.0)
    roots = np.concatenate([found.roots, root[None]])
    roots[widest] = root
    yield InPlane(weights, means, roots)


def _expected(cells: Cells, found: InPlane) -> tuple[Array, Array, Array]:
    """Expected counts; densities (K, m, p) at the points, times the measure; scaled steps there."""
    points = cells.points
    apart = points[None] - found.means[:, None, None, :]
    inverses = np.linalg.inv(found.roots)
    scaled = np.einsum("kij,kmpj->kmpi", inverses, apart)
    logs = -0.5 * np.sum(scaled**2, axis=-1) - 0.5 * points.shape[-1] * math.log(2 * math.pi)
    logs -= np.log(np.abs(np.diagonal(found.roots, axis1=1, axis2=2))).sum(axis=1)[:, None, None]
    each = np.exp(logs) * (cells.measure / points.shape[1])
    return np.asarray(np.einsum("k,kmp->m", found.weights, each)), each, scaled


def _cost(cells: Cells, expected: Array) -> float:
    variance = expected + cells.noise**2 + 1.0
    return float(np.sum((cells.counts - expected) ** 2 / variance + np.log(variance)))


def _slopes(found: InPlane, shape: CellShape, each: Array, scaled: Array) -> Array:
    """Of expected counts (m, P): in weights' logarithms, means, and roots."""
    count, directions = found.means.shape
    of = found.weights[:, None, None] * each
    inverses = np.linalg.inv(found.roots)
    of_logs = of.sum(axis=2)
    whole = of_logs.sum(axis=0)
    # weights are shares of their exponentials
    parts = [of_logs.T - whole[:, None] * found.weights]
    # d log density / d mean = L^-T scaled
    turned = np.einsum("kji,kmpj->kmpi", inverses, scaled)
    parts.append(np.einsum("kmp,kmpi->mki", of, turned).reshape(-1, count * directions))
    # along L (I + E): d log density = scaled' E scaled - trace E, E lower triangular
    rows, columns = np.tril_indices(directions)
    outer = scaled[..., rows] * scaled[..., columns] - (rows == columns)
    of_roots = np.einsum("kmp,kmpe->mke", of, outer)
    if shape.round:
        of_roots = of_roots[..., rows == columns].sum(axis=2, keepdims=True)
    if shape.shared:
        of_roots = of_roots.sum(axis=1, keepdims=True)
    parts.append(of_roots.reshape(whole.size, -1))
    return np.concatenate(parts, axis=1)


def _stepped(found: InPlane, shape: CellShape, step: Array, narrowest: Array) -> InPlane:
    count, directions = found.means.shape
    logs = np.log(found.weights) + np.clip(step[:count], -1.0, 1.0)
    weights = np.exp(logs - logs.max())
    weights = np.maximum(weights / weights.sum(), _LEAST_WEIGHT)
    moved = step[count : count * (1 + directions)].reshape(count, directions)
    far = np.linalg.norm(np.linalg.solve(found.roots, moved[..., None])[..., 0], axis=1)
    moved = moved * np.minimum(1.0, 1.5 / np.maximum(far, 1e-300))[:, None]
    rest = step[count * (1 + directions) :]
    rows, columns = np.tril_indices(directions)
    change = np.zeros((1 if shape.shared else count, directions, directions))
    if shape.round:
        change[:] = rest.reshape(-1, 1, 1) * np.eye(directions)
    else:
        change[:, rows, columns] = rest.reshape(-1, rows.size)
    change = np.clip(change, -0.5, 0.5)
    places = np.arange(directions)
    change[:, places, places] = np.exp(change[:, places, places]) - 1.0
    roots = found.roots + found.roots @ change
    roots[:, places, places] = np.maximum(roots[:, places, places], narrowest)
    return InPlane(weights / weights.sum(), found.means + moved, roots)


def _narrowest(cells: Cells, shape: CellShape) -> Array:
    """Least deviations that cells show, along each direction."""
    widths = np.full_like(cells.widths, cells.widths.max()) if shape.round else cells.widths
    return np.asarray(_NARROWEST * widths)


def _fitted(cells: Cells, found: InPlane, shape: CellShape) -> InPlane:
    """The nearest best components: damped steps of Gauss and Newton."""
    narrowest = _narrowest(cells, shape)
    expected, each, scaled = _expected(cells, found)
    cost, damping = _cost(cells, expected), _DAMPING
    fisher = None
    for _ in range(_STEPS):
        slopes = _slopes(found, shape, each, scaled)
        variance = expected + cells.noise**2 + 1.0
        weighted = slopes / variance[:, None]
        fisher = slopes.T @ weighted
        size = np.maximum(np.diagonal(fisher), 1e-9 * np.max(np.diagonal(fisher)))
        gradient = weighted.T @ (cells.counts - expected)
        better = False
        while damping < 1e6:
            step = np.asarray(np.linalg.solve(fisher + damping * np.diag(size), gradient), float)
            tried = _stepped(found, shape, step, narrowest)
            new, new_each, new_scaled = _expected(cells, tried)
            new_cost = _cost(cells, new)
            if new_cost < cost:
                better = cost - new_cost > _ENDS
                found, expected, each, scaled, cost = tried, new, new_each, new_scaled, new_cost
                damping = max(damping / 5.0, 1e-6)
                break
            damping *= 4.0
        if not better:
            break
    assert fisher is not None
    return replace(found, cost=cost, error=_error(found, fisher))


def _error(found: InPlane, fisher: Array) -> Array:
    """Covariance of weights and means, whatever the covariances are."""
    size = np.maximum(np.diagonal(fisher), 1e-300)
    scale = np.sqrt(size)
    # logarithms of weights are known up to their sum
    whole = np.linalg.pinv(fisher / np.outer(scale, scale), rcond=1e-8, hermitian=True)
    whole = whole / np.outer(scale, scale)
    count = found.weights.size
    turn = np.eye(whole.shape[0])
    turn[:count, :count] = np.diag(found.weights) - np.outer(found.weights, found.weights)
    whole = turn @ whole @ turn.T
    return np.asarray(whole[: count + found.means.size, : count + found.means.size])


# -- Weighted points in clusters: k-means, which costs nothing where points were released.


def averages(points: Array, counts: Array, own: NDArray[np.intp]) -> tuple[Array, Array]:
    size = int(own.max()) + 1
    held = np.bincount(own, counts, minlength=size)
    sums = np.zeros((size, points.shape[1]))
    np.add.at(sums, own, points * counts[:, None])
    return sums / held[:, None], held / held.sum()


def clusters(
    points: Array, counts: Array, count: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """The cluster of each point, of the best of many restarts of k-means with these weights."""
    best, lowest = np.zeros(points.shape[0], dtype=np.intp), math.inf
    squares = np.sum(points**2, axis=1)
    for _ in range(_RESTARTS if count > 1 else 1):
        chosen = [int(rng.choice(counts.size, p=counts / counts.sum()))]
        nearest = np.full(counts.size, np.inf)
        while len(chosen) < count:
            last = points[chosen[-1]]
            nearest = np.minimum(nearest, np.sum((points - last) ** 2, axis=1))
            far = nearest * counts
            if far.sum() <= 0:
                break
            chosen.append(int(rng.choice(counts.size, p=far / far.sum())))
        centers = points[chosen]
        for _ in range(_MOVES):
            distances = squares[:, None] - 2 * points @ centers.T + np.sum(centers**2, axis=1)
            own = np.unique(np.argmin(distances, axis=1), return_inverse=True)[1]
            again, _ = averages(points, counts, own)
            if again.shape == centers.shape and np.allclose(again, centers, rtol=0, atol=1e-9):
                break
            centers = again
        cost = float(counts @ np.sum((points - centers[own]) ** 2, axis=1))
        if cost < lowest:
            best, lowest = own, cost
    return best
