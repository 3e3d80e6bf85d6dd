"""The rows of one session: its entries added up, its state, its answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, insert, select, update

from eigenveil.errors import DataError, ProtocolError
from eigenveil.federation.ledger_bodies import EndBody, SessionKey
from eigenveil.federation.ledger_books import Books, Session
from eigenveil.federation.ledger_chain import Entry, checked
from eigenveil.federation.ledger_tables import (
    ENTRIES,
    REPLIES,
    STATES,
    Writer,
    read_entries,
    read_head,
)


def whole_books(connection: Connection) -> Books:
    """All entries added up, when the chain holds; BrokenChain otherwise."""
    head = read_head(connection)
    return Books.of(checked(read_entries(connection), count=head.count, last=head.hash))


def find_session(connection: Connection, key: SessionKey) -> Session:
    """A session by its own entries; ProtocolError ``unknown-session``."""
    books = Books.of(read_entries(connection, rows_of(ENTRIES, key)))
    if key not in books.sessions:
        raise ProtocolError(
            f"Session {key.session!r} was never begun here.",
            hint="Begin it first.",
            code="unknown-session",
        )
    return books.sessions[key]


def end_session(writer: Writer, key: SessionKey, outcome: str) -> Entry:
    """End a session: its state (which is secret) and its answers' bytes go."""
    writer.connection.execute(delete(STATES).where(rows_of(STATES, key)))
    writer.connection.execute(update(REPLIES).where(rows_of(REPLIES, key)).values(reply=None))
    return writer.append(EndBody(study=key.study, session=key.session, outcome=outcome))


def stored_state(connection: Connection, key: SessionKey) -> bytes:
    """The state of an open session; DataError when it is lost."""
    state = connection.execute(
        select(STATES.c.state).where(rows_of(STATES, key))
    ).scalar_one_or_none()
    if state is None:
        raise DataError(
            f"The ledger has lost the state of session {key.session!r}.",
            hint="Go back to a copy of the ledger that holds.",
            code="ledger-damaged",
        )
    return bytes(state)


def stored_reply(
    connection: Connection, key: SessionKey, step: str, request_hash: str
) -> bytes | None:
    """The answer to a step, or ``None`` when it has none yet.

    Raises
    ------
    ProtocolError
        ``step-asked-differently`` or ``already-settled``.
    """
    query = select(REPLIES).where(rows_of(REPLIES, key), REPLIES.c.step == step)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    if row.request_hash != request_hash:
        raise ProtocolError(
            f"Step {step!r} of session {key.session!r} was answered to another question.",
            hint="A step is answered once; begin another session to ask something else.",
            code="step-asked-differently",
        )
    if row.reply is None:
        raise ProtocolError(
            f"Step {step!r} of session {key.session!r} is settled: its answer is not kept.",
            hint="Go on with the step after it, or begin another session.",
            code="already-settled",
        )
    return bytes(row.reply)


def store_reply(
    connection: Connection, key: SessionKey, step: str, request_hash: str, reply: bytes
) -> None:
    """Keep an answer, to be given again."""
    connection.execute(
        insert(REPLIES).values(
            study=key.study,
            session=key.session,
            step=step,
            request_hash=request_hash,
            reply_hash=sha256(reply),
            reply=reply,
        )
    )


def settle(connection: Connection, key: SessionKey, steps: Sequence[str]) -> None:
    """Drop the bytes of answers that will not be asked for again."""
    if steps:
        which = (rows_of(REPLIES, key), REPLIES.c.step.in_(steps), REPLIES.c.reply.is_not(None))
        connection.execute(update(REPLIES).where(*which).values(reply=None))


def rows_of(table: Table, key: SessionKey) -> ColumnElement[bool]:
    """The condition that a row is the session's."""
    return and_(table.c.study == key.study, table.c.session == key.session)


def sha256(data: bytes) -> str:
    """The SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()
