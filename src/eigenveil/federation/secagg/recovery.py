"""Taking off the masks that a lost site leaves behind (Bonawitz et al. 2017).

Of a site whose message arrived its own mask is taken off, of a lost one the pair masks that its
neighbours added. Never both: what is revealed of one kind makes the other worthless, so a message
that comes late stays hidden for good.

First every site whose message arrived signs the set of those sites; then each is shown enough of
the signatures, and helps to take off what masks are left (rounds 3 and 4 there).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag

from eigenveil.errors import ProtocolError
from eigenveil.federation.masks import MODULAR, Integers, Part
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.protocol.requests import SMALL, Call, Replies, Requests
from eigenveil.federation.public_key import SIGNATURE_BYTES
from eigenveil.federation.secagg.consistency import (
    Verify,
    bitmap,
    check_signature,
    rows,
    statement,
    threshold,
)
from eigenveil.federation.secagg.keys import (
    KEY_BYTES,
    Context,
    RoundFacts,
    join_secret,
    mask_key,
    self_key,
    unlock,
)
from eigenveil.federation.study.study import Study

Neighbours = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Agreement:
    """What the aggregator knows of the pairs of a session."""

    holders: Neighbours  # Who holds shares of each site's secrets, beside itself
    near: Neighbours  # Those of them that masks are made with
    paired: Neighbours  # Those of them whose round keys are in its packets, by name
    packets: Mapping[str, Sequence[bytes]]  # Of each site, one a round


class MaskRecovery:
    """Collects shares of one round until the masks that are left can be computed."""

    def __init__(
        self,
        context: Context,
        facts: RoundFacts,
        agreement: Agreement,
        *,
        arrived: Sequence[str],
        collusion: int,
    ) -> None:
        self._context, self._facts, self._agreement = context, facts, agreement
        self._holders = {name: [*sorted(held), name] for name, held in agreement.holders.items()}
        self._arrived = set(arrived)
        self._collusion = collusion
        self._shares: dict[str, dict[int, bytes]] = defaultdict(dict)

    def asked_about(self, holder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of the sites whose shares ``holder`` has: who arrived, and who is lost."""
        mates = sorted({holder, *self._agreement.near[holder]})
        own = tuple(name for name in mates if name in self._arrived)
        return own, tuple(name for name in mates if name not in self._arrived)

    def take(self, holder: str, reply: payloads.UnmaskReply) -> None:
        """Note a holder's shares; ProtocolError when they are not those that were requested."""
        own, lost = self.asked_about(holder)
        if set(reply.own) != set(own) or set(reply.repair) != set(lost):
            raise ProtocolError("malformed", sender=holder, what="list of shares")
        for name, share in (reply.own | reply.repair).items():
            place = self._holders[name].index(holder)
            self._shares[name][place] = bytes.fromhex(share)

    def leftover(self, parts: Sequence[Part]) -> Integers:
        """The masks left in the sum of those who arrived; ProtocolError ``too-few-for-mask``."""
        left: list[tuple[bytes, bool]] = []
        for name in self._agreement.near:
            if name in self._arrived:
                seed = self._secret(name)
                left.append((self_key(seed, self._context, self._facts.round_number), True))
            else:
                left += self._pair_masks(name)
        return MODULAR.expanded(left, parts)

    def _pair_masks(self, lost: str) -> list[tuple[bytes, bool]]:
        """What the neighbours of a lost site added to their messages for it."""
        others = [name for name in self._agreement.near[lost] if name in self._arrived]
        if not others:
            return []
        keys = self._round_keys(lost)
        return [
            (mask_key(keys[name], self._context, self._facts, (lost, name)), name < lost)
            for name in others
        ]

    def _round_keys(self, lost: str) -> dict[str, bytes]:
        """A lost site's keys of this round, of all its pairs, from its packet."""
        turn, names = self._facts.round_number, self._agreement.paired[lost]
        secret, packet = self._secret(lost), self._agreement.packets[lost][turn - 1]
        try:
            text = unlock(secret, packet, self._context, "packet", turn, lost)
        except InvalidTag:
            raise ProtocolError("bad-repair", lost=lost) from None
        return {n: text[KEY_BYTES * i : KEY_BYTES * (i + 1)] for i, n in enumerate(names)}

    def _secret(self, name: str) -> bytes:
        needed = threshold(len(self._holders[name]), self._collusion)
        shares = self._shares[name]
        if len(shares) < needed:
            raise ProtocolError("too-few-for-mask", helpers=len(shares), site=name, needed=needed)
        return join_secret(shares, threshold=needed)


@dataclass(frozen=True)
class Mending:
    """How the aggregator gets a round's sum where sites may be lost, in one session."""

    study: Study
    calls: Requests
    agreement: Agreement
    # By the keys of the list of members; in one process nobody's signature is looked at twice
    verify: Verify | None

    def leftover(
        self, facts: RoundFacts, arrived: Sequence[str], parts: Sequence[Part]
    ) -> Generator[Call, Replies, Integers]:
        signatures = yield from self._signatures(facts, arrived)
        work = MaskRecovery(
            self.calls.context,
            facts,
            self.agreement,
            arrived=arrived,
            collusion=self.study.collusion,
        )
        step, names = f"unmask {facts.round_number}", self.study.names
        shown = [name for name in names if name in signatures][: self.study.signatures]
        body = payloads.UnmaskRequest(round_number=facts.round_number, signed=bitmap(names, shown))
        table = rows([signatures[name] for name in shown], SIGNATURE_BYTES)

        def take(name: str, reply: Message) -> None:
            work.take(name, reply.read(payloads.UnmaskReply))

        arrays = {"signatures": table}
        yield from self.calls.ask(step, list(signatures), body, take, SMALL, arrays=arrays)
        return work.leftover(parts)

    def _signatures(
        self, facts: RoundFacts, arrived: Sequence[str]
    ) -> Generator[Call, Replies, dict[str, bytes]]:
        survivors = bitmap(self.study.names, arrived)
        said = statement(self.calls.context, facts, survivors)
        step, signed = f"survivors {facts.round_number}", dict[str, bytes]()

        def take(name: str, reply: Message) -> None:
            signature = bytes.fromhex(reply.read(payloads.SurvivorsReply).signature)
            if self.verify is not None:
                check_signature(said, name, signature, self.verify)
            signed[name] = signature

        body = payloads.SurvivorsRequest(round_number=facts.round_number, survivors=survivors)
        yield from self.calls.ask(step, arrived, body, take, SMALL)
        if len(signed) < self.study.signatures:
            raise self.calls.too_few(
                f"In step {step!r} {len(signed)} of the {self.study.signatures} sites that must "
                "have signed who took part"
            )
        return signed
