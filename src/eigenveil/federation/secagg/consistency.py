"""Consistency check: all sites sign who took part in a round before anything is unmasked.

The consistency check of secure aggregation against an aggregator that lies (Bonawitz et al. 2017,
figure 4, round 3; Bell et al. 2020): every site whose message is in a round's sum signs the set of
those sites, one set a round, and helps to take masks off only once it has seen so many signatures
on that very set that no other can have as many. docs/proofs/views.md has the proof.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.federation.secagg.keys import Context, RoundFacts
from eigenveil.federation.signed import Document

# -- The circulant graph of sites that share masks, and how many give a secret back.
#
# Site i is a neighbour of the next and the previous ``degree / 2`` on a ring. Of all graphs with
# this degree it is among the best connected (Harary 1962): whatever ``degree - 1`` sites are taken
# away, the others stay connected, so that masks hide every remaining site among all the remaining
# ones.


def neighbours(member: str, members: Sequence[str], degree: int) -> tuple[str, ...]:
    """Neighbours of a member in the order of ``members``; all others where the degree allows."""
    return _around(members.index(member), members, degree)


def graph(members: Sequence[str], degree: int) -> dict[str, tuple[str, ...]]:
    return {name: _around(place, members, degree) for place, name in enumerate(members)}


def _around(place: int, members: Sequence[str], degree: int) -> tuple[str, ...]:
    count, reach = len(members), (degree + 1) // 2
    if 2 * reach >= count - 1:
        return (*members[:place], *members[place + 1 :])
    places = {(place + step) % count for step in range(-reach, reach + 1)} - {place}
    return tuple(members[other] for other in sorted(places))


def threshold(holders: int, collusion: int) -> int:
    """Shares that give a secret back.

    So many that an aggregator and ``collusion`` holders, who tell it everything, cannot have both
    of a site's secrets of a round by telling the other holders different stories.
    """
    return (holders + collusion) // 2 + 1


def even(count: int) -> int:
    """The count, or the next even one: a ring has as many neighbours on either side."""
    return 2 * ((count + 1) // 2)


Table = NDArray[np.uint8]
# Raises where a text is not signed by the site of this name.
Verify = Callable[[bytes, bytes, str], None]


def bitmap(names: Sequence[str], members: Collection[str]) -> str:
    """Which of the study's sites are members: one bit a site, in the study's order, in hex."""
    chosen = set(members)
    return np.packbits([name in chosen for name in names]).tobytes().hex()


@lru_cache(32)
def members_of(names: tuple[str, ...], text: str) -> tuple[str, ...]:
    """The members that a bitmap names, in the study's order."""
    packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    bits = np.unpackbits(packed).astype(bool)
    if packed.size != -(-len(names) // 8) or bits[len(names) :].any():
        raise ProtocolError(
            "malformed", sender="The aggregator", what=f"list of {len(names)} sites"
        )
    return tuple(name for name, bit in zip(names, bits.tolist(), strict=False) if bit)


@lru_cache(32)
def set_of(names: tuple[str, ...], text: str) -> frozenset[str]:
    """The same, as a set."""
    return frozenset(members_of(names, text))


def statement(context: Context, facts: RoundFacts, survivors: str) -> bytes:
    """What is signed about a round, as SHA-256; ``survivors`` is a bitmap."""
    reported = facts.request_digest, facts.joined, facts.members
    said = context.label("survivors", facts.round_number, *reported, survivors)
    return hashlib.sha256(said).digest()


class Survivors(Document):
    """What a site signs of who took part in a round."""

    DOMAIN = "survivors 3"
    statement: str  # Its SHA-256, in hex
    site: str


def text_of(said: bytes, name: str) -> bytes:
    """The bytes that a site signs: a statement, and who makes it."""
    return Survivors(statement=said.hex(), site=name).text


def rows(values: Sequence[bytes], size: int) -> Table:
    """Texts of one size, one a row, as messages carry them."""
    return np.frombuffer(b"".join(values), dtype=np.uint8).reshape(len(values), size)


def check_signatures(
    said: bytes, signers: Sequence[str], signatures: Table, verify: Verify, needed: int
) -> None:
    """Enough sites have signed one and the same statement."""
    if len(set(signers)) < needed:
        raise ProtocolError("too-few-signatures", signed=len(set(signers)), needed=needed)
    for name, signature in zip(signers, signatures, strict=True):
        check_signature(said, name, signature.tobytes(), verify)


def check_signature(said: bytes, name: str, signature: bytes, verify: Verify) -> None:
    """A site has signed this statement; ProtocolError ``bad-signature``."""
    try:
        verify(text_of(said, name), signature, name)
    except ProtocolError as error:
        raise ProtocolError("bad-signature-of-sites", site=name, reason=error.message) from None
