"""``eigenveil fit``: a private model of one data set, or of several sites in one process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.options import WantedColumns, WrongOption, read_columns
from eigenveil.cli.places import (
    SITE_HELP,
    Database,
    Sql,
    open_sites,
    read_places,
    read_sites,
)
from eigenveil.app.presenters.pca import draw_rows
from eigenveil.cli.presenters.registry import estimator_options
from eigenveil.app.results import (
    as_json,
    check_free,
    check_place,
    new_folder,
    print_model,
    print_views,
    write_result,
)
from eigenveil.cli.presenters.screen import Screen, bold, description, fit_progress, notify
from eigenveil.errors import DataError, OutputError, printable
from eigenveil.federated.running import check_sites, requested_budget
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.study import Study
from eigenveil.files import Place
from eigenveil.io import ReadOptions
from eigenveil.models.task import TASKS, Task

_LEDGER = ".ledger"


def ledger_files(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Where each site's ledger is, ``NAME.ledger`` in a folder that is made if absent."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: {error.strerror or error}.", hint="Choose another --ledgers."
        ) from None
    return {name: folder / f"{name}{_LEDGER}" for name in names}


def open_ledgers(folder: Path, study: Study, say: Callable[[str], None]) -> dict[str, Ledger]:
    """Each site's ledger ``NAME.ledger`` in a folder; one that is new gets the study's target."""
    terms = settle(study)
    places = ledger_files(folder, terms.names)
    found, budget = {}, requested_budget(terms)
    for name, place in places.items():
        ledger = found[name] = Ledger(place)
        if not place.exists() or ledger.budget(budget.data_set) is None:
            ledger.set_budget(budget)
            say(
                f"{place}: new, with a budget of epsilon = {budget.epsilon:g} at delta = "
                f"{budget.delta:g}, which this study uses up ('eigenveil ledger budget' sets it)."
            )
    return found


@contextmanager
def protocol_progress(sites: int, *, quiet: bool) -> Iterator[Callable[[str, int], None] | None]:
    """A progress callback: a bar a step on a terminal, a line a step elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        columns = (description(), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=Screen(errors=True)) as bars:
            tasks: dict[str, TaskID] = {}

            def advance(step: str, count: int) -> None:
                if step not in tasks:
                    tasks[step] = bars.add_task(printable(step), total=sites)
                bars.advance(tasks[step], count)

            yield advance
    else:
        counts: dict[str, int] = {}

        def note(step: str, count: int) -> None:
            counts[step] = counts.get(step, 0) + count
            if counts[step] == sites:
                notify(f"{step}: {sites} site{'' if sites == 1 else 's'} answered")

        yield note


def print_federation(model: Any, out: Screen) -> None:
    """Traffic of each site, and what each adversary is held to."""
    study = model.study_
    heading = f"protocol {study.protocol}, masks {model.certificate_.federation.masks}"
    table = Table(title=heading)
    for name in ("site", "messages", "received", "sent", "largest message"):
        table.add_column(name, justify="left" if name == "site" else "right")
    for name, traffic in model.traffic_.items():
        sent = traffic.sent_by_step
        largest = max(sent, key=lambda step: sent[step], default="")
        table.add_row(
            name,
            str(traffic.messages),
            options.bytes_text(traffic.received),
            options.bytes_text(traffic.sent),
            f"{largest}: {options.bytes_text(sent[largest])}" if largest else "none",
        )
    out.print(table)
    if model.choice_:
        out.print(f"protocol {study.protocol} was chosen: {model.choice_}")
    for name, why in model.missing_.items():
        out.print(bold("missing:"), f"site {name}: {why}")
    print_views(model.views_, out)


def federation_as_json(model: Any) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "protocol": model.study_.protocol,
        "choice": model.choice_,
        "study_hash": model.study_.hash,
        "views": {name: view.as_dict() for name, view in model.views_.items()},
        "traffic": {
            name: {
                "messages": traffic.messages,
                "received": traffic.received,
                "sent": traffic.sent,
                "sent_by_step": traffic.sent_by_step,
            }
            for name, traffic in model.traffic_.items()
        },
        "missing": model.missing_,
    }


# -- ``eigenveil fit``: files in, a certified result folder out; of one data set or of many sites.


_OF_SITES = "With --site: "


