"""What a rival spends: Gaussian noise, and the exponential mechanism, out of one (epsilon, delta).

Plain floating point, for comparison only. The accounting is the most generous there is: all noise
is Gaussian in the geometry of the release (Frobenius norm for symmetric matrices), a release is
charged by mu squared exactly (Gaussian differential privacy), adjacency is add-remove.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.bingham import sequential_bingham
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.accountant import mu_of_epsilon

Array = NDArray[np.float64]

_ROUNDING = 1e-9


@dataclass
class Budget:
    """mu of an (epsilon, delta), and the part of its square that is left.

    Attributes
    ----------
    epsilon, delta, mu : float
        mu-Gaussian differential privacy is (epsilon, delta) differential privacy.
    left : float
        Fraction of mu squared, from 1 down to 0.
    """

    epsilon: float
    delta: float
    mu: float
    rng: np.random.Generator
    left: float = 1.0

    @classmethod
    def of(cls, epsilon: float, delta: float, rng: np.random.Generator) -> Budget:
        """The whole budget of a guarantee."""
        return cls(epsilon, delta, mu_of_epsilon(epsilon, delta), rng)

    def gaussian(self, exact: Array, sensitivity: float, share: float = 1.0) -> Array:
        """``exact`` plus independent noise; ``sensitivity`` is in the Euclidean norm."""
        deviation = self._spent(sensitivity, share)
        return self._released(exact, deviation, self.rng.standard_normal(exact.shape))

    def symmetric(self, exact: Array, sensitivity: float, share: float = 1.0) -> Array:
        """A symmetric matrix plus symmetric noise; ``sensitivity`` is in the Frobenius norm."""
        deviation = self._spent(sensitivity, share)
        noise = self.rng.standard_normal(exact.shape)
        return self._released(exact, deviation, (noise + noise.T) / 2)

    def directions(self, moment: Array, sensitivity: float, count: int) -> Array:
        """Orthonormal rows, one after the other, of density ``exp(rate u' moment u)``.

        Each draw is an exponential mechanism whose score grows by 0 to ``sensitivity`` with a row,
        so ``eta = rate sensitivity`` is its epsilon. It is ``eta**2 / 8``-zCDP (bounded range,
        Cesar & Rogers 2021); mu-GDP is ``mu**2 / 2``-zCDP, and the difference between the two is
        not charged. Where all of epsilon divided by the draws gives more, that is taken.
        """
        eta = max(2 * math.sqrt(self.left) * self.mu / math.sqrt(count), self.epsilon / count)
        self._spent(sensitivity, self.left)
        return self._drawn(moment * (eta / sensitivity), count)

    def disjoint(self, parts: int, share: float = 1.0) -> Iterator[Budget]:
        """A budget for each of some parts of the rows: no row is in two, so each gets it all."""
        self._spent(1.0, share)
        for _ in range(parts):
            yield replace(self, mu=self.mu * math.sqrt(share), left=1.0)

    def _spent(self, sensitivity: float, share: float) -> float:
        """The noise's standard deviation, after the share was taken off what is left."""
        if share > self.left + _ROUNDING:
            raise ValueError(f"a share of {share:g} of mu squared, but {self.left:g} is left")
        self.left = max(self.left - share, 0.0)
        return sensitivity / (self.mu * math.sqrt(share))

    def _released(self, exact: Array, deviation: float, noise: Array) -> Array:
        """What is seen; tests look at the exact value here."""
        return np.asarray(exact + deviation * noise)

    def _drawn(self, exponent: Array, count: int) -> Array:
        """As :meth:`_released`, for directions."""
        return sequential_bingham(exponent, count, SecureSource())
