"""Keys of approvers: each in a file under a password, or in what else signs bytes."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from eigenveil.errors import DataError, DecisionRefused, EigenveilError, OutputError, of_system
from eigenveil.federation.public_key import KeySigner, PublicKey
from eigenveil.files import replacing

SHORTEST_PASSWORD = 12
"""Characters of a password at the least: who has the file may try as many as they like."""


def make_key(path: str | Path, password: str, *, overwrite: bool = False) -> KeySigner:
    """Make an approver's key, in a new file of its owner's that is encrypted with a password."""
    if len(password) < SHORTEST_PASSWORD:
        raise DataError(
            "weak-password", password=len(password), shortest_password=SHORTEST_PASSWORD
        )
    key, place = Ed25519PrivateKey.generate(), Path(path)
    if place.exists() and not overwrite:
        raise OutputError("key-exists", path=place)
    with replacing(place) as scratch:
        scratch.write_bytes(
            key.private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
            )
        )
    return KeySigner(key)


def open_key(path: str | Path, password: str) -> KeySigner:
    place = Path(path)
    text = _read(place, "Give the approver's key with --key.")
    try:
        key = load_pem_private_key(text, password=password.encode())
    except TypeError:
        raise _no_key(place, "is not encrypted") from None
    except UnsupportedAlgorithm as problem:
        raise _no_key(place, f"cannot be used ({problem})") from None
    except ValueError:
        if b"BEGIN ENCRYPTED PRIVATE KEY" not in text:
            raise _no_key(place, "is not a private key") from None
        raise DecisionRefused("wrong-password", place=place) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(place, "is another kind of key than Ed25519")
    return KeySigner(key)


def read_public_key(path: str | Path) -> str:
    """An approver's public key as a line, from a file with that line or a PEM text."""
    place = Path(path)
    text = _read(place, "Give the file with the approver's public key.")
    try:
        if not text.startswith(b"-----"):
            return PublicKey.parse(text.decode("ascii").strip()).text
        found = load_pem_public_key(text)
        if isinstance(found, Ed25519PublicKey) or (
            isinstance(found, EllipticCurvePublicKey) and isinstance(found.curve, SECP256R1)
        ):
            return PublicKey.of(found).text
    except (ValueError, UnsupportedAlgorithm, EigenveilError):
        pass
    raise _no_key(place, "is not a public key (a line ed25519:... or p256:..., or PEM of such)")


def _read(place: Path, hint: str) -> bytes:
    try:
        return place.read_bytes()
    except OSError as problem:
        raise OutputError(
            "cannot-read-key", path=place, reason=of_system(problem), way_out=hint
        ) from None


def _no_key(place: Path, why: str) -> DataError:
    return DataError("not-an-approvers-key", place=place, why=why)
