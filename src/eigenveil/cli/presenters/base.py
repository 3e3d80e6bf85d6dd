"""What the commands need to know of a task: its estimators, and how a result is shown and kept."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.cli.presenters.screen import Screen
from eigenveil.models.stored import StoredModel


@dataclass(frozen=True)
class Drawing:
    """A figure of a result folder.

    ``axes`` are written to each of ``files``.
    """

    axes: Any
    files: tuple[str, ...]
    what: str


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
    def show(self, model: Any, out: Screen) -> None:
        """Print the components."""

    @abstractmethod
    def write(self, model: Any, folder: Path) -> list[tuple[str, str]]:
        """Write tables of the components; returns (file, what it is)."""

    @abstractmethod
    def drawings(self, model: Any) -> Iterator[Drawing]:
        """Figures of what is released."""

    @abstractmethod
    def new_names(self, model: Any) -> list[str]:
        """Headings of what :meth:`new_values` gives."""

    @abstractmethod
    def new_values(self, model: Any, rows: Any) -> NDArray[np.floating[Any]]:
        """The model's result for new rows, shape (n, columns)."""


def names_of(model: Any) -> list[str] | None:
    """Names of a model's features, if they have any."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def name_of(names: Sequence[str] | None, index: int) -> str:
    """A feature's name, or its number."""
    return str(index) if names is None else names[index]


@contextmanager
def columns_matched() -> Iterator[None]:
    """For rows whose columns were matched by name already, and come without names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        yield
