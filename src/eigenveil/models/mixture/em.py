"""Steps of expectation maximisation from released sums (post-processing).

Everything is in units of prepared rows. A released sum measures how far each mean, and each
covariance, is off; what it shows is taken by the part of it that is not noise (empirical Bayes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy.special
from numpy.typing import NDArray

from eigenveil.models.mixture.plan import CovarianceType
from eigenveil.models.tensors.whitening import PairMoment
from eigenveil.moments.em import (
    COUNT_WEIGHT,
    FARTHEST_MEAN,
    LARGEST_FACTOR,
    LARGEST_LOG,
    PRODUCT_PART,
    SMALLEST_REACH,
    SQUARE_WEIGHT,
    Mixture,
)
from eigenveil.moments.exact import Squares
from eigenveil.moments.release import Release

Array = NDArray[np.float64]

# Points are drawn a little nearer to the centre than rows are.
_NEARER = 0.8
# Deviations of a component's squared norms beyond their mean to which rows are kept.
_REACH = 2.0
# Counts are taken for no less than so many deviations of their noise.
_LEAST_COUNT = 4.0
# No direction of a component has less than this part of its average variance, nor than this part
# of what noise adds to one.
_LEAST_PART, _LEAST_NOISE = 0.02, 0.5
# How far a component's scale may be off, as a part of it.
_SCALE_SPREAD = 0.5
# One in a hundred components that are not there shows a count above so many deviations.
_CLEARLY = 2.33
# Components nearer than so many of their common deviations may be one cluster cut in two.
_TWO_HALVES = 3.0
# A mean may be off by this part of the way to the next one.
_NEAR = 0.35


@dataclass(frozen=True)
class MixtureComponents:
    """A mixture that was released, and how well it is known."""

    means: Array
    weights: Array  # They add up to 1; none is 0
    covariances: Array  # As scikit-learn has them: spherical, diag, full, tied
    kind: CovarianceType
    counts: Array  # Released numbers of rows, which noise can make negative
    count_noise: float = 0.0  # Their standard deviation
    mean_noise: Array | None = None  # What an entry of each mean may be off

    @property
    def traces(self) -> Array:
        """Mean squared distance of rows from each mean, shape (K,)."""
        count, features = self.means.shape
        match self.kind:
            case "spherical":
                return np.asarray(features * self.covariances)
            case "diag":
                return np.asarray(self.covariances.sum(axis=1))
            case "full":
                return np.asarray(np.trace(self.covariances, axis1=1, axis2=2))
        return np.full(count, np.trace(self.covariances))

    @property
    def squared_traces(self) -> Array:
        """Traces of the squared covariances, shape (K,)."""
        count, features = self.means.shape
        squares = self.covariances**2
        match self.kind:
            case "spherical":
                return np.asarray(features * squares)
            case "diag":
                return np.asarray(squares.sum(axis=1))
            case "full":
                return np.asarray(squares.sum(axis=(1, 2)))
        return np.full(count, squares.sum())


def as_mixture(found: MixtureComponents) -> Mixture:
    """The components as rows are compared with them."""
    count, features = found.means.shape
    if found.kind in ("spherical", "diag"):
        each = found.covariances.reshape(count, -1)
        factors = 1.0 / np.sqrt(each)
        logs = np.log(factors).sum(axis=1) * (features if each.shape[1] == 1 else 1)
    else:
        whole = found.covariances if found.kind == "full" else found.covariances[None]
        values, turns = np.linalg.eigh(whole)
        factors = turns / np.sqrt(values)[:, None, :]
        logs = -0.5 * np.log(values).sum(axis=1)
        if found.kind == "tied":
            factors, logs = np.repeat(factors, count, axis=0), np.repeat(logs, count)
    longest = np.linalg.norm(found.means, axis=1)
    inside = FARTHEST_MEAN * (1 - 1e-9) / np.maximum(longest, FARTHEST_MEAN)
    return Mixture(
        means=found.means * np.where(longest < FARTHEST_MEAN, 1.0, inside)[:, None],
        logs=np.clip(np.log(found.weights) + logs, -LARGEST_LOG, LARGEST_LOG),
        factors=np.clip(factors, -LARGEST_FACTOR, LARGEST_FACTOR),
        reaches=reaches(found),
    )


def reaches(found: MixtureComponents) -> Array:
    """Distance from each mean to which rows are shortened, shape (K,): one for tied components."""
    squares = found.traces + _REACH * np.sqrt(2.0 * found.squared_traces)
    return np.clip(np.sqrt(squares), 2.0 * SMALLEST_REACH, FARTHEST_MEAN)


def _kept(found: MixtureComponents) -> Array:
    """The part of Gaussian rows' squares that is left when they are shortened, shape (K,).

    Squared norms are taken for Gamma variables with the mean and the variance that they have.
    """
    mean, variance = found.traces, 2.0 * found.squared_traces
    shape, most = mean**2 / variance, reaches(found) ** 2 * mean / variance
    inside = scipy.special.gammainc(shape + 1.0, most)
    return np.asarray(inside + most / shape * scipy.special.gammaincc(shape, most))


@dataclass(frozen=True)
class Spectrum:
    """The released second moment of prepared rows about their centre, per row."""

    basis: Array
    energies: Array
    bulk: float  # What every direction has beside these

    @classmethod
    def of(cls, pair: PairMoment, rows: float) -> Spectrum:
        energies, turn = np.linalg.eigh(pair.core)
        return cls(pair.basis @ turn, energies / rows, pair.bulk / rows)

    @property
    def trace(self) -> float:
        return float(self.energies.sum() + self.basis.shape[0] * self.bulk)

    def drawn(self, count: int, rng: np.random.Generator) -> Array:
        """Points of this second moment, without the bulk, shape (count, D)."""
        normal = rng.standard_normal((count, self.energies.size))
        return np.asarray(_NEARER * normal * np.sqrt(self.energies) @ self.basis.T)

    def shrunk(self, points: Array, noise: Array) -> Array:
        """Points (m, D) with noise of these deviations an entry, by what points can be."""
        variance = noise[:, None] ** 2
        along = points @ self.basis
        kept = (self.energies + self.bulk) / (self.energies + self.bulk + variance)
        rest = self.bulk / (self.bulk + variance + 1e-300)
        return np.asarray(rest * points + (along * (kept - rest)) @ self.basis.T)

    def part_of(self, shifts: Array, noise: Array, gain: Array) -> tuple[Array, Array]:
        """What of shifts (m, D) is not noise, if they are as the rows are apart.

        ``gain`` is the part of their energy that is not noise. Returned with the average part that
        is left of an entry.
        """
        energy = gain * np.mean(shifts**2, axis=1) / (self.trace / shifts.shape[1])
        along = energy[:, None] * (self.energies + self.bulk)
        off = energy[:, None] * self.bulk
        kept = along / (along + noise[:, None] ** 2 + 1e-300)
        rest = off / (off + noise[:, None] ** 2 + 1e-300)
        found = rest * shifts + ((shifts @ self.basis) * (kept - rest)) @ self.basis.T
        directions, features = self.energies.size, shifts.shape[1]
        average = (np.sum(kept**2, axis=1) + (features - directions) * rest[:, 0] ** 2) / features
        return np.asarray(found), np.sqrt(average)


@dataclass(frozen=True)
class EMStep:
    """What sums show: how far means are off, how many rows there are, squares about the means.

    ``squares`` is as the release has it, without weight; one entry of it has noise of deviation
    ``square_noise`` (that of a diagonal entry) for each component.
    """

    counts: Array
    count_noise: float
    held: Array
    shifts: Array
    shift_noise: Array
    squares: Array
    square_noise: Array


def read_sums(release: Release, found: MixtureComponents, squares: Squares) -> EMStep:
    """A released sum about these components."""
    count, features = found.means.shape
    noise = release.record.noise.deviation(release.values.size)
    values, reach = release.values, reaches(found)
    sums = values[: count * features].reshape(count, features)
    counts = values[count * features : count * (features + 1)] / COUNT_WEIGHT
    rest = values[count * (features + 1) :] / SQUARE_WEIGHT
    held = np.maximum(counts, _LEAST_COUNT * noise / COUNT_WEIGHT)
    if squares == "tied":
        scale = reach[:1] ** 2 / max(float(held.sum()), 1e-300) / _kept(found)[:1]
        whole = _symmetric(rest[None], features) * scale[:, None, None]
    else:
        scale = reach**2 / held / (1.0 if squares == "none" else _kept(found))
        match squares:
            case "none":
                whole = np.zeros((count, 0))
            case "full":
                whole = _symmetric(rest.reshape(count, -1), features) * scale[:, None, None]
            case _:
                whole = rest.reshape(count, -1) * scale[:, None]
    return EMStep(
        counts=counts,
        count_noise=noise / COUNT_WEIGHT,
        held=held,
        shifts=sums * (reach / held)[:, None],
        shift_noise=reach * noise / held,
        squares=whole,
        square_noise=noise / SQUARE_WEIGHT * scale,
    )


def _symmetric(triangles: Array, features: int) -> Array:
    """Matrices (m, D, D) of released triangles (m, D (D + 1) / 2)."""
    rows, columns = np.tril_indices(features)
    # products of two columns were released as a little less than sqrt(2) times themselves
    parts = np.where(rows == columns, 1.0, 1.0 / (PRODUCT_PART * math.sqrt(2.0)))
    whole = np.empty((triangles.shape[0], features, features))
    whole[:, rows, columns] = whole[:, columns, rows] = triangles * parts
    return whole


def _gain(innovations: Array, noise: Array | float) -> Array:
    """The part of innovations (m, ...) that is not noise of these deviations, shape (m,)."""
    energy = np.mean(innovations**2, axis=tuple(range(1, innovations.ndim)))
    return np.asarray(np.maximum(energy - np.square(noise), 0.0) / np.maximum(energy, 1e-300))


def moved(
    found: MixtureComponents,
    step: EMStep,
    *,
    variance: float | None = None,
    spectrum: Spectrum | None = None,
) -> MixtureComponents:
    """The components after a step.

    ``variance`` is public. Means are off by more in directions in which rows are farther apart: so
    far as the ``spectrum`` of the rows is known.
    """
    gain = _gain(step.shifts, step.shift_noise)
    if spectrum is None:
        shifts = gain[:, None] * step.shifts
    else:
        shifts, gain = spectrum.part_of(step.shifts, step.shift_noise, gain)
    weights = step.held / step.held.sum()
    if variance is not None:
        covariances = found.covariances
    else:
        covariances = _spread(found, step, shifts, weights)
    return replace(
        found,
        means=found.means + shifts,
        weights=weights,
        covariances=covariances,
        counts=step.counts,
        count_noise=step.count_noise,
        mean_noise=step.shift_noise * np.sqrt(np.maximum(gain, _unseen(found.means.shape[1]))),
    )


def _unseen(features: int) -> float:
    """What energy of a mean's error, in that of its noise, a sum does not show."""
    return min(1.0, _CLEARLY * math.sqrt(2.0 / features))


