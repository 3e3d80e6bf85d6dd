"""Where a ledger is kept: an SQLite file or a PostgreSQL database, and the errors of either.

Every call opens a connection, runs one transaction and closes it, so a process that is forked or
killed leaves nothing behind, and a ledger that is not in use holds no file open.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from eigenveil.errors import DataError, EigenveilError, OutputError, of_system
from eigenveil.federation.ledger.entries import FIRST, Head
from eigenveil.federation.ledger.heads import HeadsFile, UsualHeads
from eigenveil.federation.ledger.tables import PostgreSQLTables, SQLiteTables, Tables

# by the first two words of SQLite's name for the error
_SQLITE: dict[str, tuple[type[EigenveilError], str]] = {
    "SQLITE_BUSY": (OutputError, "ledger-busy"),
    "SQLITE_NOTADB": (DataError, "not-a-ledger"),
    "SQLITE_CORRUPT": (DataError, "ledger-damaged"),
    "SQLITE_READONLY": (OutputError, "ledger-not-writable"),
    "SQLITE_PERM": (OutputError, "ledger-not-writable"),
    "SQLITE_CANTOPEN": (OutputError, "ledger-not-writable"),
    "SQLITE_FULL": (OutputError, "disk-full"),
    "SQLITE_IOERR": (OutputError, "disk-fails"),
}
_LOCK_TIMEOUT = "55P03"  # SQLSTATE of PostgreSQL
_DATABASE = b"SQLite format 3\0"
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO

BUSY_SECONDS = 30.0
_CONNECT_SECONDS = 10  # to a server
# What is written outlasts a power failure just after: FULL leaves out the folder of the journal.
SYNCHRONOUS = "EXTRA"


def open_store(
    place: str | os.PathLike[str] | LedgerStore,
    *,
    durable: bool = True,
    heads: HeadsFile | Literal["usual"] | None = None,
) -> LedgerStore:
    """The place of a ledger, a file or a URL (it has ``://``), and that of its heads."""
    if isinstance(place, LedgerStore):
        return place
    store = _store_of(os.fspath(place), durable=durable)
    if heads == "usual":
        heads = UsualHeads(store.name) if durable else None
    store.heads = heads
    return store


def _store_of(name: str, *, durable: bool) -> LedgerStore:
    scheme, found, rest = name.partition("://")
    if not found:
        return FileStore(name, name, durable=durable)
    if scheme == "sqlite":
        file = rest.removeprefix("/")
        if not rest.startswith("/") or file.startswith((":memory:", "file:")) or "?" in file:
            file = ""
        if not file:
            raise OutputError("no-file-of-ledger", ledger=name)
        return FileStore(file, name, durable=durable)
    return ServerStore(scheme, rest)


class LedgerStore:
    name: str  # As it can be shown: without a password
    heads: HeadsFile | None = None
    is_file = False
    is_kept = True  # Whether it outlasts this process
    _errors: tuple[type[Exception], ...] = (sqlite3.Error,)

    @contextmanager
    def reading(self) -> Iterator[Tables]:
        """A transaction that sees one moment of the ledger."""
        with self._transaction(writes=False) as tables:
            self._check_is_ledger(tables)
            yield tables

    @contextmanager
    def reading_if_any(self) -> Iterator[Tables | None]:
        """The same; ``None`` where there is no ledger yet."""
        with ExitStack() as stack:
            try:
                tables = stack.enter_context(self.reading())
            except OutputError as error:
                if error.code != "no-ledger":
                    raise
                tables = None
            yield tables

    @contextmanager
    def writing(self, *, make: bool = False) -> Iterator[Tables]:
        """A transaction that no other writer runs beside; durable when the block has ended.

        The heads before and after it are noted. With ``make``, the ledger is made where there is
        none.
        """
        heads = self.heads
        if make:
            if heads is not None:
                heads.note(Head(0, FIRST))  # no ledger is made where its heads cannot be kept
            self.make()
        with self._transaction(writes=True) as tables:
            self._check_is_ledger(tables)
            tables.hold()
            if heads is not None:
                heads.note(tables.head, last=True)
            yield tables
        if heads is not None:
            heads.note(tables.head)

    def noted(self) -> list[Head] | None:
        """The heads in the second place; ``None`` where nobody named one and none was noted."""
        if self.heads is None:
            return None
        found = self.heads.read()
        return found if found or self.heads.named else None

    def mark(self) -> str:
        """What decisions call this ledger; it is made where there is none."""
        with self.reading_if_any() as tables:
            if tables is not None:
                return tables.mark()
        with self.writing(make=True) as made:
            return made.mark()

    def make(self) -> None:
        """Make the ledger where there is none; never among others' tables of a file."""
        with self._transaction(writes=True) as tables:
            tables.take_turns()
            names = tables.names()
            if not tables.are_in(names) and not (names and self.is_file):
                tables.make()

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Tables]:
        try:
            with closing(self._connected()) as connection:
                tables = self._begun(connection, writes=writes)
                yield tables
                self.commit(connection)
        except self._errors as error:
            raise self._said(error) from None
        except UnicodeError:  # of sqlite3: the damage is in what its message quotes
            raise DataError(
                "ledger-damaged", ledger=self.name, how="it holds text that cannot be decoded"
            ) from None

    def commit(self, connection: Any) -> None:
        """End a transaction well; one that is only closed leaves nothing."""
        connection.commit()

    def _connected(self) -> Any:
        raise NotImplementedError

    def _begun(self, connection: Any, *, writes: bool) -> Tables:
        raise NotImplementedError

    def _said(self, error: Exception) -> EigenveilError:
        raise NotImplementedError

    def _check_is_ledger(self, tables: Tables) -> None:
        names = tables.names()
        if tables.are_in(names):
            return
        if self.is_file and names:
            raise DataError("not-a-ledger", ledger=self.name)
        raise self._no_ledger()

    def _no_ledger(self) -> OutputError:
        return OutputError("no-ledger", ledger=self.name)


