"""What every fitted mixture can do, whoever held the rows: assign, score and draw rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse
import scipy.special
from numpy.typing import ArrayLike, NDArray
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_random_state

from eigenveil.errors import DataError
from eigenveil.estimators.inputs import validated
from eigenveil.estimators.mixture_pipeline import MixtureFactors
from eigenveil.estimators.result import View, of_factors
from eigenveil.estimators.stored import StoredModel
from eigenveil.estimators.tensor_settings import MixturePlan


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
    n_components_ = View(lambda result: int(result.factors.means.shape[0]))

    @property
    def covariances_(self) -> NDArray[np.float64]:
        """Variance of every feature within each component, shape (n_components,): all the same."""
        return np.full(self.means_.shape[0], self.noise_variance_)

    def predict(self, X: ArrayLike) -> NDArray[np.intp]:
        """The likeliest component of each row of ``X``, shape (n_samples,); -1 for one with NaN."""
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

    def sample(
        self,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Rows drawn from the mixture, and their components; costs no privacy.

        Returns
        -------
        X : array of shape (n_samples, n_features)
        y : array of shape (n_samples,)
        """
        self._check_fitted()
        if n_samples < 1:
            raise DataError(
                f"n_samples = {n_samples} is less than 1.", hint="Ask for at least one row."
            )
        random = check_random_state(random_state)
        labels = random.choice(self.weights_.size, size=n_samples, p=self.weights_)
        noise = random.standard_normal((n_samples, self.means_.shape[1]))
        return self.means_[labels] + math.sqrt(self.noise_variance_) * noise, labels

    def _log_joint(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithm of weight times density, shape (n_samples, n_components)."""
        self._check_fitted()
        rows = validated(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            reset=False,
        )
        features, middle = self.means_.shape[1], self.means_.mean(axis=0)
        spread = self.means_ - middle
        # a variance of 0 (nothing above the components) leaves the nearest mean
        size = float(np.max(spread**2)) or float(np.max(middle**2)) or 1.0
        variance = max(self.noise_variance_, np.finfo(np.float64).eps * size)
        if scipy.sparse.issparse(rows):
            means, rows = self.means_, rows.astype(np.float64)
            squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
        else:  # far from the origin, squares would leave no digits for differences
            means, rows = spread, rows - middle
            squares = np.vecdot(rows, rows)
        cross = np.asarray(rows @ means.T)
        distances = squares[:, None] - 2.0 * cross + np.vecdot(means, means)
        constant = -0.5 * features * math.log(2.0 * math.pi * variance)
        return np.asarray(
            np.log(self.weights_) + constant - np.maximum(distances, 0.0) / (2.0 * variance)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = getattr(self, "random_state", None) is None
        return tags
