"""How the aggregator gets a round's sum where sites may be lost: signatures first, then shares.

First every site whose message arrived signs the set of those sites; then each is shown enough of
the signatures, and helps to take off what masks are left (Bonawitz et al. 2017, rounds 3 and 4).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from eigenveil.federation import bodies, masks
from eigenveil.federation.asking import SMALL, Asking
from eigenveil.federation.consistency import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Table,
    bitmap,
    check_signature,
    rows,
    statement,
)
from eigenveil.federation.keys import RoundFacts
from eigenveil.federation.messages import Message
from eigenveil.federation.study import Study
from eigenveil.federation.transport import Call, Replies
from eigenveil.federation.unmasking import Unmasking

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
    calls: Asking
    keys: Mapping[str, bodies.PublicKeys]

    def signers(self) -> dict[str, Table]:
        """The signing keys of all that take part, as an array of a message."""
        signing = {name: bytes.fromhex(keys.signing) for name, keys in self.keys.items()}
        return {"signers": rows(signing, list(signing), KEY_BYTES)}

    def proofs(self) -> dict[str, bodies.SignerProof]:
        """Whose these are, where sites have identities."""
        return {
            name: bodies.SignerProof(digest=keys.digest(), proof=keys.proof)
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
            As :class:`eigenveil.federation.unmasking.Unmasking` has them.

        Raises
        ------
        ProtocolError
            ``too-few-sites`` when too few sign, or help.
        """
        signatures = yield from self._signatures(facts, arrived)
        work = Unmasking(
            self.calls.context,
            facts,
            arrived=arrived,
            holders=holders,
            near=near,
            keys=self.keys,
            collusion=self.study.collusion,
        )
        step, names = f"unmask {facts.turn}", self.study.names
        shown = [name for name in names if name in signatures][: self.study.signatures]
        body = bodies.UnmaskRequest(turn=facts.turn, signed=bitmap(names, shown))
        arrays = {**self.signers(), "signatures": rows(signatures, shown, SIGNATURE_BYTES)}

        def take(name: str, reply: Message) -> None:
            work.take(name, reply.read(bodies.UnmaskReply))

        same = self.calls.same(step, body, arrays)
        yield from self.calls.ask(step, list(signatures), same, take, SMALL)
        return work.leftover(parts)

    def _signatures(
        self, facts: RoundFacts, arrived: Sequence[str]
    ) -> Generator[Call, Replies, dict[str, bytes]]:
        """Signatures of who arrived, by those who did."""
        survivors = bitmap(self.study.names, arrived)
        said = statement(self.calls.context, facts, survivors)
        step, signed = f"survivors {facts.turn}", dict[str, bytes]()

        def take(name: str, reply: Message) -> None:
            signature = bytes.fromhex(reply.read(bodies.SurvivorsReply).signature)
            check_signature(said, name, signature, bytes.fromhex(self.keys[name].signing))
            signed[name] = signature

        body = bodies.SurvivorsRequest(turn=facts.turn, survivors=survivors)
        yield from self.calls.ask(step, arrived, self.calls.same(step, body), take, SMALL)
        if len(signed) < self.study.signatures:
            raise self.calls.too_few(
                f"In step {step!r} {len(signed)} of the {self.study.signatures} sites that must "
                "have signed who took part"
            )
        return signed
