"""``PrivatePCA``, and what every fitted PCA can do: transform, save, load."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if

from eigenveil.checks import LARGEST, SMALLEST
from eigenveil.errors import DataError, NoisyResultWarning, callers_level, listed
from eigenveil.models.as_sklearn import pca_of
from eigenveil.models.beside import BesideExact, dense
from eigenveil.models.driver import LedgerPlace
from eigenveil.models.holes import scores_of_observed
from eigenveil.models.intervals.bars import Kind, Quantity
from eigenveil.models.pca.derived import ProbabilisticPCA, whitening
from eigenveil.models.pca.exact import beside_pca
from eigenveil.models.pca.intervals import of_pca
from eigenveil.models.pca.plan import Plan
from eigenveil.models.pca.rounds import private_pca
from eigenveil.models.pca.score_plot import ScoreDensity, density_of
from eigenveil.models.pca.variances import PCAFactors
from eigenveil.models.plan import BasePlan
from eigenveil.models.result import Result, View, of_factors, read_only, reciprocal
from eigenveil.models.rounds import Answers, Round
from eigenveil.models.stored import StoredModel
from eigenveil.models.streaming.state import StreamPlan
from eigenveil.models.table_fit import TableFit
from eigenveil.moments.engine import LargestNorm
from eigenveil.moments.source import RowSource

Method = TypeVar("Method", bound=Callable[..., Any])
_NO_DENSITY = (
    "Noise hides the variance in some direction, or there is none: {instead}. Fit with "
    "scale='private', ranges= or a larger epsilon."
)
_RAISED = "the density takes it to be what noise alone would show (noise_floor_)"


def _knows_total(model: Any) -> bool:
    """Whether a fit shows the variance in all directions; until there is one, it may."""
    plan = None if model._result is None else model._result.plan
    if plan is not None and not plan.way.whole and "variance" not in plan.fractions:
        raise AttributeError(
            f"The fit released neither the whole second moment (mechanism {plan.mechanism!r}) nor "
            "the variances, so that there is no covariance."
        )
    return True


def _of_the_total(method: Method) -> Method:
    """A method that is there where the variance in all directions is known."""
    found: Method = available_if(_knows_total)(method)
    return found


class FittedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StoredModel):  # type: ignore[misc]
    """Released components and what belongs to them.

    ``FittedPCA.load`` reads a model that any of the estimators saved; ``PrivatePCA.load`` and
    ``FederatedPCA.load`` also give back the options of the fit.
    """

    _FAMILY = ("PrivatePCA", "FederatedPCA", "PrivateStreamingPCA")
    _PLAN = Plan
    _FACTORS = PCAFactors

    components_: View[NDArray[np.float64]] = of_factors("components")
    mean_: View[NDArray[np.float64]] = of_factors("mean")
    scale_: View[NDArray[np.float64]] = of_factors("scale")
    unscaled_: View[NDArray[np.bool_]] = View(lambda result: read_only(result.factors.scale == 0))
    explained_variance_: View[NDArray[np.float64]] = of_factors("explained_variance")
    explained_variance_ratio_: View[NDArray[np.float64]] = of_factors("explained_variance_ratio")
    singular_values_: View[NDArray[np.float64]] = View(lambda result: _singular(result))
    usable_: View[NDArray[np.bool_]] = of_factors("usable")
    n_samples_: View[float] = of_factors("rows")
    noise_floor_: View[float] = of_factors("noise_floor")
    total_variance_: View[float] = of_factors("total_variance")
    row_bound_: View[float] = of_factors("row_bound")
    variance_bound_: View[float] = of_factors("variance_bound")
    covariate_effects_: View[NDArray[np.float64] | None] = of_factors("covariate_effects")
    n_components_ = View(lambda result: int(result.factors.components.shape[0]))
    score_density_: View[ScoreDensity | None] = View(lambda result: density_of(result))
    adapted_: View[str] = of_factors("adapted")
    predicted_losses_: View[dict[str, float]] = View(
        lambda result: dict(result.factors.predicted_losses)
    )

    @classmethod
    def _read_plan(cls, plan: Mapping[str, Any]) -> Plan:
        return (StreamPlan if "publish" in plan else Plan).model_validate(plan)

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Scores of the rows of ``X`` along the components, shape (n_samples, n_components).

        Rows with NaN are refused, as by scikit-learn; where the fit had a ``missing`` other than
        "leave-out" their scores are by least squares on the columns that they have. A
        ``NoisyResultWarning`` names the components that are not usable: scores along them show
        noise, not the rows.
        """
        array = self._new_rows(X)
        self.warn_of_noise()
        return self._scores(array)

    def truncated(self, n_components: int) -> Self:
        """The same release with its first components alone, at no cost.

        Variances, which are usable, and the certificate are those of the fit; the variance of the
        components left out counts as noise's (``noise_variance_``). ``score_density_`` is there
        where all of its components are. It can be saved, and ``fit`` fits anew, by the fit's own
        parameters.

        Parameters
        ----------
        n_components : int
            From 1 to as many as the fit released.

        Raises
        ------
        NotFittedError
        DataError
            ``bad-truncation``.
        """
        model = type(self)(**self.get_params(deep=False))
        found = self._check_fitted()
        model._result = replace(
            found, factors=found.released.first(n_components), whole=found.released
        )
        return model

    def warn_of_noise(self) -> None:
        """Warn where scores are along components that are not usable."""
        hidden = [f"PC{index + 1}" for index in np.flatnonzero(~self.usable_)]
        if hidden:
            warnings.warn(
                "Scores along components that do not stand above the noise (usable_) show nothing "
                f"of the rows: {listed(hidden)}.",
                NoisyResultWarning,
                stacklevel=callers_level(),
            )

    def _quantities(self, result: Result, level: float, of: Kind) -> Iterable[Quantity]:
        return of_pca(result, level, of)

    def _beside(self, rows: Any) -> BesideExact:
        return beside_pca(self, dense(rows))

    def _as_sklearn(self) -> Any:
        return pca_of(self)

    def linear_map(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What :meth:`transform` does with a row x that has every entry: ``W x - b``.

        Returns
        -------
        W : array of shape (n_components, n_features)
        b : array of shape (n_components,)
        """
        self._check_fitted()
        along = self._along()
        if self._whitens:
            along = along * whitening(self._gaussian().along)[:, None]
        return along, along @ self.mean_

    @property
    def _inverse_scale(self) -> NDArray[np.float64]:
        return reciprocal(self.scale_)

    def _along(self) -> NDArray[np.float64]:
        """What rows less their mean are multiplied by, before they are whitened."""
        along = self.components_ * self._inverse_scale
        if self.covariate_effects_ is not None:
            covariates = self._covariates
            along[:, covariates] = -(along @ self.covariate_effects_)
        return np.asarray(along)

    def _scores(self, array: Any) -> NDArray[np.floating[Any]]:
        """Of checked rows, dense or sparse."""
        along = self._along()
        offset = (self.mean_ @ along.T).astype(array.dtype, copy=False)
        scores = np.asarray(array @ along.T.astype(array.dtype, copy=False) - offset)
        if self._check_fitted().plan.holes and not scipy.sparse.issparse(array):
            holed = np.isnan(array).any(axis=1)
            residuals = (array[holed].astype(np.float64) - self.mean_) * self._inverse_scale
            scores[holed] = scores_of_observed(residuals, self.components_)
        if self._whitens:
            scores *= whitening(self._gaussian().along).astype(scores.dtype, copy=False)
        return scores

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Rows in the original space of scores ``X``, shape (n_samples, n_features)."""
        self._check_fitted()
        scores = np.asarray(X)
        if scores.ndim != 2 or scores.shape[1] != self.components_.shape[0]:
            raise DataError("bad-scores", shape=scores.shape, columns=self.components_.shape[0])
        if self._whitens:
            scores = scores * np.sqrt(self._gaussian().along)
        return np.asarray(scores @ (self.components_ * self.scale_) + self.mean_)

    @_of_the_total
    def get_covariance(self) -> NDArray[np.float64]:
        """Covariance of the Gaussian that the components stand for, (n_features, n_features).

        Probabilistic PCA, as of scikit-learn's ``PCA``: the released variances along the components
        and ``noise_variance_`` in every other direction; positive semidefinite, in the data's
        units. Costs no privacy. Not there where neither the whole second moment nor the variances
        were released: of a stream's sketch, or without a share of the budget for the latter.
        """
        return self._gaussian().covariance()

    @_of_the_total
    def get_precision(self) -> NDArray[np.float64]:
        """Inverse of :meth:`get_covariance`, its pseudo-inverse where it has none."""
        return self._gaussian().precision()

    @_of_the_total
    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-density of each row of ``X`` under the Gaussian of :meth:`get_covariance`.

        Rows with NaN are refused, or have NaN where the fit had a ``missing``. Where the covariance
        is singular, no variance counts as less than ``noise_floor_``, with a
        ``NoisyResultWarning``; minus infinity where nothing was found.
        """
        gaussian = self._gaussian()
        if gaussian.singular:
            gaussian = gaussian.raised(float(self.noise_floor_))
            instead = "no row has a density: minus infinity" if gaussian.singular else _RAISED
            text = _NO_DENSITY.format(instead=instead)
            warnings.warn(text, NoisyResultWarning, stacklevel=callers_level())
        rows = self._new_rows(X, dtype=np.float64, accept_sparse=False)
        residuals = rows - self.mean_
        if self.covariate_effects_ is not None:
            covariates = self._covariates
            residuals -= residuals[:, covariates] @ self.covariate_effects_.T
        return gaussian.log_density(residuals)

    @_of_the_total
    def score(self, X: ArrayLike, y: object = None) -> float:
        """Average of :meth:`score_samples`."""
        del y
        return float(np.mean(self.score_samples(X)))

    @property
    def noise_variance_(self) -> float:
        """Variance along each direction that is not a component's: the mean of what they leave."""
        return self._view_of_total("noise_variance_").rest

    @property
    def loadings_(self) -> NDArray[np.float64]:
        """Correlations of features and scores, shape (n_features, n_components).

        A component times its standard deviation, over the feature's by :meth:`get_covariance`.
        """
        return read_only(self._view_of_total("loadings_").loadings())

    def _view_of_total(self, name: str) -> ProbabilisticPCA:
        if self._result is None:
            raise AttributeError(f"{name}: {type(self).__name__} is not fitted yet")
        _knows_total(self)
        return self._gaussian()

    def _gaussian(self) -> ProbabilisticPCA:
        result = self._check_fitted()
        factors, scale = result.factors, np.array(result.factors.scale)
        plan = result.plan
        aside = list(plan.aside) if isinstance(plan, Plan) else []
        scale[aside] = 0.0  # what is left of the others has no part in them
        return ProbabilisticPCA(
            factors.components,
            factors.explained_variance,
            factors.total_variance,
            scale,
        )

    @property
    def _covariates(self) -> list[int]:
        plan = self._check_fitted().plan
        return list(plan.covariates) if isinstance(plan, Plan) else []

    @property
    def _whitens(self) -> bool:
        return bool(self._check_fitted().spec.parameters.get("whiten", False))

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _singular(result: Result) -> NDArray[np.float64]:
    rows = max(result.factors.rows - 1.0, 0.0)
    return read_only(np.sqrt(result.factors.explained_variance * rows))


# -- PrivatePCA: the scikit-learn estimator of one data set.


class PrivatePCA(TableFit, FittedPCA):
    """Differentially private principal component analysis.

    Nothing about the rows has to be known beforehand, and everything the fitted estimator holds may
    be published: scale, centre, second moment and explained variance are four noisy releases that
    share the budget (the design's section 8).

    Parameters
    ----------
    {options}

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal rows; the entry of largest magnitude of each is positive.
    n_components_ : int
    mean_ : ndarray of shape (n_features,)
        What :meth:`transform` subtracts, in the data's units: the released mean, the public centre,
        or zero (the middles of public ranges).
    scale_ : ndarray of shape (n_features,)
        What :meth:`transform` then divides by, in the data's units; 1 without scales. A column of
        scale 0 is left out.
    unscaled_ : ndarray of bool, shape (n_features,)
        Which columns are left out: constant ones, and those of which too few rows show.
    adapted_ : str
        What the second release of mechanism "adaptive" was of; empty with the others.
    predicted_losses_ : dict of str to float
        What it could have been of, and the part of the exact components' energy that each was
        predicted to lose, from released numbers.
    score_density_ : ScoreDensity or None
        With ``scores=True`` how many rows are in each cell along the first two components: may be
        published, and drawn by ``eigenveil.plots.plot_score_density``.
    covariate_effects_ : ndarray of shape (n_features, n_covariates) or None
        What one unit more of each covariate adds to each column, in the data's units, columns of
        covariates in ascending order; :meth:`transform` takes it off. 0 on covariates, at which
        components are 0 too. ``None`` without covariates. :meth:`inverse_transform` gives rows of
        average covariates, and variances and :meth:`score` are those of what is left.
    explained_variance_ : ndarray of shape (n_components,)
        Released variance along each component, made non-increasing; in squared scales where
        columns have some. With ``scale="private"`` the total is their number. NaN where noise hides
        it, of components that are not usable.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same as a share of the released total variance.
    singular_values_ : ndarray of shape (n_components,)
        Of the rows that these are the variances of, as of scikit-learn's ``PCA``:
        ``sqrt(explained_variance_ * (n_samples_ - 1))``, of the released number of rows.
    variance_bound_ : float
        Both are of rows shortened to this length about the mean; 0 where they follow from the
        second moment alone.
    noise_floor_ : float
        Explained variance that noise alone would show.
    noise_variance_ : float
        Mean variance in the directions that no usable component has, as of scikit-learn's ``PCA``.
        There where the whole second moment or the variances were released, as are ``loadings_``,
        :meth:`get_covariance`, :meth:`get_precision`, :meth:`score` and :meth:`score_samples`.
    loadings_ : ndarray of shape (n_features, n_components)
        Correlations of features and scores, by :meth:`get_covariance`.
    usable_ : ndarray of bool, shape (n_components,)
        Which components stand above the noise.
    n_samples_ : float
        Released (noisy) number of rows; those that are left out are not in it.
    guarantee_ : Guarantee
        What was promised, to whom, and how it is computed.
    certificate_ : Certificate
        The recorded releases, from which the guarantee can be recomputed.
    released_ : dict of str to ndarray
        The released sums by the certificate's names: of symmetric ones the independent entries, of
        matrices beyond 32 MiB the spectrum.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from eigenveil import PrivatePCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> pca = PrivatePCA(n_components=5, epsilon=2.0, delta=1e-5).fit(X)
    >>> pca.transform(X).shape
    (1797, 5)
    >>> pca.guarantee_.certified
    True
    """

    _TASK = "pca"

    def __init__(
        self,
        n_components: int | float | str | None = 2,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        mechanism: str = "auto",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        row_norm: str | float = "unit",
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        scale: str | ArrayLike | None = None,
        ranges: ArrayLike | None = None,
        winsorize: float | None = None,
        covariates: Sequence[int | str] | None = None,
        budget_split: dict[str, float] | None = None,
        precision: str = "double",
        whiten: bool = False,
        scores: bool = False,
        scores_by: str | Sequence[int | str] | None = None,
        missing: str = "leave-out",
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        sketch_size: int | None = None,
        power_rounds: int | None = None,
        ledger: LedgerPlace | None = None,
        data_set: str | None = None,
    ) -> None:
        self._take(locals())

    def _rounds(
        self, plan: BasePlan, rows: RowSource, public: Mapping[str, Any]
    ) -> Generator[Round, Answers, Any]:
        assert isinstance(plan, Plan)
        center, longest = public["public_center"], plan.row_norm == "max"
        largest = None
        if longest:
            found = rows.fold(LargestNorm(center, plan.precision)).norm or 1.0
            largest = min(max(found, SMALLEST), LARGEST)  # as any bound that is given
        return private_pca(plan, max_norm=largest, **public)
