"""Whether the words of a figure can be read at the width that it is shown with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from eigenveil_papers.reproduction.figure import DPI

SCREEN, PRINT, SHEET = 736.0, 6.5, 9.5
"""Pixels of a page's text column in a narrow window; width and height of a printed one (letter)."""


_GAP = 0.015 * DPI  # Pixels of the picture between words beside each other, at least


def texts(figure: Figure) -> Iterator[Text]:
    """All that are drawn; ticks outside of their axis are not."""
    for axes in figure.axes:
        if not axes.get_visible():
            continue
        for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if low <= tick.get_loc() <= high and tick.label1.get_visible():
                    yield tick.label1
            yield axis.label
        yield axes.title
        yield from axes.texts
        for table in axes.tables:
            yield from (cell.get_text() for cell in table.get_celld().values())
    yield from figure.texts  # the title's too
    for legend in legends(figure):
        yield from legend.get_texts()


def legends(figure: Figure) -> list[Legend]:
    """Below the panels or in them."""
    return [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]


def least(figure: Figure) -> tuple[float, float]:
    """The smallest text: pixels on a page, points in print."""
    points = min(text.get_fontsize() for text in texts(figure) if text.get_text())
    inches = figure.get_size_inches()[0]
    return points / 72.0 * SCREEN / inches, points * PRINT / inches


def legible(figure: Figure) -> bool:
    """No text of less than 7.5 pixels on a page and 6.5 points in print, and on one sheet."""
    pixels, points = least(figure)
    width, height = figure.get_size_inches()
    return pixels >= 7.5 and points >= 6.5 and height * PRINT / width <= SHEET


def faults(figure: Figure) -> list[str]:
    """Words over other words, over a legend, or cut at the edge, drawn as the picture is."""
    figure.set_dpi(DPI)
    figure.draw_without_rendering()
    boxes: list[tuple[str, Any]] = [
        (text.get_text(), text.get_window_extent()) for text in texts(figure) if text.get_text()
    ]
    whole = figure.bbox.padded(0.5)
    cut = [
        f"{name!r} is cut"
        for name, box in boxes
        if not (whole.contains(*box.min) and whole.contains(*box.max))
    ]
    boxes += [("a panel", axes.bbox) for axes in figure.axes if axes.get_visible() and axes.axison]
    return cut + [
        f"{one!r} is over {other!r}"
        for (one, a), (other, b) in itertools.combinations(boxes, 2)
        if (common := Bbox.intersection(a.padded(_GAP, 0.0), b)) is not None and common.height > 0.5
    ]
