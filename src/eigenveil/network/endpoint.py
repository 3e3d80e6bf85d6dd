"""A party at its mailbox: hellos, lists of members, clocks, and questions that are put again."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from eigenveil.errors import ProtocolError
from eigenveil.federation.members import Identity
from eigenveil.federation.sealing import SEALING_BYTES, SealingKey, encrypt_to
from eigenveil.files import replacing, sync_folder
from eigenveil.network.channel import (
    BAD_MEMBERS,
    MOST_STUDY,
    NO_ANSWER,
    NOT_CONNECTED,
    OTHER_MEMBERS,
    WAITS,
    Reply,
    room,
)
from eigenveil.network.envelopes import (
    BESIDE,
    DIGEST_BYTES,
    NO_DIGEST,
    Envelope,
    OtherMembers,
    brought_list,
    checked,
    decoded,
    encoded,
    info_of,
    is_hello,
    is_word,
    list_of_hello,
    malformed,
    mark_of,
    sha256,
    signed,
    start_of,
)
from eigenveil.network.folder import PartyFolder, identity_of, sealing_of
from eigenveil.network.mailbox import Mailbox

# -- A party's letters: what it seals and opens, and the keys of sessions that it keeps for it.
#
# A hello shows its sender's sealing key, which the list of members has the digest of, and may bring
# a list. Every party has a key pair a session beside it, shows it within its envelopes until the
# other one uses it, and erases it when the session ends: what was recorded then stays sealed,
# whatever keys are lost later. The first envelope of a session alone is sealed for the list's key.

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
                self._own[session] = SealingKey(key)
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


Say = Callable[[str], None]
# Seconds between two puts of a question that waits: at first, and at the most; and after which one
# is put again of which lists of members had to be exchanged.
AGAIN, SELDOM = 3.0, 60.0
_SHORTLY = 0.3
_MOST_LISTS = 5
_MOST_APART = 120.0
# How a hello begins: it asks for one, or the other's key is known.
_ASKS, _KNOWN = b"?", b"."


@dataclass(frozen=True)
class Received:
    """What came: a message, or a hello that was dealt with."""

    sender: str
    message: Envelope | None
    same_members: bool = True


class Endpoint:
    """What every party does with its mailbox, whatever its role."""

    def __init__(self, folder: PartyFolder, mailbox: Mailbox, say: Say) -> None:
        self.mailbox, self.say = mailbox, say
        self.identity, self.members = identity_of(folder), folder.known
        self.post = Post(self.identity, sealing_of(folder), FileKeys(folder.state / "sessions"))
        self.limit = MOST_STUDY
        self._clocks: set[str] = set()

    def greet(self, name: str, *, with_list: bool = False) -> None:
        """Put a hello, which asks for one where the other's key is not known."""
        listed = self.members.data() if with_list else b""
        told = (_KNOWN if self.post.knows(name) else _ASKS) + listed
        self.mailbox.put(name, self.post.hello(name, told))

    def reply(self, query: Envelope, answer: Reply, size: int = 0) -> None:
        """An answer to this question alone, padded to its step's size."""
        found = query.answered(answer.payload, answer.code)
        sealed, _ = self.post.seal(found, bound=max(size, room(answer.payload)))
        self.mailbox.put(query.sender, sealed)

    def receive(self, data: bytes) -> Received:
        """Open a message; a hello's key and list are taken over, and it is answered."""
        if is_hello(data):
            return Received(self._meet(data), None)
        try:
            found, same = self.post.open(data, limit=self.limit), True
        except OtherMembers as other:
            found, same = other.envelope, False
        self._check_clock(found)
        return Received(found.sender, found, same)

    def _meet(self, data: bytes) -> str:
        brought = brought_list(data)
        if brought[1:]:
            self.members.adopt(brought[1:])
        name = self.post.learn(data)
        differs = list_of_hello(data) != self.members.digest
        if differs or brought[:1] == _ASKS:
            self.greet(name, with_list=differs)
        return name

    def _check_clock(self, found: Envelope) -> None:
        """A message can be late, but not early: then this clock is behind."""
        ahead = found.sent - time.time()
        if ahead <= _MOST_APART or found.sender in self._clocks:
            return
        self._clocks.add(found.sender)
        self.say(
            f"The clocks differ: that of {found.sender} is {ahead / 60:.0f} minutes ahead of this "
            "machine's. Correct the one that is wrong: lists, decisions and ledgers are dated by "
            "it."
        )


@dataclass(eq=False)
class Question:
    """One question to one party: the same bytes, put again until there is an answer.

    ``code`` says what is known while there is none.
    """

    envelope: Envelope
    room: int
    sealed: bytes = b""
    code: str = NOT_CONNECTED
    again: float = 0.0
    pause: float = field(default_factory=lambda: AGAIN)
    lists: int = 0

    def __post_init__(self) -> None:
        self.mark = mark_of(self.envelope)

    @property
    def name(self) -> str:
        return self.envelope.recipient

    def put(self, at: Endpoint) -> None:
        """Put it; where the party's key is not known yet, a hello that asks for it."""
        self.again = time.monotonic() + self.pause
        self.pause = min(2 * self.pause, SELDOM)
        at.members.role(self.name)  # it may have been revoked since
        if not self.sealed:
            if not at.post.knows(self.name):
                at.greet(self.name)
                return
            self.sealed, _ = at.post.seal(self.envelope, bound=self.room)
            if self.code == NOT_CONNECTED:
                self.code = NO_ANSWER
        at.mailbox.put(self.name, self.sealed)

    def take(self, at: Endpoint, found: Envelope) -> Reply | None:
        """The answer; ``None`` where the party says more later.

        To a party with another list this one is brought; should its own be newer, that comes.
        """
        if found.code == OTHER_MEMBERS:
            self.code, self.lists = OTHER_MEMBERS, self.lists + 1
            if self.lists > _MOST_LISTS:
                return Reply(BAD_MEMBERS)
            at.greet(self.name, with_list=True)
            self.sealed, self.pause = b"", AGAIN
            self.again = time.monotonic() + _SHORTLY * self.lists
            return None
        if found.code in WAITS:
            self.code = found.code
            return None
        return Reply(found.code, found.payload)
