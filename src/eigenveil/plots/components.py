"""Figures of a fitted PCA: variances, features, and, for their owner only, rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression

from eigenveil.errors import DataError
from eigenveil.io.formats.images import voxel_places
from eigenveil.models.covariance.estimator import FittedCovariance
from eigenveil.models.intervals.bars import Bars
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.models.pca.score_plot import ScoreDensity
from eigenveil.plots.style import (
    BLUE,
    GREY,
    INK,
    PALETTE,
    RED,
    axes_of,
    circle,
    feature_names,
    label_text,
    line_of,
    open_frame,
    promise,
    whole_numbers,
)

_MOST_ARROWS, _LARGEST_DOT = 20, 420.0


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
    names = feature_names(model)
    size, gap = (6.5, 0.14) if any("\n" in name for name in names) else (8, 0.085)
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
        for index, height in zip(side, _apart(arrows[side, 1], gap * reach), strict=True):
            x, y = arrows[index]
            name = names[index]
            axes.plot([x, edge], [y, height], color=GREY, lw=0.5, zorder=0)
            axes.text(
                edge + (0.02 if right else -0.02) * reach,
                height,
                name,
                parse_math=False,
                fontsize=size,
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

    Cells that hold no more than two deviations of the noise are left white. By groups each cell has
    a dot a group that it holds three deviations of, of a size that grows with its rows.

    Raises
    ------
    DataError
        ``no-scores`` where the fit released none (``scores=True``).
    """
    density = model.score_density_
    if density is None:
        raise DataError("no-scores")
    axes = axes_of(ax, (5.6, 5.0))
    along, counts = len(density.edges), density.counts
    if along == 1:
        _draw_line(axes, density)
    elif density.groups:
        _draw_groups(axes, density)
    else:
        shown = np.where(density.seen, counts, np.nan)
        drawn = axes.pcolormesh(*density.edges, shown.T, cmap="Blues", vmin=0.0, rasterized=True)
        axes.figure.colorbar(drawn, ax=axes, label="rows in a cell; white: hidden by noise")
    for number, label in enumerate((axes.set_xlabel, axes.set_ylabel)[:along]):
        _label(model, number, label)
    axes.set_title(promise(model), fontsize=10)
    open_frame(axes)
    return axes


def _draw_line(axes: Any, density: ScoreDensity) -> None:
    """Counts along one component, a colour a group, over what noise alone shows."""
    names = _group_names(density)
    for name, counts, colour in zip(names, np.atleast_2d(density.counts), PALETTE, strict=False):
        held = np.maximum(counts, 0.0)
        axes.stairs(held, density.edges[0], fill=True, color=colour, alpha=0.5, label=name)
    axes.axhline(density.least, color=GREY, lw=1.0)
    axes.set_ylabel("rows (above the line: more than the noise)")
    if density.groups:
        axes.legend(frameon=False, fontsize=8)


def _draw_groups(axes: Any, density: ScoreDensity) -> None:
    """A dot for each group that is seen in a cell, side by side, as large as it holds rows."""
    first, second = ((cuts[1:] + cuts[:-1]) / 2 for cuts in density.edges)
    largest = float(density.counts.max(initial=1.0))
    width = first[1] - first[0]
    together = np.maximum(density.seen.sum(axis=0), 1)
    places = np.cumsum(density.seen, axis=0) - 0.5 - together / 2
    for number, (name, colour) in enumerate(zip(_group_names(density), PALETTE, strict=False)):
        seen = density.seen[number]
        across, up = np.nonzero(seen)
        middle = first[across] + width * 0.8 * (places[number] / together)[seen]
        axes.scatter(
            middle,
            second[up],
            s=_LARGEST_DOT * np.maximum(density.counts[number][seen], 0.0) / largest,
            color=colour,
            alpha=0.75,
            linewidths=0,
            label=name,
        )
    for cuts, lines in zip(density.edges, (axes.axvline, axes.axhline), strict=True):
        for cut in cuts:
            lines(cut, color=GREY, lw=0.4, alpha=0.5, zorder=0)
    axes.set_xlim(density.edges[0][[0, -1]])
    axes.set_ylim(density.edges[1][[0, -1]])
    axes.legend(
        *_even_handles(axes),
        frameon=False,
        fontsize=8,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.12),
        ncols=4,
        title=f"the largest dot: {largest:,.0f} rows; none: fewer than {density.least:,.0f}",
        title_fontsize=8,
    )


def _even_handles(axes: Any) -> tuple[list[Any], list[str]]:
    """Handles of a legend that are of one size, whatever the dots are."""
    handles, labels = axes.get_legend_handles_labels()
    size = {"marker": "o", "ls": "", "alpha": 0.75}
    return [line_of(color=each.get_facecolor()[0], **size) for each in handles], labels


def _group_names(density: ScoreDensity) -> list[str]:
    return [label_text(name) for name in density.groups] or [""]


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


