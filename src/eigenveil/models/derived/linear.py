"""Regression, discriminants and canonical correlations of a released covariance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from sklearn.metrics import accuracy_score, r2_score

from eigenveil.errors import DataError
from eigenveil.models.derived.base import DerivedModel
from eigenveil.models.derived.moment import CovarianceFacts, Places
from eigenveil.models.intervals.bars import Array, Bars, Quantity, deviations
from eigenveil.models.intervals.moment import NoisyMoment
from eigenveil.models.pca.intervals import of_rows
from eigenveil.tables.schema import levels_among

if TYPE_CHECKING:
    from eigenveil.models.covariance.estimator import FittedCovariance

COLLINEAR = (
    "The explaining columns are collinear but for noise, so that without a ridge coefficients are "
    "noise. Use ridge=1, or leave columns out (of a category one level)."
)
# A group's weight is seen where it exceeds so many deviations of its noise.
_SEEN = 4.0


def check_ridge(given: object) -> float:
    number = isinstance(given, int | float | np.integer | np.floating)
    if not number or isinstance(given, bool) or not 0 <= float(given) < np.inf:  # type: ignore[arg-type]
        raise DataError("out-of-range", name="ridge", value=given, wanted="a number from 0 on")
    return float(given)  # type: ignore[arg-type]


class DerivedRegression(DerivedModel):
    """Least squares of targets on other columns, from a released covariance.

    The block of these columns is made positive semidefinite, and a ridge is added to that of the
    explaining ones: by default what noise alone shows there, without which directions of little
    variance make coefficients of noise.

    Parameters
    ----------
    target : str, int, or sequence of them, optional
        Columns to be explained, by name or place; by default the schema's targets that are no
        categories.
    on : the same, optional
        Columns that explain them; by default all others that are no targets of the schema.
    ridge : float, default=1.0
        In units of the noise's largest eigenvalue in that block. 0: ordinary least squares.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        In the data's units.
    intercept_ : float or ndarray of shape (n_targets,)
    r2_ : float or ndarray of shape (n_targets,)
        Part of the targets' variance that is explained, by the released covariance itself: of new
        rows it is usually less. NaN where noise hides the target's variance.

    References
    ----------
    One release under a joint bound, unlike AdaSSP (Wang 2018), which releases the smallest
    eigenvalue, X'X and X'y apart.
    """

    kind = "regression"

    def __init__(self, target: Any = None, on: Any = None, *, ridge: float = 1.0) -> None:
        self.target, self.on, self.ridge = target, on, ridge

    def _derive(self, moment: CovarianceFacts, source: FittedCovariance) -> Places:
        del source
        ridge = check_ridge(self.ridge)
        target = self._usual(moment) if self.target is None else self.target
        targets = moment.places("target", target)
        inputs = moment.places("on", self.on, but=targets)
        count = len(inputs)
        block = moment.block(inputs + targets)
        square = block[:count, :count] + ridge * moment.edge(count) * np.eye(count)
        across, own = block[:count, count:], np.diag(block)[count:]
        found = scipy.linalg.pinvh(square) @ across
        left = own - 2.0 * np.sum(found * across, axis=0)
        left += np.sum(found * (block[:count, :count] @ found), axis=0)
        explained = 1.0 - left / np.maximum(own, np.finfo(float).tiny)
        explained[moment.hidden[list(targets)]] = np.nan
        coefficients = (
            found.T * moment.unit[list(targets)][:, None] / moment.unit[list(inputs)][None]
        )
        intercepts = moment.mean[list(targets)] - coefficients @ moment.mean[list(inputs)]
        single = isinstance(target, str | int | np.integer)
        self.coef_ = coefficients[0] if single else coefficients
        self.intercept_: Any = float(intercepts[0]) if single else intercepts
        self.r2_: Any = float(explained[0]) if single else explained
        self._targets = targets
        return inputs

    def _usual(self, moment: CovarianceFacts) -> int | list[int]:
        places = [own[0] for own in moment.targets.values() if len(own) == 1]
        if not places:
            raise DataError("derive-no-target")
        return places[0] if len(places) == 1 else places

    @property
    def notes_(self) -> tuple[str, ...]:
        singular = self.ridge == 0 and not self._moment.invertible(self._inputs)
        return super().notes_ + (COLLINEAR,) * singular

    def predict(self, X: ArrayLike) -> Array:
        """Of rows with the columns ``on``: shape (n_samples,) or (n_samples, n_targets)."""
        return np.asarray(self._rows(X) @ self.coef_.T + self.intercept_)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Part of the variance of ``y`` that is explained, as scikit-learn's ``r2_score``."""
        return float(r2_score(y, self.predict(X)))

    def new_names(self) -> list[str]:
        return [f"{self._moment.names[place]} predicted" for place in self._targets]

    def new_values(self, X: ArrayLike) -> Array:
        return self.predict(X).reshape(-1, len(self._targets))

    def lines(self) -> tuple[list[str], list[list[Any]]]:
        """A line a column: its coefficient and the interval, of each target."""
        found, names = self.intervals()["coefficient"], self.new_names()
        headings = ["feature"]
        for name in names:
            own = name.removesuffix(" predicted")
            headings += [f"coefficient of {own}", "lower", "upper"]
        coefficients = np.atleast_2d(self.coef_)
        made: list[list[Any]] = []
        for place, label in enumerate(self.labels_):
            line: list[Any] = [label]
            for target in range(len(names)):
                ends = (found.lower[place, target], found.upper[place, target])
                line += [float(coefficients[target, place]), *map(float, ends)]
            made.append(line)
        made.append(["(intercept)"])
        for value in np.atleast_1d(self.intercept_):
            made[-1] += [float(value), "", ""]
        return headings, made

    def _quantities(self, level: float) -> Iterator[Quantity]:
        moment, inputs, targets = self._moment, self._inputs, self._targets
        shape = (len(inputs), len(targets))
        bars: Bars
        if isinstance(moment.facts, str):
            bars = Bars.none(shape, moment.facts)
        elif len(inputs) == 1:
            each = [
                _fieller(moment.facts, inputs[0], target, deviations(level)) for target in targets
            ]
            ends = [
                np.array([[getattr(one, end)[0] for one in each]])
                for end in ("estimate", "lower", "upper")
            ]
            why = np.array([[one.why[0] for one in each]], dtype=np.int8)
            bars = Bars(ends[0], ends[1], ends[2], why, (_NO_SLOPE,))
        elif reason := moment.no_intervals(inputs):
            bars = Bars.none(shape, reason)
        else:
            bars = _by_delta(moment.facts, inputs, targets, deviations(level))
        unit = moment.unit
        bars = bars.times(unit[list(targets)][None] / unit[list(inputs)][:, None])
        labels = tuple(
            tuple(moment.names[place] for place in places) for places in (inputs, targets)
        )
        yield Quantity(
            "coefficient",
            f"coefficients of ordinary least squares {of_rows(moment.result)}",
            ("feature", "target"),
            labels,
            bars,
        )


_NO_SLOPE = "noise does not exclude that the column is constant"


def _by_delta(facts: NoisyMoment, inputs: Places, targets: Places, width: float) -> Bars:
    """Coefficients B = A^-1 C to first order: ``dB = A^-1 (dC - dA B)``."""
    inverse = np.linalg.inv(facts.matrix[np.ix_(inputs, inputs)])
    found = inverse @ facts.matrix[np.ix_(inputs, targets)]
    one = np.zeros((len(inputs), facts.size))
    one[:, inputs] = inverse
    other = np.zeros((len(targets), facts.size))
    other[np.arange(len(targets)), targets] = 1.0
    other[:, inputs] = -found.T
    return Bars.about(found, width * np.sqrt(facts.variances(one, other)))


def _fieller(facts: NoisyMoment, place: int, target: int, width: float) -> Bars:
    """A slope b: all for which ``(c - b a)^2`` is at most so many times its own variance (1954)."""
    one, other = np.eye(facts.size)[[place]], np.eye(facts.size)[[target]]
    at = {b: float(facts.variances(one, other - b * one)[0, 0]) for b in (-1.0, 0.0, 1.0)}
    curve = 0.5 * (at[1.0] + at[-1.0]) - at[0.0]
    slope = 0.5 * (at[1.0] - at[-1.0])
    a, c, noise = facts.matrix[place, place], facts.matrix[place, target], width**2
    square, half = a * a - noise * curve, a * c + 0.5 * noise * slope
    if a <= 0 or square <= 0:
        return Bars.none((1,), _NO_SLOPE)
    middle = half / square
    away = np.sqrt(max(0.0, middle**2 - (c * c - noise * at[0.0]) / square))
    estimate = np.array([c / a])
    return Bars.about(estimate, estimate - (middle - away), middle + away - estimate)


