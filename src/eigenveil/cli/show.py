"""``eigenveil show``: a result folder, for people."""

from __future__ import annotations

from eigenveil.cli import options
from eigenveil.cli.report import as_json, print_model
from eigenveil.cli.results import MODEL
from eigenveil.cli.screen import Screen
from eigenveil.cli.tasks import load_model


def show(result: options.ResultFolder, json: options.Json = False) -> None:
    """Show the components, the releases and the guarantee of a result."""
    model = load_model(result / MODEL)
    if json:
        options.print_json(as_json(model))
        return
    print_model(model, Screen())
