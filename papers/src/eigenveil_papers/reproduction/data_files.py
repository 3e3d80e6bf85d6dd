"""Files in which data sets are given, by name, and reading them."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from eigenveil.errors import DataError


@dataclass(frozen=True, kw_only=True)
class KnownFile:
    title: str  # For figures
    # Its numeric columns without classes; None where they are not always as many
    columns: int | None
    patterns: tuple[str, ...]  # Names of its files, in lower case, best first
    wanted: str  # Its files in words
    # The share of its entries that are 0 lies between: images of the same shape are told apart
    zeros: tuple[float, float] | None = None

    @property
    def is_images(self) -> bool:
        """Whether it comes as idx files too, whose names do not say of what."""
        return self.zeros is not None


_IDX = "train-images-idx3-ubyte[.gz] and train-labels-idx1-ubyte[.gz]"
KNOWN_FILES: dict[str, KnownFile] = {
    "mnist": KnownFile(
        title="MNIST",
        columns=784,
        patterns=("mnist*.npz", "mnist*.csv*"),
        wanted=f"mnist*.npz (X or x_train, y), mnist*.csv, or {_IDX}, also in MNIST/raw",
        zeros=(0.65, 1.0),
    ),
    "fashion-mnist": KnownFile(
        title="Fashion-MNIST",
        columns=784,
        patterns=("fashion*.npz", "fashion*.csv*"),
        wanted=f"fashion*.npz (X or x_train, y), fashion*.csv, or {_IDX}, also in FashionMNIST/raw "
        "or as Debian's package dataset-fashion-mnist installs them",
        zeros=(0.0, 0.65),
    ),
    "covtype": KnownFile(
        title="COVTYPE",
        columns=54,
        patterns=("covtype*.npz", "covtype.data", "covtype.data.gz", "covtype*.csv*"),
        wanted="covtype*.npz (X, y), covtype.data[.gz] of the UCI repository, or covtype*.csv",
    ),
    "wine": KnownFile(
        title="red wine",
        columns=11,
        patterns=("wine*.npz", "winequality-red.csv", "wine*.csv*"),
        wanted="wine*.npz (X), or winequality-red.csv of the UCI repository",
    ),
    **{
        f"motes-{name}": KnownFile(
            title=f"motes, {title}",
            columns=None,
            patterns=(f"motes_{name}*.npz", f"*{sign}*.dat", f"*{sign}*.csv*"),
            wanted=f"motes_{name}.npz (X), or a file *{sign}*.dat of numbers in columns",
        )
        for name, sign, title in (
            ("light", "light", "light"),
            ("volt", "volt", "voltage"),
            ("humidity", "humid", "humidity"),
            ("temperature", "temp", "temperature"),
        )
    },
}
TITLES = {name: known.title for name, known in KNOWN_FILES.items()}
WANTED = {name: known.wanted for name, known in KNOWN_FILES.items()}

_IMAGES = tuple(
    f"{part}-images{joint}idx3-ubyte{end}"
    for part in ("train", "t10k")
    for joint in ("-", ".")
    for end in ("", ".gz")
)
_TABLES = (".csv", ".csv.gz", ".data", ".data.gz", ".dat", ".npz")
_CLASSES = frozenset({"y", "label", "labels", "class", "target", "quality", "cover_type"})
_MOST_CLASSES = 100


@dataclass(frozen=True, kw_only=True)
class DataFileRows:
    """What a file holds: as of ``DataSet``, but of any type of numbers."""

    X: NDArray[Any]
    y: NDArray[Any] | None = None
    columns: tuple[str, ...] = ()
    title: str


# -- Finding


def recognise(name: str, folder: Path, *, asked: bool = False) -> Path | None:
    """The file of a data set in a folder, or in one of its own in there; the largest of several."""
    known = KNOWN_FILES[name]
    for place in _places(name, folder):
        if not place.is_dir():
            continue
        files = sorted(path for path in place.iterdir() if path.is_file())
        for pattern in known.patterns:
            found = [path for path in files if Path(path.name.lower()).match(pattern)]
            if found:
                return max(found, key=lambda path: path.stat().st_size)
        if known.is_images and _may_hold(name, place, asked=asked):
            images = [place / image for image in _IMAGES if (place / image).is_file()]
            if images:
                return images[0]
    if asked:
        tables = [path for path in folder.iterdir() if path.name.lower().endswith(_TABLES)]
        if len(tables) == 1 and not _of_another(name, tables[0]):
            return tables[0]
    return None


def _places(name: str, folder: Path) -> Iterator[Path]:
    """The folder, those in it that carry the name, and where torchvision has its files."""
    yield folder
    yield from (folder / own for own in (name, name.replace("-", "_")))
    vision = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}.get(name)
    if vision:
        yield from (folder / vision / "raw", folder / vision)
        if folder.name == vision:
            yield folder / "raw"
    if name == "fashion-mnist":
        yield folder / "dataset-fashion-mnist"


def _may_hold(name: str, place: Path, *, asked: bool) -> bool:
    """Images of both sets have the same names: a folder's name tells them apart if it says."""
    said = place.resolve()
    fashion = "fashion" in f"{said.parent.name}/{said.name}".lower()
    return fashion == ("fashion" in name) or (asked and not fashion)


