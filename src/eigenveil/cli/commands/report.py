"""``eigenveil report``: a result as one page that can be read, printed and published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen

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
    place = result / PAGE if out is None else out
    guarantee = app.report.write_report(result, place, title=title, overwrite=overwrite)
    screen = Screen(quiet=quiet)
    screen.print(f"written to {place}. A browser prints it to PDF.")
    if not guarantee.certified:
        screen.print("note: the result is not certified, and the page says so at its head.")
