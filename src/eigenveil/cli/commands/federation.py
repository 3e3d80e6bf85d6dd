"""``eigenveil federation``: who takes part between organisations, and with which keys."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen
from eigenveil.errors import DataError

if TYPE_CHECKING:  # loaded by the commands: cryptography takes a while
    from eigenveil.app.federation import Joined, Members
    from eigenveil.federation.members import Role

federation_app = options.group()

_ROLES = ("site", "aggregator", "lead", "helper")
RegistrarFolder = Annotated[Path, typer.Argument(help="The registrar's folder.")]
Address = Annotated[
    str | None,
    typer.Option(help="Where the parties meet: https://HOST:PORT, folder:/PATH, s3://, sftp://."),
]


@federation_app.command()
def new(
    name: Annotated[str, typer.Argument(help="The federation's name.")] = "federation",
    out: Annotated[
        Path | None,
        typer.Option(help="The registrar's folder ('registrar'); with --all, for all ('parties')."),
    ] = None,
    address: Address = None,
    everybody: Annotated[
        Path | None,
        typer.Option("--all", help="A study: make the folders of all its parties, for a trial."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Begin a federation: the registrar's key, and a list of members with nobody in it."""
    from eigenveil.app import federation
    from eigenveil.federation.study.file import read_study

    screen = Screen(quiet=quiet)
    folder = out or Path("registrar" if everybody is None else "parties")
    if everybody is None:
        found = federation.new(folder, name, address=address or "")
        if json:
            _json(found)
            return
        screen.print(f"registrar's fingerprint: {federation.spoken(found.registrar)}")
        screen.print("Tell it to all parties by another way than mail.")
        screen.print(found.warning, soft_wrap=True)
        return
    trial = federation.new_all(
        read_study(everybody),
        folder,
        address="https://localhost:8102" if address is None else address,
    )
    folders = {name: str(party.folder) for name, party in trial.parties.items()}
    if json:
        options.print_json(
            {
                "registrar": str(trial.registrar),
                "fingerprint": trial.fingerprint,
                "parties": folders,
            }
        )
        return
    for party, place in (folders | {"registrar": str(trial.registrar)}).items():
        screen.print(f"{party:<12} {place}", soft_wrap=True)
    screen.print(f"registrar's fingerprint: {federation.spoken(trial.fingerprint)}")
    screen.print(
        "All keys were made here, for a trial. Between organisations each party makes its own: "
        "'eigenveil federation join'.",
        soft_wrap=True,
    )


