"""What the commands need to know of a task: its estimators, and how a result is shown and kept."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.app.parts import Part
from eigenveil.errors import NoisyResultWarning
from eigenveil.models.intervals.asked import intervals_of
from eigenveil.models.intervals.bars import Quantity
from eigenveil.models.stored import StoredModel


@dataclass(frozen=True)
class Drawing:
    """A figure of a result folder.

    ``draw`` returns Axes, which are written to each of ``files``.
    """

    draw: Callable[[], Any]
    files: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Comparison:
    """Two results beside each other: a sentence, and a line of numbers a component."""

    about: str
    headings: Sequence[str]
    lines: Sequence[Sequence[str]]


class Presenter(ABC):
    """A task as the commands meet it; one instance each."""

    task: ClassVar[str]
    stored: ClassVar[type[StoredModel]]
    """What the models of all the task's estimators are."""
    said: ClassVar[str] = "scores"
    """What the values of new rows are."""
    takes_holes: ClassVar[bool] = False
    """Whether new rows may have missing entries, where those of the fit could."""
    label: ClassVar[str | None] = None
    """Heading of the column with the number of the largest new value, if there is one."""

    @abstractmethod
    def values(self, model: Any) -> dict[str, Any]:
        """The released result as plain values."""

    @abstractmethod
    def parts(self, model: Any) -> Iterator[Part]:
        """The components, in tables and sentences."""

    @abstractmethod
    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        """Write tables of the components; returns (file, what it is)."""

    @abstractmethod
    def drawings(self, model: Any) -> Iterator[Drawing]:
        """Figures of what is released."""

    def compare(self, one: Any, other: Any) -> Comparison | None:
        """How two results of the same columns differ; ``None`` where that is not worked out."""
        del one, other
        return None

    @abstractmethod
    def new_names(self, model: Any) -> list[str]:
        """Headings of what :meth:`new_values` gives."""

    def warn_of_new(self, model: Any) -> None:
        """Warn of columns that show noise alone, before any is computed."""
        del model

    @abstractmethod
    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        """The model's result for new rows, shape (n, columns)."""


def interval_texts(
    lower: NDArray[np.float64], upper: NDArray[np.float64], *, digits: str
) -> list[str]:
    """Intervals as cells of a table."""
    ends = zip(lower.tolist(), upper.tolist(), strict=True)
    return [
        f"{low:{digits}} to {high:{digits}}" if low == low else "not shown" for low, high in ends
    ]


def interval_ends(model: Any, of: str, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """By heading: the ends of the intervals of entries, of components all of whose have some."""
    found = intervals_of(model)
    if isinstance(found, str):
        return {}
    entries = found[of]
    return {
        f"{name} {end}": getattr(entries, end)[index]
        for index, name in enumerate(names)
        if entries.shown[index].all()
        for end in ("lower", "upper")
    }


def not_shown(quantity: Quantity) -> str:
    """How many intervals are not shown, and why, as a sentence; empty where all are."""
    reasons = "; ".join(f"{count} as {reason}" for reason, count in quantity.not_shown().items())
    return f" Not shown: {reasons}." if reasons else ""


def or_none(values: NDArray[np.float64]) -> list[float | None]:
    """As JSON has them: ``None`` where noise hides one."""
    return [None if np.isnan(value) else float(value) for value in values]


def names_of(model: Any) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def name_of(names: Sequence[str] | None, index: int) -> str:
    return str(index) if names is None else names[index]


def labels_of(model: Any, most: int | None = None) -> list[str]:
    names = names_of(model)
    count = model.n_features_in_
    return [
        str(index + 1) if names is None else names[index]
        for index in range(count if most is None else min(most, count))
    ]


@contextmanager
def columns_matched() -> Iterator[None]:
    """For rows whose columns were matched by name already, and come without names.

    Of components that are not usable a command warns once, not with every block.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        warnings.simplefilter("ignore", NoisyResultWarning)
        yield
