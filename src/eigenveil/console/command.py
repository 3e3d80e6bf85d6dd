"""``eigenveil console``: serve the pages, and the accounts of those who may sign in."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from eigenveil.cli.presenters.screen import say
from eigenveil.errors import DataError, OutputError

console_app = typer.Typer(
    help="Pages for a site's owner, a study's lead or one analyst: decisions, plans, results.",
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
)
user_app = typer.Typer(
    help="Who may sign in to the console.", no_args_is_help=True, add_completion=False
)
console_app.add_typer(user_app, name="user")

_PASSWORD = "EIGENVEIL_CONSOLE_PASSWORD"
_SECRET = "EIGENVEIL_OIDC_SECRET"
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="Folder of the accounts, runs and results; by default one of this user.",
    ),
]
KitFolder = Annotated[
    str | None, typer.Option("--kit", help="The kit of a site, or of a study's lead.")
]
LedgerPlace = Annotated[
    str | None, typer.Option("--ledger", help="The ledger: a file, or a database's URL.")
]


@console_app.callback()
def serve(
    context: typer.Context,
    kit: KitFolder = None,
    ledger: LedgerPlace = None,
    data_set: Annotated[str, typer.Option(help="The rows' name in a site's ledger.")] = "default",
    data: Annotated[
        list[str] | None,
        typer.Option(help="For one analyst: a file with rows, in place of a kit; repeat."),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="What the columns of these files are.")
    ] = None,
    state: State = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; beyond this machine only with TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port.", min=1, max=65535)] = 8450,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name by which browsers call the console; repeat."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="The certificate of the console (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    idle: Annotated[
        float, typer.Option(help="Minutes without a request after which a session ends.", min=1)
    ] = 15.0,
    longest: Annotated[
        float, typer.Option(help="Hours after which every session ends.", min=0.1)
    ] = 8.0,
    oidc: Annotated[
        str | None,
        typer.Option(help="An OpenID Connect issuer, such as https://login.hospital.example."),
    ] = None,
    oidc_client: Annotated[
        str | None,
        typer.Option(help=f"The console's client id there; its secret is in {_SECRET}."),
    ] = None,
    oidc_claim: Annotated[
        str, typer.Option(help="The claim that is the name of an account.")
    ] = "email",
    address: Annotated[
        str | None,
        typer.Option(help="The console's address for browsers, such as https://console.example."),
    ] = None,
) -> None:
    """Serve the pages until stopped (Ctrl-C): with --kit or with --data."""
    if context.invoked_subcommand is not None:
        return
    if (kit is None) == (not data):
        raise DataError(
            "The console is for a kit or for one table, and needs one of them.",
            hint="Give --kit FOLDER (a site's or a lead's), or --data FILE.",
            code="no-console",
        )
    if (tls_cert is None) != (tls_key is None):
        raise DataError(
            "--tls-cert and --tls-key go together.", hint="Give both.", code="tls-needed"
        )
    _need_extra()
    from eigenveil.console.settings import Issuer, Rows, Settings

    issuer = None
    if oidc is not None:
        secret = os.environ.get(_SECRET)
        if oidc_client is None or address is None or not secret:
            raise DataError(
                "--oidc needs --oidc-client, --address and the client's secret.",
                hint=f"Give the secret in the environment: {_SECRET}.",
                code="no-provider",
            )
        issuer = Issuer(oidc, oidc_client, secret, address, oidc_claim)
    section = "table" if kit is None else _role(Path(kit))
    settings = Settings(
        section=section,
        state=_state(state),
        rows=Rows(
            None if kit is None else str(Path(kit).absolute()),
            _absolute(ledger),
            data_set,
            tuple(_absolute(file) or file for file in data or ()),
            None if schema is None else str(schema.absolute()),
        ),
        host=host,
        port=port,
        names=tuple(name or ()),
        tls=None if tls_cert is None or tls_key is None else (tls_cert, tls_key),
        idle=60 * idle,
        longest=3600 * longest,
        issuer=issuer,
    )
    from eigenveil.console.serving import run

    run(settings)


@user_app.command()
def add(
    name: Annotated[str, typer.Argument(help="The account's name; it stands in decisions.")],
    role: Annotated[str, typer.Option(help="owner, approver, viewer or lead.")],
    state: State = None,
    kit: KitFolder = None,
    ledger: LedgerPlace = None,
    oidc: Annotated[
        bool,
        typer.Option("--oidc", help="It signs in by OpenID Connect and has no password here."),
    ] = False,
) -> None:
    """Make an account; the password is asked for (or in EIGENVEIL_CONSOLE_PASSWORD).

    With a site's --kit and --ledger an owner or approver gets a key, which the password encrypts,
    and stands in the site's list of approvers from then on.
    """
    _need_extra()
    from eigenveil.console.accounts import Accounts
    from eigenveil.console.signing import new_key

    deciding = role in ("owner", "approver") and kit is not None
    accounts = Accounts(_state(state))
    if (found := accounts.find(name)) is not None:
        accounts.add(name, role, None)  # refuses, naming it
        raise AssertionError(found)
    password = None
    if not oidc or deciding:
        password = _password("Password of the key" if oidc else "Password")
    private, public = "", ""
    if deciding:
        assert password is not None
        private, public = new_key(password)
    account = accounts.add(name, role, None if oidc else password, key=private)
    if deciding:
        try:
            _appoint(str(kit), ledger, name, role, public)
        except BaseException:
            accounts.remove(name)
            raise
    say(
        f"account {account.name}, {account.role}"
        + (", in the list of approvers" if deciding else "")
    )
    if account.local:
        say("The first sign-in shows its second factor.")


@user_app.command("list")
def list_users(state: State = None) -> None:
    """Show the accounts."""
    _need_extra()
    from eigenveil.console.accounts import Accounts

    found = Accounts(_state(state)).all()
    for each in found:
        way = "password" if each.local else "OpenID Connect"
        factor = "" if not each.local or each.confirmed else ", second factor not set up yet"
        say(f"{each.name}: {each.role}, {way}{factor}")
    if not found:
        say("There is no account: eigenveil console user add NAME --role owner")


@user_app.command()
def remove(
    name: Annotated[str, typer.Argument(help="The account's name.")],
    state: State = None,
    kit: KitFolder = None,
    ledger: LedgerPlace = None,
) -> None:
    """Take an account away; with --kit and --ledger also from the site's list of approvers."""
    _need_extra()
    from eigenveil.console.accounts import Accounts

    accounts = Accounts(_state(state))
    accounts.named(name)
    if kit is not None:
        _decisions(kit, ledger).dismiss(name)
    accounts.remove(name)
    say(f"removed: {name}")


