"""``eigenveil fit``: files in, a certified result folder out; of one data set or of many sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from eigenveil.cli import options
from eigenveil.cli.progress import fit_progress
from eigenveil.cli.report import as_json, console, print_model
from eigenveil.cli.results import check_free, new_folder, write_result
from eigenveil.errors import DataError
from eigenveil.estimators.pca import PrivatePCA
from eigenveil.io import open_rows

_OF_SITES = "With --site: "


def fit(
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(help="CSV, Parquet, Feather, .npy or .npz files, folders or patterns."),
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE of a site that keeps its rows; repeat, also with one name."),
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help=_OF_SITES + "what they agreed on; then no other wishes.")
    ] = None,
    components: options.Components = 2,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-6,
    mechanism: options.Mechanism = "auto",
    adjacency: options.Adjacency = "add-remove",
    protocol: Annotated[
        str, typer.Option(help=_OF_SITES + "auto, cape, sketch, dpdispca, full or local.")
    ] = "auto",
    masks: Annotated[str, typer.Option(help=_OF_SITES + "modular, pairwise or helper.")] = (
        "modular"
    ),
    collusion: Annotated[
        int, typer.Option(help=_OF_SITES + "how many may tell the aggregator all they know.")
    ] = 0,
    dropouts: Annotated[
        int, typer.Option(help=_OF_SITES + "how many may be missing from a round.")
    ] = 0,
    ledgers: Annotated[
        Path | None,
        typer.Option(help=_OF_SITES + "folder of their ledgers, NAME.ledger; kept between runs."),
    ] = None,
    row_norm: options.RowNorm = "unit",
    row_bound: options.RowBound = None,
    center: Annotated[
        str, typer.Option(help="private, none, or a .npy file with a public centre.")
    ] = "private",
    columns: options.Columns = None,
    exclude: options.Exclude = None,
    sketch_size: options.SketchSize = None,
    budget_split: options.Split = None,
    seed: Annotated[
        int | None, typer.Option(help="Reproducible noise, for tests: the result is not certified.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier result.")] = False,
    plots: Annotated[bool, typer.Option(help="Write figures.")] = True,
    projection: Annotated[
        bool, typer.Option(help="Also draw rows along two components (for their owner only).")
    ] = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit private PCA to the rows of FILES, or of several sites, and write a result folder."""
    check_free(out, overwrite=overwrite)
    if site:
        if files:
            raise DataError(
                f"{files[0]} belongs to no site.", hint="Give every file as --site NAME=FILE."
            )
        if mechanism != "auto":
            raise DataError(
                "--mechanism is for one data set.", hint="With --site choose a --protocol."
            )
        _fit_sites(
            site,
            out,
            study=study,
            ledgers=ledgers,
            columns=options.read_names(columns),
            exclude=options.read_names(exclude) or [],
            plots=plots,
            json=json,
            quiet=quiet,
            model_options={
                "n_components": components,
                "epsilon": epsilon,
                "delta": delta,
                "adjacency": adjacency,
                "protocol": protocol,
                "masks": masks,
                "collusion": collusion,
                "dropouts": dropouts,
                "row_norm": options.read_row_norm(row_norm),
                "row_bound": row_bound,
                "center": options.read_center(center),
                "budget_split": options.read_split(budget_split),
                "sketch_size": sketch_size,
                "random_state": seed,
            },
        )
        return
    if not files:
        raise DataError(
            "There are no files.", hint="Give files with rows, or --site NAME=FILE for several."
        )
    if study is not None or ledgers is not None or protocol != "auto":
        raise DataError(
            "--study, --ledgers and --protocol are for several sites.",
            hint="Give --site NAME=FILE for each.",
        )
    model = PrivatePCA(
        components,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        adjacency=adjacency,
        row_norm=options.read_row_norm(row_norm),
        row_bound=row_bound,
        center=options.read_center(center),
        budget_split=options.read_split(budget_split),
        random_state=seed,
        sketch_size=sketch_size,
    )
    rows = open_rows(
        files, columns=options.read_names(columns), exclude=options.read_names(exclude) or ()
    )
    with new_folder(out) as folder:  # made before anything is spent
        with fit_progress(quiet=quiet or json) as progress:
            model.fit_rows(rows, progress=progress)
        written = write_result(model, rows if projection else None, folder, figures=plots)
    if json:
        options.print_json({**as_json(model), "out": str(out)})
        return
    screen = console(quiet=quiet)
    print_model(model, screen)
    _print_written(screen, out, written)


def _fit_sites(
    site: list[str],
    out: Path,
    *,
    study: Path | None,
    ledgers: Path | None,
    columns: list[str] | None,
    exclude: list[str],
    plots: bool,
    json: bool,
    quiet: bool,
    model_options: dict[str, Any],
) -> None:
    # imported here: the ledger's database library takes a moment to load
    from eigenveil.cli import federated
    from eigenveil.federation.study_file import read_study, write_toml
    from eigenveil.runtime.pca import FederatedPCA

    paths = federated.read_sites(site)
    model = FederatedPCA(**model_options)
    agreed = None
    if study is not None:
        agreed = read_study(study)
        wished = {n: v for n, v in FederatedPCA().get_params().items() if n != "random_state"}
        for name, usual in wished.items():
            if not np.array_equal(model_options.get(name, usual), usual):
                raise DataError(
                    f"{name} is for the study to say, and --study {study} is given.",
                    hint="Change the study file (every site's), or leave --study out.",
                )
    if agreed is not None and agreed.columns is not None:
        columns = list(agreed.columns)
    rows = federated.open_sites(paths, columns=columns, exclude=exclude)
    asked = model.study_of(rows) if agreed is None else agreed
    screen = console(quiet=quiet)
    with new_folder(out) as folder:  # made before anything is spent
        books = None
        if ledgers is not None:
            books = federated.open_ledgers(ledgers, asked, screen.print if not json else _unsaid)
        steps = federated.protocol_progress(len(rows), quiet=quiet or json)
        with steps as progress:
            model.fit_study(asked, rows, ledgers=books, progress=progress)
        written = write_result(model, None, folder, figures=plots)
        write_toml(model.study_, folder / "study.toml")
        written.append(("study.toml", "what was run, for 'eigenveil study check'"))
    if json:
        found = as_json(model) | federated.federation_as_json(model)
        options.print_json({**found, "out": str(out)})
        return
    print_model(model, screen)
    federated.print_federation(model, screen)
    _print_written(screen, out, written)


def _unsaid(text: str) -> None:
    del text


def _print_written(screen: Console, out: Path, written: list[tuple[str, str]]) -> None:
    screen.print(f"\nwritten to {out}:")
    for name, what in written:
        screen.print(f"  {name:<22} {what}")
    screen.print(f"next: eigenveil certify {out}")
