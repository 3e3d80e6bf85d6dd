"""A site's secrets for one session, and the keys that pairs of sites make of them.

Everything is derived (HKDF-SHA256) from one 32-byte master secret that never leaves the site, with
one label a use. Pairs agree once a session: either site seals a letter for the other's session key
(:mod:`eigenveil.federation.sealing`) with a half of their secret. A round has keys of its own, so
that what is revealed to repair one round shows nothing about another (docs/proofs/views.md,
claim 8).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from json.encoder import encode_basestring_ascii

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eigenveil.errors import ProtocolError
from eigenveil.federation.sealing import SEALED_MORE, SealingKey, encrypt_to

KEY_BYTES = 32
SECRET_BYTES = 16  # of what is shared among neighbours: Shamir's field has 128 bits
TAG_BYTES = 16
_SHA256 = SHA256()
_NONCE = bytes(12)  # every key encrypts one message only


@dataclass(frozen=True)
class Context:
    """Names a session: part of every derivation, so that no key serves two.

    ``members`` is the digest of the list of members, empty in one process.
    """

    study: str
    session: str
    members: str = ""

    def label(self, *use: str | int) -> bytes:
        """One use, stated in as many parts as it has: no two run together."""
        return f"{self._start}, {', '.join(map(_as_json, use))}]".encode()

    @cached_property
    def _start(self) -> str:
        return json.dumps(["eigenveil 2", self.members, self.study, self.session])[:-1]


def _as_json(part: str | int) -> str:
    return encode_basestring_ascii(part) if isinstance(part, str) else str(part)


@dataclass(frozen=True)
class RoundFacts:
    """What a site received about a round: part of the keys of its masks.

    Masks of two sites that received different statements do not cancel, so nobody can have one
    site's sum under other sites' lesser noise, or the sum of a few sites.
    """

    round_number: int
    request_digest: str  # Fingerprint of what was requested
    # Bitmaps (:func:`eigenveil.federation.secagg.consistency.bitmap`) of the sites among which
    # neighbours were chosen, and of those of them that can be lost
    joined: str
    members: str


def derive(secret: bytes, context: Context, *use: str | int, size: int = KEY_BYTES) -> bytes:
    info = context.label(*use)
    return HKDF(algorithm=_SHA256, length=size, salt=None, info=info).derive(secret)


class SiteKeys:
    """What one party can derive from its master secret."""

    def __init__(self, master: bytes, context: Context) -> None:
        self._master, self._context = master, context

    @staticmethod
    def new_master() -> bytes:
        return os.urandom(KEY_BYTES)

    @cached_property
    def sealing(self) -> SealingKey:
        """The session's key, for which others seal what only this party may read."""
        return SealingKey(derive(self._master, self._context, "sealing", size=96))

    def half(self, other: str) -> bytes:
        """Its half of the secret that it shares with another party."""
        return derive(self._master, self._context, "half", other)

    def repair_secret(self, round_number: int) -> bytes:
        """Opens a round's packet; revealed to the aggregator only if the site is lost."""
        return derive(self._master, self._context, "repair", round_number, size=SECRET_BYTES)

    def self_seed(self, round_number: int) -> bytes:
        """Seed of a round's own mask, revealed only if the site's message arrived."""
        return derive(self._master, self._context, "self", round_number, size=SECRET_BYTES)

    def letter(self, more: bytes, *, key: bytes, names: tuple[str, str]) -> bytes:
        """The half for another party, and ``more``, sealed for its session key.

        ``names`` are the sender's, this party's, and the other's.
        """
        text = self.half(names[1]) + more
        return encrypt_to(key, text, self._context.label("letter", *names))

    def opened(self, letter: bytes, *, names: tuple[str, str]) -> tuple[bytes, bytes]:
        """The sender's half, and what else was in the letter; ``names`` as the sender gave them."""
        try:
            text = self.sealing.decrypt(letter, self._context.label("letter", *names))
        except ProtocolError:
            raise bad_seal(names[0]) from None
        return text[:KEY_BYTES], text[KEY_BYTES:]

    def pair(self, other: str, half: bytes, *, own: str) -> bytes:
        """The secret shared with another party, whose half this is."""
        return pair_secret({other: half, own: self.half(other)}, self._context)


def letter_bytes(more: int = 0) -> int:
    """Bytes of a letter with so many bytes beside the half."""
    return KEY_BYTES + more + SEALED_MORE


def pair_secret(halves: Mapping[str, bytes], context: Context) -> bytes:
    """What two parties share, from both halves by name."""
    names = sorted(halves)
    return derive(b"".join(halves[name] for name in names), context, "pair", *names)


def round_key(pair: bytes, context: Context, round_number: int, names: tuple[str, str]) -> bytes:
    """A pair's key of one round: all of the pair's that the repair of this round shows."""
    return derive(pair, context, "round", round_number, *sorted(names))


def mask_key(key: bytes, context: Context, facts: RoundFacts, names: tuple[str, str]) -> bytes:
    """What a pair's mask is expanded from, by its round key, as a site received the round."""
    reported = facts.request_digest, facts.joined, facts.members
    return derive(key, context, "mask", facts.round_number, *reported, *sorted(names))


def self_key(self_seed: bytes, context: Context, round_number: int) -> bytes:
    return derive(self_seed, context, "self mask", round_number)


def lock(secret: bytes, text: bytes, context: Context, *use: str | int) -> bytes:
    """``text`` under a shared secret; a use is made once a secret."""
    return ChaCha20Poly1305(derive(secret, context, "lock", *use)).encrypt(_NONCE, text, None)


def unlock(secret: bytes, locked: bytes, context: Context, *use: str | int) -> bytes:
    """What :func:`lock` encrypted; InvalidTag where it is anything else."""
    key = derive(secret, context, "lock", *use)
    return ChaCha20Poly1305(key).decrypt(_NONCE, locked, None)


def split_secret(secret: bytes, *, threshold: int, holders: int) -> list[bytes]:
    """Shares of a 16-byte secret; any ``threshold`` of them give it back, fewer say nothing.

    Share j belongs to holder j, counted from 0 (Shamir 1979, over GF(2^128)).
    """
    if threshold == 1:  # every share is the secret
        return [secret] * holders
    return [share for _, share in Shamir.split(threshold, holders, secret)]


def join_secret(shares: Mapping[int, bytes], *, threshold: int) -> bytes:
    """The secret, from shares by holder number."""
    few = sorted(shares.items())[:threshold]
    if threshold == 1:
        return few[0][1]
    return bytes(Shamir.combine([(holder + 1, share) for holder, share in few]))


def bad_seal(name: str) -> ProtocolError:
    return ProtocolError("bad-seal", name=name)
