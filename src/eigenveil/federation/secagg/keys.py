"""A site's secrets for one session, and the keys that pairs of sites make of them.

Everything is derived (HKDF-SHA256) from one 32-byte master secret that never leaves the site, with
one label a use. A round has keys of its own, so that what is revealed to repair one round shows
nothing about another. X25519 keys (RFC 7748) agree on pairwise keys; shares travel encrypted and
authenticated (ChaCha20-Poly1305) between the two sites they concern; an Ed25519 key signs.

X25519 takes several byte strings for one point, and points that differ by one of small order
derive the same secrets. So a key counts only as its one canonical encoding, and two keys are
compared by what they derive (:func:`point_of`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eigenveil.errors import ProtocolError

SECRET_BYTES = 16  # of what is shared among neighbours: Shamir's field has 128 bits
SIGNATURE_BYTES = 64
_NONCE = bytes(12)  # every key encrypts one message only
_PRIME = 2**255 - 19
# Every clamped secret is 8 times a number; that of this one is no multiple of a subgroup's order.
_PROBE = X25519PrivateKey.from_private_bytes(b"eigenveil compares points by it.")
# Keys whose points are remembered, and signatures found good: those of some thousand sites.
_REMEMBERED = 1 << 14


@dataclass(frozen=True)
class Context:
    """Names a session: part of every derivation, so that no key serves two."""

    study: str
    session: str


@dataclass(frozen=True)
class RoundFacts:
    """What a site received about a round: part of the keys of its masks.

    Masks of two sites that received different statements do not cancel, so nobody can have one
    site's sum under other sites' lesser noise, or the sum of a few sites.

    Attributes
    ----------
    round_number : int
        The round.
    request_digest : str
        Fingerprint of what was requested.
    joined, members : str
        Bitmaps (:func:`eigenveil.federation.secagg.consistency.bitmap`) of the sites among which
        neighbours were chosen, and of those of them whose shares were passed on.
    """

    round_number: int
    request_digest: str
    joined: str
    members: str


def derive(secret: bytes, context: Context, *use: str | int, size: int = 32) -> bytes:
    """A key for one use, which is stated in as many parts as it has: no two run together."""
    info = json.dumps(["eigenveil 1", context.study, context.session, *use]).encode()
    return HKDF(algorithm=SHA256(), length=size, salt=None, info=info).derive(secret)


@lru_cache(_REMEMBERED)
def point_of(key: bytes) -> bytes:
    """What distinguishes public keys: the same for two that any secret derives the same from.

    And for no others: clamped secrets are multiples of 8, so a point of small order, added to
    another, changes nothing; points that differ otherwise derive different secrets (RFC 7748).

    Raises
    ------
    ProtocolError
        ``bad-key`` for what is no canonical encoding (32 bytes, little-endian, below 2^255 - 19),
        and for points of small order, with which every secret derives zero.
    """
    if len(key) != 32 or int.from_bytes(key, "little") >= _PRIME:
        raise _bad_key()
    try:
        derived = _PROBE.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        raise _bad_key() from None
    if not any(derived):
        raise _bad_key()
    return derived


@lru_cache(_REMEMBERED)
def is_signed(text: bytes, key: bytes, signature: bytes) -> bool:
    """Whether the holder of an Ed25519 key has signed a text."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