class DerivedCCA(DerivedModel):
    """Canonical correlations of two groups of columns, from a released covariance.

    Parameters
    ----------
    left, right : sequence of str or int
        Columns, by name or place.
    n_components : int, default=1
    ridge : float, default=1.0
        In units of the noise's largest eigenvalue in each block.

    Attributes
    ----------
    correlations_ : ndarray of shape (n_components,)
        Shrunk by the ridge.
    left_weights_ : ndarray of shape (n_components, n_left)
    right_weights_ : ndarray of shape (n_components, n_right)
        In the data's units: what rows less their mean are multiplied by, for scores of variance 1.
    """

    kind = "cca"

    def __init__(self, left: Any, right: Any, n_components: int = 1, *, ridge: float = 1.0) -> None:
        self.left, self.right, self.n_components, self.ridge = left, right, n_components, ridge

    def _derive(self, moment: CovarianceFacts, source: FittedCovariance) -> Places:
        del source
        ridge = check_ridge(self.ridge)
        left = moment.places("left", self.left)
        right = moment.places("right", self.right, but=left)
        count, most = len(left), min(len(left), len(right))
        check_count(self.n_components, most)
        block = moment.block(left + right) / moment.rows
        roots = []
        for part, size in ((block[:count, :count], count), (block[count:, count:], len(right))):
            added = ridge * moment.edge(size) / moment.rows
            values, vectors = np.linalg.eigh(part + added * np.eye(size))
            safe = np.maximum(values, np.finfo(float).eps * max(values[-1], np.finfo(float).tiny))
            roots.append((vectors / np.sqrt(safe)) @ vectors.T)
        ours, found, theirs = np.linalg.svd(roots[0] @ block[:count, count:] @ roots[1])
        wanted = self.n_components
        signs = np.sign(ours[np.abs(ours).argmax(axis=0), np.arange(ours.shape[1])])[:wanted, None]
        self.correlations_ = np.minimum(found[:wanted], 1.0)
        self.left_weights_ = signs * (roots[0] @ ours[:, :wanted]).T / moment.unit[list(left)]
        self.right_weights_ = signs * (theirs[:wanted] @ roots[1]) / moment.unit[list(right)]
        self._sizes = (count, len(right))
        return left + right

    def transform(self, X: ArrayLike) -> tuple[Array, Array]:
        """Scores of rows with the columns ``left`` and then ``right``: two of (n, components)."""
        rows = self._rows(X) - self._moment.mean[list(self._inputs)]
        count = self._sizes[0]
        return (
            np.asarray(rows[:, :count] @ self.left_weights_.T),
            np.asarray(rows[:, count:] @ self.right_weights_.T),
        )

    def new_names(self) -> list[str]:
        numbers = range(1, self.n_components + 1)
        return [f"{side}{number}" for side in ("left", "right") for number in numbers]

    def new_values(self, X: ArrayLike) -> Array:
        return np.hstack(self.transform(X))

    def lines(self) -> tuple[list[str], list[list[Any]]]:
        """A line a column: its weights in each pair of scores."""
        names = [f"pair {number + 1}" for number in range(self.n_components)]
        weights = np.hstack([self.left_weights_, self.right_weights_]).T
        made: list[list[Any]] = [["(correlation)", "", *self.correlations_.tolist()]]
        sides = ["left"] * self._sizes[0] + ["right"] * self._sizes[1]
        for label, side, own in zip(self.labels_, sides, weights.tolist(), strict=True):
            made.append([label, side, *own])
        return ["feature", "side", *names], made

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean correlation of the rows' scores."""
        del y
        left, right = self.transform(X)
        pairs = zip(left.T, right.T, strict=True)
        return float(np.mean([np.corrcoef(one, other)[0, 1] for one, other in pairs]))


class DerivedDiscriminant(DerivedModel):
    """Linear discriminant of the levels of a category, from a released covariance.

    Parameters
    ----------
    group : str, or sequence of str or int, optional
        A category of the schema, whose levels are columns ``name=level``; or columns that are 1 in
        rows of a group and 0 in others. A row that has none of them is of no group. By default the
        schema's target that is a category.
    on : sequence of str or int, optional
        Columns that tell groups apart; by default all others that are no targets of the schema.
    ridge : float, default=1.0
        In units of the noise's largest eigenvalue in that block.

    Attributes
    ----------
    classes_ : ndarray of str
    priors_ : ndarray of shape (n_classes,)
    means_ : ndarray of shape (n_classes, n_features)
    coef_ : ndarray of shape (n_classes, n_features)
    intercept_ : ndarray of shape (n_classes,)
    """

    kind = "discriminant"

    def __init__(self, group: Any = None, on: Any = None, *, ridge: float = 1.0) -> None:
        self.group, self.on, self.ridge = group, on, ridge

    def _derive(self, moment: CovarianceFacts, source: FittedCovariance) -> Places:
        ridge = check_ridge(self.ridge)
        groups = self._groups(moment)
        inputs = moment.places("on", self.on, but=groups)
        weights = np.maximum(moment.mean[list(groups)], 0.0)
        self._refuse_unseen(moment, groups, weights)
        shares, center = weights / weights.sum(), moment.mean[list(inputs)]
        own = moment.unit[list(inputs)]
        across = moment.across(groups, inputs)
        if across is None:
            joint = np.asarray(source.covariance_)[np.ix_(groups, inputs)]
            across = joint / weights[:, None] / own
        else:
            center = center + shares @ across * own
        # centred at the weighted mean of the groups, which is that of the rows where each has one
        across = across - shares @ across
        means = center + across * own
        total = moment.block(inputs) / moment.rows
        between = across.T @ (shares[:, None] * across)
        values, vectors = np.linalg.eigh(total - between)
        within = (vectors * np.maximum(values, 0.0)) @ vectors.T
        within += ridge * moment.edge(len(inputs)) / moment.rows * np.eye(len(inputs))
        inverse = scipy.linalg.pinvh(within) / np.multiply.outer(own, own)
        self.classes_ = np.array([_level(moment.names[place]) for place in groups])
        self.priors_, self.means_ = shares, means
        self.coef_ = means @ inverse
        self.intercept_ = np.log(shares) - 0.5 * np.vecdot(self.coef_, means)
        return inputs

    def _groups(self, moment: CovarianceFacts) -> Places:
        group = self.group
        if group is None:
            usual = {name: own for name, own in moment.targets.items() if len(own) > 1}
            if len(usual) != 1:
                raise DataError("derive-which-groups", known=", ".join(usual) or "none")
            group = next(iter(usual))
        if isinstance(group, str):
            levels = levels_among(group, moment.names)
            if len(levels) < 2:
                raise DataError("derive-no-groups", group=group)
            return moment.places("group", levels)
        groups = moment.places("group", group)
        if len(groups) < 2:
            raise DataError("derive-no-groups", group=moment.names[groups[0]])
        return groups

    def _refuse_unseen(self, moment: CovarianceFacts, groups: Places, weights: Array) -> None:
        errors = np.asarray(moment.result.factors.mean_error)[list(groups)]
        for place, weight, error in zip(groups, weights, errors, strict=True):
            if weight <= _SEEN * error or not weight > 0:
                raise DataError("derive-hidden", option="group", columns=repr(moment.names[place]))

    def decision_function(self, X: ArrayLike) -> Array:
        """Log-probability of each group but for what all have alike, (n_samples, n_classes)."""
        return self._scores(self._rows(X))

    def _scores(self, rows: Array) -> Array:
        return np.asarray(rows @ self.coef_.T + self.intercept_)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each group, shape (n_samples, n_classes)."""
        return np.asarray(scipy.special.softmax(self.decision_function(X), axis=1))

    def predict(self, X: ArrayLike) -> Any:
        """The likeliest group of each row, shape (n_samples,).

        Raises
        ------
        DataError
            ``not-finite``, naming a row that has no value of a column: no group is likeliest.
        """
        return self.classes_[np.argmax(self._scores(self._rows(X, finite=True)), axis=1)]

    def new_names(self) -> list[str]:
        return [f"P({name})" for name in self.classes_]

    def new_values(self, X: ArrayLike) -> Array:
        return self.predict_proba(X)

    def lines(self) -> tuple[list[str], list[list[Any]]]:
        """A line a column: its mean in each group."""
        made: list[list[Any]] = [["(part of the rows)", *self.priors_.tolist()]]
        made += [[x, *means] for x, means in zip(self.labels_, self.means_.T.tolist(), strict=True)]
        return ["feature", *(f"mean of {name}" for name in self.classes_)], made

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Part of the rows whose group is the one of ``y``."""
        return float(accuracy_score(np.asarray(y).astype(str), self.predict(X)))


def _level(name: str) -> str:
    return name.partition("=")[2] or name


def check_count(given: object, most: int) -> None:
    """Refuse a number of components that the columns do not have."""
    whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if not whole or not 1 <= int(given) <= most:  # type: ignore[call-overload]
        raise DataError("components", features=most, wanted=given, what="components")
