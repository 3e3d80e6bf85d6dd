"""Taking off the masks that a lost site leaves behind (Bonawitz et al. 2017).

Of a site whose message arrived its own mask is taken off, of a lost one the pair masks that its
neighbours added. Never both: what is revealed of one kind makes the other worthless, so a message
that comes late stays hidden for good.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from eigenveil.errors import ProtocolError
from eigenveil.federation import bodies, masks
from eigenveil.federation.graph import threshold
from eigenveil.federation.keys import Context, RoundFacts, join_secret, pair_key, self_key


class Unmasking:
    """Collects shares of one round until the masks that are left can be computed.

    Parameters
    ----------
    facts : RoundFacts
        What all sites were told.
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
        keys: Mapping[str, bodies.PublicKeys],
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
        about = sorted({holder, *self._near[holder]})
        own = tuple(name for name in about if name in self._arrived)
        return own, tuple(name for name in about if name not in self._arrived)

    def take(self, holder: str, reply: bodies.UnmaskReply) -> None:
        """Note a holder's shares.

        Raises
        ------
        ProtocolError
            When they are not those that were asked for.
        """
        own, lost = self.question(holder)
        if set(reply.own) != set(own) or set(reply.pair) != set(lost):
            raise ProtocolError(f"{holder}: it gave other shares than asked for.", code="malformed")
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
                left.append((self_key(self._secret(name), self._context, self._facts.turn), True))
            else:
                left += self._pair_masks(name)
        return masks.pairwise_mask(left, parts, masks.add_uniform)

    def _pair_masks(self, lost: str) -> list[tuple[bytes, bool]]:
        """What the neighbours of a lost site added to their messages for it."""
        others = [name for name in self._near[lost] if name in self._arrived]
        if not others:
            return []
        secret, turn = self._secret(lost), self._facts.turn
        public = {name: bytes.fromhex(self._keys[name].rounds[turn - 1]) for name in others}
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
