"""PrivateCovariance, and what every fitted covariance can do, whoever held the rows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.covariance import EmpiricalCovariance, empirical_covariance, log_likelihood

from eigenveil.models.as_sklearn import covariance_of
from eigenveil.models.beside import BesideExact, dense
from eigenveil.models.covariance.plan import CovarianceFactors, CovariancePlan
from eigenveil.models.derived.base import SOURCE, DerivedModel, read_recipe
from eigenveil.models.derived.kinds import Derives, derive
from eigenveil.models.driver import LedgerPlace
from eigenveil.models.intervals.bars import Kind, Quantity
from eigenveil.models.pca.exact import beside_covariance
from eigenveil.models.pca.intervals import of_covariance
from eigenveil.models.result import Result, View, of_factors, read_only
from eigenveil.models.stored import StoredModel, refuse_missing
from eigenveil.models.table_fit import TableFit


class FittedCovariance(Derives, StoredModel):
    """A released mean and covariance; ``FittedCovariance.load`` reads any estimator's."""

    _FAMILY = ("PrivateCovariance", "FederatedCovariance")
    _PLAN = CovariancePlan
    _FACTORS = CovarianceFactors

    covariance_: View[NDArray[np.float64]] = of_factors("covariance")
    location_: View[NDArray[np.float64]] = of_factors("mean")
    usable_: View[NDArray[np.bool_]] = of_factors("usable")
    noise_floor_: View[float] = of_factors("noise_floor")
    scale_: View[NDArray[np.float64]] = of_factors("scale")
    unscaled_: View[NDArray[np.bool_]] = View(lambda result: read_only(result.factors.scale == 0))
    n_samples_: View[float] = of_factors("rows")
    row_bound_: View[float] = View(lambda result: result.row_bound)
    clipped_energy_: View[float | None] = of_factors("clipped_energy")

    error_norm = EmpiricalCovariance.error_norm

    @property
    def correlation_(self) -> NDArray[np.float64]:
        """Correlations, shape (n_features, n_features); positive semidefinite, 1 on the diagonal.

        NaN of a column whose variance is no larger than what noise alone shows of it: a quotient of
        numbers that noise hides would be anything up to 1.
        """
        hidden = self._check_fitted().factors.hidden
        inverse = 1.0 / np.sqrt(np.where(hidden, np.nan, np.diag(self.covariance_)))
        found: NDArray[np.float64] = self.covariance_ * np.multiply.outer(inverse, inverse)
        np.fill_diagonal(found, np.where(hidden, np.nan, 1.0))
        return found

    @property
    def precision_(self) -> NDArray[np.float64]:
        """Inverse of the covariance, its pseudo-inverse where it has none; the same shape."""
        return np.asarray(scipy.linalg.pinvh(self.covariance_, check_finite=False))

    def _quantities(self, result: Result, level: float, of: Kind) -> Iterable[Quantity]:
        return of_covariance(result, level, of)

    def _beside(self, rows: Any) -> BesideExact:
        return beside_covariance(self, dense(rows))

    def _as_sklearn(self) -> EmpiricalCovariance:
        return covariance_of(self)

    def mahalanobis(self, X: ArrayLike) -> NDArray[np.float64]:
        """Squared Mahalanobis distances of the rows of ``X`` to ``location_``, (n_samples,)."""
        away = self._rows(X) - self.location_
        return np.asarray(np.maximum(0.0, np.vecdot(away @ self.precision_, away)))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Average log-density of the rows of ``X`` under a Gaussian of this mean and covariance.

        Minus infinity where the covariance is singular.
        """
        del y
        moment = empirical_covariance(self._rows(X) - self.location_, assume_centered=True)
        values = np.linalg.eigvalsh(self.covariance_)
        if values[0] <= values.size * np.finfo(np.float64).eps * values[-1]:
            return -np.inf
        return float(log_likelihood(moment, self.precision_))

    def _rows(self, X: ArrayLike) -> Any:
        rows = self._new_rows(X, dtype=np.float64, accept_sparse=False)
        refuse_missing(rows)
        return rows


def load_derived(path: str | os.PathLike[str]) -> DerivedModel:
    """Read a model that followed from a covariance, from the folder that its ``save`` wrote.

    Raises
    ------
    OutputError, DataError, PrivacyError
        As of a covariance's ``load``; ``not-a-model`` where it does not say how it follows.
    """
    folder = Path(path)
    kind, options = read_recipe(folder)
    return derive(FittedCovariance.load(folder / SOURCE), kind, **options)


class PrivateCovariance(TableFit, FittedCovariance):
    """Differentially private mean and covariance of one table.

    Nothing about the rows has to be known beforehand, and everything the fitted estimator holds
    may be published. Norms, centre and second moment are released as by
    :class:`eigenveil.PrivatePCA`; rows far from the centre are shortened to a bound chosen from
    the released norms, since rows divided by their norms have no covariance. The covariance is
    positive semidefinite: eigenvalues above the edge of the noise are freed of it, those below it
    become their mean, at least 0.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    covariance_, correlation_, precision_ : ndarray of shape (n_features, n_features)
        In the data's units; of rows about ``location_``, divided by their number. Correlations are
        NaN of columns whose variance noise hides, and a warning tells how many.
    location_ : ndarray of shape (n_features,)
        The released mean, the public one, or zero.
    usable_ : ndarray of bool, shape (n_features,)
        Which eigenvectors, by descending eigenvalue, stand above the noise; a warning tells where
        none does.
    noise_floor_ : float
        Variance that noise alone would show along a direction; in squared ``scale_``.
    scale_, unscaled_ : ndarray of shape (n_features,)
        As of :class:`eigenveil.PrivatePCA`.
    row_bound_ : float
        Distance from the centre at which rows were shortened, in the data's units.
    clipped_energy_ : float or None
        Share of the variance that this took away, read off the released norms; longer ones that
        too few rows have to be seen above the noise are not in it.
    n_samples_ : float
        Released (noisy) number of rows; those that are left out are not in it.
    guarantee_, certificate_, released_
        As of :class:`eigenveil.PrivatePCA`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenveil import PrivateCovariance
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = PrivateCovariance(epsilon=2.0, delta=1e-5).fit(X)
    >>> model.covariance_.shape
    (64, 64)
    >>> model.guarantee_.certified
    True
    """

    _TASK = "covariance"

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        mechanism: str = "auto",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        row_bound: float | None = None,
        row_quantile: float | None = None,
        center: bool | ArrayLike = True,
        scale: str | ArrayLike | None = None,
        ranges: ArrayLike | None = None,
        winsorize: float | None = None,
        budget_split: dict[str, float] | None = None,
        precision: str = "double",
        missing: str = "leave-out",
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        ledger: LedgerPlace | None = None,
        data_set: str | None = None,
    ) -> None:
        self._take(locals())
