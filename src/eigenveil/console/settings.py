"""What a console is started with."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from eigenveil.errors import DataError

USUAL_PORT = 8450
CALLBACK = "/sign-in/callback"
"""Where an OpenID Connect provider sends browsers back to."""


@dataclass(frozen=True)
class Rows:
    """What a worker needs to open the things that the pages are about."""

    party: str | None = None  # The folder of a site or a lead
    ledger: str | None = None  # A file, or a database's URL
    data_set: str = "default"  # The rows' name in the ledger
    data: tuple[str, ...] = ()  # The files of an analyst alone
    schema: str | None = None  # Of these files


@dataclass(frozen=True)
class Issuer:
    """An OpenID Connect provider, and this console as it knows it."""

    url: str  # The issuer; its configuration is below `/.well-known`
    client: str
    secret: str
    # The console's own address as browsers have it, to which the provider sends them back
    address: str
    claim: str = "email"  # The claim whose value is the name of an account here


@dataclass(frozen=True)
class Settings:
    """A console's settings."""

    section: str  # Whose pages: one of :data:`eigenveil.console.app.SECTIONS`
    state: Path  # Folder of accounts, runs and results; only its owner may enter it
    rows: Rows = field(default_factory=Rows)
    host: str = "127.0.0.1"  # Where it listens
    port: int = USUAL_PORT
    names: tuple[str, ...] = ()  # Host names by which browsers may call it, beside `host`
    tls: tuple[Path, Path] | None = None  # Certificate and key, PEM
    # Seconds after which a session ends: without a request, and in any case
    idle: float = 15 * 60.0
    longest: float = 8 * 3600.0
    issuer: Issuer | None = None

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.tls is None:
            raise DataError(
                f"--host {self.host} can be reached from other machines, and there is no TLS.",
                hint="Give --tls-cert and --tls-key, or leave --host out.",
                code="tls-needed",
            )

    @property
    def hosts(self) -> frozenset[str]:
        """What a request may have for its host, without the port, in lower case."""
        known = {self.host.lower(), *(name.lower() for name in self.names)}
        if is_loopback(self.host):
            known |= {"127.0.0.1", "localhost", "::1"}
        return frozenset(known)

    @property
    def secure(self) -> bool:
        """Whether browsers reach it by TLS."""
        return self.tls is not None


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
