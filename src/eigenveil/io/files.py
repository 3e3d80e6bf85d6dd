"""Which files are meant: folders and patterns made into a list."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from eigenveil.errors import DataError
from eigenveil.io.reading import reading

READABLE = (
    ".csv",
    ".csv.gz",
    ".tsv",
    ".tsv.gz",
    ".parquet",
    ".arrow",
    ".feather",
    ".ipc",
    ".npy",
    ".npz",
    ".mtx",
    ".mtx.gz",
)
# The bags of words of UCI are known by how their names begin.
_BAG_OF_WORDS = re.compile(r"docword\.(.+\.)?txt(\.gz)?")


def ending(path: Path) -> str | None:
    """Return the ending that tells a file's format, in lower case; ``None`` if it is not read."""
    name = path.name.lower()
    if _BAG_OF_WORDS.fullmatch(name):
        return "docword.txt"
    return next((e for e in READABLE if name.endswith(e) and name != e), None)


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
    files = [file for path in paths for file in _matches(Path(path))]
    if not files:
        raise DataError("No file was given.", hint="Name at least one.", code="no-such-file")
    seen: dict[Path, Path] = {}
    for file in files:
        if ending(file) is None:
            raise DataError(
                f"{file} is not of a format that can be read.",
                hint=f"Its name must end in one of {', '.join(READABLE)}, or be docword.NAME.txt "
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
        if path.is_dir():
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
    readable = [
        file
        for file in sorted(folder.iterdir())
        if not file.name.startswith(".") and file.is_file() and ending(file) is not None
    ]
    if not readable:
        raise DataError(
            f"{folder} holds no file that can be read.",
            hint=f"Files end in one of {', '.join(READABLE)}; sub-folders are not searched.",
            code="no-such-file",
        )
    return readable
