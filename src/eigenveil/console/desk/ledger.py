"""A ledger as pages show it: read by pages, added up once for each head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from eigenveil.errors import printable, short_name
from eigenveil.federation.ledger.books import Books, Standing, epsilon_or_infinity
from eigenveil.federation.ledger.entries import Entry, Head, SessionKey, seal
from eigenveil.federation.ledger.placing import Wanted, budget_left_text, covers, place
from eigenveil.federation.ledger.store import open_store
from eigenveil.federation.ledger.tables import Tables
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import ReleaseRecord

PAGE = 50


class LedgerPages:
    """A ledger, read for people; nothing is in it while there is none."""

    def __init__(self, place: str | None) -> None:
        self._store = None if place is None else open_store(place)
        self.name = "" if self._store is None else self._store.name
        self._head: Head | None = None
        self._books = Books()
        self._standings: list[Standing] = []

    def _tables(self) -> AbstractContextManager[Tables | None]:
        return nullcontext() if self._store is None else self._store.reading_if_any()

    def books(self) -> Books:
        """All entries added up; only those that are new are read and checked."""
        with self._tables() as tables:
            if tables is None:
                return Books()
            head = tables.read_head()
            if head == self._head:
                return self._books
            known, self._head = self._head, None
            new: list[Entry] = []
            if known is not None and known.count < head.count:
                new = list(tables.entries("number > ?", known.count))
            if known is not None and _follow(new, known, head):
                for entry in new:
                    self._books.post(entry)
            else:
                self._books = tables.books()
        books = self._books
        self._standings = [books.standing(name) for name in books.accounts]
        self._head = head
        return books

    def standings(self) -> list[Standing]:
        self.books()
        return self._standings

    def covers(self, wanted: Wanted) -> bool:
        """Whether an account covers a session; as :meth:`Ledger.covers`."""
        return covers(self.name, self.books(), wanted)

    def left_after(self, wanted: Wanted) -> str:
        """What would be left of an account after a session that it covers, in words."""
        taken = place(self.name, self.books(), wanted).taken
        standing = next(s for s in self.standings() if s.budget.data_set == wanted.data_set)
        after = replace(standing, reserved=Loss.total([standing.reserved, taken]))
        return budget_left_text(after)

    def accounts(self) -> list[dict[str, Any]]:
        return [_account(each) for each in self.standings()]

    def page(self, number: int, only: str, names: Mapping[str, str]) -> dict[str, Any]:
        """A page of entries, the newest first; ``only`` is a kind, or empty."""
        books = self.books()
        condition, values = ("WHERE kind = ?", (only,)) if only else ("", ())
        count, pages, found, last = 0, 1, [], ""
        with self._tables() as tables:
            if tables is not None:
                (count,) = tables.run(
                    f"SELECT COUNT(*) FROM ledger_entries {condition}", *values
                ).fetchone()
                pages = max(1, -(-count // PAGE))
                number = min(max(1, number), pages)
                rest = f"{condition} ORDER BY number DESC LIMIT ? OFFSET ?"
                found = list(tables.query_entries(rest, *values, PAGE, (number - 1) * PAGE))
                last = tables.read_head().hash
        return {
            "entries": [_entry(each, books) for each in found],
            "page": min(number, pages),
            "pages": pages,
            "count": count,
            "last": last,
            "ledger": self.name,
            "accounts": self.accounts(),
            "names": {**self.names(), **names},
        }

    def names(self) -> dict[str, str]:
        """What sessions' notes say of each study, by its hash."""
        sessions = self.books().sessions.values()
        return {session.key.study: short_name(session.terms.note) for session in sessions}


def _follow(new: Sequence[Entry], known: Head, head: Head) -> bool:
    """Whether entries go on from one head to the other; what is known was checked before."""
    number, last = known.count, known.hash
    for entry in new:
        number += 1
        sealed = seal(number, entry.time, entry.kind, entry.body, last)
        if (entry.number, entry.hash, entry.previous) != (number, sealed.hash, last):
            return False
        last = entry.hash
    return (number, last) == (head.count, head.hash)


def _account(standing: Standing) -> dict[str, Any]:
    of = standing.budget
    spent = standing.spent_epsilon
    return {
        "data_set": of.data_set,
        "epsilon": of.epsilon,
        "delta": of.delta,
        "adjacency": of.adjacency,
        "unit": of.unit,
        "spent": spent if spent < 1e100 else None,
        "left": standing.left_epsilon,
        "text": budget_left_text(standing),
    }


def _entry(entry: Entry, books: Books) -> dict[str, Any]:
    """An entry in words, with the study that it belongs to and what it cost."""
    body = entry.body
    found: dict[str, Any] = {
        "number": entry.number,
        "time": entry.time[:19].replace("T", " "),
        "kind": entry.kind,
        "hash": entry.hash,
        "study": str(body.get("study", ""))[:64],
        "session": str(body.get("session", "")),
        "cost": None,
    }
    if entry.kind == "charge":
        records = [ReleaseRecord.model_validate(each) for each in body["releases"]]
        found["cost"] = _cost(records, found, books)
    if entry.kind == "decision":
        found["study"] = str(body["signed"]["said"]["study"])[:64]
    say = _SAID.get(entry.kind)
    return found | {"text": entry.kind if say is None else say(body)}


def _decided(made: Mapping[str, Any]) -> str:
    words = [f"{short_name(made['by'])} decided: {made['action']}"]
    for before, text in (("for", made.get("purpose")), ("because", made.get("reason"))):
        words += [f"{before} {printable(text, most=200)}"] if text else []
    return ", ".join(words)


# What entries of each kind say, by their body.
_SAID: Mapping[str, Callable[[Any], str]] = {
    "budget": lambda body: "Budget of {}: epsilon {epsilon:g} at delta {delta:g}".format(
        short_name(body["budget"]["data_set"]), **body["budget"]
    ),
    "begin": lambda body: f"Began: {printable(body['note'], most=60) or 'a session'}",
    "charge": lambda body: (
        f"Released {', '.join(short_name(each['name']) for each in body['releases'])}, "
        f"step {short_name(body['step'])}"
    ),
    "answer": lambda body: f"Answered {short_name(body['step'])}; nothing was released",
    "end": lambda body: f"Ended: {printable(body['outcome'], most=200)}",
    "files": lambda body: f"Files of {short_name(body['data_set'])} were noted",
    "decision": lambda body: _decided(body["signed"]["said"]),
    "approvers": lambda _: "An approver signed the list of approvers",
    "budget-decision": lambda _: "An approver signed a budget",
    "members": lambda _: "A newer list of the federation's members was seen",
}


def _cost(records: Sequence[ReleaseRecord], entry: dict[str, Any], books: Books) -> str:
    """A charge's epsilon at its account's delta."""
    session = books.sessions.get(SessionKey(entry["study"], entry["session"]))
    account = None if session is None else books.accounts.get(session.terms.data_set)
    loss = Loss.total(Loss.of(record) for record in records)
    delta = 0.0 if account is None else account.budget.delta
    epsilon = epsilon_or_infinity(loss, delta)
    return f"{epsilon:.4g}" if epsilon < 1e100 else ""
