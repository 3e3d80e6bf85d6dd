"""What a ledger allows, what it spent and what was decided: as values, and as plain ones."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eigenveil.federation.approvals.record import BudgetChange, Record, Recorded

if TYPE_CHECKING:
    from eigenveil.federation.ledger.books import Session, Standing
    from eigenveil.federation.ledger.entries import ElsewhereBody
    from eigenveil.federation.ledger.ledger import Ledger


@dataclass(frozen=True)
class LedgerView:
    """A ledger as it was read."""

    name: str
    record: Record
    standings: list[Standing]
    sessions: list[Session]
    elsewhere: list[tuple[str, ElsewhereBody]]  # Work done elsewhere, and when it was charged

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
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


def read_ledger(ledger: Ledger) -> LedgerView:
    """All of a ledger."""
    with ledger.reading() as tables:
        books = tables.books()
        record = Record.of(books, tables.mark())
    sessions = list(books.sessions.values())
    return LedgerView(ledger.name, record, books.standings(), sessions, books.elsewhere)


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
    return {
        **asdict(standing.budget),
        "caps": asdict(standing.caps),
        "spent": asdict(standing.spent),
        "reserved": asdict(standing.reserved),
        "left": asdict(standing.left),
        "spent_epsilon": _finite(standing.spent_epsilon),
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


def _finite(number: float) -> float | None:
    """JSON has no infinity."""
    return number if math.isfinite(number) else None
