"""What a database says when something is wrong, in the package's words."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import SQLAlchemyError

from eigenveil.errors import DataError, EigenveilError, OutputError

RESTORE = "Go back to a copy of the ledger that holds."
_WAIT = "Try again; if it lasts, look for a process that hangs."
_RIGHTS = "Give a file that you may write, in a folder that you may write."
_DISK = "Make room on the disk or mend it, and try again; nothing was charged."

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
        f"{name}: the database refuses ({lines[0]}).",
        hint="Check that its server runs and that you may write there.",
        code="cannot-write",
    )