@user_app.command()
def reset(
    name: Annotated[str, typer.Argument(help="The account's name.")], state: State = None
) -> None:
    """Forget a second factor that was lost: the next sign-in shows a new one."""
    _need_extra()
    from eigenveil.console.accounts import Accounts

    Accounts(_state(state)).reset(name)
    say(f"reset: the next sign-in of {name} shows a new second factor")


def _appoint(kit: str, ledger: str | None, name: str, role: str, public: str) -> None:
    _decisions(kit, ledger).appoint(name, role, public)


def _decisions(kit: str, ledger: str | None):  # type: ignore[no-untyped-def]
    from eigenveil.cli.presenters.study_cost import owner_of
    from eigenveil.federation.ledger.ledger import Ledger
    from eigenveil.network.decisions import Decisions
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit, role="site")
    place = ledger if ledger is not None else owner_of(opened.local).ledger
    if place is None:
        raise OutputError(
            "The site's ledger is not known.", hint="Give it with --ledger.", code="no-ledger"
        )
    return Decisions(opened, Ledger(place))


def _password(what: str) -> str:
    given = os.environ.get(_PASSWORD)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise DataError(
            "There is no terminal to ask for the password.",
            hint=f"Give it in the environment: {_PASSWORD}.",
            code="no-password",
        )
    found: str = typer.prompt(f"{what} (12 characters or more)", hide_input=True,
                              confirmation_prompt=True)  # fmt: skip
    return found


def _role(kit: Path) -> str:
    """Whose kit it is; its file is read without the libraries of studies."""
    import json

    try:
        role = json.loads((kit / "eigenveil-kit.json").read_text(encoding="utf-8"))["role"]
    except (OSError, ValueError, KeyError, TypeError):
        raise OutputError(
            f"{kit} is no kit.",
            hint="Give a folder that 'eigenveil flare provision' or 'request' made.",
            code="no-kit",
        ) from None
    if role not in ("site", "lead"):
        raise DataError(
            f"{kit} is the kit of another role than a site or a lead.",
            hint="The console is for a site's owner and for a lead.",
            code="other-role",
        )
    return str(role)


def _state(given: Path | None) -> Path:
    if given is not None:
        return given.absolute()
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return (home if home.is_absolute() else Path.home()) / "eigenveil" / "console"


def _absolute(place: str | None) -> str | None:
    return place if place is None or "://" in place else str(Path(place).absolute())


def _need_extra() -> None:
    try:
        import argon2  # noqa: F401
        import authlib  # noqa: F401
        import segno  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise OutputError(
            f"The console needs {error.name}, which is not installed.",
            hint="pip install 'eigenveil[console]'",
            code="not-installed",
        ) from None
