"""What is made of a result: ``show``, ``transform``, ``derive``, ``report`` and others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.declared import declared
from eigenveil.cli.presenters.screen import Screen, present
from eigenveil.errors import listed
from eigenveil.models.derived.options import DERIVED_OPTIONS, TITLES

ResultSchema = Annotated[
    Path | None,
    typer.Option(help="What the columns are; that of the result by default, if it has one."),
]


def show(
    result: options.ResultFolder,
    maps: Annotated[
        Path | None,
        typer.Option(
            help="Of images: a folder to write, with components or sources as NIfTI; give --mask."
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
    schema: ResultSchema = None,
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
    schema: ResultSchema = None,
    json: options.Json = False,
    *,
    read: Any,
) -> None:
    """Show a result beside the exact one of its rows, for their owner alone: NOT PRIVATE.

    What is printed shows the rows themselves: it is not to be sent, published, or kept with the
    result. Nothing is charged.
    """
    places = app.rows.read_places(files, sql, database)
    present(app.transform.compare(result, places, schema=schema, read=read), json=json)


# -- ``eigenveil derive``: what follows from a covariance.


@declared("table", options=DERIVED_OPTIONS)
def derive(
    result: Annotated[
        Path, typer.Argument(help="A covariance's folder: 'eigenveil fit --task covariance'.")
    ],
    kind: Annotated[str, typer.Argument(help=f"{listed(TITLES, 'or')}.")],
    out: options.NewFolder,
    plots: options.Plots = True,
    overwrite: options.OverResult = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: Any,
) -> None:
    """Derive a model from a released covariance: no row is read, and nothing is charged."""
    found = app.derive.derive(result, kind, out, option_values, figures=plots, overwrite=overwrite)
    present(found, json=json, quiet=quiet)


def report(
    result: options.ResultFolder,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write; in the result's folder by default: report.html, with --pdf "
            "report.pdf, with --registry deployment.yaml."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="As PDF: pip install 'eigenveil[pdf]'.")
    ] = False,
    registry: Annotated[
        bool,
        typer.Option(
            "--registry",
            help="In its place an entry of the registry of deployments of differential privacy, "
            "which says what is to be filled in.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier report.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a result as one page of HTML: pictures, tables, guarantees, methods, model card.

    The page is made of the model and its certificate, which were released: no row is read. It
    needs no other file.
    """
    if pdf and registry:
        raise options.WrongOption("pdf-and-registry")
    guarantee, place = app.report.write_report(
        result,
        out,
        form="pdf" if pdf else "registry" if registry else "html",
        title=title,
        overwrite=overwrite,
    )
    screen = Screen(quiet=quiet)
    screen.print(f"written to {place}.")
    if not guarantee.certified:
        screen.print("note: the result is not certified, and the page says so at its head.")


def export(
    result: options.ResultFolder,
    to: Annotated[str, typer.Option(help="Format: sklearn, safetensors, onnx or onnx-float32.")],
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
