"""``eigenveil audit``: lower bounds on what mechanisms leak, beside what is claimed of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from eigenveil.app.results import check_place, new_folder
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, bold, coloured, counted

if TYPE_CHECKING:
    from eigenveil.audit.run import Finding

_LIST = "list"
_BROKEN = 8
# Up to so many audits are shown in full.
_EXPLAINED = 8


def audit(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MECHANISM]...",
            help="Mechanisms or single audits by name; sound, published or all; or list.",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Number of outputs on each data set; slow mechanisms draw fewer.")
    ] = 100_000,
    confidence: Annotated[
        float, typer.Option(help="Probability with which all bounds of the table hold together.")
    ] = 0.999,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes; by default one for each core.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Reproducible outputs; without it the noise is that of a real run."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for table and figure; it must not exist.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Attack mechanisms on worst-case neighbours and compare with what is claimed of them.

    Prints a lower bound on the privacy loss, with the stated confidence. A bound above its claim
    refutes the claim (status 8 where it is this package's own); one below proves nothing.
    """
    words = mechanisms or [_LIST]
    if _LIST in words:
        _print_list(json=json, quiet=quiet)
        return

    from eigenveil.audit import run
    from eigenveil.audit.report import as_values, write_findings
    from eigenveil.audit.run import chosen

    cases = chosen(words)
    if seed is not None and seed < 0:
        raise options.WrongOption(f"--seed {seed} is below 0.", hint="Give 0 or more.")
    _check_out(out)
    with counted("outputs", quiet=quiet or json) as progress:
        findings = run.audit(
            cases,
            trials=trials,
            confidence=confidence,
            jobs=os.cpu_count() or 1 if jobs is None else jobs,
            seed=seed,
            progress=progress,
        )
    if out is not None:
        with new_folder(out) as folder:
            write_findings(findings, folder, confidence=confidence)
    if json:
        options.print_json(
            {
                "confidence": confidence,
                "audits": [as_values(finding) for finding in findings],
                "out": None if out is None else str(out),
            }
        )
    else:
        _print(findings, Screen(quiet=quiet), confidence=confidence, out=out)
    if any(f.case.group == "sound" and not f.holds for f in findings):
        raise typer.Exit(_BROKEN)


def _check_out(out: Path | None) -> None:
    """Before minutes are spent."""
    if out is not None:
        check_place(out, overwrite=False)


def _print_list(*, json: bool, quiet: bool) -> None:
    from eigenveil.audit.run import mechanisms

    if json:
        options.print_json(
            {
                name: [
                    {
                        "name": case.name,
                        "title": case.title,
                        "group": case.group,
                        "adjacency": case.adjacency,
                        "view": case.view,
                        "test": case.test,
                    }
                    for case in cases
                ]
                for name, cases in mechanisms().items()
            }
        )
        return
    table = Table(title="mechanisms, and the audits of each")
    for name in ("mechanism", "audit", "adjacency", "view"):
        table.add_column(name, overflow="fold")
    for name, cases in mechanisms().items():
        for index, case in enumerate(cases):
            table.add_row("" if index else name, case.name, case.adjacency, case.view)
        table.add_section()
    Screen(quiet=quiet).print(table)


def _print(
    findings: Sequence[Finding], screen: Screen, *, confidence: float, out: Path | None
) -> None:
    from eigenveil.audit.report import bound_text, claim_text, summary, witness_text

    table = Table(title=f"lower bounds, all together at confidence {confidence:g}")
    for name in ("audit", "claim", "at least", "ratio", "verdict"):
        table.add_column(name, justify="right" if name == "ratio" else "left", overflow="fold")
    for finding in findings:
        verdict = finding.verdict
        table.add_row(
            finding.case.name,
            claim_text(finding),
            bound_text(finding),
            f"{finding.tightness:.2f}",
            verdict if finding.holds else coloured(verdict, "red"),
        )
    screen.print(table)
    for finding in findings if len(findings) <= _EXPLAINED else ():
        case = finding.case
        screen.print(bold(f"{case.name}:"), case.title)
        screen.print(f"  neighbours: {case.adjacency}; adversary: {case.view}.")
        screen.print(f"  test: {case.test}.")
        screen.print(f"  outputs: {finding.trials:,} on each data set, by {case.sampling}.")
        screen.print(f"  claim: {case.claim.whence}.")
    for finding in findings:
        if (text := witness_text(finding)) is not None:
            screen.print(f"{finding.case.name}: {text}")
    screen.print(summary(findings, confidence=confidence))
    if out is not None:
        screen.print(f"written to {out}: the table (audit.csv, .json, .md) and the figure.")
