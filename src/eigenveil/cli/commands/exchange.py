"""``eigenveil exchange``: mail that a person carries through an airlock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import present

exchange_app = options.group()

Disk = Annotated[Path, typer.Argument(help="The folder of the disk that is carried.")]
Party = Annotated[Path, typer.Option("--party", help="The party's folder.")]


@exchange_app.command()
def out(
    disk: Disk,
    party: Party,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait at most for the party to answer what came in.")
    ] = 30.0,
    json: options.Json = False,
) -> None:
    """Pack all mail that is not known to have arrived into one file."""
    packed = app.exchange.exchange_out(app.exchange.open_party(party), disk, wait=wait)
    present(packed, json=json)


@exchange_app.command("in")
def take_in(disk: Disk, party: Party, json: options.Json = False) -> int:
    """Take this party's mail from the files of the others; again is harmless."""
    found = app.exchange.exchange_in(app.exchange.open_party(party), disk)
    present(found, json=json)
    return 6 if found.damaged else 0
