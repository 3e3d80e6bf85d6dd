"""``eigenveil certify`` and ``eigenveil proofs``: a result's guarantee and its proofs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.presenters.registry import load_model
from eigenveil.app.results import CERTIFICATE, MODEL, print_assumptions, print_views
from eigenveil.cli.presenters.screen import Screen, bold, say
from eigenveil.errors import DataError, EigenveilError, short_name
from eigenveil.federation.members import plain_fingerprint
from eigenveil.federation.protocol.certificates import NOT_VALID, WHAT_SITES_SIGN, Verdict, check
from eigenveil.privacy.certificate import WHAT_IT_CANNOT_SHOW, Certificate, read_certificate
from eigenveil.privacy.proof_files import proof_titles, read_proof


def proofs(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a proof, as 'eigenveil certify' shows it; without it, all are listed."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Print a proof that a certificate cites, or the list of all proofs."""
    if name is not None:
        text = read_proof(name)
        if json:
            options.print_json({"name": name.removesuffix(".md"), "text": text})
        else:
            typer.echo(text, nl=False)
        return
    titles = proof_titles()
    if json:
        options.print_json(titles)
        return
    longest = max(map(len, titles), default=0)
    for each, title in titles.items():
        say(f"{each:{longest}}  {title}")


# -- ``eigenveil certify``: a certificate against its plan, and its guarantee computed again.


_DOES_NOT_HOLD = 8


def certify(
    result: options.ResultFolder,
    registrar: Annotated[
        str | None,
        typer.Option(
            help="Fingerprint of the federation's registrar, or a party's folder, which has it. "
            "Signatures of the federation's sites are then required."
        ),
    ] = None,
    signatures: Annotated[
        int | None, typer.Option(help="Sites that must have signed; all by default.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Recompute the guarantee of a result and report whether it holds (status 8 if not).

    It holds for the model that the certificate was made for: the model beside it must be that.
    Between organisations the sites have signed it: who has is shown, and with --registrar it
    fails unless all have.
    """
    if result.suffix == ".npz" and not result.is_dir():
        raise DataError(
            f"{result} is a model, and a certificate is compared with the model beside it.",
            hint=f"Give the result's folder: eigenveil certify {result.parent}",
            code="bad-certificate",
        )
    path: Path = result / CERTIFICATE if result.is_dir() or not result.suffix else result
    certificate = read_certificate(path)
    verdict = check(certificate, registrar=_fingerprint(registrar), signatures=signatures)
    beside = path.parent / MODEL
    # a played tree writes no model
    if beside.exists() or (result.is_dir() and certificate.tree is None):
        problem = other_model(beside, certificate)
        if problem is not None:
            verdict = Verdict(False, NOT_VALID, None, problem)
    if json:
        options.print_json(
            {
                "holds": verdict.holds,
                "explanation": verdict.explanation,
                "guarantee": None if verdict.guarantee is None else verdict.guarantee.as_dict(),
                "views": {name: view.as_dict() for name, view in verdict.views.items()},
                "proofs": list(certificate.proofs),
                "signed": None if verdict.signed is None else asdict(verdict.signed),
            }
        )
    else:
        screen = Screen(quiet=quiet)
        screen.print(bold(verdict.word))
        screen.print(verdict.explanation)
        if verdict.guarantee is not None:
            screen.print(f"claim: {verdict.guarantee}")
            print_assumptions(verdict.guarantee, screen)
        if len(verdict.views) > 1:
            print_views(verdict.views, screen)
        screen.print(f"releases: {', '.join(short_name(r.name) for r in certificate.releases)}")
        names = ", ".join(name.removesuffix(".md") for name in certificate.proofs)
        screen.print(f"proofs: {names} ('eigenveil proofs NAME' prints one)", soft_wrap=True)
        if verdict.signed is not None:
            screen.print(f"signatures: {verdict.signed}.", soft_wrap=True)
            screen.print(f"note: {WHAT_SITES_SIGN}.")
        screen.print(f"note: {WHAT_IT_CANNOT_SHOW}.")
    if not verdict.holds:
        raise typer.Exit(_DOES_NOT_HOLD)
    return 0


def _fingerprint(registrar: str | None) -> str | None:
    """A registrar's fingerprint, as it is given or as a party's folder has it."""
    if registrar is None:
        return None
    if not Path(registrar).is_dir():
        return plain_fingerprint(registrar)
    from eigenveil.network.folder import open_party

    return open_party(Path(registrar)).origin


def other_model(model: Path, certificate: Certificate) -> str | None:
    """Why a certificate is not that of the model beside it; ``None`` where it is."""
    try:
        inside = load_model(model).certificate_
    except EigenveilError as error:
        return str(error)
    if inside != certificate:
        return f"{CERTIFICATE} is not the certificate that {model} was saved with."
    return None
