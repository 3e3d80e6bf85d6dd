"""``eigenveil site``: a site of studies between organisations, run by the owner of its rows.

It answers nothing that its owner has not approved: what waits, what it can cost, approval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.commands.ledger import AUTHORITY_HELP, HEADS_HELP, heads_of
from eigenveil.cli.options import WantedColumns, read_columns
from eigenveil.cli.places import Database, Sql, read_places
from eigenveil.cli.presenters.screen import Screen, bold
from eigenveil.cli.presenters.site_console import BudgetTarget, check_budget
from eigenveil.cli.presenters.study import print_summary, summary
from eigenveil.cli.presenters.study_cost import (
    Cost,
    Owner,
    can_be_shown,
    cost_of,
    owner_of,
    pick,
)
from eigenveil.errors import DataError, OutputError
from eigenveil.federation.study.study import Study
from eigenveil.files import Place
from eigenveil.io import ReadOptions
from eigenveil.io.files import absolute

if TYPE_CHECKING:
    from eigenveil.federation.ledger.heads import Heads
    from eigenveil.federation.ledger.ledger import Ledger
    from eigenveil.moments.source import RowSource
    from eigenveil.network.kit import Kit

site_app = typer.Typer(
    help="A site between organisations: its rows, ledger and approvals.",
    no_args_is_help=True,
    add_completion=False,
)

KitFolder = Annotated[
    Path, typer.Option("--kit", help="The site's kit, as 'eigenveil flare' makes it.")
]
DataSet = Annotated[str, typer.Option(help="The rows' name in the ledger.")]


_SQLITE = "sqlite:///"
LEDGER_HELP = "The site's ledger: a file, or a URL such as postgresql://host/name."


@site_app.command()
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


@site_app.command()
@options.reads_files
def start(
    kit: KitFolder,
    data: Annotated[
        list[str] | None,
        typer.Option(help="A file, folder or pattern with the site's rows; repeat for several."),
    ] = None,
    ledger: Annotated[str | None, typer.Option(help=LEDGER_HELP)] = None,
    data_set: DataSet = "default",
    budget_epsilon: Annotated[
        float | None,
        typer.Option(help="Set the epsilon of the ledger's budget, if it has none yet."),
    ] = None,
    budget_delta: Annotated[
        float | None, typer.Option(help="Delta of this budget, in [0, 1); 1e-6 by default.")
    ] = None,
    budget_pure_epsilon: Annotated[
        float, typer.Option(help="Part of this epsilon that is set aside for pure studies.")
    ] = 0.0,
    budget_unit: Annotated[
        str,
        typer.Option(help="Whose rows this budget is for: the column that studies name with unit."),
    ] = "row",
    heads: Annotated[
        str | None,
        typer.Option(help=f"{HEADS_HELP} Every new head is noted before the answer leaves."),
    ] = None,
    timestamps: Annotated[
        str | None,
        typer.Option(help="URL of a timestamp authority (RFC 3161) that stamps heads in a file."),
    ] = None,
    authority: Annotated[Path | None, typer.Option(help=AUTHORITY_HELP)] = None,
    adjacency: Annotated[str, options.option_help("adjacency")] = "add-remove",
    approve: Annotated[
        str,
        typer.Option(
            help="manual: every study waits for 'eigenveil site approve'; all: none does."
        ),
    ] = "manual",
    columns: options.Columns = None,
    exclude: options.Exclude = None,
    vocabulary: options.Vocabulary = None,
    schema: options.SchemaFile = None,
    sql: Sql = None,
    database: Database = None,
    dask: options.DaskScheduler = None,
    quiet: options.Quiet = False,
    *,
    read: ReadOptions,
) -> int:
    """Answer studies until stopped (Ctrl-C); a noise helper's kit needs no rows and no ledger."""
    if approve not in ("manual", "all"):
        raise options.WrongOption(
            f"--approve {approve!r} is not manual or all.", hint="Choose one of these."
        )
    from eigenveil.network.flare.authority import need_flare
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit)
    places = read_places(data, sql, database, needed=False)
    if opened.role == "helper":
        _no_rows_here(places, ledger, heads)
        need_flare()
        return _start(opened, None, approve="all", quiet=quiet)
    opened = open_kit(kit, role="site")
    # FLARE goes into the kit's folder, and takes this process along
    files = [absolute(place) for place in _needed("data", places)]
    rows = _Rows(files, read_columns(columns, exclude, vocabulary, schema, read=read, dask=dask))
    rows.check()
    place = _absolute(str(_needed("ledger", ledger)))
    budget = BudgetTarget(
        data_set, adjacency, budget_epsilon, budget_delta, budget_pure_epsilon, budget_unit
    )
    noted = heads_of(heads, authority, timestamps)
    check_budget(place, budget, Screen(quiet=quiet), heads=noted)
    need_flare()
    Owner(place, data_set).keep(opened.local)
    return _start(opened, _Own(rows, place, data_set, noted), approve=approve, quiet=quiet)


