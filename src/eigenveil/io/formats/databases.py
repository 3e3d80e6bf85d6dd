"""Rows of a query: streamed from a database by its ADBC driver, which nothing is written to.

All passes over the rows are within one transaction that sees one state of the database, whoever
writes to it meanwhile; a driver that does not promise that is refused.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from eigenveil.errors import DataError
from eigenveil.io.formats.extras import library
from eigenveil.io.formats.tabular import Table
from eigenveil.io.query import Query

# One state of the database for all passes, read only; and rows in one order, whoever reads beside.
_POSTGRESQL = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL synchronize_seqscans = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
    "SELECT 1",
)
_SQLITE = ("PRAGMA query_only = ON", "SELECT count(*) FROM sqlite_schema")
_NO_SNAPSHOT = "Save the query's rows as Parquet, and give the file."
_READ_ONLY = {
    "adbc.connection.readonly": "true",
    "adbc.connection.transaction.isolation_level": "adbc.connection.transaction.isolation.snapshot",
}
# Of SQLite, whose columns have no types: those of the first rows, as many as its driver looks at.
_LOOKED_AT = 1024
_TYPE = b"ADBC:postgresql:typname"
# Classes of SQL's error codes whose messages quote cells.
_QUOTING = ("22", "23")


class QueryTable(Table):
    """The rows of a query.

    Parameters
    ----------
    query : Query
        Named in messages without user and password.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._kind = query.kind
        with self._asking():
            self._connection = self._connected()
        weakref.finalize(self, _close, self._connection)
        super().__init__(query)

    def _fields(self) -> list[tuple[str, Any]]:
        few = _LOOKED_AT if self._kind == "sqlite" else 0
        with self._asking(), self._answer("*", limit=few) as reader:
            found = [(field.name, _kind_of(field)) for field in reader.schema]
            if few:
                for _ in reader:
                    pass
        if not found:
            raise self._failed("it has no columns")
        return found

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        del texts  # cells have types
        named = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        with self._asking(), self._answer(named) as reader:
            for batch in reader:
                cells = [
                    cell.cast(self.types[name]) if cell.type != self.types[name] else cell
                    for name, cell in zip(columns, batch.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(cells, list(columns))

    @contextmanager
    def _answer(self, columns: str, *, limit: int | None = None) -> Iterator[Any]:
        """A reader of the query's Arrow batches."""
        most = "" if limit is None else f" LIMIT {limit}"
        cursor = self._connection.cursor()
        try:
            cursor.execute(f"SELECT {columns} FROM (\n{self._query.text}\n) AS query_rows{most}")
            yield cursor.fetch_record_batch()
        finally:
            cursor.close()

    def _connected(self) -> Any:
        what = f"A {self._kind}:// database"
        driver = library(f"adbc_driver_{self._kind}", extra="databases", what=what)
        driver = library(f"{driver.__name__}.dbapi", extra="databases", what=what)
        if self._kind == "sqlite":
            return self._sqlite(driver)
        if self._kind == "postgresql":
            rest = self._query.uri.partition("://")[2]
            return _begun(driver.connect(f"postgresql://{rest}"), _POSTGRESQL)
        made = driver.connect(self._query.uri)
        try:
            made.adbc_connection.set_options(**_READ_ONLY)
        except Exception:
            made.close()
            raise self._failed(
                f"the driver of {self._kind} does not promise one state of the database for all "
                "passes",
                hint=_NO_SNAPSHOT,
            ) from None
        return made

    def _sqlite(self, driver: Any) -> Any:
        """A connection to a file that is neither made nor written.

        SQLite's locks keep a state of the database for its readers. In WAL mode they are in a file
        beside it, which a reader must be able to write.
        """
        file = self._query.file.absolute()
        if not file.is_file():
            raise DataError(f"{file} does not exist.", hint="Check the path.", code="no-such-file")
        made = _begun(driver.connect(f"file:{quote(str(file))}?mode=ro"), _SQLITE)
        with made.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode")
            in_wal = cursor.fetchone() == ("wal",)
        if in_wal and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
            made.close()
            raise self._failed(
                "it is in WAL mode, and this user cannot write its locks, without which it may "
                "change between passes",
                hint=_NO_SNAPSHOT,
            )
        return made

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn what the driver says into a DataError, without passwords and cells."""
        try:
            yield
        except (DataError, GeneratorExit):
            raise
        except Exception as error:
            state = str(getattr(error, "sqlstate", None) or "")
            if state.startswith(_QUOTING):
                raise self._failed(f"a value could not be computed (SQLSTATE {state})") from None
            text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            # in the middle of rows what is quoted may be a cell, before them it is the query
            if not state and "Failed to prepare query" not in text:
                text = re.sub(r"""["'].*""", "...", text)
            raise self._failed(self._without_secrets(text) or type(error).__name__) from None

    def _without_secrets(self, text: str) -> str:
        parts = self._query.parts
        secrets = [self._query.uri, parts.password, parts.query, parts.netloc.rpartition("@")[0]]
        secrets += [unquote(each) for each in secrets if each]
        for each in sorted(filter(None, secrets), key=len, reverse=True):
            text = text.replace(each, "***")
        return re.sub(r"(?i)password=\S+", "password=***", text)[:300].rstrip(". ")

    def _failed(
        self, why: str, *, hint: str = "Check the query and the database; nothing was written."
    ) -> DataError:
        if "Type mismatch" in why or "type mismatch" in why:
            hint = "Give columns of a database without types one: CAST(name AS REAL) AS name."
        return DataError(f"{self._query}: {why}.", hint=hint, code="query-failed")


def _begun(connection: Any, statements: Sequence[str]) -> Any:
    """A connection whose transaction sees one state of the database from now on."""
    try:
        for statement in statements:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                if statement.startswith("SELECT"):
                    cursor.fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:  # the server went away: nothing was written, and nothing is left
        return


def _kind_of(field: Any) -> Any:
    """What the cells of a column are read as: decimal numbers come as texts."""
    numeric = (field.metadata or {}).get(_TYPE) == b"numeric"
    return pa.float64() if numeric else field.type
