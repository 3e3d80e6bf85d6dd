"""``eigenveil site approver``: who decides at a site; and what all share who decide there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import present

PASSWORD = "EIGENVEIL_APPROVER_PASSWORD"

PartyOption = Annotated[Path, typer.Option("--party", help="The site's folder.")]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="The site's ledger: a file, or a URL such as postgresql://host/name. By default that "
        "of 'eigenveil site start'.",
    ),
]


def _deciding(
    party: PartyOption,
    by: Annotated[
        str, typer.Option("--as", help="Who decides, as the site's list of approvers has the name.")
    ] = "owner",
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", help="The approver's key; by default the one in the folder's 'approvers'."
        ),
    ] = None,
    ledger: LedgerOption = None,
) -> Any:
    return app.approvers.Deciding(party, ledger, by, key, ask_password)


decides = options.takes(who=_deciding)
"""Give a command the options of who decides, and where; it takes ``who``."""


def ask_password(prompt: str, *, confirm: bool = False) -> str:
    """From the environment, for programs; else from the terminal, unseen."""
    given = os.environ.get(PASSWORD)
    if given is not None:
        return given
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True))


approver_app = options.group(
    "Who decides at a site: a list in its ledger, changed by those who are in it."
)
Who = Annotated[str, typer.Argument(help="As in the list.")]


@approver_app.command("add")
@decides
def add_approver(
    name: Annotated[str, typer.Argument(help="A name or staff number; kept for ever.")],
    role: Annotated[
        str, typer.Option(help="owner or approver (they decide), viewer or lead (they do not).")
    ] = "approver",
    public_key: Annotated[
        Path | None,
        typer.Option(help="Their public key; otherwise a key is made, under a password."),
    ] = None,
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Put somebody into the list; with a new key under a password, unless one is given."""
    present(app.approvers.add(who, name, role, public_key), quiet=quiet)


@approver_app.command("list")
def list_approvers(
    party: PartyOption, ledger: LedgerOption = None, json: options.Json = False
) -> None:
    """Show who decides."""
    present(app.approvers.list_approvers(party, ledger), json=json)


@approver_app.command("renew")
@decides
def renew_approver(
    name: Who,
    public_key: Annotated[
        Path | None,
        typer.Option(
            help="Their new public key; otherwise the party's own for 'owner', and for others "
            "a key is made, under a password."
        ),
    ] = None,
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Give somebody in the list a new key: theirs was lost, or the party has another one."""
    present(app.approvers.renew(who, name, public_key), quiet=quiet)


@approver_app.command("remove")
@decides
def remove_approver(name: Who, quiet: options.Quiet = False, *, who: Any) -> None:
    """Let somebody decide no more; what they decided before stays as it is."""
    present(app.approvers.remove(who, name), quiet=quiet)


@approver_app.command("rule")
@decides
def set_rule(
    persons: Annotated[
        int, typer.Argument(min=1, max=2, help="How many must agree to an approval: 1 or 2.")
    ],
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Switch the two-person rule on (2) or off (1)."""
    present(app.approvers.set_rule(who, persons), quiet=quiet)


@approver_app.command("agree")
@decides
def agree_to_change(quiet: options.Quiet = False, *, who: Any) -> None:
    """Sign the change of the list that waits for a second approver ('list' shows it)."""
    present(app.approvers.agree(who), quiet=quiet)
