"""``eigenveil exchange`` and ``relay``: mail that a person or another network carries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, present
from eigenveil.network import relays

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


relay_app = options.group()

Spool = Annotated[Path, typer.Option(help="The party's spool, on the machine of this process.")]
Member = Annotated[
    list[str] | None,
    typer.Option(help="CLIENT=MEMBER: a client with another name than its party; repeat it."),
]


@relay_app.command()
def spool(
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
    group: Annotated[
        str, typer.Option(help="A group of this user and of the network's, who share the folder.")
    ] = "",
    party: Annotated[
        Path | None, typer.Option("--party", help="A party whose mail goes through it from now on.")
    ] = None,
) -> None:
    """Make the folder through which a party and a relay beside it hand each other mail."""
    from eigenveil.network.folder import use_address

    made = relays.make_spool(folder, group)
    if party is not None:
        use_address(party, f"flare:{made.absolute()}")
    Screen().print(f"made: {made}", soft_wrap=True)


@relay_app.command("flare-kit")
def flare_kit(
    kit: Annotated[Path, typer.Argument(help="A startup kit of a FLARE client or server.")],
    spool: Spool,
) -> None:
    """Let a FLARE client or server run the relay: its code, classes and spool, in 'local'."""
    for path in relays.allow_in_flare(kit, spool):
        Screen().print(f"written: {path}", soft_wrap=True)


@relay_app.command("flare-job")
def flare_job(
    folder: Annotated[Path, typer.Argument(help="The job's folder to write.")],
    carry_code: Annotated[
        bool,
        typer.Option(
            "--carry-code", help="Bring the relay's code in the job (FLARE's right called BYOC)."
        ),
    ] = False,
    member: Member = None,
) -> None:
    """Write the job that a FLARE user submits, and what keeps it running."""
    names = dict(each.partition("=")[::2] for each in member or [])
    if not all(names.values()):
        raise options.WrongOption("bad-client")
    made = relays.write_flare_job(folder, members=names, carry=carry_code)
    Screen().print(
        f"written: {made}; with FLARE's python: {made}-keep.py KIT USER {made}", soft_wrap=True
    )


@relay_app.command("flower-app")
def flower_app(
    folder: Annotated[Path, typer.Argument(help="The app's folder to write.")], spool: Spool
) -> None:
    """Write the app that a Flower user runs; the spool is the aggregator's."""
    made = relays.write_flower_app(folder, spool=spool)
    Screen().print(
        f"written: {made}; with Flower's python: {made}-keep.py {spool} {made}", soft_wrap=True
    )
