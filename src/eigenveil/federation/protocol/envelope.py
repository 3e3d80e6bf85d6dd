"""What a network carries between parties: messages in envelopes that their senders signed.

A network only carries; nothing that it reports about who sent what is believed. An envelope states
whose it is, for whom, about which study, session and step, and, of a reply, which question it
answers. The signature of its sender's certificate covers all of that and the SHA-256 of what is
inside (:class:`eigenveil.federation.x509_identity.Identity`
knows whose certificate is good for what).
Whoever receives one opens it first: before anything is computed, charged, ended or deleted.

``EVE1``, the lengths of header and signature (4 and 2 bytes, little-endian), the header as JSON,
the signature of ``_DOMAIN`` and the header, and then the payload, whose digest is in the header.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass
from typing import Annotated

from cryptography import x509
from cryptography.x509.oid import NameOID
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from eigenveil.errors import ProtocolError
from eigenveil.federation.x509_identity import UNREADABLE, CertifiedRole, Identity

VERSION = 1
MAGIC = b"EVE1"
# Beside the payload: a certificate, a signature and names.
MOST_BESIDE = 1 << 15
# Seconds by which clocks may differ, and a message take: beyond that the owner is told.
MOST_APART = 120.0
_DOMAIN = b"eigenveil envelope 1\n"
_MOST_SIGNATURE = 1 << 10
_START = len(MAGIC) + 6

_Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})*$", max_length=64)]
_Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]*$", max_length=64)]
_Text = Annotated[str, StringConstraints(max_length=128)]


@dataclass(frozen=True)
class Correspondent:
    """A party as the others know it.

    Attributes
    ----------
    called : str
        In messages: a site's name, or its role.
    role : CertifiedRole
        Of its certificate.
    name : str
        In its certificate.
    """

    called: str
    role: CertifiedRole
    name: str


@dataclass(frozen=True)
class Envelope:
    """One message, opened: whoever holds one knows that its sender signed it.

    Attributes
    ----------
    study, session, step : str
        What it is about.
    sender, recipient : str
        As messages call them.
    payload : bytes
    request_digest : str
        Of a reply: the mark of the question that it answers.
    code : str
        Of a reply without an answer: why there is none.
    process : str
        Of a reply: names the process that made it.
    sent : float
        When it was signed, by its sender's clock, in seconds since 1970. Nothing is decided by it:
        it shows that clocks differ.
    mark : str
        SHA-256 of what was signed: a reply repeats it, so that no reply serves for two questions.
    """

    study: str
    session: str
    step: str
    sender: str
    recipient: str
    payload: bytes = b""
    request_digest: str = ""
    code: str = ""
    process: str = ""
    sent: float = 0.0
    mark: str = ""


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = Field(ge=VERSION, le=VERSION)
    study: _Hex
    session: _Word
    step: _Text
    sender: _Text
    recipient: _Text
    request_digest: _Hex
    code: _Word
    process: _Word
    digest: _Hex
    nonce: _Hex
    sent: float = Field(ge=0, allow_inf_nan=False)
    certificate: Annotated[str, StringConstraints(max_length=1 << 14)]


def seal(envelope: Envelope, identity: Identity) -> tuple[bytes, str]:
    """The bytes to be carried, signed with this identity's key, and their mark."""
    header = _Header(
        version=VERSION,
        study=envelope.study,
        session=envelope.session,
        step=envelope.step,
        sender=envelope.sender,
        recipient=envelope.recipient,
        request_digest=envelope.request_digest,
        code=envelope.code,
        process=envelope.process,
        digest=hashlib.sha256(envelope.payload).hexdigest(),
        nonce=os.urandom(16).hex(),
        sent=round(time.time(), 3),
        certificate=identity.pem,
    )
    text = header.model_dump_json().encode()
    signature = identity.sign(_DOMAIN + text)
    lengths = len(text).to_bytes(4, "little") + len(signature).to_bytes(2, "little")
    return b"".join([MAGIC, lengths, text, signature, envelope.payload]), _mark(text)


