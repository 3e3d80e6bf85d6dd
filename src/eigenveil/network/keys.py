"""A party's own keys: three PEM files that only it can read, or a plug-in that signs in a card."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from eigenveil.errors import OutputError, of_system
from eigenveil.federation.public_key import KeySigner, PublicKey, Signer
from eigenveil.federation.sealing import SealingKey
from eigenveil.files import cannot_write

SIGNING, MLKEM, X25519 = "signing.pem", "mlkem.pem", "x25519.pem"
SIGNERS = "eigenveil.signers"
"""Entry points of plug-ins: each is called with the party's folder and gives a Signer."""


@dataclass(frozen=True, repr=False)
class PartyKeys:
    signer: Signer
    sealing: SealingKey

    @classmethod
    def new(cls, signer: Signer | None = None) -> PartyKeys:
        """New ones; or new ones beside a card's."""
        return cls(signer or KeySigner.new(), SealingKey.generate())

    @classmethod
    def read(cls, folder: Path, *, party: Path, signer: str = "") -> PartyKeys:
        """From a folder of keys; ``signer`` names the plug-in where the signing key is no file."""
        found = plug_in(signer, party) if signer else read_signer(folder / SIGNING)
        kem, x25519 = _read(folder / MLKEM), _read(folder / X25519)
        if not isinstance(kem, MLKEM768PrivateKey):
            raise _not_a_key(folder / MLKEM, "an ML-KEM-768 key")
        if not isinstance(x25519, X25519PrivateKey):
            raise _not_a_key(folder / X25519, "an X25519 key")
        raw = kem.private_bytes_raw() + x25519.private_bytes_raw()
        return cls(found, SealingKey.from_raw(raw))

    @staticmethod
    def name_of(key: str) -> str:
        return PublicKey.parse(key).fingerprint[:16]

    def write(self, folder: Path) -> None:
        """Into a new folder; for its owner only."""
        kem, x25519 = self.sealing.halves
        files = {MLKEM: pem_of(kem), X25519: pem_of(x25519)}
        if isinstance(self.signer, KeySigner):
            files[SIGNING] = pem_of(self.signer.private)
        write_private(folder, files)


def read_signer(file: Path) -> KeySigner:
    """A signing key from a PEM file without a password."""
    key = _read(file)
    curve = key.curve if isinstance(key, EllipticCurvePrivateKey) else None
    if not isinstance(key, Ed25519PrivateKey) and not isinstance(curve, SECP256R1):
        raise _not_a_key(file, "an Ed25519 or a P-256 key")
    assert isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey)
    return KeySigner(key)


def plug_in(name: str, party: Path) -> Signer:
    for each in entry_points(group=SIGNERS, name=name):
        signer: Signer = each.load()(party)
        return signer
    raise OutputError("no-signer", name=name, signers=SIGNERS)


def write_private(folder: Path, files: Mapping[str, bytes]) -> None:
    """New files that only their owner can read."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, text in files.items():
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
    except OSError as problem:
        raise cannot_write(folder, problem) from None


def pem_of(key: object) -> bytes:
    """A private key as it is kept."""
    text: bytes = key.private_bytes(  # type: ignore[attr-defined]
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    return text


def _read(file: Path) -> object:
    try:
        return load_pem_private_key(file.read_bytes(), password=None)
    except OSError as problem:
        raise OutputError("party-incomplete", file=file, reason=of_system(problem)) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _not_a_key(file, "a private key without a password") from None


def _not_a_key(file: Path, what: str) -> OutputError:
    return OutputError("bad-party", file=file, what=what)
