"""Explained variance of released components, and which of them stand above the noise.

Everything here is post-processing of releases. A component is usable where its strength exceeds
what noise, and what is left of the centre's error, show in all but one of a hundred fits; the floor
of the scree plot, the column of the table and ``usable_`` are one number (tables.md, section 2a).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from eigenveil.privacy.mechanisms import Mechanism

Array = NDArray[np.float64]

# Relative error that eigenvalues of shortened rows are taken to have as variances of rows.
_EIGENVALUE_ERROR = 0.2
# Shares of variance disagree beyond so many standard errors, and this part of the larger.
_APART, _MARGIN, _ENERGY_ERROR = 3.0, 0.05, 0.15
# Exceeded once in a hundred times: by a standard normal, and by the largest eigenvalue of a matrix
# of noise (Tracy and Widom's law of real symmetric matrices).
_NORMAL, _TRACY_WIDOM = 3.1, 3.3
# Shares of energy are taken to be no less, in rounds of the fixed point; places of the integral are
# even in the logarithm.
_MAP_CLOSE = 1e-3
_LEAST_SHARE, _MAP_ROUNDS, _STEP = 1e-9, 60, 0.2
_PLACES = np.exp(np.arange(-12.0, 30.0, _STEP))
# Neighbours whose variances come out equal are distinguished by no more than this part of the room.
_ROOM = 0.9


@dataclass(frozen=True)
class MeanLeft:
    """The mean that a noisy centre leaves in prepared rows: a direction they all share."""

    total: Array  # Released sum of the prepared rows
    error: float  # Standard deviation of its noise, a coordinate
    rows: float
    noise: Mechanism

    @property
    def share(self) -> float:
        """What to believe of the sum's energy: the part that noise alone would not show."""
        squared = float(self.total @ self.total)
        noise = self.total.size * self.error**2
        return max(0.0, squared - noise) / squared if squared > 0 else 0.0

    def outer(self, basis: Array | None = None) -> Array:
        """What it adds to the second moment, (D, D), or to that times ``basis``, (D, R)."""
        other = self.total if basis is None else self.total @ basis
        return np.multiply.outer(self.total * (self.share / self.rows), other)

    def averaged(self, other: MeanLeft, part: float) -> MeanLeft:
        """Of two releases of the same sum, with this part of their precision in the first."""
        total = part * self.total + (1.0 - part) * other.total
        return replace(self, total=total, error=self.error * math.sqrt(part))

    def remaining(self) -> float:
        """Largest eigenvalue that the mean can still have after that, but once in a hundred fits.

        The true sum is the released one less its noise z, of which the part along the released one
        and the squared length of the rest have known laws; they leave a matrix of rank two.
        """
        length = math.sqrt(float(self.total @ self.total))
        others = max(1, self.total.size - 1)
        across = self.error * math.sqrt(squared_length(others, others, noise=self.noise))
        true = length + _NORMAL * self.error  # along the released sum, at most
        own = true * true - self.share * length * length
        other, crossed = across * across, true * across
        top = 0.5 * (own + other) + math.hypot(0.5 * (own - other), crossed)
        return max(0.0, top) / self.rows


def strength_floor(edge: float, remaining: float, *, size: int) -> float:
    """What noise of this edge and a remaining mean show together, but once in a hundred fits."""
    return shown_beside(edge, remaining) + 0.5 * edge * _TRACY_WIDOM * math.pow(size, -2 / 3)


def shown_beside(edge: float, strength: float) -> float:
    """The largest eigenvalue of a direction of this strength, beside noise of this edge.

    A direction of strength theta shows as ``theta + s^2/theta`` beside noise of edge 2 s, and not
    at all where theta is below s (Benaych-Georges & Nadakuditi 2011).
    """
    s = 0.5 * edge
    return edge if strength <= s else strength + s * s / strength


