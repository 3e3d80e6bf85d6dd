"""``eigenveil certify``: a certificate against its plan, and its guarantee computed again."""

from __future__ import annotations

from pathlib import Path

import typer

from eigenveil.cli import options
from eigenveil.cli.report import print_views
from eigenveil.cli.results import CERTIFICATE, MODEL
from eigenveil.cli.screen import Screen, bold
from eigenveil.cli.tasks import load_model
from eigenveil.errors import EigenveilError, short_name
from eigenveil.federation.certify import Verdict, check
from eigenveil.privacy.certificate import WHAT_IT_CANNOT_SHOW, Certificate, read_certificate

_DOES_NOT_HOLD = 8


def certify(
    result: options.ResultFolder, json: options.Json = False, quiet: options.Quiet = False
) -> int:
    """Recompute the guarantee of a result and say whether it holds (status 8 if not).

    It holds for the model that the certificate was made for: the model beside it must be that.
    """
    path: Path = result / CERTIFICATE if result.is_dir() or not result.suffix else result
    certificate = read_certificate(path)
    verdict = check(certificate)
    beside = path.parent / MODEL
    # a played tree writes no model
    if beside.exists() or (result.is_dir() and certificate.tree is None):
        trouble = _other_model(beside, certificate)
        if trouble is not None:
            verdict = Verdict(False, "DOES NOT HOLD", None, trouble)
    if json:
        options.print_json(
            {
                "holds": verdict.holds,
                "explanation": verdict.explanation,
                "guarantee": None if verdict.guarantee is None else verdict.guarantee.as_dict(),
                "views": {name: view.as_dict() for name, view in verdict.views.items()},
                "proofs": list(certificate.proofs),
            }
        )
    else:
        screen = Screen(quiet=quiet)
        screen.print(bold(verdict.word))
        screen.print(verdict.explanation)
        if verdict.guarantee is not None:
            screen.print(f"claim: {verdict.guarantee}")
        if len(verdict.views) > 1:
            print_views(verdict.views, screen)
        screen.print(f"releases: {', '.join(short_name(r.name) for r in certificate.releases)}")
        screen.print(f"proofs: {', '.join('docs/proofs/' + name for name in certificate.proofs)}")
        screen.print(f"note: {WHAT_IT_CANNOT_SHOW}.")
    if not verdict.holds:
        raise typer.Exit(_DOES_NOT_HOLD)
    return 0


def _other_model(model: Path, certificate: Certificate) -> str | None:
    """Why a certificate is not that of the model beside it; ``None`` where it is."""
    try:
        inside = load_model(model).certificate_
    except EigenveilError as error:
        return str(error)
    if inside != certificate:
        return f"{CERTIFICATE} is not the certificate that {model} was saved with."
    return None
