"""Questions and answers that are signed: the aggregator's side of the channel.

Whatever carries bytes (:class:`Carrier`) is not believed: a question states for whom it is and in
which run, and an answer counts only if the queried party signed it, for this question.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.identity import Identity
from eigenveil.federation.protocol.envelope import (
    Correspondent,
    Envelope,
    clocks_differ,
    open_sealed,
    seal,
)
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER
from eigenveil.files import replacing
from eigenveil.network.channel import ABORT, UNSIGNED, Answer, Stop
from eigenveil.network.kit import Kit
from eigenveil.network.members import KnownMembers
from eigenveil.network.signing import token_identity, token_of

_log = logging.getLogger(__name__)


def list_of(identity: Identity) -> bytes:
    """The list of members that an aggregator brings with its first question; empty without one."""
    try:
        found = None if identity.members is None else members_of(identity).signed()
    except EigenveilError as error:
        _log.warning("no list of members is sent: %s", error.message)
        return b""
    return b"" if found is None else found.line()


class Carrier(Protocol):
    """Carries bytes to a party, and bytes back."""

    def carry(self, name: str, data: bytes, timeout: float, stop: Stop) -> bytes | str:
        """What came back, or a code that gives the reason nothing did; never raises."""
        ...


def identity_of(kit: Kit) -> Identity:
    """The signing key, in the kit or in a token, its certificate and root, and who is in."""
    token = token_of(kit)
    if token is None:
        root = kit.root_certificate
        found = Identity.from_files(key=kit.key, certificate=kit.certificate, root=root)
    else:
        found = token_identity(kit, token)
    return replace(found, members=KnownMembers(kit.members, found.root))


def members_of(identity: Identity) -> KnownMembers:
    """The list of members that a kit's identity is checked against."""
    assert isinstance(identity.members, KnownMembers)
    return identity.members


def party_called(name: str) -> Correspondent:
    """A site or the noise helper: called as in its certificate."""
    return Correspondent(name, "helper" if name == HELPER else "site", name)


def aggregator_at(host: str) -> Correspondent:
    """The aggregator, whose certificate is made out to its host."""
    return Correspondent(AGGREGATOR, "aggregator", host)


def lead_called(name: str) -> Correspondent:
    """A lead, as its certificate calls it."""
    return Correspondent("lead", "lead", name)


class SignedWire:
    """Asks parties in one run of one study.

    Parameters
    ----------
    carrier : Carrier
    identity : Identity
        The aggregator's.
    study, session : str
        The study's hash and the run's name.
    limit : int
        Most bytes of an answer.
    """

    def __init__(
        self, carrier: Carrier, identity: Identity, *, study: str, session: str, limit: int
    ) -> None:
        self._carrier, self._identity, self._limit = carrier, identity, limit
        self._study, self._session = study, session

    def query(self, name: str, step: str, payload: bytes, timeout: float, stop: Stop) -> Answer:
        """The party's answer to a step of this run, as the party signed it."""
        request = Envelope(self._study, self._session, step, AGGREGATOR, name, payload)
        data, mark = seal(request, self._identity)
        came = self._carrier.carry(name, data, timeout, stop)
        if isinstance(came, str):
            return Answer(came)
        try:
            found = open_sealed(
                came,
                self._identity,
                sender=party_called(name),
                recipient=AGGREGATOR,
                limit=self._limit,
            )
        except ProtocolError as error:
            _log.warning("refused in step %s: %s", step, error.message)
            return Answer(UNSIGNED)
        if differ := clocks_differ(found):
            _log.warning("%s", differ)
        stated = (found.study, found.session, found.step, found.request_digest)
        if stated != (self._study, self._session, step, mark):
            _log.warning("refused in step %s: %s answered another question", step, name)
            return Answer(UNSIGNED)
        return Answer(found.code, found.payload, found.process)


# -- A lead's word that a study is to end, signed as every message is.
#
# FLARE's own ways to end a job (a command, a report, a signal) are nobody's signature: none of
# them ends a study. The lead's word goes into a file beside the study's status; the process that
# conducts the study reads it there and believes nothing but the signature, of the lead that
# signed the job, for this study and run.


_FILE = "abort"


def signed_abort(identity: Identity, lead: str, *, study: str, session: str) -> bytes:
    """A lead's word that a run is to end."""
    word = Envelope(study, session, ABORT, lead_called(lead).called, AGGREGATOR)
    return seal(word, identity)[0]


def check_abort(data: bytes, identity: Identity, lead: str, *, study: str, session: str) -> None:
    """Raise where it is not this lead's word about this run.

    Parameters
    ----------
    identity : Identity
        The aggregator's.

    Raises
    ------
    ProtocolError
    """
    found = open_sealed(data, identity, sender=lead_called(lead), recipient=AGGREGATOR, limit=0)
    if (found.study, found.session, found.step) != (study, session, ABORT):
        raise ProtocolError(
            "It is about another run, or states something else.",
            hint="It is refused; the study goes on.",
            code="other-session",
        )


@dataclass
class Word:
    """What a study's lead may have signed about its end.

    Attributes
    ----------
    folder : Path
        Of the study's status.
    identity : Identity
        The aggregator's.
    lead : str
        Who signed the job.
    study, session : str
    """

    folder: Path
    identity: Identity
    lead: str
    study: str
    session: str
    _seen: bytes | None = None
    _holds: bool = False

    def keep(self, data: bytes) -> None:
        """Put the lead's word where it is looked for.

        Raises
        ------
        ProtocolError
            When it is none.
        """
        self._check(data)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(self.folder / _FILE) as scratch:
            scratch.write_bytes(data)

    def is_signed(self) -> bool:
        """Whether the lead has signed that the study is to end; each word is looked at once."""
        try:
            data = (self.folder / _FILE).read_bytes()
        except OSError:
            return False
        if data != self._seen:
            self._seen = data
            try:
                self._check(data)
                self._holds = True
            except ProtocolError as error:
                _log.warning("an end that nobody signed: %s", error.message)
                self._holds = False
        return self._holds

    def _check(self, data: bytes) -> None:
        check_abort(data, self.identity, self.lead, study=self.study, session=self.session)
