"""A site's secrets for one session, and the keys that pairs of sites make of them.

Everything is derived (HKDF-SHA256) from one 32-byte master secret that never leaves the site, with
one label a use. A round has keys of its own, so that what is revealed to mend one round says
nothing about another. Curve25519 keys agree on pairwise keys; shares travel encrypted and
authenticated (ChaCha20-Poly1305) between the two sites they concern.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from eigenveil.errors import ProtocolError

SECRET_BYTES = 16  # of what is shared among neighbours: Shamir's field has 128 bits
_NONCE = bytes(12)  # every key encrypts one message only


@dataclass(frozen=True)
class Context:
    """Names a session: part of every derivation, so that no key serves two."""

    study: str
    session: str


def derive(secret: bytes, context: Context, label: str, size: int = 32) -> bytes:
    """A key for one use."""
    info = json.dumps(["eigenveil 1", context.study, context.session, label]).encode()
    return HKDF(algorithm=SHA256(), length=size, salt=None, info=info).derive(secret)


class SiteKeys:
    """What one site can derive from its master secret."""

    def __init__(self, master: bytes, context: Context) -> None:
        self._master, self._context = master, context

    @staticmethod
    def new_master() -> bytes:
        """Fresh entropy of the operating system."""
        return os.urandom(32)

    def pair_seed(self, turn: int) -> bytes:
        """Secret of a round's key pair, revealed to the aggregator only if the site is lost."""
        return derive(self._master, self._context, f"pair {turn}", SECRET_BYTES)

    def self_seed(self, turn: int) -> bytes:
        """Secret of a round's own mask, revealed only if the site's message arrived."""
        return derive(self._master, self._context, f"self {turn}", SECRET_BYTES)

    def public_key(self, turn: int) -> bytes:
        """Public key of a round."""
        return _public(_private(self.pair_seed(turn), self._context))

    def channel_public_key(self) -> bytes:
        """Public key under which others encrypt what only this site may read."""
        return _public(self._channel())

    def pair_key(self, turn: int, other: bytes, about: str) -> bytes:
        """The key shared with the holder of a round's public key ``other``."""
        return pair_key(self.pair_seed(turn), other, self._context, turn, about)

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
        return derive(_agree(self._channel(), other), self._context, f"channel {label}")


def pair_key(pair_seed: bytes, other: bytes, context: Context, turn: int, about: str) -> bytes:
    """The key that the owner of ``pair_seed`` shares with the holder of ``other`` in a round.

    ``about`` is the fingerprint of what was asked: masks of two sites that were asked different
    things do not cancel, so nobody can have one site's sum under other sites' lesser noise.
    """
    return derive(_agree(_private(pair_seed, context), other), context, f"mask {turn} {about}")


def self_key(self_seed: bytes, context: Context, turn: int) -> bytes:
    """The key of a site's own mask in a round."""
    return derive(self_seed, context, f"self mask {turn}")


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
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:  # wrong length, or a point of small order
        raise ProtocolError(
            "A public key that is not one was received.",
            hint="It is refused; check the software of the party that sent it.",
            code="bad-key",
        ) from None
