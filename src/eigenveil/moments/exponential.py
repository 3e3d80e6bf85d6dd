"""The exponential mechanism for directions: exact Bingham vectors, one after the other.

Component j is drawn with density ``exp(u' A u / scale)`` on the unit sphere of what the earlier
components leave (Kapralov & Talwar 2013; Amin et al. 2019); each draw is a release of its own, and
the record counts them.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.release import Release
from eigenveil.noise.bingham import bingham_vector
from eigenveil.noise.source import RandomSource, of_one_release
from eigenveil.privacy.releases import ReleaseRecord


def release_vectors(
    accumulator: Accumulator, record: ReleaseRecord, source: RandomSource
) -> Release:
    """Draw ``record.draws`` vectors, shape (K, D), from an exact second moment.

    They are released rounded to the record's grid and so are orthonormal up to that: the exact
    double-precision values would give away the eigenvectors they were made from.
    """
    grid = record.noise.grid
    assert record.noise.kind == "bingham"
    assert grid is not None
    moment = np.ldexp(accumulator.integers().astype(np.float64), accumulator.grid)
    moment /= record.noise.scale
    vectors = sequential_bingham(moment, record.draws, of_one_release(source))
    return Release(record=record, values=np.ldexp(np.rint(np.ldexp(vectors, -grid)), grid))


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
