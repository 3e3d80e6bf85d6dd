"""Ledgers in memory, of sites whose study is one fit of this process: thrown away with it.

Every rule of a ledger holds: a session begins once, an answer is made once, and charged within what
was reserved. Nothing is kept that only another process would read: no chain of entries, and of an
answer that it was given, not its bytes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from eigenveil.errors import DataError, ProtocolError
from eigenveil.federation.ledger.books import Books, Session
from eigenveil.federation.ledger.entries import (
    FIRST,
    AnswerBody,
    Body,
    EndBody,
    Entry,
    Head,
    SessionKey,
)
from eigenveil.federation.ledger.store import LedgerStore
from eigenveil.federation.ledger.tables import Tables


@dataclass(frozen=True)
class _Kept:
    """All that a ledger in memory is."""

    count: int = 0
    books: Books = field(default_factory=Books)
    states: dict[SessionKey, bytes] = field(default_factory=dict)

    def copy(self) -> _Kept:
        books = replace(
            self.books,
            accounts=dict(self.books.accounts),
            sessions=dict(self.books.sessions),
            begun=dict(self.books.begun),
            decided=list(self.books.decided),
        )
        return replace(self, books=books, states=dict(self.states))


class MemoryStore(LedgerStore):
    """A ledger of this process."""

    name, is_kept = "a ledger in memory", False

    def __init__(self) -> None:
        self._kept, self._digests = _Kept(), _LastDigest()
        self._turns = threading.RLock()  # a search's fits may run in threads

    def __reduce__(self) -> Any:  # a copy would charge nothing here
        return LostStore, ()

    def copy(self) -> MemoryStore:
        other = MemoryStore()
        other._kept, other._digests = self._kept.copy(), self._digests
        return other

    def make(self) -> None:
        """It is there."""

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Tables]:
        with self._turns:
            tables = MemoryTables(self._kept.copy(), self._digests)
            yield tables
            if writes:  # an error before leaves the ledger as it was
                self._kept = tables.kept


class LostStore(MemoryStore):
    """A ledger of another process, which nothing can be charged to."""

    @contextmanager
    def _transaction(self, *, writes: bool) -> Iterator[Tables]:
        raise DataError("ledger-of-another-process")
        yield


class MemoryTables(Tables):
    """What one transaction sees and changes."""

    def __init__(self, kept: _Kept, digests: _LastDigest) -> None:
        super().__init__(None)
        self.kept, self._digests = kept, digests
        self.head = Head(kept.count, FIRST)

    def names(self) -> set[str]:
        return {"ledger_head"}

    def hold(self) -> None:
        return

    def books(self) -> Books:
        return self.kept.books

    def of_kind(self, kind: type[Body]) -> Books:
        return self.kept.books

    def request_digest(self, request: bytes) -> str:
        return self._digests.of(request)

    def digest(self, data: bytes) -> str:
        """None: there is nothing to compare with."""
        return ""

    def append(self, body: Body) -> Entry:
        entry = Entry(self.head.count + 1, "", body.kind, {}, FIRST, FIRST)
        self.kept.books.post(entry, body)
        self.head = Head(entry.number, FIRST)
        self.kept = replace(self.kept, count=entry.number)
        return entry

    def session(self, key: SessionKey) -> Session:
        if key not in self.kept.books.sessions:
            raise ProtocolError("unknown-session", session=key.session)
        return self.kept.books.sessions[key]

    def run(self, statement: str, *values: object) -> None:
        """There are no tables: what is kept of a session goes with its state."""

    def end(self, key: SessionKey, outcome: str) -> tuple[Entry, EndBody]:
        self.kept.states.pop(key, None)
        return super().end(key, outcome)

    def begin_state(self, key: SessionKey, state: bytes) -> None:
        self.kept.states[key] = state

    def change_state(self, key: SessionKey, state: bytes) -> None:
        self.kept.states[key] = state

    def state(self, key: SessionKey) -> bytes:
        return self.kept.states[key]

    def reply(self, key: SessionKey, step: str, request_hash: str) -> bytes | None:
        """Its bytes are gone: who made the request has them, or nobody wants them."""
        answers = (body for _, body in self.session(key).answers if body.step == step)
        body = next(answers, None)
        if body is None:
            return None
        code = "already-settled" if body.request == request_hash else "step-differs"
        raise ProtocolError(code, step=step, session=key.session)

    def keep_reply(self, key: SessionKey, answer: AnswerBody, reply: bytes) -> None:
        del key, answer, reply

    def settle(self, key: SessionKey, steps: Collection[str]) -> None:
        del key, steps


class _LastDigest:
    """The digest of what was digested last: sites of one process are asked the same."""

    def __init__(self) -> None:
        self._last: tuple[bytes, str] = (b"", hashlib.sha256().hexdigest())

    def of(self, data: bytes) -> str:
        if self._last[0] is not data:
            self._last = data, hashlib.sha256(data).hexdigest()
        return self._last[1]
