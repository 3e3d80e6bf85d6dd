"""A lead's signed word that a run begins, and who may sign that it ends.

A party takes from an order which study and which session are meant, who wants it, and how long it
may take; each party checks the lead's signature itself.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, ClassVar

from pydantic import Field, StringConstraints

from eigenveil.errors import DataError, EigenveilError, ProtocolError
from eigenveil.federation.members import Identity
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.signed import Document, Signed
from eigenveil.federation.study.study import Study, parse_study
from eigenveil.network.channel import MOST_STUDY

LONGEST_TIMEOUT = 7 * 86400.0
_SESSION = re.compile(r"[0-9a-f]{24}")
_Session = Annotated[str, StringConstraints(pattern=rf"^{_SESSION.pattern}$")]
_Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class Word(Document):
    """An order as its lead signs it."""

    DOMAIN: ClassVar[str] = "order 1"
    federation: _Hash
    study: dict[str, Any]
    session: _Session
    timeout: Annotated[float, Field(ge=1, le=LONGEST_TIMEOUT)]
    lead: _Name


class End(Document):
    """That a run is to end, as its lead or the aggregator's operator signs it."""

    DOMAIN: ClassVar[str] = "end of a run 1"
    federation: _Hash
    session: _Session
    by: _Name
    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class Order:
    """A run that a lead has ordered; ``line`` is the signed text, ``study`` has its protocol."""

    def __init__(self, word: Word, line: bytes) -> None:
        self.study = parse_study(word.study)
        self.session, self.timeout, self.lead = word.session, word.timeout, word.lead
        self.line = line
        if self.study.protocol == "auto":
            raise _unsettled(self.study)


def is_session(text: str) -> bool:
    """Whether a text can be a run's name: of what is none, no file is looked for."""
    return bool(_SESSION.fullmatch(text))


def new_session() -> str:
    return os.urandom(12).hex()


def sign_order(identity: Identity, study: Study, *, session: str, timeout: float) -> Order:
    if study.protocol == "auto":
        raise _unsettled(study)
    if not 1 <= timeout <= LONGEST_TIMEOUT:
        raise DataError("out-of-range", name="timeout", value=timeout, wanted="from 1 s to a week")
    for name in parties_of(study):  # before anything is sent
        identity.members.key(role="helper" if name == HELPER else "site", name=name)
    word = Word(
        federation=identity.members.federation,
        study=study.model_dump(mode="json"),
        session=session,
        timeout=float(timeout),
        lead=identity.name,
    )
    line = Signed[Word].by(word, identity.signer).line()
    if len(line) > MOST_STUDY:
        raise DataError("study-too-large", study=study.name, size=len(line), most=MOST_STUDY)
    return Order(word, line)


def read_order(line: bytes, identity: Identity) -> Order:
    """The order in a text, if a lead of this federation signed it."""
    try:
        signed = Signed[Word].read(line, limit=MOST_STUDY, what="an order")
        word = signed.said
        if word.federation != identity.members.federation:
            raise ProtocolError("order-refused", why="it is of another federation.")
        signed.check(identity.members.key(role="lead", name=word.lead), word.lead)
        return Order(word, line)
    except EigenveilError as error:
        raise ProtocolError("order-refused", why=error.message) from None


def kept_order(line: bytes) -> Order:
    return Order(Signed[Word].read(line, limit=MOST_STUDY, what="an order").said, line)


def sign_end(identity: Identity, session: str, reason: str = "") -> bytes:
    federation = identity.members.federation
    said = End(federation=federation, session=session, by=identity.name, reason=reason[:500])
    return Signed[End].by(said, identity.signer).line()


def check_end(line: bytes, identity: Identity, *, session: str, lead: str) -> End:
    """The word that this run is to end, if its lead or this aggregator's operator signed it."""
    signed = Signed[End].read(line, limit=1 << 12, what="an order to end a study")
    said = signed.said
    if said.by not in (lead, AGGREGATOR) or (said.federation, said.session) != (
        identity.members.federation,
        session,
    ):
        raise ProtocolError("not-allowed")
    role = "aggregator" if said.by == AGGREGATOR else "lead"
    signed.check(identity.members.key(role=role, name=said.by), said.by)
    return said


def parties_of(study: Study) -> tuple[str, ...]:
    """Who must take part beside the aggregator: the active sites, and a noise helper."""
    terms = settle(study)
    return (*terms.names, *((HELPER,) if terms.masks.needs_helper else ()))


def fewest_parties(study: Study) -> int:
    """Parties without which a run cannot end well."""
    lost = study.dropouts if len(study.active) > 1 else 0
    return len(parties_of(study)) - lost


def _unsettled(study: Study) -> DataError:
    return DataError("unsettled", study=study.name)
