"""What approvers sign, and who they are: the documents of a ledger's decisions.

Each states for which site, federation and ledger it is made; a decision also when, and a number
that is used once. So it can be recorded once, in that ledger, and nowhere else.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from eigenveil.errors import ProtocolError
from eigenveil.federation.members import Hex, Utc, shown
from eigenveil.federation.public_key import PublicKey
from eigenveil.federation.signed import Document, Signed

Action = Literal["approve", "refuse", "revoke"]
ApproverRole = Literal["owner", "approver", "viewer", "lead"]
EVERY_STUDY = "all"
"""In place of a study's hash: a standing decision about every study that has none of its own."""
DECIDING: tuple[ApproverRole, ...] = ("owner", "approver")
"""Roles whose decisions count."""
LONGEST_TEXT = 1000


def _key(text: str) -> str:
    try:
        return PublicKey.parse(text).text if text else text
    except ProtocolError as error:
        raise ValueError(error.message) from None


Name = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(shown)]
DataSet = Annotated[str, StringConstraints(max_length=200), AfterValidator(shown)]
Text = Annotated[str, StringConstraints(max_length=LONGEST_TEXT), AfterValidator(shown)]
Key = Annotated[str, StringConstraints(max_length=80), AfterValidator(_key)]


class Placed(Document):
    """A document that counts in one ledger of one site."""

    # The site's name, the fingerprint of its federation's first registrar, and the identifier of
    # its ledger
    site: Name
    federation: Hex
    ledger: Hex

    @property
    def place(self) -> tuple[str, str, str]:
        return self.site, self.federation, self.ledger

    @property
    def whose(self) -> str:
        return f"{self.site}, federation {self.federation[:16]}"


class Decision(Placed):
    """What an approver decided about a study."""

    DOMAIN = "decision 2"
    action: Action
    study: Hex | Literal["all"]  # The study's hash, in hex, or `EVERY_STUDY`
    # Of an approval: whose rows it is for, as the ledger calls them, and their digest
    # (:func:`~eigenveil.federation.ledger.fits.rows_digest`); empty for whatever rows the
    # data set has when a run begins
    data_set: DataSet = ""
    rows: Hex | Literal[""] = ""
    by: Name  # The approver's name in the site's list
    purpose: Text = ""  # What the study may be used for; why it was decided so
    reason: Text = ""
    tell_lead: bool = False  # Whether the lead is told the reason
    # How many runs an approval is good for; `None` for any number
    runs: Annotated[int, Field(ge=1, le=10**6, strict=True)] | None = 1
    until: Utc | None = None  # When a run may begin at the latest; UTC
    time: Utc  # When it was made; UTC
    nonce: Hex  # 32 random bytes in hex, used once


class BudgetDecision(Placed):
    """What an approver decided about the budget of a data set, whole.

    The fields are those of :class:`eigenveil.federation.ledger.entries.Budget`, and as of
    :class:`Decision`.
    """

    DOMAIN = "budget decision 2"
    data_set: Annotated[DataSet, Field(min_length=1)]
    adjacency: Literal["add-remove", "replace-one"]
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    pure_epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    unit: Annotated[DataSet, Field(min_length=1)]
    delta_elsewhere: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    by: Name
    reason: Text = ""
    time: Utc
    nonce: Hex


class Approver(Document):
    """One person, or one office, whom a site lets decide or look."""

    # As decisions name it; it stays in the ledger for ever. A staff number does as well.
    name: Name
    role: ApproverRole  # An owner and an approver decide; a viewer reads; a lead drafts studies
    # A line (:class:`~eigenveil.federation.public_key.PublicKey`); empty of those who decide
    # nothing
    public_key: Key = ""
    since: Utc  # When its decisions count; `until` is `None` while nothing ends it. UTC.
    until: Utc | None = None

    @model_validator(mode="after")
    def _has_key(self) -> Approver:
        if self.role in DECIDING and not self.public_key:
            raise ValueError("whoever decides needs a key")
        return self

    def decides_at(self, time: datetime) -> bool:
        return (
            self.role in DECIDING
            and self.since <= time
            and (self.until is None or time < self.until)
        )

    def __str__(self) -> str:
        """The name, and the key by which people can compare."""
        return f"{self.name} (key {key_mark(self.public_key)})" if self.public_key else self.name


class ApproverList(Placed):
    """Who decides at a site: numbered from 1, each signed by those whom the one before has."""

    DOMAIN = "approvers 2"
    number: Annotated[int, Field(ge=1, strict=True)]
    # How many different approvers an approval takes: 1, or 2 by the two-person rule
    needed: Literal[1, 2] = 1
    approvers: Annotated[tuple[Approver, ...], Field(min_length=1, max_length=1000)]

    @model_validator(mode="after")
    def _is_whole(self) -> ApproverList:
        names = [each.name for each in self.approvers]
        if len(set(names)) != len(names):
            raise ValueError("a name stands twice in it")
        keys = [PublicKey(each.public_key).point for each in self.approvers if each.public_key]
        if len(set(keys)) != len(keys):
            raise ValueError("a key stands twice in it")  # one person would be two
        return self

    def called(self, name: str) -> Approver | None:
        return next((each for each in self.approvers if each.name == name), None)

    def deciding(self, time: datetime) -> tuple[Approver, ...]:
        return tuple(each for each in self.approvers if each.decides_at(time))


SignedDecision = Signed[Decision]
SignedBudget = Signed[BudgetDecision]
SignedList = Signed[ApproverList]


def key_mark(public_key: str) -> str:
    """A key for people to compare: the beginning of its fingerprint."""
    return PublicKey(public_key).fingerprint[:16]
