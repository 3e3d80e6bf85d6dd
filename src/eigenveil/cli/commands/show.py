"""``eigenveil show`` and ``eigenveil transform``: a result, and its scores of new rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse
import typer

from eigenveil.cli import options
from eigenveil.cli.options import open_for_model
from eigenveil.cli.presenters.base import names_of
from eigenveil.cli.presenters.registry import load_model, presenter_of
from eigenveil.cli.presenters.results import MODEL, as_json, check_place, print_model
from eigenveil.cli.presenters.screen import Screen
from eigenveil.errors import DataError
from eigenveil.io import write_columns
from eigenveil.models.task import TASKS
from eigenveil.moments.rows import Block


def show(result: options.ResultFolder, json: options.Json = False) -> None:
    """Show the components, the releases and the guarantee of a result."""
    model = load_model(result / MODEL)
    if json:
        options.print_json(as_json(model))
        return
    print_model(model, Screen())


# -- ``eigenveil transform``: a released model applied to new rows.


def transform(
    result: options.ResultFolder,
    files: Annotated[list[str], typer.Argument(help="Files with the same columns.")],
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv, .feather or .npy.")],
    overwrite: Annotated[bool, typer.Option(help="Replace the file if it exists.")] = False,
    header: options.Header = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write what a result says of the rows of FILES, such as their scores.

    They are as private as the rows.
    """
    check_place(out, overwrite=overwrite)
    model = load_model(result / MODEL)
    presenter = presenter_of(model)
    documents = TASKS[presenter.task].takes_documents
    rows = open_for_model(names_of(model), files, header=header)
    if rows.features != model.n_features_in_:
        raise DataError(
            f"The files have {rows.features} columns, the model {model.n_features_in_}.",
            hint="Give files with the columns that the model was fitted to.",
        )
    parts = []
    for block in rows.sparse_blocks() if documents else rows.blocks():
        _check(block, rows.names or names_of(model), counts=documents)
        parts.append(presenter.new_values(model, block.values))
    values = np.concatenate(parts)
    columns = list(zip(presenter.new_names(model), values.T, strict=True))
    if presenter.label is not None:
        columns.append((presenter.label, 1 + np.argmax(values, axis=1)))
    write_columns(out, columns)
    count, width = values.shape[0], len(columns)
    if json:
        options.print_json({"out": str(out), "rows": count, "columns": width})
    else:
        what = presenter.said
        Screen(quiet=quiet).print(
            f"{count:,} rows x {values.shape[1]} {what} written to {out}. "
            f"{what.capitalize()} are as private as the rows."
        )


def _check(block: Block, names: Sequence[str] | None, *, counts: bool) -> None:
    """Raise where an entry is not finite, or a count is negative, naming its place."""
    values: Any = block.values
    entries = values.data if scipy.sparse.issparse(values) else values
    wrong = ~np.isfinite(entries)
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
