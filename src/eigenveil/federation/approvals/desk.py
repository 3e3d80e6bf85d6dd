"""Decisions about studies and budgets at a site: made by approvers, signed, kept in the ledger.

>>> decisions = Decisions(party, ledger)                                      # doctest: +SKIP
>>> key = open_key(party.approver_keys / "steward.key", password)             # doctest: +SKIP
>>> steward = Decider("steward", key)                                         # doctest: +SKIP
>>> decisions.approve(study, steward, purpose="audit", runs=3)                # doctest: +SKIP
>>> decisions.standing(study.hash).left                                       # doctest: +SKIP
3

What an approval is worth follows from the ledger alone
(:mod:`eigenveil.federation.approvals.record`): a file of the party holds only a study's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from shlex import quote
from typing import Any

from eigenveil.errors import DataError, DecisionRefused, number_text
from eigenveil.federation.approvals.documents import (
    EVERY_STUDY,
    Action,
    BudgetDecision,
    Decision,
    SignedDecision,
)
from eigenveil.federation.approvals.record import Record, Recorded, StudyStanding
from eigenveil.federation.approvals.roster import OWNER, Decider, Roster
from eigenveil.federation.approvals.studies import (
    decided_study,
    forget_waiting,
    keep,
    waiting_study,
)
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.entries import (
    UNIT,
    Body,
    Budget,
    BudgetBody,
    BudgetDecisionBody,
    DecisionBody,
    SessionKey,
    budget_command,
)
from eigenveil.federation.ledger.fits import rows_digest
from eigenveil.federation.ledger.placing import capped, check_budget, noted
from eigenveil.federation.study.study import Study
from eigenveil.files import Place


@dataclass(frozen=True)
class Decisions(Roster):
    data_set: str = "default"  # Whose rows approvals are for, as the ledger calls them
    # The rows' files, by whose contents an approval names the rows; without any, or with
    # `any_rows`, it is for whatever rows the data set has when a run begins
    rows: Sequence[Place] = ()

    def standing(self, study: str) -> StudyStanding:
        return self.record(study).standing(study)

    def history(self, study: str | None = None) -> list[Recorded]:
        """All decisions in their order; those about a study."""
        return [
            each
            for each in self.record().decisions
            if study is None or each.decision.study in (study, EVERY_STUDY)
        ]

    # -- runs

    def may_run(self, key: SessionKey) -> bool:
        """Whether a run may begin or go on now, with the rows that the site calls so."""
        record = self.record(key.study)
        standing = record.standing(key.study)
        return standing.data_set == self.data_set and standing.allows(record.begun.get(key))

    def check_rows(self, study: str, rows: Sequence[Place]) -> None:
        """Raise where an approval is for other rows than these."""
        standing = self.standing(study)
        if standing.data_set != self.data_set:
            was = f"data set {standing.data_set!r}, and the site runs with {self.data_set!r}"
        elif standing.rows and standing.rows != self._digest(rows):
            was = f"rows of {self.data_set!r} that have changed since, or are others"
        else:
            return
        raise DecisionRefused("other-rows", study=study[:12], was=was)

    def _digest(self, rows: Sequence[Place]) -> str:
        with self.ledger.store.reading() as tables:
            return rows_digest(rows, tables.key())

    # -- deciding

    def approve(
        self,
        study: Study | str,
        by: Decider = OWNER,
        *,
        purpose: str = "",
        reason: str = "",
        runs: int | None = 1,
        until: datetime | None = None,
        any_rows: bool = False,
    ) -> StudyStanding:
        """Approve a study: once, for a number of runs, or until a date."""
        known = study if isinstance(study, Study) else self.text(study)
        self.check_countable(known, by=by)
        keep(self.party, known)  # a text that no decision supports admits nothing
        standing = self.decide(
            "approve",
            known.hash,
            by,
            purpose=purpose,
            reason=reason,
            runs=runs,
            until=until,
            data_set=self.data_set,
            rows="" if any_rows or not self.rows else self._digest(self.rows),
        )
        if standing.approved:
            forget_waiting(self.party, known.hash)
        return standing

    def check_countable(self, study: Study, *, by: Decider = OWNER) -> None:
        """Raise where the data set's budget counts something else than a study protects."""
        budget = self.ledger.budget_if_any(self.data_set)
        if budget is None or (needed := self.account_needed(study, budget)) is None:
            return
        counts, protects = (
            f"{'each' if adjacency == 'add-remove' else 'each changed'} {of}"
            for adjacency, of in (
                (budget.adjacency, budget.unit),
                (study.adjacency, needed.unit),
            )
        )
        name, also = needed.data_set, ""
        if name != self.data_set:
            also = f", and start the site with --data-set {quote(name)}"
        command = budget_command(
            self.ledger.name, name, adjacency=needed.adjacency, unit=needed.unit
        ).replace(
            "--epsilon E --delta D",
            f"--epsilon {budget.epsilon:g} --delta {number_text(budget.delta)}",
        )
        raise DecisionRefused(
            "account-does-not-count-so",
            data_set=self.data_set,
            counts=counts,
            study=study.name,
            protects=protects,
            also=also,
            command=f"{command} --party {quote(str(self.party.folder))} --as {quote(by.name)}",
        )

    def account_needed(self, study: Study, budget: Budget) -> Budget | None:
        """The account that counts what a study protects, where one of this budget does not."""
        unit = study.unit or UNIT
        both = (budget.adjacency, study.adjacency)
        if budget.unit == unit and both != ("add-remove", "replace-one"):
            return None
        name = budget.data_set
        if not self.ledger.books().is_untouched(name):  # its losses cannot be counted otherwise
            name = f"{name} by {unit}"
        adjacency = "replace-one" if study.adjacency == "replace-one" else budget.adjacency
        return Budget(name, adjacency, budget.epsilon, budget.delta, unit=unit)

    def refuse(
        self, study: str, by: Decider = OWNER, *, reason: str, tell_lead: bool = False
    ) -> StudyStanding:
        """Refuse a study, by its hash; the lead is told the reason only with ``tell_lead``."""
        keep(self.party, self.text(study))
        found = self.decide("refuse", study, by, reason=reason, tell_lead=tell_lead)
        forget_waiting(self.party, study)
        return found

    def revoke(self, study: str, by: Decider = OWNER, *, reason: str = "") -> StudyStanding:
        """Take an approval back from the next message on; or ``EVERY_STUDY``'s."""
        return self.decide("revoke", study, by, reason=reason)

    def allow_every_study(self) -> StudyStanding:
        """Record, where it is not, that every study may run as often as the budget allows."""
        standing = self.standing(EVERY_STUDY)
        if standing.approved and standing.data_set == self.data_set:
            return standing
        if self.approvers().needed > 1:
            raise DecisionRefused("two-persons")
        why = "site start --approve all"
        return self.decide("approve", EVERY_STUDY, reason=why, runs=None, data_set=self.data_set)

    def end_every_study(self) -> None:
        """Revoke the standing approval of every study, where there is one."""
        if self.standing(EVERY_STUDY).approved:
            self.decide("revoke", EVERY_STUDY, reason="site start --approve manual")

    def decide(
        self,
        action: Action,
        study: str,
        by: Decider = OWNER,
        *,
        runs: int | None = 1,
        **fields: Any,
    ) -> StudyStanding:
        """Make, sign and record a decision; where the study stands afterwards."""
        runs = runs if action == "approve" else None
        made = self.draft(action, study, by=by.name, runs=runs, **fields)
        self.add(self._signed(made, by))
        return self.standing(study)

    def draft(self, action: Action, study: str, *, by: str, **fields: object) -> Decision:
        return self._now_and_once(Decision, {"action": action, "study": study, "by": by, **fields})

    def add(self, signed: SignedDecision) -> None:
        """Record a signed decision; two at once take their turns."""
        mark = self.ledger.store.mark()

        def make(books: Books) -> Sequence[Body]:
            record, before = self._opened(books, mark)
            record.check(signed, datetime.now(UTC))
            _check_sensible(signed.said, record)
            return [*before, DecisionBody(signed=signed)]

        self._record(make)

    # -- budgets

    def set_budget(self, budget: Budget, by: Decider = OWNER, *, reason: str = "") -> bool:
        """Decide about a data set's budget; whether it is set.

        It is not while a second approver must agree: to exactly the same.
        """
        check_budget(budget)
        said = {**asdict(budget), "by": by.name, "reason": reason}
        made = self._now_and_once(BudgetDecision, said)
        signed = self._signed(made, by)

        def make(books: Books) -> Sequence[Body]:
            record, before = self._opened(books, made.ledger)
            enough = record.agree(signed, datetime.now(UTC))
            body = noted(capped(budget, books), by=by.name, reason=reason)
            return [*before, BudgetDecisionBody(signed=signed), *([body] if enough else [])]

        return self._record(make)[-1].kind == BudgetBody.kind

    # -- of the party

    def text(self, study: str) -> Study:
        found = waiting_study(self.party, study) or decided_study(self.party, study)
        if found is None:
            raise DataError("no-study-with-hash", hash=study)
        return found


def _check_sensible(decision: Decision, record: Record) -> None:
    if decision.action == "refuse" and decision.study == EVERY_STUDY:
        raise DecisionRefused("refusal-of-all-studies")
    if decision.action == "revoke" and not record.standing(decision.study).rule.revocable:
        raise DecisionRefused("nothing-approved")
    if decision.until is not None and decision.until <= decision.time:
        raise DecisionRefused("approval-already-over", until=decision.until)
