"""A ledger, as its owner looks at it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from eigenveil.app.ledger_place import usual_ledger
from eigenveil.app.parts import Part, Sentence, Strong, TablePart, whole
from eigenveil.errors import WrongOption, number_text
from eigenveil.federation.approvals.record import BudgetChange, Record, Recorded
from eigenveil.federation.ledger.books import Session, Standing
from eigenveil.federation.ledger.entries import ElsewhereBody
from eigenveil.federation.ledger.heads import HeadsFile, UsualHeads, Verification
from eigenveil.federation.ledger.ledger import Ledger
from eigenveil.federation.ledger.placing import ACCOUNTS, account_cells, budget_left_text
from eigenveil.files import replacing

if TYPE_CHECKING:
    from eigenveil.network.folder import PartyFolder

_MOST_SHOWN = 20


def heads_of(place: str | None) -> HeadsFile | Literal["usual"]:
    """The second place of heads that somebody names, or the usual one."""
    if place is None:
        return "usual"
    if "://" in place:
        raise WrongOption("heads-in-url")
    return HeadsFile(place)


def open_ledger(
    place: str | None, *, heads: str | None = None, party: Path | None = None, makes: bool = False
) -> Ledger:
    """The ledger of a place, or of this user's tables; of a site, whose folder has its heads."""
    where = usual_ledger(make_folder=makes) if place is None else place
    if party is not None:
        # imported here: 'ledger show' needs none of a party's keys
        from eigenveil.network.folder import open_party

        return ledger_of(where, open_party(party, role="site"), heads_of(heads))
    return Ledger(where, heads=heads_of(heads))


def ledger_of(
    place: str, party: PartyFolder, heads: HeadsFile | Literal["usual"] = "usual"
) -> Ledger:
    """A site's ledger; its heads are kept in the party's folder where no place is named."""
    if heads == "usual":
        heads = UsualHeads(Ledger(place, heads=None).name, party.folder / "heads")
    return Ledger(place, heads=heads)


# -- what is in it


@dataclass(frozen=True)
class LedgerView:
    name: str
    record: Record
    standings: Sequence[Standing]
    sessions: Sequence[Session]
    elsewhere: Sequence[tuple[str, ElsewhereBody]]  # Work done elsewhere, and when it was charged

    def as_json(self) -> dict[str, Any]:
        listed = self.record.listed
        return {
            "ledger": self.name,
            "approvers": None if listed is None else listed.model_dump(mode="json"),
            "standings": [_standing_json(each) for each in self.standings],
            "sessions": [_session_json(each) for each in self.sessions],
            "decisions": [_decision_json(each) for each in self.record.decisions],
            "budgets": [_change_json(each) for each in self.record.budgets],
            "elsewhere": [{"time": time, **body.plain()} for time, body in self.elsewhere],
        }

    def parts(self) -> Iterator[Part]:
        if (listed := self.record.listed) is not None:
            names = ", ".join(str(each) for each in listed.approvers if each.until is None)
            yield whole(f"approvers of {listed.whose}: {names}")
        yield from Accounts(self.standings).parts()
        changes = self.record.budgets
        once = len({each.body.budget.data_set for each in changes}) == len(changes)
        if not once or any(each.signed for each in changes):
            yield _last("budgets, as they were set", _CHANGES, changes, _change_cells)
        for waiting in self.record.waiting:
            its = waiting.said
            text = (
                f"waits for a second approver: epsilon = {its.epsilon:g} at delta = "
                f"{number_text(its.delta)} "
                f"for {its.data_set}, which {its.by} agreed to"
            )
            yield whole(text)
        title = f"sessions ({_shown(self.sessions)})"
        yield _last(title, _SESSIONS, self.sessions, _session_cells)
        if self.elsewhere:
            yield _last("work done elsewhere", _ELSEWHERE, self.elsewhere, _elsewhere_cells)
        if decisions := self.record.decisions:
            yield _last(f"decisions ({_shown(decisions)})", _DECISIONS, decisions, _decision_cells)


def read_ledger(place: str | None) -> LedgerView:
    ledger = open_ledger(place)
    with ledger.store.reading() as tables:
        books = tables.books()
        record = Record.of(books, tables.mark())
    sessions = list(books.sessions.values())
    return LedgerView(ledger.name, record, books.standings(), sessions, books.elsewhere)


@dataclass(frozen=True)
class Accounts:
    standings: Sequence[Standing]
    note: str = ""

    def parts(self) -> Iterator[Part]:
        if self.note:
            yield whole(self.note)
        yield TablePart(
            "accounts, in epsilon at the budget's delta",
            ACCOUNTS,
            [account_cells(each) for each in self.standings],
            right=ACCOUNTS[2:],
        )
        for each in self.standings:
            caps, held = each.caps, each.caps.minus(each.left)
            left = f"{each.budget.data_set}: {budget_left_text(each)}"
            yield whole(left)
            parts = (
                f"  spent or reserved: {held.mu_squared:.4g} of {caps.mu_squared:.4g} of mu "
                f"squared, {held.pure:.4g} of {caps.pure:.4g} of pure epsilon"
            )
            yield whole(parts)
        if not self.standings:
            yield "No budget is set: no study can begin."


