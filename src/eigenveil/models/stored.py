"""The base of every fitted model: released values, a plan, a certificate, and a file of them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from eigenveil.errors import (
    DataError,
    NoisyResultWarning,
    WeakPrivacyWarning,
    callers_level,
    listed,
    number_text,
    short_name,
)
from eigenveil.models.as_sklearn import not_exportable
from eigenveil.models.beside import BesideExact
from eigenveil.models.display import fitted_html
from eigenveil.models.intervals.asked import asked
from eigenveil.models.intervals.bars import Intervals, Kind, Quantity
from eigenveil.models.model_file import not_a_model, read_model, write_model
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import Result, View
from eigenveil.models.task import task_of_plan
from eigenveil.tables.adapters import validated

# Columns named where some are left out.
_SHOWN = 5
_ALL_NOISE = (
    "No component stands above the noise: the result shows nothing of the data. More rows, a "
    "larger epsilon or fewer components would help."
)


class StoredModel(BaseEstimator):  # type: ignore[misc]
    """A fitted model that can be saved, loaded and certified.

    All that it knows of a fit is one frozen :class:`~eigenveil.models.result.Result`, which its
    attributes show. A family of models, such as all of PCA, has one class with ``_FAMILY``, the
    names of the estimators whose files it reads; estimators are its sub-classes and read only
    their own.
    """

    _FACTORS: ClassVar[type[Any]]
    _FAMILY: ClassVar[tuple[str, ...]]
    _PLAN: ClassVar[type[BasePlan]]

    _result: Result | None = None

    plan_ = View(lambda result: result.plan.copied())
    certificate_ = View(lambda result: result.certificate.copied())
    guarantee_ = View(lambda result: result.guarantee)
    n_components_ = View(lambda result: result.plan.n_components)
    released_ = View(lambda result: dict(result.factors.released))
    schema_ = View(lambda result: result.schema)

    @property
    def n_features_in_(self) -> int:
        """Number of columns of the rows that it was fitted to."""
        return self._columns("n_features_in_")[0]

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of these columns, where they had any."""
        names = self._columns("feature_names_in_")[1]
        if names is None:
            raise AttributeError("feature_names_in_: the columns have no names")
        return np.array(names, dtype=object)

    def _columns(self, wanted: str) -> tuple[int, tuple[str, ...] | None]:
        """Number and names of the columns; ``wanted`` is the attribute that was read."""
        if self._result is None:
            raise AttributeError(f"{wanted}: {type(self).__name__} is not fitted yet")
        return self._result.features, self._result.names

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + fitted_html(self)

    def _repr_mimebundle_(self, **how: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**how)
        if "text/html" in bundle:
            bundle["text/html"] += fitted_html(self)
        return bundle

    def intervals(self, level: float = 0.95, of: str = "table") -> Intervals:
        """Intervals of the released numbers, from the result alone: they cost no privacy.

        Computed on the first request and then kept; the same numbers wherever they are computed.
        Those that noise hides, or that no validated construction covers, are not shown, with the
        reason (docs/intervals.md).

        Parameters
        ----------
        level : float, default=0.95
            How often an interval holds its number, between 0 and 1.
        of : {"table", "population"}, default="table"
            "table": the number of this table's rows as they were prepared; noise alone moves it.
            "population": that of where the rows are drawn from, each by itself.

        Returns
        -------
        intervals : Intervals
            By name of quantity: ``estimate``, ``lower``, ``upper`` (arrays), and ``why``.

        Raises
        ------
        NotFittedError
        DataError
            ``bad-level``, ``unknown-choice``, ``intervals-of-nothing``,
            ``intervals-of-other-version``.
        """
        return asked(self._check_fitted(), level, of, self._quantities)

    def _quantities(self, result: Result, level: float, of: Kind) -> Iterable[Quantity]:
        """What a result of this family has intervals of."""
        raise NotImplementedError

    def compare(self, X: ArrayLike) -> BesideExact:
        """This result beside the exact one of the rows themselves. NOT PRIVATE: for their owner.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows of the fit: of all its sites, where there were several. Those with missing or
            infinite entries are left out, and counted.

        Returns
        -------
        comparison : BesideExact
            ``lines`` (one a component, with its interval), ``measures`` of the whole, ``held`` (how
            many intervals hold the exact number), ``notes``.

        Raises
        ------
        NotFittedError
        DataError
            Where the columns are not the model's; ``compare-without-rows``.
        """
        return self._beside(self._new_rows(X, ensure_all_finite=False))

    def _beside(self, rows: Any) -> BesideExact:
        """This result beside the exact one of checked rows, dense or sparse."""
        del rows
        raise DataError("no-comparison", estimator=type(self).__name__)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file (numpy's format with JSON inside, no pickle).

        Nothing in it is packed, so that reading it takes no more memory than the file is large.

        What is written is the result and the parameters of its fit, whatever was set since.

        Raises
        ------
        NotFittedError
        PrivacyError
            ``model-changed`` where the model is not the one that its certificate was made for.
        OutputError
            When the file cannot be written.
        """
        result = self._check_fitted()
        result.check()
        write_model(path, result)

    def to_sklearn(self) -> Any:
        """The released model as an object of scikit-learn alone, fitted.

        It can be pickled and used where this package is not installed, and knows nothing of the
        guarantee: keep the certificate beside it.

        Returns
        -------
        estimator
            Of PCA a ``PCA`` (with scales a ``Pipeline`` of ``StandardScaler`` and ``PCA``), of
            mixtures a ``GaussianMixture``, of covariances an ``EmpiricalCovariance``.

        Raises
        ------
        NotFittedError
        DataError
            ``not-exportable`` where scikit-learn has no such model.
        """
        self._check_fitted()
        return self._as_sklearn()

    def _as_sklearn(self) -> Any:
        raise not_exportable(
            f"scikit-learn has no model like this {type(self).__name__}.",
            "Export it as safetensors, or use its own file, model.npz.",
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that :meth:`save` wrote.

        It can be used, saved and fitted anew; a stream that was loaded cannot be continued.

        Raises
        ------
        OutputError, DataError
            When the file is absent, or not a model of this kind.
        PrivacyError
            ``model-changed`` where the model is not the one that its certificate was made for.
        """
        result = read_model(path, cls)
        # the class of the whole family has no options; an estimator has those of its fit
        model = cls() if "_FAMILY" in vars(cls) else cls._as_spec(path, result)
        model._result = result
        return model

    @classmethod
    def _as_spec(cls, path: str | os.PathLike[str], result: Result) -> Self:
        try:
            model = cls(**result.spec.parameters)
        except TypeError as error:
            raise not_a_model(path, error) from None
        if isinstance(getattr(model, "center", None), list):
            model.center = np.array(model.center)
        return model

    @classmethod
    def _reads(cls, estimator: str) -> bool:
        return estimator in cls._FAMILY if "_FAMILY" in vars(cls) else estimator == cls.__name__

    @classmethod
    def _read_plan(cls, plan: Mapping[str, Any]) -> BasePlan:
        return cls._PLAN.model_validate(plan)

    def _take_over(self, result: Result) -> None:
        """Show the result of a finished fit from now on, and warn where parts are but noise."""
        self._result = result
        usable = getattr(result.factors, "usable", None)
        advice = getattr(result.factors, "advice", "") + _left_out(result)
        if advice or (usable is not None and not np.any(usable)):
            text = advice.strip() or _ALL_NOISE
            if usable is not None and not np.any(usable):
                text += f" How many rows would do: {_finds_rows(result)}."
            warnings.warn(text, NoisyResultWarning, stacklevel=callers_level())
        if weak := _weak(result):
            warnings.warn(weak, WeakPrivacyWarning, stacklevel=callers_level())

    def _check_fitted(self) -> Result:
        """The result; raises where nothing was fitted or loaded yet.

        scikit-learn's own check needs a ``fit`` method, which a loaded result need not have.
        """
        if self._result is None:
            raise NotFittedError(f"This {type(self).__name__} {self._unfitted}.")
        return self._result

    def _validated(self, X: ArrayLike, **checks: Any) -> Any:
        """Rows as scikit-learn checks them, less the column of units that the fit had.

        Columns of the table itself are read as the fit's schema says.
        """
        if (found := self._result) is None:
            return validated(self, X, **checks)
        given = {"names": found.names, "schema": found.schema} | checks
        return validated(self, X, unit=found.plan.unit, **given)

    def _new_rows(
        self, X: ArrayLike, *, ensure_all_finite: bool | str = "allow-nan", **instead: Any
    ) -> Any:
        """New rows with the columns of the fit, dense or sparse, in their own precision."""
        result = self._check_fitted()
        kept = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "reset": False}
        rows = self._validated(X, ensure_all_finite=ensure_all_finite, **kept | instead)
        if ensure_all_finite == "allow-nan" and not result.plan.holes:
            refuse_missing(rows)
        return rows

    @property
    def _unfitted(self) -> str:
        """Why there is no result, and the way to one."""
        return "is not fitted yet: call fit, or load a saved model"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # a fit leaves rows with missing entries out, and nothing else takes any by default
        tags.input_tags.allow_nan = getattr(self, "missing", "leave-out") != "leave-out"
        tags.input_tags.sparse = True
        tags.non_deterministic = getattr(self, "random_state", None) is None
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return self._result is not None


