"""Figures of a fitted model: each takes the model and ``ax=None`` and returns the Axes.

All show released numbers only and may be shared, but for the projection, which shows rows: it is
for the owner of the rows, and reports it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression

from eigenveil.errors import printable
from eigenveil.models.mixture.estimator import FittedMixture
from eigenveil.models.pca.estimator import FittedPCA
from eigenveil.models.stored import StoredModel
from eigenveil.models.topics.estimator import FittedTopics

_BLUE, _GREY, _RED = "#2b6cb0", "#a0aec0", "#c05621"
_INK = "#2d3748"
_MOST_ARROWS, _LONGEST_NAME = 20, 24


def scree(model: FittedPCA, ax: Any = None) -> Any:
    """Explained variance of the components, with a band for what noise alone would show.

    Components inside the band are drawn hollow: they are not usable.
    """
    axes = ax if ax is not None else Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    ratio = 100 * model.explained_variance_ratio_
    number = np.arange(1, ratio.size + 1)
    floor = 100 * model.noise_floor_ / (model.total_variance_ or 1.0)  # nothing was found: 0
    axes.axhspan(0, floor, color=_GREY, alpha=0.35, lw=0, label="what noise alone would show")
    axes.plot(number, ratio, color=_BLUE, lw=1.2, zorder=2)
    usable = model.usable_
    axes.plot(number[usable], ratio[usable], "o", color=_BLUE, label="component", zorder=3)
    if not usable.all():
        axes.plot(
            number[~usable],
            ratio[~usable],
            "o",
            markerfacecolor="white",
            color=_RED,
            label="not usable",
            zorder=3,
        )
    axes.set_xlabel("component")
    axes.set_ylabel("explained variance (% of total)")
    axes.set_ylim(0, max(float(ratio.max(initial=0.0)), min(floor, 100.0)) * 1.12 or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(_promise(model), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return axes


def biplot(model: FittedPCA, ax: Any = None) -> Any:
    """Arrows of the features along the first two components, at most the 20 longest.

    Their loadings: correlations of features and scores, inside a circle of radius 1, where the fit
    released the whole second moment, else the components themselves. A component that does not
    stand above the noise is marked. No rows are shown: these are private.
    """
    axes = ax if ax is not None else Figure(figsize=(8.2, 5.6), layout="constrained").subplots()
    correlated = hasattr(model, "loadings_")
    arrows = (model.loadings_ if correlated else model.components_.T)[:, :2]
    count = min(2, arrows.shape[1])
    arrows = np.hstack([arrows, np.zeros((arrows.shape[0], 2 - count))])
    names = getattr(model, "feature_names_in_", None)
    length = np.hypot(*arrows.T)
    shown = np.argsort(-length, kind="stable")[:_MOST_ARROWS]
    reach = 1.0 if correlated else float(np.max(length, initial=0.0)) or 1.0
    for index in shown[length[shown] > 0]:
        axes.annotate(
            "",
            arrows[index],
            (0.0, 0.0),
            arrowprops={"arrowstyle": "-|>", "color": _BLUE, "lw": 1.0},
        )
    for right in (True, False):  # names beside the circle, so that none covers another
        side = [i for i in shown[length[shown] > 0] if (arrows[i, 0] >= 0) == right]
        side.sort(key=lambda index: arrows[index, 1])
        edge = (1.08 if right else -1.08) * reach
        for index, height in zip(side, _apart(arrows[side, 1], 0.085 * reach), strict=True):
            x, y = arrows[index]
            name = str(index) if names is None else printable(names[index], most=_LONGEST_NAME)
            axes.plot([x, edge], [y, height], color=_GREY, lw=0.5, zorder=0)
            axes.text(
                edge + (0.02 if right else -0.02) * reach,
                height,
                name,
                parse_math=False,
                fontsize=8,
                color=_INK,
                ha="left" if right else "right",
                va="center",
            )
    axes.axhline(0, color=_GREY, lw=0.8, zorder=0)
    axes.axvline(0, color=_GREY, lw=0.8, zorder=0)
    if correlated:
        axes.add_patch(Circle((0, 0), 1.0, fill=False, color=_GREY, lw=0.8))
    axes.set_xlim(-1.9 * reach, 1.9 * reach)
    axes.set_ylim(-1.25 * reach, 1.25 * reach)
    axes.set_xticks([tick * reach for tick in (-1.0, -0.5, 0.0, 0.5, 1.0)])
    axes.set_aspect("equal")
    ratio, usable = 100 * model.explained_variance_ratio_, model.usable_
    for number, label in enumerate((axes.set_xlabel, axes.set_ylabel)[:count]):
        label(
            f"PC{number + 1} ({ratio[number]:.0f} %)" + ("" if usable[number] else ": not usable"),
            color=_INK if usable[number] else _RED,
        )
    axes.set_title(_promise(model), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _apart(heights: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """The nearest heights that are a gap apart; both ascending."""
    steps = gap * np.arange(heights.size)
    if heights.size == 0:
        return heights
    fit = IsotonicRegression().fit_transform(np.arange(heights.size), heights - steps)
    return np.asarray(fit + steps)


def _promise(model: StoredModel) -> str:
    """The guarantee, for a title."""
    guarantee = model.guarantee_
    return (
        f"epsilon = {guarantee.epsilon:.3g}, delta = {guarantee.delta:.2g}, {guarantee.adjacency}"
        + ("" if guarantee.certified else " (not certified)")
    )


def correlations(model: Any, ax: Any = None) -> Any:
    """The correlations of the features of a model, as a coloured square."""
    axes = ax if ax is not None else Figure(figsize=(5.6, 4.8), layout="constrained").subplots()
    image = axes.imshow(model.correlation_, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    axes.figure.colorbar(image, label="correlation")
    axes.set_xlabel("feature")
    axes.set_title(_promise(model), fontsize=10)
    return axes


def projection(model: FittedPCA, scores: ArrayLike, ax: Any = None) -> Any:
    """Rows along the first two components. Shows rows: not private, not to be shared.

    Parameters
    ----------
    scores : array of shape (n, n_components)
        What ``model.transform`` returned.
    """
    axes = ax if ax is not None else Figure(figsize=(5.6, 5.0), layout="constrained").subplots()
    points = np.asarray(scores)
    second = points[:, 1] if points.shape[1] > 1 else np.zeros(points.shape[0])
    axes.scatter(points[:, 0], second, s=6, color=_BLUE, alpha=0.45, linewidths=0)
    ratio = 100 * model.explained_variance_ratio_
    axes.set_xlabel(f"PC1 ({ratio[0]:.0f} %)")
    axes.set_ylabel(f"PC2 ({ratio[1]:.0f} %)" if ratio.size > 1 else "")
    axes.set_title("shows rows: for their owner only, not to be shared", fontsize=10, color=_RED)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def mixture_strengths(model: FittedMixture, ax: Any = None) -> Any:
    """Strengths of a mixture's directions, with a band for what noise alone would show.

    Those inside the band are drawn hollow: they are not usable.
    """
    return _strengths(model, ax, what="component", label="strength (variance it explains)")


def topic_strengths(model: FittedTopics, ax: Any = None) -> Any:
    """Strengths of a topic model's directions, with a band for what noise alone would show.

    Those inside the band are drawn hollow: they are not usable.
    """
    return _strengths(model, ax, what="topic", label="strength (of pairs of words)")


def _strengths(model: Any, ax: Any, *, what: str, label: str) -> Any:
    axes: Any = ax
    if axes is None:
        axes = Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    strengths, floor = model.strengths_, model.noise_floor_
    number = np.arange(1, strengths.size + 1)
    taken, above = number <= model.n_components_, strengths > floor
    highest = max(float(strengths.max(initial=0.0)), floor)
    axes.axhspan(0, floor, color=_GREY, alpha=0.35, lw=0, label="what noise alone would show")
    axes.axhline(0, color=_INK, lw=0.8)
    axes.plot(number, strengths, color=_GREY, lw=1.2, zorder=2)
    for chosen, style in (
        (taken & above, {"color": _BLUE, "label": what}),
        (taken & ~above, {"markerfacecolor": "white", "color": _RED, "label": "not usable"}),
        (~taken, {"markerfacecolor": "white", "color": _GREY, "label": "not taken"}),
    ):
        if chosen.any():
            axes.plot(number[chosen], strengths[chosen], "o", zorder=3, **style)
    lowest = min(0.0, float(strengths.min(initial=0.0)))
    if highest > _FAR * floor > 0:  # the band would not be seen
        axes.set_yscale("symlog", linthresh=floor, linscale=0.6)
        decades = 10.0 ** np.arange(math.ceil(math.log10(floor)), math.log10(highest) + 0.3)
        axes.set_yticks([0.0, *decades], ["0", *(f"{tick:g}" for tick in decades)])
        axes.set_ylim(max(1.3 * lowest, -floor) if lowest else 0.0, 1.8 * highest)
    else:
        axes.set_ylim(1.15 * lowest, 1.12 * highest or 1.0)
    axes.set_xlabel("direction")
    axes.set_ylabel(label)
    axes.set_xlim(0.5, strengths.size + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_title(_promise(model), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
    return axes


# Beyond so many times the noise, strengths are drawn on a logarithmic axis.
_FAR = 20.0
_LONGEST_WORD = 20
_MOST_COLUMNS = 4


def topics(
    model: FittedTopics,
    vocabulary: Sequence[str] | None = None,
    n_words: int = 8,
    fig: Any = None,
) -> NDArray[Any]:
    """The likeliest words of each topic as bars, one small Axes a topic.

    Parameters
    ----------
    vocabulary : sequence of str, optional
        As of ``model.top_words``.
    n_words : int
        Words a topic, at the most.
    fig : Figure, optional
        Drawn into; by default a new one of a size that fits.

    Returns
    -------
    array of Axes, one a topic
    """
    words = model.top_words(vocabulary, n_words)
    count = len(words)
    columns = min(count, _MOST_COLUMNS)
    rows = math.ceil(count / columns)
    tallest = max((len(each) for each in words), default=1)
    if fig is None:
        size = (max(5.0, 0.4 + 2.9 * columns), 0.6 + rows * (0.65 + 0.2 * max(tallest, 3)))
        fig = Figure(figsize=size, layout="constrained")
    places = np.atleast_1d(fig.subplots(rows, columns)).ravel()
    order = np.sort(model.topics_, axis=1)[:, ::-1]
    largest = float(order[:, 0].max())
    for index, (axes, own) in enumerate(zip(places, words, strict=False)):
        # a bar is as high in every topic
        axes.barh(np.arange(len(own)), order[index, : len(own)], height=0.72, color=_BLUE)
        axes.set_ylim(max(tallest, 3) - 0.4, -0.6)
        axes.set_yticks(np.arange(len(own)), [_short(word) for word in own], fontsize=8)
        axes.set_xlim(0, 1.05 * largest)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=3, min_n_ticks=2))
        axes.tick_params(axis="x", labelsize=7)
        axes.tick_params(axis="y", length=0)
        title = f"topic {index + 1} ({100 * model.weights_[index]:.1f} %)"
        axes.set_title(title, fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in places[count:]:
        axes.set_visible(False)
    fig.suptitle(f"probability of words: {_promise(model)}", fontsize=10)
    return np.asarray(places[:count])


def _short(word: str) -> str:
    """A word that fits beside a bar, as plain text."""
    if len(word) > _LONGEST_WORD:  # words with one stem differ at the end
        word = f"{word[: _LONGEST_WORD - 8]}\u2026{word[-7:]}"
    return word.replace("$", r"\$")


def mixture(model: FittedMixture, ax: Any = None) -> Any:
    """Components of a mixture along the two directions in which the means differ most.

    A dot's area goes with its component's weight; the circle about it has the radius of one
    standard deviation of a feature, on average. Everything is released: no row is shown.
    """
    axes: Any = ax
    if axes is None:
        axes = Figure(figsize=(5.6, 5.8), layout="constrained").subplots()
    places, shares = _leading_plane(model)
    deviations = np.sqrt(model.variances_)
    for place, deviation in zip(places, deviations, strict=True):
        axes.add_patch(Circle(place, deviation, facecolor=_BLUE, alpha=0.10, lw=0, zorder=1))
        axes.add_patch(Circle(place, deviation, fill=False, edgecolor=_BLUE, alpha=0.5, lw=0.8))
    areas = 24.0 + 600.0 * model.weights_
    axes.scatter(
        *places.T, s=areas, color=_BLUE, alpha=0.85, edgecolors="white", linewidths=0.8, zorder=3
    )
    low, high = places.min(axis=0), places.max(axis=0)
    middle, spread = (low + high) / 2.0, float((high - low).max())
    reach = 0.56 * spread + 1.15 * float(deviations.max()) or 1.0
    axes.set_aspect("equal")
    axes.set_xlim(middle[0] - reach, middle[0] + reach)
    axes.set_ylim(middle[1] - reach, middle[1] + reach)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7))
    for name, share, write in zip("12", shares, (axes.set_xlabel, axes.set_ylabel), strict=True):
        part = f" ({100 * share:.0f} % of how the means differ)" if share > 0 else ""
        write(f"direction {name}{part}")
    above, count = int(model.usable_.sum()), len(places)
    few = [f"only {above} of {count} stand above the noise"] if above < count else []
    lines = [_promise(model), *few, "circle: one standard deviation, dot: weight"]
    axes.set_title("\n".join(lines), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    _number(axes, places, areas)
    return axes


def _leading_plane(model: FittedMixture) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means along two directions about their average, shape (K, 2), and how much these show."""
    away = model.means_ - model.weights_ @ model.means_
    _, singular, directions = np.linalg.svd(
        np.sqrt(model.weights_)[:, None] * away, full_matrices=False
    )
    # the sign of a direction is one of two: the one whose largest entry is positive
    turned = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    directions = directions * turned[:, None]
    shares = singular**2 / max(float(np.sum(singular**2)), np.finfo(float).tiny)
    places = np.zeros((away.shape[0], 2))
    kept = min(2, len(directions))
    places[:, :kept] = away @ directions[:kept].T
    return places, np.append(shares, 0.0)[:2]