@site_app.command()
def status(
    kit: KitFolder,
    json: options.Json = False,
) -> None:
    """Say whether the site runs, which study it is in, and what waits for its owner."""
    from eigenveil.network import approvals
    from eigenveil.network.kit import open_kit

    opened = open_kit(kit)
    screen = Screen(quiet=json)
    waiting, approved = waiting_of(opened, screen), approvals.approved_studies(opened)
    owner = owner_of(opened.local)
    running = _running(opened)
    if json:
        options.print_json(
            {
                "kit": str(opened.folder),
                "role": opened.role,
                "name": opened.name,
                "aggregator": f"{opened.host}:{opened.port}",
                "running": running,
                "ledger": owner.ledger,
                "data_set": owner.data_set,
                "waiting": [{"hash": each.hash, "name": each.name} for each in waiting],
                "approved": [{"hash": each.hash, "name": each.name} for each in approved],
            }
        )
        return
    state = "runs" if running else "does not run"
    screen.print(
        f"{opened.role} {opened.name} {state}; its aggregator is {opened.host}:{opened.port}"
    )
    screen.print(f"ledger: {owner.ledger or 'not known here'}")
    print_studies("waits for approval", waiting, screen)
    print_studies("approved", approved, screen)
    if waiting:
        screen.print(f"next: eigenveil site approve --kit {kit} --list")


def _running(kit: Kit) -> bool:
    """Whether a process runs from the kit."""
    from eigenveil.network.kit import lock

    try:
        with lock(kit):
            return False
    except OutputError as error:
        if error.code != "kit-in-use":
            raise
        return True


# -- the owner's rows and ledger


@dataclass(frozen=True)
class _Rows:
    """The files of a site, opened for each study as it names its columns."""

    files: Sequence[str | Place]
    wanted: WantedColumns

    def check(self) -> None:
        """Refuse files that cannot be read, before any study needs them.

        Which columns are features is the study's to say.
        """
        try:
            self.wanted.rows_like(self.files)
        except DataError as error:
            if error.code not in ("identifier-column", "not-numeric"):
                raise

    def __call__(self, study: Study) -> RowSource:
        """Rows with the study's columns, by name where files have names."""
        wanted = WantedColumns.of_study(study, self.wanted)
        return wanted.rows_like(self.files)


def _needed(name: str, value: Any) -> Any:
    if not value:
        raise options.WrongOption(
            f"--{name} is missing.",
            hint="A site needs its rows and its ledger; only a noise helper has neither.",
        )
    return value


def _no_rows_here(data: Sequence[str | Place], ledger: str | None, heads: str | None) -> None:
    if data or ledger is not None or heads is not None:
        raise options.WrongOption(
            "This kit is a noise helper's, which must not have rows or a ledger.",
            hint="Leave --data, --ledger and --heads out.",
        )


def _absolute(place: str) -> str:
    """A ledger's place that means the same in every folder."""
    if "://" not in place:
        return str(Path(place).absolute())
    if (file := place.removeprefix(_SQLITE)) != place and not file.startswith(("/", ":")):
        return _SQLITE + str(Path(file).absolute())
    return place


@dataclass(frozen=True)
class _Own:
    """What a site has and a helper has not."""

    rows: _Rows
    ledger: str
    data_set: str
    heads: Heads | None


def _start(kit: Kit, own: _Own | None, *, approve: str, quiet: bool) -> int:
    """Answer studies until stopped."""
    # imported here: FLARE and the ledger's database library take a moment to load
    from eigenveil.cli.presenters.site_console import ReportingLedger, end_at_once, lines, reported
    from eigenveil.network.flare.entry import run_site
    from eigenveil.network.parties import Approve, HelperParty, Party, SiteParty

    say = lines(quiet=quiet)
    how = cast("Approve", approve)
    party: Party
    if own is None:
        party = HelperParty(kit, approve=how, say=say)
    else:
        books = ReportingLedger(own.ledger, own.data_set, say, heads=own.heads)
        party = SiteParty(kit, own.rows, books, data_set=own.data_set, approve=how, say=say)
    end_at_once(say)
    return reported(run_site(kit, party, say=say), kit.folder, say)


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
