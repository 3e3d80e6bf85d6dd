"""``eigenveil report``: a result as one page that can be read, printed and published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenveil.app.results import MODEL, check_place, load_model
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen
from eigenveil.errors import PrivacyError
from eigenveil.federation.protocol.certificates import check
from eigenveil.files import replacing

PAGE = "report.html"


def report(
    result: options.ResultFolder,
    out: Annotated[
        Path | None, typer.Option(help=f"File to write; {PAGE} in the result's folder by default.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier report.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a result as one page of HTML: pictures, tables, guarantees, methods, model card.

    The page is made of the model and its certificate, which were released: no row is read. It
    needs no other file, and a browser prints it to PDF.
    """
    from eigenveil.cli.report.page import report_page

    place = result / PAGE if out is None else out
    check_place(place, overwrite=overwrite)
    model = load_model(result / MODEL)
    verdict = check(model.certificate_)
    if verdict.guarantee is None:
        raise PrivacyError(
            f"The certificate of {result} does not hold: {verdict.explanation}",
            hint="No report is written. 'eigenveil certify' says more; use the files that the fit "
            "wrote.",
            code="certificate-does-not-fit",
        )
    text = report_page(model, verdict, title=title)
    with replacing(place) as scratch:
        scratch.write_text(text, encoding="utf-8")
    screen = Screen(quiet=quiet)
    screen.print(f"written to {place}. A browser prints it to PDF.")
    if not verdict.guarantee.certified:
        screen.print("note: the result is not certified, and the page says so at its head.")
