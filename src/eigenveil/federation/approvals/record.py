"""What a ledger's signed entries amount to: who decides, which study may run, what is budgeted.

Nothing here is stored. The ledger's first entry is the list of its approvers; a later list counts
once enough of those present have signed it, a decision or a budget only if approvers of the list at
that time did, and runs are counted from the ledger's sessions. What does not hold counts for
nothing, and no session begins beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

from eigenveil.errors import DecisionRefused
from eigenveil.federation.approvals.documents import (
    DECIDING,
    EVERY_STUDY,
    Approver,
    ApproverList,
    BudgetDecision,
    Decision,
    SignedBudget,
    SignedDecision,
    SignedList,
)
from eigenveil.federation.ledger.books import Books
from eigenveil.federation.ledger.entries import (
    ApproversBody,
    BrokenChain,
    Budget,
    BudgetBody,
    BudgetDecisionBody,
    DecisionBody,
    SessionKey,
)
from eigenveil.federation.public_key import PublicKey
from eigenveil.federation.signed import Signed

CLOCK = timedelta(minutes=10)
"""By how much the time in a decision may differ from the ledger's clock when it is recorded."""
State = Literal["waiting", "second", "approved", "used", "expired", "refused", "revoked"]


@dataclass(frozen=True)
class StateRule:
    """What a state means, for the site, the command line and the console."""

    label: str  # The state in one or two words, for people
    waits: bool = False  # Whether the owner is to decide
    granted: bool = False  # Whether an approval stands: a run that began under it goes on
    revocable: bool = False  # Whether there is an approval, or a part of one, that could be revoked


STATES: Mapping[State, StateRule] = {
    "waiting": StateRule("waits", waits=True),
    "second": StateRule("second approver needed", waits=True, revocable=True),
    "approved": StateRule("approved", granted=True, revocable=True),
    "used": StateRule("used up", waits=True, granted=True, revocable=True),
    "expired": StateRule("expired", waits=True, granted=True, revocable=True),
    "refused": StateRule("refused"),
    "revoked": StateRule("revoked"),
}
"""Every state of a study at a site."""


@lru_cache(maxsize=4096)
def _holds(public_key: str, text: bytes, signature: str) -> bool:
    return PublicKey.parse(public_key).verify(text, bytes.fromhex(signature))


def signed_by(signed: Signed[Any], approver: Approver) -> bool:
    """Whether an approver's key signed a document; looked at once."""
    found = signed.signatures.get(approver.public_key)
    return found is not None and _holds(approver.public_key, signed.said.text, found)


def _bad_list(why: str) -> DecisionRefused:
    return DecisionRefused("bad-approvers", why=why)


def _rows_of(each: Recorded) -> tuple[str, str]:
    return each.decision.data_set, each.decision.rows


def budget_in(decision: BudgetDecision) -> Budget:
    return Budget(**{each.name: getattr(decision, each.name) for each in fields(Budget)})


@dataclass(frozen=True)
class StudyStanding:
    # "waiting" for a decision, "approved", "used" (all its runs have begun) or "expired": it waits
    # again; "refused" or "revoked". "second" when a second approver must agree, whatever there was
    # before, unless an approval still allows a run.
    state: State = "waiting"
    by: tuple[str, ...] = ()  # Who decided, in order; when a second is needed, who agreed so far
    purpose: str = ""
    reason: str = ""
    # Which rows a run may use, as of :class:`~eigenveil.federation.approvals.documents.Decision`
    data_set: str = ""
    rows: str = ""
    runs: int | None = None  # Runs that may begin in all (`None`: any number), and those that have
    used: int = 0
    until: datetime | None = None  # When a run may begin at the latest; when it was decided
    time: datetime | None = None
    tell_lead: bool = False  # Whether the lead is told the reason
    every: bool = False  # Whether this is the standing decision about every study
    since: int = 0  # Number of the entry from which runs are counted; 0 while nothing is approved
    after: int = 0  # Number of the entry that last ended an approval; 0 where none did
    before: State | None = None  # In state "second", the state until the second approver agrees

    @property
    def approved(self) -> bool:
        return self.state == "approved"

    @property
    def waits(self) -> bool:
        return self.rule.waits

    @property
    def rule(self) -> StateRule:
        return STATES[self.state]

    @property
    def left(self) -> int | None:
        """How many runs may still begin; ``None``: any number."""
        if self.state != "approved":
            return 0
        return None if self.runs is None else max(0, self.runs - self.used)

    def allows(self, begun: int | None) -> bool:
        """Whether a run goes on that began with this entry, or, with ``None``, may begin now.

        A run that began under an approval goes on when the runs are used up or the date has
        passed: revoking it is another decision, which a later approval does not undo for it.
        """
        if begun is None:
            return self.approved
        return STATES[self.before or self.state].granted and begun > self.after


