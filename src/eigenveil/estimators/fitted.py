"""What every fitted PCA can do, whoever held the rows: transform, save, load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from eigenveil.errors import DataError
from eigenveil.estimators.inputs import validated
from eigenveil.estimators.pipeline import Factors
from eigenveil.estimators.result import View, of_factors
from eigenveil.estimators.settings import Plan
from eigenveil.estimators.stored import StoredModel
from eigenveil.estimators.stream_plan import StreamPlan


class FittedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, StoredModel):  # type: ignore[misc]
    """Released components and what belongs to them.

    ``FittedPCA.load`` reads a model that any of the estimators saved; ``PrivatePCA.load`` and
    ``FederatedPCA.load`` also give back how it was asked for.
    """

    _FAMILY = ("PrivatePCA", "FederatedPCA", "PrivateStreamingPCA")
    _PLAN = Plan
    _FACTORS = Factors

    components_: View[NDArray[np.float64]] = of_factors("components")
    mean_: View[NDArray[np.float64]] = of_factors("mean")
    explained_variance_: View[NDArray[np.float64]] = of_factors("explained_variance")
    explained_variance_ratio_: View[NDArray[np.float64]] = of_factors("explained_variance_ratio")
    usable_: View[NDArray[np.bool_]] = of_factors("usable")
    n_samples_: View[float] = of_factors("rows")
    noise_floor_: View[float] = of_factors("noise_floor")
    total_variance_: View[float] = of_factors("total_variance")
    row_bound_: View[float] = of_factors("row_bound")

    @classmethod
    def _read_plan(cls, plan: Mapping[str, Any]) -> Plan:
        return (StreamPlan if "publish" in plan else Plan).model_validate(plan)

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Scores of the rows of ``X`` along the components, shape (n_samples, n_components).

        NaN for a row with NaN.
        """
        self._check_fitted()
        array = validated(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            reset=False,
        )
        components = self.components_.astype(array.dtype, copy=False)
        offset = (self.mean_ @ self.components_.T).astype(array.dtype, copy=False)
        return np.asarray(array @ components.T - offset)

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Rows in the original space of scores ``X``, shape (n_samples, n_features)."""
        self._check_fitted()
        scores = np.asarray(X)
        if scores.ndim != 2 or scores.shape[1] != self.components_.shape[0]:
            raise DataError(
                f"Scores of shape {scores.shape} do not have {self.components_.shape[0]} columns.",
                hint="Give what transform returned.",
            )
        return np.asarray(scores @ self.components_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = True
        tags.non_deterministic = getattr(self, "random_state", None) is None
        return tags
