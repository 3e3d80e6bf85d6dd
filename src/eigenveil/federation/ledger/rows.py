"""The rows of one session: its entries added up, its state, its answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from eigenveil.errors import DataError, ProtocolError
from eigenveil.federation.ledger.books import Books, Session
from eigenveil.federation.ledger.entries import AnswerBody, EndBody, Entry, SessionKey, checked
from eigenveil.federation.ledger.tables import (
    ENTRIES,
    REPLIES,
    STATES,
    Statement,
    Writer,
    entries_where,
    only_bytes,
    read_entries,
    read_head,
)


def of_session(table: Table) -> ColumnElement[bool]:
    """The condition that a row is a session's, of which :func:`named` gives the values."""
    return and_(
        table.c.study == bindparam("its_study"), table.c.session == bindparam("its_session")
    )


def named(key: SessionKey) -> dict[str, str]:
    """The values by which :func:`of_session` finds rows."""
    return {"its_study": key.study, "its_session": key.session}


_ENTRIES = entries_where(of_session(ENTRIES))
_STATE = Statement(select(STATES.c.state).where(of_session(STATES)))
_NEW_STATE = Statement(insert(STATES))
_NEXT_STATE = Statement(
    update(STATES).where(of_session(STATES)).values(state=bindparam("its_state"))
)
_NO_STATE = Statement(delete(STATES).where(of_session(STATES)))
_OF_STEP = and_(of_session(REPLIES), REPLIES.c.step == bindparam("its_step"))
_REPLY = Statement(select(REPLIES.c.request_hash, REPLIES.c.reply).where(_OF_STEP))
_ANSWERED = select(REPLIES.c.step).where(
    of_session(REPLIES), REPLIES.c.step.in_(bindparam("its_steps", expanding=True))
)
_NEW_REPLY = Statement(insert(REPLIES))
_SETTLED = Statement(
    update(REPLIES).where(_OF_STEP, REPLIES.c.reply.is_not(None)).values(reply=None)
)
_ALL_SETTLED = Statement(update(REPLIES).where(of_session(REPLIES)).values(reply=None))


def whole_books(connection: Connection) -> Books:
    """All entries added up, when the chain holds; BrokenChain otherwise."""
    head = read_head(connection)
    return Books.of(checked(read_entries(connection), count=head.count, last=head.hash))


def find_session(connection: Connection, key: SessionKey) -> Session:
    """A session by its own entries; ProtocolError ``unknown-session``."""
    books = Books.of(read_entries(connection, _ENTRIES, **named(key)))
    if key not in books.sessions:
        raise ProtocolError(
            f"Session {key.session!r} was never begun here.",
            hint="Begin it first.",
            code="unknown-session",
        )
    return books.sessions[key]


def end_session(writer: Writer, key: SessionKey, outcome: str) -> Entry:
    """End a session: its state (which is secret) and its answers' bytes go."""
    _NO_STATE.run(writer.connection, **named(key))
    _ALL_SETTLED.run(writer.connection, **named(key))
    return writer.append(EndBody(study=key.study, session=key.session, outcome=outcome))


def begin_state(connection: Connection, key: SessionKey, state: bytes) -> None:
    """Keep the first state of a session."""
    _NEW_STATE.run(connection, study=key.study, session=key.session, state=state)


def change_state(connection: Connection, key: SessionKey, state: bytes) -> None:
    """Keep the next state of a session."""
    _NEXT_STATE.run(connection, **named(key), its_state=state)


def answered_of(connection: Connection, key: SessionKey, steps: Sequence[str]) -> set[str]:
    """Those of the steps that have an answer, be it settled or not."""
    found = connection.execute(_ANSWERED, {**named(key), "its_steps": list(steps)})
    return set(found.scalars())


def stored_state(connection: Connection, key: SessionKey) -> bytes:
    """The state of an open session; DataError when it is lost."""
    state = only_bytes(_STATE.run(connection, **named(key)).scalar_one_or_none())
    if state is None:
        raise DataError(
            f"The ledger has lost the state of session {key.session!r}.",
            hint="Restore a copy of the ledger that passes 'ledger verify'.",
            code="ledger-damaged",
        )
    return state


def stored_reply(
    connection: Connection, key: SessionKey, step: str, request_hash: str
) -> bytes | None:
    """The answer to a step, or ``None`` when it has none yet."""
    row = _REPLY.run(connection, **named(key), its_step=step).one_or_none()
    if row is None:
        return None
    if row.request_hash != request_hash:
        raise ProtocolError(
            f"Step {step!r} of session {key.session!r} was answered to another question.",
            hint="A step is answered once; begin another session to ask something else.",
            code="step-differs",
        )
    if (reply := only_bytes(row.reply)) is None:
        raise ProtocolError(
            f"Step {step!r} of session {key.session!r} is complete: its answer is not kept.",
            hint="Go on with the step after it, or begin another session.",
            code="already-settled",
        )
    return reply


def store_reply(connection: Connection, key: SessionKey, answer: AnswerBody, reply: bytes) -> None:
    """Keep an answer, to be given again."""
    _NEW_REPLY.run(
        connection,
        study=key.study,
        session=key.session,
        step=answer.step,
        request_hash=answer.request,
        reply_hash=answer.reply,
        reply=reply,
    )


def settle(connection: Connection, key: SessionKey, steps: Sequence[str]) -> None:
    """Drop the bytes of answers that will not be asked for again."""
    for step in steps:
        _SETTLED.run(connection, **named(key), its_step=step)


def sha256(data: bytes) -> str:
    """The SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()
