"""What a console is started with."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from eigenveil.errors import DataError, short_name

Role = Literal["owner", "approver", "viewer", "lead"]
ROLES: tuple[Role, ...] = get_args(Role)
USUAL_PORT = 8450
READING = ("separator", "decimal", "encoding")
"""What a page may say of how a table is written."""
LONGEST_NAME = 80


@dataclass(frozen=True)
class Rows:
    """What a worker needs to open the things that the pages are about."""

    party: str | None = None  # The folder of a site or a lead
    ledger: str | None = None  # A file, or a database's URL
    data_set: str = "default"  # The rows' name in the ledger
    data: tuple[str, ...] = ()  # The files of an analyst alone
    schema: str | None = None  # Of these files
    keys: str | None = None  # Folder of approvers' keys; by default the party's own
    own_key: bool = False  # Whether the party's own key signs for the first owner, who is alone
    tables: str | None = None  # Folder of an analyst's tables, of which pages choose one
    # How these are written, where their owner says so: `READING`
    separator: str = ""
    decimal: str = ""
    encoding: str = ""


@dataclass(frozen=True)
class Link:
    """One person, on this machine: whoever has the token that is printed at the start."""

    token: str = field(repr=False)
    name: str = "owner"


@dataclass(frozen=True)
class Proxy:
    """People whom a proxy before the console has signed in: a header has the name.

    The header is believed of these networks, of whoever shows the secret, or, where both are given,
    of those who have both.
    """

    header: str
    networks: tuple[str, ...] = ()
    secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not (self.networks or self.secret):
            raise DataError("bad-proxy", why="its address or a secret must be given")
        if self.secret and len(self.secret) < 16:
            raise DataError("bad-proxy", why="a secret has 16 characters or more")
        if not self.header.replace("-", "").isalnum() or not self.header.isascii():
            raise DataError("bad-proxy", why=f"{short_name(self.header)!r} names no header")
        try:
            _ = self.known
        except ValueError as error:
            raise DataError("bad-proxy", why=str(error)) from None

    @property
    def known(self) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
        """Where the proxy may call from."""
        return [ipaddress.ip_network(each) for each in self.networks]

    def calls_from(self, address: str) -> bool:
        try:
            return any(ipaddress.ip_address(address) in each for each in self.known)
        except ValueError:
            return False


@dataclass(frozen=True)
class Issuer:
    """People whom an OpenID Connect provider has signed in."""

    url: str  # The issuer; its configuration is below `/.well-known`
    client: str
    secret: str = field(repr=False)
    claim: str = "email"  # The claim whose value is a person's name here

    def __post_init__(self) -> None:
        if not self.url.startswith("https://"):
            raise DataError("no-provider", why=f"{short_name(self.url)} is not https://")


@dataclass(frozen=True)
class Settings:
    section: str  # Whose pages: one of :data:`eigenveil.console.app.SECTIONS`
    state: Path  # Folder of runs, results and the log; only its owner may enter it
    door: Link | Proxy | Issuer
    people: Mapping[str, Role] = field(default_factory=dict)  # Who may come in, where several may
    rows: Rows = field(default_factory=Rows)
    host: str = "127.0.0.1"  # Where it listens
    port: int = USUAL_PORT
    address: str | None = None  # As browsers have it, where that is another one
    tls: tuple[Path, Path] | None = None  # Certificate and key, PEM
    # Seconds after which a session ends: without a request, and in any case
    idle: float = 15 * 60.0
    longest: float = 8 * 3600.0

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.tls is None:
            raise DataError("tls-needed", host=self.host)
        several = not isinstance(self.door, Link)
        if not several and not (is_loopback(self.host) and self.address is None):
            raise DataError("link-elsewhere")
        if several and not self.people:
            raise DataError("no-people")
        found = urlsplit(self.address or "")
        whole = found.hostname and found.path in ("", "/") and found.scheme == "https"
        if several and not whole:
            raise DataError("no-console-address")
        for name, role in self.people.items():
            if not is_name(name):
                raise DataError("bad-person", name=short_name(name))
            if role not in ROLES:
                raise DataError("bad-person-role", role=short_name(role), roles=", ".join(ROLES))

    @property
    def hosts(self) -> frozenset[str]:
        """What a request may have for its host, without the port, in lower case."""
        if self.address is not None:
            return frozenset({urlsplit(self.address).hostname or ""})
        here = {"127.0.0.1", "localhost", "::1"} if is_loopback(self.host) else set()
        return frozenset({self.host.lower()} | here)

    @property
    def secure(self) -> bool:
        """Whether browsers reach it by TLS."""
        return self.tls is not None or self.address is not None

    def origin(self, host: str) -> str:
        """Where its own pages come from, for a request with this host."""
        if self.address is not None:
            return self.address.rstrip("/")
        return f"{'https' if self.secure else 'http'}://{host}"


def is_name(text: str) -> bool:
    """Whether a text can name a person: shown in a log, and in the name of a key's file."""
    return (
        0 < len(text) <= LONGEST_NAME
        and text.isprintable()
        and text == text.strip()
        and not text.startswith(".")
        and not any(each in text for each in "/\\")
    )


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
