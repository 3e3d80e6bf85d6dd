"""What approvers sign, and who they are: the documents of a ledger's decisions.

A decision states for which site, federation and ledger it is made, when, and a number that is used
once: so it can be recorded once, in that ledger, and nowhere else.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

Action = Literal["approve", "refuse", "revoke"]
ApproverRole = Literal["owner", "approver", "viewer", "lead"]
EVERY_STUDY = "all"
"""In place of a study's hash: a standing decision about every study that has none of its own."""
DECIDING: tuple[ApproverRole, ...] = ("owner", "approver")
"""Roles whose decisions count."""
LONGEST_TEXT = 1000


def _shown(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds characters that cannot be shown")
    return text


Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(_shown)]
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT), AfterValidator(_shown)]
Utc = Annotated[AwareDatetime, AfterValidator(lambda time: time.astimezone(UTC))]


class Document(BaseModel):
    """What is signed: fixed once made, and nothing beside its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Decision(Document):
    """What an approver decided about a study.

    Attributes
    ----------
    action : {"approve", "refuse", "revoke"}
    study : str
        The study's hash, in hex, or ``EVERY_STUDY``.
    by : str
        The approver's name in the site's list.
    purpose, reason : str
        What the study may be used for; why it was decided so.
    tell_lead : bool
        Whether the lead is told the reason.
    runs : int or None
        How many runs an approval is good for; ``None`` for any number.
    until : datetime or None
        When a run may begin at the latest; UTC.
    time : datetime
        When it was made; UTC.
    site, federation, ledger : str
        Where it counts: the site's name, the SHA-256 of its federation's root certificate, and the
        identifier of its ledger.
    nonce : str
        32 random bytes in hex, used once.
    """

    action: Action
    study: Hex | Literal["all"]
    by: Name
    purpose: Text = ""
    reason: Text = ""
    tell_lead: bool = False
    runs: Annotated[int, Field(ge=1, le=10**6, strict=True)] | None = 1
    until: Utc | None = None
    time: Utc
    site: Name
    federation: Hex
    ledger: Hex
    nonce: Hex


class SignedDecision(Document):
    """A decision and its approver's signature, in hex."""

    decision: Decision
    signature: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$", max_length=2048)]


class BudgetDecision(Document):
    """What an approver decided about the budget of a data set.

    Attributes
    ----------
    data_set, adjacency, epsilon, delta, pure_epsilon, unit, delta_elsewhere
        The budget (:class:`eigenveil.federation.ledger.entries.Budget`), whole.
    by, reason : str
        The approver's name in the site's list; why.
    time, site, federation, ledger, nonce
        As of :class:`Decision`.
    """

    data_set: Name
    adjacency: Literal["add-remove", "replace-one"]
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    pure_epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    unit: Name
    delta_elsewhere: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    by: Name
    reason: Text = ""
    time: Utc
    site: Name
    federation: Hex
    ledger: Hex
    nonce: Hex


class SignedBudget(Document):
    """A decision about a budget and its approver's signature, in hex."""

    decision: BudgetDecision
    signature: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$", max_length=2048)]


class Approver(Document):
    """One person, or one office, whom a site lets decide or look.

    Attributes
    ----------
    name : str
        As decisions name it; it stays in the ledger for ever. A staff number does as well.
    role : {"owner", "approver", "viewer", "lead"}
        An owner and an approver decide; a viewer reads; a lead drafts studies.
    public_key : str
        PEM (SubjectPublicKeyInfo) of an Ed25519, ECDSA (P-256) or RSA key; empty of those who
        decide nothing.
    since, until : datetime
        When its decisions count; ``until`` is ``None`` while nothing ends it. UTC.
    """

    name: Name
    role: ApproverRole
    public_key: Annotated[str, StringConstraints(max_length=2048)] = ""
    since: Utc
    until: Utc | None = None

    @model_validator(mode="after")
    def _has_key(self) -> Approver:
        if self.role in DECIDING and not self.public_key:
            raise ValueError("whoever decides needs a key")
        return self

    def decides_at(self, time: datetime) -> bool:
        """Whether a decision of this time counts."""
        return (
            self.role in DECIDING
            and self.since <= time
            and (self.until is None or time < self.until)
        )


class ApproverList(Document):
    """Who decides at a site: numbered from 1, signed by the site's own key.

    Attributes
    ----------
    needed : int
        How many different approvers an approval takes: 1, or 2 by the two-person rule.
    certificate, root : str
        PEM, of the site and of its federation's root.
    """

    number: Annotated[int, Field(ge=1, strict=True)]
    site: Name
    federation: Hex
    ledger: Hex
    needed: Literal[1, 2] = 1
    approvers: Annotated[tuple[Approver, ...], Field(min_length=1, max_length=1000)]
    certificate: Annotated[str, StringConstraints(max_length=16384)]
    root: Annotated[str, StringConstraints(max_length=16384)]

    @model_validator(mode="after")
    def _is_whole(self) -> ApproverList:
        names = [each.name for each in self.approvers]
        if len(set(names)) != len(names):
            raise ValueError("a name stands twice in it")
        keys = [each.public_key for each in self.approvers if each.public_key]
        if len(set(keys)) != len(keys):
            raise ValueError("a key stands twice in it")  # one person would be two
        return self

    def called(self, name: str) -> Approver | None:
        """The one of this name."""
        return next((each for each in self.approvers if each.name == name), None)

    def deciding(self, time: datetime) -> tuple[Approver, ...]:
        """Those whose decisions of this time count."""
        return tuple(each for each in self.approvers if each.decides_at(time))