def _spread(found: MixtureComponents, step: EMStep, shifts: Array, weights: Array) -> Array:
    """Covariances of the kind that the components have, positive definite."""
    features = found.means.shape[1]
    match found.kind:
        case "spherical":
            # one number for each component: what it can be off is a part of it
            seen = (step.squares[:, 0] - np.vecdot(shifts, shifts)) / features
            noise, old = step.square_noise / features, found.covariances
            spread = (_SCALE_SPREAD * old) ** 2
            new = old + spread / (spread + noise**2) * (seen - old)
            return np.asarray(np.maximum(new, 0.1 * old))
        case "diag":
            old = found.covariances
            seen = step.squares - shifts**2
            return positive_diagonal(*_two_levels(old, seen, step.square_noise, weights))
        case "full":
            seen = step.squares - shifts[:, :, None] * shifts[:, None, :]
            # an entry of a matrix has on average half of a diagonal entry's variance
            noise = step.square_noise / math.sqrt(2.0)
            return positive(*_two_levels(found.covariances, seen, noise, weights))
    seen = (step.squares - (shifts.T * weights) @ shifts)[:1]
    noise = step.square_noise[:1] / math.sqrt(2.0)
    new, left = _learnt(found.covariances[None], seen, noise)
    return np.asarray(positive(new, left)[0])


