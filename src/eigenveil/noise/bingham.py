"""Exact Bingham vectors by rejection (Kent, Ganeiber & Mardia 2013): no Markov chain.

Target density ``exp(-u' A u)`` on the unit sphere of R^q, envelope the angular central Gaussian
``(u' Om u)^(-q/2)`` with ``Om = I + 2 A / b``. A proposal is kept with probability
``exp(-u' A u) (u' Om u)^(+q/2) / M``, ``M = exp(-(q-b)/2) (q/b)^(q/2)``, where b solves
``sum 1 / (b + 2 a_i) = 1``. The power is PLUS q/2 (privacy.md, section 7).
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import brentq

from eigenveil.errors import PrivacyError
from eigenveil.noise.draws import log_uniform, standard_normal
from eigenveil.noise.sampler import ChoiceSampler
from eigenveil.noise.source import RandomSource

_MOST_VALUES_A_BATCH = 1 << 20


class BinghamSampler(ChoiceSampler):
    """Of :class:`eigenveil.privacy.mechanisms.bingham.Bingham`."""

    def chosen(
        self, exponent: NDArray[np.float64], count: int, source: RandomSource
    ) -> NDArray[np.float64]:
        return sequential_bingham(exponent, count, source)


def sequential_bingham(
    exponent: NDArray[np.float64], count: int, source: RandomSource
) -> NDArray[np.float64]:
    """Orthonormal rows, each of density ``exp(u' exponent u)`` given the ones before."""
    size = exponent.shape[0]
    basis = np.eye(size)  # orthonormal columns that span what is left
    seen = np.array(exponent)  # the exponent in that basis
    vectors = np.empty((count, size))
    for index in range(count):
        energies, axes = scipy.linalg.eigh(seen, check_finite=False)
        # signs that processors' libraries choose: of every axis the largest entry is positive
        axes *= np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0))
        direction = axes @ bingham_vector(energies, source)
        vectors[index] = basis @ direction
        # the reflection that swaps the direction with the first axis turns the other axes into a
        # basis of what is left
        mirror = direction.copy()
        mirror[0] += math.copysign(1.0, direction[0])
        mirror /= np.linalg.norm(mirror)
        seen = _reflected(_reflected(seen, mirror).T, mirror)[1:, 1:]
        basis = _reflected(basis, mirror)[:, 1:]
    return vectors


def _reflected(matrix: NDArray[np.float64], mirror: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix times the reflection ``I - 2 mirror mirror'``."""
    return np.asarray(matrix - np.outer(matrix @ (2.0 * mirror), mirror))


def bingham_vector(energies: NDArray[np.float64], source: RandomSource) -> NDArray[np.float64]:
    """One unit vector of density ``exp(sum_i energies_i u_i^2)`` in the eigenbasis."""
    a = float(np.max(energies)) - np.asarray(energies, dtype=np.float64)
    q = a.size
    if q == 1:
        sign = 1.0 if int(source.words(1)[0]) & 1 else -1.0
        return np.array([sign])
    b = envelope_scale(a)
    tries = expected_tries_bound(q)
    batch = max(1, min(int(4 * tries) + 1, _MOST_VALUES_A_BATCH // q))
    omega = 1.0 + 2.0 * a / b
    log_m = -(q - b) / 2 + (q / 2) * np.log(q / b)
    # by Markov and independence, 200 times the expected tries all fail with chance below 1e-80
    for _ in range(1 + int(200 * tries) // batch):
        y = standard_normal(batch * q, source).reshape(batch, q) / np.sqrt(omega)
        u = y / np.linalg.norm(y, axis=1, keepdims=True)
        squares = u * u
        log_keep = -(squares @ a) + (q / 2) * np.log(squares @ omega) - log_m
        kept = np.flatnonzero(log_uniform(batch, source) < log_keep)
        if kept.size:
            return np.asarray(u[kept[0]])
    raise RuntimeError("the Bingham sampler rejects far more than its bound: a defect")


def envelope_scale(a: NDArray[np.float64]) -> float:
    """The b in (0, q] with ``sum 1 / (b + 2 a_i) = 1``; a is non-negative with a zero entry."""
    q = float(a.size)

    def excess(b: float) -> float:
        return float(np.sum(1.0 / (b + 2.0 * a))) - 1.0

    if excess(q) >= 0:  # a = 0 up to rounding: uniform on the sphere
        return q
    return float(brentq(excess, 1e-3, q, xtol=1e-14))


def expected_tries_bound(q: int) -> float:
    """What the expected proposals for one vector in R^q stay below, whatever the data."""
    # worst where every direction but one is concentrated: about sqrt(e q / 2), measured in the
    # tests; of q alone, so that how long to try shows nothing about rows
    return 1.5 * float(np.sqrt(2.0 * q)) + 2.0


# Some minutes.
_MOST_WORK = 1e12


def check_feasible(features: int, components: int) -> None:
    # an eigendecomposition a component, measured at about features**3 quarter nanoseconds
    work = components * float(features) ** 3
    if work > _MOST_WORK:
        raise PrivacyError("bingham-hopeless", components=components, features=features, work=work)


SAMPLER = BinghamSampler()
