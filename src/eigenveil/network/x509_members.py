"""Who is in a federation: a numbered list that the registrar signs, and every party checks.

A certificate shows who somebody is until it ends. The list shows who is in now: it names the
parties, the key that each one signs with, and the certificates and keys that were revoked. Each
list holds the digests of all before it, so a party takes only one that follows from the list it
has; an older one, or one of another history, is refused. Since it is signed by itself, it may come
from anybody: other parties' kits stay as they are.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from pydantic import Field, StringConstraints, ValidationError

from eigenveil.errors import DataError, EigenveilError, OutputError, ProtocolError
from eigenveil.federation.ledger.documents import Document, Hex, Utc
from eigenveil.federation.ledger.entries import canonical
from eigenveil.federation.x509_identity import (
    PADDING,
    CertifiedRole,
    Membership,
    certificate_digest,
    key_digest,
)
from eigenveil.files import replacing
from eigenveil.network.together import turn

FILE = "members.json"
LARGEST = 1 << 18
"""Bytes of a list at the most: about a thousand changes of a hundred parties."""
_DOMAIN = b"eigenveil members 1\n"
_log = logging.getLogger(__name__)

_Serial = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,40}$")]
_Name = Annotated[str, StringConstraints(min_length=1, max_length=255)]


class Member(Document):
    """A party by its role and the name in its certificate."""

    role: CertifiedRole
    name: _Name


class SigningKey(Member):
    """The one key that a party's messages are signed with: SHA-256 of its public part, in hex."""

    key: Hex


class Revoked(Member):
    """A certificate that is no longer good, nor is its key.

    Attributes
    ----------
    serial : str
        Its serial number in hex.
    key : str
        SHA-256 of its public key, in hex: no other certificate is made for it.
    """

    serial: _Serial
    key: Hex


class MemberList(Document):
    """Who is in.

    Attributes
    ----------
    federation : str
        SHA-256 of the root certificate, in hex.
    number : int
        From 1, one more with each change.
    parties : tuple of Member
        Sites, helper and aggregator; leads who were certified so far.
    removed : tuple of Member
        Who was in and is not any more, whatever certificate they show.
    revoked : tuple of Revoked
    keys : tuple of SigningKey
        At most one of a party. A party without one was not certified yet, or its key was revoked:
        until a newer list names one, its certificate alone counts.
    history : tuple of str
        SHA-256 of all lists before, in order.
    """

    format: Literal["eigenveil-members-2"] = "eigenveil-members-2"
    project: _Name
    federation: Hex
    number: Annotated[int, Field(ge=1, strict=True)]
    time: Utc
    parties: tuple[Member, ...]
    removed: tuple[Member, ...] = ()
    revoked: tuple[Revoked, ...] = ()
    keys: tuple[SigningKey, ...] = ()
    history: tuple[Hex, ...] = ()

    def key_of(self, role: str, name: str) -> str:
        """What a party signs with; empty where nothing is pinned."""
        found = (each.key for each in self.keys if (each.role, each.name) == (role, name))
        return next(found, "")

    @property
    def digest(self) -> str:
        """SHA-256 of its text, in hex."""
        return hashlib.sha256(self.text()).hexdigest()

    def text(self) -> bytes:
        """What is signed."""
        return _DOMAIN + canonical(self.model_dump(mode="json")).encode()

    def next(
        self,
        *,
        parties: tuple[Member, ...] | None = None,
        removed: tuple[Member, ...] | None = None,
        revoked: tuple[Revoked, ...] | None = None,
        keys: tuple[SigningKey, ...] | None = None,
    ) -> MemberList:
        """The list after this one."""
        return MemberList(
            project=self.project,
            federation=self.federation,
            number=self.number + 1,
            time=datetime.now(UTC),
            parties=self.parties if parties is None else parties,
            removed=self.removed if removed is None else removed,
            revoked=self.revoked if revoked is None else revoked,
            keys=self.keys if keys is None else keys,
            history=(*self.history, self.digest),
        )


