"""Figures of mixtures: the components, and how far these stand above the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import printable
from eigenveil.models.mixture.estimator import FittedMixture
from eigenveil.models.topics.estimator import FittedTopics
from eigenveil.plots.style import (
    BLUE,
    GREY,
    INK,
    RED,
    axes_of,
    circle,
    figure_of,
    open_frame,
    promise,
    whole_numbers,
)

# Beyond so many times the noise, strengths are drawn on a logarithmic axis.
_FAR = 20.0


def plot_mixture_strengths(model: FittedMixture, ax: Any = None) -> Any:
    """Strengths of a mixture's directions, with a band for what noise alone would show.

    Those inside the band are drawn hollow: they are not usable.
    """
    return _strengths(model, ax, what="component", label="strength (variance it explains)")


def plot_topic_strengths(model: FittedTopics, ax: Any = None) -> Any:
    """Strengths of a topic model's directions, with a band for what noise alone would show.

    Those inside the band are drawn hollow: they are not usable.
    """
    return _strengths(model, ax, what="topic", label="strength (of pairs of words)")


def _strengths(model: Any, ax: Any, *, what: str, label: str) -> Any:
    axes = axes_of(ax, (6.4, 4.0))
    strengths, floor = model.strengths_, model.noise_floor_
    number = np.arange(1, strengths.size + 1)
    taken, above = number <= model.n_components_, strengths > floor
    highest = max(float(strengths.max(initial=0.0)), floor)
    axes.axhspan(0, floor, color=GREY, alpha=0.35, lw=0, label="what noise alone would show")
    axes.axhline(0, color=INK, lw=0.8)
    axes.plot(number, strengths, color=GREY, lw=1.2, zorder=2)
    for chosen, style in (
        (taken & above, {"color": BLUE, "label": what}),
        (taken & ~above, {"markerfacecolor": "white", "color": RED, "label": "not usable"}),
        (~taken, {"markerfacecolor": "white", "color": GREY, "label": "not taken"}),
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
    axes.xaxis.set_major_locator(whole_numbers(integer=True, min_n_ticks=1))
    axes.set_title(promise(model), fontsize=10)
    open_frame(axes)
    axes.legend(frameon=False, loc="best")
    return axes


def plot_mixture(model: FittedMixture, ax: Any = None) -> Any:
    """Components of a mixture along the two directions in which the means differ most.

    A dot's area goes with its component's weight; the circle about it has the radius of one
    standard deviation of a feature, on average. Everything is released: no row is shown.
    """
    axes = axes_of(ax, (5.6, 5.8))
    places, shares = leading_plane(model)
    deviations = np.sqrt(model.variances_)
    for place, deviation in zip(places, deviations, strict=True):
        axes.add_patch(circle(place, deviation, facecolor=BLUE, alpha=0.10, lw=0, zorder=1))
        axes.add_patch(circle(place, deviation, fill=False, edgecolor=BLUE, alpha=0.5, lw=0.8))
    areas = 24.0 + 600.0 * model.weights_
    axes.scatter(
        *places.T, s=areas, color=BLUE, alpha=0.85, edgecolors="white", linewidths=0.8, zorder=3
    )
    low, high = places.min(axis=0), places.max(axis=0)
    middle, spread = (low + high) / 2.0, float((high - low).max())
    reach = 0.56 * spread + 1.15 * float(deviations.max()) or 1.0
    axes.set_aspect("equal")
    axes.set_xlim(middle[0] - reach, middle[0] + reach)
    axes.set_ylim(middle[1] - reach, middle[1] + reach)
    axes.xaxis.set_major_locator(whole_numbers(nbins=7))
    axes.yaxis.set_major_locator(whole_numbers(nbins=7))
    for name, share, write in zip("12", shares, (axes.set_xlabel, axes.set_ylabel), strict=True):
        part = f" ({100 * share:.0f} % of how the means differ)" if share > 0 else ""
        write(f"direction {name}{part}")
    above, count = int(model.usable_.sum()), len(places)
    few = [f"only {above} of {count} stand above the noise"] if above < count else []
    lines = [promise(model), *few, "circle: one standard deviation, dot: weight"]
    axes.set_title("\n".join(lines), fontsize=10)
    open_frame(axes)
    _number(axes, places, areas)
    return axes


def leading_plane(model: FittedMixture) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means along the two directions in which they differ most."""
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
_Box = tuple[float, float, float, float]


def _number(axes: Any, places: NDArray[np.float64], areas: NDArray[np.float64]) -> None:
    """Number the dots, each beside it where no other dot or number is, as far as there is room."""
    figure = axes.figure
    figure.draw_without_rendering()  # settles the layout, and with it where things are
    points = axes.transData.transform(places) * (72.0 / figure.dpi)
    radii = np.sqrt(areas / math.pi)
    width, height = 6.0, 10.0  # of a digit in points, at this size
    taken: list[_Box] = [
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
            left, low = middle[0] - wide / 2, middle[1] - height / 2
            box = (left, low, left + wide, low + height)
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
            color=INK,
            zorder=4,
        )


def _overlap(one: _Box, other: _Box) -> float:
    """Area that two boxes have in common."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, high)


_LONGEST_WORD = 20
_MOST_COLUMNS = 4


def plot_topics(
    model: FittedTopics, vocabulary: Sequence[str] | None = None, n_words: int = 8, fig: Any = None
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
        fig = figure_of(size)
    places = np.atleast_1d(fig.subplots(rows, columns)).ravel()
    order = np.sort(model.topics_, axis=1)[:, ::-1]
    largest = float(order[:, 0].max())
    for index, (axes, own) in enumerate(zip(places, words, strict=False)):
        # a bar is as high in every topic
        axes.barh(np.arange(len(own)), order[index, : len(own)], height=0.72, color=BLUE)
        axes.set_ylim(max(tallest, 3) - 0.4, -0.6)
        axes.set_yticks(np.arange(len(own)), [_short(word) for word in own], fontsize=8)
        axes.set_xlim(0, 1.05 * largest)
        axes.xaxis.set_major_locator(whole_numbers(nbins=3, min_n_ticks=2))
        axes.tick_params(axis="x", labelsize=7)
        axes.tick_params(axis="y", length=0)
        title = f"topic {index + 1} ({100 * model.weights_[index]:.1f} %)"
        axes.set_title(title, fontsize=9, loc="left")
        open_frame(axes)
    for axes in places[count:]:
        axes.set_visible(False)
    fig.suptitle(f"probability of words: {promise(model)}", fontsize=10)
    return np.asarray(places[:count])


def _short(word: str) -> str:
    """A word that fits beside a bar, as plain text."""
    word = printable(word)
    if len(word) > _LONGEST_WORD:  # words with one stem differ at the end
        word = f"{word[: _LONGEST_WORD - 8]}\u2026{word[-7:]}"
    return word.replace("$", r"\$")
