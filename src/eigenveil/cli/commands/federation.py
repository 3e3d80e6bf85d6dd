"""``eigenveil federation``: who takes part between organisations, and with which keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, present
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
    if everybody is None:
        begun = app.federation.begin(out or Path("registrar"), name, address=address or "")
        present(begun, json=json, quiet=quiet)
        return
    place = "https://localhost:8102" if address is None else address
    trial = app.federation.new_all(
        app.fit.read_study(everybody), out or Path("parties"), address=place
    )
    present(trial, json=json, quiet=quiet)


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
    if role not in _ROLES:
        raise DataError("unknown-choice", option="--role", given=role, known=", ".join(_ROLES))
    asking = app.federation.Asking(
        cast("Role", role), name, registrar, organisation, address or "", signer
    )
    made = app.federation.join(folder, asking, own_certificate=own_certificate)
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
    lines = [_line(each) for each in requests]
    found = app.federation.admit(folder, lines, fingerprint or [], replace=replace)
    _changed(found, json=json, quiet=quiet)


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
    if renew:
        _changed(app.federation.renew(folder, address=address, days=days), json=json, quiet=quiet)
        return
    if take is not None:
        newer = app.federation.take(folder, take)
        said = "a newer list was taken over" if newer else "this list was here already"
        Screen(quiet=json or quiet).print(said)
    present(app.federation.members(folder), json=json, quiet=quiet)


@federation_app.command()
def revoke(
    folder: RegistrarFolder,
    name: Annotated[str, typer.Argument(help="The party.")],
    reason: Annotated[str, typer.Option(help="Why; all parties read it.")] = "",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Take a party off the list: its keys are good for nothing, in runs that go on either."""
    _changed(app.federation.revoke(folder, name, reason), json=json, quiet=quiet)


@federation_app.command("replace-key")
def replace_key(
    folder: Annotated[Path, typer.Argument(help="A party's folder, or the registrar's.")],
    key: Annotated[
        Path | None, typer.Option("--next", help="Of the registrar: the key that was kept offline.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make a party new keys; or let the next registrar's key take over."""
    if key is not None:
        _changed(app.federation.hand_over(folder, key), json=json, quiet=quiet)
        return
    _asked(app.federation.replace_key(folder), json=json, quiet=quiet)


def _asked(made: Joined, *, json: bool, quiet: bool) -> None:
    screen = present(made, json=json, quiet=quiet)
    screen.next("federation", "members", made.party.folder, "--take", "FILE")


def _changed(found: Members, *, json: bool, quiet: bool) -> None:
    screen = present(found, json=json, quiet=quiet)
    screen.print(f"Send {found.file} to all parties.", soft_wrap=True)


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