@federation_app.command()
def join(
    folder: Annotated[Path, typer.Argument(help="The party's folder, to be made.")],
    name: Annotated[str, typer.Option(help="Of a site its name in studies.")],
    registrar: Annotated[str, typer.Option(help="The fingerprint that the registrar told you.")],
    role: Annotated[str, typer.Option(help=f"One of {', '.join(_ROLES)}.")] = "site",
    organisation: Annotated[str, typer.Option(help="Whose party it is.")] = "",
    address: Address = None,
    own_certificate: Annotated[
        bool,
        typer.Option(
            "--own-certificate",
            help="Of an aggregator at https: its organisation's certificate, not a pinned one.",
        ),
    ] = False,
    signer: Annotated[
        str, typer.Option(help="The plug-in that signs, where the key is in a card.")
    ] = "",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a party's keys, which stay in its folder, and the line to send to the registrar."""
    from eigenveil.app import federation

    if role not in _ROLES:
        raise DataError("unknown-choice", option="--role", given=role, known=", ".join(_ROLES))
    made = federation.join(
        folder,
        role=cast("Role", role),
        name=name,
        registrar=registrar,
        organisation=organisation,
        address=address or "",
        own_certificate=own_certificate,
        signer=signer,
    )
    _asked(made, json=json, quiet=quiet)


@federation_app.command()
def admit(
    folder: RegistrarFolder,
    requests: Annotated[list[str], typer.Argument(help="Lines that parties sent, or files.")],
    fingerprint: Annotated[
        list[str] | None,
        typer.Option(help="What a party read out by telephone; once for each request."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="A party lost its key: its new one needs no word.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Put parties on the list of members."""
    from eigenveil.app import federation

    lines = [_line(each) for each in requests]
    _changed(
        federation.admit(folder, lines, fingerprint or [], replace=replace), json=json, quiet=quiet
    )


@federation_app.command()
def members(
    folder: Annotated[Path, typer.Argument(help="A party's folder, or the registrar's.")],
    take: Annotated[
        Path | None, typer.Option(help="Take over this list, which the registrar sent.")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Of the registrar: sign the list for 90 more days.")
    ] = False,
    address: Address = None,
    days: Annotated[int, typer.Option(help="With --renew: for how many days, at most 90.")] = 90,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show who is in; take over a newer list, or sign it anew."""
    from eigenveil.app import federation

    if renew:
        found = federation.renew(folder, address=address, days=days)
        _changed(found, json=json, quiet=quiet)
        return
    newer = None
    if take is not None:
        found, newer = federation.take(folder, take)
    else:
        found = federation.members(folder)
    if json:
        _json(found)
        return
    screen = Screen(quiet=quiet)
    if newer is not None:
        screen.print("a newer list was taken over" if newer else "this list was here already")
    _show(found, screen)


@federation_app.command()
def revoke(
    folder: RegistrarFolder,
    name: Annotated[str, typer.Argument(help="The party.")],
    reason: Annotated[str, typer.Option(help="Why; all parties read it.")] = "",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Take a party off the list: its keys are good for nothing, in runs that go on either."""
    from eigenveil.app import federation

    _changed(federation.revoke(folder, name, reason), json=json, quiet=quiet)


@federation_app.command("replace-key")
def replace_key(
    folder: Annotated[Path, typer.Argument(help="A party's folder, or the registrar's.")],
    key: Annotated[
        Path | None,
        typer.Option("--next", help="Of the registrar: the key that was kept offline."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a party new keys; or let the next registrar's key take over."""
    from eigenveil.app import federation

    if key is not None:
        _changed(federation.hand_over(folder, key), json=json, quiet=quiet)
        return
    _asked(federation.replace_key(folder), json=json, quiet=quiet)


def _asked(made: Joined, *, json: bool, quiet: bool) -> None:
    from eigenveil.app.federation import spoken

    if json:
        options.print_json(
            {
                "folder": str(made.party.folder),
                "fingerprint": made.fingerprint,
                "request": made.request,
            }
        )
        return
    screen = Screen(quiet=quiet)
    screen.print("Send the registrar this line:")
    screen.print(made.request, soft_wrap=True)
    screen.print("and read it this fingerprint by telephone:")
    screen.print(spoken(made.fingerprint))
    screen.next("federation", "members", made.party.folder, "--take", "FILE")


def _changed(found: Members, *, json: bool, quiet: bool) -> None:
    if json:
        _json(found)
        return
    screen = Screen(quiet=quiet)
    _show(found, screen)
    screen.print(f"Send {found.file} to all parties.", soft_wrap=True)


def _show(found: Members, screen: Screen) -> None:
    from eigenveil.app.federation import spoken

    table = Table("name", "role", "organisation", "key", "")
    for each in found.members:
        state = "" if each.state == "in" else f"{each.state} {each.reason}".strip()
        table.add_row(each.name, each.role, each.organisation, each.fingerprint[:16], state)
    screen.print(f"{found.federation}: list of members, number {found.number}")
    screen.print(table)
    screen.print(f"good until {found.until:%Y-%m-%d %H:%M} UTC")
    screen.print(f"the parties meet at {found.address or 'no address yet'}", soft_wrap=True)
    screen.print(f"this list: {found.digest[:16]}; compare it with the other parties")
    screen.print(f"registrar's fingerprint: {spoken(found.registrar)}")
    if found.warning:
        screen.print(f"warning: {found.warning}", soft_wrap=True)


def _json(found: Members) -> None:
    options.print_json({name: _plain(each) for name, each in asdict(found).items()})


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path | datetime) else value


def _line(given: str) -> str:
    """A request as it was typed, or from a file."""
    try:
        file = Path(given)
        if not file.is_file():
            return given
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(1 << 14)
    except (OSError, ValueError):  # too long a name, and none at all
        return given
