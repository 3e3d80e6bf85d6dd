"""``PrivateGaussianMixture``, and what every fitted mixture can do: assign, score, draw rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.utils.validation import check_random_state

from eigenveil.errors import DataError
from eigenveil.models.as_sklearn import mixture_of
from eigenveil.models.beside import BesideExact, count_notes, dense, finite, matched
from eigenveil.models.driver import LedgerPlace
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Kind, Quantity
from eigenveil.models.mixture.covariances import Covariances
from eigenveil.models.mixture.intervals import of_mixture
from eigenveil.models.mixture.plan import MixturePlan
from eigenveil.models.mixture.rounds import MixtureFactors
from eigenveil.models.result import Result, View, of_factors
from eigenveil.models.stored import StoredModel
from eigenveil.models.table_fit import TableFit


class FittedMixture(DensityMixin, StoredModel):  # type: ignore[misc]
    """Released means, weights and noise variance of a mixture of spherical Gaussians.

    ``FittedMixture.load`` reads a model that any of the estimators saved.
    """

    _FAMILY = ("PrivateGaussianMixture", "FederatedGaussianMixture")
    _PLAN = MixturePlan
    _FACTORS = MixtureFactors

    means_: View[NDArray[np.float64]] = of_factors("means")
    weights_: View[NDArray[np.float64]] = of_factors("weights")
    strengths_ = of_factors("strengths")
    noise_variance_ = of_factors("noise_variance")
    n_samples_ = of_factors("rows")
    noise_floor_ = of_factors("noise_floor")
    row_bound_ = of_factors("row_bound")
    converged_ = of_factors("converged")
    usable_ = of_factors("usable")
    covariances_: View[NDArray[np.float64]] = of_factors("covariances")
    _covariances: View[Covariances] = View(lambda result: _covariances(result))
    criteria_: View[NDArray[np.float64]] = of_factors("criteria")
    n_components_ = View(lambda result: int(result.factors.means.shape[0]))

    @property
    def variances_(self) -> NDArray[np.float64]:
        """Mean variance of a feature within each component, shape (n_components,)."""
        return self._covariances.mean_variances

    def _beside(self, rows: Any) -> BesideExact:
        return beside_mixture(self, dense(rows))

    def _quantities(self, result: Result, level: float, of: Kind) -> Iterable[Quantity]:
        return of_mixture(result, level, of)

    def _as_sklearn(self) -> GaussianMixture:
        return mixture_of(self)

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """The likeliest component of each row of ``X``, shape (n_samples,); -1 for one with NaN.

        What this and every other method that takes rows gives of them is theirs: it is not
        private, and for whoever may see the rows.
        """
        joint = self._log_joint(X)
        return np.where(np.isnan(joint[:, 0]), -1, np.argmax(joint, axis=1))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Posterior probability of each component, shape (n_samples, n_components)."""
        return np.asarray(scipy.special.softmax(self._log_joint(X), axis=1))

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """Log-density of each row of ``X`` under the mixture, shape (n_samples,)."""
        return np.asarray(scipy.special.logsumexp(self._log_joint(X), axis=1))

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Average log-density of the rows of ``X``."""
        del y
        return float(np.mean(self.score_samples(X)))

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion on the rows of ``X``, as scikit-learn's: lower is better.

        Of rows that may be seen; ``criteria_`` is what was released.
        """
        rows = self.score_samples(X)
        return -2.0 * float(rows.sum()) + self._free * math.log(rows.size)

    def aic(self, X: ArrayLike) -> float:
        """Akaike's information criterion on the rows of ``X``, as scikit-learn's."""
        return -2.0 * float(self.score_samples(X).sum()) + 2.0 * self._free

    @property
    def _free(self) -> int:
        """Parameters of the mixture."""
        features = self.means_.shape[1]
        values = self.covariances_
        triangle = features * (features + 1) // 2
        own = values.size if not self._covariances.matrices else triangle
        if self._covariances.matrices and values.ndim == 3:
            own *= values.shape[0]
        return self.means_.size + self.weights_.size - 1 + own

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Rows drawn from the mixture, and their components; costs no privacy.

        Returns
        -------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        """
        self._check_fitted()
        if n_samples < 1:
            raise DataError("out-of-range", name="n_samples", value=n_samples, wanted="1 or more")
        random = check_random_state(random_state)
        labels = random.choice(self.weights_.size, size=n_samples, p=self.weights_)
        noise = random.standard_normal((n_samples, self.means_.shape[1]))
        return self.means_[labels] + self._covariances.coloured(noise, labels), labels

    def _log_joint(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithm of weight times density, shape (n_samples, n_components)."""
        rows = self._new_rows(X)
        densities = self._covariances.log_densities(rows, self.means_)
        return np.asarray(np.log(self.weights_) + densities)


