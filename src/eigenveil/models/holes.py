"""Missing entries: what released counts of observed ones correct (tables.md, section 3).

A missing entry is the centre's, so that a second moment of rows with holes has ``p_j p_k`` of what
it should have in entry (j, k), and ``p_j`` on its diagonal, p_j the share of rows that have column
j (Lounici, High-dimensional covariance matrix estimation with missing observations, 2014). All of
it is post-processing of releases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import edge_of_variances, leading_eigenpairs
from eigenveil.moments.release import Release

Array = NDArray[np.float64]

# A column that fewer rows have is corrected as if these had it.
_LEAST_SHARE = 0.05
# How far to correct, and how many draws of noise decide it.
_POWERS, _DRAWS, _MOST_FOR_DRAWS = (0.0, 0.25, 0.5, 0.75, 1.0), 3, 200


@dataclass(frozen=True)
class Observed:
    """Released counts of observed entries, of columns or of pairs."""

    counts: Array
    error: float  # Standard deviation of the noise of each

    @classmethod
    def of(cls, release: Release) -> Observed:
        return cls(release.values, release.record.noise.deviation(release.record.noise.size))

    def shares(self, rows: float) -> Array:
        """The share of rows that have each column, shape (D,), from 0.05 to 1.

        Drawn towards their mean as far as noise may be what sets them apart.
        """
        counts = np.diag(self.counts) if self.counts.ndim == 2 else self.counts
        found, error = counts / rows, self.error / rows
        mean, spread = float(np.mean(found)), float(np.var(found))
        apart = max(0.0, 1.0 - error**2 / spread) if spread > 0 else 0.0
        shares: Array = np.clip(mean + apart * (found - mean), _LEAST_SHARE, 1.0)
        return shares

    def kept(self, rows: float) -> Array:
        """What holes leave of a second moment, entry by entry, shape (D, D)."""
        shares = self.shares(rows)
        kept = np.multiply.outer(shares, shares)
        if self.counts.ndim == 2:  # of pairs as far as they differ from that by more than noise
            found = np.clip(self.counts / rows, _LEAST_SHARE**2, 1.0)
            spread = float(np.mean((found - kept) ** 2))
            apart = max(0.0, 1.0 - (self.error / rows) ** 2 / spread) if spread > 0 else 0.0
            kept += apart * (found - kept)
        np.fill_diagonal(kept, shares)
        return kept


@dataclass(frozen=True)
class Corrected:
    """A second moment without the effect of holes."""

    matrix: Array
    edge: float  # What noise alone shows of its eigenvalues
    kept: Array  # What the holes had left of each entry
    released: Array  # As it was

    def energies(self, directions: Array) -> Array:
        """Energy along each direction, shape (K, D), corrected as far as it goes.

        A correction that goes less far has better directions, and their energies too even.
        """
        whole = self.released / self.kept
        found = np.einsum("kd,de,ke->k", directions, whole, directions)
        return np.asarray(np.maximum(0.0, found))

    def seen(self, directions: Array) -> Array:
        """Energy along each direction, of rows as they were meant, over that of rows with holes.

        ``directions``: shape (K, D). From 1 up.
        """
        whole = np.einsum("kd,de,ke->k", directions, self.matrix, directions)
        holed = np.einsum("kd,de,ke->k", directions, self.matrix * self.kept, directions)
        most = 1.0 / float(np.min(self.kept))
        ratio = np.divide(whole, holed, out=np.ones_like(whole), where=holed > 0)
        return np.asarray(np.clip(ratio, 1.0, most))

    @property
    def seen_in_all(self) -> float:
        """The same of all directions together."""
        diagonal = np.maximum(np.diag(self.matrix), 0.0)
        holed = float(diagonal @ np.diag(self.kept))
        return float(np.sum(diagonal)) / holed if holed > 0 else 1.0


def corrected(matrix: Array, edge: float, kept: Array, *, components: int) -> Corrected:
    """A released second moment, corrected as far as that costs less than it mends.

    Dividing by what is left multiplies noise too, unequally. So the correction is taken to one of
    a few powers, tried in draws of noise about the corrected matrix itself, as far as that stands
    above its own noise: the power whose leading directions have most of the energy, or, where all
    are wanted, the one that is nearest.
    """
    size = matrix.shape[0]
    truth = _above_noise(matrix / kept, _edge(edge, 1.0 / kept))
    power = _POWERS[0]
    if truth is not None:
        rng = np.random.default_rng(size)  # public, and the same at every place
        energies = np.zeros(len(_POWERS))
        holed, scale = truth * kept, edge / (2.0 * np.sqrt(size))
        for _ in range(_DRAWS if size <= _MOST_FOR_DRAWS else 1):
            noise = rng.standard_normal((size, size)) * scale
            drawn = holed + (noise + noise.T) / np.sqrt(2.0)
            for index, each in enumerate(_POWERS):
                again = _divided(drawn, kept, each)
                energies[index] += _worth(again, truth, components)
        power = _POWERS[int(np.argmax(energies))]
    found = _divided(matrix, kept, power)
    # the energy of rows without holes, whatever the power
    whole, own = float(np.trace(matrix / kept)), float(np.trace(found))
    size_of = whole / own if whole > 0 and own > 0 else 1.0
    factors = size_of * _divided(np.ones_like(kept), kept, power)
    return Corrected(found * size_of, _edge(edge, factors), kept, matrix)


def _worth(found: Array, truth: Array, components: int) -> float:
    """How good a matrix is in place of the true one: more is better."""
    if components == truth.shape[0]:
        trace = float(np.trace(found))
        size = float(np.trace(truth)) / trace if trace > 0 else 1.0
        return -float(np.sum((found * size - truth) ** 2))
    directions = leading_eigenpairs(found, components)[1]
    return float(np.einsum("kd,de,ke->", directions, truth, directions))


def _divided(matrix: Array, kept: Array, power: float) -> Array:
    """Entries over what is left of them to a power; without one, as they are.

    On the diagonal, of which p_j is left where pairs have p_j p_k, the excess goes as well.
    """
    if power == 0:
        return matrix
    found: Array = matrix / kept**power
    shares = np.diag(kept)
    np.fill_diagonal(found, np.diag(matrix) * shares ** (1.0 - 2.0 * power))
    return found


def scores_of_observed(residuals: Array, components: Array, ridge: Array | None = None) -> Array:
    """Scores of rows with holes: least squares on the columns that each row has.

    ``ridge``, shape (K,), is what squares of the scores cost beside those of the residuals.
    """
    there = ~np.isnan(residuals)
    products = (components[:, None, :] * components[None, :, :]).reshape(-1, components.shape[1])
    count = components.shape[0]
    grams = (there.astype(np.float64) @ products.T).reshape(-1, count, count)
    if ridge is not None:
        grams += np.diag(ridge)
    known = np.where(there, residuals, 0.0) @ components.T
    inverses = np.linalg.pinv(grams, rcond=1e-9, hermitian=True)
    return np.asarray(np.einsum("nij,nj->ni", inverses, known))


def _edge(edge: float, factors: Array) -> float:
    """Largest eigenvalue of noise whose entries were multiplied by factors."""
    each = edge**2 / (4.0 * factors.shape[0])  # variance of an entry that is as all others
    return edge_of_variances(each * factors**2)


def _above_noise(matrix: Array, edge: float) -> Array | None:
    """A matrix as far as its eigenvalues stand above an edge; ``None`` where none does."""
    values, vectors = np.linalg.eigh(matrix)
    some = values > edge
    if not some.any():
        return None
    hidden = values[~some]
    rest = max(0.0, float(np.mean(hidden))) if hidden.size else 0.0
    return np.asarray((vectors * np.where(some, values, rest)) @ vectors.T)
