"""What a carrier carries: letters between members, signed, sealed for one of them, of public size.

In the clear, and in this order: ``EVE2``, the federation, SHA-256 of the sealing key of the
recipient that it is for (zero: a hello), the names of sender and recipient, SHA-256 of what is
sealed, the sender's signature, and what is sealed (HPKE, :mod:`eigenveil.federation.sealing`). The
signature covers all before it, and so what is sealed; it is checked before anything is opened. HPKE
binds the same header and both parties' keys. Inside, one encoding a message: fixed fields,
length-prefixed words, the payload, and zeros up to the step's public bound
(:mod:`eigenveil.network.sizes`).

A hello shows its sender's sealing key, which the list of members has the digest of, and may bring a
list. Every party has a key pair a session beside it, shows it within its envelopes until the other
one uses it, and erases it when the session ends: what was recorded then stays sealed, whatever
keys are lost later. The first envelope of a session alone is sealed for the list's key.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections import OrderedDict, defaultdict
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from eigenveil.errors import ProtocolError
from eigenveil.federation.identity import SIGNATURE_BYTES, Current, Identity
from eigenveil.federation.sealing import SEALED_MORE, SEALING_BYTES, SealingKey, encrypt_to
from eigenveil.files import replacing, sync_folder
from eigenveil.network.mailbox import check_recipient

MAGIC = b"EVE2"
MEMBERS = "members"
"""The step of envelopes about lists of members: these pass between parties that differ in them."""
_SIGNED, _BOUND, _MARKED = (
    f"eigenveil envelope 2 {use}\0".encode() for use in ("signature", "seal", "mark")
)
_DIGEST, _WORD, _NONE = 32, 64, bytes(32)
# Members, study, question, time; three words; a session's key; the payload's length.
_INSIDE = 3 * _DIGEST + 8 + 3 * (1 + _WORD) + 2 + SEALING_BYTES + 4
_OUTSIDE = len(MAGIC) + 3 * _DIGEST + 2 * (1 + _WORD) + SIGNATURE_BYTES
BESIDE = _OUTSIDE + SEALED_MORE + _INSIDE
"""Most bytes that an envelope is larger than its bound."""
# Of a hello, with the list that it may bring.
_MOST_HELLO = 1 << 24
# What no session and no member is called; and how files of keys end.
_LIST, _OWN, _ENDING, _GONE = "LIST", "-own", ".key", ".gone-"
# Sessions' keys of each other that came, while nothing was answered in their sessions.
_MOST_SHOWN = 64


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
        super().__init__(
            f"{envelope.sender} goes by another list of the federation's members.",
            hint="The newer one is passed on; if this stays, ask the registrar which one holds.",
            code="other-members",
        )
        self.envelope = envelope


# -- Keys that a party keeps beside those of its folder.


class SessionKeys(Protocol):
    """Keys of sessions until they end: a party's private one (name ``""``), others' public ones.

    The session ``""`` is no session: others' sealing keys of the list.
    """

    def all(self) -> dict[tuple[str, str], bytes]:
        """By session and name."""
        ...

    def put(self, session: str, name: str, key: bytes) -> None:
        """Keep one; a private one is on the disk when this returns."""
        ...

    def end(self, session: str) -> None:
        """Erase those of a session."""
        ...


class MemoryKeys:
    """Keys of a process that is not started again."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], bytes] = {}

    def all(self) -> dict[tuple[str, str], bytes]:
        """By session and name."""
        return dict(self._keys)

    def put(self, session: str, name: str, key: bytes) -> None:
        """Keep one."""
        self._keys[session, name] = key

    def end(self, session: str) -> None:
        """Forget those of a session."""
        self._keys = {each: key for each, key in self._keys.items() if each[0] != session}


class FileKeys:
    """Keys in a folder, one a file, in a folder a session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> dict[tuple[str, str], bytes]:
        """By session and name."""
        for gone in self._folder.glob(f"{_GONE}*"):  # an end was cut off
            shutil.rmtree(gone, ignore_errors=True)
        return {
            (
                file.parent.name.removeprefix(_LIST),
                file.name.removesuffix(_ENDING).removeprefix(_OWN),
            ): file.read_bytes()
            for file in self._folder.glob(f"[!.]*/[!.]*{_ENDING}")
        }

    def put(self, session: str, name: str, key: bytes) -> None:
        """Write one."""
        file = self._folder / (session or _LIST) / f"{name or _OWN}{_ENDING}"
        with replacing(file) as scratch, scratch.open("wb") as opened:
            opened.write(key)
            opened.flush()
            if not name:
                os.fsync(opened.fileno())
        if not name:
            sync_folder(file.parent)
            sync_folder(self._folder)

    def end(self, session: str) -> None:
        """Overwrite and delete a session's."""
        gone = self._folder / f"{_GONE}{session}"
        if not session or not _is_word(session.encode()):
            raise RuntimeError("a session has another name")
        with suppress(FileNotFoundError):  # first, so that no zeros are ever taken for keys
            (self._folder / session).rename(gone)
        for file in gone.glob("*"):
            with file.open("r+b") as opened:
                opened.write(bytes(file.stat().st_size))
                opened.flush()
                os.fsync(opened.fileno())
        shutil.rmtree(gone, ignore_errors=True)


