"""What a carrier carries: letters between members, signed, sealed for one of them, of public size.

In the clear, and in this order: ``EVE2``, the federation, SHA-256 of the sealing key of the
recipient that it is for (zero: a hello), the names of sender and recipient, SHA-256 of what is
sealed, the sender's signature, and what is sealed (HPKE, :mod:`eigenveil.federation.sealing`). The
signature covers all before it, and so what is sealed; it is checked before anything is opened. HPKE
binds the same header and both parties' keys. Inside, one encoding a message: fixed fields,
length-prefixed words, the payload, and zeros up to the step's public bound
(:mod:`eigenveil.network.sizes`).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace

from eigenveil.errors import ProtocolError
from eigenveil.federation.members import SIGNATURE_BYTES, Identity
from eigenveil.federation.sealing import SEALED_MORE, SEALING_BYTES
from eigenveil.network.mailbox import check_recipient

MAGIC = b"EVE2"
_SIGNED, _BOUND, _MARKED = (
    f"eigenveil envelope 2 {use}\0".encode() for use in ("signature", "seal", "mark")
)
DIGEST_BYTES, _WORD, NO_DIGEST = 32, 64, bytes(32)
# Members, study, question, time; three words; a session's key; the payload's length.
_INSIDE = 3 * DIGEST_BYTES + 8 + 3 * (1 + _WORD) + 2 + SEALING_BYTES + 4
_OUTSIDE = len(MAGIC) + 3 * DIGEST_BYTES + 2 * (1 + _WORD) + SIGNATURE_BYTES
BESIDE = _OUTSIDE + SEALED_MORE + _INSIDE
"""Most bytes that an envelope is larger than its bound."""


@dataclass(frozen=True)
class Envelope:
    """One message: of an opened one its sender is known to have signed it.

    ``question``: of an answer, the mark of the question. ``code``: why there is no answer.
    ``sent``: by the sender's clock; nothing is decided by it. ``mark``: SHA-256 of what is said,
    the same however often it is sealed. ``members``: digest of the sender's list.
    ``session_key``: public, of the sender in this session.
    """

    study: str
    session: str
    step: str
    sender: str
    recipient: str
    payload: bytes = b""
    question: str = ""
    code: str = ""
    sent: float = 0.0
    mark: str = ""
    members: str = ""
    session_key: bytes = b""

    def answered(self, payload: bytes, code: str) -> Envelope:
        """The answer to this question, by whom it was put to."""
        return Envelope(
            self.study,
            self.session,
            self.step,
            self.recipient,
            self.sender,
            payload,
            question=self.mark,
            code=code,
        )


class OtherMembers(ProtocolError):
    """A party goes by another list of members; ``envelope`` is what it signed."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__("other-members", what=f"{envelope.sender} goes by another list of members")
        self.envelope = envelope


# -- The header.


@dataclass(frozen=True)
class OuterHeader:
    start: bytes
    federation: bytes
    key: bytes
    sender: str
    recipient: str
    digest: bytes
    signature: bytes
    size: int

    @property
    def is_hello(self) -> bool:
        return self.key == NO_DIGEST


def is_hello(data: bytes) -> bool:
    """Whether it states that it is a hello; nothing is checked."""
    return header_of(data).is_hello


def brought_list(data: bytes) -> bytes:
    """The list of members in a hello, which is signed by itself; the hello is not checked."""
    header = header_of(data)
    return data[header.size + SEALING_BYTES + DIGEST_BYTES :] if header.is_hello else b""


def list_of_hello(data: bytes) -> str:
    """The digest of the list that a hello's sender goes by; nothing is checked."""
    at = header_of(data).size + SEALING_BYTES
    return data[at : at + DIGEST_BYTES].hex()


def header_of(data: bytes) -> OuterHeader:
    """The header of an envelope, canonical, or ``malformed``."""
    at = len(MAGIC) + 2 * DIGEST_BYTES
    names = []
    try:
        for _ in range(2):
            end = at + 1 + data[at]
            names.append(check_recipient(data[at + 1 : end].decode("ascii")))
            at = end
        size = at + DIGEST_BYTES + SIGNATURE_BYTES
    except (IndexError, UnicodeDecodeError, ProtocolError):
        raise malformed("somebody") from None
    if data[: len(MAGIC)] != MAGIC or len(data) < size:
        raise malformed("somebody")
    return OuterHeader(
        start=bytes(data[:at]),
        federation=bytes(data[4 : 4 + DIGEST_BYTES]),
        key=bytes(data[4 + DIGEST_BYTES : 4 + 2 * DIGEST_BYTES]),
        sender=names[0],
        recipient=names[1],
        digest=bytes(data[at : at + DIGEST_BYTES]),
        signature=bytes(data[at + DIGEST_BYTES : size]),
        size=size,
    )


