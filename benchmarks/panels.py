"""A picture with a panel a data set, against epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure


def draw_panels(
    names: Sequence[str],
    lines: Callable[[Any, str], Mapping[str, Any]],
    path: Path,
    *,
    ticks: Sequence[float],
    what: str,
) -> None:
    """Four panels a row; ``lines`` draws those of a data set, and gives them by their labels."""
    rows = math.ceil(len(names) / 4)
    figure = Figure(figsize=(11.0, 2.4 * rows + 0.5), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, 4)).ravel()
    drawn: dict[str, Any] = {}
    for axes, name in zip(panels, names, strict=False):
        drawn |= lines(axes, name)
        axes.set_title(name, fontsize=9)
        axes.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
    for axes in panels[max(0, len(names) - 4) : len(names)]:
        axes.set_xlabel("epsilon", fontsize=8)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    panels[0].set_ylabel(what)
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=4, fontsize=8)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
