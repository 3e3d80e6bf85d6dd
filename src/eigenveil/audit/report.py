"""The report of an audit: its table (text, CSV, JSON, Markdown) and its figure."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from eigenveil.audit.run import Finding
from eigenveil.plots import save_figure

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


# -- An audit as a table (text, CSV, JSON, Markdown) and a figure, in a folder.

TABLE, NUMBERS, MARKDOWN = "audit.csv", "audit.json", "audit.md"
FIGURES = ("audit.png", "audit.svg")


def _columns(finding: Finding) -> dict[str, Any]:
    case, claim = finding.case, finding.case.claim
    return {
        "name": case.name,
        "group": case.group,
        "mechanism": case.mechanism,
        "adjacency": case.adjacency,
        "view": case.view,
        "claimed_epsilon": claim.epsilon,
        "claimed_delta": claim.delta,
        "claimed_mu": claim.mu,
        "mu_at_least": finding.mu,
        "epsilon_at_least": finding.epsilon,
        "tightness": finding.tightness,
        "predicted": case.truth,
        "verdict": finding.verdict,
        "trials": finding.trials,
    }


def as_values(finding: Finding) -> dict[str, Any]:
    """One finding as plain values, the columns of the table first."""
    case = finding.case
    values = _columns(finding) | {
        "seconds": round(finding.seconds, 2),
        "title": case.title,
        "test": case.test,
        "sampling": case.sampling,
        "claim_whence": case.claim.whence,
        "false_alarm": finding.false_alarm,
        "curve": {
            "epsilon": finding.epsilons.tolist(),
            "delta_at_least": finding.deltas.tolist(),
            "delta_claimed": finding.claimed.tolist(),
        },
    }
    if finding.witness is not None and case.witness is not None:
        seen = finding.witness
        values["witness"] = {
            "event": case.witness.what,
            "predicted": case.witness.chance,
            "frequency": seen.hits / finding.trials,
            "between": [seen.low, seen.high],
            "on_the_neighbour": seen.forbidden,
        }
    return values


def summary(findings: Sequence[Finding], *, confidence: float) -> str:
    """What a reader must know of a whole table, in a few sentences."""
    broken = [finding for finding in findings if not finding.holds]
    own = [finding for finding in broken if finding.case.group == "sound"]
    lines = [
        f"{len(findings)} audits; with confidence {confidence:g} all their lower bounds hold at "
        f"once (each but for a chance of {findings[0].false_alarm:.2g})."
    ]
    if own:
        lines.append(
            f"BROKEN: {', '.join(f.case.name for f in own)}. This package's own claim is refuted: "
            "do not release with it, and report this."
        )
    if published := [f.case.name for f in broken if f.case.group == "published"]:
        lines.append(f"Published claims that are broken: {', '.join(published)}.")
    if short := [f.case.name for f in findings if f.holds and f.beyond_mu]:
        lines.append(
            "Not broken, but with a larger mu than the paper's own calculation gives (a "
            f"sensitivity or a view that is wrong, covered by slack): {', '.join(short)}."
        )
    lines.append("A bound under its claim proves nothing; 'eigenveil proofs' prints the proofs.")
    return " ".join(lines)


def claim_text(finding: Finding) -> str:
    claim = finding.case.claim
    if claim.mu is not None:
        return f"mu {claim.mu:.3g}" + (
            "" if claim.exact else f"; ({claim.epsilon:g}, {claim.delta:g})"
        )
    return f"epsilon {claim.epsilon:.3g}" + (f", delta {claim.delta:g}" if claim.delta else "")


def bound_text(finding: Finding) -> str:
    claim = finding.case.claim
    if finding.mu is None:
        return f"epsilon {finding.epsilon:.3g}"
    return f"mu {finding.mu:.3g}" + ("" if claim.exact else f"; epsilon {finding.epsilon:.3g}")


def markdown(findings: Sequence[Finding], *, confidence: float) -> str:
    lines = [
        summary(findings, confidence=confidence),
        "",
        "| audit | adjacency | view | claim | at least | bound / claim | verdict | trials |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for finding in findings:
        case = finding.case
        verdict = finding.verdict if finding.holds else f"**{finding.verdict}**"
        lines.append(
            f"| `{case.name}` | {case.adjacency} | {case.view} | {claim_text(finding)} | "
            f"{bound_text(finding)} | {finding.tightness:.2f} | {verdict} | {finding.trials:,} |"
        )
    for finding in findings:
        if (text := witness_text(finding)) is not None:
            lines += ["", f"`{finding.case.name}`: {text}"]
    return "\n".join(lines) + "\n"


def witness_text(finding: Finding) -> str | None:
    """How often the event happened that refutes the claim by itself."""
    seen, event = finding.witness, finding.case.witness
    if seen is None or event is None:
        return None
    return (
        f"{event.what} in {seen.hits:,} of {finding.trials:,} outputs on one data set "
        f"({100 * seen.hits / finding.trials:.1f} %, between {100 * seen.low:.1f} and "
        f"{100 * seen.high:.1f}; {100 * event.chance:.1f} by the proof), and in "
        f"{seen.forbidden:,} on its neighbour. So delta is {seen.low:.3f} or more at every "
        f"epsilon: ({finding.case.claim.epsilon:g}, {event.chance:.3f}), not "
        f"({finding.case.claim.epsilon:g}, {finding.case.claim.delta:g})."
    )


def write_findings(findings: Sequence[Finding], folder: Path, *, confidence: float) -> None:
    """The table as CSV, JSON and Markdown, and the figure as PNG and SVG, in an existing folder."""
    values = [as_values(finding) for finding in findings]
    for row in values:
        del row["seconds"]  # the same outputs give the same files
    with (folder / TABLE).open("w", newline="", encoding="utf-8") as file:
        lines = [_columns(finding) for finding in findings]
        table = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        table.writeheader()
        table.writerows({name: _cell(value) for name, value in line.items()} for line in lines)
    whole = {"confidence": confidence, "audits": values}
    (folder / NUMBERS).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (folder / MARKDOWN).write_text(markdown(findings, confidence=confidence), encoding="utf-8")
    axes = audit_figure(findings, confidence=confidence)
    for name in FIGURES:
        save_figure(axes, folder / name)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else value
