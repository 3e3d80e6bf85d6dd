"""The rows that papers 000 and 001 made up for their PCA experiments, and directions by chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import orthonormal_basis

FloatArray = NDArray[np.float64]


def made_up_variances(
    rng: np.random.Generator, *, features: int = 200, components: int = 50
) -> FloatArray:
    """Variances of the features, shape (D,): K from 10 down to 1, the others uniform up to 0.5.

    The papers say "a pre-determined covariance matrix" and no more. That K of them are large, and
    not 20 whatever K is, follows from the authors' stored curves: a random subspace of 50 of 200
    dimensions holds 0.286 of the best one's energy there, which is what these variances give (with
    20 large ones it would be 0.31), and the first 13, 25 and 38 directions hold what these do.
    """
    leading = np.linspace(10.0, 1.0, components)
    return np.concatenate([leading, rng.uniform(0.0, 0.5, features - components)])


def made_up_rows(*, rows: int, features: int = 200, components: int = 50) -> FloatArray:
    """Gaussian rows of mean zero, shape (n, D): one data set, the same at every call.

    Its axes are the features' own, as those of the Cholesky factor of a diagonal matrix are.
    """
    rng = np.random.default_rng(1804)
    deviations = np.sqrt(made_up_variances(rng, features=features, components=components))
    return np.asarray(rng.standard_normal((rows, features)) * deviations)


def random_directions(features: int, count: int, rng: np.random.Generator) -> FloatArray:
    """Orthonormal rows (count, features) that know nothing of the data.

    They stand for the answer of a private fit that finds too few rows and returns nothing.
    """
    return np.asarray(orthonormal_basis(rng.standard_normal((features, count))).T)
