"""Sealing a text for one party: hybrid HPKE of ML-KEM-768 and X25519.

What is recorded today stays sealed when there are quantum computers, and as long as X25519 holds it
stays sealed even if ML-KEM falls.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from eigenveil.errors import ProtocolError

SEALING_BYTES = 1216
"""Of a public key: 1,184 of ML-KEM-768, then 32 of X25519."""
SEALED_MORE = 1136
"""Bytes that a sealed text is longer: what encapsulates its key, and 16 that show changes."""
_KEM, _RAW = 1184, 96
_PRIME = 2**255 - 19
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
# Every clamped secret is 8 times a number; that of this one is no multiple of a subgroup's order.
_PROBE = X25519PrivateKey.from_private_bytes(b"eigenveil compares points by it.")


@dataclass(frozen=True, repr=False)
class SealingKey:
    """A private key: 64 bytes of seed for ML-KEM-768, then 32 of X25519."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != _RAW:
            raise bad_key("it has another length")

    @classmethod
    def generate(cls) -> SealingKey:
        return cls(os.urandom(_RAW))

    @cached_property
    def public(self) -> bytes:
        """What others seal for: 1,216 bytes."""
        kem, x25519 = self.halves
        return kem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.public).hexdigest()

    def decrypt(self, sealed: bytes, info: bytes) -> bytes:
        """What was sealed for this key with the same ``info``."""
        try:
            return _SUITE.decrypt(sealed, self._private, info=info)
        except (InvalidTag, ValueError):
            raise ProtocolError("seal-broken") from None

    @cached_property
    def halves(self) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
        seed, scalar = self.raw[:64], self.raw[64:]
        kem = MLKEM768PrivateKey.from_seed_bytes(seed)
        return kem, X25519PrivateKey.from_private_bytes(scalar)

    @cached_property
    def _private(self) -> MLKEM768X25519PrivateKey:
        return MLKEM768X25519PrivateKey(*self.halves)


def encrypt_to(public: bytes, text: bytes, info: bytes) -> bytes:
    """A text that only the holder of a key's private half opens, and only with this ``info``."""
    return _SUITE.encrypt(text, _sealing_key(public), info=info)


def check_sealing(public: bytes) -> None:
    """Raise where a public key is none, or one of the encodings that are not canonical."""
    _sealing_key(public)


@lru_cache(256)
def _sealing_key(public: bytes) -> MLKEM768X25519PublicKey:
    if len(public) != SEALING_BYTES:
        raise bad_key("it has another length")
    point_of(public[_KEM:])
    try:  # the library refuses coefficients that are not reduced
        kem = MLKEM768PublicKey.from_public_bytes(public[:_KEM])
    except ValueError:
        raise bad_key("its ML-KEM part is not canonical") from None
    return MLKEM768X25519PublicKey(kem, X25519PublicKey.from_public_bytes(public[_KEM:]))


def point_of(key: bytes) -> bytes:
    """What distinguishes X25519 keys: the same for two that any secret derives the same from.

    Clamped secrets are multiples of 8, so a point of small order, added to another, changes
    nothing; points that differ otherwise derive different secrets (RFC 7748). What is no canonical
    encoding, and points of small order, with which every secret derives zero, are refused.
    """
    if len(key) != 32 or int.from_bytes(key, "little") >= _PRIME:
        raise bad_key("its encoding is not canonical")
    try:
        derived = _PROBE.exchange(X25519PublicKey.from_public_bytes(key))
    except ValueError:
        raise bad_key("it is of small order") from None
    if not any(derived):
        raise bad_key("it is of small order")
    return derived


def bad_key(why: str) -> ProtocolError:
    return ProtocolError("bad-public-key", why=why)
