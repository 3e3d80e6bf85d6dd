"""A party at its mailbox: hellos, lists of members, clocks, and questions that are put again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

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
    Envelope,
    OtherMembers,
    brought_list,
    is_hello,
    list_of_hello,
    mark_of,
)
from eigenveil.network.folder import PartyFolder, identity_of, sealing_of
from eigenveil.network.mailbox import Mailbox
from eigenveil.network.post import FileKeys, Post

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
