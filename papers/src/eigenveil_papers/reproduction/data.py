"""Files in which data sets are given, by name, and reading them."""

from __future__ import annotations

import gzip
import hashlib
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.files import replacing
from eigenveil_papers.reproduction.experiment import Settings

TITLES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "covtype": "COVTYPE",
    "wine": "red wine",
    "motes-light": "motes, light",
    "motes-volt": "motes, voltage",
    "motes-humidity": "motes, humidity",
    "motes-temperature": "motes, temperature",
}
_IDX = "train-images-idx3-ubyte[.gz] and train-labels-idx1-ubyte[.gz]"
WANTED = {
    "mnist": f"mnist*.npz (X or x_train, y), or {_IDX}",
    "fashion-mnist": f"fashion*.npz (X or x_train, y), or a folder fashion-mnist with {_IDX}",
    "covtype": "covtype*.npz (X, y), or covtype.data[.gz] of the UCI repository",
    "wine": "wine*.npz (X), or winequality-red.csv of the UCI repository",
    "motes-light": "motes_light.npz (X) or q8calibLight.dat",
    "motes-volt": "motes_volt.npz (X) or q8calibVolt.dat",
    "motes-humidity": "motes_humidity.npz (X) or q8calibHumid.dat",
    "motes-temperature": "motes_temperature.npz (X) or q8calibHumTemp.dat",
}
_ARCHIVES = {
    "mnist": "mnist*.npz",
    "fashion-mnist": "fashion*.npz",
    "covtype": "covtype*.npz",
    "wine": "wine*.npz",
    "motes-light": "motes_light*.npz",
    "motes-volt": "motes_volt*.npz",
    "motes-humidity": "motes_humidity*.npz",
    "motes-temperature": "motes_temperature*.npz",
}
_TABLES = {
    "covtype": ("covtype.data", "covtype.data.gz"),
    "wine": ("winequality-red.csv",),
    "motes-light": ("q8calibLight.dat",),
    "motes-volt": ("q8calibVolt.dat",),
    "motes-humidity": ("q8calibHumid.dat",),
    "motes-temperature": ("q8calibHumTemp.dat",),
}
_IMAGES = (
    "train-images-idx3-ubyte",
    "train-images.idx3-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-images.idx3-ubyte",
)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a file holds: as of ``DataSet``, but of any type of numbers."""

    X: NDArray[Any]
    y: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()
    title: str


def recognise(name: str, folder: Path) -> Path | None:
    """The file of a data set in a folder, or in one of its own in there; the largest of several."""
    for place in (folder, *(folder / own for own in (name, name.replace("-", "_")))):
        archives = sorted(place.glob(_ARCHIVES[name]), key=lambda at: (-at.stat().st_size, at.name))
        others = [place / table for table in _TABLES.get(name, ())]
        # files of both sets of images have the same names: the folder's name tells them apart
        if name in ("mnist", "fashion-mnist") and ("fashion" in name) == ("fashion" in place.name):
            others += [place / (image + end) for image in _IMAGES for end in ("", ".gz")]
        found = [*archives, *(other for other in others if other.is_file())]
        if found:
            return found[0]
    return None


def digest(path: Path) -> str:
    """Of the bytes that :func:`read` will read."""
    hasher = hashlib.sha256()
    for part in (path, _labels(path)):
        if part is not None:
            try:
                with part.open("rb") as file:
                    while block := file.read(1 << 20):
                        hasher.update(block)
            except OSError as error:
                raise _unreadable(path, error) from None
    return hasher.hexdigest()[:32]


def read(name: str, path: Path) -> Rows:
    """The rows of a file that :func:`recognise` found.

    Raises
    ------
    DataError
        When it is not what its name says.
    """
    try:
        if path.suffix == ".npz":
            return _read_archive(name, path)
        if "-ubyte" in path.name:
            labels = _labels(path)
            images = _read_idx(path)
            return Rows(
                X=images.reshape(images.shape[0], -1),
                y=None if labels is None else _read_idx(labels),
                title=TITLES[name],
            )
        if path.suffix == ".dat":  # numbers apart by white space, one row a line
            return Rows(X=np.loadtxt(path, ndmin=2), title=TITLES[name])
        return _read_table(name, path)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, pa.ArrowException) as bad:
        raise _unreadable(path, bad) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} cannot be read ({error}).",
        hint="Replace the file by the original.",
        code="unreadable-data",
    )


def _read_archive(name: str, path: Path) -> Rows:
    with np.load(path, allow_pickle=False) as archive:
        X = archive["X" if "X" in archive else "x_train"]
        labels = next((archive[key] for key in ("y", "y_train") if key in archive), None)
        columns = tuple(str(c) for c in archive["columns"]) if "columns" in archive else ()
    return Rows(X=X.reshape(X.shape[0], -1), y=labels, columns=columns, title=TITLES[name])


def _labels(images: Path) -> Path | None:
    if "-ubyte" not in images.name:
        return None
    path = images.with_name(images.name.replace("images", "labels").replace("idx3", "idx1"))
    return path if path.is_file() else None


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """The format of MNIST: two zeros, the type, the number of axes, their lengths, the bytes."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    axes = content[3] if content[:3] == b"\x00\x00\x08" else 0
    shape = np.frombuffer(content, dtype=">u4", count=axes, offset=4).astype(int)
    if not axes or len(content) != 4 + 4 * axes + int(np.prod(shape)):
        raise ValueError("not an idx file of bytes, or not whole")
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def _read_table(name: str, path: Path) -> Rows:
    wine = name == "wine"
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=not wine),
        parse_options=pyarrow.csv.ParseOptions(delimiter=";" if wine else ","),
    )
    values = np.column_stack([column.to_numpy() for column in table.columns])
    names: Sequence[str] = table.column_names[:-1] if wine else ()
    return Rows(X=values[:, :-1], y=values[:, -1], columns=tuple(names), title=TITLES[name])


