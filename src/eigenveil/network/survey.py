"""A lead's question to parties before a study runs: what was decided about it, and their schema.

Question and answer are signed, as all messages are, and travel through the running federation. An
answer has public facts only: what the owner declared, and what the owner decided about exactly this
study. Nothing is computed from rows, and nothing is charged. A question also puts the study before
the owner, where a start would do so.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, StringConstraints, ValidationError

from eigenveil.errors import DataError, EigenveilError, ProtocolError
from eigenveil.federation.ledger.decisions import Standing
from eigenveil.federation.ledger.documents import Document
from eigenveil.federation.protocol.envelope import Envelope, certified_name, open_sealed, seal
from eigenveil.federation.study.study import Study, parse_study
from eigenveil.federation.x509_identity import Current, Identity
from eigenveil.network.approvals import MOST_ASKED, waiting_study
from eigenveil.network.channel import HELLO, MOST_SURVEYED, SURVEY, TROUBLE, UNSIGNED
from eigenveil.network.flare.job import parties_of
from eigenveil.network.kit import Kit
from eigenveil.network.signed import lead_called, list_of, members_of, open_learning, party_called
from eigenveil.tables.schema import Schema, parse_schema

LEAD = "lead"
State = Literal[
    "new", "waiting", "full", "approved", "used", "expired", "refused", "revoked", "no-part",
    "not-told", "not-asked",
]  # fmt: skip
# Why there is no answer, beside the codes of the channel.
NOT_CONNECTED, NOT_A_MEMBER, REVOKED = "not-connected", "not-a-member", "revoked-party"
_VERSION = version("eigenveil")
_LONGEST_REASON = 1000
_BUSY = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Telling:
    """What the owner of a site lets leads read before a study runs.

    Attributes
    ----------
    decisions : bool
        What was decided about the study that a lead asks about.
    schema : Schema or None
        The owner's description of the table; ``None`` where it is not told.
    """

    decisions: bool = True
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if self.schema is None:
            return
        self.schema.check_usable("The schema that leads are told")
        size = len(json.dumps(self.schema.as_dict()))
        if size > MOST_SURVEYED // 2:
            raise DataError(
                f"The schema that leads are told takes {size:,} bytes, more than the "
                f"{MOST_SURVEYED // 2:,} of an answer.",
                hint="Tell one with fewer columns, or send the file in another way.",
                code="schema-too-large",
            )


class PartyAnswer(Document):
    """What a party answers.

    Attributes
    ----------
    version : str
        Of its software.
    state : State
        Where the study stands there. "new": it was not seen before, and waits since this question.
        "full": so many wait already that it was not put before the owner.
    runs : int or None
        Of an approved study: runs that may still begin; ``None``: any number.
    until : datetime or None
        Until when they may begin.
    reason : str
        Of a refused study, where the owner has it told.
    table_schema : dict or None
        As :meth:`~eigenveil.tables.schema.Schema.as_dict` has it, where the owner has it told.
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
        """Whether a run may begin there."""
        return self.state == "approved"

    @property
    def schema_told(self) -> Schema | None:
        """The schema.

        Raises
        ------
        DataError
            ``bad-schema``.
        """
        found = self.table_schema
        return None if found is None else parse_schema(found, origin="The schema that was told")


# -- a party's side


class Asked(Protocol):
    """What is needed of a party."""

    @property
    def kit(self) -> Kit:
        """Its kit."""
        ...

    @property
    def say(self) -> Callable[[str], None]:
        """Tells the owner."""
        ...

    def standing(self, study: str) -> Standing:
        """Where a study stands, by its hash."""
        ...

    def propose(self, study: Study, *, most: int) -> str:
        """Put a study before the owner if need be."""
        ...


