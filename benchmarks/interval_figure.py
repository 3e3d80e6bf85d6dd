"""The picture of how often intervals hold: a row for each kind of number, a dot for each cell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

_COLORS = {0.5: "#D55E00", 1.0: "#0072B2", 3.0: "#009E73"}


def draw(
    kinds: Mapping[str, Mapping[Any, Any]], bounds: Collection[str], few: int, path: Path
) -> None:
    """Cells of enough shown intervals by their epsilon, and all cells together as a stroke."""
    shown = [name for name, parts in kinds.items() if np.sum(list(parts.values()), axis=0)[1]]
    figure = Figure(figsize=(9.0, 0.5 * len(shown) + 1.5), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(0.93, 0.97, color="#dddddd", zorder=0, label="wanted of all cells together")
    axes.axvline(0.95, color="black", linewidth=0.8)
    axes.axvline(0.90, color="#999999", linewidth=0.8, linestyle="--", label="least of a cell")
    for line, name in enumerate(shown):
        held, there, _ = np.sum(list(kinds[name].values()), axis=0)
        for place, (epsilon, color) in enumerate(_COLORS.items()):
            found = [
                part[0] / part[1]
                for (*_, own), part in kinds[name].items()
                if own == epsilon and part[1] >= few
            ]
            label = f"epsilon {epsilon:g}, a cell" if line == 0 else None
            height = np.full(len(found), line + 0.22 * (place - 1))
            axes.plot(found, height, ".", color=color, markersize=5, alpha=0.6, label=label)
        label = "all cells together" if line == 0 else None
        axes.plot(
            [held / there] * 2, [line - 0.4, line + 0.4], color="black", linewidth=2.2, label=label
        )
    names = [f"{name} (bound)" if name in bounds else name for name in shown]
    axes.set_yticks(range(len(shown)), [name.replace("_", " ") for name in names])
    axes.invert_yaxis()
    axes.set_xlim(right=1.003)
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.set_xlabel(f"part of the 95 % intervals that hold (cells that show {few} or more)")
    figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