def refuse_missing(rows: Any) -> None:
    """Refuse checked rows, dense or sparse, of which some have missing entries, as scikit-learn."""
    if not rows.shape[0]:
        return
    least = rows.min(axis=1)
    lost = np.isnan(least.toarray() if scipy.sparse.issparse(rows) else least)
    if lost.any():
        raise DataError("missing-in-new-rows", lost=np.count_nonzero(lost), rows=lost.size)


# Of what a fit should show, the part that :func:`_finds_rows` asks for.
_QUALITY = 0.9


def _finds_rows(result: Result) -> str:
    """The command that finds how many rows a fit like this one takes."""
    plan, task = result.plan, task_of_plan(result.plan)
    words = ["eigenveil plan", f"--task {task.name}", f"--features {result.features}"]
    if task.counted:
        given = result.spec.parameters.get("n_components")
        words.append(f"--components {plan.n_components if given is None else given}")
    words += [f"--epsilon {number_text(plan.epsilon)}", f"--delta {number_text(plan.delta)}"]
    return " ".join([*words, f"--quality {_QUALITY} --find rows"])


# Above this the odds that a person is in the table may change by a factor of more than 4e8.
_WEAK_EPSILON = 20.0


def _weak(result: Result) -> str:
    """What an epsilon or a delta does not promise; by released numbers and the target alone."""
    found, rows = result.guarantee, getattr(result.factors, "rows", 0.0)
    if found.epsilon > _WEAK_EPSILON:
        return f"epsilon = {found.epsilon:.4g} promises next to nothing: 0.1 to 4 are usual."
    if found.delta * max(rows, 1.0) <= 1.0:
        return ""
    return (
        f"delta = {number_text(found.delta)} is above one over the number of rows, about "
        f"{rows:,.0f}: so much allows publishing the row of one person as it is. Take far less; "
        "1e-6 is usual."
    )


def _left_out(result: Result) -> str:
    """The columns that a result leaves out, or that noise hides, by their names or indices."""
    left = np.flatnonzero(getattr(result.factors, "scale", np.ones(0)) == 0)
    hidden = np.flatnonzero(getattr(result.factors, "hidden", np.zeros(0)))
    return _these(result, "Left out", left) + _these(result, "Hidden", np.setdiff1d(hidden, left))


def _these(result: Result, what: str, columns: NDArray[np.intp]) -> str:
    if columns.size == 0:
        return ""
    names = [str(c) if result.names is None else short_name(result.names[c]) for c in columns]
    shown = listed(names[:_SHOWN]) if columns.size <= _SHOWN else ", ".join(names[:_SHOWN])
    more = f" and {columns.size - _SHOWN} more" if columns.size > _SHOWN else ""
    return f" {what}: {shown}{more}{' (from 0)' if result.names is None else ''}."
