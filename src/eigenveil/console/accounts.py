"""The console's accounts and its log: one SQLite file that only its owner may read."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

from eigenveil.console.passwords import hash_password, matches, new_secret, step_of
from eigenveil.errors import DataError, OutputError, printable

Role = Literal["owner", "approver", "viewer", "lead"]
ROLES: tuple[Role, ...] = get_args(Role)
FILE = "console.sqlite"
_LONGEST_NAME = 80
_TABLES = """
CREATE TABLE IF NOT EXISTS accounts (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, password TEXT, secret TEXT,
    confirmed INTEGER NOT NULL DEFAULT 0, step INTEGER NOT NULL DEFAULT 0, since TEXT NOT NULL,
    key TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, who TEXT NOT NULL,
    address TEXT NOT NULL, what TEXT NOT NULL, detail TEXT NOT NULL
);
"""
_MOST_EVENTS = 100_000


@dataclass(frozen=True)
class Account:
    """Who may sign in."""

    name: str
    role: Role
    local: bool  # Whether it has a password here; otherwise the hospital's own sign-in knows it
    confirmed: bool  # Whether its second factor is in use
    # Changes with its password, key and second factor: a session is of an account as it was
    mark: str = ""


@dataclass(frozen=True)
class Kept:
    """What is kept of a password: its hash, and the key that it encrypts."""

    password: str | None = field(repr=False)  # `None` where the account signs in by OpenID Connect
    # The approver's private key, PEM, encrypted; empty where it has none
    key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Event:
    """A line of the console's log; ``time`` is UTC in ISO format."""

    number: int
    time: str
    who: str
    address: str
    what: str
    detail: str