def _two_levels(old: Array, seen: Array, noise: Array, weights: Array) -> tuple[Array, Array]:
    """What all components have in common is learnt first, then what each has of its own.

    With it the noise that is left in an entry of each, shape (K,).
    """
    common = np.tensordot(weights, seen - old, axes=1)[None]
    all_noise = np.array([math.sqrt(float(np.sum((weights * noise) ** 2)))])
    average = np.tensordot(weights, old, axes=1)[None]
    shared, left = _learnt(average, average + common, all_noise)
    new, own = _learnt(old + (shared - average), seen, noise)
    return new, np.hypot(own, left)


def _learnt(old: Array, seen: Array, noise: Array) -> tuple[Array, Array]:
    """Variances or covariances (m, ...) moved to those that were seen with noise, and what is left.

    By less than what minimises the error of entries where noise has directions with more than the
    average variance: a small variance that is off decides where rows belong.
    """
    count, features = old.shape[0], old.shape[-1]
    matrices = old.ndim == 3
    variances = np.trace(old, axis1=1, axis2=2) / features if matrices else old.mean(axis=1)
    edge = noise * (2.0 * math.sqrt(features) if matrices else 1.0)
    gain = _gain(seen - old, noise) / (1.0 + edge / np.maximum(variances, 1e-300))
    return old + gain.reshape(count, *(1,) * (old.ndim - 1)) * (seen - old), gain * noise


