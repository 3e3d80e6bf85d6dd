"""``eigenveil site approve``: queries to a site, their cost, and approval by its owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, bold
from eigenveil.cli.presenters.study import print_summary, summary
from eigenveil.cli.presenters.study_cost import Cost, can_be_shown, cost_of, owner_of, pick
from eigenveil.errors import DataError
from eigenveil.federation.study.study import Study

if TYPE_CHECKING:
    from eigenveil.federation.ledger.ledger import Ledger
    from eigenveil.network.kit import Kit

LEDGER_HELP = "The site's ledger: a file, or a URL such as postgresql://host/name."


def approve(
    kit: Annotated[Path, typer.Option(help="The site's kit.")],
    study: Annotated[
        str | None,
        typer.Argument(help="Hash of a waiting study (or its first characters), or a study file."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Approve all waiting studies without showing them.")
    ] = False,
    listed: Annotated[
        bool,
        typer.Option("--list", help="Show the waiting studies, what each does and what it costs."),
    ] = False,
    revoke: Annotated[
        str | None, typer.Option(help="Take back the approval of the study with this hash.")
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help=f"{LEDGER_HELP} By default that of 'eigenveil site start'.")
    ] = None,
    data_set: Annotated[
        str | None,
        typer.Option(
            help="The data set's name in the ledger; by default that of 'eigenveil site start'."
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Approve studies for this site; with neither a study nor --all, list those that wait."""
    if sum((study is not None, everything, listed, revoke is not None)) > 1:
        raise options.WrongOption(
            "A study, --all, --list and --revoke exclude each other.", hint="Give one of them."
        )
    from eigenveil.network import approvals
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit, role="site")
    screen = Screen(quiet=quiet or json)
    if revoke is not None:
        found = pick(approvals.approved_studies(opened), revoke, what="was approved")
        approvals.withdraw(opened, found.hash)
        if json:
            options.print_json({"revoked": [found.hash]})
            return
        screen.print(f"revoked: study {found.name}, {found.hash}")
        screen.print("It may send no more queries; what it was answered stays spent in the ledger.")
        return
    owner = owner_of(opened.local)
    books = _ledger_if_there(ledger if ledger is not None else owner.ledger)
    costs = _Costs(opened.name, books, owner.data_set if data_set is None else data_set)
    if study is None and not everything:
        _print_list(opened, costs, kit, json=json, quiet=quiet)
        return
    chosen = waiting_of(opened, screen) if everything else [_find(opened, str(study))]
    sentences = [(each, costs.sentence(each)) for each in chosen]  # before anything is approved
    for each in chosen:
        approvals.approve(opened, each)
    if json:
        options.print_json({"approved": [each.hash for each in chosen]})
        return
    for each, cost in sentences:
        screen.print(f"approved: study {each.name}, {each.hash}", soft_wrap=True)
        screen.print(f"  {cost}")
    if not chosen:
        screen.print("No study waits for approval.")


def _ledger_if_there(place: str | None) -> Ledger | None:
    if place is None:
        return None
    from eigenveil.federation.ledger.ledger import Ledger

    return Ledger(place)


# -- what waits, and what it would cost


def waiting_of(kit: Kit, screen: Screen) -> list[Study]:
    """Studies that wait; those that cannot be shown are only counted."""
    from eigenveil.network.approvals import waiting_studies

    found = waiting_studies(kit)
    shown = [study for study in found if can_be_shown(study)]
    if hidden := len(found) - len(shown):
        screen.print(
            bold(f"{hidden} more"), "cannot be shown on a terminal, and so not be approved."
        )
    return shown


def _find(kit: Kit, text: str) -> Study:
    """A study that waits, or was approved before, by its hash; or one in a file."""
    from eigenveil.network.approvals import approved_studies

    if Path(text).suffix == ".toml":
        from eigenveil.cli.commands.study_run import settled
        from eigenveil.federation.study.file import read_study

        study, _ = settled(read_study(Path(text)))
    else:
        known = {each.hash: each for each in approved_studies(kit)}  # again: nothing changes
        known |= {each.hash: each for each in waiting_of(kit, Screen(quiet=True))}
        study = pick(list(known.values()), text, what="waits")
    if kit.name not in study.names:
        raise DataError(
            f"{kit.name} is not a site of study {study.name}.",
            hint=f"Its sites are {', '.join(study.names)}.",
            code="unknown-site",
        )
    return study


@dataclass(frozen=True)
class _Costs:
    site: str
    ledger: Ledger | None
    data_set: str

    def of(self, study: Study) -> Cost | None:
        return cost_of(study, self.site, self.ledger, self.data_set)

    def sentence(self, study: Study) -> str:
        """What a study can cost, and whether the budget covers it."""
        cost = self.of(study)
        if cost is None:
            return "It sends no query to this site: with protocol local only the first site counts."
        most = f"It can cost at most epsilon = {cost.epsilon:.4g} at delta = {cost.delta:g}"
        if self.ledger is None:
            return f"{most}; with --ledger, what is left is shown beside it."
        place = f"{self.ledger.name}, data set {self.data_set}"
        if cost.budget is None:
            return f"{most}, and there is NO BUDGET for it in {place}."
        verdict = "covers it" if cost.covered else "does NOT cover it: the site would refuse"
        return (
            f"{most}. The budget, epsilon = {cost.budget.epsilon:g} at delta = "
            f"{cost.budget.delta:g} ({cost.budget.adjacency}), {verdict}; {cost.left} ({place})."
        )


def _print_list(opened: Kit, costs: _Costs, kit: Path, *, json: bool, quiet: bool) -> None:
    from eigenveil.network.approvals import approved_studies

    screen = Screen(quiet=quiet or json)
    waiting, approved = waiting_of(opened, screen), approved_studies(opened)
    if json:
        options.print_json(
            {
                name: [
                    {**summary(each, None), "cost": None if cost is None else cost.as_json()}
                    for each in studies
                    for cost in [costs.of(each)]
                ]
                for name, studies in (("waiting", waiting), ("approved", approved))
            }
        )
        return
    for each in waiting:
        if not quiet:
            print_summary(each, None, {})
        screen.print(bold("cost:"), costs.sentence(each))
        screen.print(f"to approve: eigenveil site approve --kit {kit} {each.hash[:12]}")
        screen.print()
    if not waiting:
        screen.print("No study waits for approval.")
    print_studies("approved", approved, screen)


def print_studies(title: str, studies: Sequence[Study], screen: Screen) -> None:
    """A table of studies; nothing where there is none."""
    if not studies:
        return
    table = Table(title=title)
    for name in ("study", "task", "epsilon", "sites", "hash"):
        table.add_column(name, overflow="fold")
    for each in studies:
        sites = ", ".join(each.names)
        table.add_row(each.name, each.task, f"{each.epsilon:g}", sites, each.hash[:16])
    screen.print(table)
