"""From a released second moment of scaled columns to that of columns of variance 1.

Scales that come from histograms, or from public ranges, are off by a third or so. The released
moment's diagonal knows the columns' variances better, and costs nothing more (tables.md, section
2). Rows that were divided by their norms bring variances nearer to one another, by a function of
the eigenvalues that is known for elliptical data and is inverted first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.models.explained import MeanLeft, of_whole_rows, shrunk

Array = NDArray[np.float64]

# Variance that relative variances of columns in scales of histograms have before the moment is
# looked at; what its noise hides is shrunk towards 1 accordingly.
_KNOWN_BEFORE = 0.36
# Eigenvalues are taken to be no less than this part of their mean where their map is inverted.
_LEAST = 1e-6


@dataclass(frozen=True)
class Correlation:
    """What a moment shows of columns of variance 1."""

    # By which the scales of columns are to be multiplied, up to a common factor; 1 where a column
    # has none
    factors: Array
    components: Array  # Leading directions of columns in these scales
    strengths: Array  # Energy of the rows along them, as the moment shows it
    edge: float  # What noise alone shows of that, of whatever direction
    total: float  # Energy of all
    left: MeanLeft | None  # The mean that was left in the rows, in these scales


def correlation_of(
    matrix: Array,
    *,
    scaled: NDArray[np.bool_],
    covariates: NDArray[np.bool_],
    components: int,
    edge: float,
    error: float,
    rows: float,
    unit_rows: bool,
    left: MeanLeft | None,
) -> Correlation:
    """Leading directions of the correlations of columns."""
    places = np.flatnonzero(scaled)
    size, own = places.size, matrix[np.ix_(places, places)]
    values, vectors = np.linalg.eigh(own)
    signal = np.maximum(shrunk(values, edge), _LEAST * rows / size)
    ratios = np.ones(size)
    if unit_rows:
        ratios = of_whole_rows(signal / rows, size) * rows / signal
    whole = (vectors * (values * ratios)) @ vectors.T
    variances, noise = np.diag(whole), error * float(ratios[0])
    mean = float(np.mean(variances))
    squares = np.ones(size)
    if mean > noise:
        part = noise / mean
        weight = _KNOWN_BEFORE / (_KNOWN_BEFORE + part * part)
        squares = np.maximum(part, 1.0 + weight * (variances / mean - 1.0))
    own_factors = np.sqrt(squares)
    inverse = 1.0 / own_factors
    # noise is taken off the eigenvalues before the directions are found
    clean = ((vectors * (signal * ratios)) @ vectors.T) * np.multiply.outer(inverse, inverse)
    count = min(components, size)
    found = leading_eigenpairs(clean, count)[1]
    seen = found * inverse
    strengths = np.einsum("ki,ij,kj->k", seen, whole, seen)
    directions = np.zeros((components, matrix.shape[0]))
    directions[:count, places] = found
    for index, column in enumerate(np.flatnonzero(~scaled & ~covariates)[: components - count]):
        directions[count + index, column] = 1.0  # there are no more directions
    factors = np.ones(matrix.shape[0])
    factors[places] = own_factors
    return Correlation(
        factors,
        directions,
        np.append(strengths, np.zeros(components - count)),
        edge * float(ratios[0]) * edge_growth(inverse * inverse),
        float(np.sum(variances / squares)),
        None if left is None else _rescaled(left, places, inverse),
    )


def edge_growth(variances: Array) -> float:
    """How much larger the edge of symmetric noise is whose entries are multiplied.

    Entry (i, j) by ``sqrt(variances_i variances_j)``, variances of shape (D,). With those, t, the
    edge of noise of edge 2 s is the least ``y s sqrt(mean(t / (y - t)))`` over y above the largest
    t: where the self-consistent equation of its resolvent, ``u^2 = s^2 mean(t / (y - t))`` at
    ``z = y u``, ceases to have a real solution. It is 2 s where all are 1.
    """
    top = float(np.max(variances))
    places = top * (1.0 + np.exp(np.linspace(-12.0, 8.0, 400)))
    means = np.mean(variances / (places[:, None] - variances), axis=1)
    return 0.5 * float(np.min(places * np.sqrt(means)))


def _rescaled(left: MeanLeft, places: NDArray[np.intp], inverse: Array) -> MeanLeft:
    error = left.error * math.sqrt(float(np.mean(inverse * inverse)))
    return replace(left, total=left.total[places] * inverse, error=error)