class SiteKeys:
    """What one site can derive from its master secret."""

    def __init__(self, master: bytes, context: Context) -> None:
        self._master, self._context = master, context
        self._pairs: dict[int, X25519PrivateKey] = {}

    @staticmethod
    def new_master() -> bytes:
        """Fresh entropy of the operating system."""
        return os.urandom(32)

    def pair_seed(self, round_number: int) -> bytes:
        """Secret of a round's key pair, revealed to the aggregator only if the site is lost."""
        return derive(self._master, self._context, "pair", round_number, size=SECRET_BYTES)

    def self_seed(self, round_number: int) -> bytes:
        """Secret of a round's own mask, revealed only if the site's message arrived."""
        return derive(self._master, self._context, "self", round_number, size=SECRET_BYTES)

    def public_key(self, round_number: int) -> bytes:
        """Public key of a round."""
        return _public(_private(self.pair_seed(round_number), self._context))

    def channel_public_key(self) -> bytes:
        """Public key under which others encrypt what only this site may read."""
        return _public(self._channel())

    def signing_public_key(self) -> bytes:
        """Ed25519 public key under which the site's signatures of this session are checked."""
        return self._signing().public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        """The site's signature."""
        return self._signing().sign(text)

    def pair_key(self, other: bytes, facts: RoundFacts, names: tuple[str, str]) -> bytes:
        """The key shared with the holder of a round's public key ``other``."""
        own = self._pairs.get(facts.round_number)
        if own is None:  # the same for all neighbours of a round
            own = self._pairs[facts.round_number] = _private(
                self.pair_seed(facts.round_number), self._context
            )
        return _pair_key(own, other, self._context, facts, names)

    def seal(self, text: bytes, *, to: bytes, label: str) -> bytes:
        """``text`` for the holder of channel key ``to`` alone; a label is used once a pair."""
        return ChaCha20Poly1305(self._channel_key(to, label)).encrypt(_NONCE, text, None)

    def unseal(self, sealed: bytes, *, sender: bytes, name: str, label: str) -> bytes:
        """What :meth:`seal` encrypted.

        Raises
        ------
        ProtocolError
            When it was not made by the holder of ``sender`` for this site under this label.
        """
        try:
            return ChaCha20Poly1305(self._channel_key(sender, label)).decrypt(_NONCE, sealed, None)
        except InvalidTag:
            raise ProtocolError(
                f"{name}: what it sent under seal cannot be opened.",
                hint="It was changed on the way or made for another session; it is refused.",
                code="bad-seal",
            ) from None

    def _channel(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(derive(self._master, self._context, "channel"))

    def _channel_key(self, other: bytes, label: str) -> bytes:
        return derive(_agree(self._channel(), other), self._context, "channel", label)

    def _signing(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(derive(self._master, self._context, "signing"))


def pair_key(
    pair_seed: bytes, other: bytes, context: Context, facts: RoundFacts, names: tuple[str, str]
) -> bytes:
    """The key that the owner of ``pair_seed`` shares with the holder of ``other`` in a round.

    Parameters
    ----------
    facts : RoundFacts
        As the owner received it.
    names : tuple of str
        The two sites', in any order: whatever keys another site presents, under its own name it
        has no key of this pair.
    """
    return _pair_key(_private(pair_seed, context), other, context, facts, names)


def _pair_key(
    own: X25519PrivateKey, other: bytes, context: Context, facts: RoundFacts, names: tuple[str, str]
) -> bytes:
    shared = _agree(own, other)
    reported = facts.request_digest, facts.joined, facts.members
    return derive(shared, context, "mask", facts.round_number, *reported, *sorted(names))


def self_key(self_seed: bytes, context: Context, round_number: int) -> bytes:
    """The key of a site's own mask in a round."""
    return derive(self_seed, context, "self mask", round_number)


def split_secret(secret: bytes, *, threshold: int, holders: int) -> list[bytes]:
    """Shares of a 16-byte secret; any ``threshold`` of them give it back, fewer say nothing.

    Share j belongs to holder j, counted from 0 (Shamir 1979, over GF(2^128)).
    """
    if threshold == 1:  # every share is the secret
        return [secret] * holders
    return [share for _, share in Shamir.split(threshold, holders, secret)]


def join_secret(shares: dict[int, bytes], *, threshold: int) -> bytes:
    """The secret, from shares by holder number."""
    few = sorted(shares.items())[:threshold]
    if threshold == 1:
        return few[0][1]
    return bytes(Shamir.combine([(holder + 1, share) for holder, share in few]))


def _private(pair_seed: bytes, context: Context) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(derive(pair_seed, context, "private"))


def _public(private: X25519PrivateKey) -> bytes:
    return private.public_key().public_bytes_raw()


def _agree(private: X25519PrivateKey, other: bytes) -> bytes:
    point_of(other)  # refuses what is no key
    return private.exchange(X25519PublicKey.from_public_bytes(other))


def _bad_key() -> ProtocolError:
    return ProtocolError(
        "A public key that is not one was received.",
        hint="It is refused; check the software of the party that sent it.",
        code="bad-key",
    )
