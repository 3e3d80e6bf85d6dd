"""The tables of a ledger: entries are only ever added, by who holds the head.

The head is one row with the number and the hash of the last entry. Locking it makes writers take
turns. Beside the entries there is only what they need not hold: the states of open sessions and the
answers that may be requested again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, NamedTuple

from eigenveil.errors import DataError, ProtocolError
from eigenveil.federation.approvals.record import check_signed
from eigenveil.federation.ledger.books import Books, Session
from eigenveil.federation.ledger.entries import (
    FIRST,
    LONGEST_NAME,
    AnswerBody,
    Body,
    BudgetBody,
    EndBody,
    Entry,
    Head,
    SessionKey,
    checked,
    opened,
    seal,
)
from eigenveil.federation.signed import canonical

FORMAT = "eigenveil-ledger-4"
_MOST_ENTRIES = 2**31 - 1  # as a database counts them
_TURNS = 0x65767665696C  # of PostgreSQL's locks that an application names
_NEVER = "entries of a ledger are never changed"
_KEY = f"study VARCHAR({LONGEST_NAME}) NOT NULL, session VARCHAR({LONGEST_NAME}) NOT NULL"

# The head's key is that under which files are known: random, and in no entry, so that entries say
# nothing of files. Study and session stand in an entry's body, too; here they find a session's
# entries. A reply goes once it is settled or the session has ended; the digests (SHA-256, hex)
# stay.
_TABLES = f"""
CREATE TABLE ledger_head (id INTEGER PRIMARY KEY, format VARCHAR(40) NOT NULL,
  count INTEGER NOT NULL, hash VARCHAR(64) NOT NULL, key VARCHAR(64) NOT NULL);
CREATE TABLE ledger_entries (number INTEGER PRIMARY KEY, time VARCHAR(40) NOT NULL,
  kind VARCHAR(20) NOT NULL, body TEXT NOT NULL, previous VARCHAR(64) NOT NULL,
  hash VARCHAR(64) NOT NULL, study VARCHAR({LONGEST_NAME}), session VARCHAR({LONGEST_NAME}));
CREATE INDEX ledger_entries_of_session ON ledger_entries (study, session);
CREATE TABLE ledger_states ({_KEY}, state {{bytes}} NOT NULL, PRIMARY KEY (study, session));
CREATE TABLE ledger_replies ({_KEY}, step VARCHAR({LONGEST_NAME}) NOT NULL,
  request_hash VARCHAR(64) NOT NULL, reply_hash VARCHAR(64) NOT NULL, reply {{bytes}},
  PRIMARY KEY (study, session, step))