def open_sealed(
    data: bytes | bytearray | memoryview,
    identity: Identity,
    *,
    sender: Correspondent,
    recipient: str,
    limit: int,
) -> Envelope:
    """What is in an envelope, if this sender signed it for this recipient.

    Parameters
    ----------
    identity : Identity
        Of the recipient; it has the root that certificates must be of.
    limit : int
        Most bytes that a payload can have.

    Raises
    ------
    ProtocolError
        ``too-large``, ``malformed``, ``bad-identity`` or ``wrong-recipient``.
    """
    if len(data) > limit + MOST_BESIDE:
        raise ProtocolError(
            f"{sender.called}: an envelope of {len(data)} bytes is larger than the "
            f"{limit + MOST_BESIDE} that it can have.",
            hint="It is refused; check that all parties have the same study file.",
            code="too-large",
        )
    parts = _split(data)
    if parts is None:
        raise _malformed(sender.called)
    text, signature, payload = parts
    header = _header(text)
    if header is None:
        raise _malformed(sender.called)
    identity.verify(
        _DOMAIN + text,
        signature,
        header.certificate,
        role=sender.role,
        name=sender.name,
    )
    if hashlib.sha256(payload).hexdigest() != header.digest:
        raise ProtocolError(
            f"{sender.called}: what is in its envelope is not what it signed.",
            hint="It was damaged or changed on the way; it is refused.",
            code="damaged",
        )
    if (header.sender, header.recipient) != (sender.called, recipient):
        raise ProtocolError(
            f"{sender.called}: an envelope for somebody else was brought here.",
            hint="It is refused.",
            code="wrong-recipient",
        )
    return Envelope(
        study=header.study,
        session=header.session,
        step=header.step,
        sender=header.sender,
        recipient=header.recipient,
        payload=payload,
        request_digest=header.request_digest,
        code=header.code,
        process=header.process,
        sent=header.sent,
        mark=_mark(text),
    )


def certified_name(data: bytes | bytearray | memoryview, called: str) -> str:
    """The name in the certificate that an envelope shows: of a lead, whom no study names.

    Nothing is checked: it is the name of which :func:`open_sealed` is then to prove that it signed.

    Parameters
    ----------
    called : str
        In messages, for errors.

    Raises
    ------
    ProtocolError
        ``malformed``.
    """
    parts = _split(data)
    header = None if parts is None else _header(parts[0])
    if header is None:
        raise _malformed(called)
    try:
        found = x509.load_pem_x509_certificate(header.certificate.encode())
        return str(found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    except (*UNREADABLE, IndexError):
        raise _malformed(called) from None


def unverified(data: bytes | bytearray | memoryview) -> tuple[str, bytes]:
    """The step and the payload that an envelope states; nobody need have signed it.

    Of use only for what is signed by itself. Empty where it is no envelope.
    """
    parts = _split(data)
    header = None if parts is None else _header(parts[0])
    return ("", b"") if parts is None or header is None else (header.step, parts[2])


def _split(data: bytes | bytearray | memoryview) -> tuple[bytes, bytes, bytes] | None:
    """Header, signature and payload; ``None`` where it is no envelope."""
    size, signed = int.from_bytes(data[4:8], "little"), int.from_bytes(data[8:_START], "little")
    at = _START + size
    payload_at = at + signed
    if data[:4] != MAGIC or signed > _MOST_SIGNATURE or payload_at > min(len(data), MOST_BESIDE):
        return None
    return bytes(data[_START:at]), bytes(data[at:payload_at]), bytes(data[payload_at:])


def _header(text: bytes) -> _Header | None:
    try:
        return _Header.model_validate(json.loads(text))
    except (ValidationError, ValueError, RecursionError):
        return None


def clocks_differ(found: Envelope, *, now: float | None = None) -> str:
    """A sentence where this machine's clock and the sender's differ; empty where they agree.

    Parameters
    ----------
    now : float, optional
        Seconds since 1970 by this machine's clock.
    """
    seconds = (time.time() if now is None else now) - found.sent
    if abs(seconds) <= MOST_APART:
        return ""
    size = abs(seconds)
    apart = f"{size / 3600:.1f} hours" if size < 2 * 86400 else f"{size / 86400:.0f} days"
    if size < 2 * 3600:
        apart = f"{size / 60:.0f} minutes"
    side = "ahead of" if seconds > 0 else "behind"
    return (
        f"The clocks differ: this machine's is {apart} {side} that of {found.sender}. Correct the "
        "one that is wrong (time service): certificates, decisions and ledgers are dated by it."
    )


def _mark(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _malformed(called: str) -> ProtocolError:
    return ProtocolError(
        f"{called}: an envelope is malformed.",
        hint="It is refused; check that all parties run the same version.",
        code="malformed",
    )
