"""Questions and answers that are signed: the aggregator's side of the channel.

Whatever carries bytes (:class:`Carrier`) is not believed: a question states for whom it is and in
which run, and an answer counts only if the queried party signed it, for this question.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from eigenveil.errors import EigenveilError, ProtocolError
from eigenveil.federation.protocol.envelope import (
    Correspondent,
    Envelope,
    clocks_differ,
    open_sealed,
    seal,
    unverified,
)
from eigenveil.federation.protocol.messages import AGGREGATOR, HELPER
from eigenveil.federation.x509_identity import Current, Identity, key_digest
from eigenveil.files import replacing
from eigenveil.network.certificates import check_certificate, read_certificate
from eigenveil.network.channel import (
    ABORT,
    BAD_MEMBERS,
    HELLO,
    OLDER_MEMBERS,
    ORDER,
    UNSIGNED,
    Answer,
    Stop,
)
from eigenveil.network.kit import Kit
from eigenveil.network.signing import token_identity, token_of
from eigenveil.network.together import finish_writing
from eigenveil.network.x509_members import LARGEST, KnownMembers

_Mark = tuple[tuple[int, int, int] | None, ...]
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
    return replace(found, members=known_members(kit))


def known_members(kit: Kit) -> KnownMembers:
    """The newest list that a kit's party has seen."""
    return KnownMembers(kit.members, read_certificate(kit.root_certificate))


class KitIdentity:
    """The identity of a kit as its files are now.

    A renewed certificate of the same key counts from the next message on. Another key counts once
    nothing is settled with the one before: who takes part in a run learnt its key at the run's
    beginning. Files that cannot be used (a renewal that was cut off) change nothing.

    Parameters
    ----------
    kit : Kit
    settled : callable
        Whether a run goes on in which the key that signs is known.

    Raises
    ------
    OutputError, DataError
        When the kit cannot be used at the start.
    """

    def __init__(self, kit: Kit, settled: Callable[[], bool]) -> None:
        self._kit, self._settled = kit, settled
        self._guard = threading.Lock()
        self._mark: _Mark = self._look()
        self._seen: _Mark | None = None
        self._identity = identity_of(kit)

    def now(self) -> Identity:
        """The one that signs and checks now."""
        with self._guard:
            mark = self._look()
            if mark not in (self._mark, self._seen):
                self._renew(mark)
            return self._identity

    def _renew(self, mark: _Mark) -> None:
        try:
            finish_writing(self._kit.folder)
            found = identity_of(self._kit)
            _check_pair(found, self._kit)
        except EigenveilError as error:
            _log.warning("the kit's key is not taken over: %s", error.message)
            self._seen = mark
            return
        if self._settled() and key_digest(found.key.public_key()) != key_digest(
            self._identity.key.public_key()
        ):
            return
        self._identity = replace(found, members=self._identity.members)
        self._mark = mark
        _log.info("the kit's certificate was renewed")

    def _look(self) -> _Mark:
        kit = self._kit
        return tuple(
            map(_stamp, (kit.key, kit.certificate, kit.signing_file, kit.signing_certificate))
        )


def _check_pair(found: Identity, kit: Kit) -> None:
    """Raise DataError where a key and its certificate are not a pair that is valid now."""
    check_certificate(found.certificate, found.root, origin=str(kit.folder), key=found.key)


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def open_learning(
    data: bytes | bytearray | memoryview,
    identity: Identity,
    *,
    sender: Correspondent,
    recipient: str,
    limit: int,
) -> Envelope:
    """As :func:`open_sealed`, by the newest list of members, also by one that the message brings.

    A party with a new key brings the list that has it. The list is signed by itself, so it may be
    taken over before it is known who brought it.

    Raises
    ------
    ProtocolError
        As :func:`open_sealed`.
    """
    try:
        return open_sealed(data, identity, sender=sender, recipient=recipient, limit=limit)
    except ProtocolError:
        step, brought = unverified(data)
        if step != HELLO or not learned(brought, identity):
            raise
    return open_sealed(data, identity, sender=sender, recipient=recipient, limit=limit)


def learned(data: bytes, identity: Identity) -> bool:
    """Take over a list of members that somebody brought; whether it is a newer one."""
    if identity.members is None or not 0 < len(data) <= LARGEST:
        return False
    try:
        return members_of(identity).adopt_newer(data)
    except EigenveilError as error:
        _log.warning("a list of members is not taken over: %s", error.message)
        return False


def settle_keys(identity: Identity) -> None:
    """A run begins, in a process of its own: its parties' keys are good until it is over."""
    if identity.members is not None:
        members_of(identity).settle()


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
    identity : Current
        The aggregator's.
    study, session : str
        The study's hash and the run's name.
    limit : int
        Most bytes of an answer.
    """

    def __init__(
        self, carrier: Carrier, identity: Current, *, study: str, session: str, limit: int
    ) -> None:
        self._carrier, self._identity, self._limit = carrier, identity, limit
        self._study, self._session = study, session

    def query(self, name: str, step: str, payload: bytes, timeout: float, stop: Stop) -> Answer:
        """The party's answer to a step of this run, as the party signed it."""
        request = Envelope(self._study, self._session, step, AGGREGATOR, name, payload)
        identity = self._identity.now()
        data, mark = seal(request, identity)
        came = self._carrier.carry(name, data, timeout, stop)
        if isinstance(came, str):
            return Answer(came)
        try:
            found = open_learning(
                came,
                identity,
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
        if found.code == OLDER_MEMBERS and not learned(found.payload, identity):
            return Answer(BAD_MEMBERS)
        return Answer(found.code, found.payload, found.process)


# -- A lead's order, signed as every message is: everybody who has its job checks it.


def signed_order(
    identity: Identity, lead: str, *, study: str, session: str, timeout: float
) -> bytes:
    """A lead's word that a run is to begin."""
    word = Envelope(study, session, ORDER, lead_called(lead).called, AGGREGATOR, _terms(timeout))
    return seal(word, identity)[0]


def check_order(
    data: bytes, identity: Identity, lead: str, *, study: str, session: str, timeout: float
) -> None:
    """Raise where it is not this lead's order of this run.

    Raises
    ------
    ProtocolError
    """
    limit = len(_terms(timeout))
    found = open_sealed(data, identity, sender=lead_called(lead), recipient=AGGREGATOR, limit=limit)
    stated = (found.study, found.session, found.step, found.payload)
    if stated != (study, session, ORDER, _terms(timeout)):
        raise ProtocolError(
            "Its lead signed another order.",
            hint="It is refused; the lead submits the study again.",
            code="other-session",
        )


def _terms(timeout: float) -> bytes:
    return repr(timeout).encode()


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
