"""Whole lines of a text file that may still grow, or of standard input."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError
from eigenveil.io.files import reading
from eigenveil.io.stopping import Stop

STANDARD_INPUT = Path("standard input")
_READ_BYTES, _LONGEST_LINE = 1 << 20, 1 << 24


class GrowingText:
    """Delimited text in pieces of whole lines; a line still being written waits for its end.

    Parameters
    ----------
    path : Path or None
        A file that ends in ``.csv`` or ``.tsv``, or a pipe; ``None`` for standard input.
    follow : bool
        At the end of a file, wait for more. Standard input ends where its writer closes it.
    poll : float
        Seconds between checks of a file that has nothing new.
    stop : Stop
        Ends the text at its last whole line.

    Raises
    ------
    DataError
        When there is no such file, or it is not text that can be watched.
    """

    def __init__(self, path: Path | None, *, follow: bool, poll: float, stop: Stop) -> None:
        self.path = STANDARD_INPUT if path is None else path
        self._file = path
        self._follow, self._poll, self._stop = follow and path is not None, poll, stop
        self.delimiter = None if path is None else _delimiter_of(path)
        """A comma or a tab; without a known ending, recognised with the first piece."""

    def pieces(self) -> Iterator[bytes]:
        """Whole lines, some 16 MiB at most; the last of all may have no newline.

        Raises
        ------
        DataError
            When the file was made shorter or replaced by another, or a line has no end.
        """
        kept = b""
        with reading(self.path), self._opened() as file:
            while file is not None and (data := self._more(file)):
                kept += data
                end = self._whole_lines(kept)
                if end:
                    yield kept[:end]
                    kept = kept[end:]
                elif len(kept) > _LONGEST_LINE:
                    raise DataError(
                        f"{self.path} cannot be read: a line is longer than "
                        f"{_LONGEST_LINE >> 20} MiB, or a quote is not closed.",
                        hint="Correct or remove that line.",
                        code="unreadable",
                    )
        if kept and not self._stop.requested:
            self._whole_lines(kept + b"\n")  # for the delimiter
            yield kept

    def lines(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Each line of a piece with where it begins; one with newlines within quotes is one."""
        pattern = _LINE[self.delimiter or ","]
        place = 0
        while found := pattern.match(piece, place):
            yield place, found[0]
            place = found.end()
        if place < len(piece):
            yield place, piece[place:]

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        if self._file is None:
            yield sys.stdin.buffer
            return
        path = self._file
        # opening a pipe waits for its writer
        file = self._stop.wait(lambda: path.open("rb", buffering=0))
        try:
            yield file
        finally:
            if file is not None:
                file.close()

    def _more(self, file: Any) -> bytes:
        """What there is, after waiting for it where that is requested; nothing at the end."""
        # what a buffered reader has is taken as it comes, not when a megabyte is full
        read = getattr(file, "read1", file.read)
        while True:
            data: bytes | None = self._stop.wait(lambda: read(_READ_BYTES))
            if data or self._stop.requested:
                return data or b""
            if moved := None if self._file is None else self._moved(file, self._file):
                if last := read(_READ_BYTES):  # written since, before it moved
                    return bytes(last)
                raise DataError(
                    f"{self.path} {moved} while it was read.",
                    hint="Start again on the new file; every whole line until then was read.",
                    code="file-moved",
                )
            if not self._follow:
                return b""
            self._stop.wait(lambda: time.sleep(self._poll))

    def _moved(self, file: Any, path: Path) -> str | None:
        """What became of a file, if it is not what it was."""
        mine = os.fstat(file.fileno())
        if not stat.S_ISREG(mine.st_mode):
            return None
        if mine.st_size < file.tell():
            return "was made shorter"
        if not self._follow:
            return None
        try:
            there = path.stat()
        except FileNotFoundError:
            return "was moved or removed"
        same = (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
        return None if same else "was replaced by another file"

    def _whole_lines(self, text: bytes) -> int:
        """Where the last whole line of a text ends; 0 if none does."""
        end = text.rfind(b"\n") + 1
        if end and self.delimiter is None:
            names = text[: text.find(b"\n")]
            self.delimiter = "\t" if b"\t" in names and b"," not in names else ","
        if b'"' in text[:end]:
            found = _LINES[self.delimiter or ","].match(text)
            end = 0 if found is None else found.end()
        return end


def _delimiter_of(path: Path) -> str | None:
    with reading(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise DataError(
                f"{path} does not exist.", hint="Check the path.", code="no-such-file"
            ) from None
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        return "\t" if kind == ".tsv" else ","
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        raise DataError(
            f"{path} is not text that can be watched.",
            hint="Give a file that ends in .csv or .tsv, or its lines as standard input: '-'.",
            code="unknown-format",
        )
    return None


def _line(delimiter: bytes) -> bytes:
    """A pattern of one line; quotes count at the beginning of a cell only, as for pyarrow."""
    rest = b"[^" + delimiter + rb"\n]*+"
    cell = rb'(?>"[^"]*+(?:""[^"]*+)*+"' + rest + rb'|(?!")' + rest + rb")"
    return b"(?>" + cell + b"(?:" + delimiter + cell + rb")*+\n)"


_LINE = {mark: re.compile(_line(mark.encode())) for mark in ",\t"}
_LINES = {mark: re.compile(_line(mark.encode()) + b"++") for mark in ",\t"}
