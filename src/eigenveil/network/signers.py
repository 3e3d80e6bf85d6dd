"""Keys that sign decisions: an approver's own, in a file under a password, or the kit's.

Anything that has a public key and signs bytes is a :class:`Signer`; a key in a hardware token is
one as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from eigenveil.errors import DataError, DecisionRefused, OutputError
from eigenveil.federation.ledger.decisions import SMALLEST_RSA, public_pem
from eigenveil.federation.x509_identity import Identity
from eigenveil.files import replacing
from eigenveil.network.together import cannot_write

SHORTEST_PASSWORD = 12
"""Characters of a password at the least: who has the file may try as many as they like."""


class Signer(Protocol):
    """Signs for one public key."""

    @property
    def public_key(self) -> str:
        """PEM (SubjectPublicKeyInfo)."""
        ...

    def sign(self, text: bytes) -> bytes:
        """Ed25519, ECDSA with SHA-256 (DER), or RSA-PSS with SHA-256 and a salt of 32 bytes."""
        ...


@dataclass(frozen=True)
class KitSigner:
    """The kit's own key: it signs for the owner that every kit begins with."""

    identity: Identity

    @property
    def public_key(self) -> str:
        """That of the kit's certificate."""
        return public_pem(self.identity.certificate.public_key())

    def sign(self, text: bytes) -> bytes:
        """RSA-PSS."""
        return self.identity.sign(text)


@dataclass(frozen=True)
class KeySigner:
    """An approver's own key."""

    key: Ed25519PrivateKey

    @property
    def public_key(self) -> str:
        """Its public part."""
        return public_pem(self.key.public_key())

    def sign(self, text: bytes) -> bytes:
        """Ed25519."""
        return self.key.sign(text)


def make_key(path: str | Path, password: str, *, overwrite: bool = False) -> KeySigner:
    """Make an approver's key, in a new file that is encrypted with a password.

    Parameters
    ----------
    path : path
        Whole or not at all; only its owner can read it.
    password : str
        ``SHORTEST_PASSWORD`` characters at the least.
    overwrite : bool
        Whether a key that is there was lost (its password, for example) and may be replaced.

    Raises
    ------
    DataError
        ``weak-password``.
    OutputError
        When the file exists or cannot be written.
    """
    if len(password) < SHORTEST_PASSWORD:
        raise DataError(
            f"The password has {len(password)} characters, fewer than {SHORTEST_PASSWORD}.",
            hint="Choose a longer one, for example of four words.",
            code="weak-password",
        )
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    )
    place = Path(path)
    if place.exists() and not overwrite:
        raise OutputError(
            f"{place} exists.",
            hint="A key is never written over another; choose another name.",
            code="cannot-write",
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise cannot_write(place.parent, problem) from None
    with replacing(place) as scratch:
        scratch.write_bytes(text)
    return KeySigner(key)


def open_key(path: str | Path, password: str) -> KeySigner:
    """An approver's key from its file.

    Raises
    ------
    DecisionRefused
        ``wrong-password``.
    DataError
        When it is no such key.
    OutputError
        When it cannot be read.
    """
    place = Path(path)
    try:
        text = place.read_bytes()
    except OSError as problem:
        raise OutputError(
            f"{place}: {problem.strerror or problem}.",
            hint="Give the approver's key with --key.",
            code="cannot-read",
        ) from None
    try:
        key = load_pem_private_key(text, password=password.encode())
    except TypeError:
        raise _no_key(place, "is not encrypted") from None
    except UnsupportedAlgorithm as problem:
        raise _no_key(place, f"cannot be used ({problem})") from None
    except ValueError:
        if b"BEGIN ENCRYPTED PRIVATE KEY" not in text:
            raise _no_key(place, "is not a private key") from None
        raise DecisionRefused(
            f"{place}: the password is wrong, or the file is damaged.",
            hint="Try again; a lost password needs a new key, put in the list by the owner.",
            code="wrong-password",
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(place, "is another kind of key than Ed25519")
    return KeySigner(key)


def read_public_key(path: str | Path) -> str:
    """An approver's public key from its PEM file: Ed25519, ECDSA or RSA.

    Raises
    ------
    DataError, OutputError
    """
    place = Path(path)
    try:
        found = load_pem_public_key(place.read_bytes())
    except OSError as problem:
        raise OutputError(
            f"{place}: {problem.strerror or problem}.",
            hint="Give the file with the approver's public key.",
            code="cannot-read",
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise _no_key(place, "is not a public key (PEM)") from None
    small = isinstance(found, RSAPublicKey) and found.key_size < SMALLEST_RSA
    if small or not isinstance(found, Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey):
        raise _no_key(place, "is not Ed25519, ECDSA, or RSA of 2048 bits or more")
    return public_pem(found)


def _no_key(place: Path, why: str) -> DataError:
    return DataError(
        f"{place} {why}.",
        hint="Give the file that 'eigenveil site approver add' made.",
        code="bad-key",
    )
