"""The parties of a federation, and what they may be called."""

from __future__ import annotations

import re
from typing import Literal, get_args

from eigenveil.errors import DataError

Role = Literal["site", "aggregator", "lead", "helper", "registrar"]
ROLES: tuple[Role, ...] = get_args(Role)
# Folders of a federation's kits that are no sites, and the name that FLARE gives its server.
RESERVED = ("aggregator", "lead", "registrar", "helper", "server")
HELPER_NAME = "helper"
LEAD_NAME = "lead@eigenveil.local"  # FLARE wants its users to be called like an e-mail address

_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_USER = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_LONGEST = 63  # of a common name; 64 is the standard's, one is FLARE's


def described(role: Role) -> str:
    """A role in a sentence."""
    return {
        "site": "a site",
        "aggregator": "an aggregator",
        "lead": "a lead",
        "helper": "a noise helper",
        "registrar": "a registrar",
    }[role]


def check_host(host: str) -> str:
    """A host name that certificates and FLARE can carry.

    Raises
    ------
    DataError
    """
    if len(host) > _LONGEST or not _HOST.fullmatch(host):
        raise DataError(
            f"host = {host!r} is not a host name.",
            hint="Give the name by which the sites reach the aggregator, such as "
            "aggregator.example.org, or localhost.",
            code="bad-host",
        )
    return host


def check_port(port: int) -> int:
    """A port that can be listened on.

    Raises
    ------
    DataError
    """
    if not 1 <= port <= 65535:
        raise DataError(
            f"port = {port} is not from 1 to 65535.",
            hint="Give the one port on which the aggregator listens, such as 8102.",
            code="bad-port",
        )
    return port


def check_site(name: str) -> str:
    """A site's name that certificates, folders and FLARE can carry.

    Raises
    ------
    DataError
    """
    if name.casefold() in RESERVED:
        raise DataError(
            f"Site {name!r} is called like another party's kit.",
            hint=f"Choose another name than {', '.join(RESERVED)}.",
            code="reserved-name",
        )
    if not _SITE.fullmatch(name):
        raise DataError(
            f"Site {name!r} cannot be a name in FLARE.",
            hint="Between organisations, names of sites have letters, digits, _ and - only, 63 at "
            "most: change it in the study.",
            code="bad-site-name",
        )
    return name


def check_user(name: str) -> str:
    """A lead's name.

    Raises
    ------
    DataError
    """
    if len(name) > _LONGEST or not _USER.fullmatch(name):
        raise DataError(
            f"The lead's name {name!r} does not look like an e-mail address.",
            hint=f"FLARE requires one; no mail is sent. For example {LEAD_NAME}.",
            code="bad-lead-name",
        )
    return name


def organisation(name: str) -> str:
    """A party's name as FLARE takes it for an organisation: letters, digits and _ only."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
