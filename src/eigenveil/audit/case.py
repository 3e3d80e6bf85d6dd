"""One audited mechanism: what is claimed, who attacks it, and how outputs are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.source import RandomSource, SecureSource, SeededSource
from eigenveil.privacy.accountant import delta_of_mu
from eigenveil.privacy.guarantee import Adjacency

FloatArray = NDArray[np.float64]
Group = Literal["sound", "published"]


class Randomness:
    """Where a case's outputs get their noise from: the operating system, or a seed."""

    def __init__(self, seed: np.random.SeedSequence | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.source: RandomSource = SecureSource() if seed is None else SeededSource(self.rng)


class Samples(NamedTuple):
    """The adversary's statistic of independent outputs on either data set, both (n,)."""

    first: FloatArray
    second: FloatArray


@dataclass(frozen=True, kw_only=True)
class ClaimedLoss:
    epsilon: float
    delta: float
    # The Gaussian-DP claim. Of a published algorithm, that of its own calculation: the sensitivity
    # it states over the deviation it draws.
    mu: float | None = None
    # Whether the whole curve of delta against epsilon is that of `mu`, or follows from epsilon and
    # delta alone
    exact: bool = False
    whence: str  # Who claims it

    def curve(self, epsilons: FloatArray) -> FloatArray:
        """The delta claimed at each epsilon, at most.

        Below the claimed epsilon it is that of randomised response, which no mechanism with the
        claim exceeds (Kairouz, Oh & Viswanath 2015).
        """
        if self.mu is not None and self.exact:
            return np.array([delta_of_mu(self.mu, float(e)) for e in epsilons])
        top = math.exp(min(self.epsilon, 700.0))
        below = np.maximum(0.0, (top - np.exp(np.minimum(epsilons, 700.0))) / (1.0 + top))
        return np.asarray(self.delta + (1.0 - self.delta) * below)


@dataclass(frozen=True, kw_only=True)
class Witness:
    """An event that refutes a claim by itself: how likely on the first data set, and why.

    On the second it cannot happen. It is "the statistic is below ``below``".
    """

    what: str
    chance: float
    below: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism on worst-case neighbours, before one adversary."""

    name: str  # Of this case alone
    mechanism: str  # The family of cases it belongs to, such as `"second-moment"` or `"cape"`
    title: str  # For tables and figures, short
    group: Group  # Whether the claim is this package's own
    adjacency: Adjacency
    view: str = "outsider"  # The adversary
    test: str  # The adversary's statistic
    sampling: str  # Which code draws the outputs
    claim: ClaimedLoss
    sample: Callable[[int, Randomness], Samples]  # `sample(trials, randomness) -> Samples`
    # The loss that a proof gives, of Gaussian mechanisms as mu, else as epsilon, where it is not
    # the claim
    truth: float | None = None
    share: float = 1.0  # Part of the trials that are drawn, for slow mechanisms
    witness: Witness | None = None
    # What of the package this case stands for: pairs "statistic/noise", or published names
    covers: tuple[str, ...] = field(default=())

    @property
    def gaussian(self) -> bool:
        return self.claim.mu is not None


def joined(parts: list[Samples]) -> Samples:
    return Samples(
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.second for part in parts]),
    )