# -- Data sets from OpenML, for people with a network: fetched once, when asked for.


KNOWN = {"mnist": 554, "fashion-mnist": 40996, "covtype": 1596, "wine": 40691}
"""Their numbers at OpenML, which name one version each."""


def folder() -> Path:
    """Where fetched data sets are kept: beside those of scikit-learn."""
    from sklearn.datasets import get_data_home

    # only named here: asking whether there is a folder should not make it
    return Path(get_data_home()) / "eigenveil"


def fetch(name: str) -> Path:
    """Fetch a data set; the file it was written to.

    Raises
    ------
    DataError
        When it is not known there, or the network gives no answer.
    """
    if name not in KNOWN:
        raise DataError(
            f"{name} cannot be fetched.",
            hint=f"Of OpenML there are {', '.join(KNOWN)}; give its file with --data-folder.",
            code="cannot-fetch",
        )
    from sklearn.datasets import fetch_openml

    try:
        found = fetch_openml(data_id=KNOWN[name], as_frame=False, parser="liac-arff")
    except Exception as error:  # whatever the network, the server or its file does
        raise DataError(
            f"{name} could not be fetched from OpenML ({type(error).__name__}: {error}).",
            hint="Try again, or give its file with --data-folder.",
            code="cannot-fetch",
        ) from error
    home = folder()
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{name.replace('-', '_')}.npz"
    X = np.asarray(found.data, dtype=np.float64)
    whole = np.array_equal(X, X.astype(np.int16))
    columns = np.array([str(column) for column in found.feature_names])
    with replacing(path) as scratch, scratch.open("wb") as file:
        np.savez_compressed(
            file, X=X.astype(np.int16) if whole else X, y=found.target.astype(str), columns=columns
        )
    return path


# -- Data sets that come with the package's dependencies, or are made up: always at hand.


SHIPPED_TITLES = {
    "digits": "digits",
    "breast-cancer": "breast cancer",
    "cultivars": "wine cultivars",
    "made-up-sensors": "made-up sensors",
}


def make(name: str) -> Rows:
    """The rows of a shipped data set; the same at every call.

    Raises
    ------
    DataError
        For a name that is not of :data:`TITLES`.
    """
    from sklearn import datasets  # takes longer to import than all of this room

    if name == "made-up-sensors":
        return Rows(X=_sensors(), title=SHIPPED_TITLES[name])
    loaders = {
        "digits": datasets.load_digits,
        "breast-cancer": datasets.load_breast_cancer,
        "cultivars": datasets.load_wine,
    }
    if name not in loaders:
        raise DataError(f"There is no data set {name!r} that is shipped.", code="unknown-data-set")
    found = loaders[name]()
    columns = tuple(str(column) for column in found.feature_names)
    return Rows(X=found.data, y=found.target, columns=columns, title=SHIPPED_TITLES[name])


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


# -- Which rows an experiment runs on: files at hand, fetched ones, or what is shipped instead.


FloatArray = NDArray[np.float64]

_SHARED = "EIGENVEIL_SHARED"
_STAND_INS = {
    "mnist": "digits",
    "fashion-mnist": "digits",
    "covtype": "breast-cancer",
    "wine": "cultivars",
    "motes-light": "made-up-sensors",
    "motes-volt": "made-up-sensors",
    "motes-humidity": "made-up-sensors",
    "motes-temperature": "made-up-sensors",
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
    places = [settings.folder, shared_folder("data"), folder()]
    for place in places:
        if place is not None and (path := recognise(name, place)) is not None:
            return Source(name=name, path=str(path.resolve()), digest=digest(path))
    if settings.fetch:
        path = fetch(name)
        return Source(name=name, path=str(path), digest=digest(path))
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
    rows = read(source.name, Path(source.path)) if source.path else None
    if rows is None:
        rows = make(source.name)
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


_TITLES = TITLES


def title_of(source: Source) -> str:
    """The data set's name for figures, without reading its rows."""
    own = _TITLES.get(source.name) or SHIPPED_TITLES[source.name]
    return f"{own}, in place of {_TITLES[source.stand_in_for]}" if source.stand_in_for else own


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
    network = ", or let --fetch get it from OpenML" if name in KNOWN else ""
    return (
        f"Put {WANTED[name]} into a folder and say --data-folder FOLDER{network}; "
        f"without --data {name} its stand-in {_STAND_INS[name]} is used."
    )
