"""Figures of topics: their likeliest words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import printable
from eigenveil.models.topics.estimator import FittedTopics
from eigenveil.plots.style import BLUE, figure_of, open_frame, promise, whole_numbers

_LONGEST_WORD = 20
_MOST_COLUMNS = 4


def plot_topics(
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
