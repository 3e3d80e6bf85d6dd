"""``eigenveil show`` and ``eigenveil transform``: a result, and its scores of new rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse
import typer
from numpy.typing import NDArray

from eigenveil.cli import options
from eigenveil.cli.options import WantedColumns, WrongOption
from eigenveil.cli.presenters.base import names_of
from eigenveil.cli.presenters.registry import load_model, presenter_of
from eigenveil.cli.presenters.results import MODEL, SCHEMA, as_json, check_place, print_model
from eigenveil.cli.presenters.screen import Screen
from eigenveil.errors import DataError
from eigenveil.io import FileRows, ReadOptions, open_rows, write_columns
from eigenveil.io.formats.eigenvec import eigenval_beside, eigenval_of, writes_eigenval
from eigenveil.io.formats.registry import writers
from eigenveil.models.inputs import first_difference
from eigenveil.models.stored import StoredModel
from eigenveil.models.task import TASKS
from eigenveil.moments.rows import Block
from eigenveil.tables.schema import Schema, read_schema


def show(result: options.ResultFolder, json: options.Json = False) -> None:
    """Show the components, the releases and the guarantee of a result."""
    model = load_model(result / MODEL)
    if json:
        options.print_json(as_json(model))
        return
    print_model(model, Screen())


# -- ``eigenveil transform``: a released model applied to new rows.


@options.reads_files
def transform(
    result: options.ResultFolder,
    files: Annotated[list[str], typer.Argument(help="Files with the same columns.")],
    out: Annotated[
        Path,
        typer.Option(
            help="File to write: .parquet, .csv, .feather or .npy; of genotypes .eigenvec."
        ),
    ],
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
    read: ReadOptions,
) -> None:
    """Write what a result says of the rows of FILES, such as their scores.

    They are as private as the rows.
    """
    check_place(out, overwrite=overwrite)
    if writes_eigenval(out):
        check_place(eigenval_of(out), overwrite=overwrite)
    model = load_model(result / MODEL)
    presenter = presenter_of(model)
    documents = TASKS[presenter.task].takes_documents
    found = _schema_of(result, schema)
    rows = _open(model, files, found, read=read)
    if rows.features != model.n_features_in_:
        raise DataError(
            f"The files have {rows.features} columns, the model {model.n_features_in_}.",
            hint="Give files with the columns that the model was fitted to.",
        )
    labels = _labels(rows, options.read_names(ids), _usual_labels(model, found, out), out)
    holes = presenter.takes_holes and model.plan_.holes
    parts = []
    for block in rows.sparse_blocks() if documents else rows.blocks():
        _check(block, rows.names or names_of(model), counts=documents, holes=holes)
        parts.append(presenter.new_values(model, block.values))
    values = np.concatenate(parts)
    columns: list[tuple[str, Any]] = [*labels.items()]
    columns += zip(presenter.new_names(model), values.T, strict=True)
    if presenter.label is not None:
        columns.append((presenter.label, 1 + np.argmax(values, axis=1)))
    with eigenval_beside(out, model):
        write_columns(out, columns)
    count, width = values.shape[0], len(columns)
    kept = f" after {', '.join(labels)}" if labels else ""
    if json:
        options.print_json({"out": str(out), "rows": count, "columns": width})
    else:
        what = presenter.said
        Screen(quiet=quiet).print(
            f"{count:,} rows x {values.shape[1]} {what} written to {out}{kept}. "
            f"{what.capitalize()} are as private as the rows."
        )


def _schema_of(result: Path, given: Path | None) -> Schema | None:
    """The schema of the rows: the one that was given, or the result's."""
    place = result / SCHEMA if given is None else given
    return read_schema(place) if given is not None or place.exists() else None


def _open(
    model: StoredModel, files: Sequence[str], schema: Schema | None, *, read: ReadOptions
) -> FileRows:
    """A model's columns, by its schema or by name; by position where there are no names."""
    names = names_of(model)
    if schema is None:
        return WantedColumns(names, read=read).open_like(files)
    if names is not None and list(schema.names) != names:
        raise DataError(
            "The schema's columns are not those of the model: "
            f"{first_difference(schema.names, names)}.",
            hint="Give the schema that the model was fitted with (schema.toml of its result).",
            code="other-columns",
        )
    return open_rows(files, schema=schema.features_only(), read=read)


def _usual_labels(model: StoredModel, schema: Schema | None, out: Path) -> Sequence[str]:
    """What a written format begins with, or the schema's identifiers, or the model's unit."""
    written = writers().get(out.suffix.lower())
    if written is not None and written.labels:
        return written.labels
    if schema is not None:
        return schema.identifiers
    unit = model.certificate_.target.unit
    return () if unit is None else (unit,)


def _labels(
    rows: FileRows, names: Sequence[str] | None, usual: Sequence[str], out: Path
) -> dict[str, NDArray[np.object_]]:
    """Identifiers of the rows, to stand before their scores.

    Raises
    ------
    DataError, WrongOption
        When a requested column is not there, or the format holds numbers only.
    """
    holds_text = out.suffix.lower() != ".npy"
    if names and not holds_text:
        raise WrongOption(
            f"--id {','.join(names)}: {out} holds numbers only.",
            hint="Write a .parquet, .csv or .feather file, or leave --id out.",
        )
    found = rows.labels(usual if names is None else names) if holds_text else {}
    if absent := [name for name in names or () if name not in found]:
        raise DataError(
            f"--id {absent[0]}: not every file has a column {absent[0]!r}.",
            hint="Name a column that all files have.",
            code="missing-column",
        )
    return found


def _check(block: Block, names: Sequence[str] | None, *, counts: bool, holes: bool) -> None:
    """Raise where an entry is not finite, or a count is negative, naming its place.

    With ``holes`` an entry may be missing.
    """
    values: Any = block.values
    entries = values.data if scipy.sparse.issparse(values) else values
    wrong = np.isinf(entries) if holes else ~np.isfinite(entries)
    if counts:
        wrong |= entries < 0
    if not wrong.any():
        return
    if scipy.sparse.issparse(values):
        first = int(np.flatnonzero(wrong)[0])
        row = int(np.searchsorted(values.indptr, first, side="right")) - 1
        column, value = int(values.indices[first]), float(entries[first])
    else:
        row, column = (int(place) for place in np.argwhere(wrong)[0])
        value = float(entries[row, column])
    name = column if names is None else names[column]
    problem = "is negative" if np.isfinite(value) else "is not a finite number"
    raise DataError(
        f"{block.origin}: row {block.first_row + row}, column {str(name)!r} {problem}.",
        hint="Remove or correct such entries first."
        if counts
        else "Remove or fill such entries first.",
        code="not-a-count" if np.isfinite(value) else "not-finite",
    )
