"""``eigenveil fit``: files in, a certified result folder out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.progress import fit_progress
from eigenveil.cli.report import as_json, console, print_model
from eigenveil.cli.results import check_free, new_folder, write_result
from eigenveil.estimators.pca import PrivatePCA
from eigenveil.io import open_rows


def fit(
    files: Annotated[
        list[str],
        typer.Argument(help="CSV, Parquet, Feather, .npy or .npz files, folders or patterns."),
    ],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    components: options.Components = 2,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-6,
    mechanism: options.Mechanism = "auto",
    adjacency: options.Adjacency = "add-remove",
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
    """Fit private PCA to the rows of FILES and write a result folder."""
    check_free(out, overwrite=overwrite)
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
        written = write_result(model, rows, folder, figures=plots, show_rows=projection)
    if json:
        options.print_json({**as_json(model), "out": str(out)})
        return
    screen = console(quiet=quiet)
    print_model(model, screen)
    screen.print(f"\nwritten to {out}:")
    for name, what in written:
        screen.print(f"  {name:<22} {what}")
    screen.print(f"next: eigenveil certify {out}")