"""
_ENTRY = "SELECT number, time, kind, body, previous, hash FROM ledger_entries"
_OF_SESSION = "WHERE study = ? AND session = ?"


class StoredAnswer(NamedTuple):
    key: SessionKey
    step: str
    request_hash: str
    reply_hash: str
    is_kept: bool


class Tables:
    """The tables of a ledger within one transaction of a database's driver."""

    _head = "SELECT format, count, hash FROM ledger_head WHERE id = 1"
    _head_held = _head
    _bytes = "BLOB"
    # The database itself refuses to change entries, from when they are made.
    _refusals: Sequence[str] = ()

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.head = Head(0, FIRST)
        self._books: Books | None = None

    def run(self, statement: str, *values: object) -> Any:
        """A statement with ``?`` for each value."""
        return self._connection.execute(statement, values)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows at once: a query that is left in the middle, by an error, would hold a lock."""
        found: list[tuple[Any, ...]] = self.run(statement, *values).fetchall()
        return found

    # -- whether they are there

    def names(self) -> set[str]:
        raise NotImplementedError

    def are_in(self, names: Collection[str]) -> bool:
        return "ledger_head" in names

    def take_turns(self) -> None:
        """Wait for others who make tables, which have no lock before they exist."""

    def make(self) -> None:
        for statement in (*_TABLES.format(bytes=self._bytes).split(";\n"), *self._refusals):
            self.run(statement)
        first = "INSERT INTO ledger_head (id, format, count, hash, key) VALUES (1, ?, 0, ?, ?)"
        self.run(first, FORMAT, FIRST, token_hex(32))

    # -- the head

    def read_head(self, query: str | None = None) -> Head:
        """The head, which every transaction begins with."""
        row = self.run(query or self._head).fetchone()
        if row is None or not (isinstance(row[1], int) and 0 <= row[1] < _MOST_ENTRIES):
            raise DataError("ledger-damaged", ledger="The ledger", how="it has lost its head")
        written, count, last = row
        if written != FORMAT:
            raise DataError("other-format", found=written, own=FORMAT)
        return Head(count, last)

    def hold(self) -> None:
        """Have the head until the transaction ends: no other may write."""
        self.head = self.read_head(self._head_held)

    def key(self) -> bytes:
        """The ledger's own key, under which it knows files; it never leaves the ledger."""
        row = self.run("SELECT key FROM ledger_head WHERE id = 1").fetchone()
        try:
            found = bytes.fromhex(str(row[0] if row else ""))
        except ValueError:
            found = b""
        if len(found) != 32:
            raise DataError(
                "ledger-damaged",
                ledger="The ledger",
                how="it has lost the key by which it knows files",
            )
        return found

    def mark(self) -> str:
        """What the ledger is called in decisions made for it: it says nothing of its key."""
        return hashlib.sha256(b"eigenveil ledger mark 1\n" + self.key()).hexdigest()

    def digest(self, data: bytes) -> str:
        """What an entry says of bytes."""
        return hashlib.sha256(data).hexdigest()

    def request_digest(self, request: bytes) -> str:
        """The same of a request, by which a repeated one is known."""
        return self.digest(request)

    # -- entries

    def entries(self, where: str = "", *values: object) -> Iterator[Entry]:
        """Entries in order, as they are stored: all, or those of which ``where`` holds."""
        return self.query_entries(f"{where and 'WHERE '}{where} ORDER BY number", *values)

    def query_entries(self, rest: str, *values: object) -> Iterator[Entry]:
        for row in self.rows(f"{_ENTRY} {rest}", *values):
            yield opened(*row)

    def books(self) -> Books:
        """All entries added up, also those appended later, where the chain holds."""
        if self._books is None:
            head = self.read_head()
            self._books = Books.of(checked(self.entries(), count=head.count, last=head.hash))
        return self._books

    def signed_books(self) -> Books:
        """The same, where all that approvers signed holds as well."""
        books = self.books()
        if any(not isinstance(body, BudgetBody) for _, _, body in books.decided):
            check_signed(books, self.mark())
        return books

    def of_kind(self, kind: type[Body]) -> Books:
        """Entries of one kind added up; the chain is not looked at."""
        return Books.of(self.entries("kind = ?", kind.kind))

    def begun(self, study: str | None = None) -> dict[SessionKey, int]:
        """The numbers of the entries with which sessions began; of a study, or all."""
        query = "SELECT study, session, number FROM ledger_entries WHERE kind = 'begin'"
        of_study = () if study is None else (study,)
        rows = self.rows(
            f"{query}{' AND study = ?' if of_study else ''} ORDER BY number", *of_study
        )
        return {SessionKey(*key): number for *key, number in rows}

    def append(self, body: Body) -> Entry:
        plain, now = body.plain(), datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = seal(self.head.count + 1, now, body.kind, plain, self.head.hash)
        self.run(
            "INSERT INTO ledger_entries (number, time, kind, body, previous, hash, study, session) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            entry.number,
            entry.time,
            entry.kind,
            canonical(entry.body),
            entry.previous,
            entry.hash,
            entry.body.get("study"),
            entry.body.get("session"),
        )
        self.head = Head(entry.number, entry.hash)
        move = "UPDATE ledger_head SET count = ?, hash = ? WHERE id = 1"
        self.run(move, entry.number, entry.hash)
        if self._books is not None:
            self._books.post(entry)
        return entry

    # -- a session: its entries, state and answers

    def session(self, key: SessionKey) -> Session:
        found = Books.of(self.entries("study = ? AND session = ?", *key)).sessions
        if key not in found:
            raise ProtocolError("unknown-session", session=key.session)
        return found[key]

    def end(self, key: SessionKey, outcome: str) -> tuple[Entry, EndBody]:
        """End a session: its state (which is secret) and its answers' bytes go."""
        self.run(f"DELETE FROM ledger_states {_OF_SESSION}", *key)
        self.run(f"UPDATE ledger_replies SET reply = NULL {_OF_SESSION}", *key)
        body = EndBody(study=key.study, session=key.session, outcome=outcome)
        return self.append(body), body

    def begin_state(self, key: SessionKey, state: bytes) -> None:
        self.run("INSERT INTO ledger_states (study, session, state) VALUES (?, ?, ?)", *key, state)

    def change_state(self, key: SessionKey, state: bytes) -> None:
        self.run(f"UPDATE ledger_states SET state = ? {_OF_SESSION}", state, *key)

    def state(self, key: SessionKey) -> bytes:
        row = self.run(f"SELECT state FROM ledger_states {_OF_SESSION}", *key).fetchone()
        state = None if row is None else _only_bytes(row[0])
        if state is None:
            raise DataError(
                "ledger-damaged",
                ledger="The ledger",
                how=f"it has lost the state of session {key.session!r}",
            )
        return state

    def states(self) -> Iterator[tuple[SessionKey, bytes]]:
        for study, session, state in self.rows("SELECT study, session, state FROM ledger_states"):
            yield SessionKey(study, session), _only_bytes(state) or b""

    def reply(self, key: SessionKey, step: str, request_hash: str) -> bytes | None:
        """The answer to a step, or ``None`` where it has none yet."""
        query = f"SELECT request_hash, reply FROM ledger_replies {_OF_SESSION} AND step = ?"
        row = self.run(query, *key, step).fetchone()
        if row is None:
            return None
        if row[0] != request_hash:
            raise ProtocolError("step-differs", step=step, session=key.session)
        if (reply := _only_bytes(row[1])) is None:
            raise ProtocolError("already-settled", step=step, session=key.session)
        return reply

    def answers(self) -> Iterator[StoredAnswer]:
        query = "SELECT study, session, step, request_hash, reply_hash, reply IS NOT NULL"
        for study, session, *more in self.rows(f"{query} FROM ledger_replies"):
            yield StoredAnswer(SessionKey(study, session), *more)

    def answered(self, key: SessionKey, steps: Collection[str]) -> set[str]:
        """Those of the steps that have an answer, be it settled or not."""
        rows = self.rows(f"SELECT step FROM ledger_replies {_OF_SESSION}", *key)
        return {step for (step,) in rows} & set(steps)

    def keep_reply(self, key: SessionKey, answer: AnswerBody, reply: bytes) -> None:
        self.run(
            "INSERT INTO ledger_replies (study, session, step, request_hash, reply_hash, reply) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            *key,
            answer.step,
            answer.request,
            answer.reply,
            reply,
        )

    def settle(self, key: SessionKey, steps: Collection[str]) -> None:
        """Drop the bytes of answers that will not be asked for again."""
        for step in steps:
            self.run(
                f"UPDATE ledger_replies SET reply = NULL {_OF_SESSION} AND step = ? "
                "AND reply IS NOT NULL",
                *key,
                step,
            )

    def problem(self) -> str:
        """What is wrong with the database itself, where it can tell."""
        return ""


