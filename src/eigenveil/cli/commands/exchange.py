"""``eigenveil exchange``: mail that a person carries through an airlock."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen

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
    from eigenveil.app.exchange import exchange_out
    from eigenveil.network.folder import open_party

    packed = exchange_out(open_party(party), disk, wait=wait)
    if json:
        options.print_json(asdict(packed) | {"file": packed.file and str(packed.file)})
        return
    screen = Screen()
    if packed.file is None:
        screen.print("nothing to carry")
    else:
        whom = ", ".join(f"{count} for {name}" for name, count in packed.messages.items())
        screen.print(
            f"{packed.file}: {whom or 'only word of what has arrived'} ({packed.length} bytes)",
            soft_wrap=True,
        )
    if packed.left:
        screen.print(f"{packed.left} messages had no room: exchange again for them")
    if packed.unanswered:
        screen.print(
            f"{packed.unanswered} messages that came in are not answered yet: does the party run "
            "('eigenveil site start')?",
            soft_wrap=True,
        )


@exchange_app.command("in")
def take_in(disk: Disk, party: Party, json: options.Json = False) -> int:
    """Take this party's mail from the files of the others; again is harmless."""
    from eigenveil.app.exchange import exchange_in
    from eigenveil.network.folder import open_party

    found = exchange_in(open_party(party), disk)
    if json:
        options.print_json(asdict(found))
        return 6 if found.damaged else 0
    screen = Screen()
    came = ", ".join(f"{count} from {name}" for name, count in found.messages.items())
    screen.print(
        f"taken: {came or 'nothing new'}; {found.again} came before, {found.for_others} are for "
        f"others; {found.confirmed} of our own have arrived",
        soft_wrap=True,
    )
    for name, why in found.damaged.items():
        screen.print(f"{name}: {why}. Let the other party exchange again.", soft_wrap=True)
    for name, count in found.waiting.items():
        screen.print(f"waiting for {name}: {count} messages to it are not confirmed")
    return 6 if found.damaged else 0