def above_noise(strengths: Array, edge: float) -> Array:
    """What to keep of eigenvalues that were found beside noise of this edge; 0 at or below it.

    Noise of edge 2 s shows a direction of strength theta as ``theta + s^2/theta`` and turns its
    eigenvector so far that ``theta - s^2/theta = sqrt(y^2 - edge^2)`` of an observed y is the best
    to keep (Benaych-Georges & Nadakuditi 2011; Frobenius loss: Gavish & Donoho 2017).
    """
    above = np.maximum(strengths, edge)
    return np.asarray(np.sqrt((above - edge) * (above + edge)))


def shrunk(strengths: Array, edge: float) -> Array:
    """Eigenvalues of a symmetric matrix, given those of its sum with noise of this edge.

    Those at or below the edge cannot be told apart: all become their mean, at least 0, on top of
    which the others are (:func:`above_noise`).
    """
    hidden = strengths <= edge
    level = max(0.0, float(np.mean(strengths[hidden]))) if hidden.any() else 0.0
    return level + above_noise(strengths - level, edge)


def energy_floor(along: Array, error: float | None) -> float:
    """The same for directions of which only energies were released, with this error each.

    Where it is exceeded, :func:`is_known` holds; without an error nothing is known.
    """
    return float(np.max(along)) if error is None else (4.0 / 3.0) * _NORMAL * error


def squared_length(expected: float, size: int, *, noise: Mechanism) -> float:
    """What the squared length of noise of so many coordinates exceeds once in a hundred times."""
    return noise.squared_length(expected, size, _NORMAL)


def weighted(first: float, error: float, second: float, other: float) -> tuple[float, float]:
    """The average of two numbers by the precision that their standard errors say, and its own."""
    part = 1.0 / (1.0 + (error / other) ** 2)
    return part * first + (1.0 - part) * second, error * math.sqrt(part)


def is_known(value: float, error: float) -> bool:
    """Whether a quarter of it is true but once in a thousand times."""
    return value >= (4.0 / 3.0) * _NORMAL * error


def with_eigenvalues(
    along: Array,
    total: float,
    deviation: float,
    strengths: Array,
    edge: float,
    energy: float,
    *,
    unit_rows_of: int | None,
) -> tuple[Array, Array]:
    """Released variances, averaged with what the released eigenvalues say of them; and the latter.

    An eigenvalue under noise of edge 2 s stands for a signal theta with ``theta + s^2/theta`` (its
    eigenvector keeping ``theta - s^2/theta`` of it), in rows' energy. That is far less noisy than
    the release of the variances, but it is of shortened rows: a fifth of it counts as its error, so
    that the release prevails where it is good. ``unit_rows_of`` is the number of features where
    rows were divided by their norms.
    """
    if energy <= 0:  # as released: the eigenvalues are of no rows, and say nothing
        return along, np.zeros_like(along)
    shares = shares_of(strengths, edge, energy, unit_rows_of=unit_rows_of)
    other = np.minimum(1.0, shares) * total
    error = np.hypot(_EIGENVALUE_ERROR * other, 0.5 * edge / energy * total)
    weight = error**2 / (error**2 + deviation**2)
    return np.asarray(weight * along + (1.0 - weight) * other), other


def shares_of(strengths: Array, edge: float, energy: float, *, unit_rows_of: int | None) -> Array:
    """What eigenvalues under noise of this edge say of the rows' variance along their directions.

    Parameters are those of :func:`with_eigenvalues`.
    """
    shares = above_noise(strengths, edge) / energy
    return shares if unit_rows_of is None else of_whole_rows(shares, unit_rows_of)


