"""``eigenveil console``: serve the pages."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, cast

import typer

from eigenveil.console.settings import USUAL_PORT, Issuer, Link, Proxy, Role, Rows, Settings
from eigenveil.errors import DataError, OutputError, of_system
from eigenveil.files import user_folder

OIDC_SECRET, PROXY_SECRET = "EIGENVEIL_OIDC_SECRET", "EIGENVEIL_PROXY_SECRET"
_LIBRARIES = ("authlib", "httpx", "itsdangerous", "jinja2", "multipart", "starlette", "uvicorn")


PartyOption = Annotated[
    str | None, typer.Option(help="The folder of a site, or of a study's lead.")
]
LedgerOption = Annotated[str | None, typer.Option(help="The ledger: a file, or a database's URL.")]
DataSetOption = Annotated[
    str, typer.Option(help="The rows' name in a site's ledger; that of 'site start'.")
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(help="For one analyst: a file with rows, in place of a party; repeat."),
]
TablesOption = Annotated[
    Path | None,
    typer.Option(help="For one analyst: a folder of tables; pages choose one, and bring others."),
]
SchemaOption = Annotated[Path | None, typer.Option(help="What the columns of these files are.")]
StateOption = Annotated[
    Path | None,
    typer.Option(help="Folder of runs, results and the log; by default one of this user."),
]
HostOption = Annotated[
    str, typer.Option(help="Where to listen; beyond this machine only with TLS.")
]
PortOption = Annotated[int, typer.Option(help="The port.", min=1, max=65535)]
TlsCertOption = Annotated[Path | None, typer.Option(help="The certificate of the console (PEM).")]
TlsKeyOption = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]
IdleOption = Annotated[
    float, typer.Option(help="Minutes without a request after which a session ends.", min=1)
]
LongestOption = Annotated[
    float, typer.Option(help="Hours after which every session ends.", min=0.1)
]
NameOption = Annotated[
    str, typer.Option("--as", help="Whose name decisions have, of whoever opens the link.")
]
KeysOption = Annotated[
    Path | None,
    typer.Option(help="Folder of approvers' keys, NAME.key; by default the party's own."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="For several people: the console's address, https://console.example."),
]
PersonOption = Annotated[
    list[str] | None,
    typer.Option(help="Who may come in, NAME=ROLE: owner, approver, viewer or lead; repeat."),
]
OidcOption = Annotated[
    str | None,
    typer.Option(help="An OpenID Connect issuer, such as https://login.hospital.example."),
]
OidcClientOption = Annotated[
    str | None, typer.Option(help=f"The console's client id there; its secret is in {OIDC_SECRET}.")
]
OidcClaimOption = Annotated[str, typer.Option(help="The claim that is a person's name.")]
ProxyHeaderOption = Annotated[
    str | None, typer.Option(help="The header in which a proxy names whom it has signed in.")
]
ProxyAddressOption = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Where that proxy calls from, such as 10.0.0.5; repeat. Or a secret, which it "
        f"sends in X-Eigenveil-Proxy-Secret, in {PROXY_SECRET}."
    ),
]


def console(
    party: PartyOption = None,
    ledger: LedgerOption = None,
    data_set: DataSetOption = "default",
    data: DataOption = None,
    tables: TablesOption = None,
    schema: SchemaOption = None,
    state: StateOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = USUAL_PORT,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    idle: IdleOption = 15.0,
    longest: LongestOption = 8.0,
    name: NameOption = "owner",
    keys: KeysOption = None,
    address: AddressOption = None,
    person: PersonOption = None,
    oidc: OidcOption = None,
    oidc_client: OidcClientOption = None,
    oidc_claim: OidcClaimOption = "email",
    proxy_header: ProxyHeaderOption = None,
    proxy_address: ProxyAddressOption = None,
) -> None:
    """Serve the pages until stopped (Ctrl-C), for tables that the browser brings.

    With --data it is for these files alone, with --party for a site or a lead.

    On this machine the link that is printed lets one person in. Several people come in by --oidc or
    --proxy-header, each named by --person.
    """
    if sum((party is not None, bool(data), tables is not None)) > 1:
        raise DataError("no-console")
    if (tls_cert is None) != (tls_key is None):
        raise DataError("half-tls")
    need_extra()
    door: Link | Proxy | Issuer = Link(secrets.token_urlsafe(32), name)
    if oidc is not None or proxy_header is not None:
        door = _of_several(oidc, oidc_client, oidc_claim, proxy_header, proxy_address or ())
    files = tuple(str(_absolute(file)) for file in data or ())
    place = (state or user_folder("data") / "eigenveil" / "console").absolute()
    if party is None and not files:
        tables = tables or place / "tables"
        try:
            tables.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError("no-console-state", place=tables, why=of_system(error)) from None
    settings = Settings(
        section="table" if party is None else _role(Path(party)),
        state=place,
        door=door,
        people=_people(person or ()),
        rows=Rows(
            party=_absolute(party),
            ledger=_absolute(ledger),
            data_set=data_set,
            data=files,
            schema=_absolute(schema),
            keys=_absolute(keys),
            own_key=isinstance(door, Link),
            tables=_absolute(tables),
        ),
        host=host,
        port=port,
        address=address,
        tls=None if tls_cert is None or tls_key is None else (tls_cert, tls_key),
        idle=60 * idle,
        longest=3600 * longest,
    )
    # imported here: --help needs no server
    from eigenveil.console.app import run

    run(settings)


def _of_several(
    oidc: str | None, client: str | None, claim: str, header: str | None, addresses: Sequence[str]
) -> Proxy | Issuer:
    """The door of several people; its secret is in the environment."""
    if header is None:
        secret = os.environ.get(OIDC_SECRET)
        if client is None or not secret:
            raise DataError("no-provider", why=f"--oidc-client and {OIDC_SECRET} are needed")
        return Issuer(str(oidc), client, secret, claim)
    if oidc is not None:
        raise DataError("two-doors")
    return Proxy(header, tuple(addresses), os.environ.get(PROXY_SECRET, ""))


def _people(given: Sequence[str]) -> dict[str, Role]:
    pairs = [text.rpartition("=") for text in given]
    return {name.strip(): cast("Role", role.strip()) for name, _, role in pairs}


def _role(party: Path) -> str:
    """Whose folder it is; its file is read without the libraries of studies."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        role = json.loads((party / "party.json").read_text(encoding="utf-8"))["role"]
        if role in ("site", "lead"):
            return str(role)
    raise OutputError("console-needs-party", place=party)


def _absolute(place: str | Path | None) -> str | None:
    return None if place is None else str(place if "://" in str(place) else Path(place).absolute())


def need_extra() -> None:
    """Raise where the console's libraries are not installed."""
    for name in _LIBRARIES:
        if find_spec(name) is None and find_spec(f"python_{name}") is None:
            raise OutputError("console-not-installed", library=name)