# -- A party's letters.


class Post:
    """One party's letters: what it seals and opens."""

    def __init__(self, identity: Current, sealing: SealingKey, store: SessionKeys) -> None:
        self._identity, self._sealing, self._store = identity, sealing, store
        self._guard = threading.RLock()
        self._own: dict[str, SealingKey] = {}
        self._theirs: dict[tuple[str, str], bytes] = {}
        self._shown: defaultdict[str, OrderedDict[str, bytes]] = defaultdict(OrderedDict)
        self._used: set[tuple[str, str]] = set()  # sessions and peers that have used our key of it
        for (session, name), key in store.all().items():
            if name:
                self._theirs[session, name] = key
            else:
                self._own[session] = SealingKey.from_raw(key)
        self._by_digest = {_sha(key.public): name for name, key in self._own.items()}

    def hello(self, to: str, members: bytes = b"") -> bytes:
        """The own sealing key for another, in the clear; it may bring a list of members."""
        identity = self._identity.now()
        body = self._sealing.public + bytes.fromhex(identity.members.digest) + members
        return _signed(identity, _start(identity, _NONE, to), body)

    def learn(self, data: bytes) -> str:
        """Remember the sealing key of a hello's sender; its name."""
        identity = self._identity.now()
        header, body = _checked(data, identity, limit=_MOST_HELLO)
        if not header.is_hello or len(body) < SEALING_BYTES + _DIGEST:
            raise _malformed(header.sender)
        key = body[:SEALING_BYTES]
        if _sha(key).hex() != identity.members.sealing(header.sender):
            raise ProtocolError(
                f"{header.sender}: its sealing key is not the one of the list of members.",
                hint="It is refused; ask that party and the registrar.",
                code="bad-identity",
            )
        with self._guard:
            if self._theirs.get(("", header.sender)) != key:
                self._store.put("", header.sender, key)
                self._theirs["", header.sender] = key
        return header.sender

    def knows(self, name: str) -> bool:
        """Whether this party can seal for another: its hello came."""
        return self._listed(self._identity.now(), name) is not None

    def seal(self, envelope: Envelope, *, bound: int) -> tuple[bytes, str]:
        """The bytes to carry, of the same length for all payloads, and the mark."""
        identity = self._identity.now()
        to, session = envelope.recipient, envelope.session
        if len(envelope.payload) > bound:
            raise RuntimeError(
                f"step {envelope.step!r} has {len(envelope.payload)} bytes and a bound of {bound}"
            )
        envelope = replace(
            envelope,
            sender=identity.name,
            sent=envelope.sent or time.time(),
            members=envelope.members or identity.members.digest,
        )
        key = self._listed(identity, to)
        if session and envelope.code:  # a refusal makes no keys, and keeps none
            key = self._theirs.get((session, to), key)
        elif session:
            with self._guard:
                if (shown := self._shown[to].pop(session, None)) is not None:
                    self._store.put(session, to, shown)
                    self._theirs[session, to] = shown
                key = self._theirs.get((session, to), key)
                own = self._own_of(session)
                if (session, to) not in self._used:
                    envelope = replace(envelope, session_key=own.public)
        if key is None:
            raise ProtocolError(
                f"The sealing key of {to} is not known yet.",
                hint="It comes with that party's first message; see whether it runs.",
                code="unknown-key",
            )
        inside, mark = _encoded(envelope, bound)
        start = _start(identity, _sha(key), to)
        members = identity.members
        other = members.key(role=members.role(to), name=to).text
        sealed = encrypt_to(key, inside, _info(start, identity.signer.public_key.text, other))
        return _signed(identity, start, sealed), mark

    def open(self, data: bytes, *, limit: int) -> Envelope:
        """What a member signed for this party; ``limit``: the largest bound that it can have."""
        identity = self._identity.now()
        header, sealed = _checked(data, identity, limit=limit + BESIDE)
        with self._guard:
            session = self._by_digest.get(header.key)
            is_listed = header.key == _sha(self._sealing.public)
            key = self._sealing if is_listed else self._own.get(session or "")
        if header.is_hello or key is None:
            raise ProtocolError(
                f"{header.sender}: its message is sealed for a key that is not here.",
                hint="It is of a session that is over, or this party's state was lost.",
                code="unknown-key",
            )
        members = identity.members
        theirs = members.key(role=members.role(header.sender), name=header.sender).text
        info = _info(header.start, theirs, identity.signer.public_key.text)
        found = _decoded(key.decrypt(sealed, info), header.sender, header.recipient)
        if session is not None and found.session != session:
            raise _malformed(header.sender)
        self._note(found, used=session is not None)
        if found.members != members.digest and not found.code and found.step != MEMBERS:
            raise OtherMembers(found)
        return found

    @property
    def sessions(self) -> set[str]:
        """Those whose keys are here."""
        with self._guard:
            return {*self._own, *(session for session, _ in self._theirs)} - {""}

    def end(self, session: str) -> None:
        """Erase a session's keys: nothing of it can be opened any more."""
        with self._guard:
            self._store.end(session)
            if (own := self._own.pop(session, None)) is not None:
                del self._by_digest[_sha(own.public)]
            for each in [each for each in self._theirs if each[0] == session]:
                del self._theirs[each]
            for shown in self._shown.values():
                shown.pop(session, None)
            self._used = {each for each in self._used if each[0] != session}

    def _own_of(self, session: str) -> SealingKey:
        found = self._own.get(session)
        if found is None:
            found = SealingKey.generate()
            self._store.put(session, "", found.raw)
            self._own[session] = found
            self._by_digest[_sha(found.public)] = session
        return found

    def _listed(self, identity: Identity, name: str) -> bytes | None:
        key = self._theirs.get(("", name))
        return key if key and _sha(key).hex() == identity.members.sealing(name) else None

    def _note(self, found: Envelope, *, used: bool) -> None:
        """Keep what an envelope shows of its session; the first key of a sender stays."""
        place = found.session, found.sender
        with self._guard:
            if used:
                self._used.add(place)
            if not found.session or not found.session_key:
                return
            shown = self._shown[found.sender]
            known = self._theirs.get(place) or shown.setdefault(found.session, found.session_key)
            if known != found.session_key:
                raise ProtocolError(
                    f"{found.sender}: it shows another key of a session than before.",
                    hint="It lost its state, or somebody else has its keys; it is refused.",
                    code="bad-identity",
                )
            while len(shown) > _MOST_SHOWN:
                shown.popitem(last=False)


