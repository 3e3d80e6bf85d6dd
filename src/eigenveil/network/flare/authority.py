"""The installed version of NVIDIA FLARE, and certificates made with its function."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from eigenveil.errors import DataError, OutputError, listed, printable
from eigenveil.federation.x509_identity import role_extension
from eigenveil.network.certificates import common_name
from eigenveil.network.roles import Role

TESTED = ("2.9.0",)
"""The versions with which all tests of `make test-flare` passed; ``pyproject.toml`` requires them.

Others are refused, later patches too: what is replaced in FLARE so that a site is safe from it
(:mod:`eigenveil.network.flare.hardening`) has private names, and docs/identity.md lists what would
fail without a word.
"""


def need_flare() -> None:
    """Say plainly when FLARE is not installed, or in a version that was not tested; loads nothing.

    Raises
    ------
    OutputError
        With code ``no-flare`` or ``other-flare``.
    """
    if importlib.util.find_spec("nvflare") is None:
        raise OutputError(
            "NVIDIA FLARE is not installed, and this needs it.",
            hint="pip install 'eigenveil[flare]'",
            code="no-flare",
        )
    try:
        version = importlib.metadata.version("nvflare")
    except importlib.metadata.PackageNotFoundError:  # a nightly build, or a copy of the source
        version = "of an unknown version"
    if version not in TESTED:
        raise OutputError(
            f"NVIDIA FLARE {printable(version)} is installed, and this was tested only with "
            f"{listed(TESTED)}.",
            hint="pip install 'eigenveil[flare]' installs one that was.",
            code="other-flare",
        )


# -- The registrar's part: a root certificate, and certificates signed with its key.
#
# The certificates are built by FLARE's own function, so that they are what it expects.


ROOT_DAYS = 3650
PARTY_DAYS = 365
# Clocks differ between organisations.
_EARLIER = timedelta(hours=1)
_FLARE_ROLE: dict[Role, str] = {
    "site": "client",
    "helper": "client",
    "aggregator": "server",
    "lead": "lead",
}


def make_root(project: str, key: rsa.RSAPrivateKey, *, days: int = ROOT_DAYS) -> x509.Certificate:
    """A root certificate, signed by its own key."""
    lighter = _lighter()
    identity = lighter.Identity(project)
    start, end = _span(days)
    return _as_certificate(
        lighter.generate_cert(
            identity,
            identity,
            key,
            key.public_key(),
            ca=True,
            not_valid_before=start,
            not_valid_after=end,
        )
    )


def sign(
    root: x509.Certificate,
    root_key: rsa.RSAPrivateKey,
    *,
    role: Role,
    name: str,
    org: str,
    public_key: rsa.RSAPublicKey,
    days: int = PARTY_DAYS,
) -> x509.Certificate:
    """A party's certificate.

    It states in which role it is good, in an extension and in its usage: nobody but the aggregator
    can ask or pass for a server with it, nobody but a lead start or stop studies, and nobody but
    a site answer as one. It ends with the root's at the latest.

    Raises
    ------
    DataError
        For a registrar, who has no certificate but the root's.
    """
    if role == "registrar":
        raise DataError("A registrar certifies others, not itself.", code="other-role")
    lighter = _lighter()
    start, end = _span(days)
    usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role == "aggregator":
        usage.append(ExtendedKeyUsageOID.SERVER_AUTH)
    return _as_certificate(
        lighter.generate_cert(
            lighter.Identity(name, org, _FLARE_ROLE[role]),
            lighter.Identity(common_name(root)),
            root_key,
            public_key,
            server_default_host=name if role == "aggregator" else None,
            not_valid_before=max(start, root.not_valid_before_utc),
            not_valid_after=min(end, root.not_valid_after_utc),
            extra_extensions=[
                (x509.BasicConstraints(ca=False, path_length=None), True),
                (_key_usage(), True),
                (x509.ExtendedKeyUsage(usage), False),
                (role_extension(role), False),
            ],
        )
    )


def _key_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _span(days: int) -> tuple[datetime, datetime]:
    now = datetime.now(UTC).replace(microsecond=0)
    return now - _EARLIER, now + timedelta(days=days)


def _lighter() -> Any:
    need_flare()
    from nvflare.lighter import utils

    return utils


def _as_certificate(found: Any) -> x509.Certificate:
    assert isinstance(found, x509.Certificate)
    return found
