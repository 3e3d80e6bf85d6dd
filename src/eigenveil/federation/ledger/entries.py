"""The chain of a ledger's entries: each one holds the hash of the one before.

``hash = SHA-256(canonical JSON of {number, time, kind, body, previous})``; the first ``previous``
is 64 zeros. So no entry can be changed, taken out or put in without changing all that follow.
Whoever can write the file can also compute the whole chain anew: against the ledger's own keeper it
helps only where the last hash was noted elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from eigenveil.errors import DataError, number_text
from eigenveil.federation.approvals.documents import SignedBudget, SignedDecision, SignedList
from eigenveil.federation.members import Hex
from eigenveil.federation.signed import canonical
from eigenveil.privacy.accountant import Loss
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import ReleaseRecord

FIRST = "0" * 64
LONGEST_NAME = 200


@dataclass(frozen=True)
class Head:
    """Number and hash of the last entry; 0 and 64 zeros of an empty ledger."""

    count: int
    hash: str


@dataclass(frozen=True)
class Entry:
    """One entry: ``time`` is UTC in ISO format, ``previous`` and ``hash`` are SHA-256 in hex."""

    number: int
    time: str
    kind: str
    body: Mapping[str, Any]
    previous: str
    hash: str

    def line(self) -> str:
        """The entry as one line of canonical JSON."""
        return canonical(asdict(self))


class BrokenChain(DataError):
    """An entry is not what was once written; ``entry`` is its number, ``why`` a clause."""

    def __init__(self, entry: int, why: str) -> None:
        super().__init__("chain-broken", entry=entry, why=why)
        self.entry, self.why = entry, why


def seal(number: int, time: str, kind: str, body: Mapping[str, Any], previous: str) -> Entry:
    """The entry with its hash."""
    return Entry(number, time, kind, body, previous, _hash(number, time, kind, body, previous))


def opened(
    number: int, time: str, kind: str, text: str | bytes, previous: str, sealed: str
) -> Entry:
    """The entry as it is stored, its body as JSON; no hash is checked."""
    try:
        body = json.loads(text)
        if isinstance(body, dict) and canonical(body) == text:
            return Entry(number, time, kind, body, previous, sealed)
    except (TypeError, ValueError, RecursionError):
        pass
    raise BrokenChain(number, "holds something else than what was written")


def checked(entries: Iterable[Entry], *, count: int, last: str) -> Iterator[Entry]:
    """The entries, each one checked; ``count`` and ``last`` hash are those that the head names."""
    expected, previous = 1, FIRST
    for entry in entries:
        if entry.number != expected:
            if not isinstance(entry.number, int) or entry.number > expected:
                raise BrokenChain(expected, "is missing")
            raise BrokenChain(entry.number, "has no place")
        if entry.previous != previous:
            raise BrokenChain(entry.number, "does not follow the one before")
        if entry.hash != _hash(entry.number, entry.time, entry.kind, entry.body, entry.previous):
            raise BrokenChain(entry.number, "is not the one whose hash is recorded")
        if entry.number > count:
            raise BrokenChain(entry.number, "is beyond the last one that the ledger's head counts")
        yield entry
        expected, previous = expected + 1, entry.hash
    if expected <= count:
        raise BrokenChain(expected, f"is missing: the ledger's head counts {count}")
    if previous != last:
        raise BrokenChain(count, "is not the last one that the ledger's head names")


def _hash(number: int, time: str, kind: str, body: Mapping[str, Any], previous: str) -> str:
    sealed = {"number": number, "time": time, "kind": kind, "body": body, "previous": previous}
    try:
        return hashlib.sha256(canonical(sealed).encode()).hexdigest()
    except TypeError:  # bytes where text was written
        return ""


# -- What the entries of a ledger say.


UNIT = "row"
"""Whose rows neighbours differ in, by default."""


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
    delta_elsewhere : float
        The part of delta that is set aside for approximate promises of work done elsewhere.
    """

    data_set: str
    adjacency: Adjacency
    epsilon: float
    delta: float
    pure_epsilon: float = 0.0
    unit: str = UNIT
    delta_elsewhere: float = 0.0

    @property
    def bound(self) -> str:
        """Epsilon and delta, as sentences have them."""
        return f"epsilon = {self.epsilon:g} at delta = {number_text(self.delta)}"


def budget_command(ledger: str, data_set: str, *, adjacency: str, unit: str) -> str:
    """The command that opens an account or changes its budget, but for the budget itself."""
    which = "" if unit == UNIT else f" --unit {quote(unit)}"
    return (
        f"eigenveil ledger budget {quote(ledger)} --data-set {quote(data_set)} --adjacency "
        f"{adjacency}{which} --epsilon E --delta D"
    )


class SessionKey(NamedTuple):
    """A session: the study's hash in hex, and the name that its aggregator gave the session."""

    study: str
    session: str


class Body(BaseModel):
    """The body of an entry."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Body]]] = {}  # All there are

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        """List the kind."""
        super().__pydantic_init_subclass__(**more)
        if cls.kind:
            Body.kinds[cls.kind] = cls

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return self.model_dump(mode="json")


class BudgetBody(Body):
    """A data set's budget is set, and with it the caps of its account.

    ``by`` and ``reason`` are who set it and why, as they were given. Where the site has approvers,
    a :class:`BudgetDecisionBody` of each who signed it stands before.
    """

    kind = "budget"
    budget: Budget
    caps: Loss
    by: str = ""
    reason: str = ""


@dataclass(frozen=True)
class FileMark:
    """A file as a ledger knows it: digests under the ledger's own key, which no entry holds."""

    path: str  # Of the file's place and of what is in it, in hex
    content: str


class FilesBody(Body):
    """Files are a data set's: a fit that reads one of them is charged to its account."""

    kind = "files"
    data_set: str
    marks: tuple[FileMark, ...]


class _SessionBody(Body):
    study: str
    session: str

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.study, self.session)


class BeginBody(_SessionBody):
    """A session begins."""

    kind = "begin"
    data_set: str
    unit: str
    adjacency: Adjacency
    reserve: Loss  # The most that it may charge, under its own adjacency
    counted: Adjacency
    taken: Loss  # The same as its account counts it, under the adjacency `counted`
    pure_as_gaussian: bool  # Whether its pure releases are counted at their Gaussian equivalent
    state: str  # SHA-256 of its first state, in hex
    note: str


class AnswerBody(_SessionBody):
    """A step is answered; SHA-256, in hex, of question, answer and new state (if there is one)."""

    kind = "answer"
    step: str
    request: str
    reply: str
    state: str | None


class ChargeBody(AnswerBody):
    """A step is answered, and its answer releases something."""

    kind = "charge"
    releases: tuple[ReleaseRecord, ...]


class EndBody(_SessionBody):
    """A session ends: its reservation goes, its charges stay."""

    kind = "end"
    outcome: str


class ElsewhereBody(Body):
    """Work that was done elsewhere is charged."""

    kind = "elsewhere"
    data_set: str
    loss: Loss  # What it cost, as the account counts it
    what: str  # What was done, and what was stated of it
    by: str = ""  # Who charged it and why, as they were given; nobody signs them
    reason: str = ""


class DecisionBody(Body):
    """An approver's decision about a study, as it was signed."""

    kind = "decision"
    signed: SignedDecision


class BudgetDecisionBody(Body):
    """An approver's decision about a budget, as it was signed."""

    kind = "budget-decision"
    signed: SignedBudget


class ApproversBody(Body):
    """Who decides at a site from now on, or what some who decide propose.

    The first is the ledger's first entry, signed by those in it; each later one counts once as many
    approvers of the list before as it wants have signed the same, in one entry or in several.
    """

    kind = "approvers"
    signed: SignedList


class MembersBody(Body):
    """The newest list of the federation's members that the site has seen: number and digest."""

    kind = "members"
    number: int
    digest: Hex


def read_body(entry: Entry) -> Body:
    """The body of an entry."""
    try:
        return Body.kinds[entry.kind].model_validate(entry.body)
    except (KeyError, ValidationError, ArithmeticError):
        raise BrokenChain(
            entry.number, f"is no {entry.kind!r} that this version of eigenveil can read"
        ) from None
