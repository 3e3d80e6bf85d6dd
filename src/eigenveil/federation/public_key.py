"""Public keys that sign, as a line of text; and what signs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from eigenveil.federation.sealing import bad_key, point_of

SIGNATURE_BYTES = 64
"""Of either kind of key."""
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_PRIME = 2**255 - 19
_D = -121665 * pow(121666, -1, _PRIME) % _PRIME
# The y of the eight points of small order: of order 1, 2 and 4, and two of order 8.
_EIGHTH = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL = frozenset({0, 1, _PRIME - 1, _EIGHTH, _PRIME - _EIGHTH})
ED25519, P256 = "ed25519", "p256"


@dataclass(frozen=True)
class PublicKey:
    """``ed25519:`` and 64 hex digits, or ``p256:`` and 66 of the compressed point.

    Made by :meth:`parse`, which takes the one canonical encoding of a key and refuses points of
    small order: with such a key any text has a signature that holds.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        return _parsed(text)

    @classmethod
    def of(cls, key: Ed25519PublicKey | EllipticCurvePublicKey) -> PublicKey:
        if isinstance(key, Ed25519PublicKey):
            return cls.parse(f"{ED25519}:{key.public_bytes_raw().hex()}")
        point = key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
        return cls.parse(f"{P256}:{point.hex()}")

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the line, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def point(self) -> str:
        """The same for a key and its mirror image, which one secret signs for."""
        kind, _, digits = self.text.partition(":")
        raw = bytes.fromhex(digits)
        raw = raw[1:] if kind == P256 else raw[:31] + bytes([raw[31] & 127])
        return f"{kind}:{raw.hex()}"

    @cached_property
    def family(self) -> str:
        """The same for all keys that differ by points of small order as well: slower to find."""
        if self.text.startswith(P256):
            return self.point
        y = int.from_bytes(bytes.fromhex(self.text[8:]), "little") & (2**255 - 1)
        u = (1 + y) * pow(1 - y, -1, _PRIME) % _PRIME
        return f"{ED25519}:{point_of(u.to_bytes(32, 'little')).hex()}"

    def verify(self, text: bytes, signature: bytes) -> bool:
        if len(signature) != SIGNATURE_BYTES:
            return False
        key = self._key
        try:
            if isinstance(key, Ed25519PublicKey):
                key.verify(signature, text)
                return True
            r, s = (int.from_bytes(part) for part in (signature[:32], signature[32:]))
            if s > P256_ORDER // 2:  # the other of two that hold: one signature of a text
                return False
            key.verify(encode_dss_signature(r, s), text, ECDSA(SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True

    @cached_property
    def _key(self) -> Ed25519PublicKey | EllipticCurvePublicKey:
        kind, _, digits = self.text.partition(":")
        raw = bytes.fromhex(digits)
        if kind == ED25519:
            return Ed25519PublicKey.from_public_bytes(raw)
        return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), raw)


class Signer(Protocol):
    """Signs for a party: a key in a file, or a plug-in's in a card."""

    @property
    def public_key(self) -> PublicKey: ...

    def sign(self, text: bytes) -> bytes:
        """A signature of 64 bytes."""


@dataclass(frozen=True, repr=False)
class KeySigner:
    """Signs with an Ed25519 or P-256 key that is in memory."""

    private: Ed25519PrivateKey | EllipticCurvePrivateKey

    @classmethod
    def new(cls) -> KeySigner:
        """An Ed25519 key of the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate())

    @property
    def public_key(self) -> PublicKey:
        return PublicKey.of(self.private.public_key())

    def sign(self, text: bytes) -> bytes:
        if isinstance(self.private, Ed25519PrivateKey):
            return self.private.sign(text)
        r, s = decode_dss_signature(self.private.sign(text, ECDSA(SHA256())))
        return r.to_bytes(32) + min(s, P256_ORDER - s).to_bytes(32)


@lru_cache(1 << 14)
def _parsed(text: str) -> PublicKey:
    kind, _, digits = text.partition(":")
    lengths = {ED25519: 64, P256: 66}
    if len(digits) != lengths.get(kind) or not set(digits) <= set("0123456789abcdef"):
        raise bad_key("it is not written as a key")
    raw = bytes.fromhex(digits)
    if kind == P256:
        try:
            EllipticCurvePublicKey.from_encoded_point(SECP256R1(), raw)
        except ValueError:
            raise bad_key("it is no point of its curve") from None
        return PublicKey(text)
    y = int.from_bytes(raw, "little") & (2**255 - 1)
    if y >= _PRIME:
        raise bad_key("its encoding is not canonical")
    square = y * y
    if pow((square - 1) * (_D * square + 1), (_PRIME - 1) // 2, _PRIME) == _PRIME - 1:
        raise bad_key("it is no point of its curve")
    if y in _SMALL:
        raise bad_key("it is of small order")
    return PublicKey(text)