@dataclass(frozen=True)
class Recorded:
    """A decision as it was recorded: its entry's number, what was signed, and what it lacks.

    ``problem`` is empty where it counts; ``approver`` is who signed it, as the list had them.
    """

    number: int
    signed: SignedDecision
    needed: int
    approver: Approver | None = None
    problem: str = ""

    @property
    def decision(self) -> Decision:
        return self.signed.said


@dataclass(frozen=True)
class BudgetChange:
    time: str  # When; UTC, ISO format
    body: BudgetBody  # What its entry holds
    signed: tuple[Approver, ...]  # Who signed it; empty where there are no approvers


@dataclass
class Record:
    """What is signed in one ledger, in its order; each entry checked."""

    ledger: str  # The ledger's identifier, which every document names
    # The latest list that holds; without one nobody decides here
    listed: ApproverList | None = None
    lists: list[SignedList] = field(default_factory=list)  # All, in their order
    # Next lists that too few have signed yet, and who did
    proposed: list[tuple[ApproverList, tuple[Approver, ...]]] = field(default_factory=list)
    decisions: list[Recorded] = field(default_factory=list)
    # Every budget as it was set
    budgets: list[BudgetChange] = field(default_factory=list)
    # Decisions about budgets that a second approver has not agreed to
    waiting: list[SignedBudget] = field(default_factory=list)
    # Entries that do not hold, and why
    problems: list[tuple[int, str]] = field(default_factory=list)
    # The entry with which each session began
    begun: dict[SessionKey, int] = field(default_factory=dict)
    _about: dict[str, list[Recorded]] = field(default_factory=dict)
    _runs: dict[str, list[int]] = field(default_factory=dict)
    _budgets: dict[str, Budget] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, books: Books, ledger: str) -> Record:
        record = cls(ledger, begun=dict(books.begun))
        for key, begun in books.begun.items():
            record._runs.setdefault(key.study, []).append(begun)
        for number, time, body in books.decided:
            try:
                now = datetime.fromisoformat(time)
                match body:
                    case ApproversBody(signed=listed):
                        record.lists.append(listed)
                        record.take(listed, now, first=number == 1)
                    case BudgetDecisionBody(signed=budget):
                        record.agree(budget, now)
                    case BudgetBody():
                        record._set(number, time, body)
                    case DecisionBody(signed=decision):
                        record._decide(number, now, decision)
            except DecisionRefused as error:
                record.problems.append((number, error.message))
            except (ValueError, TypeError):
                record.problems.append((number, "Its entry has no time."))
        return record

    # -- who decides

    def take(self, signed: SignedList, now: datetime, *, first: bool = False) -> bool:
        """Take over the next list; whether enough have signed it."""
        new, before = signed.said, self.listed
        judges = new if before is None else before
        if before is None and not first:
            raise _bad_list("a list of approvers is the first entry of a ledger, or there is none")
        if new.ledger != self.ledger:
            raise _bad_list("it was made for another ledger")
        if new.place != judges.place:
            raise _bad_list(f"it is of {new.whose}, and this ledger is of {judges.whose}")
        if new.number != (1 if before is None else before.number + 1):
            raise _bad_list(f"number {new.number} is not the next one")
        known = {each.public_key: each for each in judges.deciding(now)}
        names = tuple(known[key] for key in signed.signatures if key in known)
        if not names or len(names) < len(signed.signatures):
            raise _bad_list(f"another key than those of the approvers of {judges.whose} signed it")
        if not all(signed_by(signed, each) for each in names):
            raise _bad_list("a signature does not hold")
        lasting = [each for each in new.approvers if each.role in DECIDING and each.until is None]
        if len(lasting) < new.needed:
            raise _bad_list(f"nobody, or fewer than {new.needed}, could decide by it")
        earlier = next((agreed for each, agreed in self.proposed if each == new), ())
        agreed = tuple(dict.fromkeys([*earlier, *names]))
        if before is not None and len(agreed) < before.needed:
            self.proposed = [(e, a) for e, a in self.proposed if e != new] + [(new, agreed)]
            return False
        self.listed, self.proposed, self.waiting = new, [], []
        return True

    def check(self, signed: SignedDecision | SignedBudget, now: datetime) -> Approver:
        """Raise where a decision may not be recorded now; its approver otherwise.

        The codes are ``other-place``, ``replayed-decision``, ``clock-off``, ``unknown-approver``,
        ``wrong-role``, ``bad-signature``.
        """
        said, listed = signed.said, self.listed
        if listed is not None and said.place != listed.place:
            raise DecisionRefused("other-place", whose=said.whose, own=listed.whose)
        if said.nonce in self._seen:
            raise DecisionRefused("replayed-decision")
        if abs(now - said.time) > CLOCK:
            raise DecisionRefused("clock-off", decided=said.time, now=now)
        approver = None if listed is None else listed.called(said.by)
        if approver is None:
            raise DecisionRefused("unknown-approver", name=said.by)
        if not approver.decides_at(now):
            raise DecisionRefused(
                "may-not-decide",
                name=said.by,
                role=approver.role,
                since=approver.since,
                until="" if approver.until is None else f" until {approver.until:%Y-%m-%d}",
            )
        if len(signed.signatures) != 1 or not signed_by(signed, approver):
            raise DecisionRefused("bad-signature", what="The decision", name=said.by)
        return approver

    # -- budgets

    def agree(self, signed: SignedBudget, now: datetime) -> bool:
        """Add an approver's decision about a budget; whether enough have agreed to it."""
        self.check(signed, now)
        self._seen.add(signed.said.nonce)
        self.waiting.append(signed)
        return bool(self._agreed(budget_in(signed.said)))

    def _agreed(self, budget: Budget) -> tuple[Approver, ...]:
        by = [each.said.by for each in self.waiting if budget_in(each.said) == budget]
        names = dict.fromkeys(by)
        if self.listed is None or len(names) < self.listed.needed:
            return ()
        known = (self.listed.called(name) for name in names)
        return tuple(each for each in known if each is not None)

    def _set(self, number: int, time: str, body: BudgetBody) -> None:
        budget, names = body.budget, self._agreed(body.budget)
        if self._budgets.get(budget.data_set) == budget and not names:
            return  # its caps were divided anew
        if self.listed is not None and not names:
            self.problems.append((number, "no approver, or too few, signed the budget"))
        self.budgets.append(BudgetChange(time, body, names))
        self._budgets[budget.data_set] = budget
        self.waiting = [e for e in self.waiting if e.said.data_set != budget.data_set]

    # -- studies

    def _decide(self, number: int, now: datetime, signed: SignedDecision) -> None:
        approver, problem = None, ""
        try:
            approver = self.check(signed, now)
        except DecisionRefused as error:
            problem = error.message
            self.problems.append((number, problem))
        self._seen.add(signed.said.nonce)
        needed = 1 if self.listed is None else self.listed.needed
        made = Recorded(number, signed, needed, approver, problem)
        self.decisions.append(made)
        self._about.setdefault(signed.said.study, []).append(made)

    def standing(self, study: str, now: datetime | None = None) -> StudyStanding:
        """Where a study stands; a decision of its own comes before one about every study."""
        moment = datetime.now(UTC) if now is None else now
        found, agreed = self._decided(study, study, moment)
        if found.state == "waiting" and study != EVERY_STUDY:
            every, _ = self._decided(EVERY_STUDY, study, moment)
            if every.rule.granted:
                found = every
        if not agreed or found.approved:
            return found
        return replace(_granted("second", agreed), after=found.after, before=found.state)

    def _decided(
        self, about: str, study: str, now: datetime
    ) -> tuple[StudyStanding, list[Recorded]]:
        """What enough approvers decided about a study, and who agreed to more since."""
        found, agreed, after = StudyStanding(), list[Recorded](), 0
        for each in self._about.get(about, ()):
            decision = each.decision
            if each.problem:
                continue
            if decision.action != "approve":
                agreed, after = [], each.number
                found = StudyStanding(
                    "refused" if decision.action == "refuse" else "revoked",
                    (decision.by,),
                    decision.purpose,
                    decision.reason,
                    time=decision.time,
                    tell_lead=decision.tell_lead,
                )
                continue
            same = [e for e in agreed if _rows_of(e) == _rows_of(each)]
            agreed = [e for e in same if e.decision.by != decision.by] + [each]
            if len(agreed) >= each.needed:
                found, agreed = _granted("approved", agreed), []
        if found.approved:
            found = replace(found, after=after, every=about == EVERY_STUDY)
            found = self._counted(found, study, now)
        return found, agreed

    def _counted(self, found: StudyStanding, study: str, now: datetime) -> StudyStanding:
        begun = [number for number in self._runs.get(study, ()) if number > found.since]
        state: State = "approved"
        if found.runs is not None and len(begun) >= found.runs:
            state = "used"
        elif found.until is not None and now > found.until:
            state = "expired"
        return replace(found, state=state, used=len(begun))


def _granted(state: State, agreed: list[Recorded]) -> StudyStanding:
    """What those who agreed allow together: the fewest runs, the earliest date."""
    decisions = [each.decision for each in agreed]
    runs = [each.runs for each in decisions if each.runs is not None]
    until = [each.until for each in decisions if each.until is not None]
    return StudyStanding(
        state,
        tuple(each.by for each in decisions),
        decisions[-1].purpose or decisions[0].purpose,
        decisions[-1].reason or decisions[0].reason,
        *_rows_of(agreed[-1]),
        min(runs, default=None),
        until=min(until, default=None),
        time=decisions[-1].time,
        since=agreed[-1].number,
    )


def check_signed(books: Books, ledger: str) -> Record:
    """Raise :class:`BrokenChain` where a signed entry does not hold: at use, and by ``verify``."""
    found = Record.of(books, ledger)
    if found.problems:
        number, why = min(found.problems)
        raise BrokenChain(number, f"does not hold ({why.rstrip('.')})")
    return found
