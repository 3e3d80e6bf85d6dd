"""``eigenveil site``: a site of studies between organisations, run by the owner of its rows.

It answers nothing that its owner has not approved: what waits, what it can cost, approval.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from eigenveil import app
from eigenveil.cli import declared, options
from eigenveil.cli.commands.approvers import approver_app, decides
from eigenveil.cli.commands.ledger import HEADS_HELP
from eigenveil.cli.presenters.screen import Screen, present, print_json
from eigenveil.cli.service import Service, service_options, start_health
from eigenveil.errors import DataError, WrongOption
from eigenveil.files import Place

if TYPE_CHECKING:
    from eigenveil.app.rows import WantedColumns
    from eigenveil.federation.ledger.heads import HeadsFile
    from eigenveil.federation.study.study import Study
    from eigenveil.moments.source import RowSource
    from eigenveil.network.folder import PartyFolder
    from eigenveil.network.survey import Telling

DataSetOption = Annotated[
    str | None,
    typer.Option(
        help="The data set's name in the ledger; by default that of 'eigenveil site start'."
    ),
]
Purpose = Annotated[str, typer.Option(help="What the study's result may be used for.")]
Reason = Annotated[str, typer.Option(help="Why it is decided so; kept in the ledger.")]
Which = Annotated[str, typer.Argument(help="The study's hash, or its first characters.")]


@decides
def approve(
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
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="How many runs it is good for; one, unless --until is given."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="The last day (UTC) on which a run may begin, such as 2027-06-30."),
    ] = None,
    any_rows: Annotated[
        bool,
        typer.Option(
            "--any-rows",
            help="Good for whatever rows the data set has when a run begins, not only for those "
            "that it has now.",
        ),
    ] = False,
    purpose: Purpose = "",
    reason: Reason = "",
    data_set: DataSetOption = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Approve studies for this site, for ONE run each unless told otherwise; or list them."""
    if sum((study is not None, everything, listed)) > 1:
        raise WrongOption("one-study-or-all")
    at = app.decisions.Studies.of(who.site, who.ledger, data_set)
    if study is None and not everything:
        present(app.site.StudyList(at, who.party), json=json, quiet=quiet)
        return
    approved = app.site.approve(
        at,
        study,
        lambda: who.decider,
        desk=lambda: who.desk,
        purpose=purpose,
        reason=reason,
        runs=runs,
        until=until,
        any_rows=any_rows,
    )
    present(approved, json=json, quiet=quiet)


