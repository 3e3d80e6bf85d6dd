"""A site's side of secure aggregation: its masks, and what it may reveal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import BaseModel, ConfigDict

from eigenveil.federation.masks import Integers, Part
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.protocol.terms import Terms
from eigenveil.federation.secagg.consistency import set_of, statement, text_of, threshold
from eigenveil.federation.secagg.keys import (
    KEY_BYTES,
    SECRET_BYTES,
    TAG_BYTES,
    Context,
    RoundFacts,
    SiteKeys,
    letter_bytes,
    lock,
    mask_key,
    round_key,
    self_key,
    split_secret,
)

# Of a held text: each round has a share of the own mask's seed and one of the repair secret.
_PAIR_OF_SHARES = 2 * SECRET_BYTES


class State(BaseModel):
    """What a site remembers of a session, in its ledger."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str
    listed: str = ""  # The digest of the list of members when it joined
    # Bitmaps of the sites among which neighbours were chosen, and of those that can be lost
    joined: str = ""
    members: str = ""
    # By neighbour, the pair's secret, and the shares that it gave; of the site itself, its own
    pairs: dict[str, str] = {}
    held: dict[str, str] = {}
    ready: bool = False
    # The fewest sites that can be in the sum of each round so far, that this site received
    fewest: int = 0
    # The last round that was answered, and `request_digest`, its request's fingerprint
    round_number: int = 0
    request_digest: str = ""
    survivors: str = ""  # The bitmap that was signed about that round; empty until then

    def facts(self, round_number: int, request_digest: str) -> RoundFacts:
        return RoundFacts(round_number, request_digest, self.joined, self.members)

    def stored(self) -> bytes:
        return self.model_dump_json().encode()


@dataclass(frozen=True)
class SecaggClient:
    """One site's keys and neighbours in a session."""

    name: str
    state: State
    terms: Terms
    session: str

    @cached_property
    def context(self) -> Context:
        return Context(self.terms.hash, self.session, self.state.listed)

    @cached_property
    def keys(self) -> SiteKeys:
        return SiteKeys(bytes.fromhex(self.state.master), self.context)

    def letters(self, keys: Mapping[str, bytes]) -> tuple[list[bytes], bytes]:
        """A letter for each party by its session key, in order, and the share kept here."""
        names = sorted(keys)
        shares = self._shares(len(names) + 1)
        made = [
            self.keys.letter(share, key=keys[name], names=(self.name, name))
            for name, share in zip(names, shares, strict=False)
        ]
        return made, shares[-1]

    def opened(self, letters: Mapping[str, bytes]) -> State:
        """The state with what neighbours' letters bring."""
        pairs, held = {}, dict(self.state.held)
        for sender, letter in letters.items():
            half, shares = self.keys.opened(letter, names=(sender, self.name))
            pairs[sender] = self.keys.pair(sender, half, own=self.name).hex()
            if shares:
                held[sender] = shares.hex()
        return self.state.model_copy(update={"pairs": pairs, "held": held, "ready": True})

    def packets(self) -> list[bytes]:
        """For each round the keys of all pairs, under the round's repair secret."""
        found = []
        for turn in _turns(self.terms):
            keys = b"".join(self._round_key(name, turn) for name in sorted(self.state.pairs))
            secret = self.keys.repair_secret(turn)
            found.append(lock(secret, keys, self.context, "packet", turn, self.name))
        return found

    @property
    def near(self) -> tuple[str, ...]:
        """The neighbours with which it makes masks."""
        members = set_of(self.terms.names, self.state.members)
        return tuple(name for name in self.state.pairs if name in members)

    def revealed(self, name: str, round_number: int, *, own: bool) -> str:
        """The held share of a site's own mask, or of its repair secret, for one round."""
        start = 2 * (_PAIR_OF_SHARES * (round_number - 1) + (0 if own else SECRET_BYTES))
        return self.state.held[name][start : start + 2 * SECRET_BYTES]

    def mask(
        self, round_number: int, request_digest: str, parts: Sequence[Part], message: Message
    ) -> Integers:
        """The mask of this site's sums in a round; ``request_digest`` is of its request."""
        facts = self.state.facts(round_number, request_digest)
        return self.terms.masks.of_site(self, facts, parts, message)

    def pair_keys(self, facts: RoundFacts) -> list[tuple[bytes, bool]]:
        """The key of each pair's mask, and whether this site adds it."""
        keys = {name: self._round_key(name, facts.round_number) for name in self.near}
        return [
            (mask_key(key, self.context, facts, (self.name, name)), self.name < name)
            for name, key in keys.items()
        ]

    def own_key(self, round_number: int) -> bytes:
        """The key of the mask that is no pair's."""
        return self_key(self.keys.self_seed(round_number), self.context, round_number)

    def said(self, survivors: str) -> bytes:
        """What is signed of who took part in the last round, as this site received it."""
        facts = self.state.facts(self.state.round_number, self.state.request_digest)
        return statement(self.context, facts, survivors)

    def text(self, survivors: str) -> bytes:
        return text_of(self.said(survivors), self.name)

    def _round_key(self, name: str, round_number: int) -> bytes:
        pair = bytes.fromhex(self.state.pairs[name])
        return round_key(pair, self.context, round_number, (self.name, name))

    def _shares(self, holders: int) -> list[bytes]:
        """One text a holder: its shares of every round's two secrets, where sites may be lost."""
        texts = [b""] * holders
        if not self.terms.mends:
            return texts
        keys, needed = self.keys, threshold(holders, self.terms.study.collusion)
        for turn in _turns(self.terms):
            for secret in (keys.self_seed(turn), keys.repair_secret(turn)):
                shares = split_secret(secret, threshold=needed, holders=holders)
                texts = [text + share for text, share in zip(texts, shares, strict=True)]
        return texts


def pair_letter_bytes(terms: Terms) -> int:
    return letter_bytes(_PAIR_OF_SHARES * len(terms.plan.rounds) if terms.mends else 0)


def packet_bytes(pairs: int) -> int:
    return KEY_BYTES * pairs + TAG_BYTES


def _turns(terms: Terms) -> range:
    return range(1, len(terms.plan.rounds) + 1)
