"""A derived model as the commands meet it: one way for all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from eigenveil import plots
from eigenveil.app.parts import Part, TablePart
from eigenveil.app.presenters.base import Drawing, Presenter, in_sentence
from eigenveil.app.presenters.base import not_shown as why_not
from eigenveil.app.presenters.tensors import write_csv
from eigenveil.errors import short_name
from eigenveil.models.derived.base import DerivedModel
from eigenveil.models.derived.options import TITLES, options_of_kind
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Quantity
from eigenveil.models.stored import StoredModel

_SHOWN, _HIDDEN = 40, "not shown"
# Entries from -1 to 1; and means, such as of dates
_FORMS = dict.fromkeys(("pca", "factors", "partial-correlation"), ".3f") | {"discriminant": ".5g"}


class DerivedPresenter(Presenter):
    """What follows from a covariance."""

    task = "covariance"
    stored = cast("type[StoredModel]", DerivedModel)
    said = "values"

    def takes_holes(self, model: Any) -> bool:
        return True

    def title(self, model: Any) -> str:
        return TITLES[model.kind]

    def fitted(self, model: Any) -> Any:
        return model.source_

    def method(self, model: Any) -> str:
        given = model.get_params()
        said = "; ".join(
            f"{each.name.removeprefix('n_')}: {_typed(given[each.name])}"
            for each in options_of_kind(model.kind)
            if given[each.name] is not None
        )
        return (
            f"From the released covariance we computed, without reading a row again: "
            f"{in_sentence(self.title(model))} ({said})."
        )

    def to_use(self, model: Any) -> str:
        transform = "eigenveil transform RESULT ROWS --out FILE, or " * bool(model.new_names())
        return f"{transform}eigenveil.load_derived('RESULT')"

    def values(self, model: Any) -> dict[str, Any]:
        headings, lines = model.lines()
        plain = [dict(zip(headings, map(_plain, line), strict=True)) for line in lines]
        return {"kind": model.kind, "options": model.get_params(), "lines": plain}

    def parts(self, model: Any) -> Iterator[Part]:
        headings, lines = model.lines()
        form = _FORMS.get(model.kind, ".4g")
        told = [[_said(value, form) for value in line] for line in lines[:_SHOWN]]
        listed = "lower" in headings
        if listed:
            yield from _with_intervals(self.title(model), headings, told, model)
        else:
            title = f"{self.title(model)}: {len(model.labels_)} columns"
            yield TablePart(title, headings, told, right=headings[1:])
        if len(lines) > _SHOWN:
            yield f"{len(lines) - _SHOWN} more are in the folder's table."
        yield from _of_intervals(model, listed=listed)
        yield from model.notes_

    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        headings, lines = model.lines()
        name = f"{model.kind}.csv"
        write_csv(folder / name, headings, lines)
        return [(name, "what was found, by feature")]

    def drawings(self, model: Any) -> Iterator[Drawing]:
        what = f"{in_sentence(self.title(model))}, by column"
        yield Drawing(plots.plot_derived, model, model.kind, what)

    def new_names(self, model: Any) -> list[str]:
        names: list[str] = model.new_names()
        return names

    def likeliest(self, model: Any) -> NDArray[Any] | None:
        classes = getattr(model, "classes_", None)
        return None if classes is None else classes.astype(object)

    def _new_values(self, model: Any, rows: Any) -> Any:
        return model.new_values(rows)


def _with_intervals(
    title: str, headings: list[str], lines: list[list[str]], model: Any
) -> Iterator[Part]:
    """A table a target: a number with its interval, and what of the variance is explained."""
    shares = np.atleast_1d(model.r2_).tolist()
    for place, share in zip(range(1, len(headings), 3), shares, strict=True):
        rows = [
            (name, number, low if low in ("", _HIDDEN) else f"{low} to {high}")
            for name, number, low, high in ([line[0], *line[place : place + 3]] for line in lines)
        ]
        target = headings[place].removeprefix("coefficient of ")
        numbers = ("coefficient", "95 % interval")
        yield TablePart(f"{title} of {target}", ("feature", *numbers), rows, right=numbers)
        yield f"Part of its variance that is explained, by the released covariance: {_said(share)}."


def _of_intervals(model: Any, *, listed: bool) -> Iterator[Part]:
    """Those that are not listed yet, the largest first; what is not shown, once a reason."""
    found = intervals_of(model)
    if isinstance(found, str):
        yield f"No intervals: {found}"
        return
    if not found:
        yield "No intervals: of this kind of result none was validated."
    missing: dict[str, list[str]] = {}
    for quantity in found.values():
        if not quantity.shown.any():
            missing.setdefault("; ".join(quantity.not_shown()), []).append(quantity.about)
            continue
        if not listed:
            yield _interval_table(quantity)
        yield f"95 % intervals of {quantity.about}.{why_not(quantity)}"
    for reason, abouts in missing.items():
        alone = len(abouts) == len(found)
        yield f"No intervals{'' if alone else ' of ' + '; '.join(abouts)}: {reason}."


def _interval_table(quantity: Quantity) -> Part:
    """The largest of a quantity; of two columns that are alike along both axes one line."""
    square = len(quantity.labels) == 2 and quantity.labels[0] == quantity.labels[1]
    shown = np.triu(quantity.shown, 1) if square else quantity.shown
    sizes = np.where(shown, np.abs(quantity.estimate), -1.0)
    largest = np.argsort(-sizes, axis=None, kind="stable")[: min(_SHOWN, np.count_nonzero(shown))]
    found = quantity.columns()
    rows = [
        (
            *(short_name(found[axis][place]) for axis in quantity.axes),
            f"{found['estimate'][place]:.4g}",
            f"{found['lower'][place]:.4g} to {found['upper'][place]:.4g}",
        )
        for place in largest.tolist()
    ]
    title = f"{quantity.name.replace('_', ' ')}: 95 % intervals"
    ends = ("estimate", "interval")
    return TablePart(title, (*quantity.axes, *ends), rows, right=ends)


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and np.isnan(value) else value


def _typed(value: Any) -> str:
    """A value of an option as it is typed."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    some = [value] if isinstance(value, str | int | float) else list(value)
    return ", ".join(short_name(f"{each:g}" if isinstance(each, float) else each) for each in some)


def _said(value: Any, form: str = ".4g") -> str:
    if isinstance(value, float):
        return _HIDDEN if np.isnan(value) else f"{value:{form}}"
    return short_name(str(value))