class Accounts:
    """Accounts and the log, in a file that is made where it is absent."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
            handle = os.open(self.place, os.O_RDWR | os.O_CREAT, 0o600)
            os.fchmod(handle, 0o600)
            os.close(handle)
            with self._open() as database:
                database.executescript(_TABLES)
        except OSError as error:
            raise OutputError(
                f"{self.place}: {error.strerror or error}.",
                hint="Give a folder of your own with --state.",
                code="cannot-write",
            ) from None
        except sqlite3.DatabaseError as error:
            raise OutputError(
                f"{self.place} is damaged ({error}).",
                hint="Restore it from a backup, or move it away and make the accounts anew.",
                code="cannot-read",
            ) from None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        database = sqlite3.connect(self.place, timeout=10)
        try:
            with database:
                yield database
        finally:
            database.close()

    # -- accounts

    def add(self, name: str, role: str, password: str | None, *, key: str = "") -> Account:
        """Make an account; without a password it signs in by OpenID Connect."""
        if not (0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()):
            raise DataError(
                f"{printable(name)!r} cannot be the name of an account.",
                hint=f"Give 1 to {_LONGEST_NAME} printable characters.",
                code="bad-name",
            )
        if role not in ROLES:
            raise DataError(
                f"--role {printable(role)!r} is not one of {', '.join(ROLES)}.",
                hint="Choose one of these.",
                code="bad-choice",
            )
        stored = None if password is None else hash_password(password)
        secret = None if password is None else new_secret()
        try:
            with self._open() as database:
                database.execute(
                    "INSERT INTO accounts (name, role, password, secret, since, key) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (name, role, stored, secret, _now(), key),
                )
        except sqlite3.IntegrityError:
            raise DataError(
                f"There is an account {printable(name)!r} already.",
                hint="Choose another name, or remove it first.",
                code="name-taken",
            ) from None
        return self.named(name)

    def remove(self, name: str) -> None:
        """Take an account away."""
        self.named(name)
        with self._open() as database:
            database.execute("DELETE FROM accounts WHERE name = ?", (name,))

    def forget_factor(self, name: str) -> None:
        """Forget a second factor: the next sign-in shows a new one."""
        self.named(name)
        with self._open() as database:
            database.execute(
                "UPDATE accounts SET secret = ?, confirmed = 0 WHERE name = ?", (new_secret(), name)
            )

    def kept(self, name: str) -> Kept:
        """What is kept of an account's password; nothing where there is no such account."""
        with self._open() as database:
            row = database.execute(
                "SELECT password, key FROM accounts WHERE name = ?", (name,)
            ).fetchone()
        return Kept(None) if row is None else Kept(*row)

    def keep(self, name: str, before: Kept, after: Kept) -> None:
        """Put another password and key in the place of these, both or neither."""
        with self._open() as database:
            done = database.execute(
                "UPDATE accounts SET password = ?, key = ? "
                "WHERE name = ? AND password IS ? AND key = ?",
                (after.password, after.key, name, before.password, before.key),
            )
        if done.rowcount != 1:
            raise DataError(
                "The account was changed by somebody else meanwhile.",
                hint="Nothing was changed now. Look at it again.",
                code="account-changed",
            )

    def all(self) -> list[Account]:
        """Every account, by name."""
        with self._open() as database:
            rows = database.execute(f"{_ACCOUNT} ORDER BY name").fetchall()
        return [_account(row) for row in rows]

    def find(self, name: str) -> Account | None:
        """An account, or ``None``."""
        with self._open() as database:
            row = database.execute(f"{_ACCOUNT} WHERE name = ?", (name,)).fetchone()
        return None if row is None else _account(row)

    def named(self, name: str) -> Account:
        """An account."""
        found = self.find(name)
        if found is None:
            raise DataError(
                f"There is no account {printable(name)!r}.",
                hint="'eigenveil console user list' shows them.",
                code="unknown-account",
            )
        return found

    # -- signing in

    def with_password(self, name: str, password: str) -> Account | None:
        """The account, where the password is its own; takes as long where it is not."""
        return self.find(name) if matches(self.kept(name).password, password) else None

    def secret(self, name: str) -> str:
        """The secret of an account's second factor."""
        with self._open() as database:
            row = database.execute("SELECT secret FROM accounts WHERE name = ?", (name,)).fetchone()
        return "" if row is None or row[0] is None else str(row[0])

    def take_code(self, name: str, code: str) -> bool:
        """Whether a code is right and was not used before; it is then used, and confirmed."""
        return self._take(
            "UPDATE accounts SET step = :step, confirmed = 1 "
            "WHERE name = :name AND secret = :secret AND step < :step",
            self.secret(name),
            code,
            name=name,
        )

    def take_secret(self, name: str, secret: str, code: str, *, before: str) -> bool:
        """Put a new second factor in the place of another, with a code of the new one."""
        return self._take(
            "UPDATE accounts SET secret = :secret, step = :step, confirmed = 1 "
            "WHERE name = :name AND secret = :before",
            secret,
            code,
            name=name,
            before=before,
        )

    def _take(self, update: str, secret: str, code: str, **which: str) -> bool:
        """Whether a code of a secret is right and the update, given its step, met the account."""
        step = step_of(secret, code) if secret else None
        if step is None:
            return False
        with self._open() as database:
            done = database.execute(update, {"secret": secret, "step": step, **which})
            return done.rowcount == 1

    # -- the log

    def note(self, what: str, *, who: str = "", address: str = "", detail: str = "") -> None:
        """Add a line to the log."""
        with self._open() as database:
            database.execute(
                "INSERT INTO events (time, who, address, what, detail) VALUES (?, ?, ?, ?, ?)",
                (_now(), printable(who, most=80), address, what, printable(detail, most=500)),
            )
            database.execute(
                "DELETE FROM events WHERE number <= (SELECT max(number) FROM events) - ?",
                (_MOST_EVENTS,),
            )

    def events(self, *, page: int = 1, size: int = 50) -> list[Event]:
        """A page of the log, the newest first."""
        with self._open() as database:
            rows = database.execute(
                "SELECT number, time, who, address, what, detail FROM events "
                "ORDER BY number DESC LIMIT ? OFFSET ?",
                (size, (page - 1) * size),
            ).fetchall()
        return [Event(*row) for row in rows]


_ACCOUNT = "SELECT name, role, password, confirmed, secret, key, since FROM accounts"


def _account(row: tuple[str, Role, str | None, int, str | None, str, str]) -> Account:
    name, role, password, confirmed, *rest = row
    mark = hashlib.sha256(repr([password, *rest]).encode()).hexdigest()
    return Account(name, role, password is not None, bool(confirmed), mark)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
