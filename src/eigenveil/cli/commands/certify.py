"""``eigenveil certify``, ``proofs`` and ``audit``: whether what is claimed holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import counted, present, print_json, say


def proofs(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a proof, as 'eigenveil certify' shows it; without it, all are listed."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Print a proof that a certificate cites, or the list of all proofs."""
    if name is not None:
        text = app.certify.read_proof(name)
        if json:
            print_json({"name": name.removesuffix(".md"), "text": text})
        else:
            typer.echo(text, nl=False)
        return
    titles = app.certify.proof_titles()
    if json:
        print_json(titles)
        return
    longest = max(map(len, titles), default=0)
    for each, title in titles.items():
        say(f"{each:{longest}}  {title}")


# -- ``eigenveil certify``: a certificate against its plan, and its guarantee computed again.


_DOES_NOT_HOLD = 8


def certify(
    result: options.ResultFolder,
    registrar: Annotated[
        str | None,
        typer.Option(
            help="Fingerprint of the federation's registrar, or a party's folder, which has it. "
            "Signatures of the federation's sites are then required."
        ),
    ] = None,
    signatures: Annotated[
        int | None, typer.Option(help="Sites that must have signed; all by default.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Recompute the guarantee of a result and report whether it holds (status 8 if not).

    It holds for the model that the certificate was made for: the model beside it must be that.
    Between organisations the sites have signed it: who has is shown, and with --registrar it
    fails unless all have.
    """
    found = app.certify.certify(result, registrar=registrar, signatures=signatures)
    present(found, json=json, quiet=quiet)
    if not found.verdict.holds:
        raise typer.Exit(_DOES_NOT_HOLD)
    return 0


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
