"""``eigenveil ledger``: a site's budgets, what was spent, and whether the ledger is intact."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.table import Table

from eigenveil.app.ledger_place import VARIABLE, usual_ledger
from eigenveil.app.results import check_place
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, bold
from eigenveil.files import replacing
from eigenveil.models.options import OPTIONS

if TYPE_CHECKING:
    from eigenveil.federation.approvals.record import BudgetChange, Recorded
    from eigenveil.federation.ledger.entries import ElsewhereBody
    from eigenveil.federation.ledger.heads import HeadsFile
    from eigenveil.federation.ledger.ledger import Budget, Ledger, Session, Standing
    from eigenveil.privacy.guarantee import Adjacency


HEADS_HELP = "A file elsewhere, where the ledger's heads are also kept."


def heads_of(place: str | None) -> HeadsFile | Literal["usual"]:
    """The place that ``--heads`` names, or the usual one."""
    if place is None:
        return "usual"
    if "://" in place:
        raise options.WrongOption(
            "--heads names a file, not a URL.",
            hint="Give a file where those who can write the ledger cannot change it.",
        )
    from eigenveil.federation.ledger.heads import HeadsFile

    return HeadsFile(place)


# -- ``eigenveil ledger``: what a site's ledger allows, what it spent, and whether it holds.


ledger_app = typer.Typer(
    help="A ledger, of tables or of a site: the privacy budget of rows, and what was spent.",
    no_args_is_help=True,
    add_completion=False,
)

Place = Annotated[
    str | None,
    typer.Argument(
        help="The ledger's file, or a URL such as postgresql://host/name; by default that of this "
        f"user's tables, or what {VARIABLE} names."
    ),
]

# That of a fit where none is given.
_USUAL_DELTA = next(one.default for one in OPTIONS if one.name == "delta")
_NOT_VALID = 8
_MOST_SESSIONS = 20


@ledger_app.command()
def show(place: Place = None, json: options.Json = False) -> None:
    """Show the budgets, what is spent of them, and the last sessions."""
    from eigenveil.app.ledger import read_ledger

    found = read_ledger(_open(place))
    if json:
        options.print_json(found.as_json())
        return
    screen = Screen()
    if (listed := found.record.listed) is not None:
        names = [str(each) for each in listed.approvers if each.until is None]
        screen.print(f"approvers of {listed.whose}: {', '.join(names)}", soft_wrap=True)
    _print_standings(found.standings, screen)
    _print_changes(found.record.budgets, screen)
    for waiting in found.record.waiting:
        its = waiting.said
        screen.print(
            f"waits for a second approver: epsilon = {its.epsilon:g} at delta = {its.delta:g} for "
            f"{its.data_set}, which {its.by} agreed to",
            soft_wrap=True,
        )
    _print_sessions(found.sessions, screen)
    _print_elsewhere(found.elsewhere, screen)
    _print_decisions(found.record.decisions, screen)


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
    if against is not None and not re.fullmatch("[0-9a-f]{64}", against := against.lower()):
        raise options.WrongOption(
            "--against is not the hash of an entry.",
            hint="Give the 64 hexadecimal digits that 'ledger verify' printed as the last hash.",
        )
    ledger = _open(place, heads_of(heads), party=party)
    found = ledger.verify(against=against)
    if json:
        options.print_json(asdict(found))
    else:
        screen = Screen(quiet=quiet)
        screen.print(bold("VALID" if found.holds else "NOT VALID"))
        screen.print(found.explanation)
        screen.print(f"last entry: {found.entries}, hash {found.last}")
        screen.print(f"heads: {ledger.heads}", soft_wrap=True)
    if not found.holds:
        raise typer.Exit(_NOT_VALID)
    return 0


@ledger_app.command()
def export(
    place: Place = None,
    out: Annotated[
        Path | None, typer.Option(help="Write to this file; standard output by default.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier file.")] = False,
) -> None:
    """Write all entries, one JSON object a line."""
    if out is not None:
        check_place(out, overwrite=overwrite)
    lines = (entry.line() for entry in _open(place).entries())
    if out is None:
        for line in lines:
            typer.echo(line)
        return
    with replacing(out) as scratch, scratch.open("w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in lines)


@ledger_app.command()
def budget(
    place: Place = None,
    *,
    data_set: Annotated[str, typer.Option(help="The rows' name in this ledger.")],
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
            f"default what the account has, or {_USUAL_DELTA:g}."
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
    by: Annotated[
        str | None,
        typer.Option(
            "--as",
            help="Who sets it; by default this user's log-in name, or with --party 'owner'.",
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
    from eigenveil.federation.ledger.entries import UNIT
    from eigenveil.federation.ledger.ledger import Budget

    ledger = _open(place, makes=True, party=party)
    before = ledger.budget_if_any(data_set)
    if before is not None:
        if epsilon is None:
            epsilon = before.epsilon
            pure_epsilon = before.pure_epsilon if pure_epsilon is None else pure_epsilon
        delta = before.delta if delta is None else delta
    if epsilon is None:
        raise options.WrongOption(
            f"The ledger has no account of {data_set!r} yet, and --epsilon is not given.",
            hint="Give --epsilon: what all fits of these rows may cost together, such as 1.",
        )
    delta = _USUAL_DELTA if delta is None else delta
    adjacency = adjacency or ("add-remove" if before is None else before.adjacency)
    unit = unit if unit is not None else (UNIT if before is None else before.unit)
    if delta_elsewhere is None:
        delta_elsewhere = 0.0 if before is None else before.delta_elsewhere
    new = Budget(
        data_set,
        cast("Adjacency", adjacency),
        epsilon,
        delta,
        pure_epsilon or 0.0,
        unit,
        delta_elsewhere,
    )
    if not reason and before is not None and (epsilon > before.epsilon or delta > before.delta):
        spent = next(s for s in ledger.standings() if s.budget.data_set == data_set)
        if spent.spent_epsilon > 0:
            raise options.WrongOption(
                f"The budget of data set {data_set!r} would be raised after something was charged, "
                "and no reason is given.",
                hint="Give --reason: it is kept in the ledger, with your name.",
            )
    screen = Screen(quiet=quiet)
    if party is not None:
        if not _sign(ledger, new, party, key, by, reason):
            screen.print(
                "A second approver must agree to exactly this budget: it is not set yet.",
                soft_wrap=True,
            )
    else:
        ledger.set_budget(new, by=_login() if by is None else by, reason=reason)
        screen.print("This budget is unsigned: the ledger has no approvers.")
    _print_standings([s for s in ledger.standings() if s.budget.data_set == data_set], screen)


def _sign(
    ledger: Ledger, new: Budget, party: Path, key: Path | None, by: str | None, reason: str
) -> bool:
    """Have an approver sign a budget; whether it is set."""
    from eigenveil.cli.commands.site_decisions import signer_for
    from eigenveil.federation.approvals.desk import Decisions
    from eigenveil.federation.approvals.roster import FIRST_OWNER
    from eigenveil.network.folder import open_party

    desk, name = Decisions(open_party(party, role="site"), ledger), by or FIRST_OWNER
    return desk.set_budget(new, signer_for(desk, name, key), by=name, reason=reason)


@ledger_app.command()
def charge(
    place: Place = None,
    *,
    data_set: Annotated[str, typer.Option(help="The rows' name in this ledger.")],
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
    by: Annotated[
        str | None, typer.Option("--as", help="Who charges it; by default this user's log-in name.")
    ] = None,
    reason: Annotated[str, typer.Option(help="What was done, and where; kept in the ledger.")] = "",
    quiet: options.Quiet = False,
) -> None:
    """Charge a data set's account for work done elsewhere, by what that program stated of it."""
    from eigenveil.federation.ledger.entries import UNIT
    from eigenveil.privacy.elsewhere import Elsewhere

    given = {"epsilon": epsilon, "delta": delta or None, "rho": rho, "mu": mu}
    work = Elsewhere.stated(
        epsilon=epsilon,
        delta=delta,
        rho=rho,
        mu=mu,
        adjacency=cast("Adjacency", adjacency),
        contributions=contributions,
        what=", ".join(f"{name} = {value:g}" for name, value in given.items() if value is not None),
    )
    ledger = _open(place)
    who = _login() if by is None else by
    standing = ledger.charge_elsewhere(data_set, work, unit=unit or UNIT, by=who, reason=reason)
    _print_standings([standing], Screen(quiet=quiet))


