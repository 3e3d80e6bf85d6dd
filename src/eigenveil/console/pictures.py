"""Pictures as SVG: drawn here, coloured by the style sheet, so that they follow light and dark."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

WIDTH, HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 16, 44
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


def energy_at(points: Sequence[dict[str, Any]], epsilon: float) -> float | None:
    """The forecast between two simulated points; ``None`` outside of them."""
    known = [(p["epsilon"], p["energy"]) for p in points if p["energy"] is not None]
    for (low, first), (high, second) in itertools.pairwise(known):
        if low <= epsilon <= high:
            share = math.log(epsilon / low) / math.log(high / low)
            return float(first + share * (second - first))
    return float(known[0][1]) if len(known) == 1 and known[0][0] == epsilon else None


def energy_picture(points: Sequence[dict[str, Any]], epsilon: float) -> Markup:
    """Captured energy against epsilon, with a mark at one epsilon."""
    known = [p for p in points if p["energy"] is not None]
    axes = _Axes((LEAST_EPSILON, MOST_EPSILON), (0.0, 1.0), log=True)
    found = energy_at(points, epsilon)
    said = "unknown" if found is None else f"{found:.3f}"
    parts = [*_grid(axes, (0.1, 0.3, 1.0, 3.0, 10.0), (0.0, 0.25, 0.5, 0.75, 1.0))]
    if known:
        upper = [
            axes.at(p["epsilon"], min(1.0, p["energy"] + 2 * (p["error"] or 0))) for p in known
        ]
        lower = [
            axes.at(p["epsilon"], max(0.0, p["energy"] - 2 * (p["error"] or 0))) for p in known
        ]
        parts.append(f'<polygon class="band" points="{_joined([*upper, *reversed(lower)])}"/>')
        line = [axes.at(p["epsilon"], p["energy"]) for p in known]
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
    parts += _titles("epsilon", "captured energy")
    return _svg(parts, f"Captured energy against epsilon: {said} at epsilon {epsilon:g}.")


def scree_picture(
    variances: Sequence[float], floor: float | None, usable: Sequence[bool]
) -> Markup:
    """Explained variance of each component, with the band that noise alone would fill."""
    top = max([*variances, floor or 0.0, 1e-300]) * 1.08
    axes = _Axes((0.5, len(variances) + 0.5), (0.0, top))
    ticks = _few(len(variances))
    parts = [*_grid(axes, ticks, [top * share for share in (0, 0.25, 0.5, 0.75, 1.0)], digits=3)]
    if floor is not None:
        (x0, y0), (x1, y1) = axes.at(axes.x[0], floor), axes.at(axes.x[1], 0.0)
        parts.append(
            f'<rect class="noise" x="{x0:.1f}" y="{y0:.1f}" width="{x1 - x0:.1f}" '
            f'height="{y1 - y0:.1f}"/>'
        )
    half = 0.3 * (axes.at(1.5, 0)[0] - axes.at(0.5, 0)[0])
    for number, value in enumerate(variances, start=1):
        (x, y), (_, base) = axes.at(number, max(value, 0.0)), axes.at(number, 0.0)
        kind = "bar" if number > len(usable) or usable[number - 1] else "bar weak"
        parts.append(
            f'<rect class="{kind}" x="{x - half:.1f}" y="{y:.1f}" width="{2 * half:.1f}" '
            f'height="{max(base - y, 0):.1f}"/>'
        )
    if floor is not None:  # where the bars are lowest, and over them
        parts.append(
            f'<text class="tick" x="{WIDTH - _RIGHT - 6}" y="{_TOP + 14}" text-anchor="end">'
            f"shaded: noise alone reaches {floor:.3g}</text>"
        )
    parts += _titles("component", "explained variance")
    above = sum(bool(each) for each in usable)
    return _svg(
        parts, f"Explained variance of {len(variances)} components; {above} stand above the noise."
    )


def loadings_picture(components: Sequence[Sequence[float]], features: Sequence[str]) -> Markup:
    """A biplot of the first two components: an arrow a feature; rows are not drawn."""
    first, second = components[0], components[1]
    reach = max(max(map(abs, first)), max(map(abs, second)), 1e-12) * 1.25
    size, centre = 420, 210
    longest = sorted(range(len(first)), key=lambda at: -math.hypot(first[at], second[at]))[:_ARROWS]
    parts = [
        f'<line class="axis" x1="20" y1="{centre}" x2="{size - 20}" y2="{centre}"/>',
        f'<line class="axis" x1="{centre}" y1="20" x2="{centre}" y2="{size - 20}"/>',
        f'<text class="tick" x="{size - 20}" y="{centre + 18}" text-anchor="end">'
        "component 1</text>",
        f'<text class="tick" x="{centre + 6}" y="28">component 2</text>',
    ]
    taken: list[float] = []
    for at in longest:
        x = centre + first[at] / reach * (centre - 30)
        y = centre - second[at] / reach * (centre - 30)
        parts.append(f'<line class="arrow" x1="{centre}" y1="{centre}" x2="{x:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<circle class="tip" cx="{x:.1f}" cy="{y:.1f}" r="3"/>')
        label = y - 6 if y < centre else y + 14
        while any(abs(label - other) < 13 for other in taken):  # one below the other
            label += 13 if y >= centre else -13
        taken.append(label)
        anchor, shift = ("start", 5) if x >= centre else ("end", -5)
        name = features[at] if at < len(features) else f"{at + 1}"
        parts.append(
            f'<text class="value" x="{x + shift:.1f}" y="{label:.1f}" text-anchor="{anchor}">'
            f"{escape(name[:24])}</text>"
        )
    return _svg(
        parts,
        f"Loadings of the first two components, {len(longest)} features.",
        size=(size, size),
    )


_ARROWS = 12


def _grid(axes: _Axes, xs: Sequence[float], ys: Sequence[float], digits: int = 3) -> Iterator[str]:
    (left, top), (right, bottom) = axes.at(axes.x[0], axes.y[1]), axes.at(axes.x[1], axes.y[0])
    for y in ys:
        _, at = axes.at(axes.x[0], y)
        yield f'<line class="grid" x1="{left:.1f}" y1="{at:.1f}" x2="{right:.1f}" y2="{at:.1f}"/>'
        yield (
            f'<text class="tick" x="{left - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">'
            f"{y:.{digits}g}</text>"
        )
    for x in xs:
        at, _ = axes.at(x, axes.y[0])
        yield (
            f'<text class="tick" x="{at:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">'
            f"{x:g}</text>"
        )
    for end in ((right, bottom), (left, top)):
        yield (
            f'<line class="axis" x1="{left:.1f}" y1="{bottom:.1f}" '
            f'x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>'
        )


def _titles(x: str, y: str) -> Iterator[str]:
    yield (
        f'<text class="tick" x="{(WIDTH + _LEFT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{x}</text>"
    )
    middle = (HEIGHT - _BOTTOM + _TOP) / 2
    yield (
        f'<text class="tick" x="12" y="{middle:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 12 {middle:.0f})">{y}</text>'
    )


def _few(count: int) -> list[int]:
    step = max(1, -(-count // 12))
    return list(range(1, count + 1, step))


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _svg(parts: Sequence[str], title: str, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Markup:
    width, height = size
    return Markup(  # numbers, our own words, and names that were escaped
        f'<svg class="picture" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )
