"""Which rows an experiment runs on: files at hand, or what is shipped instead."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil_papers.reproduction.data_files import (
    KNOWN_FILES,
    TITLES,
    WANTED,
    DataFileRows,
    digest,
    names_itself,
    read,
    recognise,
)
from eigenveil_papers.reproduction.experiment import RunSettings
from eigenveil_papers.reproduction.numbers import FloatArray

# -- Data sets that come with the package's dependencies, or are made up: always at hand.


SHIPPED_TITLES = {
    "digits": "digits",
    "breast-cancer": "breast cancer",
    "cultivars": "wine cultivars",
    "made-up-sensors": "made-up sensors",
}


def make(name: str) -> DataFileRows:
    """The rows of a shipped data set; the same at every call."""
    from sklearn import datasets  # takes longer to import than all of this room

    if name == "made-up-sensors":
        return DataFileRows(X=_sensors(), title=SHIPPED_TITLES[name])
    loaders = {
        "digits": datasets.load_digits,
        "breast-cancer": datasets.load_breast_cancer,
        "cultivars": datasets.load_wine,
    }
    if name not in loaders:
        raise DataError("unknown-data-set", whose="The package", name=name, known=", ".join(NAMES))
    found = loaders[name]()
    columns = tuple(str(column) for column in found.feature_names)
    return DataFileRows(X=found.data, y=found.target, columns=columns, title=SHIPPED_TITLES[name])


def _sensors(rows: int = 3000, sensors: int = 48, day: int = 288) -> NDArray[np.float64]:
    """Readings of light sensors in a building: days, lamps that are switched, and noise.

    Low rank and changing with time, as real ones are; shape (rows, sensors).
    """
    rng = np.random.default_rng(48)
    time = np.arange(rows)
    sun = np.clip(np.sin(2.0 * np.pi * (time / day - 0.25)), 0.0, None)
    clouds = np.convolve(rng.standard_normal(rows), np.ones(24) / 24, mode="same")
    hour = (time % day) / day
    lamps = [(hour > start) & (hour < end) for start, end in ((0.33, 0.75), (0.4, 0.9), (0.3, 0.5))]
    factors = np.column_stack([sun, sun * clouds, *lamps]).astype(np.float64)
    loadings = rng.gamma(2.0, 100.0, (factors.shape[1], sensors))
    loadings *= rng.random(loadings.shape) < 0.6
    return np.asarray(factors @ loadings + 5.0 * rng.standard_normal((rows, sensors)) + 40.0)


# -- Finding and loading.


T = TypeVar("T")

_SHARED = "EIGENVEIL_SHARED"
_STAND_INS = {
    "mnist": "digits",
    "fashion-mnist": "digits",
    "covtype": "breast-cancer",
    "wine": "cultivars",
    **{name: "made-up-sensors" for name in KNOWN_FILES if name.startswith("motes-")},
}
NAMES = (*_STAND_INS, "digits", "breast-cancer")
"""The names that :func:`find` knows."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from; small, so that it is an argument of a task."""

    name: str  # The data set that is read
    path: str = ""  # Its file (or the folder of its files), or empty for what is shipped
    # Of the files' bytes: it names the rows in a task's key, wherever the file lies
    digest: str = ""
    stand_in_for: str = ""  # The data set that was wanted and is not at hand, or empty
    # The file's name, where a person said what it holds and it does not say so itself
    file: str = ""
    # Where only this is known of the rows, as when what was measured on them is drawn anew: the
    # number of features, then the rows of each class
    shape: tuple[int, ...] = ()

    def as_arguments(self) -> dict[str, Any]:
        return asdict(self) | {"shape": list(self.shape)}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Source:
        return cls(**{**arguments, "shape": tuple(arguments.get("shape", ()))})

    def described(self) -> Source:
        """The same without its path, but with the shape of its rows."""
        found = load(self)
        counts = [len(found.X)] if found.y is None else np.bincount(found.y).tolist()
        return replace(self, path="", shape=(found.X.shape[1], *counts))


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    name: str
    X: FloatArray  # Raw rows, read-only, for they are kept for the process's other tasks
    y: NDArray[np.int64] | None  # Classes, 0 to C - 1
    columns: tuple[str, ...]  # One for each column
    title: str  # For figures; says so where another data set stands in


