"""What every model that follows from a released covariance can do: read rows, be kept, say why."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from eigenveil.errors import DataError
from eigenveil.files import replacing
from eigenveil.models.as_sklearn import not_exportable
from eigenveil.models.derived.moment import CovarianceFacts, Places
from eigenveil.models.intervals.asked import asked
from eigenveil.models.intervals.bars import Array, Intervals, Kind, Quantity
from eigenveil.models.pca.intervals import NO_KURTOSIS
from eigenveil.models.result import Result
from eigenveil.privacy.certificate import Certificate
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.tables.adapters import validated
from eigenveil.tables.schema import Schema

if TYPE_CHECKING:
    from eigenveil.models.covariance.estimator import FittedCovariance

RECIPE, SOURCE = "derived.json", "model.npz"
_FORMAT = "eigenveil-derived-1"
# More of the variance than this that shortening took: coefficients may have moved. Of diabetes and
# wine the 95 % quantile of the norms takes .022 and .027, and moves what is fitted by .01 and .03.
_SHORTENED = 0.03
SHORTENED = (
    "Rows were shortened, which took about {part:.0%} of their variance: what follows from the "
    "covariance is of rows as they were shortened. A covariance with row_quantile=.95 or more, or "
    "with a larger public row_bound, loses less."
)


class DerivedModel(BaseEstimator):  # type: ignore[misc]
    """A model that follows from a released covariance: post-processing, without any budget.

    Attributes
    ----------
    certificate_ : Certificate
        That of the covariance.
    guarantee_ : Guarantee
    n_samples_ : float
        Released number of rows.
    n_features_in_ : int
    labels_ : tuple of str
        The columns that rows have here, in order: names, or places where they have none.
    notes_ : tuple of str
    source_ : PrivateCovariance or FederatedCovariance
        What it follows from.
    """

    kind: ClassVar[str]
    _source: FittedCovariance | None = None
    _inputs: Places

    def fit(self, X: Any, y: object = None) -> Self:
        """Derive it from a fitted covariance: there are no rows.

        Raises
        ------
        DataError
            ``derive-of-nothing``, and what is said of the columns that were asked for.
        """
        del y
        moment = CovarianceFacts.of(X._check_fitted())
        self._inputs = self._derive(moment, X)
        self._source, self._moment = X, moment
        self._result: Result = replace(moment.result)  # keeps intervals of its own
        return self

    def _derive(self, moment: CovarianceFacts, source: FittedCovariance) -> Places:
        """Compute it; the columns that rows have."""
        raise NotImplementedError

    def new_values(self, X: ArrayLike) -> Array:
        """What it says of rows, one column for each of :meth:`new_names`: (n_samples, columns)."""
        raise NotImplementedError

    def new_names(self) -> list[str]:
        """Headings of :meth:`new_values`."""
        raise NotImplementedError

    def lines(self) -> tuple[list[str], list[list[Any]]]:
        """Headings, and a line of numbers a column or component, of what was found."""
        raise NotImplementedError

    def _quantities(self, level: float) -> Iterable[Quantity]:
        """What has intervals, of this table."""
        del level
        return ()

    def _fitted(self) -> FittedCovariance:
        if self._source is None:
            raise NotFittedError(
                f"This {type(self).__name__} follows from nothing yet: call fit with a fitted "
                "covariance."
            )
        return self._source

    @property
    def source_(self) -> FittedCovariance:
        """The covariance that it follows from."""
        return self._fitted()

    @property
    def certificate_(self) -> Certificate:
        return self._fitted().certificate_

    @property
    def guarantee_(self) -> Guarantee:
        return self._fitted().guarantee_

    @property
    def n_samples_(self) -> float:
        return self._fitted().n_samples_

    @property
    def n_features_in_(self) -> int:
        self._fitted()
        return len(self._inputs)

    @property
    def labels_(self) -> tuple[str, ...]:
        """These columns' names; their places where they have none."""
        self._fitted()
        return tuple(self._moment.names[place] for place in self._inputs)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """These columns' names, where they have any."""
        if self._fitted()._check_fitted().names is None:
            raise AttributeError("feature_names_in_: the columns have no names")
        return np.array(self.labels_, dtype=object)

    @property
    def schema_(self) -> Schema | None:
        """The schema by which a table's columns become these, if there is one."""
        return self._fitted().schema_

    @property
    def notes_(self) -> tuple[str, ...]:
        part = self._fitted().clipped_energy_
        return () if part is None or part <= _SHORTENED else (SHORTENED.format(part=part),)

    def intervals(self, level: float = 0.95, of: str = "table") -> Intervals:
        """Intervals of what follows, as of :meth:`eigenveil.PrivateCovariance.intervals`.

        Those that no validated construction covers are not shown, with the reason.
        """
        self._fitted()

        def quantities(result: Result, share: float, kind: Kind) -> Iterable[Quantity]:
            del result
            for each in self._quantities(share):
                if kind == "population":
                    bars = each.bars.but(each.bars.shown, NO_KURTOSIS)
                    each = replace(each, bars=bars)
                yield each

        return asked(self._result, level, of, quantities)

    def _rows(self, X: ArrayLike, *, finite: bool = False) -> Array:
        """Rows with the columns of :attr:`labels_`: by name, or in their order.

        Of a frame that is a table as the covariance's was, its schema makes them. Arrays may also
        have all the columns of the covariance.
        """
        of, named = self._fitted()._check_fitted(), self._moment.result.names is not None
        found = validated(
            self,
            X,
            unit=of.plan.unit,
            names=self.labels_ if named else None,
            schema=of.schema,
            places=self._inputs,
            of=of.features,
            dtype=np.float64,
            ensure_all_finite=finite or "allow-nan",
            reset=False,
        )
        return np.asarray(found)

    def compare(self, X: ArrayLike) -> None:
        """Not there: compare the covariance, or :meth:`score` rows."""
        del X
        raise DataError("derive-no-comparison", kind=self.kind)

    def to_sklearn(self) -> None:
        """Not there: it is an object of scikit-learn's kind already, which needs this package."""
        self._fitted()
        raise not_exportable(
            f"A {self.kind} that follows from a covariance is not exported.",
            "Its numbers are in the folder's table, and in its attributes.",
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it into a folder: the covariance that it follows from, and how it follows.

        Raises
        ------
        NotFittedError
        OutputError
            When the folder cannot be written.
        """
        folder = Path(path)
        self._fitted().save(folder / SOURCE)
        recipe = {"format": _FORMAT, "kind": self.kind, "options": self.get_params()}
        with replacing(folder / RECIPE) as scratch:
            scratch.write_text(json.dumps(recipe, indent=2, default=_plain), encoding="utf-8")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else list(value)


def read_recipe(folder: Path) -> tuple[str, dict[str, Any]]:
    """The kind and the options that :meth:`DerivedModel.save` wrote.

    Raises
    ------
    DataError
        ``not-a-model``.
    """
    path = folder / RECIPE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != _FORMAT:
            raise KeyError(found["format"])
        return str(found["kind"]), dict(found["options"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError("not-a-model", path=path, why=str(error)) from None
