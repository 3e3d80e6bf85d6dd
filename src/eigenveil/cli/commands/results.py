"""What is made of a result: ``show``, ``transform``, ``derive``, ``report`` and others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, present


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


# -- ``eigenveil compare``: a result beside the rows themselves.


@options.reads_files
def compare(
    result: options.ResultFolder,
    files: Annotated[
        list[str] | None, typer.Argument(help="The rows that the result was fitted to.")
    ] = None,
    sql: options.Sql = None,
    database: options.Database = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="What the columns are; that of the result by default, if it has one."),
    ] = None,
    json: options.Json = False,
    *,
    read: Any,
) -> None:
    """Show a result beside the exact one of its rows, for their owner alone: NOT PRIVATE.

    What is printed shows the rows themselves: it is not to be sent, published, or kept with the
    result. Nothing is charged.
    """
    places = app.rows.read_places(files, sql, database)
    present(app.compare.compare(result, places, schema=schema, read=read), json=json)


# -- ``eigenveil derive``: what follows from a covariance.


def derive(
    result: Annotated[
        Path, typer.Argument(help="A covariance's folder: 'eigenveil fit --task covariance'.")
    ],
    kind: Annotated[
        str,
        typer.Argument(
            help="pca, factors, partial-correlation, regression, cca or discriminant.",
        ),
    ],
    out: options.NewFolder,
    target: Annotated[str | None, typer.Option(help="Of regression: columns to explain.")] = None,
    on: Annotated[str | None, typer.Option(help="Columns to use; all others by default.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Of discriminant: a category, or its levels' columns.")
    ] = None,
    left: Annotated[str | None, typer.Option(help="Of cca: columns of one side.")] = None,
    right: Annotated[str | None, typer.Option(help="Of cca: columns of the other side.")] = None,
    components: Annotated[
        int | None, typer.Option(help="Of pca, factors and cca: how many.")
    ] = None,
    ridge: Annotated[
        float | None,
        typer.Option(
            help="In units of the noise's largest eigenvalue; 1 by default. 0: least squares."
        ),
    ] = None,
    correlations: Annotated[
        bool, typer.Option("--correlations", help="Of pca: every column divided by its deviation.")
    ] = False,
    overwrite: options.OverResult = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Derive a model from a released covariance: no row is read, and nothing is charged.

    Several columns are given with commas between.
    """
    given = {"on": on, "left": left, "right": right, "target": target, "group": group}
    names: dict[str, Any] = {name: options.read_names(text) for name, text in given.items()}
    for name in ("target", "group"):  # one of them is a name, not a list
        if names[name] is not None and len(names[name]) == 1:
            names[name] = names[name][0]
    found = app.derive.derive(
        result,
        kind,
        out,
        overwrite=overwrite,
        n_components=components,
        ridge=ridge,
        correlations=correlations or None,
        **names,
    )
    present(found, json=json, quiet=quiet)


PAGE = "report.html"


def report(
    result: options.ResultFolder,
    out: Annotated[
        Path | None, typer.Option(help=f"File to write; {PAGE} in the result's folder by default.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier report.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a result as one page of HTML: pictures, tables, guarantees, methods, model card.

    The page is made of the model and its certificate, which were released: no row is read. It
    needs no other file, and a browser prints it to PDF.
    """
    place = result / PAGE if out is None else out
    guarantee = app.report.write_report(result, place, title=title, overwrite=overwrite)
    screen = Screen(quiet=quiet)
    screen.print(f"written to {place}. A browser prints it to PDF.")
    if not guarantee.certified:
        screen.print("note: the result is not certified, and the page says so at its head.")


def export(
    result: options.ResultFolder,
    to: Annotated[str, typer.Option(help="Format: sklearn, safetensors or onnx.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; 'model' with the format's ending beside the result's."),
    ] = None,
    overwrite: options.OverFile = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a result's model for other programs: scikit-learn, safetensors, ONNX.

    What is written was released. The certificate stays in the result's folder; safetensors and ONNX
    files have a copy.
    """
    chosen, place = app.results.export(result, to, out, overwrite=overwrite)
    Screen(quiet=quiet).print(f"written to {place}: {chosen.what}.")