def _covariances(result: Result) -> Covariances:
    assert isinstance(result.plan, MixturePlan)
    factors = result.factors
    return result.plan.shape(factors.covariances, *factors.means.shape)


# -- A result beside the rows themselves.

_ABOUTS = {
    "weight": "released weight",
    "exact_weight": "that of the exact component that is nearest, each taken once",
    "distance": "of the means, in deviations of a column within the exact component",
    "same_rows": "of the rows that the private mixture assigns to it, the part that the exact one "
    "assigns to that exact component",
}
_EXACT = (
    "The exact mixture is scikit-learn's: the likelier one of a start from k-means and one from "
    "the released means."
)


def beside_mixture(model: Any, given: Any) -> BesideExact:
    """A mixture beside the likelier of two that expectation maximisation finds in the rows."""
    result = model._check_fitted()
    rows, left = finite(given, least=model.means_.shape[0])
    exact = _fitted(model, rows)
    deviation = np.sqrt(_mean_variances(exact, model.means_.shape))
    away = np.linalg.norm(model.means_[:, None] - exact.means_[None], axis=2) / deviation
    ours, theirs = model.predict(rows), exact.predict(rows)
    pairs = dict(matched(-away))
    lines = []
    for place, weight in enumerate(model.weights_):
        other, own = pairs[place], theirs[ours == place]
        lines.append(
            {
                "component": str(place + 1),
                "usable": bool(model.usable_[place]),
                "weight": float(weight),
                "exact_weight": float(exact.weights_[other]),
                "distance": float(away[place, other]),
                "same_rows": float(np.mean(own == other)) if own.size else None,
            }
        )
    measures = {
        "adjusted Rand index of the rows' components": float(adjusted_rand_score(theirs, ours)),
        "log-density of a row": float(model.score(rows)),
        "log-density of a row under the exact mixture": float(exact.score(rows)),
    }
    notes = (*count_notes(intervals_of(model), rows.shape[0], result.plan.unit), _EXACT)
    name = result.spec.estimator
    return BesideExact(name, rows.shape[0], left, tuple(lines), _ABOUTS, measures, {}, notes)


def _fitted(model: Any, rows: Any) -> GaussianMixture:
    count, kind = model.means_.shape[0], model.plan_.covariance_type
    starts: list[dict[str, Any]] = [
        {"n_init": 3},
        {"means_init": model.means_, "weights_init": model.weights_},
    ]
    made = [
        GaussianMixture(count, covariance_type=kind, random_state=0, **start).fit(rows)
        for start in starts
    ]
    return max(made, key=lambda each: float(each.lower_bound_))


def _mean_variances(exact: GaussianMixture, shape: tuple[int, int]) -> Any:
    """Mean variance of a column within each component."""
    covariances, count = exact.covariances_, shape[0]
    if exact.covariance_type == "spherical":
        return covariances
    if exact.covariance_type == "diag":
        return covariances.mean(axis=1)
    traces = np.trace(covariances, axis1=-2, axis2=-1) / shape[1]
    return np.broadcast_to(traces, (count,))


# -- PrivateGaussianMixture: the scikit-learn estimator of one data set.


