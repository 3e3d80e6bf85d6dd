"""Covariances of K components with D features, one class for each type that scikit-learn has.

Which type a mixture has is asked nowhere else.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.models.mixture.shrinkage import (
    Spectrum,
    learnt,
    positive,
    positive_diagonal,
    two_levels,
)
from eigenveil.moments.exact import Squares

Array = NDArray[np.float64]
CovarianceType = Literal["spherical", "diag", "full", "tied"]

# How far a component's scale may be off, as a part of it.
_SCALE_SPREAD = 0.5
# Of the rows' covariance, what is left within components at least.
WITHIN = 0.25


@dataclass(frozen=True)
class Innovation:
    """What a sum shows of squares about means that were ``shifts`` off.

    ``squares`` is without weight; one entry of it has noise of deviation ``noise`` (that of a
    diagonal entry) for each component.
    """

    squares: Array
    noise: Array
    shifts: Array
    weights: Array


@dataclass(frozen=True)
class Covariances(ABC):
    """Those of all components: ``values`` have the shape that scikit-learn gives this type."""

    values: Array
    count: int
    features: int

    name: ClassVar[CovarianceType]
    squares: ClassVar[Squares]  # What sums release of products of two columns
    by_moments: ClassVar[bool] = False  # Whether third moments show the components
    matrices: ClassVar[bool] = True  # Whether products of two features are kept
    shared: ClassVar[bool] = False  # Whether components have one covariance

    # -- where they come from

    @classmethod
    @abstractmethod
    def alike(cls, variance: float, features: int) -> Self:
        """One component with this variance of every feature."""

    @classmethod
    @abstractmethod
    def within(cls, spectrum: Spectrum, means: Array, weights: Array) -> Self:
        """What is left within components, the same for each."""

    @abstractmethod
    def learnt(self, seen: Innovation) -> Array:
        """Positive definite values, moved to what was seen."""

    # -- what they are

    @property
    @abstractmethod
    def traces(self) -> Array:
        """Mean squared distance of rows from each mean, shape (K,)."""

    @property
    @abstractmethod
    def squared_traces(self) -> Array:
        """Traces of the squared covariances, shape (K,)."""

    @property
    def mean_variances(self) -> Array:
        """Mean variance of a feature within each component, shape (K,)."""
        return np.asarray(self.traces / self.features)

    @abstractmethod
    def whitening(self) -> tuple[Array, Array]:
        """Factors by which rows are compared with components, and their log-determinants."""

    def of(self, components: NDArray[np.intp]) -> Array:
        """Values of these components."""
        return self.values if self.shared else self.values[components]

    def but(self, values: Array, kept: NDArray[np.bool_]) -> Self:
        """These with other values, except of the components whose own are kept."""
        if self.shared:
            return replace(self, values=self.values if kept.any() else values)
        each = kept.reshape(-1, *(1,) * (values.ndim - 1))
        return replace(self, values=np.where(each, self.values, values))

    def common(self, components: list[int], parts: Array) -> Array:
        """That of several components together."""
        if self.shared:
            return self.values
        return np.asarray(np.tensordot(parts, self.values[components], axes=1))

    # -- rows

    def log_densities(self, rows: Any, means: Array) -> Array:
        """Log-density of rows (n, D), dense or sparse, under each component: shape (n, K)."""
        middle = means.mean(axis=0)
        spread = means - middle
        least = _least_variance(spread, middle)
        # far from the origin, squares would leave no digits for differences
        whole = (rows.toarray() if scipy.sparse.issparse(rows) else rows) - middle
        found = np.empty((whole.shape[0], self.count))
        for k in range(self.count):
            own = self.values if self.shared else self.values[k]
            apart, logs = self._whitened(whole - spread[k], own, least)
            found[:, k] = -0.5 * np.vecdot(apart, apart) - logs
        return np.asarray(_constant(self.features) + found)

    @abstractmethod
    def _whitened(self, apart: Array, own: Array, least: float) -> tuple[Array, float]:
        """Steps from a mean in deviations, and the logarithm of these deviations' product."""

    @abstractmethod
    def coloured(self, noise: Array, labels: NDArray[np.intp]) -> Array:
        """Standard normal rows (n, D) with the covariances of their components."""

    # -- other libraries

    @abstractmethod
    def precision_factors(self) -> Array:
        """Of each covariance the matrix P, or the number, with P P' its inverse."""

    @abstractmethod
    def log_determinant(self, factor: Array) -> float:
        """Logarithm of the determinant of a precision factor."""


