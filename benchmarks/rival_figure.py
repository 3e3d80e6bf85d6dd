"""The picture of captured energy against epsilon, one panel a case."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from eigenveil import plots

# Okabe and Ito's colours, and a marker for each, so that no line is told by its colour alone.
STYLES: dict[str, tuple[str, str, str, float]] = {
    "eigenveil, adaptive": ("#0072B2", "o", "-", 2.4),
    "eigenveil, adaptive, row_norm='auto'": ("#0072B2", "x", ":", 1.4),
    "eigenveil, one release": ("#000000", "s", "-", 1.6),
    "eigenveil, one release, row_norm='auto'": ("#000000", "x", ":", 1.0),
    "Adaptive covariance": ("#D55E00", "^", "-", 1.0),
    "k-DP-PCA": ("#009E73", "D", "-", 1.0),
    "DP-PCA": ("#009E73", "D", "-", 1.0),
    "Spherical Kendall": ("#CC79A7", "v", "-", 1.0),
    "Subsample and aggregate": ("#E69F00", "P", "-", 1.0),
    "Analyze Gauss": ("#56B4E9", ">", "-", 1.0),
    "Separate covariance": ("#56B4E9", "<", ":", 1.0),
    "CoinPress": ("#999999", "*", "-", 1.0),
    "EMCov": ("#999999", "p", ":", 1.0),
}
LEAST_LOSS = 1e-6


def draw(found: dict[str, dict[str, dict[str, list[float]]]], path: Path) -> None:
    """Losses on a logarithmic axis that points down, labelled as captured energies."""
    found = {case: methods for case, methods in found.items() if methods}
    rows = math.ceil(len(found) / 3)
    figure = Figure(figsize=(12.0, 3.3 * rows + 0.9), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, 3)).ravel()
    lines = {}
    for axes, (case, methods) in zip(panels, found.items(), strict=False):
        for name, (color, marker, line, width) in STYLES.items():
            if name in methods:
                x, y = _losses(methods[name])
                label = "DP-PCA (K = 1), k-DP-PCA" if name in ("DP-PCA", "k-DP-PCA") else name
                (lines[label],) = axes.loglog(
                    x, y, line, color=color, marker=marker, markersize=4.5, linewidth=width
                )
        x, y = _losses(methods["Lower bound"])
        (lines["lower bound on the loss (local)"],) = axes.loglog(
            x, y, "--", color="#555555", linewidth=1.4
        )
        name, shape, components = case.rsplit(", ", 2)
        axes.set_title(f"{name}\n{shape}, {components}", fontsize=9)
        axes.set_ylim(1.3, LEAST_LOSS)
        ticks = [1.0, 0.5, 0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FixedFormatter([f"{1 - tick:.7g}" for tick in ticks]))
        epsilons = [float(each) for each in methods["Lower bound"]]
        axes.xaxis.set_major_locator(FixedLocator(epsilons))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FixedFormatter([f"{each:g}" for each in epsilons]))
        axes.tick_params(labelsize=8)
        axes.grid(axis="y", color="#e5e5e5", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    figure.suptitle(
        "Captured energy (of the exact subspace's) over epsilon, delta = 1e-5", fontsize=11
    )
    figure.legend(
        list(lines.values()),
        list(lines),
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
    )
    plots.save_figure(panels[0], path)


def _losses(found: dict[str, list[float]]) -> tuple[list[float], list[float]]:
    """Epsilons and mean losses; what is below the axis is drawn on its edge."""
    pairs = [(float(epsilon), 1 - float(np.mean(values))) for epsilon, values in found.items()]
    pairs = [(epsilon, max(loss, LEAST_LOSS)) for epsilon, loss in pairs if not math.isnan(loss)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
