"""An approver's key: kept encrypted under the account's password, unlocked when that is given.

Who changes the password changes both at once; whoever lost it has lost the key.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from eigenveil.console.accounts import Accounts, Kept
from eigenveil.console.passwords import check_password, hash_password, matches
from eigenveil.errors import PrivacyError
from eigenveil.federation.public_key import PublicKey


def new_key(password: str) -> tuple[str, str]:
    """A new key: encrypted PEM, and the line of its public part."""
    check_password(password)
    key = Ed25519PrivateKey.generate()
    return _encrypted(key, password), PublicKey.of(key.public_key()).text


def unlocked(accounts: Accounts, name: str, password: str) -> bytes | None:
    """The private key of an account, 32 bytes; ``None`` where it has none, or under another one."""
    key = _decrypted(accounts.kept(name).key, password)
    return (
        None if key is None else key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    )


def renewed(kept: Kept, old: str, new: str) -> Kept:
    """The same under another password; nothing is written."""
    key = _decrypted(kept.key, old)
    known = key is not None if kept.password is None else matches(kept.password, old)
    if not known or (kept.key and key is None):
        raise PrivacyError(
            "The password is wrong.",
            hint="Nothing was changed. Give the present password.",
            code="wrong-password",
        )
    check_password(new)
    return Kept(
        None if kept.password is None else hash_password(new),
        "" if key is None else _encrypted(key, new),
    )


def _encrypted(key: Ed25519PrivateKey, password: str) -> str:
    return key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
    ).decode()


def _decrypted(stored: str, password: str) -> Ed25519PrivateKey | None:
    try:
        key = load_pem_private_key(stored.encode(), password.encode())
    except (ValueError, TypeError):
        return None
    return key if isinstance(key, Ed25519PrivateKey) else None


def key_or_refusal(key: bytes | None) -> bytes:
    """A key."""
    if key is None:
        raise PrivacyError(
            "The account has no key that could sign this, or the password of the key is wrong.",
            hint="Nothing was decided. 'eigenveil console user key' makes a key and puts it into "
            "the site's list of approvers.",
            code="no-key",
        )
    return key
