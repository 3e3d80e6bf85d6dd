"""Components, factors and partial correlations of a released covariance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from eigenveil.errors import DataError
from eigenveil.models.derived.base import DerivedModel
from eigenveil.models.derived.linear import check_count, check_ridge
from eigenveil.models.derived.moment import CovarianceFacts, Places
from eigenveil.models.intervals import moment as known
from eigenveil.models.intervals.bars import Array, Bars, Quantity, deviations, numbered
from eigenveil.models.intervals.moment import NoisyMoment

if TYPE_CHECKING:
    from eigenveil.models.covariance.estimator import FittedCovariance

_OTHER_UNITS = "columns have scales of their own, in which the noise is not alike"
_SOME = "it is of some of the columns"
_OF_ONE, _OF_ENTRIES = ("component",), ("component", "feature")
_ABOUTS = {
    ("explained_variance", "variance along the exact components"): _OF_ONE,
    ("explained_variance_ratio", "part of the variance along the exact components"): _OF_ONE,
    ("component", "entries of the exact components"): _OF_ENTRIES,
    ("angle", "degrees between a component and the exact one, at most"): _OF_ONE,
}
# Steps of expectation maximisation for factors, their least uniqueness, and when they end.
_STEPS, _LEAST, _CLOSE = 500, 0.005, 1e-7

IN_UNITS = (
    "Components of columns in their own units: those of large numbers, such as dates, come first. "
    "correlations=True (--correlations) divides each by its deviation."
)


class DerivedPCA(DerivedModel):
    """Principal components of a released covariance, or of its correlations.

    Parameters
    ----------
    n_components : int
    on : sequence of str or int, optional
        Columns; by default all whose variance noise does not hide.
    correlations : bool, default=False
        Components of the correlations: every column divided by its deviation.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows; the entry of largest magnitude of each is positive.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components,)
    mean_, scale_ : ndarray of shape (n_features,)
        What rows are freed of and divided by.
    """

    kind = "pca"

    def __init__(self, n_components: int, on: Any = None, *, correlations: bool = False) -> None:
        self.n_components, self.on, self.correlations = n_components, on, correlations

    def _derive(self, moment: CovarianceFacts, source: FittedCovariance) -> Places:
        inputs = moment.places("on", self.on, seen=self.correlations)
        check_count(self.n_components, len(inputs))
        covariance = np.asarray(source.covariance_)[np.ix_(inputs, inputs)]
        self.mean_ = moment.mean[list(inputs)]
        self.scale_ = np.sqrt(np.diag(covariance)) if self.correlations else np.ones(len(inputs))
        values, vectors = np.linalg.eigh(covariance / np.multiply.outer(self.scale_, self.scale_))
        count = self.n_components
        components, values = vectors.T[::-1][:count], np.maximum(values[::-1], 0.0)
        largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
        self.components_ = np.where(largest < 0, -components, components)
        self.explained_variance_ = values[:count]
        self.explained_variance_ratio_ = values[:count] / values.sum()
        return inputs

    @property
    def notes_(self) -> tuple[str, ...]:
        in_units = not self.correlations and bool(np.any(self.source_.scale_ != 1.0))
        return (*super().notes_, *([IN_UNITS] if in_units else []))

    def transform(self, X: ArrayLike) -> Array:
        """Scores of rows, shape (n_samples, n_components)."""
        return np.asarray((self._rows(X) - self.mean_) / self.scale_ @ self.components_.T)

    def new_names(self) -> list[str]:
        return list(numbered(self.n_components))

    def new_values(self, X: ArrayLike) -> Array:
        return self.transform(X)

    def lines(self) -> tuple[list[str], list[list[Any]]]:
        """A line a column: its entry in each component."""
        shares = self.explained_variance_ratio_.tolist()
        made: list[list[Any]] = [["(part of the variance)", *shares]]
        entries = zip(self.labels_, self.components_.T.tolist(), strict=True)
        return ["feature", *self.new_names()], made + [[label, *own] for label, own in entries]

    def inverse_transform(self, X: ArrayLike) -> Array:
        """Rows of scores, shape (n_samples, n_features)."""
        return np.asarray(np.asarray(X) @ (self.components_ * self.scale_) + self.mean_)

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Part of the rows' variance, in scales, that the components explain."""
        del y
        away = (self._rows(X) - self.mean_) / self.scale_
        away -= away.mean(axis=0)
        return float(np.sum((away @ self.components_.T) ** 2) / np.sum(away**2))

    def _quantities(self, level: float) -> Iterator[Quantity]:
        facts, count, width = self._moment.facts, self.n_components, deviations(level)
        scale = self._moment.result.factors.scale
        if not isinstance(facts, str) and (self.correlations or np.any(scale != scale[0])):
            facts = _OTHER_UNITS
        if not isinstance(facts, str) and self._inputs != tuple(range(facts.size)):
            facts = _SOME
        components = self.components_
        found: list[Bars]
        if isinstance(facts, str):
            found = [Bars.none(components.shape[: len(axes)], facts) for axes in _ABOUTS.values()]
        else:
            unit = float(self._moment.unit[0]) ** 2
            found = [
                known.eigenvalues(facts, count, width, level).times(unit),
                known.shares(facts, count, width),
                known.loadings(facts, components, width),
                known.angles(facts, components, level),
            ]
        labels = (numbered(count), self.labels_)
        for ((name, about), axes), bars in zip(_ABOUTS.items(), found, strict=True):
            yield Quantity(name, f"{about}, of shortened rows", axes, labels[: len(axes)], bars)


