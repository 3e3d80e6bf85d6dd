"""What a result says of new rows, written to a file. It is as private as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.app.parts import Part
from eigenveil.app.presenters.base import Presenter, names_of
from eigenveil.app.results import (
    MODEL,
    SCHEMA,
    check_place,
    load_model,
    new_folder,
    presenter_of,
    result_parts,
    result_values,
)
from eigenveil.app.rows import Files, WantedColumns
from eigenveil.errors import DataError, WrongOption
from eigenveil.files import Place
from eigenveil.io import FileRows, ReadOptions, open_rows, write_blocks
from eigenveil.io.formats.cells import annotate_file
from eigenveil.io.formats.images import write_maps
from eigenveil.io.formats.registry import USUAL, writers
from eigenveil.io.write import eigenval_beside, eigenval_of, writes_eigenval
from eigenveil.models.stored import StoredModel
from eigenveil.models.task import TASKS
from eigenveil.moments.rows import Block
from eigenveil.tables.names import first_difference
from eigenveil.tables.schema import Schema, read_schema


@dataclass(frozen=True)
class ShownResult:
    model: StoredModel

    def as_json(self) -> dict[str, Any]:
        return result_values(self.model)

    def parts(self) -> Iterator[Part]:
        return result_parts(self.model)


def show(result: Path, *, maps: Path | None = None, mask: Path | None = None) -> ShownResult:
    """A result's folder; of images its components are written to ``maps``, a folder."""
    if (maps is None) != (mask is None):
        raise WrongOption("maps-without-mask")
    if maps is not None:
        check_place(maps, overwrite=False)
    model = load_model(result / MODEL)
    if maps is not None and mask is not None:
        with new_folder(maps) as folder:
            write_maps(model, mask, folder)
    return ShownResult(model)


@dataclass(frozen=True)
class Transformed:
    """What was written: so many rows and columns, some of them labels."""

    out: Path
    rows: int
    columns: int
    values: int
    labels: Sequence[str]
    said: str  # What the values are

    def as_json(self) -> dict[str, Any]:
        return {"out": self.out, "rows": self.rows, "columns": self.columns}

    def parts(self) -> Iterator[Part]:
        kept = f" after {', '.join(self.labels)}" if self.labels else ""
        yield (
            f"{self.rows:,} rows x {self.values} {self.said} written to {self.out}{kept}. "
            f"{self.said.capitalize()} are as private as the rows."
        )


def transform(
    result: Path,
    places: Files,
    out: Path,
    *,
    schema: Path | None = None,
    ids: Sequence[str] | None = None,
    read: ReadOptions = USUAL,
    overwrite: bool = False,
) -> Transformed:
    """Write what a result says of rows, after the columns ``ids``."""
    check_place(out, overwrite=overwrite)
    _check_cells(places, out, ids)
    if writes_eigenval(out):
        check_place(eigenval_of(out), overwrite=overwrite)
    model = load_model(result / MODEL)
    presenter = presenter_of(model)
    found = schema_of(result, schema)
    rows = open_for(model, places, found, read=read)
    usual = _usual_labels(model, found, out)
    labels = () if _is_cells(out) else _labels(rows, ids, usual, out)
    holes = presenter.takes_holes and model.plan_.holes
    written = _Written(model, presenter, labels, holes=holes)
    blocks = written.columns(rows, counts=TASKS[presenter.task].takes_documents)
    if _is_cells(out):
        scores = np.concatenate([np.column_stack([v for _, v in block]) for block in blocks])
        annotate_file(rows.paths[0], out, model, scores)
    else:
        with eigenval_beside(out, model):
            write_blocks(out, blocks)
    presenter.warn_of_new(model)
    count = len(written.names)
    return Transformed(out, written.rows, written.width, count, labels, presenter.said)


def _is_cells(place: Any) -> bool:
    return isinstance(place, (str, Path)) and Path(place).suffix.lower() == ".h5ad"


def _check_cells(files: Sequence[str | Place], out: Path, ids: Sequence[str] | None) -> None:
    """Refuse what cannot become a copy of one file of cells, before it is read."""
    if not _is_cells(out):
        return
    if ids is not None:
        raise WrongOption("id-of-cells", ids=",".join(ids))
    if len(files) != 1 or not _is_cells(files[0]):
        raise WrongOption("not-one-h5ad", path=out)


class _Written:
    """What a model says of rows, as columns to write, a block after the other; it counts them."""

    def __init__(
        self, model: StoredModel, presenter: Presenter, labels: Sequence[str], *, holes: bool
    ) -> None:
        self._model, self._presenter, self._labels = model, presenter, labels
        self._holes = holes
        self.names = presenter.new_names(model)
        self.width = len(labels) + len(self.names) + (presenter.label is not None)
        self.rows = 0

    def columns(self, rows: FileRows, *, counts: bool) -> Iterator[list[tuple[str, NDArray[Any]]]]:
        """Columns of each block in order; of a block without rows where there are none."""
        names = rows.names or names_of(self._model)
        for block, labels in rows.labelled_blocks(self._labels, sparse=counts):
            _check(block, names, counts=counts, holes=self._holes)
            values = self._presenter.new_values(self._model, block.values)
            self.rows += values.shape[0]
            yield self._named(values, labels)
        if not self.rows:
            empty = dict.fromkeys(self._labels, np.empty(0, dtype=np.object_))
            yield self._named(np.empty((0, len(self.names))), empty)

    def _named(
        self, values: NDArray[np.floating[Any]], labels: Mapping[str, NDArray[np.object_]]
    ) -> list[tuple[str, NDArray[Any]]]:
        found: list[tuple[str, NDArray[Any]]] = [*labels.items()]
        found += zip(self.names, values.T, strict=True)
        if self._presenter.label is not None:
            found.append((self._presenter.label, 1 + np.argmax(values, axis=1)))
        return found


def schema_of(result: Path, given: Path | None) -> Schema | None:
    place = result / SCHEMA if given is None else given
    return read_schema(place) if given is not None or place.exists() else None


def open_for(
    model: StoredModel, files: Sequence[str | Place], schema: Schema | None, *, read: ReadOptions
) -> FileRows:
    """A model's columns, by its schema or by name; by position where there are no names."""
    names = names_of(model)
    if schema is None:
        rows = WantedColumns(names, read=read).open_like(files)
    elif names is not None and list(schema.names) != names:
        raise DataError(
            "other-columns",
            whose="the schema",
            difference=f"{first_difference(schema.names, names)} in the model",
        )
    else:
        rows = open_rows(files, schema=schema.features_only(), read=read)
    if rows.features != model.n_features_in_:
        raise DataError("features-of-model", features=rows.features, wanted=model.n_features_in_)
    return rows


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
) -> tuple[str, ...]:
    """Columns with identifiers of the rows, to stand before their scores."""
    holds_text = out.suffix.lower() != ".npy"
    if names and not holds_text:
        raise WrongOption("numbers-only", names=",".join(names), path=out)
    found = rows.label_names(usual if names is None else names) if holds_text else ()
    if absent := [name for name in names or () if name not in found]:
        raise DataError(
            "missing-column",
            path="Not every file",
            column=absent[0],
            why="",
            known="Name a column that all files have.",
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
    place = block.origin.cell(block.first_row + row, column, names)
    if np.isfinite(value):
        raise DataError("not-a-count", place=place)
    raise DataError("not-finite", place=place, value="not a finite number")
