"""An audit as a table (text, CSV, JSON, Markdown) and a figure, in a folder."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eigenveil.audit.cases import EVERYTHING, chosen
from eigenveil.audit.figure import audit_figure
from eigenveil.audit.run import CONFIDENCE, TRIALS, Finding, Progress, audit
from eigenveil.errors import OutputError
from eigenveil.plots import save_figure

TABLE, NUMBERS, MARKDOWN, FIGURES = (
    "audit.csv",
    "audit.json",
    "audit.md",
    ("audit.png", "audit.svg"),
)
# Between these lines a document has the table.
BEGIN, END = "<!-- audit table: begin -->", "<!-- audit table: end -->"
COLUMNS = (
    "name",
    "group",
    "mechanism",
    "adjacency",
    "view",
    "claimed_epsilon",
    "claimed_delta",
    "claimed_mu",
    "mu_at_least",
    "epsilon_at_least",
    "tightness",
    "predicted",
    "verdict",
    "trials",
)


def as_values(finding: Finding) -> dict[str, Any]:
    """One finding as plain values, the columns of the table first."""
    case, claim = finding.case, finding.case.claim
    values: dict[str, Any] = {
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
        "seconds": round(finding.seconds, 2),
        "title": case.title,
        "test": case.test,
        "sampling": case.sampling,
        "claim_whence": claim.whence,
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
    lines.append("A bound under its claim proves nothing; the proofs are in docs/proofs.")
    return " ".join(lines)


def claim_text(finding: Finding) -> str:
    """The claim in a few characters."""
    claim = finding.case.claim
    if claim.mu is not None:
        return f"mu {claim.mu:.3g}" + (
            "" if claim.exact else f"; ({claim.epsilon:g}, {claim.delta:g})"
        )
    return f"epsilon {claim.epsilon:.3g}" + (f", delta {claim.delta:g}" if claim.delta else "")


def bound_text(finding: Finding) -> str:
    """The bound in a few characters."""
    claim = finding.case.claim
    if finding.mu is None:
        return f"epsilon {finding.epsilon:.3g}"
    return f"mu {finding.mu:.3g}" + ("" if claim.exact else f"; epsilon {finding.epsilon:.3g}")


def markdown(findings: Sequence[Finding], *, confidence: float) -> str:
    """The table for a document."""
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
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for row in values:
            table.writerow([_cell(row[column]) for column in COLUMNS])
    whole = {"confidence": confidence, "audits": values}
    (folder / NUMBERS).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (folder / MARKDOWN).write_text(markdown(findings, confidence=confidence), encoding="utf-8")
    axes = audit_figure(findings, confidence=confidence)
    for name in FIGURES:
        save_figure(axes, folder / name)


def write(
    folder: Path,
    *,
    document: Path | None = None,
    trials: int = TRIALS,
    confidence: float = CONFIDENCE,
    jobs: int = 1,
    seed: int | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """Audit everything and write the table and the figure; what ``make figures`` calls.

    Parameters
    ----------
    folder : path
        Is made if it does not exist; files of these names in it are replaced.
    document : path or None
        A Markdown file with the lines ``BEGIN`` and ``END``: what is between them becomes the
        table.
    trials, confidence, jobs, seed, progress
        As in :func:`eigenveil.audit.run.audit`.

    Raises
    ------
    OutputError
        When the folder or the document cannot be written.
    PrivacyError
        As :func:`eigenveil.audit.run.audit`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder} cannot be made: {error.strerror}.", hint="Choose another folder."
        ) from None
    findings = audit(
        chosen([EVERYTHING]),
        trials=trials,
        confidence=confidence,
        jobs=jobs,
        seed=seed,
        progress=progress,
    )
    write_findings(findings, folder, confidence=confidence)
    if document is not None:
        put_table(document, markdown(findings, confidence=confidence))
    return findings


def put_table(document: Path, table: str) -> None:
    """Put a table between the marks of a document.

    Raises
    ------
    OutputError
        When there are no marks.
    """
    text = document.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise OutputError(
            f"{document} has no place for the table.", hint=f"Write {BEGIN} and {END} into it."
        )
    document.write_text(f"{before}{BEGIN}\n{table}{END}{after}", encoding="utf-8")


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) and math.isfinite(value) else value