# -- The header.


@dataclass(frozen=True)
class _Header:
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
        return self.key == _NONE


def sender_of(data: bytes) -> str:
    """Whom an envelope names as its sender; nothing is checked."""
    return _header(data).sender


def is_hello(data: bytes) -> bool:
    """Whether it states that it is a hello; nothing is checked."""
    return _header(data).is_hello


def brought_list(data: bytes) -> bytes:
    """The list of members in a hello, which is signed by itself; the hello is not checked."""
    header = _header(data)
    return data[header.size + SEALING_BYTES + _DIGEST :] if header.is_hello else b""


def list_of_hello(data: bytes) -> str:
    """The digest of the list that a hello's sender goes by; nothing is checked."""
    at = _header(data).size + SEALING_BYTES
    return data[at : at + _DIGEST].hex()


def _header(data: bytes) -> _Header:
    """The header of an envelope, canonical, or ``malformed``."""
    at = len(MAGIC) + 2 * _DIGEST
    names = []
    try:
        for _ in range(2):
            end = at + 1 + data[at]
            names.append(check_recipient(data[at + 1 : end].decode("ascii")))
            at = end
        size = at + _DIGEST + SIGNATURE_BYTES
    except (IndexError, UnicodeDecodeError, ProtocolError):
        raise _malformed("somebody") from None
    if data[: len(MAGIC)] != MAGIC or len(data) < size:
        raise _malformed("somebody")
    return _Header(
        start=bytes(data[:at]),
        federation=bytes(data[4 : 4 + _DIGEST]),
        key=bytes(data[4 + _DIGEST : 4 + 2 * _DIGEST]),
        sender=names[0],
        recipient=names[1],
        digest=bytes(data[at : at + _DIGEST]),
        signature=bytes(data[at + _DIGEST : size]),
        size=size,
    )


