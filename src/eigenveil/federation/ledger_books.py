"""What a ledger's entries add up to: budgets, and what each session reserved and was charged.

The entries are the truth; nothing here is stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from eigenveil.errors import PrivacyError
from eigenveil.federation.ledger_chain import BrokenChain, Entry, Kind
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import ReleaseRecord


@dataclass(frozen=True)
class Budget:
    """How much may be lost about a data set, over everything: (epsilon, delta) for an adjacency."""

    data_set: str
    adjacency: Adjacency
    epsilon: float
    delta: float


@dataclass(frozen=True)
class SessionKey:
    """A session: the study's hash in hex, and the name that its aggregator gave the session."""

    study: str
    session: str


@dataclass(frozen=True)
class Standing:
    """Where a budget stands.

    Attributes
    ----------
    spent : Loss
        Of all charges, those of open sessions too.
    reserved : Loss
        What open sessions may still charge.
    spent_epsilon : float
        Of ``spent`` at the budget's delta; infinite where none follows (a delta lowered later).
    left_epsilon : float
        The budget's epsilon less that of ``spent`` and ``reserved`` together; not below 0.
    """

    budget: Budget
    spent: Loss
    reserved: Loss
    spent_epsilon: float
    left_epsilon: float


class Body(BaseModel):
    """What an entry says."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[Kind]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return self.model_dump(mode="json")


class BudgetBody(Body):
    """A budget is set."""

    kind = "budget"
    data_set: str
    adjacency: Adjacency
    epsilon: float
    delta: float


class _SessionBody(Body):
    study: str
    session: str

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.study, self.session)


class BeginBody(_SessionBody):
    """A session begins, with what it may charge at most."""

    kind = "begin"
    data_set: str
    adjacency: Adjacency
    reserve: Loss
    note: str


class ChargeBody(_SessionBody):
    """A step releases; ``reply`` is the SHA-256 of the answer, in hex."""

    kind = "charge"
    step: str
    releases: tuple[ReleaseRecord, ...]
    reply: str


class EndBody(_SessionBody):
    """A session ends: its reservation goes, its charges stay."""

    kind = "end"
    outcome: str


@dataclass(frozen=True)
class Account:
    """One session as its entries tell it.

    ``charges`` are (entry's number, what it says); ``outcome`` is ``None`` while it is open.
    """

    key: SessionKey
    begun: str
    terms: BeginBody
    charges: tuple[tuple[int, ChargeBody], ...] = ()
    outcome: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it may still charge."""
        return self.outcome is None

    def charged(self, more: Iterable[ReleaseRecord] = ()) -> Loss:
        """The loss of all its charges, and of ``more``."""
        records = [record for _, charge in self.charges for record in charge.releases]
        return Loss.total(Loss.of(record) for record in (*records, *more))

    def held(self) -> Loss:
        """What it takes of the budget: its reservation while open, then what was charged."""
        return self.terms.reserve if self.is_open else self.charged()


@dataclass
class Books:
    """Budgets by data set and adjacency, and sessions, in the order they came."""

    budgets: dict[tuple[str, Adjacency], Budget] = field(default_factory=dict)
    accounts: dict[SessionKey, Account] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """All entries added up.

        Raises
        ------
        BrokenChain
            When an entry cannot be read, or does not go with those before.
        """
        books = cls()
        for entry in entries:
            books.post(entry)
        return books

    def post(self, entry: Entry) -> None:
        """Add one entry."""
        match _read(entry):
            case BudgetBody() as body:
                self.budgets[body.data_set, body.adjacency] = Budget(**body.plain())
            case BeginBody() as body:
                if body.key in self.accounts:
                    raise BrokenChain(entry.number, "begins a session a second time")
                self.accounts[body.key] = Account(body.key, entry.time, body)
            case ChargeBody() as body:
                account = self._open(body.key, entry.number)
                charges = (*account.charges, (entry.number, body))
                self.accounts[body.key] = replace(account, charges=charges)
            case EndBody() as body:
                account = self._open(body.key, entry.number)
                self.accounts[body.key] = replace(account, outcome=body.outcome)

    def held(self, data_set: str, adjacency: Adjacency) -> Loss:
        """What all sessions take of a budget together."""
        return Loss.total(account.held() for account in self._of(data_set, adjacency))

    def standing(self, budget: Budget) -> Standing:
        """Where a budget stands."""
        accounts = self._of(budget.data_set, budget.adjacency)
        spent = Loss.total(account.charged() for account in accounts)
        held = self.held(budget.data_set, budget.adjacency)
        return Standing(
            budget=budget,
            spent=spent,
            reserved=Loss.total(
                _rest(account.terms.reserve, account.charged())
                for account in accounts
                if account.is_open
            ),
            spent_epsilon=epsilon_or_infinity(spent, budget.delta),
            left_epsilon=max(0.0, budget.epsilon - epsilon_or_infinity(held, budget.delta)),
        )

    def _of(self, data_set: str, adjacency: Adjacency) -> list[Account]:
        return [
            account
            for account in self.accounts.values()
            if (account.terms.data_set, account.terms.adjacency) == (data_set, adjacency)
        ]

    def _open(self, key: SessionKey, number: int) -> Account:
        account = self.accounts.get(key)
        if account is None or not account.is_open:
            raise BrokenChain(number, "is about a session that is not open")
        return account


def epsilon_or_infinity(loss: Loss, delta: float) -> float:
    """The loss's epsilon, or infinity where no finite one follows at this delta."""
    try:
        return loss.epsilon(delta)
    except PrivacyError:
        return math.inf


def _rest(reserve: Loss, charged: Loss) -> Loss:
    return Loss(
        mu_squared=max(0.0, reserve.mu_squared - charged.mu_squared),
        pure=max(0.0, reserve.pure - charged.pure),
        log_ratio=max(0.0, reserve.log_ratio - charged.log_ratio),
        distance=max(0.0, reserve.distance - charged.distance),
    )


_BODIES: Mapping[str, type[Body]] = {
    body.kind: body for body in (BudgetBody, BeginBody, ChargeBody, EndBody)
}


def _read(entry: Entry) -> Body:
    try:
        return _BODIES[entry.kind].model_validate(entry.body)
    except (KeyError, ValidationError):
        raise BrokenChain(
            entry.number, f"is no {entry.kind!r} that this version of eigenveil can read"
        ) from None
