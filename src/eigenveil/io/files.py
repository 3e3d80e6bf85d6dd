"""Files by name and pattern, and the errors of the libraries that read them."""

from __future__ import annotations

import glob
import os
import re
import threading
import tokenize
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from eigenveil.errors import DataError, first_line
from eigenveil.files import Place
from eigenveil.io.formats.registry import format_of, readable
from eigenveil.io.query import Query
from eigenveil.io.stores import FolderEntry, StoreFolder, found_at, is_url

_T = TypeVar("_T")
_COMPLAINTS = (
    OSError,
    EOFError,
    LookupError,
    ValueError,
    OverflowError,
    MemoryError,  # a damaged length
    SyntaxError,  # a damaged header of an array; TokenError too
    tokenize.TokenError,
    RuntimeError,  # an encrypted archive; NotImplementedError too
    zipfile.BadZipFile,
    zlib.error,
    pa.ArrowException,
)


@contextmanager
def reading(path: Place | str, also: type[Exception] = OSError) -> Iterator[None]:
    """Turn what goes wrong while a file is read into a DataError that names it.

    ``also`` is what a library raises that has errors of its own.
    """
    try:
        yield
    except DataError:
        raise
    except (*_COMPLAINTS, also) as error:
        raise unreadable(path, _said(error)) from None


def _said(error: BaseException) -> str:
    known = isinstance(error, OSError) and not isinstance(error, pa.ArrowException)
    text = getattr(error, "strerror", None) if known else None
    if isinstance(error, UnicodeError):
        return f"it is in another encoding (--encoding, or [reading] in a schema): {error}"
    return first_line(text or error, empty=type(error).__name__)


def unreadable(path: Place | str, why: str) -> DataError:
    """The error of a damaged file; ``why`` ends the sentence that begins with its path."""
    return DataError("unreadable", path=path, why=why)


# -- Packed files, a few bytes of which may stand for more than a machine holds.


MOST_UNPACKED = 1 << 32
"""Most bytes that a part of a packed file may take where it is unpacked as a whole: an array or a
chunk of one, the entries of a block of sparse rows, a batch of an Arrow file, a row group that is a
thousand times its file's size. Limits in other units are made of this one."""
GZIP_GROWTH = 1032
"""Most bytes that gzip makes of one."""


def check_unpacked(path: Place, size: int, what: str) -> None:
    """Refuse a part of a packed file that is larger than what is unpacked in memory."""
    if size > MOST_UNPACKED:
        raise too_large(
            path,
            f"{what} takes {size >> 20:,} MiB unpacked, and at most {MOST_UNPACKED >> 20:,} MiB "
            "are unpacked at once",
        )


def too_large(path: Place | str, why: str) -> DataError:
    return DataError("file-too-large", path=path, why=why)


# -- Which files are meant: folders and patterns made into a list.


@dataclass(frozen=True)
class RowFile:
    """A file of rows."""

    place: Place
    # Columns whose one value the folders around the file say, such as `year=2024`
    keys: Mapping[str, Any] = field(default_factory=dict)


# What makes files of other programs ones that can be read, by how their names end.
_OTHERS = {
    **dict.fromkeys((".xls", ".xlsm", ".xlsb", ".ods"), "Save it as .xlsx. "),
    **dict.fromkeys((".rda", ".rdata"), "In R: saveRDS(rows, 'rows.rds'). "),
    ".por": "Save it as .sav. ",
    ".xpt": "Make it one that is: pandas.read_sas(path).to_parquet('rows.parquet'). ",
}


def expand(paths: str | Path | Sequence[str | Path | Place]) -> list[RowFile]:
    """List the files meant by paths, URLs, folders and patterns; the latter two in order of name.

    A folder stands for the files in it that can be read, hidden ones and those in sub-folders left
    out; unless sub-folders are named ``key=value``, which are columns of one table. A path that
    exists is never taken for a pattern.
    """
    places = [paths] if isinstance(paths, str | os.PathLike) else paths
    files = _less_parts([file for path in places for file in _matches(path)])
    if not files:
        raise DataError("no-files")
    seen: dict[Any, Place] = {}
    for file in (each.place for each in files):
        if format_of(file) is None:
            way = _OTHERS.get(Path(file.name.lower()).suffix, "")
            raise DataError("unknown-format", path=file, endings=", ".join(readable()), way=way)
        first = seen.setdefault(file.resolve(), file)
        if first is not file:
            raise DataError("file-twice", file=file, first=first)
    return files


def absolute(path: str | Place) -> str | Place:
    if isinstance(path, str):
        return path if is_url(path) else str(Path(path).absolute())
    return path.absolute() if isinstance(path, Query) else path


def state_of(place: Place) -> tuple[Any, ...]:
    """What differs when a file was changed or replaced: its size, time, and which file it is."""
    if isinstance(place, Path):
        found = place.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    state: tuple[Any, ...] = getattr(place, "state", tuple)()
    return state


