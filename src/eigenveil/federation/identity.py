"""Who a party's keys belong to: certificates that an independent registrar signed.

Masks hide a site's message only if the keys that they are made with are those of other sites. A
party with an identity signs its session keys with its certificate's key, and takes keys of others
only with a signature of the party that the study names, under the same registrar's root. So the
aggregator, who passes keys on, cannot put its own in their place.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from eigenveil.errors import OutputError, ProtocolError
from eigenveil.federation import bodies
from eigenveil.federation.keys import Context

_PADDING = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)


@dataclass(frozen=True)
class Identity:
    """A party's own certificate and key, and the root that it trusts.

    Attributes
    ----------
    key : RSAPrivateKey
        Of the certificate.
    certificate, root : x509.Certificate
        The root is the registrar's, who signs certificates and takes no part in studies.
    """

    key: rsa.RSAPrivateKey
    certificate: x509.Certificate
    root: x509.Certificate

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
            raise _not_readable(key, ValueError("it is no RSA key"))
        return cls(private, _certificate(certificate), _certificate(root))

    def signed(self, keys: bodies.PublicKeys, context: Context, name: str) -> bodies.PublicKeys:
        """The same keys with a proof that they are this party's in this session."""
        signature = self.key.sign(_text(keys.proved(), context, name), _PADDING, SHA256())
        proof = bodies.Proof(
            certificate=self.certificate.public_bytes(Encoding.PEM).decode(),
            signature=signature.hex(),
        )
        return keys.model_copy(update={"proof": proof})

    def signed_channel(self, channel: str, context: Context, name: str) -> bodies.Proof:
        """A proof for a single channel key, such as the helper's."""
        signature = self.key.sign(_text((channel,), context, name), _PADDING, SHA256())
        return bodies.Proof(
            certificate=self.certificate.public_bytes(Encoding.PEM).decode(),
            signature=signature.hex(),
        )

    def check(
        self,
        keys: tuple[str, ...],
        proof: bodies.Proof | None,
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
        try:
            shown = x509.load_pem_x509_certificate(proof.certificate.encode())
            shown.verify_directly_issued_by(self.root)
        except (ValueError, TypeError, InvalidSignature):
            raise _refused(name, "its certificate is not the registrar's") from None
        now = datetime.datetime.now(datetime.UTC)
        if not shown.not_valid_before_utc <= now <= shown.not_valid_after_utc:
            raise _refused(name, "its certificate is not valid at this time")
        called = [str(each.value) for each in shown.subject.get_attributes_for_oid(_NAME)]
        if called != [name]:
            raise _refused(name, "the certificate is another party's")
        public = shown.public_key()
        if not isinstance(public, rsa.RSAPublicKey):
            raise _refused(name, "its certificate has another kind of key")
        try:
            public.verify(
                bytes.fromhex(proof.signature), _text(keys, context, name), _PADDING, SHA256()
            )
        except InvalidSignature:
            raise _refused(name, "the signature is not of these keys") from None


_NAME = NameOID.COMMON_NAME


def _text(keys: tuple[str, ...], context: Context, name: str) -> bytes:
    """What is signed: these keys, in this session of this study, of this party."""
    said = ["eigenveil keys 1", context.study, context.session, name, *keys]
    return json.dumps(said).encode()


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
            hint="The kit is not whole; use the one that the registrar made.",
            code="bad-kit",
        ) from None


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_bytes(path))
    except ValueError as error:
        raise _not_readable(path, error) from None


def _not_readable(path: Path, error: Exception) -> OutputError:
    return OutputError(
        f"{path} cannot be used: {error}.",
        hint="The kit is not whole; use the one that the registrar made.",
        code="bad-kit",
    )
