"""What a ledger's entries add up to: accounts, and what each session reserved and was charged.

The entries are the truth; nothing here is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from eigenveil.errors import PrivacyError
from eigenveil.federation.ledger.entries import (
    LARGEST_LOSS,
    AnswerBody,
    ApproversBody,
    BeginBody,
    Body,
    BrokenChain,
    Budget,
    BudgetBody,
    BudgetDecisionBody,
    ChargeBody,
    DecisionBody,
    ElsewhereBody,
    EndBody,
    Entry,
    FileMark,
    FilesBody,
    MembersBody,
    SessionKey,
    read_body,
)
from eigenveil.privacy.accountant import Loss, all_within
from eigenveil.privacy.budget import NOTHING, as_gaussian, cost_of, pure_of_gaussian
from eigenveil.privacy.releases import ReleaseRecord


@dataclass(frozen=True)
class Standing:
    """Where an account stands; losses as it counts them."""

    budget: Budget
    # What may be charged in all: the sums of mu squared, of pure epsilons, of samplers' errors
    caps: Loss
    spent: Loss  # Of all charges, those of open sessions too
    reserved: Loss  # What open sessions may still charge

    @property
    def left(self) -> Loss:
        """What a further session may still take, part by part."""
        held = Loss.total([self.spent, self.reserved])
        return self.caps.minus(held) if held.within(self.caps) else NOTHING

    @property
    def spent_epsilon(self) -> float:
        """Of ``spent`` at the budget's delta; infinite where none follows (delta lowered later)."""
        return epsilon_or_infinity(self.spent, self.budget.delta)

    @property
    def left_epsilon(self) -> float:
        """Epsilon, at the budget's delta, of the largest Gaussian study that is still covered.

        Pure where the budget is.
        """
        left = self.left
        if self.budget.delta == 0:
            return left.pure
        if left.mu_squared == 0:
            return 0.0
        gaussian = replace(left, pure=0.0)
        return min(self.budget.epsilon, epsilon_or_infinity(gaussian, self.budget.delta))

    @property
    def left_pure(self) -> float:
        return max(self.left.pure, pure_of_gaussian(self.left.mu_squared))


@dataclass(frozen=True)
class Session:
    """One session as its entries tell it.

    ``charges`` are (entry's number, its body), ``answers`` likewise of all answers, charging
    or not; ``state`` is the hash of its state; ``outcome`` is ``None`` while it is open.
    """

    key: SessionKey
    begun: str
    terms: BeginBody
    state: str
    answers: tuple[tuple[int, AnswerBody], ...] = ()
    outcome: str | None = None

    @property
    def is_open(self) -> bool:
        return self.outcome is None

    @property
    def charges(self) -> tuple[tuple[int, ChargeBody], ...]:
        return tuple((n, body) for n, body in self.answers if isinstance(body, ChargeBody))

    def has_answered(self, step: str) -> bool:
        return any(body.step == step for _, body in self.answers)

    def releases(self) -> tuple[ReleaseRecord, ...]:
        return tuple(record for _, charge in self.charges for record in charge.releases)

    def charged(self, more: Iterable[ReleaseRecord] = ()) -> Loss:
        """The loss of all its charges, and of ``more``, under its own adjacency."""
        return cost_of((*self.releases(), *more))

    def spent(self, more: Iterable[ReleaseRecord] = ()) -> Loss:
        """The same as its account counts it."""
        loss = cost_of((*self.releases(), *more), self.terms.counted)
        return as_gaussian(loss) if self.terms.pure_as_gaussian else loss

    def held(self) -> Loss:
        """What it takes of its account: its reservation while open, then what was charged."""
        return self.terms.taken if self.is_open else self.spent()


Decided = ApproversBody | DecisionBody | BudgetDecisionBody | BudgetBody


