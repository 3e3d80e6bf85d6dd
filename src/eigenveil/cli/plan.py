"""``eigenveil plan``: what a fit would give, before any data is touched."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from eigenveil.checks import check_whole
from eigenveil.cli import options
from eigenveil.cli.plan_asked import Asked
from eigenveil.cli.screen import Screen
from eigenveil.cli.tasks import wishes_of
from eigenveil.errors import DataError, PrivacyError
from eigenveil.estimators.prediction import Prediction, parse_spectrum, predict
from eigenveil.estimators.settings import Plan
from eigenveil.headers import check_width
from eigenveil.models.options import options_of
from eigenveil.models.task import part

_ALL = "all"
FloatVector = NDArray[np.float64]


@options.declared("table", without=("random_state", "invalid"))
def plan(
    context: typer.Context,
    rows: Annotated[int, typer.Option(help="Number of rows expected.")],
    features: Annotated[int, typer.Option(help="Number of columns.")],
    task: options.TaskName = "pca",
    spectrum: Annotated[
        str,
        typer.Option(
            help="Expected eigenvalues: power:1.0, exponential:20, spike:5:0.8, or numbers."
        ),
    ] = "power:1.0",
    mean_norm: Annotated[
        float,
        typer.Option(help="Norm of the mean against the root mean square of centred rows."),
    ] = 0.0,
    mechanism: Annotated[
        str, typer.Option(help="One mechanism, or 'all' that can give this delta.")
    ] = _ALL,
    center: Annotated[str, typer.Option(help="private, none or public.")] = "private",
    document_words: options.DocumentWords = 20,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    said: dict[str, Any],
) -> None:
    """Predict what a fit would give, before any data is touched."""
    chosen = options.read_task(task)
    if mechanism != _ALL:
        said["mechanism"] = mechanism
    if "center" in options.given(context):
        said["center"] = center
    wishes = wishes_of(chosen, _centred(said, features), context, sites=False)
    components = wishes.get("n_components", chosen.usual_components)
    fewest = 1 if isinstance(components, str) else components
    if rows < fewest:
        raise DataError(
            f"rows = {rows} is fewer than components = {components}.", hint="Give more rows."
        )
    check_whole("features", features)
    check_width("The plan", features, sparse=True)
    check_whole("rows", rows, most=2**53)
    if not (np.isfinite(mean_norm) and mean_norm >= 0):
        raise DataError(f"mean-norm = {mean_norm} is negative.", hint="Give 0 or more.")
    asked = Asked(
        chosen,
        wishes,
        features=features,
        rows=rows,
        spectrum=spectrum,
        mean_norm=mean_norm,
        document_words=options.check_document_words(document_words),
        json=json,
        quiet=quiet,
    )
    part(chosen.predictor)(asked)


def _centred(said: dict[str, Any], features: int) -> dict[str, Any]:
    """What was said, with the centre as an estimator has it."""
    text = said.get("center")
    if text is None:
        return said
    if text not in ("private", "none", "public"):
        raise DataError(
            f"center = {text!r} is not private, none or public.", hint="Choose one of these."
        )
    return said | {"center": np.zeros(features) if text == "public" else text == "private"}


def plan_pca(asked: Asked) -> None:
    """Say what each mechanism would give."""
    results = _predictions(asked, parse_spectrum(asked.spectrum, asked.features))
    if asked.json:
        options.print_json([_as_json(*result) for result in results])
    elif not asked.quiet:
        _print(results, asked)


_Result = tuple[str, Plan | None, Prediction | str]


def _predictions(asked: Asked, eigenvalues: FloatVector) -> list[_Result]:
    """What each mechanism would give, or why it cannot be."""
    results: list[_Result] = []
    one = asked.wishes.get("mechanism")
    every = list(options_of(asked.task.name, "table")["mechanism"].choices)
    every.remove("auto")
    for name in every if one is None else [one]:
        try:
            made = asked.plan(mechanism=name)
            found = predict(made, eigenvalues, rows=asked.rows, mean_norm=asked.mean_norm)
            results.append((made.mechanism, made, found))
        except PrivacyError as error:
            if one is not None:
                raise
            results.append((name, None, error.message))
    return results


def _as_json(name: str, made: Plan | None, found: Prediction | str) -> dict[str, Any]:
    if made is None or isinstance(found, str):
        return {"mechanism": name, "captured_energy": None, "note": found}
    return {
        "mechanism": name,
        "captured_energy": found.captured_energy,
        "note": found.note,
        "noise_rows": found.noise_rows,
        "released_values": found.released_values,
        "message_bytes": 8 * found.released_values,
        "memory_bytes": found.memory_bytes,
        "plan_hash": made.hash,
        "plan": made.model_dump(mode="json"),
    }


def _print(
    results: list[_Result],
    asked: Asked,
) -> None:
    screen = Screen()
    components = asked.wishes.get("n_components", asked.task.usual_components)
    table = Table(
        title=f"{asked.rows:,} rows x {asked.features:,} features, {components} components, "
        f"{asked.spectrum}"
    )
    table.add_column("mechanism")
    table.add_column("captured energy", justify="right")
    table.add_column("noise (rows)", justify="right")
    table.add_column("message", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("note")
    for name, _, found in results:
        if isinstance(found, str):
            table.add_row(name, "-", "-", "-", "-", found)
            continue
        energy = "-" if found.captured_energy is None else f"{found.captured_energy:.3f}"
        table.add_row(
            name,
            energy,
            f"{found.noise_rows:.3g}",
            options.bytes_text(8 * found.released_values),
            options.bytes_text(found.memory_bytes),
            found.note,
        )
    screen.print(table)
    made = next((m for _, m, _ in results if m is not None), None)
    if made is not None:
        screen.print(
            f"guarantee of each: ({made.epsilon:g}, {made.delta:g})-differential privacy, "
            f"{made.adjacency}, against anyone who sees the result."
        )
    screen.print(
        "captured energy: of the exact subspace's, simulated on Gaussian rows with this spectrum. "
        "noise: its scale in the largest contribution a row can make."
    )
    if made is not None:
        screen.print(
            f"next: eigenveil fit FILES --components {components} --epsilon {made.epsilon:g} "
            f"--delta {made.delta:g} --out result/"
        )
