"""Who signed the budgets in a ledger: where a site has approvers, they do, and nobody else.

Nothing here is stored. A budget that is set after a list of approvers was recorded counts only if
the entries before it are decisions of as many different approvers about exactly this budget as the
list wants. What was set before there was a list is unsigned, as is all in a ledger without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

from eigenveil.errors import DecisionRefused
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.decisions import Place, check_decision, check_list
from eigenveil.federation.ledger.documents import ApproverList, BudgetDecision, SignedBudget
from eigenveil.federation.ledger.entries import (
    ApproversBody,
    BrokenChain,
    Budget,
    BudgetBody,
    BudgetDecisionBody,
    DecisionBody,
)


def budget_in(decision: BudgetDecision) -> Budget:
    """What an approver decided."""
    return Budget(**{each.name: getattr(decision, each.name) for each in fields(Budget)})


@dataclass
class BudgetRecord:
    """The budgets of a ledger in their order, and who signed each.

    Attributes
    ----------
    signed : dict of int to tuple of str
        The approvers of a budget, by its entry's number; empty where nobody signed it.
    waiting : list of SignedBudget
        Decisions that a second approver has not agreed to.
    problems : list of (int, str)
        Entries that do not hold, and why.
    """

    signed: dict[int, tuple[str, ...]] = field(default_factory=dict)
    waiting: list[SignedBudget] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    _lists: dict[Place, ApproverList] = field(default_factory=dict)
    _budgets: dict[str, Budget] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, books: Books) -> BudgetRecord:
        """What a ledger's entries say."""
        record = cls()
        for number, time, body in sorted(
            [*books.decided, *books.budgets], key=lambda each: each[0]
        ):
            match body:
                case ApproversBody():
                    record.list(body)
                case BudgetDecisionBody():
                    try:
                        record.decide(body.signed, datetime.fromisoformat(time))
                    except (DecisionRefused, ValueError, TypeError) as error:
                        record.problems.append((number, str(getattr(error, "message", error))))
                case BudgetBody():
                    record._set(number, body.budget)
                case DecisionBody():
                    pass
        return record

    @property
    def has_approvers(self) -> bool:
        """Whether a list of approvers is recorded."""
        return bool(self._lists)

    def list(self, body: ApproversBody) -> None:
        """Take over the next list of a site; one that does not hold counts for nothing."""
        place = Place.of(body.approvers)
        try:
            check_list(body, self._lists.get(place))
        except DecisionRefused:
            return  # reported among the decisions
        self._lists[place] = body.approvers

    def decide(self, signed: SignedBudget, now: datetime) -> bool:
        """Add an approver's decision; whether enough have agreed to this budget.

        Raises
        ------
        DecisionRefused
            As :func:`check_decision`.
        """
        place = Place.of(signed.decision)
        check_decision(signed, self._lists.get(place), seen=self._seen, now=now)
        self._seen.add(signed.decision.nonce)
        self.waiting.append(signed)
        return bool(self._agreed(budget_in(signed.decision)))

    def _agreed(self, budget: Budget) -> tuple[str, ...]:
        """The approvers of a budget, where there are enough of one site."""
        for place, listed in self._lists.items():
            names = tuple(
                dict.fromkeys(
                    each.decision.by
                    for each in self.waiting
                    if Place.of(each.decision) == place and budget_in(each.decision) == budget
                )
            )
            if len(names) >= listed.needed:
                return names
        return ()

    def _set(self, number: int, budget: Budget) -> None:
        if self._budgets.get(budget.data_set) == budget and not self._agreed(budget):
            return  # its caps were divided anew
        names = self._agreed(budget)
        if self._lists and not names:
            self.problems.append((number, "no approver, or too few, signed it"))
        self.signed[number], self._budgets[budget.data_set] = names, budget
        self.waiting = [e for e in self.waiting if e.decision.data_set != budget.data_set]


def check_budgets(books: Books, ledger: str) -> BudgetRecord:
    """Raise where a budget in a ledger is not signed as it must be: part of ``ledger verify``.

    Raises
    ------
    BrokenChain
        Naming the first such entry.
    """
    found = BudgetRecord.of(books)
    wrong = [
        (number, f"is a budget that does not hold ({why.rstrip('.')})")
        for number, why in found.problems
    ]
    wrong += [
        (number, "is a decision about a budget that was made for another ledger")
        for number, _, body in books.budgets
        if isinstance(body, BudgetDecisionBody) and body.signed.decision.ledger != ledger
    ]
    if wrong:
        raise BrokenChain(*min(wrong))
    return found


def signers_of(books: Books) -> Mapping[int, tuple[str, ...]]:
    """Who signed each budget, by its entry's number; empty of those that are unsigned."""
    return BudgetRecord.of(books).signed