@ledger_app.command()
def end(
    place: Place = None,
    *,
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


def _open(
    place: str | None,
    heads: HeadsFile | Literal["usual"] = "usual",
    *,
    makes: bool = False,
    party: Path | None = None,
) -> Ledger:
    place = usual_ledger(make_folder=makes) if place is None else place
    if party is not None:
        from eigenveil.app.decisions import ledger_of
        from eigenveil.network.folder import open_party

        return ledger_of(place, open_party(party, role="site"), heads)
    from eigenveil.federation.ledger.ledger import Ledger

    return Ledger(place, heads=heads)


def _print_standings(standings: list[Standing], screen: Screen) -> None:
    from eigenveil.federation.ledger.display import ACCOUNTS, account_cells
    from eigenveil.federation.ledger.placing import budget_left_text

    table = Table(title="accounts, in epsilon at the budget's delta")
    for number, name in enumerate(ACCOUNTS):
        table.add_column(name, justify="left" if number < 2 else "right")
    for standing in standings:
        table.add_row(*account_cells(standing))
    screen.print(table)
    for standing in standings:
        caps, held = standing.caps, standing.caps.minus(standing.left)
        screen.print(f"{standing.budget.data_set}: {budget_left_text(standing)}", soft_wrap=True)
        screen.print(
            f"  spent or reserved: {held.mu_squared:.4g} of {caps.mu_squared:.4g} of mu squared, "
            f"{held.pure:.4g} of {caps.pure:.4g} of pure epsilon",
            soft_wrap=True,
        )
    if not standings:
        screen.print("No budget is set: no study can begin.")


def _login() -> str:
    """The name of the user who runs it, where the machine knows one."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def _print_changes(changes: list[BudgetChange], screen: Screen) -> None:
    """Budgets as they were set, where one was set more than once."""
    once = len({each.body.budget.data_set for each in changes}) == len(changes)
    if once and not any(each.signed for each in changes):
        return
    table = Table(title="budgets, as they were set")
    for name in ("when (UTC)", "data set", "epsilon", "delta", "by", "reason", "signed by"):
        table.add_column(name, overflow="fold")
    for each in changes[-_MOST_SESSIONS:]:
        of = each.body.budget
        table.add_row(
            each.time[:16].replace("T", " "),
            of.data_set,
            f"{of.epsilon:.4g}",
            f"{of.delta:.4g}",
            each.body.by,
            each.body.reason,
            ", ".join(map(str, each.signed)) or "unsigned",
        )
    screen.print(table)


def _print_elsewhere(charged: list[tuple[str, ElsewhereBody]], screen: Screen) -> None:
    if not charged:
        return
    table = Table(title="work done elsewhere")
    for name in ("when (UTC)", "data set", "stated", "by", "reason"):
        table.add_column(name, overflow="fold")
    for time, body in charged[-_MOST_SESSIONS:]:
        when = time[:16].replace("T", " ")
        table.add_row(when, body.data_set, body.what, body.by, body.reason)
    screen.print(table)


def _print_decisions(decided: list[Recorded], screen: Screen) -> None:
    if not decided:
        return
    last = decided[-_MOST_SESSIONS:]
    shown = f"the last {len(last)} of {len(decided)}" if len(last) < len(decided) else "all"
    table = Table(title=f"decisions ({shown})")
    for name in ("when (UTC)", "decision", "by", "study", "purpose, reason"):
        table.add_column(name, overflow="fold")
    for each in last:
        of = each.decision
        good = "" if of.action != "approve" else f", runs: {of.runs or 'any number'}"
        good += "" if of.until is None else f", until {of.until:%Y-%m-%d %H:%M}"
        table.add_row(
            f"{of.time:%Y-%m-%d %H:%M}",
            f"{of.action}{good}" if not each.problem else f"NOT VALID: {each.problem}",
            of.by if each.approver is None else str(each.approver),
            of.study[:16],
            "; ".join(text for text in (of.purpose, of.reason) if text),
        )
    screen.print(table)


def _print_sessions(sessions: list[Session], screen: Screen) -> None:
    last = sessions[-_MOST_SESSIONS:]
    shown = f"the last {len(last)} of {len(sessions)}" if len(last) < len(sessions) else "all"
    table = Table(title=f"sessions ({shown})")
    table.add_column("begun (UTC)")
    table.add_column("study", overflow="fold")
    for name in ("session", "data set", "outcome"):
        table.add_column(name)
    table.add_column("charges", justify="right")
    for session in last:
        releases = sum(len(charge.releases) for _, charge in session.charges)
        table.add_row(
            session.begun[:16].replace("T", " "),
            session.key.study,
            session.key.session,
            session.terms.data_set,
            "open" if session.outcome is None else session.outcome,
            f"{releases} release{'' if releases == 1 else 's'}",
        )
    screen.print(table)