class FileStore(LedgerStore):
    """An SQLite file, its owner's alone: it holds the secrets of open sessions."""

    is_file = True

    def __init__(self, place: str, name: str, *, durable: bool) -> None:
        self.name, self._durable = name, durable
        self._path = Path(place).absolute()  # a later change of folder does not move the ledger

    def make(self) -> None:
        """Make the file, too, readable by its owner alone; one that has something in it is left."""
        with suppress(OSError, ValueError):
            if self._path.stat().st_size:
                return
        try:
            with suppress(FileNotFoundError):
                found = self._path.lstat()
                if stat.S_ISREG(found.st_mode) and not found.st_size and found.st_mode & _OF_OTHERS:
                    self._path.unlink()  # somebody may hold it open: its mode would be too late
            with suppress(FileExistsError):
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except (OSError, ValueError) as error:
            raise self._unusable(error) from None
        super().make()

    def _connected(self) -> sqlite3.Connection:
        self._check_file()
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self._path))}?mode=rw",  # never makes a file
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
        )
        try:
            if self._durable:
                connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                connection.execute("PRAGMA secure_delete = ON")  # states are secrets: overwritten
            else:
                # thrown away: nothing of it need outlast the process, not even to be undone
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA journal_mode = MEMORY")
                connection.execute("PRAGMA secure_delete = OFF")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _begun(self, connection: Any, *, writes: bool) -> Tables:
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        return SQLiteTables(connection)

    def _said(self, error: Exception) -> EigenveilError:
        name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
        family, code = _SQLITE.get(name, (DataError, "ledger-damaged"))
        return family(code, ledger=self.name, how=error)

    def _check_file(self) -> None:
        path = self._path
        try:
            found = path.stat()
        except FileNotFoundError:
            raise self._no_ledger() from None
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise self._unusable(error) from None
        if not stat.S_ISREG(found.st_mode):
            raise OutputError("not-a-file", path=self.name)
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid() != 0:
            raise OutputError("not-yours", name=self.name)
        if found.st_mode & _OF_OTHERS and _may_be_ledger(path):
            try:
                path.chmod(stat.S_IMODE(found.st_mode) & ~_OF_OTHERS)
            except OSError as error:
                raise self._unusable(error) from None

    def _unusable(self, error: OSError | ValueError) -> OutputError:
        return OutputError("cannot-write", path=self.name, reason=of_system(error))


def _may_be_ledger(path: Path) -> bool:
    """Whether a file is empty or a database: of any other not even the mode is changed."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_DATABASE))
    except OSError:
        return True  # whoever opens it finds out why
    return start in (b"", _DATABASE)


class ServerStore(LedgerStore):
    def __init__(self, scheme: str, rest: str) -> None:
        self._scheme = scheme.removesuffix("+psycopg")
        self._url = f"{self._scheme}://{rest}"
        place, found, query = rest.partition("?")
        try:
            urlsplit(self._url).port  # noqa: B018 -- raises where it is none
            if not self._scheme.replace("+", "").isalnum():
                raise ValueError
        except ValueError:  # its text may hold a password: not shown
            raise OutputError("bad-url", what="The ledger's place") from None
        values = parse_qsl(query, keep_blank_values=True)
        self._waits = "connect_timeout" not in dict(values)
        user, given, host = place.rpartition("@")
        who, secret, _ = user.partition(":")
        hidden = [(key, "***" if "password" in key.lower() else value) for key, value in values]
        self.name = (
            f"{self._scheme}://{who}{secret and ':***'}{given}{host}{found}"
            f"{urlencode(hidden, safe='/*', quote_via=quote)}"
        )

    def _connected(self) -> Any:
        try:
            if self._scheme not in ("postgresql", "postgres"):
                raise ImportError("a ledger is an SQLite file, or in PostgreSQL")
            import psycopg  # an extra that only such a ledger needs
        except ImportError as error:
            raise OutputError("no-driver", name=self.name, error=error) from None
        self._errors = (psycopg.Error,)
        url = self._url
        if self._waits:
            url += f"{'&' if '?' in url else '?'}connect_timeout={_CONNECT_SECONDS}"
        return psycopg.connect(url, autocommit=True)

    def _begun(self, connection: Any, *, writes: bool) -> Tables:
        # a writer sees what those before it wrote, a reader one moment
        level = "READ COMMITTED" if writes else "REPEATABLE READ"
        connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        if writes:
            connection.execute(f"SET LOCAL lock_timeout = {round(1000 * BUSY_SECONDS)}")
            connection.execute("SET LOCAL synchronous_commit = on")
        return PostgreSQLTables(connection)

    def _said(self, error: Exception) -> EigenveilError:
        if getattr(error, "sqlstate", None) == _LOCK_TIMEOUT:
            return OutputError("ledger-busy", ledger=self.name)
        lines = str(error).splitlines() or [type(error).__name__]
        return OutputError("database-refused", database=self.name, reason=lines[0])
