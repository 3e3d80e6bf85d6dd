"""Keys, certificates and requests for them, as files: reading, writing and checking."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.x509_identity import UNREADABLE, certified_role
from eigenveil.files import replacing

PARTY_BITS = 2048  # of a key that lasts a year
ROOT_BITS = 3072  # of one that lasts ten


def new_key(bits: int) -> rsa.RSAPrivateKey:
    """A private key."""
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def write_key(path: Path, key: rsa.RSAPrivateKey) -> None:
    """Write a private key, whole or not at all; only its owner can read it, from the first byte."""
    text = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    with replacing(path) as scratch:
        scratch.write_bytes(text)


def read_key(path: Path) -> rsa.RSAPrivateKey:
    """A private key from its file.

    Raises
    ------
    OutputError, DataError
    """
    try:
        key = load_pem_private_key(_bytes(path), password=None)
    except (ValueError, TypeError):
        raise DataError(
            f"{path} is not a private key.", hint="Get a complete copy of the kit.", code="bad-key"
        ) from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise DataError(f"{path} is not an RSA key.", hint="Make the kit again.", code="bad-key")
    return key


def read_certificate(path: Path) -> x509.Certificate:
    """A certificate from its file.

    Raises
    ------
    OutputError, DataError
    """
    return parse_certificate(_bytes(path), str(path))


def parse_certificate(text: bytes, origin: str) -> x509.Certificate:
    """A certificate from its PEM text.

    Raises
    ------
    DataError
    """
    try:
        return x509.load_pem_x509_certificate(text)
    except UNREADABLE:
        raise DataError(
            f"{origin} is not a certificate.",
            hint="Get a complete copy of what the registrar sent.",
            code="bad-certificate",
        ) from None


def pem(certificate: x509.Certificate) -> bytes:
    """A certificate's text."""
    return certificate.public_bytes(Encoding.PEM)


def new_request(key: rsa.RSAPrivateKey, name: str, org: str) -> str:
    """The text of a request for a certificate, signed by its key."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, org),
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    return request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode("ascii")


def check_certificate(
    certificate: x509.Certificate,
    root: x509.Certificate,
    *,
    origin: str,
    name: str | None = None,
    role: str | None = None,
    key: rsa.RSAPrivateKey | None = None,
    now: datetime | None = None,
) -> None:
    """Refuse a certificate that is foreign, not valid now, another's, or of another role or key.

    Raises
    ------
    DataError
    """
    try:
        certificate.verify_directly_issued_by(root)
    except UNREADABLE:
        raise DataError(
            f"{origin}: the certificate is not from this federation's registrar.",
            hint="Ask the registrar of the federation to approve your request.",
            code="foreign-certificate",
        ) from None
    for what, which in (("root certificate", root), ("certificate", certificate)):
        check_dates(which, f"{origin}: the {what}", now=now)
    if name is not None and common_name(certificate) != name:
        raise DataError(
            f"{origin}: the certificate is {common_name(certificate)!r}'s, not {name!r}'s.",
            hint="Take the one that the registrar made for this party.",
            code="other-name",
        )
    if role is not None and certified_role(certificate) != role:
        raise DataError(
            f"{origin}: the certificate does not say that it is for a party of role {role!r}.",
            hint="Ask the registrar to approve your request again, with this version of eigenveil.",
            code="other-role",
        )
    if key is not None and not same_key(certificate.public_key(), key.public_key()):
        raise DataError(
            f"{origin}: the certificate is for another key.",
            hint="The request was made again since: send the newer one to the registrar.",
            code="other-key",
        )


def check_dates(certificate: x509.Certificate, what: str, *, now: datetime | None = None) -> None:
    """Refuse a certificate that is not valid now.

    Raises
    ------
    DataError
    """
    moment = now or datetime.now(UTC)
    if moment > certificate.not_valid_after_utc:
        raise DataError(
            f"{what} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; this machine's clock "
            f"says {moment:%Y-%m-%d}.",
            hint="Ask the registrar for a new one ('eigenveil flare request'), or correct the "
            "clock.",
            code="certificate-expired",
        )
    if moment < certificate.not_valid_before_utc:
        raise DataError(
            f"{what} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and "
            f"this machine's clock says {moment:%Y-%m-%d %H:%M} UTC: the clocks of this machine "
            "and the registrar's differ.",
            hint="Check this machine's clock (time service).",
            code="certificate-early",
        )


def days_left(certificate: x509.Certificate, *, now: datetime | None = None) -> float:
    """Days until a certificate ends; negative once it has."""
    moment = datetime.now(UTC) if now is None else now
    return (certificate.not_valid_after_utc - moment).total_seconds() / 86400


def same_key(one: object, other: rsa.RSAPublicKey) -> bool:
    """Whether two public keys are the same."""
    return isinstance(one, rsa.RSAPublicKey) and one.public_numbers() == other.public_numbers()


def common_name(of: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Whom a certificate or a request names."""
    return _attribute(of, NameOID.COMMON_NAME)


def organisation_name(of: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The organisation that a certificate or a request names."""
    return _attribute(of, NameOID.ORGANIZATION_NAME)


def role_name(certificate: x509.Certificate) -> str:
    """FLARE's role in a certificate: client, server or lead."""
    return _attribute(certificate, NameOID.UNSTRUCTURED_NAME)


def fingerprint(of: x509.Certificate | rsa.RSAPublicKey) -> str:
    """SHA-256 of a certificate or of a public key, as people compare it."""
    if isinstance(of, x509.Certificate):
        found = of.fingerprint(hashes.SHA256())
    else:
        digest = hashes.Hash(hashes.SHA256())
        digest.update(of.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        found = digest.finalize()
    return "SHA256:" + found.hex(":").upper()


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two are the same, however they are written."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return "".join(text.casefold().removeprefix("sha256:").replace(":", " ").split())


def _attribute(of: x509.Certificate | x509.CertificateSigningRequest, oid: object) -> str:
    found = of.subject.get_attributes_for_oid(oid)  # type: ignore[arg-type]
    return str(found[0].value) if len(found) == 1 else ""


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise OutputError(
            f"{path} cannot be read: {problem.strerror or problem}.",
            hint="Check the path, and who may read it.",
            code="cannot-read",
        ) from None
