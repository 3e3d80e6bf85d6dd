"""Files in which data sets are given, by name, and reading them."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from eigenveil.errors import DataError

TITLES = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "covtype": "COVTYPE",
    "wine": "red wine",
    "motes-light": "motes, light",
    "motes-volt": "motes, voltage",
}
_IDX = "train-images-idx3-ubyte[.gz] and train-labels-idx1-ubyte[.gz]"
WANTED = {
    "mnist": f"mnist*.npz (X or x_train, y), or {_IDX}",
    "fashion-mnist": f"fashion*.npz (X or x_train, y), or a folder fashion-mnist with {_IDX}",
    "covtype": "covtype*.npz (X, y), or covtype.data[.gz] of the UCI repository",
    "wine": "wine*.npz (X), or winequality-red.csv of the UCI repository",
    "motes-light": "motes_light.npz (X)",
    "motes-volt": "motes_volt.npz (X)",
}
_ARCHIVES = {
    "mnist": "mnist*.npz",
    "fashion-mnist": "fashion*.npz",
    "covtype": "covtype*.npz",
    "wine": "wine*.npz",
    "motes-light": "motes_light*.npz",
    "motes-volt": "motes_volt*.npz",
}
_TABLES = {
    "covtype": ("covtype.data", "covtype.data.gz"),
    "wine": ("winequality-red.csv",),
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
