"""A site's side of secure aggregation: its masks, and the shares that it may reveal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import HELPER, MASK, Message
from eigenveil.federation.secagg import masks
from eigenveil.federation.secagg.consistency import statement, text_of
from eigenveil.federation.secagg.keys import Context, RoundFacts, SiteKeys, self_key, split_secret
from eigenveil.federation.secagg.masks import threshold
from eigenveil.privacy.views import MaskKind

# Of a held text, hexadecimal: each round has a share of the own mask's secret and one of the pair
# secret, 16 bytes each.
_SHARE = 32


class State(BaseModel):
    """What a site remembers of a session, in its ledger.

    Attributes
    ----------
    joined, members : str
        Bitmaps of the sites among which neighbours were chosen, and of those that have shared.
    signers : str
        SHA-256, in hex, of all signing keys, where signatures will be checked.
    fewest : int
        The fewest sites that can be in the sum of each round so far, that this site received.
    round_number : int
        The last round that was answered, and ``request_digest``, its request's fingerprint.
    survivors : str
        The bitmap that was signed about that round; empty until then.
    signed : bool
        Whether the certificate was signed: no round follows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    master: str
    rows: int | None = None
    joined: str = ""
    members: str = ""
    signers: str = ""
    neighbours: dict[str, payloads.PublicKeys] = {}
    helper: str | None = None
    held: dict[str, str] = {}
    ready: bool = False
    fewest: int = 0
    round_number: int = 0
    request_digest: str = ""
    survivors: str = ""
    signed: bool = False

    def facts(self, round_number: int, request_digest: str) -> RoundFacts:
        """What the site received about a round."""
        return RoundFacts(round_number, request_digest, self.joined, self.members)

    def stored(self) -> bytes:
        """As bytes for the ledger."""
        return self.model_dump_json().encode()


@dataclass(frozen=True)
class SecaggClient:
    """One site's keys and neighbours in a session."""

    name: str
    state: State
    context: Context
    kind: MaskKind
    collusion: int
    dropouts: int

    @property
    def keys(self) -> SiteKeys:
        """The site's keys."""
        return SiteKeys(bytes.fromhex(self.state.master), self.context)

    def public_keys(self) -> payloads.PublicKeys:
        """What the others need to know."""
        keys = self.keys
        return payloads.PublicKeys(
            rounds=tuple(keys.public_key(round_number).hex() for round_number in _TURNS),
            channel=keys.channel_public_key().hex(),
            signing=keys.signing_public_key().hex(),
        )

    def shared_secrets(self) -> tuple[dict[str, str], str]:
        """Shares of all rounds' secrets, sealed for each neighbour, and the share kept here."""
        holders = sorted(self.state.neighbours)
        texts = self._shares(len(holders) + 1)
        sealed = {
            name: self.keys.seal(
                text,
                to=bytes.fromhex(self.state.neighbours[name].channel),
                label=f"shares of {self.name} for {name}",
            ).hex()
            for name, text in zip(holders, texts, strict=False)
        }
        return sealed, texts[-1].hex()

    def opened(self, sealed: Mapping[str, str]) -> dict[str, str]:
        """What neighbours sealed for this site, by sender."""
        held = {}
        for sender, text in sealed.items():
            if sender not in self.state.neighbours:
                raise ProtocolError("Shares of a site that is no neighbour.", code="unknown-site")
            opened = self.keys.unseal(
                bytes.fromhex(text),
                sender=bytes.fromhex(self.state.neighbours[sender].channel),
                name=sender,
                label=f"shares of {sender} for {self.name}",
            )
            if 2 * len(opened) != 2 * _SHARE * payloads.MOST_ROUNDS:
                raise ProtocolError(f"{sender}: its shares are malformed.", code="malformed")
            held[sender] = opened.hex()
        return held

    def revealed(self, name: str, round_number: int, *, own: bool) -> str:
        """The held share of another site's own mask, or of its pair secret, for one round."""
        start = 2 * _SHARE * (round_number - 1) + (0 if own else _SHARE)
        return self.state.held[name][start : start + _SHARE]

    def mask(
        self, round_number: int, request_digest: str, parts: Sequence[masks.Part], message: Message
    ) -> masks.Integers:
        """The mask of this site's sums in a round; ``request_digest`` is of its request."""
        if self.kind == "none":
            return np.zeros(masks.total_size(parts), dtype=np.uint64)
        if self.kind == "helper":
            return self._helpers_mask(round_number, request_digest, parts, message)
        keys, facts = self.keys, self.state.facts(round_number, request_digest)
        pairs = [
            (
                keys.pair_key(
                    bytes.fromhex(other.rounds[round_number - 1]), facts, (self.name, name)
                ),
                self.name < name,
            )
            for name, other in sorted(self.state.neighbours.items())
        ]
        total = masks.pairwise_mask(pairs, parts, masks.STREAMS[self.kind])
        if self.dropouts:
            own = self_key(keys.self_seed(round_number), self.context, round_number)
            masks.add_uniform([(own, True)], parts, total)
        return total

    def said(self, survivors: str) -> bytes:
        """The statement of who took part in the last round, that this site received."""
        return statement(
            self.context,
            self.state.facts(self.state.round_number, self.state.request_digest),
            survivors,
        )

    def signature(self, survivors: str) -> str:
        """The site's signature of it."""
        return self.keys.sign(text_of(self.said(survivors), self.name)).hex()

    def _shares(self, holders: int) -> list[bytes]:
        """One text a holder: its shares of every round's two secrets."""
        keys, needed = self.keys, threshold(holders, self.collusion)
        texts = [b""] * holders
        for round_number in _TURNS:
            for secret in (keys.self_seed(round_number), keys.pair_seed(round_number)):
                shares = split_secret(secret, threshold=needed, holders=holders)
                texts = [text + share for text, share in zip(texts, shares, strict=True)]
        return texts

    def _helpers_mask(
        self, round_number: int, request_digest: str, parts: Sequence[masks.Part], message: Message
    ) -> masks.Integers:
        sealed = message.array(MASK, dtype="b1", shape=(8 * masks.total_size(parts) + 16,))
        if self.state.helper is None:
            raise ProtocolError("The helper's key is unknown.", code="out-of-order")
        text = self.keys.unseal(
            sealed.tobytes(),
            sender=bytes.fromhex(self.state.helper),
            name=HELPER,
            label=f"mask {round_number} {request_digest} for {self.name}",
        )
        return np.frombuffer(text, dtype="<u8").astype(np.uint64)


_TURNS = range(1, payloads.MOST_ROUNDS + 1)
