"""Which rows an experiment runs on: files at hand, fetched ones, or what is shipped instead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.experiments import data_fetched, data_files, data_shipped
from eigenveil.experiments.experiment import Settings

FloatArray = NDArray[np.float64]

_SHARED = "EIGENVEIL_SHARED"
_STAND_INS = {
    "mnist": "digits",
    "fashion-mnist": "digits",
    "covtype": "breast-cancer",
    "wine": "cultivars",
    "motes-light": "made-up-sensors",
    "motes-volt": "made-up-sensors",
}
NAMES = (*_STAND_INS, "digits", "breast-cancer")
"""The names that :func:`find` knows."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from; small, so that it is an argument of a task.

    Attributes
    ----------
    name : str
        The data set that is read.
    path : str
        Its file (or the folder of its files), or empty for what is shipped.
    digest : str
        Of the files' bytes: it names the rows in a task's key, wherever the file lies.
    stand_in_for : str
        The data set that was wanted and is not at hand, or empty.
    """

    name: str
    path: str = ""
    digest: str = ""
    stand_in_for: str = ""

    def as_arguments(self) -> dict[str, Any]:
        """Plain values for ``Task.arguments``."""
        return asdict(self)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Source:
        """What :meth:`as_arguments` said."""
        return cls(**arguments)


@dataclass(frozen=True, kw_only=True, eq=False)
class DataSet:
    """Rows as they were recorded.

    Attributes
    ----------
    name : str
    X : array of shape (n, D)
        Raw rows, read-only, for they are kept for the process's other tasks.
    y : array of shape (n,) or None
        Classes, 0 to C - 1.
    columns : tuple of str
        One for each column.
    title : str
        For figures; says so where another data set stands in.
    """

    name: str
    X: FloatArray
    y: NDArray[np.int64] | None
    columns: tuple[str, ...]
    title: str


def find(name: str, settings: Settings) -> Source:
    """Where the rows of a data set are.

    Looked for in ``settings.folder``, in the folder ``data`` of the shared folder beside a
    development checkout (or of ``EIGENVEIL_SHARED``), among those fetched before, and, if
    ``settings.fetch``, in the network. Else a smaller data set that is shipped stands in, unless
    ``settings.data`` names this one.

    Raises
    ------
    DataError
        For an unknown name, files that cannot be read, or rows that were asked for by name and are
        not at hand.
    """
    if name not in NAMES:
        raise DataError(
            f"There is no data set {name!r}.",
            hint=f"Those known are {', '.join(NAMES)}.",
            code="unknown-data-set",
        )
    if name not in _STAND_INS:
        return Source(name=name)
    if settings.folder is not None and not settings.folder.is_dir():
        raise DataError(
            f"{settings.folder} is not a folder.",
            hint="--data-folder is the folder in which the data sets' files lie.",
            code="no-data-folder",
        )
    places = [settings.folder, shared_folder("data"), data_fetched.folder()]
    for place in places:
        if place is not None and (path := data_files.recognise(name, place)) is not None:
            return Source(name=name, path=str(path.resolve()), digest=data_files.digest(path))
    if settings.fetch:
        path = data_fetched.fetch(name)
        return Source(name=name, path=str(path), digest=data_files.digest(path))
    if settings.data == name:
        raise DataError(f"{name} is not at hand.", hint=_how_to_get(name), code="no-data")
    return Source(name=_STAND_INS[name], stand_in_for=name)


def at_hand(name: str, settings: Settings) -> bool:
    """Whether a data set's own rows are found without the network."""
    without = Settings(scale=settings.scale, folder=settings.folder)
    return find(name, without).stand_in_for == ""


def load(source: Source) -> DataSet:
    """The rows, kept for the process's next tasks.

    Raises
    ------
    DataError
        When the file is gone or does not hold such rows.
    """
    return _load(source)


@lru_cache(maxsize=4)
def _load(source: Source) -> DataSet:
    rows = data_files.read(source.name, Path(source.path)) if source.path else None
    if rows is None:
        rows = data_shipped.make(source.name)
    numeric = rows.X.ndim == 2 and rows.X.size and np.issubdtype(rows.X.dtype, np.number)
    X = np.ascontiguousarray(rows.X, dtype=np.float64) if numeric else np.zeros((0, 0))
    if not X.size or not np.isfinite(X).all():
        raise DataError(
            f"{source.path or source.name}: the rows are not a table of finite numbers.",
            hint="Replace the file by the original.",
            code="unreadable-data",
        )
    X.setflags(write=False)
    classes = None
    if rows.y is not None:
        classes = np.unique(rows.y, return_inverse=True)[1].astype(np.int64)
        classes.setflags(write=False)
    title = rows.title
    if source.stand_in_for:
        title = f"{title}, in place of {_TITLES[source.stand_in_for]}"
    columns = rows.columns or tuple(f"x{number}" for number in range(X.shape[1]))
    return DataSet(name=source.name, X=X, y=classes, columns=columns, title=title)


_TITLES = data_files.TITLES


def title_of(source: Source) -> str:
    """The data set's name for figures, without reading its rows."""
    own = _TITLES.get(source.name) or data_shipped.TITLES[source.name]
    return f"{own}, in place of {_TITLES[source.stand_in_for]}" if source.stand_in_for else own


def unit_rows(X: FloatArray) -> FloatArray:
    """Rows less their exact mean, divided by the largest norm, (n, D).

    The preprocessing of the papers. It looks at the rows without noise, so what follows is private
    for someone who was told the mean and the largest norm, not for others.
    """
    centred = X - X.mean(axis=0)
    largest = float(np.sqrt(np.max(np.einsum("ij,ij->i", centred, centred))))
    return np.asarray(centred / largest if largest > 0.0 else centred, dtype=np.float64)


def shared_folder(part: str) -> Path | None:
    """A folder of reference data: of ``EIGENVEIL_SHARED``, or beside a development checkout."""
    said = os.environ.get(_SHARED)
    checkout = Path(__file__).resolve().parents[3]
    if said:
        root = Path(said)
    elif (checkout / "pyproject.toml").is_file():
        root = checkout.parent / "shared"
    else:
        return None
    return root / part if (root / part).is_dir() else None


def _how_to_get(name: str) -> str:
    network = ", or let --fetch get it from OpenML" if name in data_fetched.KNOWN else ""
    return (
        f"Put {data_files.WANTED[name]} into a folder and say --data-folder FOLDER{network}; "
        f"without --data {name} its stand-in {_STAND_INS[name]} is used."
    )