class SignedMembers(Document):
    """A list and the registrar's signature, in hex."""

    members: MemberList
    signature: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$", max_length=2048)]

    def line(self) -> bytes:
        """As it is kept in a file and sent."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def sign_members(members: MemberList, key: rsa.RSAPrivateKey) -> SignedMembers:
    """As the registrar, with the root key."""
    signature = key.sign(members.text(), PADDING, SHA256()).hex()
    return SignedMembers(members=members, signature=signature)


def federation_of(root: x509.Certificate) -> str:
    """What lists call a federation: SHA-256 of its root certificate, in hex."""
    return certificate_digest(root)


def read_members(data: bytes, root: x509.Certificate) -> SignedMembers:
    """A list, if the holder of the root key signed it.

    Raises
    ------
    ProtocolError
        ``bad-members``.
    """
    try:
        if len(data) > LARGEST:
            raise ValueError
        found = SignedMembers.model_validate_json(data)
    except (ValidationError, ValueError):
        raise _bad("it cannot be read") from None
    if found.members.federation != federation_of(root):
        raise _bad("it is another federation's")
    if len(found.members.history) != found.members.number - 1:
        raise _bad("its history is not of its number")
    public = root.public_key()
    try:
        if not isinstance(public, rsa.RSAPublicKey):
            raise InvalidSignature
        public.verify(bytes.fromhex(found.signature), found.members.text(), PADDING, SHA256())
    except InvalidSignature:
        raise _bad("the registrar did not sign it") from None
    return found


@dataclass
class KnownMembers(Membership):
    """The newest list that a party has seen, in its kit; read again whenever the file changes.

    Parameters
    ----------
    file : Path
        Absent in a kit that was given no list: then certificates alone count.
    root : x509.Certificate
        Whose key signs lists.
    """

    file: Path
    root: x509.Certificate
    _mark: tuple[int, int, int] | None = None
    _known: SignedMembers | None = None
    _settled: MemberList | None = None
    _guard: threading.RLock = field(default_factory=threading.RLock)

    def signed(self) -> SignedMembers | None:
        """The list as it was signed, or ``None``.

        Raises
        ------
        ProtocolError
            ``bad-members`` when the file is there and is none.
        OutputError
            When it cannot be read.
        """
        with self._guard:
            try:
                found = self.file.stat()
            except FileNotFoundError:
                return None
            except OSError as problem:
                raise _unreadable(self.file, problem) from None
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark != self._mark:
                try:
                    data = self.file.read_bytes()
                except OSError as problem:
                    raise _unreadable(self.file, problem) from None
                self._known, self._mark = read_members(data, self.root), mark
            return self._known

    def current(self) -> MemberList | None:
        """Who is in, or ``None`` where no list was given."""
        found = self.signed()
        return None if found is None else found.members

    def is_newer(self, data: bytes) -> bool:
        """Whether a list that somebody brought is to take the place of the one before.

        Raises
        ------
        ProtocolError
            ``bad-members``; ``older-members`` when a newer one was seen; ``other-members`` when it
            does not follow from the one that was seen.
        """
        new, before = read_members(data, self.root).members, self.current()
        if before is None:
            return True
        if new.number < before.number:
            raise ProtocolError(
                f"The list of members has number {new.number}, and number "
                f"{before.number} was seen already.",
                hint="Install the newest list at the aggregator: 'eigenveil flare members'.",
                code="older-members",
            )
        known = new.digest if new.number == before.number else new.history[before.number - 1]
        if known != before.digest:
            raise ProtocolError(
                f"The list of members, number {new.number}, does not follow from number "
                f"{before.number} that was seen.",
                hint="The registrar signed two histories: ask there which one holds.",
                code="other-members",
            )
        return new.number > before.number

    def adopt(self, data: bytes) -> bool:
        """Take over a list that somebody brought; whether it is newer than the one before.

        Raises
        ------
        ProtocolError
            As :meth:`is_newer`.
        """
        with self._guard, self._turn():
            if not self.is_newer(data):
                return False
            with replacing(self.file) as scratch:
                scratch.write_bytes(data)
            _log.info("a newer list of members was taken over")
            return True

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Other processes of the same kit bring lists as well."""
        try:
            with turn(self.file.parent):
                yield
        except OSError as problem:
            raise OutputError(
                f"{self.file} cannot be written: {problem.strerror or problem}.",
                hint="Check who may write the kit.",
                code="cannot-write",
            ) from None

    def adopt_newer(self, data: bytes) -> bool:
        """The same, where a list that came late is no reproach: one that was seen stays.

        Raises
        ------
        ProtocolError
            ``bad-members`` or ``other-members``.
        """
        try:
            return self.adopt(data)
        except ProtocolError as error:
            if error.code != "older-members":
                raise
            return False

    def check(self, *, role: str, name: str, certificate: x509.Certificate) -> None:
        """Raise where a party is not in, or signs with another key than the list has for it.

        Raises
        ------
        ProtocolError
            ``revoked-party``, ``not-a-member`` or ``other-signing-key``.
        """
        known = self.current()
        if known is None:
            return
        if _is_revoked(known, certificate.serial_number):
            raise ProtocolError(
                f"{name}: its certificate was revoked (list of members, number {known.number}).",
                hint="It is refused. The party may ask the registrar for another certificate.",
                code="revoked-party",
            )
        out = any((each.role, each.name) == (role, name) for each in known.removed)
        listed = any((each.role, each.name) == (role, name) for each in known.parties)
        # a lead who was certified after this list comes before the list that names them
        if out or (role != "lead" and not listed):
            raise ProtocolError(
                f"{name} is not in the federation's list of members (number {known.number}).",
                hint="It is refused. The registrar adds parties: 'eigenveil flare add-party'.",
                code="not-a-member",
            )
        shown = key_digest(certificate.public_key())
        if known.key_of(role, name) not in ("", shown) and not self._is_settled(
            known, role, name, shown
        ):
            raise ProtocolError(
                f"{name} signed with another key than the list of members (number {known.number}) "
                "has for it.",
                hint="It is refused. If the party has a new key, bring its newest list: 'eigenveil "
                "flare members'. If not, somebody else has another key of this party: revoke it.",
                code="other-signing-key",
            )

    def settle(self) -> None:
        """A run begins: the keys of its parties are good until it is over, unless revoked."""
        self._settled = self.current()

    def release(self) -> None:
        """The run is over."""
        self._settled = None

    def _is_settled(self, known: MemberList, role: str, name: str, key: str) -> bool:
        revoked = any(each.key == key for each in known.revoked)
        return self._settled is not None and not revoked and self._settled.key_of(role, name) == key

    def connects(self, *, name: str, serial: int) -> bool:
        """Whether a connection of this certificate is kept: one with FLARE's key, not the signing.

        A list that cannot be read lets nobody connect.
        """
        try:
            known = self.current()
        except EigenveilError as error:
            _log.warning("%s", error.message)
            return False
        if known is None:
            return True
        gone = any(each.name == name for each in known.removed)
        back = any(each.name == name for each in known.parties)
        return not _is_revoked(known, serial) and (back or not gone)


def _is_revoked(known: MemberList, serial: int) -> bool:
    shown = f"{serial:x}"
    return any(each.serial == shown for each in known.revoked)


def write_members(file: Path, signed: SignedMembers) -> None:
    """Write a list, for everybody to read."""
    with replacing(file) as scratch:
        scratch.write_bytes(signed.line())
        scratch.chmod(0o644)  # made to be sent


def read_file(path: Path) -> bytes:
    """The bytes of a list's file.

    Raises
    ------
    OutputError
        When it cannot be read.
    DataError
        When it is too large to be one.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as problem:
        raise _unreadable(path, problem) from None
    if len(data) > LARGEST:
        raise DataError(
            f"{path} is too large to be a list of members.",
            hint="Give the file that the registrar sent.",
            code="bad-file",
        )
    return data


def _bad(why: str) -> ProtocolError:
    return ProtocolError(
        f"The list of members is refused: {why}.",
        hint="Give the list that the registrar of this federation signed.",
        code="bad-members",
    )


def _unreadable(file: Path, problem: OSError) -> OutputError:
    return OutputError(
        f"{file} cannot be read: {problem.strerror or problem}.",
        hint="Check who may read the kit.",
        code="cannot-read",
    )
