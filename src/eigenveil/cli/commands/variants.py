"""``eigenveil variants``: the public manifest that settles which variants are columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import present

variants_app = options.group()
_COMMON = 0.01


@variants_app.callback()
def _group() -> None:
    """Keep ``new`` a command of its own, though it is the only one."""


@variants_app.command()
def new(
    file: Annotated[
        Path,
        typer.Argument(
            help="Public genotypes (.bed, .pgen, .vcf, .bcf), of which frequencies are taken, or a "
            "list of variants (.bim, .pvar)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File to write, such as variants.tsv.")],
    public: Annotated[
        bool,
        typer.Option(
            "--public",
            help="Say that FILE is public, such as a reference panel or the list of an array: all "
            "that the manifest has is published.",
        ),
    ] = False,
    least_frequency: Annotated[
        float, typer.Option(help="Leave variants out whose rarer allele is rarer than this.")
    ] = _COMMON,
    overwrite: options.OverFile = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a manifest of the variants of public data, with their frequencies there."""
    made = app.variants.write_manifest(
        file, out, public=public, least_frequency=least_frequency, overwrite=overwrite
    )
    screen = present(made, json=json, quiet=quiet)
    screen.next("fit FILE.bed --variants", out, "...")
