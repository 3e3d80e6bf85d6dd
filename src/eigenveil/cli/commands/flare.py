"""``eigenveil flare``: keys, certificates and kits of the parties of a study between sites."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, bold
from eigenveil.federation.study.file import read_study

if TYPE_CHECKING:  # loaded by the commands: cryptography takes a while
    from eigenveil.network.roles import Role
    from eigenveil.network.x509_members import SignedMembers

flare_app = typer.Typer(
    help="Kits for studies between organisations: key, certificate and policy of each party.",
    no_args_is_help=True,
    add_completion=False,
)

StudyFile = Annotated[Path, typer.Argument(help="The study, as 'eigenveil study new' writes it.")]
Host = Annotated[str, typer.Option(help="The name by which the sites reach the aggregator.")]
Port = Annotated[int, typer.Option(help="The port on which the aggregator listens.")]
Replace = Annotated[
    bool, typer.Option("--overwrite", help="Replace existing kits; their keys are lost.")
]

_ROLES = ("site", "aggregator", "lead", "helper")


@flare_app.command()
def provision(
    study: StudyFile,
    out: Annotated[Path, typer.Option(help="Folder to make.")] = Path("kits"),
    host: Host = "localhost",
    port: Port = 8102,
    registrar_only: Annotated[
        bool,
        typer.Option(
            "--registrar-only",
            help="Make only the registrar's kit; each party makes its own key (request).",
        ),
    ] = False,
    overwrite: Replace = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make the kits of all parties in one place: on one machine, or by one whom all trust."""
    from eigenveil.network.certificates import fingerprint, read_certificate
    from eigenveil.network.flare.authority import need_flare
    from eigenveil.network.flare.provision import provision as make_kits
    from eigenveil.network.kit import open_kit
    from eigenveil.network.x509_registrar import make_registrar

    agreed = read_study(study)
    need_flare()
    if registrar_only:
        kit = make_registrar(agreed, out, host=host, port=port, overwrite=overwrite)
        made = {"registrar": out}
    else:
        made = make_kits(agreed, out, host=host, port=port, overwrite=overwrite)
        kit = open_kit(made["registrar"])
    root = fingerprint(read_certificate(kit.root_certificate))
    if json:
        kits = {name: str(folder) for name, folder in made.items()}
        options.print_json({"kits": kits, "root_fingerprint": root})
        return
    screen = Screen(quiet=quiet)
    for name, folder in made.items():
        screen.print(f"{name:<12} {folder}", soft_wrap=True)
    screen.print(f"root certificate: {root}", soft_wrap=True)
    screen.print(
        f"The root key is in {made['registrar']} alone: whoever holds it can admit "
        "anybody. Keep it with an independent party, never with the aggregator.",
        soft_wrap=True,
    )
    if not registrar_only:
        screen.print(
            "All private keys were made here. Between organisations, let each party make its own: "
            "--registrar-only, and 'eigenveil flare request'.",
            soft_wrap=True,
        )


