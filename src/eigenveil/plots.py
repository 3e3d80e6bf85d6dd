"""Figures of a fitted model: each takes the model and ``ax=None`` and returns the Axes.

The scree plot shows released numbers only and may be shared. The projection shows rows: it is for
the owner of the rows, and says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from eigenveil.estimators.fitted import FittedPCA

_BLUE, _GREY, _RED = "#2b6cb0", "#a0aec0", "#c05621"


def scree(model: FittedPCA, ax: Any = None) -> Any:
    """Explained variance of the components, with a band for what noise alone would show.

    Components inside the band are drawn hollow: they are not usable.
    """
    axes = ax if ax is not None else Figure(figsize=(6.4, 4.0), layout="constrained").subplots()
    ratio = 100 * model.explained_variance_ratio_
    number = np.arange(1, ratio.size + 1)
    floor = 100 * model.noise_floor_ / model.total_variance_
    axes.axhspan(0, floor, color=_GREY, alpha=0.35, lw=0, label="what noise alone would show")
    axes.plot(number, ratio, color=_BLUE, lw=1.2, zorder=2)
    usable = model.usable_
    axes.plot(number[usable], ratio[usable], "o", color=_BLUE, label="component", zorder=3)
    if not usable.all():
        axes.plot(
            number[~usable],
            ratio[~usable],
            "o",
            markerfacecolor="white",
            color=_RED,
            label="not usable",
            zorder=3,
        )
    axes.set_xlabel("component")
    axes.set_ylabel("explained variance (% of total)")
    axes.set_ylim(0, max(float(ratio.max(initial=0.0)), min(floor, 100.0)) * 1.12 or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    guarantee = model.guarantee_
    axes.set_title(
        f"epsilon = {guarantee.epsilon:.3g}, delta = {guarantee.delta:.2g}, {guarantee.adjacency}"
        + ("" if guarantee.certified else " (not certified)"),
        fontsize=10,
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return axes


def projection(model: FittedPCA, scores: ArrayLike, ax: Any = None) -> Any:
    """Rows along the first two components. Shows rows: not private, not to be shared.

    Parameters
    ----------
    scores : array of shape (n, n_components)
        What ``model.transform`` returned.
    """
    axes = ax if ax is not None else Figure(figsize=(5.6, 5.0), layout="constrained").subplots()
    points = np.asarray(scores)
    second = points[:, 1] if points.shape[1] > 1 else np.zeros(points.shape[0])
    axes.scatter(points[:, 0], second, s=6, color=_BLUE, alpha=0.45, linewidths=0)
    ratio = 100 * model.explained_variance_ratio_
    axes.set_xlabel(f"PC1 ({ratio[0]:.0f} %)")
    axes.set_ylabel(f"PC2 ({ratio[1]:.0f} %)" if ratio.size > 1 else "")
    axes.set_title("shows rows: for their owner only, not to be shared", fontsize=10, color=_RED)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def save_figure(axes: Any, path: Path) -> None:
    """Write the figure of ``axes`` to a file; the same model gives the same bytes."""
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "eigenveil"}):
        axes.figure.savefig(path, dpi=150, metadata=metadata)
