"""The tables of a ledger: entries are only ever added, by who holds the head.

The head is one row with the number and the hash of the last entry. Locking it makes writers take
turns. Beside the entries there is only what they need not hold: the states of open sessions and the
answers that may be requested again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

from sqlalchemy import (
    DDL,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    Text,
    UpdateBase,
    bindparam,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeDecorator

from eigenveil.errors import DataError
from eigenveil.federation.ledger.entries import FIRST, Body, Entry, opened, seal
from eigenveil.federation.signed import canonical

FORMAT = "eigenveil-ledger-4"
LONGEST_NAME = 200
_MOST_ENTRIES = 2**31 - 1  # as a database counts them

metadata = MetaData()


class Bytes(TypeDecorator[bytes]):
    """Bytes, and nothing that a damaged file may hold in their place."""

    impl = LargeBinary
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], bytes | None]:
        """Only bytes come back: ``bytes(10**12)`` would take a terabyte of zeros."""
        del dialect, coltype
        return only_bytes


def only_bytes(value: object) -> bytes | None:
    """Bytes that were read, or nothing; DataError for what was never written."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, memoryview):
        return bytes(value)
    raise DataError(
        "The ledger is damaged: it holds something else where bytes were written.",
        hint="Restore a copy of the ledger that passes 'ledger verify'.",
        code="ledger-damaged",
    )


HEAD = Table(
    "ledger_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("format", String(40), nullable=False),
    Column("count", Integer, nullable=False),
    Column("hash", String(64), nullable=False),
    # under which files are known; random, and in no entry, so that entries say nothing of files
    Column("key", String(64), nullable=False),
)

ENTRIES = Table(
    "ledger_entries",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time", String(40), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    # of the body, to find a session's entries by
    Column("study", String(LONGEST_NAME)),
    Column("session", String(LONGEST_NAME)),
    Index("ledger_entries_of_session", "study", "session"),
)


def _session_key() -> tuple[Column[str], Column[str]]:
    return (
        Column("study", String(LONGEST_NAME), primary_key=True),
        Column("session", String(LONGEST_NAME), primary_key=True),
    )


STATES = Table("ledger_states", metadata, *_session_key(), Column("state", Bytes, nullable=False))

# ``reply`` goes once it is settled or the session has ended; the digests (SHA-256, hex) stay
REPLIES = Table(
    "ledger_replies",
    metadata,
    *_session_key(),
    Column("step", String(LONGEST_NAME), primary_key=True),
    Column("request_hash", String(64), nullable=False),
    Column("reply_hash", String(64), nullable=False),
    Column("reply", Bytes),
)


def only_added(table: Table) -> None:
    """Have the database itself refuse to change the table's rows, from when the table is made."""
    name = table.name
    never = f"{name.rpartition('_')[2]} of a ledger are never changed"
    refusals = {
        "sqlite": [
            f"CREATE TRIGGER {name}_no_{verb} BEFORE {verb} ON {name} "
            f"BEGIN SELECT RAISE(ABORT, '{never}'); END"
            for verb in ("UPDATE", "DELETE")
        ],
        "postgresql": [
            f"CREATE OR REPLACE FUNCTION {name}_refuse() RETURNS trigger LANGUAGE plpgsql "
            f"AS $$ BEGIN RAISE EXCEPTION '{never}'; END $$",
            f"CREATE TRIGGER {name}_no_change BEFORE UPDATE OR DELETE OR TRUNCATE "
            f"ON {name} FOR EACH STATEMENT EXECUTE FUNCTION {name}_refuse()",
        ],
    }
    for dialect, statements in refusals.items():
        for statement in statements:
            event.listen(
                table,
                "after_create",
                DDL(statement).execute_if(dialect=dialect),  # type: ignore[no-untyped-call]
            )


only_added(ENTRIES)


@dataclass(frozen=True)
class Head:
    """Number and hash of the last entry; 0 and 64 zeros of an empty ledger."""

    count: int
    hash: str


