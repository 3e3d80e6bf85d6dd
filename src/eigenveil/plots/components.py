"""Figures of a fitted PCA: variances, features, and, for their owner only, rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression

from eigenveil.errors import DataError
from eigenveil.models.covariance.estimator import FittedCovariance
from eigenveil.models.ica.estimator import FittedICA
from eigenveil.models.intervals.bars import Bars
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.plots.style import (
    BLUE,
    GREY,
    INK,
    RED,
    axes_of,
    circle,
    feature_names,
    open_frame,
    promise,
    whole_numbers,
)

_MOST_ARROWS, _LONGEST_NAME = 20, 24


def plot_scree(model: FittedPCA, ax: Any = None) -> Any:
    """Explained variance of the components, with a band for what noise alone would show.

    A bar is the 95 % interval of a usable component, where it has one; the wide band, on the right
    axis, that of the first components together. Components that noise hides are not usable, and not
    drawn: how many is in the legend.
    """
    axes = axes_of(ax, (6.4, 4.0))
    ratio = 100 * model.explained_variance_ratio_
    number = np.arange(1, ratio.size + 1)
    floor = 100 * model.noise_floor_ / (model.total_variance_ or 1.0)  # nothing was found: 0
    usable = model.usable_
    noise = "what noise alone would show" + _hides(usable)
    axes.axhspan(0, floor, color=GREY, alpha=0.35, lw=0, label=noise)
    axes.plot(number[usable], ratio[usable], "o-", color=BLUE, lw=1.2, label="component", zorder=3)
    highest = _draw_intervals(axes, model, number)
    axes.set_xlabel("component")
    axes.set_ylabel("explained variance (% of total)")
    axes.set_xlim(0.5, ratio.size + 0.5)
    top = max(float(ratio[usable].max(initial=0.0)), min(floor, 100.0), highest)
    axes.set_ylim(0, top * 1.12 or 1.0)
    axes.xaxis.set_major_locator(whole_numbers(integer=True))
    axes.set_title(promise(model), fontsize=10)
    open_frame(axes)
    handles, labels = axes.get_legend_handles_labels()
    band = _draw_band(axes, model, number)
    if band is not None:
        handles, labels = [*handles, band], [*labels, "95 %, first ones together (right axis)"]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2, "fontsize": 8}
    axes.legend(handles, labels, frameon=False, **(place if band else {}))
    return axes


def _shares(model: FittedPCA, name: str) -> Bars | None:
    """Intervals of shares, where a result has any."""
    try:
        return model.intervals()[name].bars
    except DataError:
        return None


def _draw_band(axes: Any, model: FittedPCA, number: NDArray[np.intp]) -> Any:
    """The intervals of the first components together, of those that are usable; on a right axis."""
    bars, several = _shares(model, "cumulative_ratio"), np.logical_and.accumulate(model.usable_)
    if bars is None or np.count_nonzero(several & bars.shown) < 2:
        return None
    some, right = several & bars.shown, axes.twinx()
    band = right.fill_between(
        number[some], 100 * bars.lower[some], 100 * bars.upper[some], color=BLUE, alpha=0.15, lw=0
    )
    right.set_ylim(0, 105)
    right.set_ylabel("first components together (% of total)")
    right.spines["top"].set_visible(False)
    return band


def _draw_intervals(axes: Any, model: FittedPCA, number: NDArray[np.intp]) -> float:
    """Bars of the usable components' shares, in percent; the highest end."""
    bars, usable = _shares(model, "explained_variance_ratio"), model.usable_
    if bars is None:
        return 0.0
    some = usable & ~np.isnan(bars.lower)
    low, middle, high = (100 * each[some] for each in (bars.lower, bars.estimate, bars.upper))
    axes.errorbar(
        number[some],
        middle,
        (middle - low, high - middle),
        fmt="none",
        ecolor=INK,
        elinewidth=1.0,
        capsize=3,
        alpha=0.6,
        label="95 % interval" if some.any() else None,
    )
    return float(high.max(initial=0.0))


def _hides(usable: NDArray[np.bool_]) -> str:
    """How many components noise hides, as an addition to what a legend says of it."""
    hidden = int(np.count_nonzero(~usable))
    return f"; hides {hidden} of {usable.size}" if hidden else ""