@dataclass(frozen=True)
class Explained:
    """The part of the rows' variance that directions explain together."""

    share: float  # And its standard error
    error: float

    @classmethod
    def released(cls, along: Array, total: float, deviation: float, others: int = 1) -> Explained:
        """Of released energies with this noise in each, and in ``others`` that are in the total."""
        share = float(np.sum(along)) / total
        squared = (1.0 - share) ** 2 * along.size + share**2 * others
        return cls(share, abs(deviation / total) * math.sqrt(squared))

    @classmethod
    def of_strengths(
        cls, strengths: Array, edge: float, energy: float, *, unit_rows_of: int | None
    ) -> Explained:
        """Of eigenvalues, as of :func:`with_eigenvalues`.

        Of rows that have lengths the energy is known as well as a histogram shows it.
        """
        shares = shares_of(strengths, edge, energy, unit_rows_of=unit_rows_of)
        share = min(1.0, float(np.sum(shares)))
        blur = 0.0 if unit_rows_of is not None else _ENERGY_ERROR * share
        return cls(share, math.hypot(0.5 * edge / energy * math.sqrt(strengths.size), blur))

    def exceeds(self, other: Explained, deviations: float = _APART) -> bool:
        """Whether it is more than chance, and the rows' not being normal, account for."""
        apart = deviations * math.hypot(self.error, other.error)
        return self.share - other.share > max(apart, _MARGIN * self.share)


def of_whole_rows(shares: Array, features: int) -> Array:
    """Shares of the variance that unit rows with these shares of energy stand for.

    Dividing rows by their norms brings the shares nearer to one another; for elliptical data the
    map is known, ``E[l_k z_k^2 / sum_j l_j z_j^2]`` with z standard normal, and is inverted by
    fixed-point iteration. What the components leave is spread evenly over the other directions.
    """
    others = features - shares.size
    rest = max(0.0, 1.0 - float(np.sum(shares)))
    parts = np.append(shares, rest / others) if others > 0 else shares
    counts = np.append(np.ones(shares.size), others) if others > 0 else np.ones(shares.size)
    whole = float(counts @ parts)
    if whole <= 0:
        return shares
    wanted = np.maximum(parts / whole, _LEAST_SHARE)
    found = wanted.copy()
    for _ in range(_MAP_ROUNDS):
        change = wanted / _of_unit_rows(found, counts)
        if float(np.max(np.abs(change - 1.0))) < _MAP_CLOSE:
            break
        found *= change
        found /= float(counts @ found)
    return np.asarray(np.where(shares > 0, found[: shares.size], 0.0))


def _of_unit_rows(shares: Array, counts: Array) -> Array:
    """The map itself, by the integral of ``l_k / (1 + 2 l_k t) prod_j (1 + 2 l_j t)**(-1/2)``."""
    growth = 1.0 + 2.0 * np.multiply.outer(shares, _PLACES)
    product = np.exp(-0.5 * (counts @ np.log(growth)))
    return np.asarray((shares[:, None] / growth * product * _PLACES).sum(axis=1) * _STEP)


def descending(values: Array, shape: Array | None = None) -> Array:
    """The nearest non-negative, non-increasing sequence: what is known of variances for free.

    Where neighbours come out equal and ``shape`` distinguishes them, they are spread in proportion
    to it, as far as their neighbours leave room.
    """
    found = np.asarray(isotonic_regression(values, y_min=0.0, increasing=False), dtype=np.float64)
    if shape is None:
        return found
    starts = np.flatnonzero(np.append(True, np.diff(found) < 0))
    ends = np.append(starts[1:], found.size)
    level = found.copy()
    for start, end in zip(starts, ends, strict=True):
        mean = float(np.mean(shape[start:end]))
        if end - start < 2 or mean <= 0 or level[start] <= 0:
            continue
        spread = level[start] * (shape[start:end] / mean - 1.0)
        above = level[start - 1] - level[start] if start > 0 else math.inf
        below = level[start] - (level[end] if end < level.size else 0.0)
        room = min(_fits(0.5 * above, float(spread[0])), _fits(0.5 * below, float(-spread[-1])))
        found[start:end] = level[start] + _ROOM * room * spread
    return found


def _fits(room: float, wanted: float) -> float:
    """The part of what is wanted that there is room for."""
    return 1.0 if wanted <= room else room / wanted


def consistent_floor(variance: Array, stands: NDArray[np.bool_], nominal: float) -> float:
    """The one floor that the usable components' variances exceed, and no other's."""
    below = np.flatnonzero(~(stands & (variance > nominal)))
    return max(nominal, float(variance[below[0]])) if below.size else nominal