class SQLiteTables(Tables):
    _refusals = tuple(
        f"CREATE TRIGGER ledger_entries_no_{verb} BEFORE {verb} ON ledger_entries "
        f"BEGIN SELECT RAISE(ABORT, '{_NEVER}'); END"
        for verb in ("UPDATE", "DELETE")
    )

    def names(self) -> set[str]:
        return {name for (name,) in self.rows("SELECT name FROM sqlite_master")}

    def problem(self) -> str:
        """A session's entries are found through an index, which nothing else looks at."""
        (found,) = self.run("PRAGMA integrity_check(1)").fetchone()
        return "" if found == "ok" else f"The file is damaged: {found.splitlines()[-1]}."


class PostgreSQLTables(Tables):
    _head_held = f"{Tables._head} FOR UPDATE"
    _bytes = "BYTEA"
    _refusals = (
        "CREATE OR REPLACE FUNCTION ledger_entries_refuse() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN RAISE EXCEPTION '{_NEVER}'; END $$",
        "CREATE TRIGGER ledger_entries_no_change BEFORE UPDATE OR DELETE OR TRUNCATE "
        "ON ledger_entries FOR EACH STATEMENT EXECUTE FUNCTION ledger_entries_refuse()",
    )

    def run(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement.replace("?", "%s"), values or None)

    def names(self) -> set[str]:
        """Only whether the head is there, among whatever else."""
        (found,) = self.run("SELECT to_regclass('ledger_head') IS NOT NULL").fetchone()
        return {"ledger_head"} if found else set()

    def take_turns(self) -> None:
        self.run(f"SELECT pg_advisory_xact_lock({_TURNS})")


def _only_bytes(value: object) -> bytes | None:
    """Bytes that were read, or nothing: ``bytes(10**12)`` would take a terabyte of zeros."""
    if value is None or isinstance(value, bytes):
        return value
    raise DataError(
        "ledger-damaged",
        ledger="The ledger",
        how="it holds something else where bytes were written",
    )