def _start(identity: Identity, key: bytes, recipient: str) -> bytes:
    names = [name.encode("ascii") for name in (identity.name, check_recipient(recipient))]
    prefix = MAGIC + bytes.fromhex(identity.members.federation) + key
    return prefix + b"".join(bytes([len(name)]) + name for name in names)


def _signed(identity: Identity, start: bytes, body: bytes) -> bytes:
    head = start + _sha(body)
    return b"".join([head, identity.sign(_SIGNED + head), body])


def _checked(data: bytes, identity: Identity, *, limit: int) -> tuple[_Header, bytes]:
    """Header and body, once all that can be known without opening it is in order."""
    if len(data) > limit:
        raise ProtocolError(
            f"A message of {len(data)} bytes is larger than the {limit} that it can have.",
            hint="It is refused; check that all parties have the same study file.",
            code="too-large",
        )
    header = _header(data)
    if header.federation.hex() != identity.members.federation:
        raise ProtocolError(
            f"{header.sender}: a message of another federation was brought here.",
            hint="It is refused; check the address and the federation's fingerprint.",
            code="wrong-federation",
        )
    if header.recipient != identity.name:
        raise ProtocolError(
            f"{header.sender}: an envelope for somebody else was brought here.",
            hint="It is refused.",
            code="wrong-recipient",
        )
    identity.verify(
        _SIGNED + header.start + header.digest,
        header.signature,
        role=identity.members.role(header.sender),
        name=header.sender,
    )
    body = data[header.size :]
    if _sha(body) != header.digest:
        raise ProtocolError(
            f"{header.sender}: what is in its envelope is not what it signed.",
            hint="It was damaged or changed on the way; it is refused.",
            code="damaged",
        )
    return header, body


def _info(start: bytes, sender: str, recipient: str) -> bytes:
    return _BOUND + start + _sha(f"{sender} {recipient}".encode())


# -- What is sealed.


def _encoded(envelope: Envelope, bound: int) -> tuple[bytes, str]:
    """The one encoding of an envelope, and its mark."""
    words = [each.encode("ascii") for each in (envelope.session, envelope.step, envelope.code)]
    if not all(map(_is_word, words)):
        raise RuntimeError(f"a word of step {envelope.step!r} is none")
    about = bytes.fromhex(envelope.study) or _NONE, bytes.fromhex(envelope.question) or _NONE
    said = b"".join([*about, *(bytes([len(word)]) + word for word in words)])
    parts = [
        bytes.fromhex(envelope.members) or _NONE,
        round(envelope.sent * 1000).to_bytes(8, "little"),
        said,
        len(envelope.session_key).to_bytes(2, "little"),
        envelope.session_key,
        len(envelope.payload).to_bytes(4, "little"),
        envelope.payload,
    ]
    padding = bound + _INSIDE - sum(map(len, parts))
    return b"".join([*parts, bytes(padding)]), _mark(envelope, said)


def _decoded(text: bytes, sender: str, recipient: str) -> Envelope:
    """What :func:`_encoded` made; whatever it would have written otherwise is ``malformed``."""
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        if at > len(text):
            raise _malformed(sender)
        return text[at - size : at]

    def number(size: int) -> int:
        return int.from_bytes(take(size), "little")

    members, sent = take(_DIGEST), number(8)
    begun = at
    study, question = take(_DIGEST), take(_DIGEST)
    words = [take(number(1)) for _ in range(3)]
    said = text[begun:at]
    session_key = take(number(2))
    payload = take(number(4))
    if (
        text[at:] != bytes(len(text) - at)
        or len(session_key) not in (0, SEALING_BYTES)
        or not all(map(_is_word, words))
    ):
        raise _malformed(sender)
    session, step, code = (word.decode("ascii") for word in words)
    found = Envelope(
        study="" if study == _NONE else study.hex(),
        session=session,
        step=step,
        sender=sender,
        recipient=recipient,
        payload=payload,
        question="" if question == _NONE else question.hex(),
        code=code,
        sent=sent / 1000,
        members="" if members == _NONE else members.hex(),
        session_key=session_key,
    )
    return replace(found, mark=_mark(found, said))


def _is_word(word: bytes) -> bool:
    return re.fullmatch(rb"[a-z0-9 _-]{0,64}", word) is not None


def _mark(envelope: Envelope, said: bytes) -> str:
    names = f"{envelope.sender} {envelope.recipient} ".encode()
    return hashlib.sha256(_MARKED + names + said + envelope.payload).hexdigest()


def _sha(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _malformed(name: str) -> ProtocolError:
    return ProtocolError(
        f"{name}: an envelope is malformed.",
        hint="It is refused; check that all parties run the same version.",
        code="malformed",
    )
