"""A ledger's heads in a database, where who writes the ledger may add rows and change none.

The table holds a name of the ledger, number and hash of the entry, and the server's time. The
rights to it are the database's: a role with INSERT (on ``ledger``, ``number`` and ``hash``) and
SELECT is all that a site needs once the table is there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Integer,
    MetaData,
    String,
    Table,
    insert,
    inspect,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.ledger.heads import Noted, is_there
from eigenveil.federation.ledger.store import Store, advisory_lock, parsed_url
from eigenveil.federation.ledger.tables import LONGEST_NAME, Head, only_added


class _Clock(FunctionElement[datetime]):
    """The server's time now, not that of the transaction's begin: it may have waited since."""

    type = DateTime(timezone=True)
    inherit_cache = True


@compiles(_Clock)
def _clock(element: _Clock, compiler: Any, **more: Any) -> str:
    del element, more
    return "clock_timestamp()" if compiler.dialect.name == "postgresql" else "CURRENT_TIMESTAMP"


HEADS = Table(
    "eigenveil_heads",
    MetaData(),
    Column("ledger", String(LONGEST_NAME), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("hash", String(64), nullable=False),
    Column("time", DateTime(timezone=True), nullable=False, server_default=_Clock()),
)
only_added(HEADS)


class HeadsTable:
    """Rows of the table ``eigenveil_heads``, made where it is absent."""

    def __init__(self, place: str) -> None:
        url = parsed_url(place, what="The place of the ledger's heads")
        name = url.query.get("ledger")
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
            raise OutputError(
                "The database of the ledger's heads is given without the ledger's name there.",
                hint="Add it at the end of the URL, and keep it: ?ledger=NAME (&ledger=NAME after "
                "other parameters).",
                code="bad-url",
            )
        url = url.difference_update_query(["ledger"])
        self._ledger, self._made = name, False
        self._store = Store(url.render_as_string(hide_password=False))

    named = True

    def __str__(self) -> str:
        return self._name

    def note(self, head: Head, *, last: bool = False) -> None:
        """Add a head, as of :meth:`Heads.note`."""
        if not self._made:
            self._store.make_where_absent(HEADS, HEADS.create)
            self._made = True
        if not (head.count or last):
            return
        later = select(HEADS.c.number, HEADS.c.hash).where(
            HEADS.c.ledger == self._ledger, HEADS.c.number >= head.count
        )
        with self._store.transaction(writes=True) as connection:
            advisory_lock(connection)  # so that later heads have later times
            noted = [Head(row.number, row.hash) for row in connection.execute(later)]
            if is_there(head, noted, last=last, place=self._name) or not head.count:
                return
            values = {"ledger": self._ledger, "number": head.count, "hash": head.hash}
            connection.execute(insert(HEADS).values(values))

    def read(self) -> list[Noted]:
        """All heads, as of :meth:`Heads.read`; ``no-heads`` where there is no table."""
        c = HEADS.c
        query = select(c.number, c.hash, c.time).where(c.ledger == self._ledger)
        with self._store.transaction(writes=False) as connection:
            self._check_there(connection)
            rows = connection.execute(query.order_by(c.number)).all()
        return [Noted(row.number, row.hash, self._utc(row.time)) for row in rows]

    @property
    def _name(self) -> str:
        return f"{self._store.name}, ledger {self._ledger!r}"

    def _check_there(self, connection: Connection) -> None:
        if not inspect(connection).has_table(HEADS.name):
            raise OutputError(
                f"{self._store.name}: there is no table {HEADS.name}.",
                hint="It is made when a site starts with --heads and this URL; is this the "
                "database and the schema?",
                code="no-heads",
            )

    def _utc(self, time: object) -> datetime:
        if not isinstance(time, datetime):
            raise DataError(
                f"{self._name}: a head has no time.",
                hint="Something other than eigenveil changed it.",
                code="heads-damaged",
            )
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
