"""Rows of a query: streamed from a database by its ADBC driver, which nothing is written to.

All passes over the rows are within one transaction that sees one state of the database, whoever
writes to it meanwhile; a driver that does not promise that is refused.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eigenveil.checks import library
from eigenveil.errors import DataError
from eigenveil.io.formats.tabular import Table
from eigenveil.io.query import Query
from eigenveil.moments.source import part_rows
from eigenveil.tables.encode import numbers_of
from eigenveil.tables.entries import numbers

# One state of the database for all passes, read only; and rows in one order, whoever reads beside.
_POSTGRESQL = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL synchronize_seqscans = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
    "SELECT 1",
)
_SQLITE = ("PRAGMA query_only = ON", "SELECT count(*) FROM sqlite_schema")
_READ_ONLY = {
    "adbc.connection.readonly": "true",
    "adbc.connection.transaction.isolation_level": "adbc.connection.transaction.isolation.snapshot",
}
# SQLite's columns have a declared type at most, which its cells need not be of. The view tells it.
_VIEW = "eigenveil_rows"
_OF_TEXTS = ("CHAR", "CLOB", "TEXT")
_TYPE = b"ADBC:postgresql:typname"
# Classes of SQL's error codes whose messages quote cells.
_QUOTING = ("22", "23")


class QueryTable(Table):
    """The rows of a query, by the driver of its database's kind."""

    extra = "databases"

    def __init__(self, query: Query) -> None:
        self._query = query
        with self._asking():
            self._connection = self._connected()
        weakref.finalize(self, _close, self._connection)
        super().__init__(query)

    def _fields(self) -> list[tuple[str, Any]]:
        with self._asking(), self._answer(self._asked("*") + " LIMIT 0") as reader:
            found = [(field.name, _kind_of(field)) for field in reader.schema]
            for _ in reader:
                pass
        if not found:
            raise self._failed("it has no columns")
        return found

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        with self._asking(), self._answer(self._asked(", ".join(map(_quoted, columns)))) as reader:
            for batch in reader:
                cells = [
                    cell if cell.type == self.types[name] else pa.array(numbers(cell.to_pylist()))
                    for name, cell in zip(columns, batch.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(cells, list(columns))

    def _driver(self) -> Any:
        what = f"A {self._query.kind}:// database"
        driver = library(f"adbc_driver_{self._query.kind}", extra=self.extra, what=what)
        return library(f"{driver.__name__}.dbapi", extra=self.extra, what=what)

    def _connected(self) -> Any:
        made = self._driver().connect(self._query.uri)
        try:
            made.adbc_connection.set_options(**_READ_ONLY)
        except Exception:
            made.close()
            raise DataError("no-snapshot", query=self._query, kind=self._query.kind) from None
        return made

    def _asked(self, columns: str) -> str:
        return f"SELECT {columns} FROM (\n{self._query.text}\n) AS query_rows"

    @contextmanager
    def _answer(self, asked: str) -> Iterator[Any]:
        cursor = self._connection.cursor()
        try:
            cursor.execute(asked)
            yield cursor.fetch_record_batch()
        finally:
            cursor.close()

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
            text = re.sub(r'"https?://[^"\s]*"', "to the server", text)
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

    def _failed(self, why: str) -> DataError:
        return DataError("query-failed", query=self._query, why=why)


class PostgresqlTable(QueryTable):
    """Rows of PostgreSQL."""

    def _connected(self) -> Any:
        rest = self._query.uri.partition("://")[2]
        return _begun(self._driver().connect(f"postgresql://{rest}"), _POSTGRESQL)


class SqliteTable(QueryTable):
    """Rows of SQLite: a cell is what it is, whatever its column was declared to be."""

    @property
    def kinds(self) -> Mapping[str, Any]:
        return dict.fromkeys(self.types, pa.null())

    def _fields(self) -> list[tuple[str, Any]]:
        """Texts or numbers, by SQLite's rules for a column's declared type."""
        found = super()._fields()
        with self._asking(), self._connection.cursor() as cursor:
            cursor.execute(f"PRAGMA temp.table_info('{_VIEW}')")
            declared = [str(row[2]).upper() for row in cursor.fetchall()]
        texts = ("INT" not in each and any(t in each for t in _OF_TEXTS) for each in declared)
        kinds = [pa.string() if text else pa.float64() for text in texts]
        return [(name, kind) for (name, _), kind in zip(found, kinds, strict=True)]

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        """Numbers, or texts as bytes where they are wanted: each cell by itself.

        The driver takes a column's type from its first rows, and ends at a cell of another one: so
        decimals and other cells are two columns, whose types a row in front says.
        """
        pairs = []
        for name in map(_quoted, columns):
            is_real = f"CASE typeof({name}) WHEN 'real' THEN"
            pairs.append(f"{is_real} {name} END, {is_real} NULL ELSE CAST({name} AS BLOB) END")
        front = ", ".join(["0.5, x'00'"] * len(columns))
        asked = f"SELECT {front} UNION ALL {self._asked(', '.join(pairs))}"
        with self._asking(), self._answer(asked) as reader:
            first = 1
            for batch in reader:
                batch, first = batch.slice(first), 0
                cells = []
                for name, reals, others in zip(
                    columns, batch.columns[::2], batch.columns[1::2], strict=True
                ):
                    if name in texts:
                        found = reals.to_pylist()
                        written = [None if each is None else repr(each).encode() for each in found]
                        cells.append(pc.coalesce(pa.array(written, pa.binary()), others))
                    else:
                        cells.append(pc.coalesce(reals, pa.array(numbers_of(others))))
                yield pa.RecordBatch.from_arrays(cells, list(columns))

    def _connected(self) -> Any:
        """A connection to a file that is neither made nor written.

        SQLite's locks keep a state of the database for its readers. In WAL mode they are in a file
        beside it, which a reader must be able to write.
        """
        driver, file = self._driver(), self._query.absolute().file
        if file is None or not file.is_file():
            raise DataError("no-such-file", path=file)
        view = f"CREATE TEMP VIEW {_VIEW} AS {self._asked('*')}"
        made = _begun(driver.connect(f"file:{quote(str(file))}?mode=ro"), (view, *_SQLITE))
        with made.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode")
            in_wal = cursor.fetchone() == ("wal",)
        if in_wal and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
            made.close()
            raise DataError("locks-not-writable", query=self._query)
        return made


class SnowflakeTable(QueryTable):
    """Rows of Snowflake, which keeps no one state for several queries.

    The query is asked once, and its rows are in a file that only this user can read for as long as
    this object lives.
    """

    extra = "snowflake"

    def _connected(self) -> Any:
        kept = ExitStack()
        with kept, self._driver().connect(self._query.uri) as asked, asked.cursor() as cursor:
            folder = kept.enter_context(TemporaryDirectory(prefix="eigenveil-"))
            self._file = Path(folder) / "rows.parquet"
            cursor.execute(self._asked("*"))
            with (
                cursor.fetch_record_batch() as reader,
                pq.ParquetWriter(self._file, reader.schema) as writer,
            ):
                for batch in reader:
                    writer.write_batch(batch)
            return kept.pop_all()  # whose close() removes it

    def _fields(self) -> list[tuple[str, Any]]:
        return [(field.name, field.type) for field in pq.read_schema(self._file)]

    def _batches(self, columns: Sequence[str], texts: Collection[str]) -> Iterator[Any]:
        with pq.ParquetFile(self._file) as file:
            yield from file.iter_batches(part_rows(len(columns)), columns=list(columns))


_TABLES: dict[str, type[QueryTable]] = {
    "postgresql": PostgresqlTable,
    "snowflake": SnowflakeTable,
    "sqlite": SqliteTable,
}


def open_query(query: Query) -> QueryTable:
    return _TABLES.get(query.kind, QueryTable)(query)


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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _kind_of(field: Any) -> Any:
    """What the cells of a column are read as: decimal numbers come as texts."""
    numeric = (field.metadata or {}).get(_TYPE) == b"numeric"
    return pa.float64() if numeric else field.type
