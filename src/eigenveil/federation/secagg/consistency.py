"""Consistency check: all sites sign who took part in a round before anything is unmasked.

The consistency check of secure aggregation against an aggregator that lies (Bonawitz et al. 2017,
figure 4, round 3; Bell et al. 2020): every site whose message is in a round's sum signs the set of
those sites, one set a round, and helps to take masks off only once it has seen so many signatures
on that very set that no other can have as many. docs/proofs/views.md has the proof.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.federation.secagg.keys import SIGNATURE_BYTES, Context, RoundFacts, is_signed

KEY_BYTES = 32
Table = NDArray[np.uint8]


def bitmap(names: Sequence[str], members: Collection[str]) -> str:
    """Which of the study's sites are members: one bit a site, in the study's order, in hex."""
    chosen = set(members)
    return np.packbits([name in chosen for name in names]).tobytes().hex()


def members_of(names: Sequence[str], text: str) -> tuple[str, ...]:
    """The members that a bitmap names, in the study's order.

    Raises
    ------
    ProtocolError
        When it is none of so many sites.
    """
    packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    bits = np.unpackbits(packed).astype(bool)
    if packed.size != -(-len(names) // 8) or bits[len(names) :].any():
        raise ProtocolError(
            f"A list of sites is not one of {len(names)}.",
            hint="It is refused; check that all parties have the same study file.",
            code="malformed",
        )
    return tuple(name for name, bit in zip(names, bits.tolist(), strict=False) if bit)


def statement(context: Context, facts: RoundFacts, survivors: str) -> bytes:
    """What is signed about a round, as SHA-256; ``survivors`` is a bitmap."""
    said = [context.study, context.session, facts.round_number, facts.request_digest]
    said += [facts.joined, facts.members, survivors]
    return hashlib.sha256(json.dumps(["eigenveil survivors 1", *said]).encode()).digest()


def text_of(said: bytes, name: str) -> bytes:
    """The bytes that a site signs: a statement, and who makes it."""
    return b"eigenveil survivors 1" + said + name.encode()


def rows(values: Mapping[str, bytes], names: Sequence[str], size: int) -> Table:
    """Keys or signatures of these sites, one a row, as messages carry them."""
    joined = b"".join(values[name] for name in names)
    return np.frombuffer(joined, dtype=np.uint8).reshape(len(names), size)


def check_signatures(
    said: bytes, signers: Sequence[str], signatures: Table, keys: Mapping[str, bytes], needed: int
) -> None:
    """Enough sites have signed one and the same statement.

    Parameters
    ----------
    said : bytes
        The statement.
    signers : sequence of str
        Who signed, each once, in the order of ``signatures``, shape (signers, 64).
    keys : mapping
        The sites' Ed25519 keys.
    needed : int
        So many that two statements about one round cannot both have them.

    Raises
    ------
    ProtocolError
        ``too-few-signatures``, or ``bad-signature`` naming the site.
    """
    if len(set(signers)) < needed:
        raise ProtocolError(
            f"{len(set(signers))} sites have signed who took part in the round; {needed} must.",
            hint="Nothing is unmasked; run the study again when the sites can be reached.",
            code="too-few-signatures",
        )
    for name, signature in zip(signers, signatures, strict=True):
        check_signature(said, name, signature.tobytes(), keys.get(name, b""))


def check_signature(said: bytes, name: str, signature: bytes, key: bytes) -> None:
    """A site has signed this statement.

    Raises
    ------
    ProtocolError
        ``bad-signature``.
    """
    if not is_signed(text_of(said, name), key, signature):
        raise ProtocolError(
            f"{name}: its signature of who took part in the round does not hold.",
            hint="Nothing is unmasked; either it received something else, or somebody changed it.",
            code="bad-signature",
        )


__all__ = [
    "KEY_BYTES",
    "SIGNATURE_BYTES",
    "Table",
    "bitmap",
    "check_signature",
    "check_signatures",
    "members_of",
    "rows",
    "statement",
    "text_of",
]