@options.declared("table", "sites")
@options.reads_files
def fit(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="CSV, Parquet, Feather, .npy or .npz files, folders or patterns."),
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(help=SITE_HELP),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(
            help=_OF_SITES + "the study file; no other options of the fit are then given."
        ),
    ] = None,
    task: options.TaskName = "pca",
    ledgers: Annotated[
        Path | None,
        typer.Option(
            help=_OF_SITES + "folder of the sites' ledgers, NAME.ledger; kept between runs."
        ),
    ] = None,
    ledger: options.LedgerOption = None,
    data_set: options.DataSetOption = None,
    no_ledger: options.NoLedger = False,
    vocabulary: options.Vocabulary = None,
    columns: options.Columns = None,
    exclude: options.Exclude = None,
    schema: options.SchemaFile = None,
    dask: options.DaskScheduler = None,
    sql: Sql = None,
    database: Database = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier result.")] = False,
    plots: Annotated[bool, typer.Option(help="Write figures.")] = True,
    projection: Annotated[
        Path | None,
        typer.Option(
            help="Also draw rows along two components, for their owner only: a folder, or a .png "
            "or .svg file, outside of --out."
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
    read: ReadOptions,
) -> None:
    """Fit private PCA, or another --task, to the rows of FILES, or of several sites."""
    check_free(out, overwrite=overwrite)
    if site and database is not None:
        raise WrongOption(
            "--from is for one data set.",
            hint="Name each site's database: --site NAME=postgresql://host/name.",
        )
    places = [] if site else read_places(files, sql, database, needed=False)
    sites = read_sites(site, sql) if site else {}
    _check_place(files if site else places, site, study, ledgers)
    account = options.read_ledger(ledger, data_set, no_ledger=no_ledger)
    if site and (account.given or no_ledger):
        raise WrongOption(
            "--ledger, --data-set and --no-ledger are for one data set.",
            hint="Sites have a ledger each: --ledgers FOLDER.",
        )
    picture = None if projection is None else _picture(projection, out, overwrite=overwrite)
    if picture is not None and site:
        raise WrongOption(
            "--projection is for one data set.", hint="Sites keep their rows; leave it out."
        )
    if picture is not None and dask is not None:
        raise WrongOption(
            "--projection draws rows, and with --dask no row leaves its worker.",
            hint="Leave it out, or read the files here.",
        )
    agreed = None if study is None else _read_agreed(study, task, context)
    fitted = options.read_task(task) if agreed is None else TASKS[agreed.task]
    targets = estimator_options(fitted, option_values, context, sites=bool(site))
    wanted = read_columns(columns, exclude, vocabulary, schema, read=read, dask=dask)
    if agreed is None:
        wanted = wanted.with_unit(targets.get("unit"))
        own = None if wanted.schema is None else wanted.schema.unit
        if own is not None and fitted.has("unit", "sites" if site else "table"):
            targets["unit"] = own
    show = _Show(out, figures=plots, json=json, quiet=quiet)
    if sites:
        _fit_sites(fitted, targets, sites, wanted, show, agreed=agreed, ledgers=ledgers)
    else:
        _fit_one(fitted, targets, places, wanted, show, picture, account)


@dataclass(frozen=True)
class _Show:
    """Where a result goes, and how it is presented."""

    out: Path
    figures: bool
    json: bool
    quiet: bool


def _check_place(
    files: Sequence[str | Place] | None,
    site: list[str] | None,
    study: Path | None,
    ledgers: Path | None,
) -> None:
    """Rows of one data set or of sites, not of both."""
    if site and files:
        raise DataError(
            f"{files[0]} belongs to no site.", hint="Give every file as --site NAME=FILE."
        )
    if not site and not files:
        raise DataError(
            "There are no files.", hint="Give files with rows, or --site NAME=FILE for several."
        )
    if not site and (study is not None or ledgers is not None):
        raise DataError(
            "--study and --ledgers are for several sites.",
            hint="Give --site NAME=FILE for each.",
        )


def _fit_one(
    task: Task,
    targets: dict[str, Any],
    files: Sequence[str | Place],
    wanted: WantedColumns,
    show: _Show,
    picture: Path | None,
    account: options.LedgerChoice,
) -> None:
    rows = wanted.rows(files)
    silent = show.quiet or show.json
    # the folder is made before anything is spent
    with new_folder(show.out) as folder, account.open(quiet=silent) as charged:
        model: Any = task.estimator("table")(**targets, **charged)
        with fit_progress(quiet=show.quiet or show.json) as progress:
            model.fit_rows(rows, progress=progress)
        written = write_result(model, folder, figures=show.figures, schema=rows.schema)
    if not silent:
        account.notify_left(model)
    if picture is not None:  # when the result is safe
        draw_rows(model, rows, picture)
    if show.json:
        options.print_json({**as_json(model), "out": str(show.out)})
        return
    screen = Screen(quiet=show.quiet)
    print_model(model, screen)
    print_written(screen, show.out, written)
    if picture is not None:
        screen.print(f"{picture} shows ROWS: it is not private; keep it inside.")


def _picture(place: Path, out: Path, *, overwrite: bool) -> Path:
    """The file to draw rows in, which is not to be published: not in the result's folder."""
    _check_outside(place, place, out)  # before its folder is made
    check_place(place, overwrite=True)
    file = place / "projection.png" if place.is_dir() else place
    if file.suffix.lower() not in (".png", ".svg"):
        raise WrongOption(
            f"--projection {place} is neither a folder nor a .png or .svg file.",
            hint="Give a folder that exists, or such a file.",
        )
    check_place(file, overwrite=overwrite)
    _check_outside(file, place, out)
    return file


def _check_outside(file: Path, place: Path, out: Path) -> None:
    if file.resolve().is_relative_to(out.resolve()):
        raise WrongOption(
            f"--projection {place} lies in {out}, which is to be published, and shows rows.",
            hint="Choose a place outside of --out.",
            code="rows-in-result",
        )


def _read_agreed(file: Path, task: str, context: typer.Context) -> Study:
    """The study of all sites, which states all of its options."""
    from eigenveil.federation.study.file import read_study

    agreed = read_study(file)
    given_names = options.given(context)
    if "task" in given_names and options.read_task(task) is not TASKS[agreed.task]:
        raise _for_the_study("task")
    if "vocabulary" in given_names:
        raise _for_the_study("vocabulary")
    return agreed


def _for_the_study(name: str) -> DataError:
    return DataError(
        f"{name} is set by the study file (--study).",
        hint="Change the study file at every site, or leave --study out.",
    )


def _fit_sites(
    task: Task,
    targets: dict[str, Any],
    sites: Mapping[str, Sequence[str | Place]],
    wanted: WantedColumns,
    show: _Show,
    *,
    agreed: Study | None,
    ledgers: Path | None,
) -> None:
    # imported here: the ledger's database library takes a moment to load
    from eigenveil.federation.study.file import write_toml

    estimator = task.estimator("sites")
    model: Any = estimator(**targets)
    if agreed is not None:
        usual = {n: v for n, v in estimator().get_params().items() if n != "random_state"}
        for name, value in usual.items():
            if not np.array_equal(targets.get(name, value), value):
                raise _for_the_study(name)
        wanted = WantedColumns.of_study(agreed, wanted)
    rows = open_sites(sites, wanted)
    agreed_study = model.study_of(rows) if agreed is None else agreed
    check_sites(agreed_study, rows)  # before ledgers are made
    screen = Screen(quiet=show.quiet)
    with new_folder(show.out) as folder:  # made before anything is spent
        books = None
        if ledgers is not None:
            say = _unsaid if show.json else screen.print
            books = open_ledgers(ledgers, agreed_study, say)
        steps = protocol_progress(len(rows), quiet=show.quiet or show.json)
        with steps as progress:
            model.fit_study(agreed_study, rows, ledgers=books, progress=progress)
        schema = model.study_.table_schema
        written = write_result(model, folder, figures=show.figures, schema=schema)
        write_toml(model.study_, folder / "study.toml")
        written.append(("study.toml", "the study that was run, for 'eigenveil study check'"))
    if show.json:
        found = as_json(model) | federation_as_json(model)
        options.print_json({**found, "out": str(show.out)})
        return
    print_model(model, screen)
    print_federation(model, screen)
    print_written(screen, show.out, written)


def _unsaid(text: str) -> None:
    del text


def print_written(screen: Screen, out: Path, written: list[tuple[str, str]]) -> None:
    """What a result folder holds, and what to do next."""
    screen.print()
    screen.print(f"written to {out}:")
    width = max(28, *(len(name) for name, _ in written))
    for name, what in written:
        screen.print(f"  {name:<{width}} {what}")
    screen.next("certify", out)
