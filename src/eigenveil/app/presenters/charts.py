"""Pictures of a result as plain numbers, for pages that draw them in colours of their own.

What a figure of :mod:`eigenveil.plots` draws for paper, a page draws for a screen: at a phone's
width, light or dark. Everything in them is released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

MOST_LINES = 40


@dataclass(frozen=True)
class Chart:
    """A picture or a table with a heading, and a sentence about what it shows."""

    kind: ClassVar[str]
    heading: str
    about: str

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class Bars(Chart):
    """A bar a value, over the band that noise alone would fill."""

    kind = "bars"
    x: str  # Titles of the axes
    y: str
    values: Sequence[float | None]  # `None`: no bar, as noise hides the value
    floor: float | None  # The band's upper end
    # Of the first values, which stand above the noise; the others are not taken
    usable: Sequence[bool]


@dataclass(frozen=True)
class Arrows(Chart):
    """An arrow a feature along two components."""

    kind = "arrows"
    first: Sequence[float]
    second: Sequence[float]
    names: Sequence[str]


@dataclass(frozen=True)
class Circles(Chart):
    """Components in a plane: dots whose area is a weight, in circles of one deviation."""

    kind = "circles"
    places: Sequence[Sequence[float]]
    radii: Sequence[float]
    weights: Sequence[float]
    usable: Sequence[bool]


@dataclass(frozen=True)
class Lists(Chart):
    """Lists of words, each with a bar."""

    kind = "lists"
    titles: Sequence[str]
    words: Sequence[Sequence[str]]
    values: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Grid(Chart):
    """A table of numbers, a line a feature."""

    kind = "grid"
    first: str  # Heading of the lines' names
    headings: Sequence[str]
    names: Sequence[str]
    lines: Sequence[Sequence[float]]


CHARTS: tuple[type[Chart], ...] = (Bars, Arrows, Circles, Lists, Grid)


@dataclass(frozen=True)
class Comparison:
    """Two results beside each other: a sentence, and a line of numbers a component."""

    about: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]
