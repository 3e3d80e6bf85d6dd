"""Figures of features by coloured squares: loadings of components, and correlations."""

from __future__ import annotations

from typing import Any

import numpy as np

from eigenveil.models.covariance.estimator import FittedCovariance
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.plots.style import GREY, INK, RED, axes_of, feature_names, promise, whole_numbers

_MOST_FEATURES, _MOST_NAMED, _LONGEST_NAME = 20, 30, 24


def plot_loadings(model: FittedPCA, ax: Any = None, *, n_features: int = _MOST_FEATURES) -> Any:
    """The loadings of the features on all components, as coloured squares.

    Correlations of features and scores where the fit released the whole second moment, else the
    components' own entries. The features with the largest ones are shown, in their own order. A
    component that does not stand above the noise is marked in its label.

    Parameters
    ----------
    n_features : int
        Features shown, at the most.
    """
    correlated = hasattr(model, "loadings_")
    values = np.asarray(model.loadings_ if correlated else model.components_.T)
    largest = np.argsort(-np.linalg.norm(values, axis=1), kind="stable")[:n_features]
    shown = np.sort(largest)
    count = values.shape[1]
    size = (2.6 + 0.55 * max(count, 3), 1.4 + 0.24 * max(shown.size, 4))
    axes = axes_of(ax, size)
    reach = 1.0 if correlated else float(np.abs(values).max(initial=0.0)) or 1.0
    image = axes.imshow(values[shown], cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    axes.figure.colorbar(image, ax=axes, label="correlation" if correlated else "entry")
    names = feature_names(model, _LONGEST_NAME)
    axes.set_yticks(
        np.arange(shown.size), [names[index] for index in shown], parse_math=False, fontsize=8
    )
    usable = model.usable_
    labels = [f"PC{n + 1}" + ("" if usable[n] else "\nnot usable") for n in range(count)]
    axes.set_xticks(np.arange(count), labels, fontsize=8)
    for label, above in zip(axes.get_xticklabels(), usable, strict=True):
        label.set_color(INK if above else RED)
    axes.set_title(promise(model), fontsize=10)
    return axes


def plot_correlations(model: FittedCovariance, ax: Any = None) -> Any:
    """The correlations of the features of a model, as a coloured square; grey what noise hides."""
    axes = axes_of(ax, (5.6, 4.8))
    image = axes.imshow(model.correlation_, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    axes.set_facecolor(GREY)
    axes.figure.colorbar(image, ax=axes, label="correlation")
    hidden = np.isnan(model.correlation_).any()
    axes.set_xlabel("feature (grey: hidden by noise)" if hidden else "feature")
    names = feature_names(model, _LONGEST_NAME)
    if len(names) <= _MOST_NAMED:
        axes.set_yticks(np.arange(len(names)), names, parse_math=False, fontsize=8)
        axes.set_xticks(np.arange(len(names)), np.arange(1, len(names) + 1), fontsize=7)
    else:
        axes.yaxis.set_major_locator(whole_numbers(integer=True))
    axes.set_title(promise(model), fontsize=10)
    return axes