class DerivedFactors(DerivedModel):
    """Factor analysis of a released covariance's correlations, by maximum likelihood.

    Parameters
    ----------
    n_components : int
    on : sequence of str or int, optional
        Columns; by default all whose variance noise does not hide.
    rotation : {"varimax", "none"}, default="varimax"

    Attributes
    ----------
    loadings_ : ndarray of shape (n_features, n_components)
        Correlations of columns and factors.
    uniquenesses_ : ndarray of shape (n_features,)
        Part of each column's variance that no factor has; from .005 to 1.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        Part of all columns' variances that each factor has, in descending order.

    References
    ----------
    Rubin, Thayer (1982), Psychometrika 47; Kaiser (1958), Psychometrika 23.
    """

    kind = "factors"

    def __init__(self, n_components: int, on: Any = None, *, rotation: str = "varimax") -> None:
        self.n_components, self.on, self.rotation = n_components, on, rotation

    def _derive(self, moment: CovarianceFacts, source: FittedCovariance) -> Places:
        inputs = moment.places("on", self.on, seen=True)
        check_count(self.n_components, len(inputs) - 1)
        if self.rotation not in ("varimax", "none"):
            known_words = "varimax, none"
            raise DataError(
                "unknown-choice", option="rotation", given=self.rotation, known=known_words
            )
        covariance = np.asarray(source.covariance_)[np.ix_(inputs, inputs)]
        self.mean_, self.scale_ = moment.mean[list(inputs)], np.sqrt(np.diag(covariance))
        correlations = covariance / np.multiply.outer(self.scale_, self.scale_)
        loadings, unique = maximum_likelihood(correlations, self.n_components)
        if self.rotation == "varimax" and self.n_components > 1:
            loadings = varimax(loadings)
        order = np.argsort(-np.sum(loadings**2, axis=0), kind="stable")
        loadings = loadings[:, order]
        loadings = loadings * np.where(loadings.sum(axis=0) < 0, -1.0, 1.0)
        self.loadings_, self.uniquenesses_ = loadings, unique
        self.explained_variance_ratio_ = np.sum(loadings**2, axis=0) / len(inputs)
        return inputs

    def transform(self, X: ArrayLike) -> Array:
        """Expected factors of rows, shape (n_samples, n_components), by regression."""
        away = (self._rows(X) - self.mean_) / self.scale_
        weighted = self.loadings_ / self.uniquenesses_[:, None]
        within = np.eye(self.n_components) + self.loadings_.T @ weighted
        return np.asarray(away @ np.linalg.solve(within, weighted.T).T)

    def new_names(self) -> list[str]:
        return [f"factor{number + 1}" for number in range(self.n_components)]

    def new_values(self, X: ArrayLike) -> Array:
        return self.transform(X)

    def lines(self) -> tuple[list[str], list[list[Any]]]:
        """A line a column: its loadings, and what no factor has."""
        shares = self.explained_variance_ratio_.tolist()
        made: list[list[Any]] = [["(part of the variance)", *shares, ""]]
        found = zip(self.labels_, self.loadings_.tolist(), self.uniquenesses_.tolist(), strict=True)
        made += [[label, *own, rest] for label, own, rest in found]
        return ["feature", *self.new_names(), "unique"], made

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean log-density of rows, in scales, under the Gaussian of the factors."""
        del y
        away = (self._rows(X) - self.mean_) / self.scale_
        fitted = self.loadings_ @ self.loadings_.T + np.diag(self.uniquenesses_)
        logdet = np.linalg.slogdet(fitted)[1]
        distances = np.vecdot(away @ np.linalg.inv(fitted), away)
        return float(-0.5 * (np.mean(distances) + logdet + len(fitted) * np.log(2.0 * np.pi)))


def maximum_likelihood(correlations: Array, count: int) -> tuple[Array, Array]:
    """Loadings and uniquenesses: expectation maximisation from the leading components."""
    values, vectors = np.linalg.eigh(correlations)
    loadings = vectors[:, ::-1][:, :count] * np.sqrt(np.maximum(values[::-1][:count], _LEAST))
    unique = np.clip(1.0 - np.sum(loadings**2, axis=1), _LEAST, 1.0)
    for _ in range(_STEPS):
        weighted = loadings / unique[:, None]
        inverse = np.linalg.inv(np.eye(count) + loadings.T @ weighted)
        beta = inverse @ weighted.T
        across = correlations @ beta.T
        loadings = across @ np.linalg.inv(inverse + beta @ across)
        before = unique
        unique = np.clip(1.0 - np.sum(loadings * across, axis=1), _LEAST, 1.0)
        if np.abs(unique - before).max() < _CLOSE:
            break
    return loadings, unique


def varimax(loadings: Array) -> Array:
    """Turned so that the squares of each factor's loadings vary most (Kaiser 1958)."""
    turn, before = np.eye(loadings.shape[1]), 0.0
    for _ in range(_STEPS):
        turned = loadings @ turn
        target = turned**3 - turned * np.mean(turned**2, axis=0)
        left, found, right = np.linalg.svd(loadings.T @ target)
        turn = left @ right
        if found.sum() < before * (1.0 + _CLOSE):
            break
        before = found.sum()
    return np.asarray(loadings @ turn)