@dataclass
class Books:
    """Accounts by data set, their files, sessions and decisions, in the order they came.

    ``begun`` are the numbers of the entries with which sessions began. ``decided`` are (entry's
    number, its time, its body) of lists, decisions and budgets: whether they hold is looked at in
    :mod:`eigenveil.federation.approvals.record`. ``elsewhere`` are (its time, its body).
    ``members`` is the newest list of members that was seen.
    """

    accounts: dict[str, BudgetBody] = field(default_factory=dict)
    files: dict[str, set[FileMark]] = field(default_factory=dict)
    sessions: dict[SessionKey, Session] = field(default_factory=dict)
    begun: dict[SessionKey, int] = field(default_factory=dict)
    decided: list[tuple[int, str, Decided]] = field(default_factory=list)
    elsewhere: list[tuple[str, ElsewhereBody]] = field(default_factory=list)
    members: MembersBody | None = None

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        books = cls()
        for entry in entries:
            books.post(entry)
        return books

    def post(self, entry: Entry, body: Body | None = None) -> None:
        """Add one entry; its ``body`` is what was just written there, or is read."""
        match read_body(entry) if body is None else body:
            case BudgetBody() as body:
                _check_losses(entry.number, body.caps)
                self.accounts[body.budget.data_set] = body
                self.decided.append((entry.number, entry.time, body))
            case FilesBody() as body:
                self.files.setdefault(body.data_set, set()).update(body.marks)
            case BeginBody() as body:
                if body.key in self.sessions:
                    raise BrokenChain(entry.number, "begins a session a second time")
                _check_losses(entry.number, body.reserve, body.taken)
                self.sessions[body.key] = Session(body.key, entry.time, body, body.state)
                self.begun[body.key] = entry.number
            case AnswerBody() as body:
                session = self._open(body.key, entry.number)
                self._add(session, entry.number, body)
            case DecisionBody() | ApproversBody() | BudgetDecisionBody() as body:
                self.decided.append((entry.number, entry.time, body))
            case ElsewhereBody() as body:
                _check_losses(entry.number, body.loss)
                if body.data_set not in self.accounts:
                    raise BrokenChain(entry.number, "charges an account that there is not")
                self.elsewhere.append((entry.time, body))
            case MembersBody() as body:
                if self.members is not None and body.number <= self.members.number:
                    raise BrokenChain(entry.number, "records an older list of members")
                self.members = body
            case EndBody() as body:
                session = self._open(body.key, entry.number)
                self.sessions[body.key] = replace(session, outcome=body.outcome)

    def held(self, data_set: str) -> Loss:
        sessions = [session.held() for session in self.of_data_set(data_set)]
        return Loss.total([*sessions, *self._elsewhere(data_set)])

    @property
    def is_empty(self) -> bool:
        return not any((self.accounts, self.files, self.sessions, self.decided, self.members))

    @property
    def has_approvers(self) -> bool:
        return bool(self.decided) and isinstance(self.decided[0][2], ApproversBody)

    def is_untouched(self, data_set: str) -> bool:
        """Whether nothing was charged to an account, and no session may.

        No output can have been seen that a change of its caps could follow from.
        """
        charged = any(each.is_open or each.charges for each in self.of_data_set(data_set))
        return not charged and not self._elsewhere(data_set)

    def accounts_with(self, digests: Iterable[str]) -> list[str]:
        """Data sets one of whose files has one of these digests, of its path or its content."""
        wanted = set(digests)
        return [
            name
            for name, marks in self.files.items()
            if any({mark.path, mark.content} & wanted for mark in marks)
        ]

    def standings(self) -> list[Standing]:
        return [self.standing(data_set) for data_set in self.accounts]

    def standing(self, data_set: str) -> Standing:
        account, sessions = self.accounts[data_set], self.of_data_set(data_set)
        spent = [session.spent() for session in sessions]
        return Standing(
            budget=account.budget,
            caps=account.caps,
            spent=Loss.total([*spent, *self._elsewhere(data_set)]),
            reserved=Loss.total(
                session.terms.taken.minus(its)
                for session, its in zip(sessions, spent, strict=True)
                if session.is_open
            ),
        )

    def of_data_set(self, data_set: str) -> list[Session]:
        return [each for each in self.sessions.values() if each.terms.data_set == data_set]

    def charged(self, data_set: str) -> int:
        """How many fits, studies and works done elsewhere were charged to an account."""
        sessions = sum(bool(each.charges) for each in self.of_data_set(data_set))
        return sessions + len(self._elsewhere(data_set))

    def _elsewhere(self, data_set: str) -> list[Loss]:
        return [body.loss for _, body in self.elsewhere if body.data_set == data_set]

    def _open(self, key: SessionKey, number: int) -> Session:
        session = self.sessions.get(key)
        if session is None or not session.is_open:
            raise BrokenChain(number, "is about a session that is not open")
        return session

    def _add(self, session: Session, number: int, body: AnswerBody) -> None:
        if any(before.step == body.step for _, before in session.answers):
            raise BrokenChain(number, "answers a step a second time")
        if isinstance(body, ChargeBody):
            try:
                possible = all_within(map(Loss.of, body.releases), LARGEST_LOSS)
            except (ArithmeticError, ValueError):  # numbers that no release ever has
                possible = False
            if not possible:
                raise _no_loss(number)
        self.sessions[session.key] = replace(
            session,
            answers=(*session.answers, (number, body)),
            state=session.state if body.state is None else body.state,
        )


def _check_losses(number: int, *losses: Loss) -> None:
    if not all_within(losses, LARGEST_LOSS):
        raise _no_loss(number)


def _no_loss(number: int) -> BrokenChain:
    return BrokenChain(number, "records a loss that is impossible")


def epsilon_or_infinity(loss: Loss, delta: float) -> float:
    """The loss's epsilon, or infinity where no finite one follows at this delta."""
    try:
        return loss.epsilon(delta)
    except PrivacyError:
        return math.inf
