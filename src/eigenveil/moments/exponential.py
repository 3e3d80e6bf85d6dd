"""The exponential mechanism for directions: exact Bingham vectors, one after the other.

Component j is drawn with density ``exp(u' A u / scale)`` on the unit sphere of what the earlier
components leave (Kapralov & Talwar 2013; Amin et al. 2019); each draw is a release of its own, and
the record counts them.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.release import Release
from eigenveil.noise.bingham import bingham_vector
from eigenveil.noise.source import RandomSource
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
    vectors = sequential_bingham(moment, record.draws, source)
    return Release(record=record, values=np.ldexp(np.rint(np.ldexp(vectors, -grid)), grid))


def sequential_bingham(
    exponent: NDArray[np.float64], count: int, source: RandomSource
) -> NDArray[np.float64]:
    """Orthonormal rows, each of density ``exp(u' exponent u)`` given the ones before."""
    size = exponent.shape[0]
    rest = np.eye(size)  # orthonormal columns: a basis of what is left
    vectors = np.empty((count, size))
    for index in range(count):
        seen = rest.T @ exponent @ rest
        energies, axes = scipy.linalg.eigh(seen, overwrite_a=True, check_finite=False)
        coordinates = axes @ bingham_vector(energies, source)
        vectors[index] = rest @ coordinates
        if index + 1 < count:
            # complete the drawn direction to a basis; its other columns span what is left
            full, _ = np.linalg.qr(coordinates[:, None], mode="complete")
            rest = rest @ full[:, 1:]
    return vectors
