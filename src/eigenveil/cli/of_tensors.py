"""What results of mixtures and of topics have in common."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eigenveil.cli.screen import Screen, bold


def strength_values(model: Any) -> dict[str, Any]:
    """Strengths against the noise, as plain values."""
    return {
        "strengths": model.strengths_.tolist(),
        "noise_floor": model.noise_floor_,
        "usable": model.usable_.tolist(),
        "converged": model.converged_,
    }


_MOST_STRENGTHS = 8


def print_strengths(model: Any, out: Screen, *, things: str) -> None:
    """How far the components stand above the noise, and a warning where they do not."""
    count, above = model.n_components_, int(model.usable_.sum())
    shown = [f"{value:.4g}" for value in model.strengths_[: max(count, 1)]]
    if len(shown) > _MOST_STRENGTHS:
        shown = [*shown[: _MOST_STRENGTHS - 1], "...", shown[-1]]
    out.print(
        f"strengths: {', '.join(shown)}; noise alone shows up to {model.noise_floor_:.4g}: "
        f"{above} of {count} {things} stand above it."
    )
    if above < count:
        out.print(
            bold("  not usable:"),
            f"{count - above} of them show noise, and mix with the others.",
        )
    asked = None if model.plan_.auto_components else model.plan_.n_components
    if asked is not None and count < asked:
        out.print(f"  only {count} of the {asked} {things} asked for stand above the noise.")
    if not model.converged_:
        out.print("  note: a power iteration did not converge; those with little weight are vague.")


def write_csv(path: Path, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """A table of text and numbers, these in full."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(heading)
        for line in lines:
            writer.writerow([each if isinstance(each, str) else repr(each) for each in line])


@contextmanager
def columns_matched() -> Iterator[None]:
    """For rows whose columns were matched by name already, and come without names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield
