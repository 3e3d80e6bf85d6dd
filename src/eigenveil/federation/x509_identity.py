"""Who a party is: certificates that an independent registrar signed, with the role they are for.

Masks hide a site's message only if the keys that they are made with are those of other sites. A
party with an identity signs its session keys with its certificate's key, and takes keys of others
only with a signature of the party that the study names, under the same registrar's root. So the
aggregator, who passes keys on, cannot put its own in their place.

A certificate states its party's role in an extension of its own (``ROLE``) and in its usage: only
an aggregator's is good for a server. A name alone shows nothing: whoever checks a certificate
states which role it must be of, so that the aggregator's is not a site's, whatever it is called.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenveil.errors import OutputError, ProtocolError
from eigenveil.federation.protocol import payloads
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.secagg.keys import Context

CertifiedRole = Literal["site", "helper", "aggregator", "lead"]
ROLES: tuple[CertifiedRole, ...] = get_args(CertifiedRole)
# An object identifier made from a random UUID (ITU-T X.667): nobody else's. Its value is the role.
ROLE = x509.ObjectIdentifier("2.25.264834102739515923475630281157964071327")
# What a certificate that is none may raise: some of its parts are read when they are requested.
UNREADABLE = (
    ValueError,
    TypeError,
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
PADDING = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)
"""Of all RSA signatures here: RSA-PSS with SHA-256."""


class Membership(Protocol):
    """Knows who is in a federation now, and which key each party signs with."""

    def check(self, *, role: str, name: str, certificate: x509.Certificate) -> None:
        """Raise ProtocolError where a party is not in, or this is not what it signs with."""
        ...


class Current(Protocol):
    """Has an identity that may be renewed while it is in use."""

    def now(self) -> Identity:
        """The one that signs, and checks, now."""
        ...


@dataclass(frozen=True)
class Identity:
    """A party's own certificate and key, and the root that it trusts.

    Attributes
    ----------
    key : RSAPrivateKey
        Of the certificate.
    certificate, root : x509.Certificate
        The root is the registrar's, who signs certificates and takes no part in studies.
    members : Membership or None
        Who is in now, looked at beside every signature; without it certificates alone count.
    """

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate
    root: x509.Certificate
    members: Membership | None = None

    @classmethod
    def from_files(cls, *, key: Path, certificate: Path, root: Path) -> Identity:
        """Read three PEM files.

        Raises
        ------
        OutputError
            Naming the file that is absent or of another kind.
        """
        try:
            private = load_pem_private_key(_bytes(key), password=None)
        except ValueError as error:
            raise _not_readable(key, error) from None
        if not isinstance(private, rsa.RSAPrivateKey):
            raise _not_readable(key, ValueError("it is not an RSA key"))
        return cls(private, _certificate(certificate), _certificate(root))

    def now(self) -> Identity:
        """Itself: it does not change (:class:`Current`)."""
        return self

    @property
    def name(self) -> str:
        """Whom the certificate names."""
        return str(self.certificate.subject.get_attributes_for_oid(_NAME)[0].value)

    @property
    def pem(self) -> str:
        """The text of the party's own certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def sign(self, text: bytes) -> bytes:
        """A signature (RSA-PSS, SHA-256) by the certificate's key."""
        return self.key.sign(text, PADDING, SHA256())

    def verify(self, text: bytes, signature: bytes, pem: str, *, role: str, name: str) -> None:
        """Raise where a text is not signed by the party of this role and name.

        Parameters
        ----------
        pem : str
            The certificate that came with the signature.

        Raises
        ------
        ProtocolError
            ``bad-identity``, saying what is wrong; or of the list of members, ``revoked-party``,
            ``not-a-member`` or ``other-signing-key``.
        """
        now = datetime.datetime.now(datetime.UTC)
        check_signature(text, signature, pem, root=self.root, role=role, name=name, now=now)
        if self.members is not None:
            self.members.check(role=role, name=name, certificate=_issued(pem, self.root))

    def signed(self, keys: payloads.PublicKeys, context: Context, name: str) -> payloads.PublicKeys:
        """The same keys with a proof that they are this party's in this session."""
        return keys.model_copy(update={"proof": self._proof(keys.proved(), context, name)})

    def signed_channel(self, channel: str, context: Context, name: str) -> payloads.Proof:
        """A proof for a single channel key, such as the helper's."""
        return self._proof((channel,), context, name)

    def _proof(self, keys: tuple[str, ...], context: Context, name: str) -> payloads.Proof:
        signature = self.sign(_text(keys, context, name))
        return payloads.Proof(signature=signature.hex())

    def check(
        self,
        keys: tuple[str, ...],
        proof: payloads.Proof | None,
        context: Context,
        name: str,
    ) -> None:
        """Raise where keys are not proved to be those of the party called ``name``.

        Raises
        ------
        ProtocolError
            ``bad-identity``, saying what is wrong.
        """
        if proof is None:
            raise _refused(name, "its keys are not signed")
        role = "helper" if name == HELPER else "site"
        text, signature = _text(keys, context, name), bytes.fromhex(proof.signature)
        self.verify(text, signature, "", role=role, name=name)