class Respondent:
    """Answers leads, in the party's place; one question at a time.

    Parameters
    ----------
    party : Asked
    keys : Current
        The party's.
    telling : Telling
    """

    def __init__(self, party: Asked, keys: Current, telling: Telling) -> None:
        self._party, self._keys, self._telling = party, keys, telling
        self._one = threading.Lock()

    def answer(self, data: bytes | bytearray | memoryview) -> bytes:
        """The signed answer; nothing where no lead signed the question for this party."""
        name, identity = self._party.kit.name, self._keys.now()
        try:
            lead = lead_called(certified_name(data, LEAD))
            question = open_learning(
                data, identity, sender=lead, recipient=name, limit=MOST_SURVEYED
            )
            if question.step != SURVEY or question.request_digest:
                raise ProtocolError("It is no question before a study.", code="bad-request")
            study = _study_of(question)
        except EigenveilError as error:
            _log.warning("refused: %s", error.message)
            return b""
        if not self._one.acquire(timeout=_BUSY):
            return b""
        try:
            told, code = self._told(study), ""
        except EigenveilError as error:
            self._party.say(str(error))
            told, code = b"", TROUBLE
        finally:
            self._one.release()
        reply = replace(
            question,
            sender=name,
            recipient=LEAD,
            payload=told,
            request_digest=question.mark,
            code=code,
        )
        return seal(reply, identity)[0]

    def _told(self, study: Study | None) -> bytes:
        found = PartyAnswer(state="not-asked") if study is None else self._decided(study)
        if self._telling.schema is not None:
            found = found.model_copy(update={"table_schema": self._telling.schema.as_dict()})
        return found.model_dump_json().encode()

    def _decided(self, study: Study) -> PartyAnswer:
        """What the owner decided; who has not is asked."""
        party = self._party
        if party.kit.name not in parties_of(study):
            return PartyAnswer(state="no-part")
        seen = waiting_study(party.kit, study.hash) is not None
        full = False
        try:
            party.propose(study, most=MOST_ASKED)
        except DataError as error:
            if error.code != "too-many-waiting":
                raise
            full = True
        if not self._telling.decisions:
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
    """The study that is asked about, if any.

    Raises
    ------
    EigenveilError
        When it is another one than the envelope states, or none that could run.
    """
    if not question.study:
        return None
    try:
        study = parse_study(json.loads(question.payload), origin="The study")
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, EigenveilError):
            raise
        raise ProtocolError("The question has no study.", code="bad-request") from None
    if study.hash != question.study or study.protocol == "auto":
        raise ProtocolError("The question is about another study than it has.", code="bad-request")
    return study


# -- the lead's side


@dataclass(frozen=True)
class Report:
    """What came of asking a party.

    Attributes
    ----------
    name : str
    answer : PartyAnswer or None
        As the party signed it, for this question.
    problem : str
        A code: why there is no answer.
    """

    name: str
    answer: PartyAnswer | None = None
    problem: str = ""

    @property
    def agreed(self) -> bool:
        """Whether a run may begin there."""
        return self.answer is not None and self.answer.agreed


Carry = Callable[[str, bytes], bytes | str]
"""Brings a question to a party: what came back, or a code that gives the reason nothing did."""


def ask_parties(
    names: Sequence[str], study: Study | None, identity: Identity, carry: Carry
) -> list[Report]:
    """Ask parties what was decided about a study, and for their schemas; a report for each.

    Parameters
    ----------
    names : sequence of str
    study : Study or None
        With its protocol settled; ``None`` asks for the schemas alone.
    identity : Identity
        The lead's.

    Raises
    ------
    DataError
        ``study-too-large``; ``unsettled``.
    """
    payload = b"" if study is None else _payload_of(study)
    listed = members_of(identity).current() if identity.members is not None else None
    known = None if listed is None else {m.name for m in listed.parties if m.role != LEAD}
    if known is not None and listed is not None:
        known -= {m.name for m in listed.removed if m.role != LEAD}
    return [
        Report(name, problem=NOT_A_MEMBER)
        if known is not None and party_called(name).name not in known
        else _ask(name, "" if study is None else study.hash, payload, identity, carry)
        for name in names
    ]


def _payload_of(study: Study) -> bytes:
    if study.protocol == "auto":
        raise DataError(
            f"Study {study.name!r} does not fix its protocol.",
            hint="Fix it first: sites approve exactly the study that is run.",
            code="unsettled",
        )
    payload = study.model_dump_json().encode()
    if len(payload) > MOST_SURVEYED:
        raise DataError(
            f"Study {study.name!r} takes {len(payload):,} bytes, more than the {MOST_SURVEYED:,} "
            "of a question.",
            hint="Send its file to the owners, who can approve it: 'eigenveil site approve'.",
            code="study-too-large",
        )
    return payload


def _ask(name: str, study: str, payload: bytes, identity: Identity, carry: Carry) -> Report:
    question = Envelope(study, os.urandom(12).hex(), SURVEY, LEAD, name, payload)
    data, mark = seal(question, identity)
    came = carry(name, data)
    if came == b"" and (listed := list_of(identity)):
        # a party that has not seen the list with the lead's new key is brought it, and asked again
        carry(name, seal(replace(question, step=HELLO, payload=listed), identity)[0])
        came = carry(name, data)
    if isinstance(came, str):
        return Report(name, problem=came)
    try:
        found = open_sealed(
            came, identity, sender=party_called(name), recipient=LEAD, limit=MOST_SURVEYED
        )
    except ProtocolError as error:
        _log.warning("refused: %s", error.message)
        known = error.code if error.code in (REVOKED, NOT_A_MEMBER) else UNSIGNED
        return Report(name, problem=known)
    stated = (found.study, found.session, found.step, found.request_digest)
    if stated != (study, question.session, SURVEY, mark):
        _log.warning("refused: %s answered another question", name)
        return Report(name, problem=UNSIGNED)
    if found.code:
        return Report(name, problem=TROUBLE)
    try:
        answer = PartyAnswer.model_validate_json(found.payload)
        _ = answer.schema_told
    except (ValidationError, ValueError, RecursionError):
        return Report(name, problem=UNSIGNED)
    return Report(name, answer)