@decides
def refuse(
    study: Which,
    reason: Annotated[str, typer.Option(help="Why; kept in the ledger.")],
    tell_lead: Annotated[
        bool, typer.Option("--tell-lead", help="Let the lead read the reason.")
    ] = False,
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Refuse a study: the lead is told that it was, and the reason only with --tell-lead."""
    desk = who.desk
    found = app.decisions.Studies(desk.party, desk, desk.data_set).find(study)
    desk.refuse(found.hash, who.decider, reason=reason, tell_lead=tell_lead)
    screen = Screen(quiet=quiet)
    screen.print(f"refused: study {found.name}, {found.hash}", soft_wrap=True)
    screen.print(f"  The lead is {'' if tell_lead else 'not '}told the reason.")


@decides
def revoke(
    study: Annotated[
        str,
        typer.Argument(
            help="The study's hash, or its first characters; 'all' for the standing approval "
            "of 'site start --approve all'."
        ),
    ],
    reason: Reason = "",
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    who: Any,
) -> None:
    """Take an approval back, from the next message on."""
    called, which = app.site.revoke(who.desk, study, who.decider, reason=reason)
    if json:
        print_json({"revoked": [which]})
        return
    screen = Screen(quiet=quiet)
    screen.print(f"revoked: {called}", soft_wrap=True)
    screen.print("It may send no more queries; what it was answered stays spent in the ledger.")


site_app = options.group()

PartyPath = Annotated[
    Path, typer.Option("--party", help="The site's folder, as 'eigenveil federation' makes it.")
]
DataSet = Annotated[str, typer.Option(help="The rows' name in the ledger.")]


_SQLITE = "sqlite:///"
LEDGER_HELP = "The site's ledger: a file, or a URL such as postgresql://host/name."


for _command in (approve, refuse, revoke):
    site_app.command()(_command)
site_app.add_typer(approver_app, name="approver")


def _budget(
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
    adjacency: Annotated[str, declared.option_help("adjacency")] = "add-remove",
) -> Any:
    return app.budgets.WantedBudget(
        data_set, budget_epsilon, budget_delta, budget_pure_epsilon, adjacency, budget_unit
    )


def _telling(
    tell_schema: Annotated[
        Path | None,
        typer.Option(help="A schema that leads of the federation may read before a study runs."),
    ] = None,
    tell_decisions: Annotated[
        bool,
        typer.Option(
            "--tell-decisions/--keep-decisions",
            help="Whether leads may read what was decided about their study before it runs.",
        ),
    ] = True,
) -> Any:
    told = None if tell_schema is None else app.rows.read_schema(tell_schema)
    return app.site.Telling(tell_decisions, told)


@site_app.command()
@options.takes(
    columns=options.wanted_columns, budget=_budget, telling=_telling, service=service_options
)
def start(
    party: PartyPath,
    data: Annotated[
        list[str] | None,
        typer.Option(help="A file, folder or pattern with the site's rows; repeat for several."),
    ] = None,
    ledger: Annotated[str | None, typer.Option(help=LEDGER_HELP)] = None,
    heads: Annotated[
        str | None,
        typer.Option(help=f"{HEADS_HELP} Every new head is noted before the answer leaves."),
    ] = None,
    approve: Annotated[
        str,
        typer.Option(
            help="manual: every study waits for 'eigenveil site approve'; all: none does, which "
            "is recorded as the owner's decision."
        ),
    ] = "manual",
    sql: options.Sql = None,
    database: options.Database = None,
    address: Annotated[
        str | None,
        typer.Option(help="Where the mailbox is, if not where the list of members says."),
    ] = None,
    *,
    columns: Any,
    budget: Any,
    telling: Any,
    service: Service,
) -> int:
    """Answer studies until stopped (Ctrl-C); a noise helper needs no rows and no ledger."""
    if approve not in ("manual", "all"):
        raise options.WrongOption(
            "unknown-choice", option="--approve", given=approve, known="manual, all"
        )
    opened = app.site.open_party(party)
    places = app.rows.read_places(data, sql, database, needed=False)
    if opened.role == "helper":
        if places or any(each is not None for each in (ledger, heads, telling.schema)):
            raise options.WrongOption("helper-with-rows")
        return _start(opened, address, None, "all", telling, service)
    opened = app.site.open_party(party, role="site")
    files = [app.rows.absolute(place) for place in _needed("data", places)]
    place = _absolute(str(_needed("ledger", ledger)))
    own = _Own(_Rows(files, columns), place, budget.data_set, app.ledger.heads_of(heads))
    said = app.budgets.begin_at_site(opened, place, own.heads, budget)
    if said:
        Screen(quiet=service.quiet).print(said)
    app.decisions.Owner.of(place, budget.data_set, own.rows.paths).keep(opened)
    return _start(opened, address, own, approve, telling, service)


@site_app.command()
def status(party: PartyPath, json: options.Json = False) -> None:
    """Say whether the site runs, which study it is in, and what waits for its owner."""
    found = app.site.status(party)
    screen = present(found, json=json)
    if found.at.waiting:
        screen.next("site approve --party", party, "--list")


# -- the owner's rows and ledger


@dataclass(frozen=True)
class _Rows:
    """The files of a site, opened for each study as it names its columns."""

    files: Sequence[str | Place]
    wanted: WantedColumns

    @property
    def paths(self) -> list[Place]:
        """All files, which can be read; which columns are features is the study's to say."""
        try:
            return list(self.wanted.rows_like(self.files).paths)
        except DataError as error:
            if error.code not in ("identifier-column", "not-a-feature", "not-numeric"):
                raise
            return []

    def __call__(self, study: Study) -> RowSource:
        """Rows with the study's columns, by name where files have names."""
        wanted = app.rows.WantedColumns.of_study(study, self.wanted)
        return wanted.rows_like(self.files)


def _needed(name: str, value: Any) -> Any:
    if not value:
        raise options.WrongOption("site-option-missing", option=name)
    return value


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
    heads: HeadsFile | Literal["usual"]


def _start(
    party: PartyFolder,
    address: str | None,
    own: _Own | None,
    approve: str,
    telling: Telling,
    service: Service,
) -> int:
    # imported here: the ledger's database library takes a moment to load
    from eigenveil.cli.presenters.site_console import ReportingLedger, end_at_once
    from eigenveil.network.attendant import Attendant
    from eigenveil.network.folder import lock
    from eigenveil.network.health import WatchedParty
    from eigenveil.network.mailbox import open_mailbox
    from eigenveil.network.parties import Approve, HelperParty, SiteParty, StudyParty

    answers: StudyParty | None = None
    books: ReportingLedger | None = None

    def run() -> dict[str, str]:
        return {} if answers is None else answers.runs.about()

    say = service.speaker(party.name, run)
    how = cast("Approve", approve)
    with lock(party), closing(open_mailbox(party, address)) as mailbox:
        if own is None:
            answers = HelperParty(party, approve=how, say=say)
        else:
            heads = app.ledger.ledger_of(own.ledger, party, own.heads).store.heads
            books = ReportingLedger(own.ledger, own.data_set, say, heads=heads)
            answers = SiteParty(
                party, own.rows, books, data_set=own.data_set, approve=how, say=say, telling=telling
            )
        start_health(service.health, WatchedParty(party, answers.activity, books), say)
        end_at_once(say)
        Attendant(answers, mailbox).serve()
    return 0
