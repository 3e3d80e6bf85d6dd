"""``eigenveil ledger``: a site's budgets, what was spent, and whether the ledger is intact."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.app.ledger_place import VARIABLE
from eigenveil.cli import options
from eigenveil.cli.commands.approvers import ask_password
from eigenveil.cli.presenters.screen import Screen, present

HEADS_HELP = "A file elsewhere, where the ledger's heads are also kept."
_NOT_VALID = 8

ledger_app = options.group()

Place = Annotated[
    str | None,
    typer.Argument(
        help="The ledger's file, or a URL such as postgresql://host/name; by default that of this "
        f"user's tables, or what {VARIABLE} names."
    ),
]
DataSet = Annotated[str, typer.Option(help="The rows' name in this ledger.")]


@ledger_app.command()
def show(place: Place = None, json: options.Json = False) -> None:
    """Show the budgets, what is spent of them, and the last sessions."""
    present(app.ledger.read_ledger(place), json=json)


@ledger_app.command()
def verify(
    place: Place = None,
    against: Annotated[
        str | None,
        typer.Option(help="A last hash that was kept elsewhere; it must be in the chain."),
    ] = None,
    heads: Annotated[
        str | None,
        typer.Option(help=f"{HEADS_HELP} As 'site start' has it; all must be in the chain."),
    ] = None,
    party: Annotated[
        Path | None, typer.Option(help="A site's folder, where the heads of its ledger are.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Recompute the chain of entries and say whether it is valid (status 8 if not)."""
    verified = app.ledger.verify(place, against=against, heads=heads, party=party)
    present(verified, json=json, quiet=quiet)
    if not verified.found.holds:
        raise typer.Exit(_NOT_VALID)
    return 0


@ledger_app.command()
def export(
    place: Place = None,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file; standard output by default.")
    ] = None,
    overwrite: options.OverFile = False,
) -> None:
    """Write all entries, one JSON object a line."""
    if out is not None:
        app.results.check_place(out, overwrite=overwrite)
    app.ledger.export(place, sys.stdout if out is None else out)


def _wanted(
    *,
    data_set: DataSet,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Epsilon of the budget; 0 closes the data set. By default what the account has."
        ),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(
            help="Delta of the budget, in [0, 1), well below one over the number of rows; by "
            "default what the account has, or that of a fit."
        ),
    ] = None,
    pure_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Part of epsilon for pure studies; the rest is for Gaussian ones. By default 0, "
            "or what the account has where --epsilon is not given."
        ),
    ] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(
            help="Of the account's neighbours: add-remove or replace-one; by default what it has, "
            "or add-remove."
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="Whose rows neighbours differ in, the column that a fit or study names with unit; "
            "by default what the account has, or each row by itself."
        ),
    ] = None,
    delta_elsewhere: Annotated[
        float | None,
        typer.Option(
            help="Part of delta, up to half, for approximate promises of work done elsewhere "
            "('ledger charge'); by default what the account has, or 0."
        ),
    ] = None,
) -> Any:
    return app.budgets.WantedBudget(**locals())


@ledger_app.command()
@options.takes(wanted=_wanted)
def budget(
    place: Place = None,
    *,
    wanted: Any,
    by: Annotated[
        str | None,
        typer.Option(
            "--as", help="Who sets it; by default this user's log-in name, or with --party 'owner'."
        ),
    ] = None,
    reason: Annotated[
        str, typer.Option(help="Why; kept in the ledger. Needed to raise one that was charged.")
    ] = "",
    party: Annotated[
        Path | None,
        typer.Option(
            help="The site's folder: an approver signs. Needed where the ledger has approvers."
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="The approver's key; by default the one in the folder's 'approvers'."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Open a data set's account, or set its budget anew; makes the ledger where there is none."""
    accounts = app.budgets.set_budget(
        place, wanted, by=by, reason=reason, party=party, key=key, password=ask_password
    )
    present(accounts, quiet=quiet)


def _work(
    *,
    epsilon: Annotated[
        float | None, typer.Option(help="Stated epsilon (OpenDP: max divergence).")
    ] = None,
    delta: Annotated[
        float, typer.Option(help="Stated delta beside --epsilon (approximate max divergence).")
    ] = 0.0,
    rho: Annotated[
        float | None, typer.Option(help="Stated rho (zero-concentrated divergence).")
    ] = None,
    mu: Annotated[float | None, typer.Option(help="Stated mu (Gaussian DP).")] = None,
    contributions: Annotated[
        int,
        typer.Option(
            help="Most rows of one unit that the statement is for (OpenDP: symmetric distance of "
            "at most so many rows)."
        ),
    ] = 1,
    adjacency: Annotated[
        str, typer.Option(help="Of the statement: add-remove or replace-one.")
    ] = "add-remove",
    unit: Annotated[
        str | None,
        typer.Option(
            help="Whose rows the statement is about, such as patient_id; by default each row."
        ),
    ] = None,
) -> Any:
    return app.budgets.WorkElsewhere(**locals())


@ledger_app.command()
@options.takes(work=_work)
def charge(
    place: Place = None,
    *,
    data_set: DataSet,
    work: Any,
    by: Annotated[
        str | None, typer.Option("--as", help="Who charges it; by default this user's log-in name.")
    ] = None,
    reason: Annotated[str, typer.Option(help="What was done, and where; kept in the ledger.")] = "",
    quiet: options.Quiet = False,
) -> None:
    """Charge a data set's account for work done elsewhere, by what that program stated of it."""
    present(app.budgets.charge(place, data_set, work, by=by, reason=reason), quiet=quiet)


@ledger_app.command()
def end(
    place: Place = None,
    *,
    study: Annotated[str, typer.Option(help="The study's hash, as 'ledger show' prints it.")],
    quiet: options.Quiet = False,
) -> None:
    """End the open sessions of a study that will not go on; what they charged stays."""
    count = app.budgets.end_study(place, study)
    Screen(quiet=quiet).print(
        f"{count} session{'' if count == 1 else 's'} ended; what was reserved is free again."
        if count
        else "No session of this study is open; nothing changed."
    )