def start_of(identity: Identity, key: bytes, recipient: str) -> bytes:
    names = [name.encode("ascii") for name in (identity.name, check_recipient(recipient))]
    prefix = MAGIC + bytes.fromhex(identity.members.federation) + key
    return prefix + b"".join(bytes([len(name)]) + name for name in names)


def signed(identity: Identity, start: bytes, body: bytes) -> bytes:
    head = start + sha256(body)
    return b"".join([head, identity.sign(_SIGNED + head), body])


def checked(data: bytes, identity: Identity, *, limit: int) -> tuple[OuterHeader, bytes]:
    """Header and body, once all that can be known without opening it is in order."""
    if len(data) > limit:
        raise ProtocolError("too-large", sender="The sender", size=len(data), most=limit)
    header = header_of(data)
    if header.federation.hex() != identity.members.federation:
        raise ProtocolError("wrong-federation", whose=f"The message of {header.sender}")
    if header.recipient != identity.name:
        raise ProtocolError("wrong-recipient", sender=header.sender)
    identity.verify(
        _SIGNED + header.start + header.digest,
        header.signature,
        role=identity.members.role(header.sender),
        name=header.sender,
    )
    body = data[header.size :]
    if sha256(body) != header.digest:
        raise ProtocolError("damaged", sender=header.sender)
    return header, body


def info_of(start: bytes, sender: str, recipient: str) -> bytes:
    return _BOUND + start + sha256(f"{sender} {recipient}".encode())


# -- What is sealed.


def encoded(envelope: Envelope, bound: int) -> bytes:
    """The one encoding of an envelope, of the same length for all payloads."""
    parts = [
        bytes.fromhex(envelope.members) or NO_DIGEST,
        round(envelope.sent * 1000).to_bytes(8, "little"),
        _said(envelope),
        len(envelope.session_key).to_bytes(2, "little"),
        envelope.session_key,
        len(envelope.payload).to_bytes(4, "little"),
        envelope.payload,
    ]
    padding = bound + _INSIDE - sum(map(len, parts))
    return b"".join([*parts, bytes(padding)])


def decoded(text: bytes, sender: str, recipient: str) -> Envelope:
    """What :func:`encoded` made; whatever it would have written otherwise is ``malformed``."""
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        if at > len(text):
            raise malformed(sender)
        return text[at - size : at]

    def number(size: int) -> int:
        return int.from_bytes(take(size), "little")

    members, sent = take(DIGEST_BYTES), number(8)
    study, question = take(DIGEST_BYTES), take(DIGEST_BYTES)
    words = [take(number(1)) for _ in range(3)]
    session_key = take(number(2))
    payload = take(number(4))
    if (
        text[at:] != bytes(len(text) - at)
        or len(session_key) not in (0, SEALING_BYTES)
        or not all(map(is_word, words))
    ):
        raise malformed(sender)
    session, step, code = (word.decode("ascii") for word in words)
    found = Envelope(
        study="" if study == NO_DIGEST else study.hex(),
        session=session,
        step=step,
        sender=sender,
        recipient=recipient,
        payload=payload,
        question="" if question == NO_DIGEST else question.hex(),
        code=code,
        sent=sent / 1000,
        members="" if members == NO_DIGEST else members.hex(),
        session_key=session_key,
    )
    return replace(found, mark=mark_of(found))


def is_word(word: bytes) -> bool:
    return re.fullmatch(rb"[a-z0-9 _-]{0,64}", word) is not None


def mark_of(envelope: Envelope) -> str:
    """SHA-256 of what is said: the same however often, and by which list, it is sealed."""
    names = f"{envelope.sender} {envelope.recipient} ".encode()
    return hashlib.sha256(_MARKED + names + _said(envelope) + envelope.payload).hexdigest()


def _said(envelope: Envelope) -> bytes:
    words = [each.encode("ascii") for each in (envelope.session, envelope.step, envelope.code)]
    if not all(map(is_word, words)):
        raise RuntimeError(f"a word of step {envelope.step!r} is none")
    about = [bytes.fromhex(each) or NO_DIGEST for each in (envelope.study, envelope.question)]
    return b"".join([*about, *(bytes([len(word)]) + word for word in words)])


def sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def malformed(name: str) -> ProtocolError:
    return ProtocolError("malformed", sender=name, what="envelope")
