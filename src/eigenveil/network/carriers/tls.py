"""TLS of a mailbox server: its certificate, and clients that pin it."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from eigenveil.errors import DataError, first_line
from eigenveil.files import replacing

CERTIFICATE, KEY = "tls.crt", "tls.key"
"""In the aggregator's folder: what its server shows."""
PIN = "sha256="


def make_tls(folder: Path, host: str) -> str:
    """Make the server's own certificate; what stands behind ``#`` in the address that pins it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    try:
        other: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        other = x509.DNSName(host)
    made = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - datetime.timedelta(days=1))
        .not_valid_after(made + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([other]), critical=False)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for file, content in ((KEY, private), (CERTIFICATE, certificate.public_bytes(Encoding.PEM))):
        with replacing(folder / file) as scratch:
            scratch.write_bytes(content)
    return PIN + certificate.fingerprint(SHA256()).hex()


class OtherPin(ssl.SSLError):
    pass


class _Pinned(ssl.SSLContext):
    """Takes the one certificate whose digest is known, and asks no authority."""

    pin = ""

    def check(self, shown: bytes | None) -> None:
        if shown is None or hashlib.sha256(shown).hexdigest() != self.pin:
            raise OtherPin("other certificate")


class _PinnedSocket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        if isinstance(self.context, _Pinned):
            self.context.check(self.getpeercert(True))


class _PinnedObject(ssl.SSLObject):  # in the TLS of a proxy
    def do_handshake(self) -> None:
        super().do_handshake()
        if isinstance(self.context, _Pinned):
            self.context.check(self.getpeercert(True))


@lru_cache(maxsize=16)
def client_context(ca: str, pin: str) -> ssl.SSLContext:
    if pin:
        context: ssl.SSLContext = _Pinned(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.sslsocket_class, context.sslobject_class = _PinnedSocket, _PinnedObject
        context.pin = pin  # type: ignore[attr-defined]
    else:
        try:
            context = ssl.create_default_context(cafile=ca or None)
        except (OSError, ssl.SSLError) as problem:
            raise DataError(
                "bad-authorities",
                path=ca,
                reason=first_line(problem.strerror or problem, empty="unreadable"),
            ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """What a server shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as problem:
        raise DataError(
            "bad-tls-certificate",
            certificate=certificate,
            key=key.name,
            reason=first_line(problem.strerror or problem, empty="unreadable"),
        ) from None
    return context