def plot_biplot(model: FittedPCA, ax: Any = None) -> Any:
    """Arrows of the features along the first two components, at most the 20 longest.

    Their loadings: correlations of features and scores, inside a circle of radius 1, where the fit
    shows the variance in all directions, else the components themselves. A component that does not
    stand above the noise is marked. No rows are shown: these are private.
    """
    axes = axes_of(ax, (8.2, 5.6))
    correlated = hasattr(model, "loadings_")
    arrows = (model.loadings_ if correlated else model.components_.T)[:, :2]
    count = min(2, arrows.shape[1])
    arrows = np.hstack([arrows, np.zeros((arrows.shape[0], 2 - count))])
    names = feature_names(model, _LONGEST_NAME)
    length = np.hypot(*arrows.T)
    shown = np.argsort(-length, kind="stable")[:_MOST_ARROWS]
    reach = 1.0 if correlated else float(np.max(length, initial=0.0)) or 1.0
    for index in shown[length[shown] > 0]:
        axes.annotate(
            "",
            arrows[index],
            (0.0, 0.0),
            arrowprops={"arrowstyle": "-|>", "color": BLUE, "lw": 1.0},
        )
    for right in (True, False):  # names beside the circle, so that none covers another
        side = [i for i in shown[length[shown] > 0] if (arrows[i, 0] >= 0) == right]
        side.sort(key=lambda index: arrows[index, 1])
        edge = (1.08 if right else -1.08) * reach
        for index, height in zip(side, _apart(arrows[side, 1], 0.085 * reach), strict=True):
            x, y = arrows[index]
            name = names[index]
            axes.plot([x, edge], [y, height], color=GREY, lw=0.5, zorder=0)
            axes.text(
                edge + (0.02 if right else -0.02) * reach,
                height,
                name,
                parse_math=False,
                fontsize=8,
                color=INK,
                ha="left" if right else "right",
                va="center",
            )
    axes.axhline(0, color=GREY, lw=0.8, zorder=0)
    axes.axvline(0, color=GREY, lw=0.8, zorder=0)
    if correlated:
        axes.add_patch(circle((0, 0), 1.0, fill=False, color=GREY, lw=0.8))
    axes.set_xlim(-1.9 * reach, 1.9 * reach)
    axes.set_ylim(-1.25 * reach, 1.25 * reach)
    axes.set_xticks([tick * reach for tick in (-1.0, -0.5, 0.0, 0.5, 1.0)])
    axes.set_aspect("equal")
    for number, label in enumerate((axes.set_xlabel, axes.set_ylabel)[:count]):
        _label(model, number, label)
    axes.set_title(promise(model), fontsize=10)
    open_frame(axes)
    return axes


def _label(model: FittedPCA, number: int, label: Any) -> None:
    """Name an axis by its component, and what of the variance it explains, where that is seen."""
    usable = bool(model.usable_[number])
    said = f" ({100 * model.explained_variance_ratio_[number]:.0f} %)" if usable else ": not usable"
    label(f"PC{number + 1}{said}", color=INK if usable else RED)