class Statement:
    """A statement with named values, as each kind of database has it: worked out once.

    It is run as its text. SQLAlchemy would otherwise look it up and convert its values every time,
    which takes longer than most of these statements do. So values are what a driver takes itself,
    and what comes back is as the driver gives it.
    """

    def __init__(self, query: UpdateBase | Select[Any]) -> None:
        self._query = query
        self._known: dict[str, SQLCompiler] = {}

    def run(self, connection: Connection, **values: object) -> CursorResult[Any]:
        """Execute it."""
        compiled = self._known.get(connection.dialect.name)
        if compiled is None:
            compiled = self._query.compile(dialect=connection.dialect)
            self._known[connection.dialect.name] = compiled
        given = {**compiled.params, **values}
        text = str(compiled.string)
        if compiled.positiontup is None:
            return connection.exec_driver_sql(text, given)
        return connection.exec_driver_sql(text, tuple(given[name] for name in compiled.positiontup))


_KEY = Statement(select(HEAD.c.key).where(HEAD.c.id == 1))
_READ_HEAD = select(HEAD.c.format, HEAD.c.count, HEAD.c.hash).where(HEAD.c.id == 1)
_HEAD, _LOCKED_HEAD = Statement(_READ_HEAD), Statement(_READ_HEAD.with_for_update())
_MOVE_HEAD = Statement(
    update(HEAD)
    .where(HEAD.c.id == 1)
    .values(count=bindparam("its_count"), hash=bindparam("its_hash"))
)
_ADD = Statement(insert(ENTRIES))
_IN_ORDER = select(
    *(ENTRIES.c[name] for name in ("number", "time", "kind", "body", "previous", "hash"))
).order_by(ENTRIES.c.number)


def make_tables(connection: Connection) -> None:
    """Make an empty ledger."""
    metadata.create_all(connection)
    connection.execute(
        insert(HEAD).values(id=1, format=FORMAT, count=0, hash=FIRST, key=token_hex(32))
    )


def read_head(connection: Connection, *, lock: bool = False) -> Head:
    """The head; with ``lock``, no other transaction has it before this one ends."""
    row = (_LOCKED_HEAD if lock else _HEAD).run(connection).one_or_none()
    if row is None or not (isinstance(row.count, int) and 0 <= row.count < _MOST_ENTRIES):
        raise DataError(
            "The ledger has lost its head.",
            hint="Something other than eigenveil changed it; restore a copy that "
            "passes 'ledger verify'.",
            code="ledger-damaged",
        )
    if row.format != FORMAT:
        raise DataError(
            f"The ledger's format is {row.format!r}, this version of eigenveil reads {FORMAT!r}.",
            hint="Use the version that wrote it, or begin another ledger with what its budget "
            "leaves.",
            code="other-format",
        )
    return Head(row.count, row.hash)


def read_key(connection: Connection) -> bytes:
    """The ledger's own key, under which it knows files; it never leaves the ledger."""
    key = _KEY.run(connection).scalar_one_or_none()
    try:
        found = bytes.fromhex(str(key))
    except (TypeError, ValueError):
        found = b""
    if len(found) != 32:
        raise DataError(
            "The ledger has lost the key by which it knows files.",
            hint="Something other than eigenveil changed it; restore a copy that "
            "passes 'ledger verify'.",
            code="ledger-damaged",
        )
    return found


def ledger_mark(key: bytes) -> str:
    """What a ledger is called in decisions that are made for it: it says nothing of its key."""
    return hashlib.sha256(b"eigenveil ledger mark 1\n" + key).hexdigest()


def entries_where(*where: ColumnElement[bool]) -> Select[Any]:
    """The query for the entries of which this is so, in order."""
    return _IN_ORDER.where(*where)


def read_entries(
    connection: Connection, query: Select[Any] = _IN_ORDER, **named: object
) -> Iterator[Entry]:
    """Entries in order, as they are stored; all of them, or those of a query."""
    for row in connection.execute(query, named):
        yield opened(*row)


class Writer:
    """The one who may write: holds the head's lock until the transaction ends."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.head = read_head(connection, lock=True)

    def append(self, body: Body) -> Entry:
        """Add an entry with ``body``."""
        plain = body.plain()
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = seal(self.head.count + 1, now, body.kind, plain, self.head.hash)
        _ADD.run(self.connection, **_row(entry))
        self.head = Head(entry.number, entry.hash)
        _MOVE_HEAD.run(self.connection, its_count=entry.number, its_hash=entry.hash)
        return entry


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "time": entry.time,
        "kind": entry.kind,
        "body": canonical(entry.body),
        "previous": entry.previous,
        "hash": entry.hash,
        "study": entry.body.get("study"),
        "session": entry.body.get("session"),
    }
