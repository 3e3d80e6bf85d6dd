"""A ledger as pages show it: read by pages, added up once for each head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from eigenveil.app.budgets import USUAL_DELTA, WantedBudget, end_study, set_budget
from eigenveil.app.ledger import verify
from eigenveil.console.desk.forms import read
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError, OutputError, number_text, printable, short_name
from eigenveil.federation.ledger.books import Books, Standing, epsilon_or_infinity
from eigenveil.federation.ledger.entries import UNIT, Entry, Head, SessionKey, seal
from eigenveil.federation.ledger.placing import (
    RECOMPUTED,
    Wanted,
    budget_left_text,
    covers,
    standing_after,
)
from eigenveil.federation.ledger.store import LedgerStore, open_store
from eigenveil.federation.ledger.tables import Tables
from eigenveil.models.options import OPTIONS
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.releases import ReleaseRecord

PAGE = 50
# Of a budget as of a fit; what 'adjacency' may be is checked where the budget is set.
_NUMBERS = [each for each in OPTIONS if each.name in ("epsilon", "delta")]


class LedgerPages:
    """A ledger, read for people; nothing is in it while there is none."""

    def __init__(self, find: Callable[[], str | None]) -> None:
        self._find = find  # Asked until it is known: a console may start before its site
        self._opened: LedgerStore | None = None
        self._head: Head | None = None
        self._books = Books()
        self._standings: list[Standing] = []

    @property
    def place(self) -> str | None:
        return self._find()

    @property
    def _store(self) -> LedgerStore | None:
        if self._opened is None and (place := self.place) is not None:
            self._opened = open_store(place)
        return self._opened

    @property
    def name(self) -> str:
        return "" if self._store is None else self._store.name

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
        return budget_left_text(standing_after(self.name, self.books(), wanted))

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
            "open": self.open_sessions(names),
        }

    def open_sessions(self, names: Mapping[str, str]) -> list[dict[str, str]]:
        """Those that hold a part of a budget, and how far each came; studies by their names."""
        known = {**self.names(), **names}
        return [
            {
                "study": each.key.study,
                "name": known.get(each.key.study, each.key.study[:12]),
                "data_set": each.terms.data_set,
                "begun": each.begun[:19].replace("T", " "),
                "step": each.answers[-1][1].step if each.answers else "begun",
                "answers": str(len(each.answers)),
            }
            for each in self.books().sessions.values()
            if each.is_open
        ]

    def names(self) -> dict[str, str]:
        """What sessions' notes say of each study, by its hash."""
        sessions = self.books().sessions.values()
        return {session.key.study: short_name(session.terms.note) for session in sessions}


class Budgets:
    """Of every desk with a ledger: an account's budget, and a new one by a recorded decision."""

    _rows: Rows
    _pages: LedgerPages

    def budget(self, data_set: str, by: str) -> dict[str, Any]:
        """An account, what of it can be chosen anew, and how its budget is signed."""
        data_set = data_set or self._data_set
        books, standing = self._pages.books(), self._standing(data_set)
        waiting = self._budgets_waiting(data_set)
        return {
            "data_set": data_set,
            "account": None if standing is None else _account(standing),
            "fixed": standing is not None and not books.is_untouched(data_set),
            "signs": self._signs(by),
            "waiting": waiting,
            "place": self._pages.place,
            # what a form is about: it counts for this budget and no other
            "mark": repr((data_set, standing and standing.budget, waiting)),
            "usual": {"delta": number_text(USUAL_DELTA), "adjacency": "add-remove", "unit": UNIT},
        }

    def set_budget(self, data_set: str, given: dict[str, str], by: str, password: str) -> str:
        """Set a budget as ``eigenveil ledger budget`` does; what is to be said of it, if anything.

        It needs a reason, and is no less than what is spent.
        """
        if self._pages.place is None:
            raise OutputError("ledger-not-named")
        if not given["reason"]:
            raise DataError("no-reason")
        before = self._standing(data_set)
        numbers = {each.name: read(each, given[each.name]) for each in _NUMBERS}
        pure = None if before is None else before.budget.pure_epsilon
        wanted = WantedBudget(
            data_set,
            **numbers,
            pure_epsilon=pure,
            adjacency=given["adjacency"] or None,
            unit=given["unit"] or None,
        )
        if before is not None:
            _check_spent(before, **numbers)
        how = self._signs(by)
        made = set_budget(
            self._pages.place,
            wanted,
            by=by,
            reason=given["reason"],
            party=None if how == "nobody" else Path(str(self._rows.party)),
            key=None if how in ("own", "nobody") else self._key(by),
            password=lambda _: password,
        )
        return made.note

    def verify(self, against: str) -> dict[str, Any]:
        """Whether the chain of entries holds, and has a hash that was noted elsewhere."""
        if self._pages.place is None:
            raise OutputError("ledger-not-named")
        party = None if self._rows.party is None else Path(self._rows.party)
        return verify(self._pages.place, against=against or None, heads=None, party=party).as_json()

    def end(self, study: str) -> int:
        """End the open sessions of a study as ``ledger end`` does; how many there were."""
        return end_study(self._pages.place, study) if self._pages.place else 0

    def _standing(self, data_set: str) -> Standing | None:
        return next((s for s in self._pages.standings() if s.budget.data_set == data_set), None)

    # -- of a desk without approvers

    @property
    def _data_set(self) -> str:
        """Whose budget is meant where none is named."""
        return ""

    def _signs(self, by: str) -> str:
        """How: "nobody", with the "password" of a key, the party's "own" key, or "elsewhere"."""
        return "nobody"

    def _key(self, by: str) -> Path:
        raise NotImplementedError

    def _budgets_waiting(self, data_set: str) -> list[dict[str, Any]]:
        return []


def _check_spent(before: Standing, epsilon: float, delta: float) -> None:
    spent = epsilon_or_infinity(Loss.total([before.spent, before.reserved]), delta)
    if spent > epsilon * RECOMPUTED:
        raise DataError("budget-below-spent", epsilon=epsilon, delta=delta, spent=spent)


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


def _set(body: Mapping[str, Any], epsilon: float, delta: float, data_set: str, **_: Any) -> str:
    words = f"Budget of {short_name(data_set)}: epsilon {epsilon:g} at delta {number_text(delta)}"
    words += f", by {short_name(body['by'])}" if body.get("by") else ""
    return words + (f" ({printable(body['reason'], most=200)})" if body.get("reason") else "")


# What entries of each kind say, by their body.
_SAID: Mapping[str, Callable[[Any], str]] = {
    "budget": lambda body: _set(body, **body["budget"]),
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
    session = books.sessions.get(SessionKey(entry["study"], entry["session"]))
    account = None if session is None else books.accounts.get(session.terms.data_set)
    loss = Loss.total(Loss.of(record) for record in records)
    delta = 0.0 if account is None else account.budget.delta
    epsilon = epsilon_or_infinity(loss, delta)
    return f"{epsilon:.4g}" if epsilon < 1e100 else ""
