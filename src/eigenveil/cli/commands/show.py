"""``eigenveil show`` and ``eigenveil transform``: a result, and its scores of new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import present


def show(
    result: options.ResultFolder,
    maps: Annotated[
        Path | None,
        typer.Option(
            help="Of images: a folder to write, with the components as NIfTI images; give --mask."
        ),
    ] = None,
    mask: Annotated[
        Path | None, typer.Option(help="With --maps: the mask of the fit, a NIfTI image.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show the components, the releases and the guarantee of a result."""
    present(app.transform.show(result, maps=maps, mask=mask), json=json)


# -- ``eigenveil transform``: a released model applied to new rows.


@options.reads_files
def transform(
    result: options.ResultFolder,
    out: Annotated[
        Path,
        typer.Option(
            help="File to write: .parquet, .csv, .feather or .npy; of genotypes .eigenvec; or "
            ".h5ad, a copy of the .h5ad file with obsm['X_pca'], varm['PCs'] and the certificate "
            "in uns."
        ),
    ],
    files: Annotated[list[str] | None, typer.Argument(help="Files with the same columns.")] = None,
    sql: options.Sql = None,
    database: options.Database = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the file if it exists.")] = False,
    schema: Annotated[
        Path | None,
        typer.Option(help="What the columns are; that of the result by default, if it has one."),
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Columns to copy before the scores, with commas between; by default the schema's "
            "identifiers, or the result's unit.",
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    read: Any,
) -> None:
    """Write what a result says of the rows of FILES, such as their scores.

    They are as private as the rows.
    """
    found = app.transform.transform(
        result,
        app.rows.read_places(files, sql, database),
        out,
        schema=schema,
        ids=options.read_names(ids),
        read=read,
        overwrite=overwrite,
    )
    present(found, json=json, quiet=quiet)
