"""What the audits of published algorithms share: worst-case neighbours, and statistics of runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eigenveil.audit.case import Case, ClaimedLoss, FloatArray, Randomness, Samples
from eigenveil.privacy.accountant import classic_sigma
from eigenveil_papers import published
from eigenveil_papers.published.orthogonal import (
    Moments,
    PublishedTensor,
    Sensitivities,
    gaussian_sensitivities,
)

EPSILON, DELTA = 1.0, 0.01
# Of pair and triple moments together; half of it is a step's, where the calibration is proved.
TENSOR_EPSILON = 2.0
SQRT2 = math.sqrt(2.0)

Draw = Callable[[published.PublishedMoment, np.random.Generator], float]


def mu_claim(epsilon: float, delta: float, whence: str) -> ClaimedLoss:
    """Of the classic calibration: its own sensitivity over its own deviation."""
    mu = 1.0 / classic_sigma(1.0, epsilon, delta, reproduction=True)
    return ClaimedLoss(epsilon=epsilon, delta=delta, mu=mu, whence=whence)


def published_case(
    mechanism: str, name: str, claim: ClaimedLoss, *, times: float | None = None, **fields: Any
) -> Case:
    """Of one row that is replaced, run by run; the loss is so many ``times`` the claimed mu."""
    if times is not None:
        assert claim.mu is not None
        fields["truth"] = times * claim.mu
    usual = {
        "group": "published",
        "adjacency": "replace-one",
        "sampling": "the published function, run by run",
        "covers": (mechanism.replace("-", "_"),),
    }
    return Case(mechanism=mechanism, name=name, claim=claim, **usual | fields)


def moment(weights: list[float], rows: int) -> published.PublishedMoment:
    mean = np.diag(weights) / rows
    return published.PublishedMoment(mean=mean, rows=rows, row_bound=1.0, public_bound=True)


@dataclass(frozen=True)
class MomentAttack:
    """A statistic of what an algorithm releases for two second moments, run by run."""

    first: published.PublishedMoment
    second: published.PublishedMoment
    draw: Draw

    def sample(self, trials: int, randomness: Randomness) -> Samples:
        return Samples(
            *(
                np.fromiter((self.draw(data, randomness.rng) for _ in range(trials)), float, trials)
                for data in (self.first, self.second)
            )
        )


def diagonal(matrix: FloatArray) -> float:
    """Along the difference of two axes' rows."""
    return float(matrix[0, 0] - matrix[1, 1])


# Tensors: the whitening is the pair moment's, and with all directions it is the pair moment

TENSOR_ROWS = 600


def tensor_moments(data: published.PublishedMoment) -> tuple[Moments, Sensitivities]:
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


def two_axes() -> tuple[published.PublishedMoment, published.PublishedMoment]:
    """Rows along two axes, half along each, and one of them replaced by one along the other."""
    half = TENSOR_ROWS / 2
    return moment([half, half], TENSOR_ROWS), moment([half - 1, half + 1], TENSOR_ROWS)


def crossed_axes(rows: int) -> tuple[published.PublishedMoment, published.PublishedMoment]:
    """Rows half along each of two axes' bisectors, and one replaced by one along the other's."""
    across = np.array([[0.0, 1.0], [1.0, 0.0]])
    first = moment([rows / 2] * 2, rows)
    return first, replace(first, mean=first.mean + across / rows)


class _Probe(np.random.Generator):
    """A generator whose normal draws are all 0, but for one that is 1 (times its scale)."""

    def __init__(self, which: int | None = None) -> None:
        super().__init__(np.random.PCG64(0))
        self.which, self.drawn = which, 0

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        found = np.zeros(size)
        if self.which is not None and 0 <= self.which - self.drawn < found.size:
            found.flat[self.which - self.drawn] = 1.0
        self.drawn += found.size
        return loc + scale * found


@dataclass(frozen=True)
class GaussianView:
    """What an adversary sees of a protocol whose messages are linear in its normal draws.

    Nothing about the noise is told to it: the protocol runs once for each of its draws, with that
    draw 1 and all others 0, which gives the matrix J of ``view = exact + J z``. The shortest z that
    looks like the step from one data set to the other is the mu of the view, and ``(J J')^+ step``
    are the weights of the likelihood ratio.
    """

    # Of a data set and a generator: all numbers that the adversary has in the end
    run: Callable[[Any, np.random.Generator], FloatArray]
    first: Any
    second: Any

    @cached_property
    def _solved(self) -> tuple[float, FloatArray]:
        count = _Probe()
        exact = self.run(self.first, count).ravel()
        step = self.run(self.second, _Probe()).ravel() - exact
        columns = [self.run(self.first, _Probe(i)).ravel() - exact for i in range(count.drawn)]
        noise = np.stack(columns, axis=1)
        like = np.linalg.pinv(noise, rcond=1e-9)
        z = like @ step
        seen = np.allclose(noise @ z, step, rtol=0.0, atol=1e-9 * np.abs(step).max())
        return (float(np.linalg.norm(z)) if seen else math.inf), like.T @ z

    @property
    def mu(self) -> float:
        """Exactly how far apart the view's two laws are."""
        return self._solved[0]

    def statistic(self, view: FloatArray) -> FloatArray:
        """The likelihood ratio's, of a view or of many along a further axis at the end."""
        weights = self._solved[1]
        return np.asarray(weights @ view.reshape(weights.size, -1))

    def sample(self, trials: int, randomness: Randomness) -> Samples:
        return Samples(
            *(
                np.concatenate(
                    [self.statistic(self.run(data, randomness.rng)) for _ in range(trials)]
                )
                for data in (self.first, self.second)
            )
        )
