"""A party's signing key in a PKCS#11 token: it signs there, and never leaves it.

A :class:`TokenKey` stands wherever :class:`~eigenveil.federation.x509_identity.Identity`
has a private
key: signatures are the same (RSA-PSS with SHA-256), and whoever verifies them sees no difference.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import padding as paddings
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from eigenveil.errors import OutputError

# Where the token's PIN may stand; else in a file of its owner's.
PIN_VARIABLE = "EIGENVEIL_TOKEN_PIN"


@dataclass(frozen=True)
class Token:
    """Where a key is.

    Attributes
    ----------
    module : str
        The file of the token's PKCS#11 library.
    token, key : str
        Labels of the token and of the key in it.
    pin_file : str
        A file whose first line is the PIN; empty where ``EIGENVEIL_TOKEN_PIN`` has it.
    """

    module: str
    token: str
    key: str
    pin_file: str = ""


class TokenKey(rsa.RSAPrivateKey):
    """An RSA key in a token, which signs: with RSA-PSS, and requests for certificates.

    Parameters
    ----------
    private : pkcs11.PrivateKey
    public : RSAPublicKey
    """

    def __init__(self, private: Any, public: rsa.RSAPublicKey) -> None:
        self._private, self._public = private, public
        self._turn = threading.Lock()  # a session with a token is for one thread at a time

    def sign(self, data: bytes, padding: Any, algorithm: Any) -> bytes:
        """A signature of the token's.

        Raises
        ------
        OutputError
            ``token-failed`` when the token does not sign.
        UnsupportedAlgorithm
            For another padding or hash than the package uses.
        """
        import pkcs11

        if not isinstance(algorithm, SHA256):
            raise UnsupportedAlgorithm("a token signs SHA-256 only")
        how: dict[str, Any]
        if isinstance(padding, paddings.PSS):
            how = {
                "mechanism": pkcs11.Mechanism.SHA256_RSA_PKCS_PSS,
                "mechanism_param": (pkcs11.Mechanism.SHA256, pkcs11.MGF.SHA256, SHA256.digest_size),
            }
        elif isinstance(padding, paddings.PKCS1v15):
            how = {"mechanism": pkcs11.Mechanism.SHA256_RSA_PKCS}
        else:
            raise UnsupportedAlgorithm("a token signs with PSS or PKCS #1 v1.5 only")
        try:
            with self._turn:
                return bytes(self._private.sign(data, **how))
        except pkcs11.exceptions.PKCS11Error as error:
            raise OutputError(
                f"The token did not sign ({type(error).__name__}).",
                hint="Check that it is connected and its PIN is not locked; then start again.",
                code="token-failed",
            ) from None

    def public_key(self) -> rsa.RSAPublicKey:
        """The key that verifies."""
        return self._public

    @property
    def key_size(self) -> int:
        """Bits."""
        return self._public.key_size

    def decrypt(self, ciphertext: bytes, padding: Any) -> NoReturn:
        """Not this key's purpose."""
        del ciphertext, padding
        raise UnsupportedAlgorithm("a token's key only signs")

    def private_numbers(self) -> NoReturn:
        """They never leave the token."""
        raise UnsupportedAlgorithm("a token's key never leaves it")

    def private_bytes(self, *rest: Any, **named: Any) -> NoReturn:
        """They never leave the token."""
        del rest, named
        raise UnsupportedAlgorithm("a token's key never leaves it")

    def __copy__(self) -> TokenKey:
        return self

    def __deepcopy__(self, memo: Any) -> TokenKey:
        return self


@lru_cache(maxsize=8)  # a login takes long, and some tokens allow one at a time
def open_token(token: Token) -> TokenKey:
    """The key in a token, after a login with its PIN.

    Raises
    ------
    OutputError
        ``no-pkcs11``, ``no-token``, ``no-pin``, or ``wrong-pin``.
    """
    try:
        import pkcs11
        from pkcs11.util.rsa import encode_rsa_public_key
    except ImportError:
        raise OutputError(
            "The signing key is in a token, and no PKCS#11 software is installed.",
            hint="Install it: pip install 'eigenveil[pkcs11]'.",
            code="no-pkcs11",
        ) from None
    pin = _pin(token)
    try:
        session = pkcs11.lib(token.module).get_token(token_label=token.token).open(user_pin=pin)
        private = session.get_key(object_class=pkcs11.ObjectClass.PRIVATE_KEY, label=token.key)
        public: Any = session.get_key(object_class=pkcs11.ObjectClass.PUBLIC_KEY, label=token.key)
        found = load_der_public_key(_subject_public_key(encode_rsa_public_key(public)))
    except (pkcs11.exceptions.PinIncorrect, pkcs11.exceptions.PinLocked):
        raise OutputError(
            f"The PIN of token {token.token!r} is wrong, or locked.",
            hint="Correct it before the next start: after some wrong PINs a token locks itself.",
            code="wrong-pin",
        ) from None
    except (pkcs11.exceptions.PKCS11Error, RuntimeError, OSError, ValueError) as error:
        raise OutputError(
            f"Key {token.key!r} in token {token.token!r} cannot be used "
            f"({str(error) or type(error).__name__}).",
            hint="Check the library's file, the labels, and that the token is connected.",
            code="no-token",
        ) from None
    if not isinstance(found, rsa.RSAPublicKey):
        raise _not_rsa(token)
    return TokenKey(private, found)


def _subject_public_key(pkcs1: bytes) -> bytes:
    """The public key as certificates have it; a token gives the bare numbers."""
    from asn1crypto.keys import PublicKeyInfo, RSAPublicKey

    return bytes(PublicKeyInfo.wrap(RSAPublicKey.load(pkcs1), "rsa").dump())


def _pin(token: Token) -> str:
    if token.pin_file:
        try:
            lines = Path(token.pin_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise OutputError(
                f"{token.pin_file} cannot be read: {getattr(error, 'strerror', None) or error}.",
                hint="It must hold the token's PIN, and be readable by this account alone.",
                code="no-pin",
            ) from None
        return lines[0].strip() if lines else ""
    pin = os.environ.get(PIN_VARIABLE, "")
    if not pin:
        raise OutputError(
            f"The PIN of token {token.token!r} is not known.",
            hint=f"Set {PIN_VARIABLE}, or name a file with it when the token is installed.",
            code="no-pin",
        )
    return pin


def _not_rsa(token: Token) -> OutputError:
    return OutputError(
        f"Key {token.key!r} in token {token.token!r} is not an RSA key.",
        hint="Make an RSA key of 2048 bits or more in the token.",
        code="no-token",
    )
