"""Where a ledger is kept: an SQLite file or another database, and the errors of either."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from sqlalchemy import (
    Connection,
    Engine,
    Table,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.federation.ledger.tables import HEAD, Writer, make_tables, read_head

RESTORE = "Restore a copy of the ledger that passes 'ledger verify'."
_WAIT = "Try again; if it lasts, look for a process that hangs."
_RIGHTS = "Give a file that you may write, in a folder that you may write."
_DISK = "Make room on the disk or repair it, and try again; nothing was charged."

# by the first two words of SQLite's name for the error
_SQLITE: dict[str, tuple[type[EigenveilError], str, str, str]] = {
    "SQLITE_BUSY": (OutputError, "another process holds the ledger", _WAIT, "ledger-busy"),
    "SQLITE_NOTADB": (DataError, "not a ledger", "Give the ledger's file.", "not-a-ledger"),
    "SQLITE_CORRUPT": (DataError, "the ledger is damaged", RESTORE, "ledger-damaged"),
    "SQLITE_READONLY": (OutputError, "the ledger cannot be written", _RIGHTS, "cannot-write"),
    "SQLITE_PERM": (OutputError, "the ledger cannot be written", _RIGHTS, "cannot-write"),
    "SQLITE_CANTOPEN": (OutputError, "the ledger cannot be opened", _RIGHTS, "cannot-write"),
    "SQLITE_FULL": (OutputError, "the disk is full", _DISK, "cannot-write"),
    "SQLITE_IOERR": (OutputError, "the disk fails", _DISK, "cannot-write"),
}
_LOCK_TIMEOUT = "55P03"  # SQLSTATE of PostgreSQL


def said(name: str, error: SQLAlchemyError) -> EigenveilError:
    """The package's error for the ledger called ``name``."""
    origin = getattr(error, "orig", None) or error
    if isinstance(origin, sqlite3.Error):
        known = _SQLITE.get("_".join(getattr(origin, "sqlite_errorname", "").split("_")[:2]))
        if known is not None:
            family, what, hint, code = known
            return family(f"{name}: {what}.", hint=hint, code=code)
        return DataError(
            f"{name}: the ledger is damaged ({origin}).", hint=RESTORE, code="ledger-damaged"
        )
    if getattr(origin, "sqlstate", None) == _LOCK_TIMEOUT:
        return OutputError(
            f"{name}: another process holds the ledger.", hint=_WAIT, code="ledger-busy"
        )
    lines = str(origin).splitlines() or [type(origin).__name__]
    return OutputError(
        f"{name}: the database refused ({lines[0]}).",
        hint="Check that its server runs and that you may write there.",
        code="cannot-write",
    )


# -- Where a ledger is kept: an SQLite file, or any database that SQLAlchemy knows.
#
# Every call opens a connection, runs one transaction and closes it, so a process that is forked or
# killed leaves nothing behind, and a ledger that is not in use holds no file open.


_T = TypeVar("_T")

BUSY_SECONDS = 30.0
_CONNECT_SECONDS = 10  # to a server
_WRITES = "ledger_writes"
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# Of PostgreSQL's locks that an application names.
_TURNS = 0x65767665696C