def _of_another(name: str, path: Path) -> bool:
    """Whether a file's name is that of another data set."""
    lower = Path(path.name.lower())
    return any(
        lower.match(pattern)
        for other, known in KNOWN_FILES.items()
        if other != name
        for pattern in known.patterns
    )


def names_itself(name: str, path: Path) -> bool:
    """Whether a file or its folder says that it is this data set."""
    lower = Path(path.name.lower())
    return "-ubyte" in path.name or any(lower.match(p) for p in KNOWN_FILES[name].patterns)


def digest(path: Path) -> str:
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


# -- Reading


_DAMAGE = (
    *(OSError, EOFError, zlib.error, zipfile.BadZipFile, pa.ArrowException),
    *(ValueError, KeyError, IndexError),
)


def read(name: str, path: Path) -> DataFileRows:
    try:
        if path.suffix == ".npz":
            rows = _read_archive(name, path)
        elif "-ubyte" in path.name:
            labels = _labels(path)
            images = _read_idx(path)
            rows = DataFileRows(
                X=images.reshape(images.shape[0], -1),
                y=None if labels is None else _read_idx(labels),
                title=TITLES[name],
            )
        else:
            rows = _read_table(name, path)
        if rows.y is not None and rows.y.shape != rows.X.shape[:1]:
            raise ValueError(f"it has {len(rows.X)} rows, and classes of shape {rows.y.shape}")
    except _DAMAGE as bad:
        raise _unreadable(path, bad) from None
    _check(name, path, rows.X)
    return rows


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError("unreadable-data", path=path, reason=error)


def _check(name: str, path: Path, X: NDArray[Any]) -> None:
    """Refuse rows that are not of this data set, as far as columns and zeros tell."""
    known = KNOWN_FILES[name]
    wrong = ""
    if X.ndim == 2 and known.columns not in (None, X.shape[1]):
        wrong = f"has {X.shape[1]} columns of numbers, and {known.title} has {known.columns}"
    elif known.zeros is not None and X.size and np.issubdtype(X.dtype, np.number):
        share = float(np.mean(X == 0))
        if not known.zeros[0] <= share <= known.zeros[1]:
            wrong = (
                f"has {share:.0%} zeros, and of the pixels of {known.title} "
                f"{known.zeros[0]:.0%} to {known.zeros[1]:.0%} are"
            )
    if wrong:
        raise DataError("other-data", path=path, wrong=wrong)


def _read_archive(name: str, path: Path) -> DataFileRows:
    with np.load(path, allow_pickle=False) as archive:
        X = archive["X" if "X" in archive else "x_train"]
        labels = next((archive[key] for key in ("y", "y_train") if key in archive), None)
        columns = tuple(str(c) for c in archive["columns"]) if "columns" in archive else ()
    return DataFileRows(X=X.reshape(X.shape[0], -1), y=labels, columns=columns, title=TITLES[name])


def _labels(images: Path) -> Path | None:
    if "-ubyte" not in images.name:
        return None
    name = images.name.replace("images", "labels").replace("idx3", "idx1")
    other = name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"
    paths = [images.with_name(each) for each in (name, other)]
    return next((path for path in paths if path.is_file()), None)


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """The format of MNIST: two zeros, the type, the number of axes, their lengths, the bytes."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    axes = content[3] if content[:3] == b"\x00\x00\x08" else 0
    shape = np.frombuffer(content, dtype=">u4", count=axes, offset=4).astype(int)
    if not axes or len(content) != 4 + 4 * axes + int(np.prod(shape)):
        raise ValueError("not an idx file of bytes, or not whole")
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def _read_table(name: str, path: Path) -> DataFileRows:
    """CSV, with or without a line of names and a column of classes; .dat has blanks between."""
    if path.suffix == ".dat":
        return DataFileRows(X=np.loadtxt(path, ndmin=2), title=TITLES[name])
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        first = str(file.readline())
    delimiter = ";" if first.count(";") > first.count(",") else ","
    named = not all(_is_number(cell) for cell in first.strip().split(delimiter))
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(autogenerate_column_names=not named),
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter),
    )
    names = [str(column) for column in table.column_names]
    classes = _classes(name, table, names if named else ())
    kept = [i for i in range(len(names)) if i != classes]
    values = np.column_stack([table.column(i).to_numpy() for i in kept])
    return DataFileRows(
        X=values,
        y=None if classes is None else table.column(classes).to_numpy(),
        columns=tuple(names[i] for i in kept) if named else (),
        title=TITLES[name],
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell.strip().strip('"'))
    except ValueError:
        return False
    return True


def _classes(name: str, table: pa.Table, names: Sequence[str]) -> int | None:
    """Which column has the classes: by its name, or the first or last of one too many."""
    for i, column in enumerate(names):
        if column.strip().lower() in _CLASSES:
            return i
    if table.num_columns - 1 != KNOWN_FILES[name].columns:
        return None
    may_be = [i for i in (0, table.num_columns - 1) if _like_classes(table.column(i))]
    if len(may_be) != 1:
        raise ValueError("it is not plain which column has the classes; name it 'label'")
    return may_be[0]


def _like_classes(column: pa.ChunkedArray) -> bool:
    """Few different whole numbers or words, which come again."""
    distinct = len(column.unique())
    whole = pa.types.is_integer(column.type) or pa.types.is_string(column.type)
    return whole and 2 <= distinct < len(column) and distinct <= _MOST_CLASSES
