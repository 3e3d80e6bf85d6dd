"""Densities of Gaussian components whose covariances have scikit-learn's shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.models.tensors.plan import CovarianceType

Array = NDArray[np.float64]


def log_densities(rows: Any, means: Array, covariances: Array, kind: CovarianceType) -> Array:
    """Log-density of rows (n, D), dense or sparse, under each component: shape (n, K)."""
    count, features = means.shape
    middle = means.mean(axis=0)
    spread = means - middle
    size = float(np.max(spread**2)) or float(np.max(middle**2)) or 1.0
    least = np.finfo(np.float64).eps * size
    constant = -0.5 * features * math.log(2.0 * math.pi)
    if kind == "spherical":
        variances = np.maximum(covariances, least)
        distances = _squared_distances(rows, means, spread, middle)
        logs = 0.5 * features * np.log(variances)
        return np.asarray(constant - logs - 0.5 * distances / variances)
    # far from the origin, squares would leave no digits for differences
    whole = (rows.toarray() if scipy.sparse.issparse(rows) else rows) - middle
    found = np.empty((whole.shape[0], count))
    for k in range(count):
        apart = whole - spread[k]
        if kind == "diag":
            variances = np.maximum(covariances[k], least)
            apart = apart / np.sqrt(variances)
            logs = 0.5 * float(np.log(variances).sum())
        else:
            factor = _factor(covariances if kind == "tied" else covariances[k], least)
            apart = scipy.linalg.solve_triangular(factor, apart.T, lower=True, check_finite=False).T
            logs = float(np.log(np.diagonal(factor)).sum())
        found[:, k] = -0.5 * np.vecdot(apart, apart) - logs
    return np.asarray(constant + found)


def _squared_distances(rows: Any, means: Array, spread: Array, middle: Array) -> Array:
    if scipy.sparse.issparse(rows):
        rows = rows.astype(np.float64)
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    else:
        means, rows = spread, rows - middle
        squares = np.vecdot(rows, rows)
    distances = squares[:, None] - 2.0 * np.asarray(rows @ means.T) + np.vecdot(means, means)
    return np.asarray(np.maximum(distances, 0.0))


def _factor(covariance: Array, least: float) -> Array:
    """The lower triangular factor."""
    lifted = covariance + least * np.eye(covariance.shape[0])
    return np.asarray(scipy.linalg.cholesky(lifted, lower=True))


def average_variances(covariances: Array, kind: CovarianceType, means: Array) -> Array:
    """Mean variance of a feature within each component, shape (K,)."""
    count, features = means.shape
    match kind:
        case "spherical":
            return covariances
        case "diag":
            return np.asarray(covariances.mean(axis=1))
        case "full":
            return np.asarray(np.trace(covariances, axis1=1, axis2=2) / features)
    return np.full(count, np.trace(covariances) / features)


def coloured(
    noise: Array, labels: NDArray[np.intp], covariances: Array, kind: CovarianceType
) -> Array:
    """Standard normal rows (n, D) with the covariances of their components."""
    if kind in ("spherical", "diag"):
        deviations = np.sqrt(covariances)[labels]
        return noise * (deviations[:, None] if kind == "spherical" else deviations)
    factors = covariances if kind == "full" else covariances[None]
    lower = np.array([_factor(each, 0.0) for each in factors])
    if kind == "tied":
        return np.asarray(noise @ lower[0].T)
    return np.asarray(np.einsum("nij,nj->ni", lower[labels], noise))