@flare_app.command()
def request(
    study: StudyFile,
    out: Annotated[Path, typer.Option(help="The party's kit: a folder to make.")],
    role: Annotated[str, typer.Option(help="site, aggregator, lead or helper.")] = "site",
    name: Annotated[
        str | None,
        typer.Option(help="A site's name in the study, or the aggregator's host name."),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Ask for a new certificate of the kit's own key.")
    ] = False,
    new_key: Annotated[
        bool,
        typer.Option(
            "--new-key",
            help="With --renew: of a new key, which takes the place of the kit's with 'package'.",
        ),
    ] = False,
    overwrite: Replace = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Begin a party's kit: its private key, and a request for the registrar."""
    from eigenveil.network.certificates import fingerprint
    from eigenveil.network.enrolment import read_request
    from eigenveil.network.enrolment import request as request_certificate

    wanted_role = _role(role)
    file = request_certificate(
        read_study(study),
        out,
        role=wanted_role,
        name=name,
        renew=renew,
        new_key=new_key,
        overwrite=overwrite,
    )
    key = fingerprint(read_request(file).public_key)
    if json:
        options.print_json({"request": str(file), "key_fingerprint": key})
        return
    screen = Screen(quiet=quiet)
    screen.print(f"request:    {file} (public; send it to the registrar)")
    screen.print(f"public key: {key}", soft_wrap=True)
    screen.print("The private key stays in the kit. Tell the registrar the line above, by another")
    screen.print("way; then 'eigenveil flare package' completes the kit with what comes back.")


@flare_app.command()
def approve(
    request: Annotated[Path, typer.Argument(help="A party's request.")],
    kit: Annotated[Path, typer.Option(help="The registrar's kit.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; NAME.approval.json by default.")
    ] = None,
    days: Annotated[int, typer.Option(help="Number of days that the certificate is valid.")] = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="Issue another certificate to a party that has one.")
    ] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier file.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """As the registrar, certify the key of a party's request."""
    from eigenveil.network.certificates import fingerprint, read_certificate
    from eigenveil.network.enrolment import read_request
    from eigenveil.network.flare.authority import need_flare
    from eigenveil.network.kit import open_kit
    from eigenveil.network.x509_registrar import approve as certify

    registrar = open_kit(kit, role="registrar")
    found = read_request(request)
    need_flare()
    target = out or Path(f"{found.name.replace('/', '_')}.approval.json")
    certify(request, kit, target, days=days, renew=renew, overwrite=overwrite)
    key, root = (
        fingerprint(found.public_key),
        fingerprint(read_certificate(registrar.certificate)),
    )
    signs = "with this key" if found.signs else "as before: this key only connects"
    if json:
        options.print_json(
            {
                "approval": str(target),
                "signs": found.signs,
                "role": found.role,
                "name": found.name,
                "key_fingerprint": key,
                "root_fingerprint": root,
            }
        )
        return
    screen = Screen(quiet=quiet)
    screen.print(f"approval:         {target} (public; send it to the party)")
    screen.print(f"party:            {found.role} {found.name}")
    screen.print(f"public key:       {key}", soft_wrap=True)
    screen.print(f"it signs:         {signs}", soft_wrap=True)
    screen.print(f"root certificate: {root}", soft_wrap=True)
    screen.print(
        "If the party reads out another public key, do not send it. Tell the party the root "
        "certificate's line, by another way than the file.",
        soft_wrap=True,
    )


@flare_app.command()
def package(
    kit: Annotated[Path, typer.Argument(help="The kit that 'request' began.")],
    approval: Annotated[Path, typer.Argument(help="What the registrar sent.")],
    fingerprint: Annotated[
        str,
        typer.Option(
            help="Of the root certificate, as given by the registrar (by telephone, say)."
        ),
    ],
    quiet: options.Quiet = False,
) -> None:
    """Complete a party's kit with what the registrar approved."""
    from eigenveil.network.enrolment import package as complete

    done = complete(kit, approval, fingerprint=fingerprint)
    Screen(quiet=quiet).print(
        f"{kit} is complete: {done.role} {done.name}, aggregator at {done.host}:{done.port}. A "
        "party that runs takes it over by itself.",
        soft_wrap=True,
    )


RegistrarKit = Annotated[Path, typer.Option("--kit", help="The registrar's kit.")]
ListFile = Annotated[
    Path, typer.Option("--out", help="Where the new list is written, to be sent to the aggregator.")
]


@flare_app.command("add-party")
def add_party(
    name: Annotated[str, typer.Argument(help="A site's name, or a lead's (like an e-mail).")],
    kit: RegistrarKit,
    role: Annotated[str, typer.Option(help="site, lead or helper.")] = "site",
    out: ListFile = Path("members.json"),
    quiet: options.Quiet = False,
) -> None:
    """As the registrar, let a party in: its request can then be approved. Nobody stops."""
    from eigenveil.network.x509_registrar import add_party as add

    signed = add(kit, role=_role(role), name=name)
    _print_change(signed, out, f"added: {role} {name}", quiet=quiet)


@flare_app.command("remove-party")
def remove_party(
    name: Annotated[str, typer.Argument(help="As in the list of members.")],
    kit: RegistrarKit,
    out: ListFile = Path("members.json"),
    quiet: options.Quiet = False,
) -> None:
    """As the registrar, put a party out, and revoke its certificates. Nobody else stops."""
    from eigenveil.network.x509_registrar import remove_party as remove

    _print_change(remove(kit, name), out, f"removed: {name}", quiet=quiet)


