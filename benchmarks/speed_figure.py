"""The picture of a private fit's time in units of scikit-learn's, a line a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator


@dataclass(frozen=True)
class Timed:
    """Medians of seconds, and of ratios to scikit-learn's, of one table."""

    name: str
    product: float  # Of X.T @ X
    plain: float  # Of scikit-learn's PCA
    once: float
    twice: float
    limit: float  # Of the default
    ratios: tuple[float, float]  # Of one release, of the default
    wanted: tuple[float, float]


def draw(found: Sequence[Timed], path: Path) -> None:
    """Dots on a logarithmic axis; what is wanted is a stroke of the same colour."""
    figure = Figure(figsize=(9.0, 0.55 * len(found) + 1.6), layout="constrained")
    axes = figure.subplots()
    places = range(len(found))
    shown = {
        "X.T @ X alone": ("#999999", "|", [each.product / each.plain for each in found]),
        "limit of the default": ("#555555", "D", [each.limit / each.plain for each in found]),
        "one release": ("#D55E00", "s", [each.ratios[0] for each in found]),
        "default, two releases": ("#0072B2", "o", [each.ratios[1] for each in found]),
    }
    for label, (color, marker, values) in shown.items():
        axes.plot(values, places, marker, color=color, markersize=7, label=label)
    for color, place in (("#D55E00", 0), ("#0072B2", 1)):
        for line, each in enumerate(found):
            wanted = each.wanted[place]
            axes.plot([wanted, wanted], [line - 0.3, line + 0.3], color=color, linewidth=1.2)
    axes.axvline(1.0, color="black", linewidth=1.0)
    axes.set_xscale("log")
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16, 32]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(places, [each.name for each in found])
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.set_xlabel(
        "time in units of scikit-learn's exact PCA, which is not private (strokes: wanted)"
    )
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
