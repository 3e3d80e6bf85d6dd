"""``eigenveil audit``: lower bounds on what mechanisms leak, beside what is claimed of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import counted, present

_LIST, _BROKEN = "list", 8


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
        present(app.audit.list_audits(), json=json, quiet=quiet)
        return
    with counted("outputs", quiet=quiet or json) as progress:
        found = app.audit.audit(
            words,
            trials=trials,
            confidence=confidence,
            jobs=os.cpu_count() or 1 if jobs is None else jobs,
            seed=seed,
            out=out,
            progress=progress,
        )
    present(found, json=json, quiet=quiet)
    if found.broken:
        raise typer.Exit(_BROKEN)
