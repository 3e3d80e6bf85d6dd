"""Whether a ledger holds: its chain, its head, and the tables beside the chain."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sqlalchemy import Connection, select

from eigenveil.federation.ledger_books import Books, SessionKey
from eigenveil.federation.ledger_chain import BrokenChain, checked
from eigenveil.federation.ledger_tables import (
    ENTRIES,
    REPLIES,
    STATES,
    Head,
    read_entries,
    read_head,
)


@dataclass(frozen=True)
class Verification:
    """Outcome of checking a ledger.

    Attributes
    ----------
    entries : int
        How many the head counts.
    last : str
        Hash of the last one: note it elsewhere to know this ledger again.
    wrong : int or None
        Number of the first wrong entry; ``None`` when all hold, or what is wrong is beside them.
    """

    holds: bool
    entries: int
    last: str
    wrong: int | None
    explanation: str


def check(connection: Connection) -> Verification:
    """Recompute the chain and compare what it says with what is stored beside it."""
    head = read_head(connection)
    try:
        books = Books.of(checked(read_entries(connection), count=head.count, last=head.hash))
        _check_columns(connection)
        _check_answers(connection, books)
    except BrokenChain as error:
        return _wrong(head, error.entry, f"Entry {error.entry} {error.why}.")
    trouble = (
        _trouble_with_states(connection, books)
        or _trouble_with_bytes(connection, books)
        or _trouble_with_file(connection)
    )
    if trouble:
        return _wrong(head, None, trouble)
    return Verification(True, head.count, head.hash, None, "Every entry is as it was written.")


def _wrong(head: Head, entry: int | None, explanation: str) -> Verification:
    return Verification(False, head.count, head.hash, entry, explanation)


def _check_columns(connection: Connection) -> None:
    """A session's entries are found by columns that are outside the hash."""
    names = select(ENTRIES.c.number, ENTRIES.c.study, ENTRIES.c.session).order_by(ENTRIES.c.number)
    for entry, row in zip(read_entries(connection), connection.execute(names), strict=True):
        if (entry.body.get("study"), entry.body.get("session")) != (row.study, row.session):
            raise BrokenChain(entry.number, "is filed under another session")


def _check_answers(connection: Connection, books: Books) -> None:
    """Every charge has the answer that it was made for."""
    c = REPLIES.c
    stored = {
        (SessionKey(row.study, row.session), row.step): row.reply_hash
        for row in connection.execute(select(c.study, c.session, c.step, c.reply_hash))
    }
    for key, account in books.accounts.items():
        for number, charge in account.charges:
            if stored.get((key, charge.step)) != charge.reply:
                raise BrokenChain(number, "charges for another answer than the one on record")


def _trouble_with_states(connection: Connection, books: Books) -> str:
    rows = connection.execute(select(STATES.c.study, STATES.c.session))
    stored = {SessionKey(row.study, row.session) for row in rows}
    expected = {key for key, account in books.accounts.items() if account.is_open}
    if odd := sorted(key.session for key in stored ^ expected):
        return f"Session {odd[0]!r} does not have the state that its entries tell of."
    return ""


def _trouble_with_bytes(connection: Connection, books: Books) -> str:
    few = {"yield_per": 4}  # answers are large
    for row in connection.execute(select(REPLIES), execution_options=few):
        account = books.accounts.get(SessionKey(row.study, row.session))
        where = f"The answer to {row.step!r} of session {row.session!r}"
        if account is None:
            return f"{where} belongs to no session."
        if row.reply is None:
            continue
        if not account.is_open:
            return f"{where} is kept, though the session has ended."
        if hashlib.sha256(row.reply).hexdigest() != row.reply_hash:
            return f"{where} is not the one that was stored."
    return ""


def _trouble_with_file(connection: Connection) -> str:
    """A session's entries are found through an index, which nothing above has looked at."""
    if connection.dialect.name != "sqlite":
        return ""
    found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
    return "" if found == "ok" else f"The file is damaged: {found.splitlines()[-1]}."
