"""Pictures as SVG: drawn here, coloured by the style sheet, so that they follow light and dark."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 34, 48
LEAST_EPSILON, MOST_EPSILON = 0.1, 10.0
SLIDES = 100
"""Positions of the slider, beside the first."""


@dataclass(frozen=True)
class _Axes:
    """From values to places in the picture."""

    x: tuple[float, float]
    y: tuple[float, float]
    log: bool = False

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point."""
        low, high = (math.log(v) for v in self.x) if self.log else self.x
        where = ((math.log(x) if self.log else x) - low) / ((high - low) or 1.0)
        level = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1.0)
        return (
            _LEFT + where * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - level * (HEIGHT - _TOP - _BOTTOM),
        )


def epsilon_at(slide: int) -> float:
    """The epsilon of a position of the slider, to two digits."""
    share = min(max(slide, 0), SLIDES) / SLIDES
    return float(f"{LEAST_EPSILON * (MOST_EPSILON / LEAST_EPSILON) ** share:.2g}")


def slide_at(epsilon: float) -> int:
    """The position of the slider for an epsilon."""
    share = math.log(max(epsilon, LEAST_EPSILON) / LEAST_EPSILON)
    return min(SLIDES, round(SLIDES * share / math.log(MOST_EPSILON / LEAST_EPSILON)))


def quality_at(points: Sequence[dict[str, Any]], epsilon: float) -> float | None:
    """The forecast between two simulated points; ``None`` outside of them."""
    known = [(p["epsilon"], p["quality"]) for p in points]
    for (low, first), (high, second) in itertools.pairwise(known):
        if low <= epsilon <= high:
            share = math.log(epsilon / low) / math.log(high / low)
            return float(first + share * (second - first))
    return float(known[0][1]) if len(known) == 1 and known[0][0] == epsilon else None


def quality_picture(points: Sequence[dict[str, Any]], epsilon: float) -> Markup:
    """The quality of a fit against epsilon, with a mark at one epsilon."""
    axes = _Axes((LEAST_EPSILON, MOST_EPSILON), (0.0, 1.0), log=True)
    found = quality_at(points, epsilon)
    said = "not known yet" if found is None else f"{found:.3f}"
    parts = [*_grid(axes, (0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 0.25, 0.5, 0.75, 1.0))]
    upper = [axes.at(p["epsilon"], min(1.0, p["quality"] + 2 * (p["error"] or 0))) for p in points]
    lower = [axes.at(p["epsilon"], max(0.0, p["quality"] - 2 * (p["error"] or 0))) for p in points]
    parts.append(f'<polygon class="band" points="{_joined([*upper, *reversed(lower)])}"/>')
    line = [axes.at(p["epsilon"], p["quality"]) for p in points]
    parts.append(f'<polyline class="line" points="{_joined(line)}"/>')
    parts += [f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in line]
    x, bottom = axes.at(epsilon, 0.0)
    parts.append(f'<line class="mark" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom:.1f}"/>')
    if found is not None:
        x, y = axes.at(epsilon, found)
        parts.append(f'<circle class="marked" cx="{x:.1f}" cy="{y:.1f}" r="6"/>')
        anchor = "end" if x > WIDTH / 2 else "start"
        shift = -10 if x > WIDTH / 2 else 10
        level = y + 22 if found > 0.5 else y - 12  # where the curve is not
        parts.append(
            f'<text class="value" x="{x + shift:.1f}" y="{level:.1f}" '
            f'text-anchor="{anchor}">{said} at epsilon {epsilon:g}</text>'
        )
    parts += _titles("epsilon")
    return _svg(parts, f"Forecast against epsilon: {said} at epsilon {epsilon:g}.")


def bars_picture(chart: dict[str, Any]) -> Markup:
    """A bar a value, over the band that noise alone would fill."""
    values, floor, usable = chart["values"], chart["floor"], chart["usable"]
    ticks = _round(max([*(value or 0.0 for value in values), floor or 0.0, 1e-300]))
    axes = _Axes((0.5, len(values) + 0.5), (0.0, ticks[-1]))
    parts = [*_grid(axes, _few(len(values)), ticks)]
    if floor is not None:
        (x0, y0), (x1, y1) = axes.at(axes.x[0], floor), axes.at(axes.x[1], 0.0)
        parts.append(
            f'<rect class="noise" x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" '
            f'height="{y1 - y0:.1f}"/>'
        )
    half = min(40.0, 0.3 * (axes.at(1.5, 0)[0] - axes.at(0.5, 0)[0]))
    for number, value in enumerate(values, start=1):
        (x, y), (_, base) = axes.at(number, max(value or 0.0, 0.0)), axes.at(number, 0.0)
        kind = "bar" if usable[number - 1] else "bar weak"
        parts.append(
            f'<rect class="{kind}" x="{x - half:.1f}" y="{y:.1f}" width="{2 * half:.1f}" '
            f'height="{max(base - y, 0):.1f}"/>'
        )
    if floor is not None:  # where the bars are lowest, and over them
        parts.append(
            f'<text class="tick over" x="{WIDTH - _RIGHT - 6}" y="{_TOP + 14}" text-anchor="end">'
            f"shaded: noise alone reaches {floor:.3g}</text>"
        )
    parts += _titles(chart["x"], chart["y"])
    above = sum(map(bool, usable))
    return _svg(
        parts,
        f"{chart['y']} by {chart['x']}: {len(values)} bars, {above} of them above the noise.",
    )


