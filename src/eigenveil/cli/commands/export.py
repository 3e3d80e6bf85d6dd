"""``eigenveil export``: a result for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen


def export(
    result: options.ResultFolder,
    to: Annotated[str, typer.Option(help="Format: sklearn, safetensors or onnx.")],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; 'model' with the format's ending beside the result's."),
    ] = None,
    overwrite: options.OverFile = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a result's model for other programs: scikit-learn, safetensors, ONNX.

    What is written was released. The certificate stays in the result's folder; safetensors and ONNX
    files have a copy.
    """
    chosen, place = app.results.export(result, to, out, overwrite=overwrite)
    Screen(quiet=quiet).print(f"written to {place}: {chosen.what}.")
