"""Fitted models as objects of scikit-learn alone: what was released, under scikit-learn's names.

They need no eigenveil to be used, and know nothing of the guarantee: keep the certificate beside
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from eigenveil.errors import DataError

Array = NDArray[np.float64]


def pca_of(model: Any) -> PCA | Pipeline:
    """A fitted PCA as scikit-learn's, behind a ``StandardScaler`` where columns have scales."""
    if model.covariate_effects_ is not None:
        raise not_exportable(
            "The effects of covariates are taken off before the scores, which no PCA of "
            "scikit-learn does.",
            "ONNX has the whole transform: eigenveil export RESULT --to onnx.",
        )
    scale, whitens = model.scale_, model._whitens
    # where noise hides a variance, what scikit-learn computes with: that of any other direction
    components, variance = np.array(model.components_), model._gaussian().along
    components[:, scale == 0] = 0.0
    if whitens:
        components[variance == 0] = 0.0  # scores along these are 0
    made = PCA(n_components=len(components), whiten=whitens)
    rows = _rows(model)
    scaled = bool(np.any(scale != 1.0))
    made.components_, made.explained_variance_ = components, variance
    made.explained_variance_ratio_ = np.array(model.explained_variance_ratio_)
    made.singular_values_ = np.sqrt(variance * max(rows - 1, 0))
    made.mean_ = np.zeros_like(scale) if scaled else np.array(model.mean_)
    made.n_components_, made.n_samples_ = len(components), rows
    # where less than the whole moment was released nothing is known of the other directions
    made.noise_variance_ = float(getattr(model, "noise_variance_", np.nan))
    if not scaled:
        return _with_columns(made, model)
    _with_columns(made, model, names=False)
    scaler = _with_columns(StandardScaler(), model)
    scaler.mean_, scaler.scale_ = np.array(model.mean_), np.where(scale > 0, scale, 1.0)
    scaler.var_, scaler.n_samples_seen_ = scaler.scale_**2, rows
    return Pipeline([("scale", scaler), ("pca", made)])


def mixture_of(model: Any) -> GaussianMixture:
    made = GaussianMixture(len(model.weights_), covariance_type=model._covariances.name)
    made.weights_, made.means_ = np.array(model.weights_), np.array(model.means_)
    made.covariances_ = np.array(model.covariances_)
    made.precisions_cholesky_ = factors = precision_factors(model)
    made.precisions_ = (
        factors @ np.swapaxes(factors, -1, -2) if model._covariances.matrices else factors**2
    )
    made.converged_, made.n_iter_ = bool(model.converged_), 0
    made.lower_bound_ = made.lower_bounds_ = None  # of rows, which are not here
    return _with_columns(made, model)


def covariance_of(model: Any) -> EmpiricalCovariance:
    made = EmpiricalCovariance()
    made.location_, made.covariance_ = np.array(model.location_), np.array(model.covariance_)
    made.precision_ = np.array(model.precision_)
    return _with_columns(made, model)


def precision_factors(model: Any) -> Array:
    """Of each covariance of a mixture the matrix P, or the number, with P P' its inverse."""
    try:
        return np.asarray(model._covariances.precision_factors())
    except np.linalg.LinAlgError:
        raise not_exportable(
            "A component has no variance in some direction, and scikit-learn's mixture has no "
            "density then.",
            "Fit with more rows or a larger epsilon, or use the model itself.",
        ) from None


def not_exportable(what: str, hint: str) -> DataError:
    """The error of a model that another library cannot hold."""
    return DataError("not-exportable", what=what, way_out=hint)


def _rows(model: Any) -> int:
    return max(1, round(float(model.n_samples_)))


def _with_columns(made: Any, model: Any, *, names: bool = True) -> Any:
    made.n_features_in_ = model.n_features_in_
    if names and hasattr(model, "feature_names_in_"):
        made.feature_names_in_ = np.array(model.feature_names_in_)
    return made
