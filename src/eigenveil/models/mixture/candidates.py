"""Components of any shape, found from sums about many candidates (post-processing).

Candidates are drawn from the released second moment. Rows count for the nearest one, so that the
sums show how many rows are where: a summary of the data which is clustered again and again at no
cost.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.mixture.em import (
    EMStep,
    MixtureComponents,
    Spectrum,
    positive,
    positive_diagonal,
)
from eigenveil.models.mixture.plan import CovarianceType

Array = NDArray[np.float64]

# Variance of a candidate, as a part of the rows': so small that a row counts for the nearest one.
_NEAREST = 0.02
# A candidate with fewer rows than so many deviations of their noise is drawn anew, or left out.
_EMPTY, _SMALL = 2.0, 1.0
_RESTARTS, _STEPS = 30, 30
# Of the rows' covariance, what is left within components at least.
_WITHIN = 0.25


def candidates(spectrum: Spectrum, count: int) -> MixtureComponents:
    """Candidates to begin with; public, but for the spectrum."""
    features = spectrum.basis.shape[0]
    rng = np.random.default_rng(features)
    return _nearest(spectrum, spectrum.drawn(count, rng))


def _nearest(spectrum: Spectrum, means: Array) -> MixtureComponents:
    count, features = means.shape
    variance = max(_NEAREST * spectrum.trace / features, 1e-12)
    return MixtureComponents(
        means=means,
        weights=np.full(count, 1.0 / count),
        covariances=np.full(count, variance),
        kind="spherical",
        counts=np.ones(count),
    )


def next_candidates(
    found: MixtureComponents, step: EMStep, spectrum: Spectrum
) -> MixtureComponents:
    """Candidates where their rows are; those without rows are drawn anew."""
    features = spectrum.basis.shape[0]
    rng = np.random.default_rng(features + 1)
    means = spectrum.shrunk(found.means + step.shifts, step.shift_noise)
    fresh = spectrum.drawn(means.shape[0], rng)
    there = step.counts > _EMPTY * step.count_noise
    return _nearest(spectrum, np.where(there[:, None], means, fresh))


def clustered(
    found: MixtureComponents,
    step: EMStep,
    spectrum: Spectrum,
    *,
    rows: float,
    components: int,
    auto: bool,
    kind: CovarianceType,
) -> MixtureComponents:
    """As many components as are wanted, or as describe the candidates best.

    Their covariance is what is left of the rows' between components.
    """
    points = spectrum.shrunk(found.means + step.shifts, step.shift_noise)
    counts = np.maximum(step.counts - _SMALL * step.count_noise, 0.0)
    if not np.any(counts > 0):
        counts = np.ones_like(counts)
    points, counts = points[counts > 0], counts[counts > 0]
    most = min(components, points.shape[0])
    rng = np.random.default_rng(most)
    if auto:
        tried = [_clusters(points, counts, k, rng) for k in range(1, most + 1)]
        costs = [_description(points, counts, own, spectrum, rows) for own in tried]
        own = tried[int(np.argmin(costs))]
    else:
        own = _clusters(points, counts, most, rng)
    means, weights = _averages(points, counts, own)
    variance = spectrum.trace - float(weights @ np.sum(means**2, axis=1))
    covariances = _within(spectrum, means, weights, kind, max(variance, _WITHIN * spectrum.trace))
    return MixtureComponents(
        means=means,
        weights=weights,
        covariances=covariances,
        kind=kind,
        counts=weights * counts.sum(),
        count_noise=step.count_noise,
    )


def _averages(points: Array, counts: Array, own: NDArray[np.intp]) -> tuple[Array, Array]:
    size = int(own.max()) + 1
    held = np.bincount(own, counts, minlength=size)
    sums = np.zeros((size, points.shape[1]))
    np.add.at(sums, own, points * counts[:, None])
    return sums / held[:, None], held / held.sum()


def _clusters(
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
        for _ in range(_STEPS):
            distances = squares[:, None] - 2 * points @ centers.T + np.sum(centers**2, axis=1)
            own = np.unique(np.argmin(distances, axis=1), return_inverse=True)[1]
            again, _ = _averages(points, counts, own)
            if again.shape == centers.shape and np.allclose(again, centers, rtol=0, atol=1e-9):
                break
            centers = again
        cost = float(counts @ np.sum((points - centers[own]) ** 2, axis=1))
        if cost < lowest:
            best, lowest = own, cost
    return best


def _description(
    points: Array, counts: Array, own: NDArray[np.intp], spectrum: Spectrum, rows: float
) -> float:
    """How badly clusters with one common covariance describe the points (BIC, Schwarz 1978).

    In the plane of the spectrum.
    """
    means, weights = _averages(points @ spectrum.basis, counts, own)
    between = (means.T * weights) @ means
    within = np.diag(spectrum.energies + spectrum.bulk) - between
    floor = _WITHIN * (spectrum.energies + spectrum.bulk).min()
    values = np.maximum(np.linalg.eigvalsh(within), max(floor, 1e-300))
    free = weights.size * (means.shape[1] + 1)
    entropy = -float(weights @ np.log(weights))
    fit = rows * (entropy + 0.5 * float(np.log(values).sum()))
    return float(fit + 0.5 * free * math.log(rows))


def _within(
    spectrum: Spectrum, means: Array, weights: Array, kind: CovarianceType, variance: float
) -> Array:
    """The covariance that is left within components, the same for each."""
    features, count = spectrum.basis.shape[0], weights.size
    if kind == "spherical":
        return np.full(count, variance / features)
    if kind == "diag":
        whole = (spectrum.basis**2) @ spectrum.energies + spectrum.bulk
        own = np.maximum(whole - weights @ means**2, _WITHIN * whole)
        return np.repeat(positive_diagonal(own[None], np.zeros(1)), count, axis=0)
    matrix = (spectrum.basis * spectrum.energies) @ spectrum.basis.T
    matrix[np.diag_indices(features)] += spectrum.bulk
    # what is left is measured against all: no direction keeps less than a part of what it had
    values, turn = np.linalg.eigh(matrix)
    root = np.sqrt(np.maximum(values, 1e-12))
    seen = means @ turn / root
    left, own_turn = np.linalg.eigh(np.eye(features) - (seen.T * weights) @ seen)
    left = np.maximum(left, _WITHIN)
    half = (turn * root) @ own_turn
    own_matrix = positive(((half * left) @ half.T)[None], np.zeros(1))
    return own_matrix[0] if kind == "tied" else np.repeat(own_matrix, count, axis=0)
