"""The figure of a simulated tree: error, bytes and time of every level."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from eigenveil.plots import _BLUE, _GREY, _INK, _RED
from eigenveil.runtime.tree_report import TreeReport

_MIB = 2.0**20


def level_name(report: TreeReport, level: int) -> str:
    """A level in words."""
    if level == 0:
        return "leaves"
    return "root" if level == report.tree.depth else f"level {level}"


def tree_figure(report: TreeReport) -> Any:
    """Axes of three panels, one above the other; all numbers are of synthetic rows."""
    figure = Figure(figsize=(6.6, 7.6), layout="constrained")
    error, size, seconds = figure.subplots(3, 1, sharex=True)
    place = np.arange(len(report.levels))
    _errors(error, report, place)
    _sizes(size, report, place)
    _seconds(seconds, report, place)
    names = [f"{level_name(report, level.level)}\n({level.parties})" for level in report.levels]
    seconds.set_xticks(place, names)
    seconds.set_xlabel("level of the tree (parties)")
    seconds.set_xlim(-0.6, place[-1] + 0.6)
    for axes in (error, size, seconds):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=_GREY, alpha=0.35, lw=0.6)
        axes.set_axisbelow(True)
    figure.align_ylabels()
    outcome = report.outcome
    guarantee = outcome.guarantee_
    figure.suptitle(
        f"{int(np.count_nonzero(outcome.arrived)):,} of {report.tree.leaf_count:,} leaves arrived, "
        f"{report.rows:,} made-up rows\n"
        f"the root's result: epsilon = {guarantee.epsilon:.3g}, delta = {guarantee.delta:.2g}"
        + ("" if guarantee.certified else " (not certified)"),
        fontsize=10,
    )
    return np.array([error, size, seconds])


def _errors(axes: Any, report: TreeReport, place: Any) -> None:
    """How much the components of a level miss."""
    for values, style in (
        (
            [level.error for level in report.levels],
            {"marker": "o", "color": _BLUE, "label": "private sums, as sent"},
        ),
        (
            [level.merged_error for level in report.levels],
            {"marker": "s", "color": _RED, "ls": "--", "label": "merged subspaces, no noise"},
        ),
    ):
        shown = np.array([np.nan if v is None else 100.0 * max(v, 1e-9) for v in values])
        axes.plot(place, shown, lw=1.4, ms=5.5, **style)
    axes.set_yscale("log")
    axes.set_ylabel("energy missed\n(% of the best possible)")
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.legend(frameon=False, loc="lower left")


def _sizes(axes: Any, report: TreeReport, place: Any) -> None:
    """What a level sends in all."""
    sizes = np.array([level.bytes for level in report.levels]) / _MIB
    axes.bar(place, sizes, width=0.55, color=_BLUE)
    for at, size, level in zip(place, sizes, report.levels, strict=True):
        if level.messages:
            text = f"{level.messages:,}\nmessages" if level.messages > 1 else "1\nmessage"
            axes.annotate(
                text,
                (at, size),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7.5,
                color=_INK,
            )
    axes.set_ylabel("sent by the level\n(MiB, private sums)")
    axes.set_ylim(0, 1.28 * float(sizes.max(initial=0.0)) or 1.0)


def _seconds(axes: Any, report: TreeReport, place: Any) -> None:
    """Processor time of a level, and of its slowest party."""
    total = np.array([level.seconds for level in report.levels])
    slowest = np.array([level.slowest for level in report.levels])
    floor = 1e-6
    axes.plot(
        place,
        np.maximum(total, floor),
        marker="o",
        color=_BLUE,
        lw=1.4,
        ms=5.5,
        label="all parties of the level",
    )
    axes.plot(
        place,
        np.maximum(slowest, floor),
        marker="s",
        color=_RED,
        ls="--",
        lw=1.4,
        ms=5.5,
        label="its slowest party",
    )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylabel("processor time (s)")
    axes.legend(frameon=False, loc="upper right")
