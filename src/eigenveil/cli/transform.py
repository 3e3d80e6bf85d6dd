"""``eigenveil transform``: scores of new rows along the released components."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from eigenveil.cli import options
from eigenveil.cli.report import console
from eigenveil.cli.results import MODEL
from eigenveil.errors import DataError, OutputError
from eigenveil.estimators.fitted import FittedPCA
from eigenveil.io import open_rows, write_table
from eigenveil.moments.source import RowSource


def _open_for(model: FittedPCA, files: list[str]) -> RowSource:
    """The model's columns by name; by position where the files have no names."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return open_rows(files)
    try:
        return open_rows(files, columns=[str(name) for name in names])
    except DataError as error:
        if error.code != "no-names":
            raise
        return open_rows(files)


def transform(
    result: options.ResultFolder,
    files: Annotated[list[str], typer.Argument(help="Files with the same columns.")],
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv, .feather or .npy.")],
    overwrite: Annotated[bool, typer.Option(help="Replace the file if it exists.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write the scores of the rows of FILES; they are as private as the rows."""
    if out.exists() and not overwrite:
        raise OutputError(
            f"{out} exists.", hint="Choose another --out, or say --overwrite.", code="output-exists"
        )
    model = FittedPCA.load(result / MODEL)
    rows = _open_for(model, files)
    if rows.features != model.n_features_in_:
        raise DataError(
            f"The files have {rows.features} columns, the model {model.n_features_in_}.",
            hint="Give files with the columns that the model was fitted to.",
        )
    parts = []
    for block in rows.blocks():
        if not np.isfinite(block.values).all():
            row, column = np.argwhere(~np.isfinite(block.values))[0]
            name = column if rows.names is None else rows.names[int(column)]
            raise DataError(
                f"{block.origin}: row {block.first_row + int(row)}, column {str(name)!r} is not a "
                "finite number.",
                hint="Remove or fill such entries first.",
                code="not-finite",
            )
        parts.append((block.values - model.mean_) @ model.components_.T)
    scores = np.concatenate(parts)
    write_table(out, scores, [f"PC{i + 1}" for i in range(scores.shape[1])])
    if json:
        options.print_json({"out": str(out), "rows": scores.shape[0], "columns": scores.shape[1]})
    else:
        console(quiet=quiet).print(
            f"{scores.shape[0]:,} rows x {scores.shape[1]} scores written to {out}. "
            "Scores are as private as the rows."
        )
