"""The two public files by which a party comes by its certificate: a request, and an approval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.identity import UNREADABLE
from eigenveil.files import replacing
from eigenveil.runtime.flare import certificates
from eigenveil.runtime.flare.roles import Role

REQUEST_FORMAT = "eigenveil-request-1"
APPROVAL_FORMAT = "eigenveil-approval-1"
_MOST_BYTES = 100_000


@dataclass(frozen=True)
class Request:
    """What a party asks the registrar for."""

    project: str
    role: Role
    name: str
    org: str
    asked: x509.CertificateSigningRequest

    @property
    def public_key(self) -> rsa.RSAPublicKey:
        """The key to be certified."""
        key = self.asked.public_key()
        assert isinstance(key, rsa.RSAPublicKey)
        return key


def read_request(path: str | Path) -> Request:
    """A request from its file, checked to be of the key that it names.

    Raises
    ------
    DataError, OutputError
    """
    fields = read_fields(Path(path), REQUEST_FORMAT, "a request")
    try:
        asked = x509.load_pem_x509_csr(fields["csr"].encode("ascii"))
        found = Request(fields["project"], fields["role"], fields["name"], fields["org"], asked)
        whole = asked.is_signature_valid and isinstance(asked.public_key(), rsa.RSAPublicKey)
    except (KeyError, AttributeError, *UNREADABLE):
        whole = False
    if (
        not whole
        or certificates.common_name(asked) != found.name
        or certificates.organisation_name(asked) != found.org
        or found.public_key.key_size < certificates.PARTY_BITS
    ):
        raise DataError(
            f"{path} is not a whole request.",
            hint="Let the party send it again, as 'eigenveil flare request' wrote it.",
            code="bad-request",
        )
    return found


def read_fields(path: Path, form: str, what: str) -> dict[str, Any]:
    """What is in such a file.

    Raises
    ------
    DataError
        When it is something else, or holds a private key.
    OutputError
        When it cannot be read.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text)
    except OSError as trouble:
        raise OutputError(
            f"{path} cannot be read: {trouble.strerror or trouble}.",
            hint="Check the path.",
            code="cannot-read",
        ) from None
    except (ValueError, RecursionError):
        fields, text = None, ""
    if not isinstance(fields, dict) or fields.get("format") != form:
        raise DataError(
            f"{path} is not {what}.",
            hint="A request is what 'eigenveil flare request' writes, and an approval what "
            "'eigenveil flare approve' does.",
            code="bad-file",
        )
    if "PRIVATE KEY" in text:
        raise DataError(
            f"{path} holds a private key, which must never leave its kit.",
            hint="That key is known now: let the party ask again with a new one.",
            code="key-sent",
        )
    return fields


def write_public(path: Path, fields: Mapping[str, Any]) -> None:
    """Write such a file, whole or not at all, for everybody to read."""
    with replacing(path) as scratch:
        scratch.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
        scratch.chmod(0o644)  # made to be sent