def positive_diagonal(new: Array, noise: Array) -> Array:
    """Variances (m, D) none of which is below what can be told from noise."""
    average = np.maximum(new.mean(axis=1), noise)
    least = np.maximum(_LEAST_PART * average, _LEAST_NOISE * noise)
    return np.asarray(np.maximum(new, np.maximum(least, 1e-12)[:, None]))


def positive(matrices: Array, noise: Array) -> Array:
    """Symmetric matrices (m, D, D) without eigenvalues below what can be told from noise."""
    features = matrices.shape[1]
    values, turns = np.linalg.eigh(matrices)
    edges = noise * math.sqrt(4.0 * features)
    average = np.maximum(values.mean(axis=1), edges)
    least = np.maximum(np.maximum(_LEAST_PART * average, _LEAST_NOISE * edges), 1e-12)
    values = np.maximum(values, least[:, None])
    return np.asarray((turns * values[:, None, :]) @ turns.transpose(0, 2, 1))


def told_apart(found: MixtureComponents, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which components show more rows than noise would, and stand apart from all others.

    A component that is not there has a count of noise alone; two that are one have means as far
    apart as noise alone puts them. Either shows once in a hundred times. A mean that noise may have
    moved by much of the way to another one is not known. And two halves of one
    Gaussian cluster are 2.65 of their common deviations apart: components must be farther, but for
    those that are ``known`` to be there from other moments. One alone may be all rows.
    """
    count, features = found.means.shape
    there = found.counts > _CLEARLY * found.count_noise
    noise = np.zeros(count) if found.mean_noise is None else found.mean_noise
    far = features + _CLEARLY * math.sqrt(2.0 * features)
    apart = np.zeros(count, dtype=bool)
    alone = count == 1 and found.kind != "spherical"  # all rows: there is nothing to tell apart
    for k in np.flatnonzero(there):
        others = np.flatnonzero(there & (np.arange(count) != k))
        whole, near = others.size > 0 or alone, False
        for other in others:
            step = found.means[k] - found.means[other]
            square, both = float(step @ step), float(noise[k] ** 2 + noise[other] ** 2)
            left = max(0.0, square - features * both)
            near |= features * noise[k] ** 2 > _NEAR**2 * left
            if found.weights[other] > found.weights[k]:
                near |= square <= far * both
            part = math.sqrt(left / max(square, 1e-300))
            whole &= part * _common_deviations(found, step, int(k), int(other)) >= _TWO_HALVES
        apart[k] = (whole or known[k]) and not near
    return np.asarray(apart)


def _common_deviations(found: MixtureComponents, step: Array, one: int, other: int) -> float:
    """Length of a step in deviations of two components together."""
    pair = found.weights[[one, other]]
    part = pair / pair.sum()
    if found.kind == "tied":
        common = found.covariances
    else:
        common = np.tensordot(part, found.covariances[[one, other]], axes=1)
    if common.ndim < 2:
        return math.sqrt(float(np.sum(step**2 / common)))
    return math.sqrt(float(step @ np.linalg.solve(common, step)))