def find(name: str, settings: RunSettings) -> Source:
    """Where the rows of a data set are.

    Looked for in ``settings.folder`` (there, if ``settings.data`` names it, its only table is
    taken, whatever the file is called), and in the folder ``data`` of the shared folder beside a
    development checkout (or of ``EIGENVEIL_SHARED``). Else, unless ``settings.data`` names this
    one, another stands in: Fashion-MNIST for MNIST if it is at hand, or a smaller one that is
    shipped.
    """
    if name not in NAMES:
        raise DataError("unknown-data-set", whose="The package", name=name, known=", ".join(NAMES))
    for source in settings.sources:
        if name == (source.stand_in_for or source.name):
            return source  # type: ignore[no-any-return]
    if settings.sources and name in _STAND_INS:
        raise ValueError(f"what was measured is not of {name}, which is asked for")
    if name not in _STAND_INS:
        return Source(name=name)
    if settings.folder is not None and not settings.folder.is_dir():
        raise DataError("no-data-folder", folder=settings.folder)
    own = _at_hand(name, settings)
    if own is not None:
        return own
    if settings.data == name:
        raise DataError("no-data", name=name, way_out=_how_to_get(name))
    if name == "mnist" and (other := _at_hand("fashion-mnist", settings)) is not None:
        return replace(other, stand_in_for=name)
    return Source(name=_STAND_INS[name], stand_in_for=name)


def _at_hand(name: str, settings: RunSettings) -> Source | None:
    for place in (settings.folder, shared_folder("data")):
        if place is None or not place.is_dir():
            continue
        asked = place == settings.folder and settings.data == name
        path = recognise(name, place, asked=asked)
        if path is not None:
            file = "" if names_itself(name, path) else path.name
            return Source(name=name, path=str(path.resolve()), digest=digest(path), file=file)
    return None


def at_hand(name: str, settings: RunSettings) -> bool:
    """Whether a data set's own rows are found."""
    return find(name, replace(settings, data=None)).stand_in_for == ""


def load(source: Source) -> DataSet:
    return _load(source)


@lru_cache(maxsize=4)
def _load(source: Source) -> DataSet:
    if source.shape:
        features, *counts = source.shape
        y = np.repeat(np.arange(len(counts)), counts)
        X = np.broadcast_to(0.0, (y.size, features))
        return DataSet(name=source.name, X=X, y=y, columns=(), title=title_of(source))
    rows = read(source.name, Path(source.path)) if source.path else None
    if rows is None:
        rows = make(source.name)
    numeric = rows.X.ndim == 2 and rows.X.size and np.issubdtype(rows.X.dtype, np.number)
    X = np.ascontiguousarray(rows.X, dtype=np.float64) if numeric else np.zeros((0, 0))
    if not X.size or not np.isfinite(X).all():
        raise DataError(
            "unreadable-data",
            path=source.path or source.name,
            reason="the rows are not a table of finite numbers",
        )
    X.setflags(write=False)
    classes = None
    if rows.y is not None:
        classes = np.unique(rows.y, return_inverse=True)[1].astype(np.int64)
        classes.setflags(write=False)
    columns = rows.columns or tuple(f"x{number}" for number in range(X.shape[1]))
    return DataSet(name=source.name, X=X, y=classes, columns=columns, title=title_of(source))


def some_of(places: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """At most so many of these places, in order: drawn at random, the same ones every time."""
    if len(places) <= most:
        return places
    return np.sort(np.random.default_rng(3).choice(places, most, replace=False))


def drawn_rows(source: Source, most: int | None = None) -> FloatArray:
    """Its rows, or as many as that drawn from them."""
    X = load(source).X
    return X if most is None or len(X) <= most else X[some_of(np.arange(len(X)), most)]


def title_of(source: Source) -> str:
    """The data set's name for figures, without reading its rows."""
    own = TITLES.get(source.name) or SHIPPED_TITLES[source.name]
    if source.file:
        own = f"{own} ({source.file})"
    return f"{own}, in place of {TITLES[source.stand_in_for]}" if source.stand_in_for else own


def kept(make: Callable[[Mapping[str, Any]], T]) -> Callable[[Mapping[str, Any]], T]:
    """The same function of JSON values; its last results are kept for the process's other tasks."""
    of_text = lru_cache(maxsize=3)(lambda text: make(json.loads(text)))
    return lambda data: of_text(json.dumps(data, sort_keys=True))


def unit_rows(X: FloatArray) -> FloatArray:
    """Rows less their exact mean, divided by the largest norm, (n, D).

    The preprocessing of the papers. It looks at the rows without noise, so what follows is private
    for someone who was told the mean and the largest norm, not for others.
    """
    centered = X - X.mean(axis=0)
    largest = float(np.sqrt(np.max(np.einsum("ij,ij->i", centered, centered))))
    return np.asarray(centered / largest if largest > 0.0 else centered, dtype=np.float64)


def shared_folder(part: str) -> Path | None:
    """A folder of reference data: of ``EIGENVEIL_SHARED``, or beside a development checkout."""
    folder = os.environ.get(_SHARED)
    checkout = Path(__file__).resolve().parents[4]
    if folder:
        root = Path(folder)
    elif (checkout / "pyproject.toml").is_file():
        root = checkout.parent / "shared"
    else:
        return None
    return root / part if (root / part).is_dir() else None


def _how_to_get(name: str) -> str:
    return (
        f"Put {WANTED[name]} into a folder and say --data-folder FOLDER; "
        f"without --data {name} its stand-in {_STAND_INS[name]} is used."
    )
