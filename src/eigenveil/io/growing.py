"""Whole lines of a text file that may still grow, or of standard input."""

from __future__ import annotations

import codecs
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError
from eigenveil.io.files import reading
from eigenveil.io.formats.dialect import PLAIN, Dialect, PlainLines, Settled, settle
from eigenveil.io.stopping import Stop

STANDARD_INPUT = Path("standard input")
_READ_BYTES, _LONGEST_LINE = 1 << 20, 1 << 24


class GrowingText:
    """Delimited text in pieces of whole lines; a line still being written waits for its end."""

    def __init__(
        self,
        path: Path | None,
        *,
        follow: bool,
        poll: float,
        stop: Stop,
        dialect: Dialect = PLAIN,
    ) -> None:
        if dialect.newlines_in_cells:
            raise DataError("no-cells-over-lines")
        self.path = STANDARD_INPUT if path is None else path
        self._file = path
        self._follow, self._poll, self._stop = follow and path is not None, poll, stop
        self._dialect = dialect
        self._usual = "," if path is None else _usual_separator(path)
        self._decoder: codecs.IncrementalDecoder | None = None
        self._plain = True
        self._plain_lines: PlainLines | None = None
        self._head, self._decided = b"", False
        self.settled: Settled | None = None
        """How the text is written, once its first line is there."""

    @property
    def separator(self) -> str:
        """What is between two cells."""
        return self._usual if self.settled is None else self.settled.separator

    def pieces(self) -> Iterator[bytes]:
        """Whole lines, some 16 MiB at most; the last of all may have no newline."""
        kept = b""
        with reading(self.path), self._opened() as file:
            while file is not None and (data := self._more(file)):
                kept += self._in_utf8(data)
                end = self._whole_lines(kept)
                if end:
                    self._head = b"" if self._decided else self._head + kept[:end]
                    yield self._plainly(kept[:end])
                    kept = kept[end:]
                elif len(kept) > _LONGEST_LINE:
                    kept = b"?"  # one row, which is not valid
        if kept and not self._stop.requested:
            self._whole_lines(kept + b"\n")  # for the separator
            yield self._plainly(kept)

    def lines(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Each line of a piece with where it begins."""
        place = 0
        for line in piece.splitlines(keepends=True):
            yield place, line
            place += len(line)

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
                raise DataError("file-moved", path=self.path, moved=moved)
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
        if end and not self._decided:
            self._settle(self._head + text[:end])
        return end

    def _plainly(self, lines: bytes) -> bytes:
        return lines if self._plain_lines is None else self._plain_lines(lines)

    def _settle(self, start: bytes) -> None:
        """How text that begins like this is written; its decimal point shows in the first row."""
        found = settle(replace(self._dialect, encoding="utf-8"), start, usual=self._usual)
        if self._plain_lines is None:
            self._plain_lines = PlainLines(found, self._dialect)
        self.settled = found
        lines = [line for line in start.splitlines() if line.strip()]
        self._decided = len(lines) - found.skipped > self._dialect.header

    def _in_utf8(self, data: bytes) -> bytes:
        if self._decoder is None:
            encoding = self._dialect.encoding or settle(self._dialect, data, usual=",").encoding
            self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
            self._plain = encoding == "utf-8"
        return data if self._plain else self._decoder.decode(data).encode()


def _usual_separator(path: Path) -> str:
    with reading(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            raise DataError("no-such-file", path=path) from None
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        return "\t" if kind == ".tsv" else ","
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        raise DataError("not-watched", path=path)
    return ","
