"""``eigenveil console``: serve the pages, and the accounts of those who may sign in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from eigenveil.console.users import (
    LedgerPlace,
    PartyPath,
    State,
    need_extra,
    state_folder,
    user_app,
)
from eigenveil.errors import DataError, OutputError

console_app = typer.Typer(
    help="Pages for a site's owner, a study's lead or one analyst: decisions, plans, results.",
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
)
console_app.add_typer(user_app, name="user")

_SECRET = "EIGENVEIL_OIDC_SECRET"


@console_app.callback()
def serve(
    context: typer.Context,
    party: PartyPath = None,
    ledger: LedgerPlace = None,
    data_set: Annotated[str, typer.Option(help="The rows' name in a site's ledger.")] = "default",
    data: Annotated[
        list[str] | None,
        typer.Option(help="For one analyst: a file with rows, in place of a party; repeat."),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="What the columns of these files are.")
    ] = None,
    state: State = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; beyond this machine only with TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port.", min=1, max=65535)] = 8450,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A host name by which browsers call the console; repeat."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="The certificate of the console (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
    idle: Annotated[
        float, typer.Option(help="Minutes without a request after which a session ends.", min=1)
    ] = 15.0,
    longest: Annotated[
        float, typer.Option(help="Hours after which every session ends.", min=0.1)
    ] = 8.0,
    oidc: Annotated[
        str | None,
        typer.Option(help="An OpenID Connect issuer, such as https://login.hospital.example."),
    ] = None,
    oidc_client: Annotated[
        str | None,
        typer.Option(help=f"The console's client id there; its secret is in {_SECRET}."),
    ] = None,
    oidc_claim: Annotated[
        str, typer.Option(help="The claim that is the name of an account.")
    ] = "email",
    address: Annotated[
        str | None,
        typer.Option(help="The console's address for browsers, such as https://console.example."),
    ] = None,
) -> None:
    """Serve the pages until stopped (Ctrl-C): with --party or with --data."""
    if context.invoked_subcommand is not None:
        return
    if (party is None) == (not data):
        raise DataError(
            "The console is for a party or for one table, and needs one of them.",
            hint="Give --party FOLDER (a site's or a lead's), or --data FILE.",
            code="no-console",
        )
    if (tls_cert is None) != (tls_key is None):
        raise DataError(
            "--tls-cert and --tls-key go together.", hint="Give both.", code="tls-needed"
        )
    need_extra()
    from eigenveil.console.settings import Issuer, Rows, Settings

    issuer = None
    if oidc is not None:
        secret = os.environ.get(_SECRET)
        if oidc_client is None or address is None or not secret:
            raise DataError(
                "--oidc needs --oidc-client, --address and the client's secret.",
                hint=f"Give the secret in the environment: {_SECRET}.",
                code="no-provider",
            )
        issuer = Issuer(oidc, oidc_client, secret, address, oidc_claim)
    section = "table" if party is None else _role(Path(party))
    settings = Settings(
        section=section,
        state=state_folder(state),
        rows=Rows(
            None if party is None else str(Path(party).absolute()),
            _absolute(ledger),
            data_set,
            tuple(_absolute(file) or file for file in data or ()),
            None if schema is None else str(schema.absolute()),
        ),
        host=host,
        port=port,
        names=tuple(name or ()),
        tls=None if tls_cert is None or tls_key is None else (tls_cert, tls_key),
        idle=60 * idle,
        longest=3600 * longest,
        issuer=issuer,
    )
    from eigenveil.console.serving import run

    run(settings)


def _role(party: Path) -> str:
    """Whose folder it is; its file is read without the libraries of studies."""
    import json

    try:
        role = json.loads((party / "party.json").read_text(encoding="utf-8"))["role"]
    except (OSError, ValueError, KeyError, TypeError):
        raise OutputError(
            f"{party} is no party's folder.",
            hint="Give one that 'eigenveil federation join' or 'new --all' made.",
            code="no-party",
        ) from None
    if role not in ("site", "lead"):
        raise DataError(
            f"{party} is of another role than a site or a lead.",
            hint="The console is for a site's owner and for a lead.",
            code="other-role",
        )
    return str(role)


def _absolute(place: str | None) -> str | None:
    return place if place is None or "://" in place else str(Path(place).absolute())
