"""``eigenveil certify``: a certificate against its plan, and its guarantee computed again."""

from __future__ import annotations

from pathlib import Path

import typer

from eigenveil.cli import options
from eigenveil.cli.report import console, print_views
from eigenveil.cli.results import CERTIFICATE
from eigenveil.federation.certify import check
from eigenveil.privacy.certificate import WHAT_IT_CANNOT_SHOW, read_certificate

_DOES_NOT_HOLD = 8


def certify(
    result: options.ResultFolder, json: options.Json = False, quiet: options.Quiet = False
) -> int:
    """Recompute the guarantee of a result and say whether it holds (status 8 if not)."""
    path: Path = result / CERTIFICATE if result.is_dir() or not result.suffix else result
    certificate = read_certificate(path)
    verdict = check(certificate)
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
        screen = console(quiet=quiet)
        screen.print(f"[bold]{verdict.word}[/bold]")
        screen.print(verdict.explanation)
        if verdict.guarantee is not None:
            screen.print(f"claim: {verdict.guarantee}")
        if len(verdict.views) > 1:
            print_views(verdict.views, screen)
        screen.print(f"releases: {', '.join(r.name for r in certificate.releases)}")
        screen.print(f"proofs: {', '.join('docs/proofs/' + name for name in certificate.proofs)}")
        screen.print(f"note: {WHAT_IT_CANNOT_SHOW}.")
    if not verdict.holds:
        raise typer.Exit(_DOES_NOT_HOLD)
    return 0
