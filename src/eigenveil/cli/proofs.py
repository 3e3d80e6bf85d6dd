"""``eigenveil proofs``: the proofs that certificates cite, readable wherever it is installed."""

from __future__ import annotations

from typing import Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.screen import say
from eigenveil.privacy.proof_files import proof_titles, read_proof


def proofs(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A proof, as 'eigenveil certify' names it; without it, all are listed."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Print a proof that a certificate cites, or the list of all proofs."""
    if name is not None:
        text = read_proof(name)
        if json:
            options.print_json({"name": name.removesuffix(".md"), "text": text})
        else:
            typer.echo(text, nl=False)
        return
    titles = proof_titles()
    if json:
        options.print_json(titles)
        return
    longest = max(map(len, titles), default=0)
    for each, title in titles.items():
        say(f"{each:{longest}}  {title}")
