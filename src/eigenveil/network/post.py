"""A party's letters: what it seals and opens, and the keys of sessions that it keeps for it.

A hello shows its sender's sealing key, which the list of members has the digest of, and may bring a
list. Every party has a key pair a session beside it, shows it within its envelopes until the other
one uses it, and erases it when the session ends: what was recorded then stays sealed, whatever
keys are lost later. The first envelope of a session alone is sealed for the list's key.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import OrderedDict, defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from eigenveil.errors import ProtocolError
from eigenveil.federation.identity import Identity
from eigenveil.federation.sealing import SEALING_BYTES, SealingKey, encrypt_to
from eigenveil.files import replacing, sync_folder
from eigenveil.network.envelopes import (
    BESIDE,
    DIGEST_BYTES,
    NO_DIGEST,
    Envelope,
    OtherMembers,
    checked,
    decoded,
    encoded,
    info_of,
    is_word,
    malformed,
    mark_of,
    sha256,
    signed,
    start_of,
)

# Of a hello, with the list that it may bring.
_MOST_HELLO = 1 << 24
# What no session and no member is called; and how files of keys end.
_LIST, _OWN, _ENDING, _GONE = "LIST", "-own", ".key", ".gone-"
# Sessions' keys of each other that came, while nothing was answered in their sessions.
_MOST_SHOWN = 64


class FileKeys:
    """Keys of sessions until they end, a file each: a party's private one (name ``""``), others'.

    The session ``""`` is no session: others' sealing keys of the list.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> dict[tuple[str, str], bytes]:
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
        """Keep one; a private one is on the disk when this returns."""
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
        gone = self._folder / f"{_GONE}{session}"
        if not session or not is_word(session.encode()):
            raise RuntimeError("a session has another name")
        with suppress(FileNotFoundError):  # first, so that no zeros are ever taken for keys
            (self._folder / session).rename(gone)
        for file in gone.glob("*"):
            with file.open("r+b") as opened:
                opened.write(bytes(file.stat().st_size))
                opened.flush()
                os.fsync(opened.fileno())
        shutil.rmtree(gone, ignore_errors=True)


class Post:
    """One party's letters: what it seals and opens."""

    def __init__(self, identity: Identity, sealing: SealingKey, store: FileKeys) -> None:
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
        self._by_digest = {sha256(key.public): name for name, key in self._own.items()}

    def hello(self, to: str, members: bytes = b"") -> bytes:
        """The own sealing key for another, in the clear; it may bring a list of members."""
        identity = self._identity
        body = self._sealing.public + bytes.fromhex(identity.members.digest) + members
        return signed(identity, start_of(identity, NO_DIGEST, to), body)

    def learn(self, data: bytes) -> str:
        """Remember the sealing key of a hello's sender; its name."""
        identity = self._identity
        header, body = checked(data, identity, limit=_MOST_HELLO)
        if not header.is_hello or len(body) < SEALING_BYTES + DIGEST_BYTES:
            raise malformed(header.sender)
        key = body[:SEALING_BYTES]
        if sha256(key).hex() != identity.members.sealing(header.sender):
            raise ProtocolError("other-sealing-key", party=header.sender)
        with self._guard:
            if self._theirs.get(("", header.sender)) != key:
                self._store.put("", header.sender, key)
                self._theirs["", header.sender] = key
        return header.sender

    def knows(self, name: str) -> bool:
        """Whether this party can seal for another: its hello came."""
        return self._listed(name) is not None

    def seal(self, envelope: Envelope, *, bound: int) -> tuple[bytes, str]:
        """The bytes to carry, of the same length for all payloads, and the mark."""
        identity = self._identity
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
        key = self._listed(to)
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
            raise ProtocolError("unknown-key", party=to)
        inside, mark = encoded(envelope, bound), mark_of(envelope)
        start = start_of(identity, sha256(key), to)
        members = identity.members
        other = members.key(role=members.role(to), name=to).text
        sealed = encrypt_to(key, inside, info_of(start, identity.signer.public_key.text, other))
        return signed(identity, start, sealed), mark

    def open(self, data: bytes, *, limit: int) -> Envelope:
        """What a member signed for this party; ``limit``: the largest bound that it can have."""
        identity = self._identity
        header, sealed = checked(data, identity, limit=limit + BESIDE)
        with self._guard:
            session = self._by_digest.get(header.key)
            is_listed = header.key == sha256(self._sealing.public)
            key = self._sealing if is_listed else self._own.get(session or "")
        if header.is_hello or key is None:
            raise ProtocolError("key-not-here", sender=header.sender)
        members = identity.members
        theirs = members.key(role=members.role(header.sender), name=header.sender).text
        info = info_of(header.start, theirs, identity.signer.public_key.text)
        found = decoded(key.decrypt(sealed, info), header.sender, header.recipient)
        if session is not None and found.session != session:
            raise malformed(header.sender)
        self._note(found, used=session is not None)
        if found.members != members.digest and not found.code:
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
                del self._by_digest[sha256(own.public)]
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
            self._by_digest[sha256(found.public)] = session
        return found

    def _listed(self, name: str) -> bytes | None:
        key = self._theirs.get(("", name))
        return key if key and sha256(key).hex() == self._identity.members.sealing(name) else None

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
                raise ProtocolError("other-session-key", party=found.sender)
            while len(shown) > _MOST_SHOWN:
                shown.popitem(last=False)