@flare_app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="As in the party's certificate.")],
    kit: RegistrarKit,
    out: ListFile = Path("members.json"),
    quiet: options.Quiet = False,
) -> None:
    """As the registrar, revoke a party's certificates, as after its key was lost; it stays in."""
    from eigenveil.network.x509_registrar import revoke as revoke_certificates

    _print_change(
        revoke_certificates(kit, name),
        out,
        f"revoked: all certificates that {name} got so far; 'eigenveil flare approve --renew' "
        "gives another one, of a new key",
        quiet=quiet,
    )


@flare_app.command()
def members(
    kit: Annotated[Path, typer.Option("--kit", help="Any party's kit.")],
    newest: Annotated[
        Path | None,
        typer.Argument(help="A newer list, as the registrar wrote it: it is taken over."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show who is in the federation; or take over a newer list, also while the party runs."""
    from eigenveil.network.certificates import read_certificate
    from eigenveil.network.kit import open_kit
    from eigenveil.network.x509_members import KnownMembers, read_file

    opened = open_kit(kit)
    known = KnownMembers(opened.members, read_certificate(opened.root_certificate))
    taken = newest is not None and known.adopt(read_file(newest))
    found = known.current()
    if json:
        options.print_json({} if found is None else found.model_dump(mode="json"))
        return
    screen = Screen(quiet=quiet)
    if newest is not None:
        screen.print("taken over" if taken else "this list is known already")
    if found is None:
        screen.print("This kit has no list of members: certificates alone count.")
        return
    screen.print(f"list {found.number} of {found.project}, {found.time:%Y-%m-%d %H:%M} UTC")
    for each in found.parties:
        screen.print(f"{each.role:<12} {each.name}", soft_wrap=True)
    for gone in found.removed:
        screen.print(f"removed      {gone.role} {gone.name}", soft_wrap=True)
    for bad in found.revoked:
        screen.print(
            f"revoked      {bad.role} {bad.name}, certificate {bad.serial}", soft_wrap=True
        )


def _print_change(signed: SignedMembers, out: Path, done: str, *, quiet: bool) -> None:
    from eigenveil.network.x509_members import write_members

    write_members(out, signed)
    screen = Screen(quiet=quiet)
    screen.print(done, soft_wrap=True)
    screen.print(f"list {signed.members.number}: {out} (public)", soft_wrap=True)
    screen.print(
        f"Send it to the aggregator: eigenveil flare members --kit AGGREGATOR {out}; it brings it "
        "to the sites with its next study. Their kits stay as they are.",
        soft_wrap=True,
    )


@flare_app.command()
def show(
    kit: Annotated[Path, typer.Argument(help="A party's kit.")],
    json: options.Json = False,
) -> None:
    """Say whose a kit is, how long it is good, and which queries it may get."""
    from eigenveil.network.flare.provision import inspect
    from eigenveil.network.kit import open_kit

    facts = inspect(open_kit(kit))
    if json:
        options.print_json(asdict(facts))
        return
    screen = Screen()
    lines = {
        "role": facts.role,
        "name": facts.name,
        "federation": facts.project,
        "aggregator": f"{facts.host}:{facts.port}",
        "certificate": facts.fingerprint,
        "root certificate": facts.root_fingerprint,
        "valid until": facts.valid_until,
        "jobs may name": ", ".join(facts.allows) or "nothing: this party runs no jobs",
    }
    if facts.role == "site":
        lines["studies decided"] = ", ".join(facts.decided) or "none"
        lines["studies waiting"] = ", ".join(facts.waiting) or "none"
    for what, text in lines.items():
        screen.print(f"{what + ':':<18}{text}", soft_wrap=True)
    if facts.problem:
        screen.print(bold("CANNOT CONNECT:"), facts.problem, soft_wrap=True)


def _role(text: str) -> Role:
    """A role that can request a certificate."""
    for role in _ROLES:
        if text == role:
            return role  # type: ignore[return-value]
    raise options.WrongOption(
        f"--role {text!r} is not one of {', '.join(_ROLES)}.", hint="Choose one of these."
    )
