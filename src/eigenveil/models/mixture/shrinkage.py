"""What of a released sum is not noise (empirical Bayes), and what rows are known to be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.tensors.whitening import PairMoment

Array = NDArray[np.float64]

# Points are drawn a little nearer to the centre than rows are.
_NEARER = 0.8
# No direction of a component has less than this part of its average variance, nor than this part
# of what noise adds to one.
_LEAST_PART, _LEAST_NOISE = 0.02, 0.5


@dataclass(frozen=True)
class Spectrum:
    """The released second moment of prepared rows about their centre, per row."""

    basis: Array
    energies: Array
    bulk: float  # What every direction has beside these

    @classmethod
    def of(cls, pair: PairMoment, rows: float) -> Spectrum:
        energies, turn = np.linalg.eigh(pair.core)
        return cls(pair.basis @ turn, energies / rows, pair.bulk / rows)

    @property
    def trace(self) -> float:
        return float(self.energies.sum() + self.basis.shape[0] * self.bulk)

    def drawn(self, count: int, rng: np.random.Generator) -> Array:
        """Points of this second moment, without the bulk, shape (count, D)."""
        normal = rng.standard_normal((count, self.energies.size))
        return np.asarray(_NEARER * normal * np.sqrt(self.energies) @ self.basis.T)

    def shrunk(self, points: Array, noise: Array) -> Array:
        """Points (m, D) with noise of these deviations an entry, by what points can be."""
        variance = noise[:, None] ** 2
        along = points @ self.basis
        kept = (self.energies + self.bulk) / (self.energies + self.bulk + variance)
        rest = self.bulk / (self.bulk + variance + 1e-300)
        return np.asarray(rest * points + (along * (kept - rest)) @ self.basis.T)

    def part_of(self, shifts: Array, noise: Array, gain: Array) -> tuple[Array, Array]:
        """What of shifts (m, D) is not noise, if they are as the rows are apart.

        ``gain`` is the part of their energy that is not noise. Returned with the average part that
        is left of an entry.
        """
        energy = gain * np.mean(shifts**2, axis=1) / (self.trace / shifts.shape[1])
        along = energy[:, None] * (self.energies + self.bulk)
        off = energy[:, None] * self.bulk
        kept = along / (along + noise[:, None] ** 2 + 1e-300)
        rest = off / (off + noise[:, None] ** 2 + 1e-300)
        found = rest * shifts + ((shifts @ self.basis) * (kept - rest)) @ self.basis.T
        directions, features = self.energies.size, shifts.shape[1]
        average = (np.sum(kept**2, axis=1) + (features - directions) * rest[:, 0] ** 2) / features
        return np.asarray(found), np.sqrt(average)


def gain_of(innovations: Array, noise: Array | float) -> Array:
    """The part of innovations (m, ...) that is not noise of these deviations, shape (m,)."""
    energy = np.mean(innovations**2, axis=tuple(range(1, innovations.ndim)))
    return np.asarray(np.maximum(energy - np.square(noise), 0.0) / np.maximum(energy, 1e-300))


def two_levels(old: Array, seen: Array, noise: Array, weights: Array) -> tuple[Array, Array]:
    """What all components have in common is learnt first, then what each has of its own.

    With it the noise that is left in an entry of each, shape (K,).
    """
    common = np.tensordot(weights, seen - old, axes=1)[None]
    all_noise = np.array([math.sqrt(float(np.sum((weights * noise) ** 2)))])
    average = np.tensordot(weights, old, axes=1)[None]
    shared, left = learnt(average, average + common, all_noise)
    new, own = learnt(old + (shared - average), seen, noise)
    return new, np.hypot(own, left)


def learnt(old: Array, seen: Array, noise: Array) -> tuple[Array, Array]:
    """Variances or covariances (m, ...) moved to those that were seen with noise, and what is left.

    By less than what minimises the error of entries where noise has directions with more than the
    average variance: a small variance that is off decides where rows belong.
    """
    count, features = old.shape[0], old.shape[-1]
    matrices = old.ndim == 3
    variances = np.trace(old, axis1=1, axis2=2) / features if matrices else old.mean(axis=1)
    edge = noise * (2.0 * math.sqrt(features) if matrices else 1.0)
    gain = gain_of(seen - old, noise) / (1.0 + edge / np.maximum(variances, 1e-300))
    return old + gain.reshape(count, *(1,) * (old.ndim - 1)) * (seen - old), gain * noise


def positive_diagonal(new: Array, noise: Array) -> Array:
    """Variances (m, D) none of which is below what can be told from noise."""
    average = np.maximum(new.mean(axis=1), noise)
    least = np.maximum(_LEAST_PART * average, _LEAST_NOISE * noise)
    return np.asarray(np.maximum(new, np.maximum(least, 1e-12)[:, None]))


def positive(matrices: Array, noise: Array) -> Array:
    """Symmetric matrices (m, D, D) without eigenvalues below what can be told from noise."""
    features = matrices.shape[1]
    values, turns = np.linalg.eigh(matrices)
    edges = noise * math.sqrt(4.0 * features)
    average = np.maximum(values.mean(axis=1), edges)
    least = np.maximum(np.maximum(_LEAST_PART * average, _LEAST_NOISE * edges), 1e-12)
    values = np.maximum(values, least[:, None])
    return np.asarray((turns * values[:, None, :]) @ turns.transpose(0, 2, 1))
