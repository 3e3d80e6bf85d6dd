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

from eigenveil.models.mixture.cells import averages, clusters
from eigenveil.models.mixture.covariances import (
    WITHIN,
    Covariances,
    Innovation,
    SphericalCovariances,
)
from eigenveil.models.mixture.scores import Known
from eigenveil.models.mixture.shrinkage import Spectrum, gain_of
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

# Deviations of a component's squared norms beyond their mean to which rows are kept.
_REACH = 2.0
# Covariances about a mean that moves by more than this part of its reach are not learnt.
_FAR = 0.5
# Counts are taken for no less than so many deviations of their noise.
_LEAST_COUNT = 4.0
# One in a hundred components that are not there shows a count above so many deviations.
_CLEARLY = 2.33
# Components nearer than so many of their common deviations may be one cluster cut in two.
_TWO_HALVES = 3.0
# A mean may be off by this part of the way to the next one.
_NEAR = 0.35
# Variance of a candidate, as a part of the rows': so small that a row counts for the nearest one.
_NEAREST = 0.02
# A candidate with fewer rows than so many deviations of their noise is drawn anew, or left out.
_EMPTY, _SMALL = 2.0, 1.0


@dataclass(frozen=True)
class MixtureComponents:
    """A mixture that was released, and how well it is known."""

    means: Array
    weights: Array  # They add up to 1; none is 0
    covariances: Covariances
    counts: Array  # Released numbers of rows, which noise can make negative
    count_noise: float = 0.0  # Their standard deviation
    mean_noise: Array | None = None  # What an entry of each mean may be off


def as_mixture(found: MixtureComponents) -> Mixture:
    """The components as rows are compared with them."""
    factors, logs = found.covariances.whitening()
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
    squares = found.covariances.traces + _REACH * np.sqrt(2.0 * found.covariances.squared_traces)
    return np.clip(np.sqrt(squares), 2.0 * SMALLEST_REACH, FARTHEST_MEAN)


def _kept(found: MixtureComponents) -> Array:
    """The part of Gaussian rows' squares that is left when they are shortened, shape (K,).

    Squared norms are taken for Gamma variables with the mean and the variance that they have.
    """
    mean, variance = found.covariances.traces, 2.0 * found.covariances.squared_traces
    shape, most = mean**2 / variance, reaches(found) ** 2 * mean / variance
    inside = scipy.special.gammainc(shape + 1.0, most)
    return np.asarray(inside + most / shape * scipy.special.gammaincc(shape, most))


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


def moved(
    found: MixtureComponents,
    step: EMStep,
    *,
    as_they_are: bool = False,
    spectrum: Spectrum | None = None,
    known: Known | None = None,
) -> MixtureComponents:
    """The components after a step; covariances that are public stay ``as_they_are``.

    Means are off by more in directions in which rows are farther apart: so far as the ``spectrum``
    of the rows is known, or by what is ``known`` of their start.
    """
    gain = gain_of(step.shifts, step.shift_noise)
    weights = step.held / step.held.sum()
    if known is not None:
        shifts, gain = known.kept(step.shifts, step.shift_noise)
        weights = known.weighed(found.weights, weights, step.count_noise / step.held.sum())
    elif spectrum is None:
        shifts = gain[:, None] * step.shifts
    else:
        shifts, gain = spectrum.part_of(step.shifts, step.shift_noise, gain)
    if as_they_are:
        covariances = found.covariances
    else:
        seen = Innovation(step.squares, step.square_noise, shifts, weights)
        # rows that were shortened show where a mean lies, and no longer how far they are from it
        far = np.linalg.norm(shifts, axis=1) > _FAR * reaches(found)
        covariances = found.covariances.but(found.covariances.learnt(seen), far)
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


def told_apart(
    found: MixtureComponents, known: NDArray[np.bool_], *, asked: int = 1
) -> NDArray[np.bool_]:
    """Which components show more rows than noise would, and stand apart from all others.

    A component that is not there has a count of noise alone; two that are one have means as far
    apart as noise alone puts them. Either shows once in a hundred times. A mean that noise may have
    moved by much of the way to another one is not known. And two halves of one
    Gaussian cluster are 2.65 of their common deviations apart: components must be farther, but for
    those that are ``known`` to be there from other moments. One alone is all rows, and no cluster
    where several were ``asked`` for.
    """
    count, features = found.means.shape
    there = found.counts > _CLEARLY * found.count_noise
    noise = np.zeros(count) if found.mean_noise is None else found.mean_noise
    far = features + _CLEARLY * math.sqrt(2.0 * features)
    apart = np.zeros(count, dtype=bool)
    # all rows: there is nothing to tell apart
    alone = count == 1 == asked and not found.covariances.by_moments
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
    common = found.covariances.common([one, other], part)
    if common.ndim < 2:
        return math.sqrt(float(np.sum(step**2 / common)))
    return math.sqrt(float(step @ np.linalg.solve(common, step)))


# -- components of any shape, from sums about candidates drawn from the released second moment
#
# Rows count for the nearest candidate, so that the sums show how many rows are where: a summary of
# the data which is clustered again and again at no cost.


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
        covariances=SphericalCovariances(np.full(count, variance), count, features),
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
    shape: type[Covariances],
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
        tried = [clusters(points, counts, k, rng) for k in range(1, most + 1)]
        costs = [_description(points, counts, own, spectrum, rows) for own in tried]
        own = tried[int(np.argmin(costs))]
    else:
        own = clusters(points, counts, most, rng)
    means, weights = averages(points, counts, own)
    return MixtureComponents(
        means=means,
        weights=weights,
        covariances=shape.within(spectrum, means, weights),
        counts=weights * counts.sum(),
        count_noise=step.count_noise,
    )


def _description(
    points: Array, counts: Array, own: NDArray[np.intp], spectrum: Spectrum, rows: float
) -> float:
    """How badly clusters with one common covariance describe the points (BIC, Schwarz 1978).

    In the plane of the spectrum.
    """
    means, weights = averages(points @ spectrum.basis, counts, own)
    between = (means.T * weights) @ means
    within = np.diag(spectrum.energies + spectrum.bulk) - between
    floor = WITHIN * (spectrum.energies + spectrum.bulk).min()
    values = np.maximum(np.linalg.eigvalsh(within), max(floor, 1e-300))
    free = weights.size * (means.shape[1] + 1)
    entropy = -float(weights @ np.log(weights))
    fit = rows * (entropy + 0.5 * float(np.log(values).sum()))
    return float(fit + 0.5 * free * math.log(rows))
