"""``eigenveil certify`` and ``eigenveil proofs``: a result's guarantee and its proofs."""

from __future__ import annotations

from typing import Annotated

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import present, print_json, say


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