class _Variances(Covariances):
    """Without products of two features: a number for a component, or one for each feature."""

    matrices = False

    def whitening(self) -> tuple[Array, Array]:
        each = self.values.reshape(self.count, -1)
        factors = 1.0 / np.sqrt(each)
        logs = np.log(factors).sum(axis=1) * (self.features if each.shape[1] == 1 else 1)
        return factors, logs

    def _whitened(self, apart: Array, own: Array, least: float) -> tuple[Array, float]:
        variances = np.broadcast_to(np.maximum(own, least), apart.shape[1:])
        return apart / np.sqrt(variances), 0.5 * float(np.log(variances).sum())

    def precision_factors(self) -> Array:
        if not np.all(self.values > 0):
            raise np.linalg.LinAlgError
        return np.asarray(1.0 / np.sqrt(self.values))


class SphericalCovariances(_Variances):
    name = "spherical"
    squares = "trace"
    by_moments = True

    @classmethod
    def alike(cls, variance: float, features: int) -> Self:
        return cls(np.full(1, variance), 1, features)

    @classmethod
    def within(cls, spectrum: Spectrum, means: Array, weights: Array) -> Self:
        count, features = means.shape
        variance = spectrum.trace - float(weights @ np.sum(means**2, axis=1))
        variance = max(variance, WITHIN * spectrum.trace)
        return cls(np.full(count, variance / features), count, features)

    def learnt(self, seen: Innovation) -> Array:
        # one number for each component: what it can be off is a part of it
        old = self.values
        squares = (seen.squares[:, 0] - np.vecdot(seen.shifts, seen.shifts)) / self.features
        noise = seen.noise / self.features
        spread = (_SCALE_SPREAD * old) ** 2
        new = old + spread / (spread + noise**2) * (squares - old)
        return np.asarray(np.maximum(new, 0.1 * old))

    @property
    def traces(self) -> Array:
        return np.asarray(self.features * self.values)

    @property
    def squared_traces(self) -> Array:
        return np.asarray(self.features * self.values**2)

    @property
    def mean_variances(self) -> Array:
        return self.values

    def log_densities(self, rows: Any, means: Array) -> Array:
        middle = means.mean(axis=0)
        spread = means - middle
        variances = np.maximum(self.values, _least_variance(spread, middle))
        distances = _squared_distances(rows, means, spread, middle)
        logs = 0.5 * self.features * np.log(variances)
        return np.asarray(_constant(self.features) - logs - 0.5 * distances / variances)

    def coloured(self, noise: Array, labels: NDArray[np.intp]) -> Array:
        return np.asarray(noise * np.sqrt(self.values)[labels][:, None])

    def log_determinant(self, factor: Array) -> float:
        return self.features * math.log(float(factor))


class DiagonalCovariances(_Variances):
    name = squares = "diag"

    @classmethod
    def alike(cls, variance: float, features: int) -> Self:
        return cls(np.full((1, features), variance), 1, features)

    @classmethod
    def within(cls, spectrum: Spectrum, means: Array, weights: Array) -> Self:
        whole = (spectrum.basis**2) @ spectrum.energies + spectrum.bulk
        own = np.maximum(whole - weights @ means**2, WITHIN * whole)
        each = positive_diagonal(own[None], np.zeros(1))
        return cls(np.repeat(each, weights.size, axis=0), *means.shape)

    def learnt(self, seen: Innovation) -> Array:
        squares = seen.squares - seen.shifts**2
        return positive_diagonal(*two_levels(self.values, squares, seen.noise, seen.weights))

    @property
    def traces(self) -> Array:
        return np.asarray(self.values.sum(axis=1))

    @property
    def squared_traces(self) -> Array:
        return np.asarray((self.values**2).sum(axis=1))

    def coloured(self, noise: Array, labels: NDArray[np.intp]) -> Array:
        return np.asarray(noise * np.sqrt(self.values)[labels])

    def log_determinant(self, factor: Array) -> float:
        return float(np.sum(np.log(factor)))


class _Matrices(Covariances):
    """With products of two features."""

    def _whitened(self, apart: Array, own: Array, least: float) -> tuple[Array, float]:
        factor = _lower_factor(own, least)
        apart = scipy.linalg.solve_triangular(factor, apart.T, lower=True, check_finite=False).T
        return apart, float(np.log(np.diagonal(factor)).sum())

    def log_determinant(self, factor: Array) -> float:
        return float(np.sum(np.log(np.diagonal(factor))))


