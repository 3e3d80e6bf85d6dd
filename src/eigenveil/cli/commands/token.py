"""``eigenveil token``: a party's signing key in a PKCS#11 token instead of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen

if TYPE_CHECKING:
    from eigenveil.federation.token_key import Token

token_app = typer.Typer(
    help="A signing key in a PKCS#11 token (a smart card or HSM) instead of the kit's file.",
    no_args_is_help=True,
    add_completion=False,
)

KitFolder = Annotated[Path, typer.Option("--kit", help="The party's kit.")]
Module = Annotated[str, typer.Option(help="The token's PKCS#11 library, a file of its vendor's.")]
Label = Annotated[str, typer.Option("--token", help="The token's label.")]
Key = Annotated[str, typer.Option(help="The label of an RSA key that is in the token.")]
PinFile = Annotated[
    Path | None,
    typer.Option(help="A file whose first line is the PIN; else EIGENVEIL_TOKEN_PIN has it."),
]


def _token(module: str, token: str, key: str, pin_file: Path | None) -> Token:
    from eigenveil.federation.token_key import Token

    return Token(module, token, key, "" if pin_file is None else str(pin_file))


@token_app.command()
def request(
    kit: KitFolder,
    module: Module,
    token: Label,
    key: Key,
    out: Annotated[Path, typer.Option(help="The request to write, for the registrar.")],
    pin_file: PinFile = None,
) -> None:
    """Request a certificate for a key that is in a token."""
    from eigenveil.federation.token_key import open_token
    from eigenveil.network.certificates import fingerprint
    from eigenveil.network.kit import open_kit
    from eigenveil.network.signing import request_signing

    where = _token(module, token, key, pin_file)
    path = request_signing(open_kit(kit), where, out)
    screen = Screen()
    screen.print(f"{path}: for the registrar, who approves it with --renew.", soft_wrap=True)
    screen.print(f"public key: {fingerprint(open_token(where).public_key())}", soft_wrap=True)


@token_app.command()
def install(
    kit: KitFolder,
    module: Module,
    token: Label,
    key: Key,
    approval: Annotated[Path, typer.Option(help="What the registrar approved.")],
    pin_file: PinFile = None,
) -> None:
    """Sign with the token's key from now on; TLS keeps the key in the kit's file."""
    from eigenveil.network.kit import open_kit
    from eigenveil.network.signing import install_signing

    opened = open_kit(kit)
    where = _token(module, token, key, pin_file)
    install_signing(opened, where, approval)
    Screen().print(
        f"{opened.name} signs with key {key} in token {token} from its next study on. At a site, "
        "'eigenveil site approver renew owner' lets it decide with it.",
        soft_wrap=True,
    )


@token_app.command()
def remove(kit: KitFolder) -> None:
    """Sign with the kit's file again, once the registrar has approved its request."""
    from eigenveil.network.kit import open_kit
    from eigenveil.network.signing import remove_signing

    opened = open_kit(kit)
    remove_signing(opened)
    Screen().print(
        f"{opened.name} signs with the key in the kit's file. Others take that from the list of "
        "members that the registrar makes: 'eigenveil flare request --renew', 'approve --renew', "
        "'package'.",
        soft_wrap=True,
    )


@token_app.command()
def show(kit: KitFolder, json: options.Json = False) -> None:
    """Say where a kit's signing key is."""
    from eigenveil.network.kit import open_kit
    from eigenveil.network.signing import token_of

    opened = open_kit(kit)
    found = token_of(opened)
    if json:
        fields = None if found is None else {"token": found.token, "key": found.key}
        options.print_json({"kit": str(opened.folder), "token": fields})
        return
    where = "in the kit's file" if found is None else f"{found.key} in token {found.token}"
    Screen().print(f"{opened.name} signs with the key {where}.")
