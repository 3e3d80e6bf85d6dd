"""A derived model as the commands meet it: one way for all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eigenveil.app.parts import Part, TablePart
from eigenveil.app.presenters.base import Drawing, Presenter, columns_matched
from eigenveil.app.presenters.base import not_shown as why_not
from eigenveil.app.presenters.tensors import write_csv
from eigenveil.errors import short_name
from eigenveil.models.derived.base import DerivedModel
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.stored import StoredModel

_SHOWN = 40


class DerivedPresenter(Presenter):
    """What follows from a covariance."""

    task = "covariance"
    stored = cast("type[StoredModel]", DerivedModel)
    said = "values"

    def values(self, model: Any) -> dict[str, Any]:
        headings, lines = model.lines()
        plain = [dict(zip(headings, map(_plain, line), strict=True)) for line in lines]
        return {"kind": model.kind, "options": model.get_params(), "lines": plain}

    def parts(self, model: Any) -> Iterator[Part]:
        headings, lines = model.lines()
        yield TablePart(
            f"{model.kind} of {len(model.labels_)} columns, from a released covariance",
            headings,
            [[_said(value) for value in line] for line in lines[:_SHOWN]],
            right=headings[1:],
        )
        if len(lines) > _SHOWN:
            yield f"{len(lines) - _SHOWN} more are in the folder's table."
        if (r2 := getattr(model, "r2_", None)) is not None:
            shares = ", ".join(_said(float(value)) for value in np.atleast_1d(r2))
            yield f"part of the variance that is explained, by the released covariance: {shares}."
        found = intervals_of(model)
        if isinstance(found, str):
            yield f"No intervals: {found}"
        else:
            for quantity in found.values():
                yield f"95 % intervals of {quantity.about}.{why_not(quantity)}"
        yield from model.notes_

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        headings, lines = model.lines()
        name = f"{model.kind}.csv"
        write_csv(folder / name, headings, lines)
        return [(name, "what was found, by feature")]

    def drawings(self, model: Any) -> Iterator[Drawing]:
        del model
        return iter(())

    def new_names(self, model: Any) -> list[str]:
        names: list[str] = model.new_names()
        return names

    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        with columns_matched():
            return np.asarray(model.new_values(rows))


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value


def _said(value: Any) -> str:
    if isinstance(value, float):
        return "not shown" if np.isnan(value) else f"{value:.4g}"
    return short_name(str(value))
