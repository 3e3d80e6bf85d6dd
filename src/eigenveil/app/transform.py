"""What a result says of new rows, written to a file. It is as private as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.app.parts import Part, TablePart, strongly
from eigenveil.app.presenters.base import Presenter, columns_matched, names_of
from eigenveil.app.results import (
    MODEL,
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
from eigenveil.models.beside import NOT_PRIVATE, BesideExact, held_text, said
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
    without: int  # Rows that have no values, since entries are missing

    def as_json(self) -> dict[str, Any]:
        counts = {"rows": self.rows, "columns": self.columns, "missing": self.without}
        return {"out": self.out, **counts}

    def parts(self) -> Iterator[Part]:
        kept = f" after {', '.join(self.labels)}" if self.labels else ""
        yield (
            f"{self.rows:,} rows x {self.values} {self.said} written to {self.out}{kept}. "
            f"{self.said.capitalize()} are as private as the rows."
        )
        if self.without:
            yield f"{self.without:,} rows have no {self.said}, as entries are missing: NaN there."


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
    found = schema_of(model, schema)
    rows = open_for(model, places, found, read=read)
    usual = _usual_labels(model, found, out)
    labels = () if _is_cells(out) else _labels(rows, ids, usual, out)
    written = _Written(model, presenter, labels, texts=out.suffix.lower() != ".npy")
    blocks = written.columns(rows, counts=TASKS[presenter.task].takes_documents)
    if _is_cells(out):
        scores = np.concatenate([np.column_stack([v for _, v in block]) for block in blocks])
        annotate_file(rows.paths[0], out, model, scores)
    else:
        with eigenval_beside(out, model):
            write_blocks(out, blocks)
    presenter.warn_of_new(model)
    sizes = written.rows, written.width, len(written.names)
    return Transformed(out, *sizes, labels, presenter.said, written.without)


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
        self, model: StoredModel, presenter: Presenter, labels: Sequence[str], *, texts: bool
    ) -> None:
        self._model, self._presenter, self._labels = model, presenter, labels
        self._holes = presenter.takes_holes(model)
        self.names = presenter.new_names(model)
        self._likeliest = presenter.likeliest(model)
        if self._likeliest is not None and not texts:
            self._likeliest = np.arange(1, 1 + len(self._likeliest))
        self.width = len(labels) + len(self.names) + (self._likeliest is not None)
        self.rows = self.without = 0

    def columns(self, rows: FileRows, *, counts: bool) -> Iterator[list[tuple[str, NDArray[Any]]]]:
        """Columns of each block in order; of a block without rows where there are none."""
        places = places_of(self._model, rows)
        names = rows.names if places is None else None
        names = names or names_of(self._model)
        for block, labels in rows.labelled_blocks(self._labels, sparse=counts):
            if places is not None:
                block.values = np.take(block.values, places, axis=1)
            _check(block, names, counts=counts, holes=self._holes)
            values = self._presenter.new_values(self._model, block.values)
            self.rows += values.shape[0]
            self.without += int(np.count_nonzero(np.isnan(values).any(axis=1)))
            yield self._named(values, labels)
        if not self.rows:
            empty = dict.fromkeys(self._labels, np.empty(0, dtype=np.object_))
            yield self._named(np.empty((0, len(self.names))), empty)

    def _named(
        self, values: NDArray[np.floating[Any]], labels: Mapping[str, NDArray[np.object_]]
    ) -> list[tuple[str, NDArray[Any]]]:
        found: list[tuple[str, NDArray[Any]]] = [*labels.items()]
        found += zip(self.names, values.T, strict=True)
        if (likeliest := self._likeliest) is not None:
            of_each = likeliest[np.argmax(values, axis=1)]
            of_each[np.isnan(values).any(axis=1)] = "" if of_each.dtype == object else 0
            found.append(("likeliest", of_each))
        return found


def schema_of(model: StoredModel, given: Path | None) -> Schema | None:
    found: Schema | None = model.schema_ if given is None else read_schema(given)
    return found


def open_for(
    model: StoredModel, files: Sequence[str | Place], schema: Schema | None, *, read: ReadOptions
) -> FileRows:
    """A model's columns, by its schema or by name; by position where there are no names."""
    names = names_of(model)
    if schema is None:
        rows = WantedColumns(names, read=read).open_like(files)
    elif names is not None and not set(schema.names).issuperset(names):
        raise DataError(
            "other-columns",
            whose="the schema",
            difference=f"{first_difference(schema.names, names)} in the model",
        )
    else:
        return open_rows(files, schema=schema.only(names or schema.names), read=read)
    if rows.features != model.n_features_in_:
        raise DataError("features-of-model", features=rows.features, wanted=model.n_features_in_)
    return rows


def places_of(model: StoredModel, rows: FileRows) -> list[int] | None:
    """Where a model's columns are among those of rows; ``None`` where they are all, in order."""
    wanted, there = names_of(model), list(rows.names or ())
    if wanted is None or not there or there == wanted:
        return None
    return [there.index(name) for name in wanted]


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


# -- A result beside the exact one of its rows, for whoever owns them. Not private.


@dataclass(frozen=True)
class Compared:
    """What ``eigenveil compare`` shows."""

    found: BesideExact

    def as_json(self) -> dict[str, Any]:
        return self.found.as_dict()

    def parts(self) -> Iterator[Part]:
        found = self.found
        yield strongly("NOT PRIVATE:", NOT_PRIVATE.partition(": ")[2])
        left = f" ({found.left_out:,} with missing or infinite entries left out)"
        headings = list(found.lines[0]) if found.lines else []
        yield TablePart(
            f"{found.estimator} beside the exact result of {found.rows:,} rows"
            + left * bool(found.left_out),
            [name.replace("_", " ") for name in headings],
            [[said(line[name]) for name in headings] for line in found.lines],
            right=[name.replace("_", " ") for name in found.abouts],
        )
        for name, about in found.abouts.items():
            yield f"  {name.replace('_', ' ')}: {about}"
        for about, value in found.measures.items():
            yield f"{about}: {said(value)}"
        yield from map(held_text, found.held.items())
        for note in found.notes:
            yield f"note: {note}"


def compare(
    result: Path, places: Files, *, schema: Path | None = None, read: ReadOptions = USUAL
) -> Compared:
    """A result's folder beside the exact result of the rows that it was fitted to."""
    model = load_model(result / MODEL)
    rows = open_for(model, places, schema_of(model, schema), read=read)
    counts = TASKS[presenter_of(model).task].takes_documents
    chosen = places_of(model, rows)
    blocks = [
        block.values if chosen is None else np.take(block.values, chosen, axis=1)
        for block, _ in rows.labelled_blocks((), sparse=counts)
    ]
    if any(scipy.sparse.issparse(block) for block in blocks):
        whole = scipy.sparse.vstack([scipy.sparse.csr_array(block) for block in blocks])
    else:
        whole = np.concatenate(blocks) if blocks else np.empty((0, rows.features))
    with columns_matched():
        return Compared(model.compare(whole))