class FullCovariances(_Matrices):
    name = squares = "full"

    @classmethod
    def alike(cls, variance: float, features: int) -> Self:
        return cls(variance * np.eye(features)[None], 1, features)

    @classmethod
    def within(cls, spectrum: Spectrum, means: Array, weights: Array) -> Self:
        one = _matrix_within(spectrum, means, weights)
        return cls(np.repeat(one[None], weights.size, axis=0), *means.shape)

    def learnt(self, seen: Innovation) -> Array:
        squares = seen.squares - seen.shifts[:, :, None] * seen.shifts[:, None, :]
        # an entry of a matrix has on average half of a diagonal entry's variance
        noise = seen.noise / math.sqrt(2.0)
        return positive(*two_levels(self.values, squares, noise, seen.weights))

    @property
    def traces(self) -> Array:
        return np.asarray(np.trace(self.values, axis1=1, axis2=2))

    @property
    def squared_traces(self) -> Array:
        return np.asarray((self.values**2).sum(axis=(1, 2)))

    def whitening(self) -> tuple[Array, Array]:
        return _whitening(self.values)

    def coloured(self, noise: Array, labels: NDArray[np.intp]) -> Array:
        lower = np.array([_lower_factor(each, 0.0) for each in self.values])
        return np.asarray(np.einsum("nij,nj->ni", lower[labels], noise))

    def precision_factors(self) -> Array:
        return np.array([_inverse_factor(each) for each in self.values])


class TiedCovariances(_Matrices):
    name = squares = "tied"
    shared = True

    @classmethod
    def alike(cls, variance: float, features: int) -> Self:
        return cls(variance * np.eye(features), 1, features)

    @classmethod
    def within(cls, spectrum: Spectrum, means: Array, weights: Array) -> Self:
        return cls(_matrix_within(spectrum, means, weights), *means.shape)

    def learnt(self, seen: Innovation) -> Array:
        squares = (seen.squares - (seen.shifts.T * seen.weights) @ seen.shifts)[:1]
        noise = seen.noise[:1] / math.sqrt(2.0)
        return np.asarray(positive(*learnt(self.values[None], squares, noise))[0])

    @property
    def traces(self) -> Array:
        return np.full(self.count, np.trace(self.values))

    @property
    def squared_traces(self) -> Array:
        return np.full(self.count, (self.values**2).sum())

    def whitening(self) -> tuple[Array, Array]:
        factors, logs = _whitening(self.values[None])
        return np.repeat(factors, self.count, axis=0), np.repeat(logs, self.count)

    def coloured(self, noise: Array, labels: NDArray[np.intp]) -> Array:  # noqa: ARG002
        return np.asarray(noise @ _lower_factor(self.values, 0.0).T)

    def precision_factors(self) -> Array:
        return _inverse_factor(self.values)


COVARIANCES: dict[str, type[Covariances]] = {
    each.name: each
    for each in (SphericalCovariances, DiagonalCovariances, FullCovariances, TiedCovariances)
}


def _whitening(matrices: Array) -> tuple[Array, Array]:
    values, turns = np.linalg.eigh(matrices)
    return turns / np.sqrt(values)[:, None, :], -0.5 * np.log(values).sum(axis=1)


def _least_variance(spread: Array, middle: Array) -> float:
    """What of a variance means of this size leave no digits for."""
    size = float(np.max(spread**2)) or float(np.max(middle**2)) or 1.0
    return float(np.finfo(np.float64).eps) * size


def _constant(features: int) -> float:
    return -0.5 * features * math.log(2.0 * math.pi)


def _squared_distances(rows: Any, means: Array, spread: Array, middle: Array) -> Array:
    if scipy.sparse.issparse(rows):
        rows = rows.astype(np.float64)
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    else:
        means, rows = spread, rows - middle
        squares = np.vecdot(rows, rows)
    distances = squares[:, None] - 2.0 * np.asarray(rows @ means.T) + np.vecdot(means, means)
    return np.asarray(np.maximum(distances, 0.0))


def _lower_factor(covariance: Array, least: float) -> Array:
    lifted = covariance + least * np.eye(covariance.shape[0])
    return np.asarray(scipy.linalg.cholesky(lifted, lower=True))


def _inverse_factor(covariance: Array) -> Array:
    lower = np.linalg.cholesky(covariance)
    return np.asarray(scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True).T)


def _matrix_within(spectrum: Spectrum, means: Array, weights: Array) -> Array:
    features = spectrum.basis.shape[0]
    matrix = (spectrum.basis * spectrum.energies) @ spectrum.basis.T
    matrix[np.diag_indices(features)] += spectrum.bulk
    # what is left is measured against all: no direction keeps less than a part of what it had
    values, turn = np.linalg.eigh(matrix)
    root = np.sqrt(np.maximum(values, 1e-12))
    seen = means @ turn / root
    left, own_turn = np.linalg.eigh(np.eye(features) - (seen.T * weights) @ seen)
    left = np.maximum(left, WITHIN)
    half = (turn * root) @ own_turn
    return np.asarray(positive(((half * left) @ half.T)[None], np.zeros(1))[0])
