"""A kit whose signing key is in a token: its request, its certificate, and where it is.

FLARE needs the key of TLS in a file. What eigenveil signs (messages, session keys, certificates of
results) can be signed by a second key instead, in a PKCS#11 token, with a second certificate of
the same registrar, under the same name and role. The registrar approves its request as it approves
a renewal: ``eigenveil flare approve REQUEST --renew``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

from cryptography import x509

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.token_key import Token, open_token
from eigenveil.federation.x509_identity import Identity
from eigenveil.network import certificates
from eigenveil.network.enrolment import (
    APPROVAL_FORMAT,
    newest_list,
    read_fields,
    request_fields,
    write_public,
)
from eigenveil.network.kit import Kit, json_text
from eigenveil.network.together import cannot_write, write_together


def token_of(kit: Kit) -> Token | None:
    """Where a kit's signing key is; ``None`` where it is the kit's own file.

    Raises
    ------
    DataError
        ``bad-kit``.
    """
    try:
        fields = json.loads(kit.signing_file.read_text(encoding="utf-8"))
        return Token(**{name: str(fields[name]) for name in ("module", "token", "key", "pin_file")})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(
            f"{kit.signing_file} does not say where the signing key is.",
            hint="Install the token again: 'eigenveil token install'.",
            code="bad-kit",
        ) from None


def request_signing(kit: Kit, token: Token, out: Path) -> Path:
    """Write the request for a certificate of a token's key: a public file, for the registrar.

    Raises
    ------
    OutputError
        When the token cannot be used, or the file not be written.
    """
    write_public(out, request_fields(kit, open_token(token), signs=True))
    return out


def install_signing(kit: Kit, token: Token, approval: Path) -> None:
    """Sign with a token's key from now on, with the certificate that the registrar approved.

    Raises
    ------
    DataError
        When the approval is not of this kit, or of another key.
    OutputError
    """
    fields = read_fields(approval, APPROVAL_FORMAT, "an approval")
    try:
        text, members = (str(fields[name]).encode("ascii") for name in ("certificate", "members"))
    except (KeyError, UnicodeError):
        raise DataError(
            f"{approval} is not a complete approval.",
            hint="Let the registrar send it again.",
            code="bad-approval",
        ) from None
    if token.pin_file:  # it means the same from any folder
        token = replace(token, pin_file=str(Path(token.pin_file).absolute()))
    _check(kit, token, certificates.parse_certificate(text, str(approval)), str(approval))
    write_together(
        kit.folder,
        {
            kit.signing_certificate: text,
            kit.signing_file: json_text(asdict(token)),
            **newest_list(kit, certificates.read_certificate(kit.root_certificate), members),
        },
    )


def remove_signing(kit: Kit) -> None:
    """Let the kit's file sign again, once the registrar has approved its request.

    Raises
    ------
    OutputError
        ``cannot-write``.
    """
    try:
        kit.signing_file.unlink(missing_ok=True)  # without it the kit's file signs
        kit.signing_certificate.unlink(missing_ok=True)
    except OSError as problem:
        raise cannot_write(kit.folder, problem) from None


def token_identity(kit: Kit, token: Token) -> Identity:
    """The identity of a kit that signs with a token.

    Raises
    ------
    OutputError, DataError
        When the token cannot be used, or the certificate is not of its key, or not valid now.
    """
    certificate = certificates.read_certificate(kit.signing_certificate)
    _check(kit, token, certificate, str(kit.signing_certificate))
    root = certificates.read_certificate(kit.root_certificate)
    return Identity(open_token(token), certificate, root)


def _check(kit: Kit, token: Token, certificate: x509.Certificate, origin: str) -> None:
    if kit.role == "registrar":
        raise OutputError(
            "A registrar signs with its root key, which is no party's.",
            hint="Give a party's kit.",
            code="other-role",
        )
    certificates.check_certificate(
        certificate,
        certificates.read_certificate(kit.root_certificate),
        origin=origin,
        name=kit.name,
        role=kit.role,
        key=open_token(token),
    )
