"""What the audits of published algorithms share: second moments, statistics of runs, claims."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eigenveil import published
from eigenveil.audit.case import Claim, FloatArray, Randomness, Samples
from eigenveil.privacy.gaussian import classic_sigma
from eigenveil.published.orthogonal import (
    Moments,
    PublishedTensor,
    Sensitivities,
    gaussian_sensitivities,
)

EPSILON, DELTA = 1.0, 0.01
# Of pair and triple moments together; half of it is a step's, where the calibration is proved.
TENSOR_EPSILON = 2.0
SQRT2 = math.sqrt(2.0)

RUN_BY_RUN = "the published function, run by run"

Draw = Callable[[published.SecondMoment, np.random.Generator], float]


def moment(weights: list[float], rows: int) -> published.SecondMoment:
    """The second moment of so many rows, ``weights`` of them along each axis."""
    mean = np.diag(weights) / rows
    return published.SecondMoment(mean=mean, rows=rows, row_bound=1.0, public_bound=True)


@dataclass(frozen=True)
class MomentAttack:
    """A statistic of what an algorithm releases for two second moments, run by run."""

    first: published.SecondMoment
    second: published.SecondMoment
    draw: Draw

    def sample(self, trials: int, randomness: Randomness) -> Samples:
        """Statistics of independent runs."""
        return Samples(
            *(
                np.fromiter((self.draw(data, randomness.rng) for _ in range(trials)), float, trials)
                for data in (self.first, self.second)
            )
        )


def diagonal(matrix: FloatArray) -> float:
    """Along the difference of two axes' rows."""
    return float(matrix[0, 0] - matrix[1, 1])


def mu_claim(epsilon: float, delta: float, whence: str) -> Claim:
    """Of the classic calibration: its own sensitivity over its own deviation."""
    mu = 1.0 / classic_sigma(1.0, epsilon, delta, reproduction=True)
    return Claim(epsilon=epsilon, delta=delta, mu=mu, whence=whence)


# Tensors: the whitening is the pair moment's, and with all directions it is the pair moment

TENSOR_ROWS = 600


def tensor_moments(data: published.SecondMoment) -> tuple[Moments, Sensitivities]:
    """Of a mixture without noise of its own, the triple moment 0."""
    size = data.features
    return (
        Moments(data.mean, np.zeros((size, size, size))),
        gaussian_sensitivities(data.rows, size, 0.0),
    )


def pair_of(found: PublishedTensor) -> FloatArray:
    """The noisy pair moment that a result gives away: ``U D U'`` of ``W = U D^(-1/2)``."""
    colouring = found.whitening / np.sum(found.whitening**2, axis=0)
    return np.asarray(colouring @ colouring.T)


def two_axes() -> tuple[published.SecondMoment, published.SecondMoment]:
    """Rows along two axes, half along each, and one of them replaced by one along the other."""
    half = TENSOR_ROWS / 2
    return moment([half, half], TENSOR_ROWS), moment([half - 1, half + 1], TENSOR_ROWS)
