"""Files by name and pattern, and the errors of the libraries that read them."""

from __future__ import annotations

import glob
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.io.formats.registry import format_of, readable

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
_LONGEST = 200  # characters of a complaint that quotes what it found


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is read into a DataError that names it."""
    try:
        yield
    except DataError:
        raise
    except _COMPLAINTS as error:
        raise DataError(
            f"{path} cannot be read: {_first_line(error)}.",
            hint="Check that the file is complete, readable, and of the format its name ends in.",
            code="unreadable",
        ) from None


def _first_line(error: BaseException) -> str:
    known = isinstance(error, OSError) and not isinstance(error, pa.ArrowException)
    text = getattr(error, "strerror", None) if known else None
    lines = (text or str(error)).strip().splitlines() or [type(error).__name__]
    return lines[0][:_LONGEST].rstrip(". ")


# -- Rows in pieces of one size, whatever pieces they come in.


def rechunk(
    parts: Iterable[tuple[NDArray[Any], ...]], step: int
) -> Iterator[tuple[NDArray[Any], ...]]:
    """Cut the same rows into pieces of ``step``; only the last may be shorter, and none is empty.

    A part is one array or several with the same rows. A piece that lies within one part is a view
    of it.
    """
    waiting: list[tuple[NDArray[Any], ...]] = []
    count = 0
    for part in parts:
        taken, rows = 0, part[0].shape[0]
        while taken < rows:
            piece = tuple(each[taken : taken + step - count] for each in part)
            waiting.append(piece)
            taken += piece[0].shape[0]
            count += piece[0].shape[0]
            if count == step:
                yield _joined(waiting)
                waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[tuple[NDArray[Any], ...]]) -> tuple[NDArray[Any], ...]:
    if len(pieces) == 1:
        return pieces[0]
    return tuple(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))


# -- Which files are meant: folders and patterns made into a list.


def expand(paths: Sequence[str | Path]) -> list[Path]:
    """List the files meant by paths, folders and patterns; the latter two in order of name.

    A folder stands for the files in it that can be read, hidden ones and those in sub-folders left
    out. A path that exists is never taken for a pattern.

    Raises
    ------
    DataError
        Naming a path that matches nothing or is not of a known format, or a file meant twice: its
        rows would count twice, and the guarantee speaks of rows that count once.
    """
    files = _less_parts([file for path in paths for file in _matches(Path(path))])
    if not files:
        raise DataError("No file was given.", hint="Give at least one file.", code="no-such-file")
    seen: dict[Path, Path] = {}
    for file in files:
        if format_of(file) is None:
            raise DataError(
                f"{file} is not of a format that can be read.",
                hint=f"Its name must end in one of {', '.join(readable())}, or be docword.NAME.txt "
                "(also .gz).",
                code="unknown-format",
            )
        first = seen.setdefault(file.resolve(), file)
        if first is not file:
            raise DataError(
                f"{file} is given twice (as {first} before).",
                hint="Give each file once: rows that count twice break the privacy guarantee.",
                code="file-twice",
            )
    return files


def _matches(path: Path) -> list[Path]:
    with reading(path):
        if path.is_dir() and not _is_one(path):
            return _inside(path)
        if path.exists():
            return [path]
        if not glob.has_magic(str(path)):
            raise DataError(f"{path} does not exist.", hint="Check the path.", code="no-such-file")
        # Path.glob takes no absolute pattern
        names = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
    if not names:
        raise DataError(f"No file matches {path}.", hint="Check the pattern.", code="no-such-file")
    return [file for name in names for file in _matches(Path(name))]


def _inside(folder: Path) -> list[Path]:
    found = [
        file
        for file in sorted(folder.iterdir())
        if not file.name.startswith(".")
        and (file.is_file() or _is_one(file))
        and format_of(file) is not None
    ]
    if not found:
        raise DataError(
            f"{folder} holds no file that can be read.",
            hint=f"Files end in one of {', '.join(readable())}; sub-folders are not searched.",
            code="no-such-file",
        )
    return found


def _less_parts(files: list[Path]) -> list[Path]:
    """Files less those that belong to another one, such as the barcodes of a matrix of cells."""
    parts: set[Path] = set()
    for file in files:
        found = format_of(file)
        parts.update(part.resolve() for part in (() if found is None else found.belonging(file)))
    return [file for file in files if not parts or file.resolve() not in parts]


def _is_one(path: Path) -> bool:
    """Whether a folder is one file of a format that is stored so."""
    found = format_of(path)
    return found is not None and found.folder and path.is_dir()
