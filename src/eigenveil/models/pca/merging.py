"""What two releases of a second moment say together (post-processing)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eigenveil.linalg.eigen import edge_of_variances
from eigenveil.models.pca.denoise import judged
from eigenveil.models.pca.precondition import BIAS, Array, Preconditioner, equaliser

# Spread, in the logarithm, of what another normalisation does to all energies alike.
_LEVELS = 0.5


# Noise is taken to be no less than this part of what was released.
_LEAST_NOISE = 1e-12


@dataclass(frozen=True)
class MergedMoments:
    """Two releases as one matrix."""

    # The average of both by the precision of each entry: the second moment of the first one's rows,
    # and noise
    mean: Array
    # The same, less the noise that can be told apart where that is judged to be better. Take the
    # components of this one.
    matrix: Array
    edge: float  # Largest eigenvalue that noise alone shows


def once(matrix: Array, edge: float, *, components: int) -> MergedMoments:
    """One release alone, whose noise has this edge."""
    half = edge / math.sqrt(float(matrix.shape[0]))  # two releases with this error are as good
    return merged(matrix, half, None, matrix, half, components=components)


def merged(
    first: Array,
    error: float,
    how: Preconditioner | None,
    second: Array,
    later_error: float,
    *,
    components: int,
) -> MergedMoments:
    """Both releases, entry by entry by precision, in the first one's units."""
    size = max(float(np.max(np.abs(first), initial=0.0)), error) or 1.0
    one, other = max(error / size, _LEAST_NOISE), later_error / size
    other = min(max(other, _LEAST_NOISE), 1.0 / _LEAST_NOISE)
    if how is None:
        part = one**2 / (one**2 + other**2)
        basis: Array | None
        mean = first / size + part * (second / size - first / size)
        variances = np.full(first.shape, 0.5 * part * other**2)
        basis = None
    else:
        energies = how.energies / size
        mean, variances = _averaged(first / size, one, how, energies, second / size, other)
        basis = how.vectors
    edge = edge_of_variances(variances)
    clean = judged(mean, basis, variances, components=components).matrix
    return MergedMoments(mean * size, 0.5 * (clean + clean.T) * size, edge * size)


def _averaged(
    first: Array,
    error: float,
    how: Preconditioner,
    energies: Array,
    second: Array,
    later_error: float,
) -> tuple[Array, Array]:
    """The average by precision, and the variances of its entries off the diagonal in Q."""
    squared = how.weights**2
    r = how.resolved
    before = how.vectors.T @ first @ how.vectors
    level, apart = equaliser(energies, squared, how.bound, how.growth)
    if r:  # what both know of the spectrum says how far it is from that of normal rows
        strong = np.maximum(np.diag(before)[:r], 1e-300)
        diagonal = np.diag(second)[:r] / squared[:r]
        seen = np.maximum(diagonal, 1e-12 * float(np.max(np.abs(diagonal))) + 1e-300)
        log = np.log(np.clip(strong / seen / level[:r], 0.05, 20.0))
        var = (error / strong) ** 2 + np.minimum((later_error / squared[:r] / seen) ** 2, 1e6)
        common, own = float(np.sum(log / var) / np.sum(1 / var)), float(1 / np.sum(1 / var))
        common *= _LEVELS**2 / (_LEVELS**2 + own)
        left = log - common
        spread = max(float(np.mean(left**2 / var) - 1.0) / float(np.mean(1 / var)), 1e-6)
        level *= math.exp(common)
        level[:r] *= np.exp(left * spread / (spread + var))
    root = np.sqrt(level) / how.weights
    factor = np.multiply.outer(root, root)
    noise = 0.5 * (later_error * factor) ** 2
    noise += apart * (BIAS + 1.0 / how.rows) * np.multiply.outer(energies, energies)
    both = 0.5 * error**2
    variances = both * noise / (both + noise)
    mean = before + both / (both + noise) * (second * factor - before)
    found = how.vectors @ mean @ how.vectors.T
    return 0.5 * (found + found.T), variances