class PrivateGaussianMixture(TableFit, FittedMixture):
    """Differentially private mixture of Gaussians: by moments, then by sums of EM.

    Spherical components are found by orthogonal tensor decomposition: the rows' second moment and
    their third moment, seen through the span of its leading eigenvectors, are released with noise;
    whitening and tensor power iteration find the means. Components of other shapes are found by
    clustering noisy sums about candidates. A few noisy sums of expectation maximisation then make
    means, weights and covariances better. No start, no number of iterations and nothing about the
    rows has to be known.

    Parameters
    ----------
    {options}

    Attributes
    ----------
    means_ : ndarray of shape (n_components, n_features)
    weights_ : ndarray of shape (n_components,)
        The largest first; they add up to 1.
    noise_variance_ : float
        Mean variance of a feature within components.
    covariances_ : ndarray
        Of shape (n_components,), (n_components, n_features), (n_components, n_features, n_features)
        or (n_features, n_features), for the covariance types in their order; as in scikit-learn.
        All are positive definite.
    variances_ : ndarray of shape (n_components,)
        Mean variance of a feature within each component.
    n_components_ : int
    n_samples_ : float
        Released (noisy) number of rows; those that are left out are not in it.
    strengths_ : ndarray
        Leading eigenvalues of the second moment above the noise variance; singular values of a
        sketch.
    criteria_ : ndarray
        Of 1, 2, ... components, as far as they were tried: twice the negative log-likelihood of the
        released cells, with sampling and noise in it, and the logarithm of the rows for each
        parameter; the smallest is best. Empty where rows differ in more directions than cells show.
    noise_floor_ : float
        What of the last component noise alone would show, about once in a hundred times.
    usable_ : ndarray of bool, shape (n_components,)
        Which components are there and stand apart from all others in spite of the noise: of
        those that do not, at most about one in a hundred is taken for one that does. Where none
        stood above it, one stands in, the fit ended early, and ``certificate_.stopped`` gives the
        reason.
    converged_ : bool
        Whether every power iteration converged.
    guarantee_ : Guarantee
        What was promised, to whom, and how it is computed.
    certificate_ : Certificate
        The recorded releases, from which the guarantee can be recomputed.
    released_ : dict of str to ndarray
        The released sums by the certificate's names: of symmetric ones the independent entries, of
        matrices beyond 32 MiB the spectrum.

    References
    ----------
    Anandkumar, Ge, Hsu, Kakade, Telgarsky (2014), JMLR 15. Hsu, Kakade (2013),
    doi:10.1145/2422436.2422439. Paper 001, algorithms 4 and 5; the design's privacy.md, sections 2
    to 4.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenveil import PrivateGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> means = 4.0 * np.eye(3, 6)
    >>> X = means[rng.integers(3, size=20000)] + rng.standard_normal((20000, 6))
    >>> mixture = PrivateGaussianMixture(n_components=3, epsilon=1.0, delta=1e-6).fit(X)
    >>> mixture.means_.shape
    (3, 6)
    >>> bool(abs(mixture.noise_variance_ - 1.0) < 0.2)
    True
    """

    _TASK = "gaussian-mixture"

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        covariance_type: str = "spherical",
        noise_variance: float | None = None,
        mechanism: str = "auto",
        adjacency: str = "add-remove",
        unit: str | None = None,
        max_rows_per_unit: int = 1,
        pair: str = "auto",
        row_bound: float | None = None,
        center: bool | ArrayLike = True,
        budget_split: dict[str, float] | None = None,
        precision: str = "double",
        sketch_size: int | None = None,
        noise: str = "secure",
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
        ledger: LedgerPlace | None = None,
        data_set: str | None = None,
    ) -> None:
        self._take(locals())

    def fit_predict(
        self, X: ArrayLike, y: object = None, *, groups: ArrayLike | None = None, **others: object
    ) -> NDArray[np.intp]:
        """Fit to the rows of ``X``, and the component of each: of these see :meth:`predict`.

        Only the fit is private. Arguments and errors are those of :meth:`fit`.
        """
        return self.fit(X, y, groups=groups, **others).predict(X)
