"""What follows from a released PCA at no cost: how many components it has, and its covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.result import reciprocal

Array = NDArray[np.float64]
_Flags = NDArray[np.bool_]

# Sums of shares are compared with what was requested up to rounding.
_EQUAL = 1e-12


def fewest(ratio: Array, usable: _Flags, share: float) -> int:
    """The least number of components that explain a share of the variance, none below the noise."""
    above = int(np.count_nonzero(usable))
    reached = np.flatnonzero(np.cumsum(ratio[:above]) >= share - _EQUAL)
    enough = int(reached[0]) + 1 if share < 1.0 and reached.size else above
    return max(1, enough)


def advice_for_more(ratio: Array, usable: _Flags, share: float) -> str:
    """What would do where usable components explain less than was requested; empty where not."""
    found = float(np.sum(ratio[usable]))
    if share >= 1.0 or found >= share - _EQUAL:
        return ""
    count = int(np.count_nonzero(usable))
    what = "component that stands" if count == 1 else "components that stand"
    if count < usable.size:
        why = "more of them would be noise. More rows or a larger epsilon show more"
    else:
        why = "there are no more than so many. Give the number of components instead"
    return (
        f"The {count} {what} above the noise explain {found:.1%} of the variance, not {share:.1%} "
        f"as requested: {why}."
    )


def _least_of(highest: float, size: int) -> float:
    """Variances up to this are rounding beside the highest, or have no finite inverse."""
    kind = np.finfo(np.float64)
    return float(max(size * kind.eps * highest, kind.tiny))


@dataclass(frozen=True)
class ProbabilisticPCA:
    """The Gaussian that a PCA stands for: its components, and the same variance in all the rest.

    Tipping & Bishop, Probabilistic principal component analysis, 1999; as of scikit-learn's PCA.
    Positive semidefinite, whatever the noise: the released variances are not negative, and
    components of less than the rest's variance count as the rest.
    """

    components: Array
    # Along them, not negative; NaN where noise hides it: as much as in any other direction
    variance: Array
    total: float  # Variance in all directions together
    # What columns were divided by; 0 for one that was left out, which has no variance here
    scale: Array

    @property
    def rest(self) -> float:
        """Variance along each direction whose own is not known."""
        known = self.variance[~np.isnan(self.variance)]
        others = int(np.count_nonzero(self.scale)) - known.size
        return max(0.0, self.total - float(np.sum(known))) / others if others > 0 else 0.0

    @property
    def along(self) -> Array:
        """Variance along the components, shape (K,): the rest's where it is not known."""
        return np.where(np.isnan(self.variance), self.rest, self.variance)

    @property
    def singular(self) -> bool:
        """Whether some direction has no variance but for rounding, so that there is no density."""
        count = int(np.count_nonzero(self.scale))
        some = self.along[:count] if 0 < count <= self.variance.size else [self.rest]
        highest = max(self.rest, float(np.max(self.along)))
        least = max(self.rest, float(np.min(some)))
        return least <= _least_of(highest, self.scale.size)

    def raised(self, least: float) -> ProbabilisticPCA:
        """The same with no less variance than so much in any direction."""
        others = int(np.count_nonzero(self.scale)) - self.variance.size
        variance = np.maximum(self.along, least)
        total = float(np.sum(variance)) + max(0, others) * max(self.rest, least)
        return replace(self, variance=variance, total=total)

    def covariance(self) -> Array:
        """In the data's units, shape (D, D)."""
        along = np.maximum(self.along, self.rest) - self.rest
        found = (self.components.T * along) @ self.components
        np.fill_diagonal(found, np.diag(found) + self.rest)
        found *= np.multiply.outer(self.scale, self.scale)
        return np.asarray(0.5 * (found + found.T))

    def precision(self) -> Array:
        """Inverse of the covariance, its pseudo-inverse where it has none; the same shape."""
        hidden = self.singular or self.rest < np.finfo(np.float64).tiny
        rest = 0.0 if hidden else 1.0 / self.rest
        variance = np.maximum(self.along, self.rest)
        above = variance > _least_of(float(np.max(variance)), variance.size)
        inverse = np.divide(1.0, variance, out=np.zeros_like(variance), where=above)
        found = (self.components.T * (inverse - rest)) @ self.components
        np.fill_diagonal(found, np.diag(found) + rest)
        units = reciprocal(self.scale)
        found *= np.multiply.outer(units, units)
        return np.asarray(0.5 * (found + found.T))

    def log_density(self, residuals: Array) -> Array:
        """Of rows less their mean, shape (n, D); minus infinity where the covariance is singular.

        Columns that were left out do not count.
        """
        if self.singular:
            return np.where(np.isnan(residuals).any(axis=1), np.nan, -math.inf)
        count = int(np.count_nonzero(self.scale))
        variance = np.maximum(self.along, self.rest)[:count]  # those of columns left out are 0
        volume = float(np.sum(np.log(variance)))
        if count > variance.size:
            volume += (count - variance.size) * math.log(self.rest)
        volume += 2.0 * float(np.sum(np.log(self.scale[self.scale > 0])))
        distances = np.vecdot(residuals @ self.precision(), residuals)
        return np.asarray(-0.5 * (distances + volume + count * math.log(2.0 * math.pi)))

    def loadings(self) -> Array:
        """Correlations of columns and components, shape (D, K), from -1 to 1.

        0 for a column or a component of no variance.
        """
        deviation = np.sqrt(np.diag(self.covariance()))
        along = np.sqrt(np.maximum(self.along, self.rest))
        crossed = (self.components.T * along) * self.scale[:, None]
        return np.asarray(np.clip(crossed * reciprocal(deviation)[:, None], -1.0, 1.0))


def whitening(variance: Array) -> Array:
    """What makes scores of these variances ones of variance 1; 0 where there is none."""
    return reciprocal(np.sqrt(variance))