def arrows_picture(chart: dict[str, Any]) -> Markup:
    """An arrow a feature, the longest, along two components; rows are not drawn."""
    first, second, names = chart["first"], chart["second"], chart["names"]
    reach = max(max(map(abs, first)), max(map(abs, second)), 1e-12) * 1.25
    longest = sorted(range(len(first)), key=lambda at: -math.hypot(first[at], second[at]))[:_ARROWS]
    parts = [*_cross("component 1", "component 2")]
    taken: list[float] = []
    for at in longest:
        x = _MIDDLE + first[at] / reach * (_MIDDLE - 30)
        y = _MIDDLE - second[at] / reach * (_MIDDLE - 30)
        parts.append(
            f'<line class="arrow" x1="{_MIDDLE}" y1="{_MIDDLE}" x2="{x:.1f}" y2="{y:.1f}"/>'
            f'<circle class="tip" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        )
        label = y - 6 if y < _MIDDLE else y + 14
        while any(abs(label - other) < 13 for other in taken):  # one below the other
            label += 13 if y >= _MIDDLE else -13
        taken.append(label)
        anchor, shift = ("start", 5) if x >= _MIDDLE else ("end", -5)
        parts.append(
            f'<text class="value" x="{x + shift:.1f}" y="{label:.1f}" text-anchor="{anchor}">'
            f"{escape(names[at][:24])}</text>"
        )
    return _svg(parts, f"{len(longest)} features along components 1 and 2.", square=True)


def circles_picture(chart: dict[str, Any]) -> Markup:
    """Components in a plane: dots whose area is a weight, in circles of one deviation."""
    places, radii = chart["places"], chart["radii"]
    reach = max(
        max(abs(each) for each in place) + radius
        for place, radius in zip(places, radii, strict=True)
    ) or 1.0  # fmt: skip
    scale = (_MIDDLE - 24) / reach
    parts, labels = [*_cross("direction 1", "direction 2")], []
    for number, (place, radius, weight, usable) in enumerate(
        zip(places, radii, chart["weights"], chart["usable"], strict=True), start=1
    ):
        x, y = _MIDDLE + scale * place[0], _MIDDLE - scale * place[1]
        dot = 3.0 + 14.0 * math.sqrt(weight)
        parts.append(
            f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="{scale * radius:.1f}"/>'
            f'<circle class="{"dot" if usable else "dot weak"}" cx="{x:.1f}" cy="{y:.1f}" '
            f'r="{dot:.1f}"/>'
        )
        labels.append(
            f'<text class="value" x="{x + dot + 3:.1f}" y="{y + 4:.1f}">{number}'
            f"{'' if usable else ', not usable'}</text>"
        )
    return _svg([*parts, *labels], f"{len(places)} components in a plane.", square=True)


PICTURES = {"bars": bars_picture, "arrows": arrows_picture, "circles": circles_picture}
"""What draws a chart, by its kind; the others are tables."""

_ARROWS = 12
_SQUARE, _MIDDLE = 420, 210


def _cross(x: str, y: str) -> Iterator[str]:
    """Two axes through the middle of a square."""
    end = _SQUARE - 20
    yield f'<line class="axis" x1="20" y1="{_MIDDLE}" x2="{end}" y2="{_MIDDLE}"/>'
    yield f'<line class="axis" x1="{_MIDDLE}" y1="20" x2="{_MIDDLE}" y2="{end}"/>'
    yield f'<text class="tick" x="{end}" y="{_MIDDLE + 18}" text-anchor="end">{x}</text>'
    yield f'<text class="tick" x="{_MIDDLE + 6}" y="28">{y}</text>'


def _grid(axes: _Axes, xs: Sequence[float], ys: Sequence[float]) -> Iterator[str]:
    (left, top), (right, bottom) = axes.at(axes.x[0], axes.y[1]), axes.at(axes.x[1], axes.y[0])
    for y in ys:
        _, at = axes.at(axes.x[0], y)
        yield f'<line class="grid" x1="{left:.1f}" y1="{at:.1f}" x2="{right:.1f}" y2="{at:.1f}"/>'
        yield (
            f'<text class="tick" x="{left - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">'
            f"{_short(y)}</text>"
        )
    for x in xs:
        at, _ = axes.at(x, axes.y[0])
        yield (
            f'<text class="tick" x="{at:.1f}" y="{bottom + 22:.1f}" text-anchor="middle">'
            f"{x:g}</text>"
        )
    for end in ((right, bottom), (left, top)):
        yield (
            f'<line class="axis" x1="{left:.1f}" y1="{bottom:.1f}" '
            f'x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'
        )


def _titles(x: str, y: str = "") -> Iterator[str]:
    yield (
        f'<text class="tick" x="{(WIDTH + _LEFT) / 2:.0f}" y="{HEIGHT - 5}" text-anchor="middle">'
        f"{escape(x)}</text>"
    )
    if y:
        yield f'<text class="tick" x="{_LEFT}" y="{_TOP - 14}">{escape(y)}</text>'


def _short(number: float) -> str:
    """A number of a few characters."""
    if 1000 <= number < 100_000:
        return f"{number:.0f}"
    return f"{number:.3g}".replace("e+0", "e").replace("e-0", "e-")


def _round(most: float) -> list[float]:
    """Ticks from 0 that are short numbers, the last at ``most`` or above."""
    rough = most / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _few(count: int) -> list[int]:
    step = max(1, -(-count // 12))
    return list(range(1, count + 1, step))


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _svg(parts: Sequence[str], title: str, *, square: bool = False) -> Markup:
    width, height = (_SQUARE, _SQUARE) if square else (WIDTH, HEIGHT)
    return Markup(  # numbers, our own words, and names that were escaped
        f'<svg class="picture{" square" if square else ""}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )
