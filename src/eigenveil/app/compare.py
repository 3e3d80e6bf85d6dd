"""A result beside the exact one of its rows, for whoever owns them. Not private."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from eigenveil.app.parts import Part, TablePart, strongly
from eigenveil.app.presenters.base import columns_matched
from eigenveil.app.results import MODEL, load_model, presenter_of
from eigenveil.app.rows import Files
from eigenveil.app.transform import open_for, schema_of
from eigenveil.io import ReadOptions
from eigenveil.io.formats.registry import USUAL
from eigenveil.models.beside import NOT_PRIVATE, BesideExact, held_text, said
from eigenveil.models.task import TASKS


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
    rows = open_for(model, places, schema_of(result, schema), read=read)
    counts = TASKS[presenter_of(model).task].takes_documents
    blocks = [block.values for block, _ in rows.labelled_blocks((), sparse=counts)]
    if any(scipy.sparse.issparse(block) for block in blocks):
        whole = scipy.sparse.vstack([scipy.sparse.csr_array(block) for block in blocks])
    else:
        whole = np.concatenate(blocks) if blocks else np.empty((0, rows.features))
    with columns_matched():
        return Compared(model.compare(whole))
