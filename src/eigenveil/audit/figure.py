"""The figure of an audit: every bound over its claim, and curves of delta against epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from eigenveil.audit.run import Finding

_BLUE, _RED, _GREY, _INK = "#2b6cb0", "#c05621", "#a0aec0", "#2d3748"
# Bounds beyond so many times the claim are drawn at the edge, with their number.
_FARTHEST = 2.6
# Whose curves are drawn, as far as they were audited.
CURVES = (
    "second-moment-gaussian-add-remove",
    "second-moment-wishart-add-remove",
    "wishart-sn",
    "analyze-gauss-5-replace-one",
    "cape-10-sites-8-colluding",
    "private-power-gaussian",
)
_ROW, _MOST_CURVES = 0.205, 6
_LEAST_DELTA = 1e-3  # below it curves are not drawn


def audit_figure(findings: Sequence[Finding], *, confidence: float) -> Any:
    """Axes: bounds of this package's claims, of published claims, and curves of some of them."""
    groups = {
        "this package": [f for f in findings if f.case.group == "sound"],
        "as published": [f for f in findings if f.case.group == "published"],
    }
    groups = {name: found for name, found in groups.items() if found}
    curves = _with_curves(findings)
    rows = [len(found) for found in groups.values()]
    curve_rows = -(-len(curves) // 2)
    columns = len(rows)
    # with two groups the curves stand below the shorter one, else below the only one
    heights = [_ROW * count + 1.0 for count in rows]
    heights[-1] += 2.15 * curve_rows
    size = (6.6 * columns, max(heights) + 1.0)
    figure = Figure(figsize=size, layout="constrained")
    outer = figure.add_gridspec(1, columns)
    all_axes = []
    for place, (name, found) in enumerate(groups.items()):
        last = place == columns - 1
        if last and curves:
            spare = size[1] - 1.0 - 2.15 * curve_rows
            inner = outer[0, place].subgridspec(2, 1, height_ratios=[spare, 2.15 * curve_rows])
            axes = figure.add_subplot(inner[0])
            panels = inner[1].subgridspec(curve_rows, 2)
            for index, finding in enumerate(curves):
                panel = figure.add_subplot(panels[index // 2, index % 2])
                _curve(panel, finding)
                all_axes.append(panel)
        else:
            axes = figure.add_subplot(outer[0, place])
        _bounds(axes, name, found)
        all_axes.insert(place, axes)
    broken = sum(not finding.holds for finding in findings)
    figure.suptitle(
        f"{len(findings)} audits, {broken} claims broken; all lower bounds hold together with "
        f"confidence {confidence:g}\n\u00b1 a row added or removed, \u21c4 a row replaced; "
        "over the claimed $\\mu$ where one is given, else over the claimed $\\epsilon$",
        fontsize=10.5,
    )
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return np.array(all_axes)


def _with_curves(findings: Sequence[Finding]) -> list[Finding]:
    named = {finding.case.name: finding for finding in findings}
    taken = [named[name] for name in CURVES if name in named]
    if not taken:
        taken = list(findings)
    return taken[:_MOST_CURVES]


def _legend() -> list[Line2D]:
    common: dict[str, Any] = {"ls": "", "ms": 6}
    return [
        Line2D([], [], color=_INK, lw=1.4, label="the claim"),
        Line2D([], [], color=_BLUE, marker="o", label="lower bound, under the claim", **common),
        Line2D([], [], color=_RED, marker="D", label="lower bound, CLAIM BROKEN", **common),
        Line2D([], [], color=_INK, marker="|", mew=1.4, label="what the proof predicts", **common),
    ]


def _bounds(axes: Any, name: str, findings: Sequence[Finding]) -> None:
    """A line for each audit: the bound over the claim."""
    for row, finding in enumerate(findings):
        ratio = finding.tightness
        shown = min(ratio, _FARTHEST)
        color = _BLUE if finding.holds else _RED
        axes.plot([0, shown], [row, row], color=color, alpha=0.35, lw=2.2, zorder=1)
        marker = "o" if finding.holds else "D"
        axes.plot(shown, row, marker, color=color, ms=4.5, zorder=3, clip_on=False)
        if ratio > _FARTHEST:
            axes.annotate(
                f"{ratio:.3g} \u2192",
                (shown, row),
                xytext=(-7, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=7.5,
                color=color,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )
        if finding.case.truth is not None and finding.case.claim.mu is not None:
            predicted = finding.case.truth / finding.case.claim.mu
            if predicted <= _FARTHEST:
                axes.plot(predicted, row, "|", color=_INK, ms=9, mew=1.3, zorder=2)
    axes.axvline(1.0, color=_INK, lw=1.4, zorder=0)
    axes.set_xlim(-0.02, _FARTHEST if any(not f.holds for f in findings) else 1.2)
    axes.set_ylim(len(findings) - 0.4, -0.6)
    axes.set_yticks(
        range(len(findings)), [_label(finding) for finding in findings], fontsize=7.5, color=_INK
    )
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("lower bound over claim", fontsize=9)
    axes.set_title(name, fontsize=10, loc="left", fontweight="bold")
    axes.grid(axis="x", color=_GREY, alpha=0.35, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _label(finding: Finding) -> str:
    claim = finding.case.claim
    loss = (
        f"$\\mu$ = {claim.mu:.2g}" if claim.mu is not None else f"$\\epsilon$ = {claim.epsilon:.2g}"
    )
    short = {"add-remove": "\u00b1", "replace-one": "\u21c4"}[finding.case.adjacency]
    return f"{finding.case.title}  {short}  {loss}"


def _curve(axes: Any, finding: Finding) -> None:
    """What delta is at least, and what the claim allows, at each epsilon."""
    color = _BLUE if finding.holds else _RED
    claimed, deltas = (
        np.where(values >= _LEAST_DELTA, values, np.nan)
        for values in (finding.claimed, finding.deltas)
    )
    axes.plot(finding.epsilons, claimed, color=_INK, lw=1.4)
    marker = "o" if finding.holds else "D"
    axes.plot(finding.epsilons, deltas, color=color, lw=1.2, marker=marker, ms=2.6)
    axes.fill_between(
        finding.epsilons,
        np.maximum(finding.claimed, _LEAST_DELTA),
        np.maximum(finding.deltas, _LEAST_DELTA),
        where=finding.deltas > finding.claimed,
        color=_RED,
        alpha=0.18,
        lw=0,
    )
    axes.axvline(finding.case.claim.epsilon, color=_GREY, lw=0.9, ls=":")
    axes.set_yscale("log")
    axes.set_ylim(_LEAST_DELTA, 1.0)
    axes.set_xlim(0, float(finding.epsilons[-1]))
    axes.set_title(finding.case.title, fontsize=8.5, loc="left")
    axes.set_xlabel("epsilon (dotted: as claimed)", fontsize=8)
    axes.set_ylabel("delta", fontsize=8)
    axes.tick_params(labelsize=7.5)
    axes.spines[["top", "right"]].set_visible(False)