# Around a dot, eight to a ring.
_PLACES = 48


def _number(axes: Any, places: NDArray[np.float64], areas: NDArray[np.float64]) -> None:
    """Number the dots, each beside it where no other dot or number is, as far as there is room."""
    figure = axes.figure
    figure.draw_without_rendering()  # settles the layout, and with it where things are
    points = axes.transData.transform(places) * (72.0 / figure.dpi)
    radii = np.sqrt(areas / math.pi)
    width, height = 6.0, 10.0  # of a digit in points, at this size
    taken: list[tuple[float, float, float, float]] = [
        (x - r, y - r, x + r, y + r) for (x, y), r in zip(points, radii, strict=True)
    ]
    for index, ((x, y), radius) in enumerate(zip(points, radii, strict=True)):
        wide = width * len(str(index + 1))
        options = []
        for step in range(_PLACES):
            angle, far = math.pi * (0.5 - 0.25 * step), radius + 1.0 + 5.0 * (step // 8)
            middle = (
                x + (far + wide / 2) * math.cos(angle),
                y + (far + height / 2) * math.sin(angle),
            )
            box = (
                middle[0] - wide / 2,
                middle[1] - height / 2,
                middle[0] + wide / 2,
                middle[1] + height / 2,
            )
            options.append((sum(_overlap(box, other) for other in taken), step, middle, box))
        _, _, middle, box = min(options)
        taken.append(box)
        axes.annotate(
            str(index + 1),
            places[index],
            xytext=(middle[0] - x, middle[1] - y),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8.5,
            color=_INK,
            zorder=4,
        )


def _overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> float:
    """Area that two boxes have in common."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, high)


def save_figure(axes: Any, path: Path) -> None:
    """Write the figure of ``axes`` (one, or an array) to a file.

    The same model gives the same bytes.
    """
    figure = np.ravel(axes)[0].figure
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "eigenveil"}):
        figure.savefig(path, dpi=150, metadata=metadata)