@dataclass(frozen=True)
class Verified:
    """Whether a ledger holds, and the second place of its heads."""

    found: Verification
    heads: HeadsFile | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self.found)

    def parts(self) -> Iterator[Part]:
        yield Sentence((Strong("VALID" if self.found.holds else "NOT VALID"),))
        yield self.found.explanation
        yield f"last entry: {self.found.entries}, hash {self.found.last}"
        yield whole(f"heads: {self.heads}")


def verify(
    place: str | None, *, against: str | None, heads: str | None, party: Path | None
) -> Verified:
    if against is not None and not re.fullmatch("[0-9a-f]{64}", against := against.lower()):
        raise WrongOption("bad-hash-of-entry")
    ledger = open_ledger(place, heads=heads, party=party)
    return Verified(ledger.verify(against=against), ledger.store.heads)


def export(place: str | None, out: Path | TextIO) -> None:
    lines = (f"{entry.line()}\n" for entry in open_ledger(place).entries())
    if not isinstance(out, Path):
        out.writelines(lines)
        return
    with replacing(out) as scratch, scratch.open("w", encoding="ascii") as file:
        file.writelines(lines)


# -- as text


_CHANGES = ("when (UTC)", "data set", "epsilon", "delta", "by", "reason", "signed by")
_SESSIONS = ("begun (UTC)", "study", "session", "data set", "outcome", "charges")
_ELSEWHERE = ("when (UTC)", "data set", "stated", "by", "reason")
_DECISIONS = ("when (UTC)", "decision", "by", "study", "purpose, reason")


def _last(
    title: str, headings: Sequence[str], found: Sequence[Any], cells: Callable[[Any], Sequence[str]]
) -> TablePart:
    rows = [cells(each) for each in found[-_MOST_SHOWN:]]
    return TablePart(title, headings, rows, right=("charges",), overflow="fold")


def _shown(found: Sequence[object]) -> str:
    return "all" if len(found) <= _MOST_SHOWN else f"the last {_MOST_SHOWN} of {len(found)}"


def _minute(time: str) -> str:
    return time[:16].replace("T", " ")


def _change_cells(each: BudgetChange) -> tuple[str, ...]:
    of = each.body.budget
    signed = ", ".join(map(str, each.signed)) or "unsigned"
    numbers = f"{of.epsilon:.4g}", number_text(of.delta, 4)
    return (_minute(each.time), of.data_set, *numbers, each.body.by, each.body.reason, signed)


def _elsewhere_cells(each: tuple[str, ElsewhereBody]) -> tuple[str, ...]:
    time, body = each
    return _minute(time), body.data_set, body.what, body.by, body.reason


def _session_cells(each: Session) -> tuple[str, ...]:
    releases = sum(len(charge.releases) for _, charge in each.charges)
    return (
        _minute(each.begun),
        *each.key,
        each.terms.data_set,
        "open" if each.outcome is None else each.outcome,
        f"{releases} release{'' if releases == 1 else 's'}",
    )


def _decision_cells(each: Recorded) -> tuple[str, ...]:
    of = each.decision
    good = "" if of.action != "approve" else f", runs: {of.runs or 'any number'}"
    good += "" if of.until is None else f", until {of.until:%Y-%m-%d %H:%M}"
    return (
        f"{of.time:%Y-%m-%d %H:%M}",
        f"{of.action}{good}" if not each.problem else f"NOT VALID: {each.problem}",
        of.by if each.approver is None else str(each.approver),
        of.study[:16],
        "; ".join(text for text in (of.purpose, of.reason) if text),
    )


# -- as plain values


def _decision_json(each: Recorded) -> dict[str, Any]:
    fields = each.decision.model_dump(mode="json", exclude={"nonce", "ledger"})
    return {"entry": each.number, **fields, "holds": not each.problem, "problem": each.problem}


def _change_json(each: BudgetChange) -> dict[str, Any]:
    return {
        "time": each.time,
        **asdict(each.body.budget),
        "by": each.body.by,
        "reason": each.body.reason,
        "signed": [{"name": by.name, "key": by.public_key} for by in each.signed],
    }


def _standing_json(standing: Standing) -> dict[str, Any]:
    spent = standing.spent_epsilon  # JSON has no infinity
    return {
        **asdict(standing.budget),
        "caps": asdict(standing.caps),
        "spent": asdict(standing.spent),
        "reserved": asdict(standing.reserved),
        "left": asdict(standing.left),
        "spent_epsilon": spent if math.isfinite(spent) else None,
        "left_epsilon": standing.left_epsilon,
        "left_pure_epsilon": standing.left_pure,
    }


def _session_json(session: Session) -> dict[str, Any]:
    return {
        "study": session.key.study,
        "session": session.key.session,
        "begun": session.begun,
        "data_set": session.terms.data_set,
        "adjacency": session.terms.adjacency,
        "note": session.terms.note,
        "outcome": session.outcome,
        "reserved": asdict(session.terms.reserve),
        "charged": asdict(session.charged()),
        "counted": asdict(session.spent()),
        "charges": [
            {"entry": number, "step": charge.step, "releases": [r.name for r in charge.releases]}
            for number, charge in session.charges
        ],
    }
