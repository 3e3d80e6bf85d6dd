"""A lead's question to parties before a study runs: what was decided about it, and their schema.

An answer has public facts only: what the owner declared, and what the owner decided about exactly
this study. Nothing is computed from rows, and nothing is charged. A question also puts the study
before the owner, where a start would do so.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from eigenveil.errors import DataError, EigenveilError, ProtocolError
from eigenveil.federation.approvals.studies import MOST_ASKED, waiting_study
from eigenveil.federation.members import Membership
from eigenveil.federation.signed import Document
from eigenveil.federation.study.study import Study, parse_study
from eigenveil.network import channel
from eigenveil.network.channel import MOST_SURVEYED, NONCE, OTHER_MEMBERS, TROUBLE, Reply
from eigenveil.network.envelopes import Envelope
from eigenveil.network.orders import parties_of
from eigenveil.tables.schema import Schema, parse_schema

if TYPE_CHECKING:
    from eigenveil.network.parties import StudyParty

State = Literal[
    "new", "waiting", "full", "approved", "used", "expired", "refused", "revoked", "no-part",
    "not-told", "not-asked",
]  # fmt: skip
# Why there is no answer, beside the codes of the channel.
NOT_CONNECTED, NOT_A_MEMBER, REVOKED = channel.NOT_CONNECTED, "not-a-member", "revoked-party"
UNREADABLE = "malformed"
_VERSION = version("eigenveil")
_LONGEST_REASON = 1000


@dataclass(frozen=True)
class Telling:
    """What the owner of a site lets leads read before a study runs: decisions, and a schema."""

    decisions: bool = True
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if self.schema is None:
            return
        self.schema.check_usable("The schema that leads are told")
        object.__setattr__(self, "schema", self.schema.agreed())
        size = len(json.dumps(self.schema.as_dict()))
        if size > MOST_SURVEYED // 2:
            raise DataError("schema-too-large", size=size, most=MOST_SURVEYED // 2)


class PartyAnswer(Document):
    """What a party answers; ``table_schema`` where its owner has it told.

    ``state`` is where the study stands there. "new": it was not seen before, and waits since this
    question. "full": so many wait already that it was not put before the owner. ``runs`` may still
    begin (``None``: any number), ``until`` then.
    """

    format: Literal["eigenveil-answer-1"] = "eigenveil-answer-1"
    version: Annotated[str, StringConstraints(max_length=64)] = _VERSION
    state: State
    runs: Annotated[int, Field(ge=0)] | None = None
    until: datetime | None = None
    reason: Annotated[str, StringConstraints(max_length=_LONGEST_REASON)] = ""
    table_schema: dict[str, Any] | None = None

    @property
    def agreed(self) -> bool:
        return self.state == "approved"

    @property
    def schema_told(self) -> Schema | None:
        found = self.table_schema
        return None if found is None else parse_schema(found, origin="The schema that was told")


@dataclass(frozen=True)
class PartyReport:
    """What came of asking a party: its answer, or a code that says why there is none."""

    name: str
    answer: PartyAnswer | None = None
    problem: str = ""

    @property
    def agreed(self) -> bool:
        return self.answer is not None and self.answer.agreed


# -- a party's side


def told(party: StudyParty, question: Envelope, *, known: bool) -> Reply:
    """What a lead is answered; ``known`` says whether both have the same list of members."""
    if not known:
        return Reply(OTHER_MEMBERS)
    if party.members.role(question.sender) != "lead":
        raise ProtocolError("bad-request", what="Only a lead may ask before a study")
    try:
        study = _study_of(question)
        found = PartyAnswer(state="not-asked") if study is None else _decided(party, study)
    except EigenveilError as error:
        party.say(str(error))
        return Reply(TROUBLE)
    if party.telling.schema is not None:
        found = found.model_copy(update={"table_schema": party.telling.schema.as_dict()})
    return Reply("", found.model_dump_json().encode())


def _decided(party: StudyParty, study: Study) -> PartyAnswer:
    """What the owner decided; who has not is asked."""
    if party.folder.name not in parties_of(study):
        return PartyAnswer(state="no-part")
    seen = waiting_study(party.folder, study.hash) is not None
    full = False
    try:
        party.propose(study, most=MOST_ASKED)
    except DataError as error:
        if error.code != "too-many-waiting":
            raise
        full = True
    if not party.telling.decisions:
        return PartyAnswer(state="not-told")
    standing = party.standing(study.hash)
    match standing.state:
        case "approved":
            return PartyAnswer(state="approved", runs=standing.left, until=standing.until)
        case "refused":
            reason = standing.reason[:_LONGEST_REASON] if standing.tell_lead else ""
            return PartyAnswer(state="refused", reason=reason)
        case "revoked" | "used" | "expired" as state:
            return PartyAnswer(state=state)
        case _:  # that one of two persons agreed is the site's own matter
            return PartyAnswer(state="full" if full else "waiting" if seen else "new")


def _study_of(question: Envelope) -> Study | None:
    if not question.study:
        return None
    try:
        study = parse_study(json.loads(question.payload[NONCE:]), origin="The study")
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, EigenveilError):
            raise
        raise ProtocolError("bad-request", what="The question has no study") from None
    if study.hash != question.study or study.protocol == "auto":
        raise ProtocolError("bad-request", what="The question is about another study than it has")
    return study


# -- the lead's side


def question_about(study: Study | None) -> bytes:
    """What a lead asks parties, with a nonce: without a study for their schemas alone."""
    nonce = os.urandom(NONCE)
    if study is None:
        return nonce
    if study.protocol == "auto":
        raise DataError("unsettled", study=study.name)
    payload = nonce + study.model_dump_json().encode()
    if len(payload) > MOST_SURVEYED:
        raise DataError("study-too-large", study=study.name, size=len(payload), most=MOST_SURVEYED)
    return payload


def problem_of(members: Membership, name: str) -> str:
    """Why a party is not asked at all; empty where it is."""
    try:
        found = members.role(name)
    except ProtocolError as error:
        return error.code
    return "" if found in ("site", "helper") else NOT_A_MEMBER


def report_of(name: str, answer: Reply) -> PartyReport:
    if answer.code:
        return PartyReport(name, problem=answer.code)
    try:
        found = PartyAnswer.model_validate_json(answer.payload)
        _ = found.schema_told
    except (ValidationError, ValueError, RecursionError):
        return PartyReport(name, problem=UNREADABLE)
    return PartyReport(name, found)
