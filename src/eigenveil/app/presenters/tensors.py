"""What the presenters of mixtures and of topic models share: strengths, and tables of numbers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.app.parts import Part, strongly
from eigenveil.app.presenters.base import Drawing, name_of


def strength_values(model: Any) -> dict[str, Any]:
    return {
        "strengths": model.strengths_.tolist(),
        "noise_floor": model.noise_floor_,
        "usable": model.usable_.tolist(),
        "converged": model.converged_,
    }


_MOST_STRENGTHS = 8


def strength_parts(model: Any, *, things: str) -> Iterator[Part]:
    """How far the components stand above the noise, and a warning where they do not."""
    count, above = model.n_components_, int(model.usable_.sum())
    shown = [f"{value:.4g}" for value in model.strengths_[: max(count, 1)]]
    if len(shown) > _MOST_STRENGTHS:
        shown = [*shown[: _MOST_STRENGTHS - 1], "...", shown[-1]]
    yield (
        f"strengths: {', '.join(shown)}; noise alone shows up to {model.noise_floor_:.4g}: "
        f"{above} of {count} {things} stand above it."
    )
    if above < count:
        yield strongly(
            "  not usable:", f"{count - above} of them show noise, and mix with the others."
        )
    wanted = None if model.plan_.auto_components else model.plan_.n_components
    if wanted is not None and count < wanted:
        yield f"  only {count} of the {wanted} {things} requested stand above the noise."
    if not model.converged_:
        yield "  note: a power iteration did not converge; those with little weight are vague."


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a text begins with that a spreadsheet would compute: columns' names may be of others."""


def write_csv(path: Path, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """A table of text and numbers, these in full; no text is a formula of a spreadsheet."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for line in (heading, *lines):
            writer.writerow([_text(each) if isinstance(each, str) else repr(each) for each in line])


def _text(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_by_feature(
    path: Path, heading: Sequence[str], names: Sequence[str] | None, values: NDArray[np.float64]
) -> None:
    """A line for each feature, with its value in each of the rows of ``values``."""
    lines = ([name_of(names, index), *column] for index, column in enumerate(values.T.tolist()))
    write_csv(path, heading, lines)


def strengths_drawing(plot: Callable[[Any], Any], model: Any) -> Drawing:
    return Drawing(
        partial(plot, model), ("strengths.png", "strengths.svg"), "strengths against the noise"
    )
