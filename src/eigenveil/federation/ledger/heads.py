"""A second place for a ledger's heads: whoever cuts the ledger would have to cut this one, too.

It belongs where those who can write the ledger cannot change it. All it shows is how many entries
there are. Where none is named it is a file of this user's, outside the ledger's folder, which
notices whoever reaches the ledger alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from eigenveil.errors import DataError, OutputError, of_system
from eigenveil.federation.ledger.entries import Head
from eigenveil.files import hold, state_folder

_LINE = 2**16  # bytes that the last line is within


def is_there(head: Head, noted: Sequence[Head], *, last: bool, place: str) -> bool:
    """Whether a head is among those that were ``noted``, which have its number or a later one."""
    for other in noted:
        if (other.count == head.count and other.hash != head.hash) or (
            last and other.count > head.count
        ):
            its = "is another" if other.count == head.count else "is missing"
            raise DataError("heads-differ", place=place, count=other.count, own=its)
    return bool(noted)


class HeadsFile:
    """A file; made, for its owner alone, with the first head.

    One line of JSON a head, ``{"number": ..., "hash": ...}``, only ever added.
    """

    # Whether somebody named it: then a ledger of which nothing is noted there is refused
    named = True
    _way_out = (
        "The ledger's heads are kept there: give a file in a folder that exists and that you may "
        "write."
    )

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._path = Path(place).absolute()

    def __str__(self) -> str:
        return str(self._path)

    def note(self, head: Head, *, last: bool = False) -> None:
        """Add a head, unless it or a later one is there; durable when this returns.

        The head of an empty ledger is not added: the file is only opened, or made.
        """
        with self._open("ab+", create=True) as file:
            if not (head.count or last):
                return
            hold(file, wait=True)
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LINE))
            whole, newline, torn = file.read().rpartition(b"\n")
            if torn:  # a power failure, before the answer that it was for had left
                file.truncate(file.seek(0, os.SEEK_END) - len(torn))
            noted = [self._head(whole.rpartition(b"\n")[2])] if newline else []
            if noted and noted[0].count > head.count:
                file.seek(0)
                noted = [self._head(line) for line in file.read().splitlines()]
            noted = [other for other in noted if other.count >= head.count]
            if is_there(head, noted, last=last, place=str(self._path)) or not head.count:
                return
            file.write(json.dumps({"number": head.count, "hash": head.hash}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[Head]:
        """All heads that were noted; ``heads-damaged`` where a line holds none."""
        with self._open("rb") as file:
            *lines, _ = file.read().split(b"\n")  # what follows the last newline is torn
        return [self._head(line) for line in lines]

    def _head(self, line: bytes) -> Head:
        try:
            found = json.loads(line)
            kinds = {name: type(value) for name, value in found.items()}
            if kinds == {"number": int, "hash": str}:
                return Head(found["number"], found["hash"])
        except (ValueError, AttributeError, RecursionError):
            pass
        raise DataError("heads-damaged", path=self._path)

    @contextmanager
    def _open(self, mode: str, *, create: bool = False) -> Iterator[IO[Any]]:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND if create else os.O_RDONLY
            with os.fdopen(os.open(self._path, flags, 0o600), mode) as file:
                yield file
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            if isinstance(error, OutputError | DataError):
                raise
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> OutputError:
        return OutputError(
            "heads-not-written", path=self._path, reason=of_system(error), way_out=self._way_out
        )


class UsualHeads(HeadsFile):
    """The file for a ledger's heads where none is named, in a folder that is not the ledger's.

    It goes by the ledger's place: one that was deleted there, or replaced by an old copy, is
    noticed, and a copy in another place has heads of its own.
    """

    named = False
    _way_out = (
        "The heads of ledgers are kept there. Name another folder that lasts in EIGENVEIL_STATE."
    )

    def __init__(self, ledger: str, folder: Path | None = None) -> None:
        self._ledger, self._folder = ledger, folder

    @cached_property
    def _path(self) -> Path:  # type: ignore[override]
        place = self._ledger
        with suppress(OSError, ValueError):  # of a name that no file can have
            place = place if "://" in place else str(Path(place).resolve())
        name = hashlib.sha256(os.fsencode(place)).hexdigest()[:32]
        return (self._folder or state_folder() / "heads") / f"{name}.heads"

    def read(self) -> list[Head]:
        """All heads; none where nothing was noted yet."""
        try:
            self._path.stat()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unusable(error) from None
        return super().read()

    @contextmanager
    def _open(self, mode: str, *, create: bool = False) -> Iterator[IO[Any]]:
        if create:
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise self._unusable(error) from None
        with super()._open(mode, create=create) as file:
            yield file
