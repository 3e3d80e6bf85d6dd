"""Figures of what follows from a covariance: in standard deviations, so that columns compare."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.derived.base import DerivedModel
from eigenveil.models.derived.linear import DerivedCCA, DerivedDiscriminant, DerivedRegression
from eigenveil.models.derived.structure import (
    DerivedFactors,
    DerivedPartialCorrelation,
    DerivedPCA,
)
from eigenveil.plots.components import MOST_FEATURES, draw_squares, largest_rows
from eigenveil.plots.style import (
    BLUE,
    COLOURS,
    GREY,
    INK,
    axes_of,
    feature_names,
    label_text,
    open_frame,
    promise,
)

Array = NDArray[np.float64]


def plot_derived(model: DerivedModel, ax: Any = None, *, n_features: int = MOST_FEATURES) -> Any:
    """What a derived model found, by column: coefficients with their intervals, or squares.

    Columns are compared in their standard deviations. Those with the largest numbers are shown, in
    their own order.

    Parameters
    ----------
    n_features : int
        Columns shown, at the most.
    """
    if isinstance(model, DerivedRegression) and len(model.new_names()) <= len(COLOURS):
        return _coefficients(model, n_features, ax)
    values, labels, about, reach = _squares_of(model)
    names = [label_text(name) for name in model.labels_]
    if isinstance(model, DerivedPartialCorrelation):
        shown = largest_rows(values - np.eye(len(names)), n_features)
        values, names = values[np.ix_(shown, shown)], [names[place] for place in shown]
        labels = names
    axes = draw_squares(model, values, labels, n_features, reach, ax, names)
    axes.images[0].colorbar.set_label(about, fontsize=9)
    return axes


def _squares_of(model: Any) -> tuple[Array, list[str], str, float]:
    """A line a column of numbers, headings, what they are, and up to where they may go."""
    own, shares = (
        _of_columns(model, model._inputs),
        getattr(model, "explained_variance_ratio_", np.zeros(0)),
    )
    parts = [f"{number}\n{100 * share:.0f} %" for number, share in enumerate(shares, start=1)]
    match model:
        case DerivedPCA():
            labels = [f"PC{part}" for part in parts]
            values, about, reach = model.components_.T, "entry of the component", None
        case DerivedFactors():
            labels = [f"factor {part}" for part in parts]
            values, about, reach = model.loadings_, "correlation with the factor", 1.0
        case DerivedPartialCorrelation():
            values, about, reach = model.partial_correlation_, "partial correlation", 1.0
            labels = []
        case DerivedCCA():
            values = np.hstack([model.left_weights_, model.right_weights_]).T * own[:, None]
            about, reach = "weight, standardised", None
            labels = [f"pair {n}\nr = {r:.2f}" for n, r in enumerate(model.correlations_, start=1)]
        case DerivedDiscriminant():
            values = ((model.means_ - model.priors_ @ model.means_) / own).T
            about, reach = "group's mean, standardised", None
            labels = [label_text(name) for name in model.classes_]
        case _:  # a regression of many targets
            values = (model.coef_ * own).T / _of_columns(model, model._targets)
            about, reach = "coefficient, standardised", None
            labels = _targets_of(model)
    return values, labels, about, reach or float(np.abs(values).max(initial=0.0)) or 1.0


def _targets_of(model: Any) -> list[str]:
    names = (name.removesuffix(" predicted") for name in model.new_names())
    return [label_text(name) for name in names]


def _of_columns(model: Any, places: tuple[int, ...]) -> Array:
    """Released standard deviations of some of the covariance's columns; 1 where noise hides one."""
    variances = np.diag(model.source_.covariance_)[list(places)]
    return np.asarray(np.sqrt(np.where(variances > 0, variances, 1.0)))


def _coefficients(model: Any, n_features: int, ax: Any) -> Any:
    """Coefficients as dots, and their intervals as bars; a colour a target."""
    found = np.atleast_2d(model.coef_)
    scale = _of_columns(model, model._inputs)[:, None] / _of_columns(model, model._targets)
    values = found.T * scale
    bars = model.intervals()["coefficient"].bars.times(scale)
    shown = largest_rows(values, n_features)
    places, count = np.arange(shown.size), values.shape[1]
    axes = axes_of(ax, (6.4, 1.6 + (0.16 + 0.14 * count) * max(shown.size, 4)))
    axes.axvline(0, color=GREY, lw=0.8, zorder=0)
    for target, name in enumerate(_targets_of(model)):
        height = places + 0.6 * ((target + 0.5) / count - 0.5)
        some = bars.shown[shown, target]
        low, high = (end[shown, target][some] for end in (bars.lower, bars.upper))
        colour = COLOURS[target] if count > 1 else BLUE
        axes.hlines(height[some], low, high, color=colour, lw=1.2, alpha=0.7)
        axes.plot(values[shown, target], height, "o", ms=5, color=colour, label=name)
    names = feature_names(model)
    axes.set_yticks(places, [names[i] for i in shown], parse_math=False, fontsize=8, color=INK)
    axes.set_ylim(shown.size - 0.5, -0.5)
    said = "; bars: 95 % intervals of ordinary least squares" if bars.shown.any() else ""
    axes.set_xlabel(f"coefficient, in standard deviations{said}", fontsize=9)
    axes.set_title(promise(model), fontsize=10)
    open_frame(axes)
    if count > 1:
        axes.legend(frameon=False, fontsize=8, title="target", title_fontsize=8)
    return axes
