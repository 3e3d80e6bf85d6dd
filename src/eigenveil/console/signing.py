"""An approver's key: kept encrypted under the account's password, unlocked when that is given."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from eigenveil.console.accounts import Accounts
from eigenveil.console.passwords import check_password
from eigenveil.errors import PrivacyError


def new_key(password: str) -> tuple[str, str]:
    """A new key: encrypted PEM, and the PEM of its public part.

    Raises
    ------
    DataError
        ``weak-password``.
    """
    check_password(password)
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    )
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


def unlocked(accounts: Accounts, name: str, password: str) -> bytes | None:
    """The private key of an account, 32 bytes; ``None`` where it has none, or under another one."""
    stored = accounts.key(name)
    if not stored:
        return None
    try:
        key = load_pem_private_key(stored.encode(), password.encode())
    except (ValueError, TypeError):
        return None
    if not isinstance(key, Ed25519PrivateKey):
        return None
    return key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())


def key_or_refusal(key: bytes | None) -> bytes:
    """A key.

    Raises
    ------
    PrivacyError
        ``no-key``.
    """
    if key is None:
        raise PrivacyError(
            "The account has no key that could sign this, or the password of the key is wrong.",
            hint="Nothing was decided. An account that signs is made with 'eigenveil console user "
            "add', with --kit and --ledger.",
            code="no-key",
        )
    return key
