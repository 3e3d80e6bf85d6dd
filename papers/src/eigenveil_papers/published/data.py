"""The synthetic streams of paper 002: Synth(alpha), rows with a power-law spectrum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil_papers.published.cape_pca import FloatArray
from eigenveil_papers.published.orthogonal import (
    Moments,
    Sensitivities,
    gaussian_moments,
    gaussian_sensitivities,
    scaled_by_largest,
    smallest_variance,
)


def synth(
    alpha: float, *, features: int, rows: int, random_state: int | np.random.Generator | None = None
) -> NDArray[np.float64]:
    """Rows of Synth(alpha) (section 4.1, footnote 2): ``Y = U S V'`` with ``S_ii = i^-alpha``.

    U and V come from the QR factorisation of Gaussian matrices, so the directions are random. The
    singular values of *all* rows together are ``i^-alpha`` (0: a flat spectrum): rows are short
    (their squared norms add up to ``sum i^(-2 alpha)``), and must be scaled up before norms of 1
    mean anything.
    """
    if not (alpha >= 0 and math.isfinite(alpha)) or features < 1 or rows < 1:
        raise DataError("no-such-synth", alpha=alpha, rows=rows, features=features)
    rng = np.random.default_rng(random_state)
    rank = min(features, rows)
    directions, _ = np.linalg.qr(rng.standard_normal((features, features)))
    weights, _ = np.linalg.qr(rng.standard_normal((rows, rank)))
    strengths = np.arange(1, rank + 1, dtype=np.float64) ** -alpha
    return np.asarray((weights * strengths) @ directions[:, :rank].T)


# -- The synthetic data of paper 001's tensor experiments (section 6.2, figures 3 to 5).
#
# The data behind the published figures of mixtures differ from what the text says: see
# :func:`repeated_sites`.


SITES = 5
NOISE_VARIANCE = 0.05


def published_weights(count: int) -> FloatArray:
    """The weights 1, ..., 10 K in equal steps, divided by their sum."""
    steps = np.linspace(1, 10 * count, count)
    return np.asarray(steps / steps.sum())


def orthogonal_rows(count: int, size: int, rng: np.random.Generator) -> FloatArray:
    """Rows of a uniformly random orthogonal matrix, (count, size)."""
    basis, triangle = np.linalg.qr(rng.standard_normal((size, count)))
    return np.asarray((basis * np.sign(np.diagonal(triangle))).T)


@dataclass(frozen=True)
class MixtureLaw:
    """Spherical Gaussians: means (K, D), weights (K,) and the variance of each feature."""

    means: FloatArray
    weights: FloatArray
    noise_variance: float = NOISE_VARIANCE

    def rows(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Rows (count, D), not scaled."""
        drawn = rng.standard_normal((count, self.means.shape[1]))
        drawn *= np.sqrt(self.noise_variance)
        components = rng.choice(len(self.weights), size=count, p=self.weights)
        for number, mean in enumerate(self.means):
            drawn[components == number] += mean
        return drawn


@dataclass(frozen=True)
class Topics:
    """A single-topic model: the topics' distributions over words (K, D), and weights (K,)."""

    distributions: FloatArray
    weights: FloatArray

    def documents(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Three words for each document, (count, 3) integers."""
        topics = rng.choice(len(self.weights), size=count, p=self.weights)
        words = np.empty((count, 3), dtype=np.int64)
        for number, distribution in enumerate(self.distributions):
            chosen = topics == number
            shape = (int(chosen.sum()), 3)
            words[chosen] = rng.choice(distribution.size, size=shape, p=distribution)
        return words


def published_mixture(size: int, count: int, rng: np.random.Generator) -> MixtureLaw:
    """K means that are rows of a random orthogonal matrix (D = size, K = count)."""
    return MixtureLaw(orthogonal_rows(count, size, rng), published_weights(count))


def published_topics(size: int, count: int, rng: np.random.Generator) -> Topics:
    """The same rows, negative entries at zero, divided by their sum.

    Rows without a positive entry would be no distribution: then all are drawn anew.
    """
    while True:
        positive = np.maximum(orthogonal_rows(count, size, rng), 0.0)
        if positive.any(axis=1).all():
            break
    return Topics(positive / positive.sum(axis=1, keepdims=True), published_weights(count))


def repeated_sites(
    mixture: MixtureLaw, rows: int, rng: np.random.Generator
) -> tuple[list[Moments], Sensitivities]:
    """Moments of sites as the authors' generator has them, and the sensitivities of one of them.

    It never moves on to the next rows: all sites have the same ``rows / SITES``, and the
    non-private errors are those of so many rows (tests), not of all as printed. The noise variance
    is the smallest eigenvalue of a site's covariance; the text assumes it known.
    """
    share = rows // SITES
    scaled, _ = scaled_by_largest(mixture.rows(share, rng))
    variance = smallest_variance(scaled)
    sensitivities = gaussian_sensitivities(share, mixture.means.shape[1], variance)
    return [gaussian_moments(scaled, variance)] * SITES, sensitivities
