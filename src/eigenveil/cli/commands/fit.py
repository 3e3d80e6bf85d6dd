"""``eigenveil fit`` and ``federate-tree``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import declared, options
from eigenveil.cli.options import WrongOption
from eigenveil.cli.presenters.screen import Screen, counted, listening, present
from eigenveil.errors import DataError
from eigenveil.models.task import TASKS

_OF_SITES = "With --site: "


def _of_sites(
    *,
    site: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FILE of a site that keeps its rows; repeat for each file. With --sql also "
            "NAME=URL of its database."
        ),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(
            help=_OF_SITES + "the study file; no other options of the fit are then given."
        ),
    ] = None,
    ledgers: Annotated[
        Path | None,
        typer.Option(
            help=_OF_SITES + "folder of the sites' ledgers, NAME.ledger; kept between runs."
        ),
    ] = None,
) -> tuple[list[str] | None, Path | None, Path | None]:
    return site, study, ledgers


@declared.declared("table", "sites")
@options.takes(
    columns=options.wanted_columns,
    account=options.account,
    whose=options.whose_rows,
    folder=options.result_folder,
    of_sites=_of_sites,
)
def fit(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="CSV, Parquet, Feather, .npy or .npz files, folders or patterns."),
    ] = None,
    task: options.TaskName = "pca",
    sql: options.Sql = None,
    database: options.Database = None,
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
    columns: Any,
    account: Any,
    whose: dict[str, bool],
    folder: dict[str, Any],
    of_sites: tuple[list[str] | None, Path | None, Path | None],
) -> None:
    """Fit private PCA, or another --task, to the rows of FILES, or of several sites."""
    site, study, ledgers = of_sites
    _check_together(context, bool(site))
    places = [] if site else app.rows.read_places(files, sql, database, needed=False)
    _check_place(files if site else places, site)
    agreed = None if study is None else app.fit.read_study(study)
    fitted = declared.read_task(task) if agreed is None else TASKS[agreed.task]
    values = declared.estimator_options(fitted, option_values, context, sites=bool(site))
    if agreed is None:
        columns.whose_rows(values.get("unit"), **whose)
    asked: dict[str, Any] = {"values": values, "columns": columns, **folder}
    with listening(quiet=quiet or json) as tell:
        if site:
            if agreed is not None and "vocabulary" in options.given(context):
                raise app.fit.set_by_study("vocabulary")
            named = task if agreed is None or "task" in options.given(context) else None
            asked |= {"task": named, "study": agreed, "ledgers": ledgers}
            sites = app.rows.read_sites(site, sql)
            found = app.fit.fit_sites(app.fit.SitesRequest(sites, **asked), tell)
        else:
            asked |= {"task": task, "account": account, "projection": projection}
            found = app.fit.fit_table(app.fit.TableRequest(places, **asked), tell)
    show_written(present(found, json=json, quiet=quiet), found)


# Options of one data set alone, and what sites have in their place; and those of sites.
_OF_ONE = {
    "database": ("--from", "Name each site's database: --site NAME=postgresql://host/name."),
    "ledger": ("--ledger", "Sites have a ledger each: --ledgers FOLDER."),
    "data_set": ("--data-set", "Sites have a ledger each: --ledgers FOLDER."),
    "no_ledger": ("--no-ledger", "Sites have a ledger each: --ledgers FOLDER."),
    "projection": ("--projection", "Sites keep their rows; leave it out."),
}


def _check_together(context: typer.Context, sites: bool) -> None:
    given = options.given(context)
    for name, (text, hint) in _OF_ONE.items() if sites else ():
        if name in given:
            raise WrongOption("of-one-data-set", option=text, way_out=hint)
    for name in () if sites else ("study", "ledgers"):
        if name in given:
            raise DataError("of-several-sites", option=options.option_text(name))


def _check_place(files: Sequence[Any] | None, site: list[str] | None) -> None:
    """Rows of one data set or of sites, not of both."""
    if site and files:
        raise DataError("file-of-no-site", file=files[0])
    if not site and not files:
        raise DataError("no-rows-given", way="--site NAME=FILE for several")


def show_written(screen: Screen, found: Any) -> None:
    """What a result folder holds, and what to do next."""
    screen.print()
    screen.print(f"written to {found.out}:")
    width = max(28, *(len(name) for name, _ in found.written))
    for name, what in found.written:
        screen.print(f"  {name:<{width}} {what}")
    screen.next("certify", found.out)
    if found.picture is not None:
        screen.print(f"{found.picture} shows ROWS: it is not private; keep it inside.")


# Options of a stream that the leaves of a tree have.
_OF_TREES = (
    "n_components", "epsilon", "delta", "sketch_size", "unit", "max_rows_per_unit", "missing",
    "forgetting", "random_state",
)  # fmt: skip


@declared.declared("stream", only=_OF_TREES)
@options.takes(
    columns=options.named_columns, whose=options.whose_rows, folder=options.result_folder
)
def federate_tree(
    site: Annotated[
        list[str],
        typer.Option(
            help="NAME=FILE: a site's files, a leaf of the tree; repeat for each. With "
            "--forgetting each file or folder of a site is a round, in the order given. With --sql "
            "also NAME=URL of its database."
        ),
    ],
    fan_out: Annotated[int, typer.Option(help="Children of an inner node, 2 or more.")] = 4,
    protect: Annotated[
        str,
        typer.Option(
            help="Which adversary the target is for: outsider (the sites share the noise) or "
            "aggregators (each site draws all of it)."
        ),
    ] = "outsider",
    ledgers: Annotated[
        Path | None,
        typer.Option(help="Folder of the sites' ledgers, NAME.ledger; kept between runs."),
    ] = None,
    sql: options.SitesSql = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
    columns: Any,
    whose: dict[str, bool],
    folder: dict[str, Any],
) -> None:
    """Fit private PCA to sites' own files, whose sums are merged up a tree of aggregators.

    Each row is read once. The parties are those of a real tree, in one process: leaves add their
    part of the noise, inner nodes merge, the root publishes. With --forgetting leaves send round
    after round, and older rounds count less: so a change of subspace is followed. What a tree
    costs, with lost and late leaves, simulate-tree of eigenveil-papers shows.
    """
    columns.whose_rows(option_values.get("unit"), **whose)
    asked = app.tree.TreeRequest(
        app.rows.read_sites(site, sql),
        fan_out=fan_out,
        protect=protect,
        ledgers=ledgers,
        values=option_values,
        columns=columns,
        **folder,
    )
    with counted("leaves", quiet=quiet or json) as progress:
        found = app.tree.fit_tree(asked, progress)
    show_written(present(found, json=json, quiet=quiet), found)