def _apart(heights: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """The nearest heights that are a gap apart; both ascending."""
    steps = gap * np.arange(heights.size)
    if heights.size == 0:
        return heights
    fit = IsotonicRegression().fit_transform(np.arange(heights.size), heights - steps)
    return np.asarray(fit + steps)


def plot_energy(model: FittedPCA, ax: Any = None) -> Any:
    """Share of the total variance that the first 1, 2, ... components explain together.

    Components that do not stand above the noise are not drawn: how many is in the legend.
    """
    axes = axes_of(ax, (6.4, 4.0))
    usable = model.usable_
    share = 100 * np.cumsum(model.explained_variance_ratio_[usable])
    number = np.arange(1, share.size + 1)
    label = "component" + ("" if usable.all() else f" (noise{_hides(usable).lstrip(';')})")
    axes.plot(number, share, "o-", color=BLUE, lw=1.2, label=label, zorder=3)
    axes.set_xlabel("components")
    axes.set_ylabel("explained variance together (% of total)")
    axes.set_xlim(0.5, usable.size + 0.5)
    axes.set_ylim(0, max(100.0, 1.02 * float(share.max(initial=0.0))))
    axes.xaxis.set_major_locator(whole_numbers(integer=True))
    axes.set_title(promise(model), fontsize=10)
    open_frame(axes)
    axes.legend(frameon=False, loc="lower right")
    return axes


def plot_score_density(model: FittedPCA, ax: Any = None) -> Any:
    """Where rows lie along the first two components, from the released histogram: may be shared.

    Cells that hold no more than two deviations of the noise are left white.

    Raises
    ------
    DataError
        ``no-scores`` where the fit released none (``scores=True``).
    """
    density = model.score_density_
    if density is None:
        raise DataError("no-scores")
    axes = axes_of(ax, (5.6, 5.0))
    shown = np.where(density.seen, density.counts, np.nan)
    if density.counts.ndim == 1:
        edges = density.edges[0]
        axes.stairs(np.maximum(density.counts, 0.0), edges, fill=True, color=BLUE, alpha=0.6)
        axes.axhline(2.0 * density.noise, color=GREY, lw=1.0)
        axes.set_ylabel("rows (above the line: more than the noise)")
        labels: tuple[Any, ...] = (axes.set_xlabel,)
    else:
        drawn = axes.pcolormesh(*density.edges, shown.T, cmap="Blues", vmin=0.0, rasterized=True)
        axes.figure.colorbar(drawn, ax=axes, label="rows in a cell; white: hidden by noise")
        labels = (axes.set_xlabel, axes.set_ylabel)
    for number, label in enumerate(labels):
        _label(model, number, label)
    axes.set_title(promise(model), fontsize=10)
    open_frame(axes)
    return axes


WATERMARK = "NOT PRIVATE"


def plot_scores(model: FittedPCA, scores: ArrayLike, ax: Any = None) -> Any:
    """Rows along the first two components. Shows rows: not private, not to be shared.

    The picture says so, in its title and across it.

    Parameters
    ----------
    scores : array of shape (n, n_components)
        What ``model.transform`` returned.
    """
    axes = axes_of(ax, (5.6, 5.0))
    points = np.asarray(scores)
    second = points[:, 1] if points.shape[1] > 1 else np.zeros(points.shape[0])
    axes.text(
        0.5,
        0.5,
        WATERMARK,
        transform=axes.transAxes,
        rotation=35,
        ha="center",
        va="center",
        fontsize=44,
        fontweight="bold",
        color=RED,
        alpha=0.28,
        zorder=5,
    )
    axes.scatter(points[:, 0], second, s=6, color=BLUE, alpha=0.45, linewidths=0)
    for number, label in enumerate((axes.set_xlabel, axes.set_ylabel)[: model.n_components_]):
        _label(model, number, label)
    axes.set_title("shows rows: for their owner only, not to be shared", fontsize=10, color=RED)
    open_frame(axes)
    return axes


_MOST_FEATURES, _MOST_NAMED = 20, 30


def plot_loadings(model: FittedPCA, ax: Any = None, *, n_features: int = _MOST_FEATURES) -> Any:
    """The loadings of the features on all components, as coloured squares.

    Correlations of features and scores where the fit shows the variance in all directions, else the
    components' own entries. The features with the largest ones are shown, in their own order. A
    component that does not stand above the noise is marked in its label.

    Parameters
    ----------
    n_features : int
        Features shown, at the most.
    """
    correlated = hasattr(model, "loadings_")
    values = np.asarray(model.loadings_ if correlated else model.components_.T)
    reach = 1.0 if correlated else float(np.abs(values).max(initial=0.0)) or 1.0
    axes = _squares(model, values, "PC", n_features, reach, ax)
    axes.images[0].colorbar.set_label("correlation" if correlated else "entry")
    return axes


def plot_maps(model: FittedICA, ax: Any = None, *, n_features: int = _MOST_FEATURES) -> Any:
    """The maps of independent sources, in the data's units, as coloured squares.

    The features with the largest entries are shown, in their own order. A source that cannot be
    told from others is marked in its label.

    Parameters
    ----------
    n_features : int
        Features shown, at the most.
    """
    values = np.asarray(model.mixing_)
    reach = float(np.abs(values).max(initial=0.0)) or 1.0
    axes = _squares(model, values, "source ", n_features, reach, ax)
    axes.images[0].colorbar.set_label("entry of the map")
    return axes


def _squares(
    model: Any, values: NDArray[np.float64], word: str, n_features: int, reach: float, ax: Any
) -> Any:
    """Features by components, as coloured squares."""
    largest = np.argsort(-np.linalg.norm(values, axis=1), kind="stable")[:n_features]
    shown = np.sort(largest)
    count = values.shape[1]
    size = (2.6 + 0.55 * max(count, 3), 1.4 + 0.24 * max(shown.size, 4))
    axes = axes_of(ax, size)
    image = axes.imshow(values[shown], cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    axes.figure.colorbar(image, ax=axes)
    names = feature_names(model, _LONGEST_NAME)
    axes.set_yticks(
        np.arange(shown.size), [names[index] for index in shown], parse_math=False, fontsize=8
    )
    usable = model.usable_
    labels = [f"{word}{n + 1}" + ("" if usable[n] else "\nnot usable") for n in range(count)]
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