class DerivedPartialCorrelation(DerivedModel):
    """Correlations of each two columns once all others are taken off, from a released covariance.

    Parameters
    ----------
    on : sequence of str or int, optional
        Columns; by default all whose variance noise does not hide.
    ridge : float, default=1.0
        In units of the noise's largest eigenvalue in that block.

    Attributes
    ----------
    partial_correlation_ : ndarray of shape (n_features, n_features)
        1 on the diagonal.
    """

    kind = "partial-correlation"

    def __init__(self, on: Any = None, *, ridge: float = 1.0) -> None:
        self.on, self.ridge = on, ridge

    def _derive(self, moment: CovarianceFacts, source: FittedCovariance) -> Places:
        del source
        ridge = check_ridge(self.ridge)
        inputs = moment.places("on", self.on, seen=True)
        if len(inputs) < 2:
            raise DataError("derive-no-columns", option="on")
        block = moment.block(inputs) + ridge * moment.edge(len(inputs)) * np.eye(len(inputs))
        self.partial_correlation_ = _partial(scipy.linalg.pinvh(block))
        return inputs

    def new_names(self) -> list[str]:
        return []

    def new_values(self, X: ArrayLike) -> Array:
        del X
        raise DataError("derive-no-values", kind=self.kind)

    def lines(self) -> tuple[list[str], list[list[Any]]]:
        """A line a column: its partial correlations with all others."""
        found = zip(self.labels_, self.partial_correlation_.tolist(), strict=True)
        return ["feature", *self.labels_], [[label, *own] for label, own in found]

    def _quantities(self, level: float) -> Iterator[Quantity]:
        moment, inputs = self._moment, self._inputs
        why, shape = moment.no_intervals(inputs), (len(inputs),) * 2
        if why or isinstance(moment.facts, str):
            bars = Bars.none(shape, why)
        else:
            bars = _by_delta(moment.facts, inputs, deviations(level))
        labels = (self.labels_,) * 2
        about = "partial correlations of shortened rows"
        yield Quantity("partial_correlation", about, ("feature", "other"), labels, bars)


def _partial(inverse: Array) -> Array:
    root = np.sqrt(np.maximum(np.diag(inverse), np.finfo(float).tiny))
    found = np.asarray(-inverse / np.multiply.outer(root, root))
    np.fill_diagonal(found, 1.0)
    return found


def _by_delta(facts: NoisyMoment, inputs: Places, width: float) -> Bars:
    """To first order in the noise N: with w the columns of the inverse over the roots of its
    diagonal, ``dr = w' N v + r/2 (w' N w + v' N v)``.
    """
    inverse: Array = np.asarray(np.linalg.inv(facts.matrix[np.ix_(inputs, inputs)]), dtype=float)
    found = _partial(inverse)
    each = inverse / np.sqrt(np.diag(inverse))[:, None]
    products = each @ each.T
    own = np.diag(products)
    square = 0.5 * (np.multiply.outer(own, own) + products**2)
    square += 0.25 * found**2 * (np.add.outer(own**2, own**2) + 2.0 * products**2)
    square += found * products * np.add.outer(own, own)
    np.fill_diagonal(square, 0.0)
    spread = facts.error * np.sqrt(np.maximum(square, 0.0))
    return Bars.about(found, width * spread, within=(-1.0, 1.0))
