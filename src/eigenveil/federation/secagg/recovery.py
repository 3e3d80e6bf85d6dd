"""Taking off the masks that a lost site leaves behind (Bonawitz et al. 2017).

Of a site whose message arrived its own mask is taken off, of a lost one the pair masks that its
neighbours added. Never both: what is revealed of one kind makes the other worthless, so a message
that comes late stays hidden for good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import Message
from eigenveil.federation.protocol.requests import SMALL, Call, Replies, Requests
from eigenveil.federation.secagg import masks
from eigenveil.federation.secagg.consistency import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Table,
    bitmap,
    check_signature,
    rows,
    statement,
)
from eigenveil.federation.secagg.keys import Context, RoundFacts, join_secret, pair_key, self_key
from eigenveil.federation.secagg.masks import threshold
from eigenveil.federation.study.study import Study


class MaskRecovery:
    """Collects shares of one round until the masks that are left can be computed.

    Parameters
    ----------
    facts : RoundFacts
        What all sites received.
    holders : mapping
        Who holds shares of each site's secrets, beside itself.
    near : mapping
        Those of them that masks were made with.
    keys : mapping
        Their public keys.
    """

    def __init__(
        self,
        context: Context,
        facts: RoundFacts,
        *,
        arrived: Sequence[str],
        holders: Mapping[str, tuple[str, ...]],
        near: Mapping[str, tuple[str, ...]],
        keys: Mapping[str, payloads.PublicKeys],
        collusion: int,
    ) -> None:
        self._context, self._facts, self._keys = context, facts, keys
        self._near = near
        self._holders = {name: [*sorted(held), name] for name, held in holders.items()}
        self._arrived = set(arrived)
        self._collusion = collusion
        self._shares: dict[str, dict[int, bytes]] = defaultdict(dict)

    def question(self, holder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of the sites whose shares ``holder`` has: who arrived, and who is lost."""
        request_digest = sorted({holder, *self._near[holder]})
        own = tuple(name for name in request_digest if name in self._arrived)
        return own, tuple(name for name in request_digest if name not in self._arrived)

    def take(self, holder: str, reply: payloads.UnmaskReply) -> None:
        """Note a holder's shares.

        Raises
        ------
        ProtocolError
            When they are not those that were requested.
        """
        own, lost = self.question(holder)
        if set(reply.own) != set(own) or set(reply.pair) != set(lost):
            raise ProtocolError(f"{holder}: it gave other shares than requested.", code="malformed")
        for name, share in (reply.own | reply.pair).items():
            place = self._holders[name].index(holder)
            self._shares[name][place] = bytes.fromhex(share)

    def leftover(self, parts: Sequence[masks.Part]) -> masks.Integers:
        """The masks left in the sum of those who arrived.

        Raises
        ------
        ProtocolError
            When too few holders have answered.
        """
        left: list[tuple[bytes, bool]] = []
        for name in self._near:
            if name in self._arrived:
                left.append(
                    (self_key(self._secret(name), self._context, self._facts.round_number), True)
                )
            else:
                left += self._pair_masks(name)
        return masks.pairwise_mask(left, parts, masks.add_uniform)

    def _pair_masks(self, lost: str) -> list[tuple[bytes, bool]]:
        """What the neighbours of a lost site added to their messages for it."""
        others = [name for name in self._near[lost] if name in self._arrived]
        if not others:
            return []
        secret, round_number = self._secret(lost), self._facts.round_number
        public = {name: bytes.fromhex(self._keys[name].rounds[round_number - 1]) for name in others}
        return [
            (pair_key(secret, public[name], self._context, self._facts, (lost, name)), name < lost)
            for name in others
        ]

    def _secret(self, name: str) -> bytes:
        needed = threshold(len(self._holders[name]), self._collusion)
        shares = self._shares[name]
        if len(shares) < needed:
            raise ProtocolError(
                f"Only {len(shares)} sites can help to take off a mask of site {name}; "
                f"{needed} are needed.",
                hint="Run the study again; allow for more dropouts if sites are often lost.",
                code="too-few-sites",
            )
        return join_secret(shares, threshold=needed)


# -- How the aggregator gets a round's sum where sites may be lost: signatures first, then shares.
#
# First every site whose message arrived signs the set of those sites; then each is shown enough of
# the signatures, and helps to take off what masks are left (Bonawitz et al. 2017, rounds 3 and 4).


Neighbours = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Mending:
    """The aggregator's part of it, in one session.

    Attributes
    ----------
    study : Study
    calls : Asking
    keys : mapping
        Of all sites that take part, in the study's order.
    """

    study: Study
    calls: Requests
    keys: Mapping[str, payloads.PublicKeys]

    def signers(self) -> dict[str, Table]:
        """The signing keys of all that take part, as an array of a message."""
        signing = {name: bytes.fromhex(keys.signing) for name, keys in self.keys.items()}
        return {"signers": rows(signing, list(signing), KEY_BYTES)}

    def proofs(self) -> dict[str, payloads.SignerProof]:
        """Whose these are, where sites have identities."""
        return {
            name: payloads.SignerProof(digest=keys.digest(), proof=keys.proof)
            for name, keys in self.keys.items()
            if keys.proof is not None
        }

    def leftover(
        self,
        facts: RoundFacts,
        arrived: Sequence[str],
        parts: Sequence[masks.Part],
        *,
        holders: Neighbours,
        near: Neighbours,
    ) -> Generator[Call, Replies, masks.Integers]:
        """What masks are left in the sum of those who arrived.

        Parameters
        ----------
        holders, near : mapping
            As :class:`eigenveil.federation.secagg.recovery.MaskRecovery` has them.

        Raises
        ------
        ProtocolError
            ``too-few-sites`` when too few sign, or help.
        """
        signatures = yield from self._signatures(facts, arrived)
        work = MaskRecovery(
            self.calls.context,
            facts,
            arrived=arrived,
            holders=holders,
            near=near,
            keys=self.keys,
            collusion=self.study.collusion,
        )
        step, names = f"unmask {facts.round_number}", self.study.names
        shown = [name for name in names if name in signatures][: self.study.signatures]
        body = payloads.UnmaskRequest(round_number=facts.round_number, signed=bitmap(names, shown))
        arrays = {**self.signers(), "signatures": rows(signatures, shown, SIGNATURE_BYTES)}

        def take(name: str, reply: Message) -> None:
            work.take(name, reply.read(payloads.UnmaskReply))

        same = self.calls.same(step, body, arrays)
        yield from self.calls.query(step, list(signatures), same, take, SMALL)
        return work.leftover(parts)

    def _signatures(
        self, facts: RoundFacts, arrived: Sequence[str]
    ) -> Generator[Call, Replies, dict[str, bytes]]:
        """Signatures of who arrived, by those who did."""
        survivors = bitmap(self.study.names, arrived)
        said = statement(self.calls.context, facts, survivors)
        step, signed = f"survivors {facts.round_number}", dict[str, bytes]()

        def take(name: str, reply: Message) -> None:
            signature = bytes.fromhex(reply.read(payloads.SurvivorsReply).signature)
            check_signature(said, name, signature, bytes.fromhex(self.keys[name].signing))
            signed[name] = signature

        body = payloads.SurvivorsRequest(round_number=facts.round_number, survivors=survivors)
        yield from self.calls.query(step, arrived, self.calls.same(step, body), take, SMALL)
        if len(signed) < self.study.signatures:
            raise self.calls.too_few(
                f"In step {step!r} {len(signed)} of the {self.study.signatures} sites that must "
                "have signed who took part"
            )
        return signed
