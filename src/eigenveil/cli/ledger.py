"""``eigenveil ledger``: what a site's ledger allows, what it spent, and whether it holds."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.screen import Screen, bold
from eigenveil.files import replacing

if TYPE_CHECKING:  # the database library takes long to load, and only these commands need it
    from eigenveil.federation.ledger import Account, Ledger, Standing
    from eigenveil.privacy.guarantee import Adjacency

ledger_app = typer.Typer(
    help="A site's ledger: what may be lost about its rows, and what was.", no_args_is_help=True
)

Place = Annotated[
    str, typer.Argument(help="The ledger's file, or a URL such as postgresql+psycopg://host/name.")
]

_DOES_NOT_HOLD = 8
_MOST_SESSIONS = 20


@ledger_app.command()
def show(place: Place, json: options.Json = False) -> None:
    """Show the budgets, what is spent of them, and the last sessions."""
    ledger = _open(place)
    standings, accounts = ledger.standings(), ledger.accounts()
    if json:
        options.print_json(
            {
                "ledger": ledger.name,
                "standings": [_standing_json(standing) for standing in standings],
                "sessions": [_account_json(account) for account in accounts],
            }
        )
        return
    screen = Screen()
    _print_standings(standings, screen)
    _print_accounts(accounts, screen)


@ledger_app.command()
def verify(place: Place, json: options.Json = False, quiet: options.Quiet = False) -> int:
    """Recompute the chain of entries and say whether it holds (status 8 if not)."""
    found = _open(place).verify()
    if json:
        options.print_json(asdict(found))
    else:
        screen = Screen(quiet=quiet)
        screen.print(bold("HOLDS" if found.holds else "DOES NOT HOLD"))
        screen.print(found.explanation)
        screen.print(f"last entry: {found.entries}, hash {found.last}")
        screen.print(
            "note: whoever can write the ledger can make another that holds; keep the last hash "
            "elsewhere to know this one again."
        )
    if not found.holds:
        raise typer.Exit(_DOES_NOT_HOLD)
    return 0


@ledger_app.command()
def export(
    place: Place,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file; standard output by default.")
    ] = None,
) -> None:
    """Write all entries, one JSON object a line."""
    lines = (entry.line() for entry in _open(place).entries())
    if out is None:
        for line in lines:
            typer.echo(line)
        return
    with replacing(out) as scratch, scratch.open("w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in lines)


@ledger_app.command()
def budget(
    place: Place,
    data_set: Annotated[str, typer.Option(help="The rows' name in this ledger.")],
    epsilon: Annotated[
        float, typer.Option(help="What may be lost over everything; 0 closes the data set.")
    ],
    delta: Annotated[float, typer.Option(help="In [0, 1), well below one over the rows.")],
    adjacency: options.Adjacency = "add-remove",
    quiet: options.Quiet = False,
) -> None:
    """Set a data set's budget; makes the ledger where there is none."""
    from eigenveil.federation.ledger import Budget

    ledger = _open(place)
    ledger.set_budget(Budget(data_set, cast("Adjacency", adjacency), epsilon, delta))
    screen = Screen(quiet=quiet)
    _print_standings([s for s in ledger.standings() if s.budget.data_set == data_set], screen)


@ledger_app.command()
def end(
    place: Place,
    study: Annotated[str, typer.Option(help="The study's hash, as 'ledger show' prints it.")],
    quiet: options.Quiet = False,
) -> None:
    """End the open sessions of a study that will not go on; what they charged stays."""
    count = _open(place).end_study(study)
    Screen(quiet=quiet).print(
        f"{count} session{'' if count == 1 else 's'} ended; what was reserved is free again."
        if count
        else "No session of this study is open; nothing changed."
    )


def _open(place: str) -> Ledger:
    from eigenveil.federation.ledger import Ledger

    return Ledger(place)


def _print_standings(standings: list[Standing], screen: Screen) -> None:
    table = Table(title="budgets, in epsilon at the budget's delta")
    for name in ("data set", "adjacency"):
        table.add_column(name)
    for name in ("budget", "delta", "spent", "reserved", "left"):
        table.add_column(name, justify="right")
    for standing in standings:
        of = standing.budget
        reserved = _epsilon(standing.reserved, of.delta)
        numbers = (of.epsilon, of.delta, standing.spent_epsilon, reserved, standing.left_epsilon)
        table.add_row(of.data_set, of.adjacency, *(f"{number:.4g}" for number in numbers))
    screen.print(table)
    if not standings:
        screen.print("No budget is set: no study can begin.")
    elif any(standing.spent.mu_squared or standing.reserved.mu_squared for standing in standings):
        screen.print("Gaussian losses add up in squares: what is left is not the difference.")


def _print_accounts(accounts: list[Account], screen: Screen) -> None:
    last = accounts[-_MOST_SESSIONS:]
    shown = f"the last {len(last)} of {len(accounts)}" if len(last) < len(accounts) else "all"
    table = Table(title=f"sessions ({shown})")
    table.add_column("begun (UTC)")
    table.add_column("study", overflow="fold")
    for name in ("session", "data set", "outcome"):
        table.add_column(name)
    table.add_column("charges", justify="right")
    for account in last:
        releases = sum(len(charge.releases) for _, charge in account.charges)
        table.add_row(
            account.begun[:16].replace("T", " "),
            account.key.study,
            account.key.session,
            account.terms.data_set,
            "open" if account.outcome is None else account.outcome,
            f"{releases} release{'' if releases == 1 else 's'}",
        )
    screen.print(table)


def _standing_json(standing: Standing) -> dict[str, Any]:
    return {
        **asdict(standing.budget),
        "spent": asdict(standing.spent),
        "reserved": asdict(standing.reserved),
        "spent_epsilon": _finite(standing.spent_epsilon),
        "reserved_epsilon": _finite(_epsilon(standing.reserved, standing.budget.delta)),
        "left_epsilon": standing.left_epsilon,
    }


def _account_json(account: Account) -> dict[str, Any]:
    return {
        "study": account.key.study,
        "session": account.key.session,
        "begun": account.begun,
        "data_set": account.terms.data_set,
        "adjacency": account.terms.adjacency,
        "note": account.terms.note,
        "outcome": account.outcome,
        "reserved": asdict(account.terms.reserve),
        "charged": asdict(account.charged()),
        "charges": [
            {"entry": number, "step": charge.step, "releases": [r.name for r in charge.releases]}
            for number, charge in account.charges
        ],
    }


def _epsilon(loss: Any, delta: float) -> float:
    from eigenveil.federation.ledger_books import epsilon_or_infinity

    return epsilon_or_infinity(loss, delta)


def _finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None
