"""``eigenveil console user``: who may sign in, lost passwords and second factors, keys."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eigenveil.cli.presenters.screen import say
from eigenveil.errors import DataError, OutputError

if TYPE_CHECKING:
    from eigenveil.network.decisions import Decisions

user_app = typer.Typer(
    help="Who may sign in to the console.", no_args_is_help=True, add_completion=False
)

_PASSWORD = "EIGENVEIL_CONSOLE_PASSWORD"
_DECIDING = ("owner", "approver")
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="Folder of the accounts, runs and results; by default one of this user.",
    ),
]
PartyPath = Annotated[
    str | None, typer.Option("--party", help="The folder of a site, or of a study's lead.")
]
LedgerPlace = Annotated[
    str | None, typer.Option("--ledger", help="The ledger: a file, or a database's URL.")
]


@user_app.command()
def add(
    name: Annotated[str, typer.Argument(help="The account's name; it stands in decisions.")],
    role: Annotated[str, typer.Option(help="owner, approver, viewer or lead.")],
    state: State = None,
    party: PartyPath = None,
    ledger: LedgerPlace = None,
    oidc: Annotated[
        bool,
        typer.Option("--oidc", help="It signs in by OpenID Connect and has no password here."),
    ] = False,
) -> None:
    """Make an account; the password is asked for (or in EIGENVEIL_CONSOLE_PASSWORD).

    With a site's --party and --ledger an owner or approver gets a key, which the password encrypts,
    and stands in the site's list of approvers from then on.
    """
    need_extra()
    from eigenveil.console.accounts import Accounts
    from eigenveil.console.signing import new_key

    deciding = role in _DECIDING and party is not None
    accounts = Accounts(state_folder(state))
    if (found := accounts.find(name)) is not None:
        accounts.add(name, role, None)  # refuses, naming it
        raise AssertionError(found)
    password = None
    if not oidc or deciding:
        password = _password("Password of the key" if oidc else "Password")
    private, public, where = "", "", ""
    if deciding:
        assert password is not None
        private, public = new_key(password)
    account = accounts.add(name, role, None if oidc else password, key=private)
    if deciding:
        try:
            desk = _decisions(str(party), ledger)
            where = f", {_in_list(desk.appoint(name, account.role, public))}"
        except BaseException:
            accounts.remove(name)
            raise
    say(f"account {account.name}, {account.role}{where}")
    if account.local:
        say("The first sign-in shows its second factor.")


@user_app.command("list")
def list_users(state: State = None) -> None:
    """Show the accounts."""
    need_extra()
    from eigenveil.console.accounts import Accounts

    found = Accounts(state_folder(state)).all()
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
    party: PartyPath = None,
    ledger: LedgerPlace = None,
) -> None:
    """Take an account away; with --party and --ledger also from the site's list of approvers."""
    need_extra()
    from eigenveil.console.accounts import Accounts

    accounts = Accounts(state_folder(state))
    accounts.named(name)
    if party is not None:
        _decisions(party, ledger).dismiss(name)
    accounts.remove(name)
    say(f"removed: {name}")


@user_app.command()
def reset(
    name: Annotated[str, typer.Argument(help="The account's name.")],
    password: Annotated[
        bool,
        typer.Option(
            "--password",
            help="Set a new password in place of a lost one; the account's key is lost with it.",
        ),
    ] = False,
    state: State = None,
) -> None:
    """Forget a second factor that was lost: the next sign-in shows a new one.

    With --password it is the password that was lost: a new one is asked for (or in
    EIGENVEIL_CONSOLE_PASSWORD), and the second factor stays. The account's key was encrypted with
    the old password and is lost: 'eigenveil console user key' makes a new one.
    """
    need_extra()
    from eigenveil.console.accounts import Accounts, Kept
    from eigenveil.console.passwords import hash_password

    accounts = Accounts(state_folder(state))
    account, before = accounts.named(name), accounts.kept(name)
    if not password:
        accounts.forget_factor(name)
        say(f"reset: the next sign-in of {name} shows a new second factor")
        return
    if not account.local:
        raise DataError(
            f"{name} signs in by OpenID Connect and has no password here.",
            hint="For a lost password of the key: 'eigenveil console user key'.",
            code="no-password",
        )
    accounts.keep(name, before, Kept(hash_password(_password("New password")), ""))
    say(
        f"reset: {name} signs in with the new password and the second factor as before, and can "
        "change both then; all sessions of the account have ended"
    )
    if before.key:
        say(
            f"The key of {name} is lost: it was encrypted with the old password, and {name} can "
            "decide nothing. Make a new key and put it into the site's list of approvers:"
        )
        place = "" if state is None else f" --state {state}"
        say(f"  eigenveil console user key {name} --party FOLDER --ledger LEDGER{place}")


@user_app.command()
def key(
    name: Annotated[str, typer.Argument(help="The account's name.")],
    party: Annotated[str, typer.Option("--party", help="The site's folder.")],
    state: State = None,
    ledger: LedgerPlace = None,
) -> None:
    """Make a new key for an owner or approver, in the place of one that is lost or was never made.

    It is encrypted with the account's password, which is asked for (or in
    EIGENVEIL_CONSOLE_PASSWORD), and takes the old key's place in the site's list of approvers.
    What the old key signed stays what it is.
    """
    need_extra()
    from eigenveil.console.accounts import Accounts, Kept
    from eigenveil.console.passwords import matches
    from eigenveil.console.signing import new_key

    accounts = Accounts(state_folder(state))
    account, before = accounts.named(name), accounts.kept(name)
    if account.role not in _DECIDING:
        raise DataError(
            f"{name} is {account.role}, and signs no decisions.",
            hint="An owner or an approver has a key.",
            code="bad-choice",
        )
    password = _password(
        "Password" if account.local else "Password of the key", new=not account.local
    )
    if account.local and not matches(before.password, password):
        raise DataError(
            f"That is not the password of {name}.",
            hint="Nothing was changed. A lost one is forgotten with 'eigenveil console user reset "
            "--password'.",
            code="wrong-password",
        )
    private, public = new_key(password)
    # first in the list: where this ends in between, the old key signs no more, and it is done again
    decisions = _decisions(party, ledger)
    listed = decisions.approvers().called(name)
    if listed is None or listed.until is not None:
        done = decisions.appoint(name, account.role, public)
    else:
        done = decisions.renew(name, public)
    accounts.keep(name, before, Kept(before.password, private))
    say(f"{name} has a new key; it is {_in_list(done)}.")


def _decisions(party: str, ledger: str | None) -> Decisions:
    from eigenveil.app.decisions import desk_of
    from eigenveil.network.folder import open_party

    return desk_of(open_party(party, role="site"), ledger)


def _in_list(done: bool) -> str:
    """Where a change of the list stands that the owner's own key has signed."""
    return (
        "in the site's list of approvers"
        if done
        else "in the site's list of approvers once another one agrees: eigenveil site approver "
        "agree --as NAME"
    )


def _password(what: str, *, new: bool = True) -> str:
    given = os.environ.get(_PASSWORD)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise DataError(
            "There is no terminal to ask for the password.",
            hint=f"Give it in the environment: {_PASSWORD}.",
            code="no-password",
        )
    text = f"{what} (12 characters or more)" if new else what
    found: str = typer.prompt(text, hide_input=True, confirmation_prompt=new)
    return found


def state_folder(given: Path | None) -> Path:
    """Where accounts and runs are kept."""
    if given is not None:
        return given.absolute()
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return (home if home.is_absolute() else Path.home()) / "eigenveil" / "console"


def need_extra() -> None:
    """Raise where the console's libraries are not installed."""
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