def check_signature(
    text: bytes,
    signature: bytes,
    pem: str,
    *,
    root: x509.Certificate | None,
    role: str,
    name: str,
    now: datetime.datetime | None,
) -> None:
    """Raise where a text is not signed by the party of this role and name.

    Parameters
    ----------
    pem : str
        The certificate that came with the signature.
    root : x509.Certificate or None
        Whose certificates count; without one anybody can have made them.
    now : datetime or None
        When the certificate must be valid; ``None`` of what may be older than any certificate.

    Raises
    ------
    ProtocolError
        ``bad-identity``, saying what is wrong.
    """
    try:
        shown = _issued(pem, root)
        start, end = shown.not_valid_before_utc, shown.not_valid_after_utc
        called = [str(each.value) for each in shown.subject.get_attributes_for_oid(_NAME)]
        found = certified_role(shown)
        public = shown.public_key()
    except UNREADABLE:
        raise _refused(name, "its certificate is not the registrar's") from None
    if now is not None and not start <= now <= end:
        raise _refused(name, _not_now(start, end, now))
    if called != [name]:
        raise _refused(name, "the certificate is another party's")
    if found != role:
        raise _refused(name, f"its certificate is not of {_A[role]}")
    if not isinstance(public, rsa.RSAPublicKey):
        raise _refused(name, "its certificate has another kind of key")
    try:
        public.verify(signature, text, PADDING, SHA256())
    except InvalidSignature:
        raise _refused(name, "the signature does not hold") from None


def _not_now(start: datetime.datetime, end: datetime.datetime, now: datetime.datetime) -> str:
    """Why a certificate is not valid now: most often a clock that is off."""
    clock = f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC"
    if now < start:
        why = (
            f"it begins at {start:%Y-%m-%d %H:%M} UTC, and {clock}: the clocks of this machine and "
            "the registrar's differ"
        )
    else:
        why = (
            f"it ended at {end:%Y-%m-%d %H:%M} UTC, and {clock}: it must be renewed, or this clock "
            "is ahead"
        )
    return f"its certificate is not valid at this time: {why}"


def certificate_digest(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate, in hex: that of a root is what a federation is called."""
    return certificate.fingerprint(SHA256()).hex()


def key_digest(key: object) -> str:
    """SHA-256 of a public key (DER, SubjectPublicKeyInfo), in hex: how a list names it."""
    text = key.public_bytes(  # type: ignore[attr-defined]
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(text).hexdigest()


def role_extension(role: CertifiedRole) -> x509.UnrecognizedExtension:
    """What a registrar puts into a certificate to say what it is for."""
    return x509.UnrecognizedExtension(ROLE, role.encode("ascii"))


def certified_role(certificate: x509.Certificate) -> CertifiedRole | None:
    """The role in a certificate; ``None`` where extension and usage disagree."""
    try:
        extension = certificate.extensions.get_extension_for_oid(ROLE).value
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return None
    assert isinstance(extension, x509.UnrecognizedExtension)
    found = next((role for role in ROLES if extension.value == role.encode("ascii")), None)
    serves = ExtendedKeyUsageOID.SERVER_AUTH in usage
    if limits.ca or ExtendedKeyUsageOID.CLIENT_AUTH not in usage:
        return None
    return found if serves == (found == "aggregator") else None


@lru_cache(maxsize=2048)
def _issued(pem: str, root: x509.Certificate | None) -> x509.Certificate:
    """A certificate from its text, if this root issued it: looked at once a certificate."""
    shown = x509.load_pem_x509_certificate(pem.encode())
    if root is not None:
        shown.verify_directly_issued_by(root)
    return shown


_A: dict[str, str] = {
    "site": "a site",
    "helper": "a noise helper",
    "aggregator": "an aggregator",
    "lead": "a lead",
}
_NAME = NameOID.COMMON_NAME


def _text(keys: tuple[str, ...], context: Context, name: str) -> bytes:
    """What is signed: these keys, in this session of this study, of this party."""
    parts = ["eigenveil keys 1", context.study, context.session, name, *keys]
    return json.dumps(parts).encode()


def _refused(name: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"{name}: {what}.",
        hint="It is refused: keys of a stranger would undo the masks. Ask that party and the "
        "registrar.",
        code="bad-identity",
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise OutputError(
            f"{path}: {error.strerror or error}.",
            hint="The kit is incomplete; use the one that the registrar made.",
            code="bad-kit",
        ) from None


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_bytes(path))
    except UNREADABLE as error:
        raise _not_readable(path, error) from None


def _not_readable(path: Path, error: Exception) -> OutputError:
    return OutputError(
        f"{path} cannot be used: {error}.",
        hint="The kit is incomplete; use the one that the registrar made.",
        code="bad-kit",
    )