def source_of(place: Place) -> Any:
    """What pyarrow reads a file by: mapped into memory where it lies on this machine."""
    return pa.memory_map(str(place)) if isinstance(place, Path) else place.open("rb")


class Lent:
    """Objects of Python's that pyarrow's threads hold while they read: it ends when all are back.

    A thread lets go of them a moment after the last batch. Where the interpreter ends in that
    moment, the thread cannot have its lock, and ends the process with an abort (status 134).
    """

    # far longer than a thread waits for a processor; nothing is lost where it is not enough
    _LONGEST = 10.0

    def __init__(self) -> None:
        self._away: list[tuple[Any, threading.Event]] = []

    def __call__(self, held: _T) -> _T:
        """Lend an object; who lends it keeps no reference to it."""
        back = threading.Event()
        self._away.append((weakref.ref(held, lambda _: back.set()), back))
        return held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for _, back in self._away:
            back.wait(self._LONGEST)


def _matches(path: str | Path | Place) -> list[RowFile]:
    if isinstance(path, str) and is_url(path):
        return _at_url(path)
    if not isinstance(path, (str, Path)):
        return [RowFile(path)]
    path = Path(path)
    with reading(path):
        if path.is_dir() and not _is_one(path):
            return _inside(path)
        if path.exists():
            return [RowFile(path)]
        if not glob.has_magic(str(path)):
            raise DataError("no-such-file", path=path)
        # Path.glob takes no absolute pattern
        names = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
    if not names:
        raise DataError("pattern-matches-nothing", pattern=path)
    return [file for name in names for file in _matches(Path(name))]


def _at_url(url: str) -> list[RowFile]:
    shown = url.partition("?")[0]
    if url.lower().startswith("file://"):
        return _matches(Path(url2pathname(urlsplit(url).path)))
    with reading(shown):
        found = found_at(url)
        if isinstance(found, StoreFolder):
            return _inside(found)
    if not found:
        raise DataError("pattern-matches-nothing", pattern=shown)
    return [RowFile(file) for file in found]


def _entries(folder: Path | StoreFolder, *, deep: bool) -> list[FolderEntry]:
    """What is in a folder, and with ``deep`` in its folders, in order of name."""
    if isinstance(folder, StoreFolder):
        return folder.entries(deep=deep)
    found = sorted(folder.rglob("*") if deep else folder.iterdir())
    return [
        FolderEntry(
            each.relative_to(folder).parts,
            each if each.is_file() or (not deep and _is_one(each)) else None,
        )
        for each in found
    ]


def _inside(folder: Path | StoreFolder) -> list[RowFile]:
    top = _entries(folder, deep=False)
    found = [RowFile(each.file) for each in top if _is_read(each)]
    if not any(each.file is None and _KEY.fullmatch(each.parts[-1]) for each in top):
        if found:
            return found
    elif not found:
        if parts := _partitions(folder):
            return parts
    else:
        raise DataError("mixed-folder", folder=folder)
    raise DataError("empty-folder", folder=folder, endings=", ".join(readable()))


def _is_read(entry: FolderEntry) -> bool:
    hidden = any(part.startswith(".") for part in entry.parts)
    found = None if entry.file is None or hidden else format_of(entry.file)
    return found is not None and found.inside


# -- Tables in parts, each in folders that say the value of a column: Hive's, Spark's, pyarrow's.


_KEY = re.compile(r"([^=/]+)=([^/]*)")
_NOTHING = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")


def _partitions(folder: Path | StoreFolder) -> list[RowFile]:
    found: list[tuple[Place, dict[str, str]]] = []
    for entry in filter(_is_read, _entries(folder, deep=True)):
        keys = [_KEY.fullmatch(part) for part in entry.parts[:-1]]
        if any(key is None for key in keys) or entry.parts[-1].startswith("_"):
            continue
        found.append((entry.file, {unquote(key[1]): unquote(key[2]) for key in keys if key}))
        if list(found[-1][1]) != list(found[0][1]):
            raise DataError("folder-keys-differ", path=found[-1][0], first=found[0][0])
    names = list(found[0][1]) if found else []
    whole = {
        name
        for name in names
        if all(_WHOLE.fullmatch(keys[name]) for _, keys in found if keys[name] != _NOTHING)
    }

    def value(name: str, text: str) -> Any:
        if name in whole:
            return pa.scalar(None if text == _NOTHING else int(text), pa.int64())
        return pa.scalar(None if text == _NOTHING else text, pa.string())

    return [
        RowFile(place, {name: value(name, text) for name, text in keys.items()})
        for place, keys in found
    ]


def _less_parts(files: list[RowFile]) -> list[RowFile]:
    """Files less those that belong to another one, such as the barcodes of a matrix of cells."""
    parts: set[Path] = set()
    for place in (each.place for each in files):
        found = format_of(place)
        if found is not None and isinstance(place, Path):
            parts.update(part.resolve() for part in found.belonging(place))
    return [each for each in files if not parts or each.place.resolve() not in parts]


def _is_one(path: Path) -> bool:
    found = format_of(path)
    return found is not None and found.folder and path.is_dir()
