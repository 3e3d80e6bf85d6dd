"""A second place for a ledger's heads: whoever cuts the ledger would have to cut this one, too.

One line of JSON a head, ``{"number": ..., "hash": ...}``, only ever added. It belongs where those
who can write the ledger cannot, or on another disk; all it
tells is how many entries there are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.ledger_tables import Head

try:
    import fcntl
except ImportError:  # no such locks on this system: a line may come twice
    fcntl = None  # type: ignore[assignment]

_LINE = 4096  # bytes that the last line is within


class Heads:
    """The file of a ledger's heads; made, for its owner alone, with the first of them."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._path = Path(place).absolute()

    def note(self, head: Head) -> None:
        """Add a head, unless it or one after it is there; durable when this returns.

        Raises
        ------
        OutputError
            When the file cannot be written: the answer must not leave then.
        """
        if not head.count:
            return
        with self._open("ab+", create=True) as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LINE))
            whole, newline, torn = file.read().rpartition(b"\n")
            if torn:  # a power failure, before the answer that it was for had left
                file.truncate(file.seek(0, os.SEEK_END) - len(torn))
            if newline and self._head(whole.rpartition(b"\n")[2]).count >= head.count:
                return
            file.write(json.dumps({"number": head.count, "hash": head.hash}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[Head]:
        """All heads that were noted.

        Raises
        ------
        DataError, OutputError
            ``heads-damaged``; when the file cannot be read.
        """
        with self._open("rb") as file:
            *lines, _ = file.read().split(b"\n")  # what follows the last newline is torn
        return [self._head(line) for line in lines]

    def _head(self, line: bytes) -> Head:
        try:
            found = json.loads(line)
            number, text = found["number"], found["hash"]
            if type(number) is int and type(text) is str:
                return Head(number, text)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise DataError(
            f"{self._path}: a line holds no head of a ledger.",
            hint="It was changed by something else than eigenveil; go back to a copy of it.",
            code="heads-damaged",
        )

    @contextmanager
    def _open(self, mode: str, *, create: bool = False) -> Iterator[IO[Any]]:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND if create else os.O_RDONLY
            with os.fdopen(os.open(self._path, flags, 0o600), mode) as file:
                yield file
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise OutputError(
                f"{self._path}: {getattr(error, 'strerror', None) or error}.",
                hint="The ledger's heads are kept there: give a file in a folder that exists and "
                "that you may write.",
                code="cannot-write",
            ) from None
