"""Places of rows; files that are written whole or not at all; and TOML, which people read."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from eigenveil.errors import DataError, OutputError, of_system

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Place(Protocol):
    """Where rows are, as readers and ledgers know it: a :class:`~pathlib.Path`, or what is like it.

    ``str`` is for messages and has nothing secret; ``os.fspath`` is a file on this machine.
    """

    @property
    def name(self) -> str:
        """The last part, by which a format is known."""
        ...

    @property
    def suffix(self) -> str:
        """The name's ending."""
        ...

    def __fspath__(self) -> str: ...

    def open(self, mode: Literal["rb"], /) -> IO[bytes]:
        """Its bytes, which can be read from any place."""
        ...

    def resolve(self) -> Any:
        """The same for all ways to name one file."""
        ...


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A scratch file beside ``target`` that takes its place when the block ends well.

    Its folder is made where it is missing. Only its owner may read the file, as is right for what
    may show rows.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.stem}-", suffix=target.suffix
        )
        os.close(handle)
        scratch = Path(name)
        try:
            yield scratch
            scratch.replace(target)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cannot_write(target, error) from None


def cannot_write(place: Path, problem: OSError) -> OutputError:
    """What is raised where a file or folder cannot be written."""
    return OutputError("cannot-write", path=place, reason=of_system(problem))


def user_folder(kind: Literal["data", "state"]) -> Path:
    """Where this system keeps what programs store for a user; RuntimeError where nobody has one."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    given = Path(os.environ.get(f"XDG_{kind.upper()}_HOME") or "")
    usual = "share" if kind == "data" else "state"
    return given if given.is_absolute() else Path.home() / ".local" / usual


def state_folder() -> Path:
    """Where what must outlast a ledger is kept: ``EIGENVEIL_STATE``, or a folder of this user's."""
    if given := os.environ.get("EIGENVEIL_STATE"):
        return Path(given).absolute()
    try:
        found = user_folder("state") / "eigenveil"
    except RuntimeError as error:
        raise OutputError("no-place-for-heads", error=error) from None
    return found / "state" if sys.platform in ("win32", "darwin") else found


def sync_folder(folder: Path) -> None:
    """Have a new file's name on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def hold(file: IO[Any], *, wait: bool = False) -> bool:
    """Hold an open file for this process alone, until it is closed or the process ends.

    Only those who hold it as well are kept out: it is a lock, not a permission. Where the system
    has no such locks, nobody is.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        raise OutputError("cannot-lock", file=file.name, reason=of_system(error)) from None
    return True


# -- TOML.


def read_toml(path: str | Path, *, hint: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as problem:
        raise DataError(
            "cannot-read-toml", path=path, reason=of_system(problem), way_out=hint
        ) from None
    except (ValueError, RecursionError) as problem:  # TOMLDecodeError, and text that is not UTF-8
        raise DataError(
            "bad-toml", path=path, rstrip=str(problem).rstrip("."), given=hint
        ) from None


def toml_comment(text: str) -> list[str]:
    """A sentence as lines of comment."""
    return textwrap.wrap(text, 96, initial_indent="# ", subsequent_indent="# ")


def toml_value(value: Any) -> str:
    """A value as TOML; long arrays take several lines."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _toml_text(value)
        case dict():
            return (
                f"{{ {', '.join(f'{_toml_key(k)} = {toml_value(v)}' for k, v in value.items())} }}"
            )
        case _:
            parts = ", ".join(toml_value(part) for part in value)
            return f"[{parts}]" if len(parts) < 80 else f"[\n{_packed(value)}]"


def _packed(values: Iterable[Any]) -> str:
    """Entries of an array, as many on a line as fit."""
    lines = [""]
    for part in map(toml_value, values):
        if lines[-1] and len(lines[-1]) + len(part) > 90:
            lines.append("")
        lines[-1] += f" {part}," if lines[-1] else f"    {part},"
    return "".join(f"{line}\n" for line in lines)


def _toml_text(text: str) -> str:
    """A basic string: as in JSON, but that one more control character must be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_text(key)
