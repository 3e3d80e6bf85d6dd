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
from eigenveil.models.task import TASKS


@dataclass(frozen=True)
class Drawing:
    """A figure of a result folder: axes, which are written to each of ``files``."""

    plot: Callable[[Any], Any]
    model: Any
    name: str
    what: str

    @property
    def files(self) -> tuple[str, ...]:
        return f"{self.name}.png", f"{self.name}.svg"

    def draw(self) -> Any:
        return self.plot(self.model)


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
    clear: ClassVar[str] = "directions stand above the noise"
    """What those do that are ``usable_``."""
    cites: ClassVar[tuple[str, ...]] = ()
    """Keys of what a report cites beside its releases' sources."""
    said: ClassVar[str] = "scores"
    """What the values of new rows are."""
    each: ClassVar[str] = ""
    """What one of them is, before its number."""

    def takes_holes(self, model: Any) -> bool:
        """Whether new rows may have missing entries."""
        return False

    def title(self, model: Any) -> str:
        """What was computed, as a heading."""
        return TASKS[self.task].heading

    def fitted(self, model: Any) -> Any:
        """The model that rows were read for."""
        return model

    def method(self, model: Any) -> str:
        """What was computed beside it, as a sentence of a paper's methods; empty of most."""
        return ""

    def to_use(self, model: Any) -> str:
        """How a result's folder is used."""
        return (
            "eigenveil transform RESULT ROWS --out FILE, or "
            f"eigenveil.{type(model).__name__}.load('RESULT/model.npz')"
        )

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
        return None

    def new_names(self, model: Any) -> list[str]:
        """Headings of what :meth:`new_values` gives."""
        return [f"{self.each}{number + 1}" for number in range(model.n_components_)]

    def warn_of_new(self, model: Any) -> None:
        """Warn of columns that show noise alone, before any is computed."""
        if hasattr(model, "warn_of_noise"):
            model.warn_of_noise()

    def likeliest(self, model: Any) -> NDArray[Any] | None:
        """What each new value is of, where a column says of which the largest is."""
        return None

    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        """The model's result for new rows, shape (n, columns).

        Their columns were matched by name already, and come without names. Of components that are
        not usable a command warns once, not with every block.
        """
        with columns_matched():
            return np.asarray(self._new_values(model, rows))

    def _new_values(self, model: Any, rows: Any) -> Any:
        return model.transform(rows)


def interval_texts(
    lower: NDArray[np.float64], upper: NDArray[np.float64], *, digits: str
) -> list[str]:
    """Intervals as cells of a table."""
    ends = zip(lower.tolist(), upper.tolist(), strict=True)
    return [
        f"{low:{digits}} to {high:{digits}}" if low == low else "not shown" for low, high in ends
    ]


def at_most_texts(upper: NDArray[np.float64]) -> list[str]:
    """Bounds from above as cells of a table."""
    return [f"{top:.1f} at most" if top == top else "not shown" for top in upper.tolist()]


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


def in_sentence(title: str) -> str:
    """A title as a part of a sentence."""
    return f"{title[:1].lower()}{title[1:]}"


def names_of(model: Any) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def name_of(names: Sequence[str] | None, index: int) -> str:
    return str(index) if names is None else names[index]


@contextmanager
def columns_matched() -> Iterator[None]:
    """For rows whose columns were matched by name already, and come without names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        warnings.simplefilter("ignore", NoisyResultWarning)
        yield
