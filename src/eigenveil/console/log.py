"""The console's log: who came in, what was decided or started, and what was refused."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from eigenveil.errors import OutputError, of_system, printable

FILE = "console.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, who TEXT NOT NULL,
    address TEXT NOT NULL, what TEXT NOT NULL, detail TEXT NOT NULL
);
"""
_MOST_EVENTS = 100_000
# Lines of refusals in a minute: whoever is refused on purpose cannot push all else out.
_MOST_REFUSED = 20


class Event(NamedTuple):
    """A line; ``time`` is UTC in ISO format."""

    time: str
    who: str
    address: str
    what: str
    detail: str


class Log:
    """The lines, in a file that only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / FILE
        self._minute, self._refused = 0, 0
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
            handle = os.open(self.place, os.O_RDWR | os.O_CREAT, 0o600)
            os.fchmod(handle, 0o600)
            os.close(handle)
            with self._open() as database:
                database.executescript(_TABLES)
        except (OSError, sqlite3.DatabaseError) as error:
            raise OutputError("no-console-state", place=self.place, why=of_system(error)) from None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.place, timeout=10)
        try:
            with database:
                yield database
        finally:
            database.close()

    def note(self, what: str, *, who: str = "", address: str = "", detail: str = "") -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._open() as database:
            database.execute(
                "INSERT INTO events (time, who, address, what, detail) VALUES (?, ?, ?, ?, ?)",
                (now, printable(who, most=80), address, what, printable(detail, most=500)),
            )
            database.execute(
                "DELETE FROM events WHERE number <= (SELECT max(number) FROM events) - ?",
                (_MOST_EVENTS,),
            )

    def refused(self, code: str, *, who: str, address: str, detail: str) -> None:
        """Add a line of a refusal: some a minute, and then that there were more."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._refused = minute, 0
        self._refused += 1
        if self._refused == _MOST_REFUSED:
            self.note("refused: more in this minute", address=address)
        elif self._refused < _MOST_REFUSED:
            self.note(f"refused: {code}", who=who, address=address, detail=detail)

    def events(self, *, page: int = 1, size: int = 50) -> list[Event]:
        with self._open() as database:
            found = f"SELECT {', '.join(Event._fields)} FROM events ORDER BY number DESC"
            rows = database.execute(f"{found} LIMIT ? OFFSET ?", (size, (page - 1) * size))
            return list(map(Event._make, rows))