MOST_FEATURES, _MOST_NAMED, _NOT_USABLE = 20, 30, "not usable"
_MOST_SLICES = 9


def plot_loadings(model: FittedPCA, ax: Any = None, *, n_features: int = MOST_FEATURES) -> Any:
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
    axes = draw_squares(model, values, _numbered(model, "PC"), n_features, reach, ax)
    axes.images[0].colorbar.set_label("correlation" if correlated else "entry")
    return axes


def plot_maps(model: Any, ax: Any = None, *, n_features: int = MOST_FEATURES) -> Any:
    """The maps of independent sources, in the data's units, as coloured squares.

    The features with the largest entries are shown, in their own order; of images slices from below
    upwards, each source in a line. A source that cannot be told from others is marked in its label.

    Parameters
    ----------
    n_features : int
        Features shown, at the most.
    """
    values = np.asarray(model.mixing_)
    reach = float(np.abs(values).max(initial=0.0)) or 1.0
    axes = draw_squares(model, values, _numbered(model, "source "), n_features, reach, ax)
    axes.images[0].colorbar.set_label("entry of the map")
    return axes


def _numbered(model: Any, word: str) -> list[str]:
    """Headings of components; those that are not usable say so."""
    return [
        f"{word}{number}" + ("" if usable else f"\n{_NOT_USABLE}")
        for number, usable in enumerate(model.usable_, start=1)
    ]


def largest_rows(values: NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Places of the longest rows, in their order."""
    largest = np.argsort(-np.linalg.norm(values, axis=1), kind="stable")[:most]
    return np.asarray(np.sort(largest))


def draw_squares(
    model: Any,
    values: NDArray[np.float64],
    labels: Sequence[str],
    n_features: int,
    reach: float,
    ax: Any,
    names: Sequence[str] | None = None,
) -> Any:
    """Features by components, as coloured squares; of voxels slices of the brain."""
    names = feature_names(model) if names is None else names
    places = voxel_places(names)
    if places is not None:
        return _draw_slices(model, values, labels, places, reach, ax)
    shown = largest_rows(values, n_features)
    count = values.shape[1]
    size = (2.6 + 0.55 * max(count, 3), 1.4 + 0.24 * max(shown.size, 4))
    axes = axes_of(ax, size)
    image = axes.imshow(values[shown], cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    axes.figure.colorbar(image, ax=axes)
    axes.set_yticks(
        np.arange(shown.size), [names[index] for index in shown], parse_math=False, fontsize=8
    )
    long = max(len(line) for label in labels for line in label.split("\n")) > 10
    turn = {"rotation": 35, "ha": "right"} if long else {}
    axes.set_xticks(np.arange(count), labels, parse_math=False, fontsize=8, **turn)
    _mark_usable(axes.get_xticklabels())
    axes.set_title(promise(model), fontsize=10)
    return axes


def _mark_usable(labels: Any) -> None:
    for label in labels:
        label.set_color(RED if label.get_text().endswith(_NOT_USABLE) else INK)


def _draw_slices(
    model: Any,
    values: NDArray[np.float64],
    labels: Sequence[str],
    places: NDArray[np.intp],
    reach: float,
    ax: Any,
) -> Any:
    """A line of axial slices, by indices of voxels, for each component; the lowest on the left."""
    low, high = places.min(axis=0), places.max(axis=0)
    size, count = high - low + 3, values.shape[1]  # with an empty edge around each slice
    brain = np.full((*size, count), np.nan)
    brain[tuple((places - low + 1).T)] = values
    heights = np.unique(np.linspace(low[2], high[2], _MOST_SLICES).round().astype(np.intp))
    shown = brain[:, :, heights - low[2] + 1, ::-1]  # x, y, slice, component
    picture = shown.transpose(3, 1, 2, 0).reshape(count * size[1], heights.size * size[0])
    width = 1.6 + 0.62 * heights.size
    axes = axes_of(ax, (width + 1.0, 0.9 + 0.62 * count * size[1] / size[0]))
    image = axes.imshow(picture, cmap="RdBu_r", vmin=-reach, vmax=reach, origin="lower")
    axes.figure.colorbar(image, ax=axes, shrink=0.6)
    middles = (np.arange(max(count, heights.size)) + 0.5)[:, None] * size[:2] - 0.5
    axes.set_xticks(middles[: heights.size, 0], [f"z = {z}" for z in heights], fontsize=7)
    axes.set_yticks(middles[:count, 1][::-1], labels, parse_math=False, fontsize=8)
    _mark_usable(axes.get_yticklabels())
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
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
    names = feature_names(model)
    if len(names) <= _MOST_NAMED:
        axes.set_yticks(np.arange(len(names)), names, parse_math=False, fontsize=8)
        axes.set_xticks(np.arange(len(names)), np.arange(1, len(names) + 1), fontsize=7)
    else:
        axes.yaxis.set_major_locator(whole_numbers(integer=True))
    axes.set_title(promise(model), fontsize=10)
    return axes
