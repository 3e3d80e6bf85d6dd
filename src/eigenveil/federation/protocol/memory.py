"""What a site remembers of a session: in its ledger, but for what it saw there last."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from eigenveil.federation.ledger.ledger import Draft, Ledger, Session, SessionKey
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.secagg.client import State


@dataclass(frozen=True)
class Now:
    """A message, and what the site knows of its session when it answers."""

    message: Message
    state: State
    session: Session | None = None


@dataclass(frozen=True)
class SeenState:
    """A session's state without its keys and shares, and the digest of all of it."""

    key: SessionKey
    digest: bytes
    state: State

    @classmethod
    def of(cls, key: SessionKey, stored: bytes, state: State) -> SeenState:
        """A stored state as it may stay in memory."""
        public = state.model_copy(
            update={"master": "", "pairs": dict.fromkeys(state.pairs, ""), "held": {}}
        )
        return cls(key, hashlib.sha256(stored).digest(), public)


class SiteMemory:
    """The sessions of one study in a site's ledger."""

    def __init__(self, ledger: Ledger, study: str) -> None:
        self._ledger, self._study = ledger, study
        self.seen: SeenState | None = None  # As this process saw it last; another may have gone on

    def key(self, message: Message) -> SessionKey:
        """The session that a message is about."""
        return SessionKey(self._study, message.session)

    def answer(self, message: Message, request: bytes, draft: Callable[[Now], Draft]) -> bytes:
        """The answer to a message, in one transaction of the ledger."""

        def drafted(session: Session, stored: bytes) -> Draft:
            return draft(Now(message, self.read(message, stored), session))

        key = self.key(message)
        return self._ledger.commit(key, message.step, request=request, draft=drafted)

    def last_seen(self, message: Message) -> SeenState:
        """The session as it was seen last, or now."""
        key = self.key(message)
        if self.seen is None or self.seen.key != key:
            self.read(message, self._ledger.state(key))
        assert self.seen is not None
        return self.seen

    def read(self, message: Message, stored: bytes) -> State:
        """A stored state."""
        state = State.model_validate_json(stored)
        self.seen = SeenState.of(self.key(message), stored, state)
        return state

    def kept(self, message: Message, state: State) -> bytes:
        """A new state for the ledger; should it not get there, the next answer finds that out."""
        stored = state.stored()
        self.seen = SeenState.of(self.key(message), stored, state)
        return stored
