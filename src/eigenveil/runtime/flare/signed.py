"""Questions and answers that are signed: the aggregator's side of the channel.

Whatever carries bytes (:class:`Carrier`) is not believed: a question says for whom it is and in
which run, and an answer counts only if the party that was asked signed it, for this question.
"""

from __future__ import annotations

import logging
from typing import Protocol

from eigenveil.errors import ProtocolError
from eigenveil.federation.envelope import Correspondent, Envelope, open_sealed, seal
from eigenveil.federation.identity import Identity
from eigenveil.federation.messages import AGGREGATOR, HELPER
from eigenveil.runtime.flare.channel import UNSIGNED, Answer, Stop
from eigenveil.runtime.flare.kit import Kit

_log = logging.getLogger(__name__)


class Carrier(Protocol):
    """Carries bytes to a party, and bytes back."""

    def carry(self, name: str, data: bytes, timeout: float, stop: Stop) -> bytes | str:
        """What came back, or a code that says why nothing did; never raises."""
        ...


def identity_of(kit: Kit) -> Identity:
    """The key, the certificate and the root of a kit."""
    return Identity.from_files(key=kit.key, certificate=kit.certificate, root=kit.root_certificate)


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

    def ask(self, name: str, step: str, payload: bytes, timeout: float, stop: Stop) -> Answer:
        """The party's answer to a step of this run, as the party signed it."""
        asked = Envelope(self._study, self._session, step, AGGREGATOR, name, payload)
        data, mark = seal(asked, self._identity)
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
        said = (found.study, found.session, found.step, found.about)
        if said != (self._study, self._session, step, mark):
            _log.warning("refused in step %s: %s answered another question", step, name)
            return Answer(UNSIGNED)
        return Answer(found.code, found.payload, found.process)
