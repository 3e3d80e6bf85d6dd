"""What the entries of a ledger say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from eigenveil.federation.ledger_chain import BrokenChain, Entry, Kind
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import ReleaseRecord

UNIT = "row"
"""Whose rows neighbours differ in, where nothing else is said."""


LARGEST_LOSS = Loss(1e100, 1e100, 1e100, 1e100)
"""Far beyond all that is useful; sums and squares of it are finite."""


@dataclass(frozen=True)
class Budget:
    """How much may be lost about a data set, over everything: what its account is opened with.

    Attributes
    ----------
    data_set : str
        The rows' name in the ledger.
    adjacency : {"add-remove", "replace-one"}
        Which data sets are neighbours; fixed once something was charged.
    epsilon, delta : float
        The bound; epsilon 0 closes the data set, delta 0 makes all of it pure.
    pure_epsilon : float
        What is set aside for pure releases; the rest is for Gaussian ones, where pure releases that
        do not fit here are counted at their Gaussian equivalent.
    unit : str
        What one neighbour has more, or other, than the other; fixed like adjacency.
    """

    data_set: str
    adjacency: Adjacency
    epsilon: float
    delta: float
    pure_epsilon: float = 0.0
    unit: str = UNIT


@dataclass(frozen=True)
class SessionKey:
    """A session: the study's hash in hex, and the name that its aggregator gave the session."""

    study: str
    session: str


class Body(BaseModel):
    """What an entry says."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[Kind]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return self.model_dump(mode="json")


class BudgetBody(Body):
    """A data set's budget is set, and with it the caps of its account."""

    kind = "budget"
    budget: Budget
    caps: Loss


class _SessionBody(Body):
    study: str
    session: str

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.study, self.session)


class BeginBody(_SessionBody):
    """A session begins.

    Attributes
    ----------
    reserve : Loss
        The most that it may charge, under its own adjacency.
    taken : Loss
        The same as its account counts it, under the adjacency ``counted``.
    pure_as_gaussian : bool
        Whether its pure releases are counted at their Gaussian equivalent.
    state : str
        SHA-256 of its first state, in hex.
    """

    kind = "begin"
    data_set: str
    unit: str
    adjacency: Adjacency
    reserve: Loss
    counted: Adjacency
    taken: Loss
    pure_as_gaussian: bool
    state: str
    note: str


class AnswerBody(_SessionBody):
    """A step is answered; SHA-256, in hex, of question, answer and new state (if there is one)."""

    kind: ClassVar[Kind] = "answer"
    step: str
    request: str
    reply: str
    state: str | None


class ChargeBody(AnswerBody):
    """A step is answered, and its answer releases something."""

    kind: ClassVar[Kind] = "charge"
    releases: tuple[ReleaseRecord, ...]


class EndBody(_SessionBody):
    """A session ends: its reservation goes, its charges stay."""

    kind = "end"
    outcome: str


_BODIES: Mapping[str, type[Body]] = {
    body.kind: body for body in (BudgetBody, BeginBody, AnswerBody, ChargeBody, EndBody)
}


def read_body(entry: Entry) -> Body:
    """What an entry says.

    Raises
    ------
    BrokenChain
        When it is nothing that can be said.
    """
    try:
        return _BODIES[entry.kind].model_validate(entry.body)
    except (KeyError, ValidationError, ArithmeticError):
        raise BrokenChain(
            entry.number, f"is no {entry.kind!r} that this version of eigenveil can read"
        ) from None