class Store:
    """The place of a ledger, and transactions there."""

    def __init__(self, place: str | os.PathLike[str], *, durable: bool = True) -> None:
        self._durable = durable
        name = os.fspath(place)
        url = parsed_url(name, what="The ledger's place") if "://" in name else None
        self.name = name if url is None else _shown(url)
        self.path: Path | None = None
        if url is None:
            self.path = Path(name).absolute()  # a later change of folder does not move the ledger
        elif url.get_backend_name() == "sqlite":
            self.path = _path(url, self.name).absolute()
        self._url = str(self.path) if url is None else url.render_as_string(hide_password=False)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment of the ledger."""
        self._check_exists()
        with self.transaction(writes=False) as connection:
            self._first_step(read_head, connection)
            yield connection

    @contextmanager
    def writing(self, *, make: bool = False) -> Iterator[Writer]:
        """A transaction that no other writer runs beside; durable when the block has ended.

        With ``make``, the ledger is made where there is none.
        """
        if make and self._is_new():
            self.make_where_absent(HEAD, make_tables)
        else:
            self._check_exists()
        with self.transaction(writes=True) as connection:
            yield self._first_step(Writer, connection)

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Connection]:
        """A transaction of the database, whatever tables it has."""
        try:
            with self._connection() as connection:
                connection.execution_options(**{_WRITES: writes})
                if self.path is None:
                    # a writer sees what those before it wrote, a reader one moment
                    connection.execution_options(
                        isolation_level="READ COMMITTED" if writes else "REPEATABLE READ"
                    )
                with connection.begin():
                    yield connection
        except SQLAlchemyError as error:
            raise said(self.name, error) from None
        except UnicodeError:  # of sqlite3: the damage is in what its message quotes
            raise DataError(
                f"{self.name}: the ledger is damaged (it holds text that cannot be decoded).",
                hint=RESTORE,
                code="ledger-damaged",
            ) from None

    def _connection(self) -> Connection:
        if self.path is None:
            return self._engine().connect()
        token = _OPENING.set((self.path, self._durable))
        try:
            return self._engine().connect()
        finally:
            _OPENING.reset(token)

    def _engine(self) -> Engine:
        if self.path is not None:
            return _sqlite_engine()
        try:
            return _engine(self._url)
        except (NoSuchModuleError, ImportError) as error:
            raise OutputError(
                f"{self.name}: no driver for such a database ({error}).",
                hint="Install it; for PostgreSQL: pip install 'eigenveil[postgres]', and a URL "
                "that begins with postgresql://.",
                code="no-driver",
            ) from None

    def _check_exists(self) -> None:
        if self.path is None:
            return
        try:
            found = self.path.stat()
        except FileNotFoundError:
            raise self._no_ledger() from None
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise _unusable(self.name, error) from None
        if not stat.S_ISREG(found.st_mode):
            raise OutputError(
                f"{self.name} is not a file.",
                hint="Give the ledger's file.",
                code="not-a-file",
            )
        self._close_to_others(self.path, found)

    def _close_to_others(self, path: Path, found: os.stat_result) -> None:
        """A ledger holds the secrets of open sessions: it is its owner's alone."""
        if hasattr(os, "geteuid") and found.st_uid != os.geteuid() != 0:
            raise OutputError(
                f"{self.name} belongs to another user of this machine, who can read and change it.",
                hint="Give a file of your own.",
                code="not-yours",
            )
        if found.st_mode & _OF_OTHERS and _may_be_ledger(path):
            try:
                path.chmod(stat.S_IMODE(found.st_mode) & ~_OF_OTHERS)
            except OSError as error:
                raise _unusable(self.name, error) from None

    def _first_step(self, step: Callable[[Connection], _T], connection: Connection) -> _T:
        """A first step in a ledger; where it fails, whether this is one is reported."""
        if self.path is None:  # a server's transaction is over once a step fails
            self._check_is_ledger(connection)
            return step(connection)
        try:
            return step(connection)
        except OperationalError:
            self._check_is_ledger(connection)
            raise

    def _check_is_ledger(self, connection: Connection) -> None:
        tables = inspect(connection)
        if tables.has_table(HEAD.name):
            return
        if self.path is not None and tables.get_table_names():
            raise DataError(
                f"{self.name} is an SQLite file, but not a ledger.",
                hint="Give the ledger's file.",
                code="not-a-ledger",
            )
        raise self._no_ledger()

    def _is_new(self) -> bool:
        """Whether there may be no ledger yet: a file that is one has something in it."""
        if self.path is None:
            return True
        try:
            return self.path.stat().st_size == 0
        except (OSError, ValueError):
            return True

    def _no_ledger(self) -> OutputError:
        return OutputError(
            f"{self.name}: there is no ledger.",
            hint=f"Make one by setting a budget: eigenveil ledger budget {self.name} "
            "--data-set NAME --epsilon E --delta D.",
            code="no-ledger",
        )

    def make_where_absent(self, first: Table, make: Callable[[Connection], None]) -> None:
        """Make tables, of which ``first`` is one, where it is absent; never in others' files."""
        if self.path is not None:
            self._make_file(self.path)
            self._check_exists()
        with self.transaction(writes=True) as connection:
            advisory_lock(connection)  # tables have no lock before they exist
            tables = inspect(connection)
            if not tables.has_table(first.name) and (
                self.path is None or not tables.get_table_names()
            ):
                make(connection)

    def _make_file(self, path: Path) -> None:
        try:
            with suppress(FileNotFoundError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and not found.st_size and found.st_mode & _OF_OTHERS:
                    path.unlink()  # somebody may hold it open: changing its mode would be too late
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except (OSError, ValueError) as error:
            raise _unusable(self.name, error) from None


def advisory_lock(connection: Connection) -> None:
    """Take turns with others who say this, until the transaction ends; in SQLite writers do."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_TURNS})"))


# The file that the shared SQLite engine opens next, and whether it must survive a power failure.
_OPENING: ContextVar[tuple[Path, bool]] = ContextVar("_OPENING")


@lru_cache(maxsize=16)  # an engine is large; it holds no connection, so sharing it is free
def _engine(url: str) -> Engine:
    parsed = make_url(url)
    wait = parsed.get_backend_name() == "postgresql" and "connect_timeout" not in parsed.query
    known = {"connect_timeout": _CONNECT_SECONDS} if wait else {}
    engine = create_engine(parsed, poolclass=NullPool, connect_args=known)
    event.listen(engine, "begin", _begin_elsewhere)
    return engine


@cache
def _sqlite_engine() -> Engine:
    """One engine for all files: what it has compiled once serves a thousand ledgers."""
    engine = create_engine("sqlite://", creator=_open_file, poolclass=NullPool)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _open_file() -> sqlite3.Connection:
    """A connection that leaves transactions to :func:`_begin_sqlite` and never makes a file."""
    path, durable = _OPENING.get()
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=rw",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
    )
    try:
        if durable:
            # also when power fails just after: FULL leaves out the folder of the journal
            connection.execute("PRAGMA synchronous = EXTRA")
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


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_elsewhere(connection: Connection) -> None:
    if connection.dialect.name == "postgresql" and connection.get_execution_options().get(_WRITES):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(1000 * BUSY_SECONDS)}")
        connection.exec_driver_sql("SET LOCAL synchronous_commit = on")


def parsed_url(name: str, *, what: str) -> URL:
    """A database's URL; PostgreSQL's driver is psycopg."""
    try:
        url = make_url(name)
    except (ArgumentError, ValueError):  # its text may hold a password: not shown
        raise OutputError(
            f"{what} has '://' but is not a database URL.",
            hint="Give a path, or a URL such as postgresql://user@host/database.",
            code="bad-url",
        ) from None
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _shown(url: URL) -> str:
    """The URL without a password, wherever it stands."""
    hidden = {key: "***" for key in url.query if "password" in key.lower()}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


def _path(url: URL, name: str) -> Path:
    database = url.database or ":memory:"
    if database == ":memory:" or database.startswith("file:") or url.query:
        raise OutputError(
            f"{name}: a ledger needs a file of its own.",
            hint="Give the file's path.",
            code="bad-url",
        )
    return Path(database)


def _unusable(name: str, error: OSError | ValueError) -> OutputError:
    return OutputError(
        f"{name}: {getattr(error, 'strerror', None) or error}.",
        hint="Give a file in a folder that exists and that you may write.",
        code="cannot-write",
    )


def _may_be_ledger(path: Path) -> bool:
    """Whether a file is empty or a database: of any other not even the mode is changed."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_DATABASE))
    except OSError:
        return True  # whoever opens it finds out why
    return start in (b"", _DATABASE)


_DATABASE = b"SQLite format 3\0"
