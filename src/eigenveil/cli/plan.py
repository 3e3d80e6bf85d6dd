"""``eigenveil plan``: what a fit would give, before any data is touched."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.table import Table

from eigenveil.checks import check_whole
from eigenveil.cli import options
from eigenveil.cli.plan_tensors import plan_tensors
from eigenveil.cli.screen import Screen
from eigenveil.cli.tasks import FAMILIES, wishes_of
from eigenveil.errors import DataError, PrivacyError
from eigenveil.estimators.prediction import Prediction, parse_spectrum, predict
from eigenveil.estimators.settings import MECHANISMS, Plan, make_plan
from eigenveil.estimators.tensor_settings import TensorPlan, make_mixture_plan, make_topic_plan
from eigenveil.headers import check_width

_ALL = "all"
FloatVector = NDArray[np.float64]


def plan(
    context: typer.Context,
    rows: Annotated[int, typer.Option(help="Number of rows expected.")],
    features: Annotated[int, typer.Option(help="Number of columns.")],
    task: options.TaskName = "pca",
    components: options.Components = None,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-6,
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
    adjacency: options.Adjacency = "add-remove",
    row_norm: options.RowNorm = "unit",
    center: Annotated[str, typer.Option(help="private, none or public.")] = "private",
    pair: options.Pair = "auto",
    clip_documents: options.ClipDocuments = True,
    document_words: options.DocumentWords = 20,
    budget_split: options.Split = None,
    sketch_size: options.SketchSize = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict what a fit would give, before any data is touched."""
    family = FAMILIES[options.read_task(task)]
    wishes = wishes_of(
        family,
        {
            "n_components": components,
            "mechanism": mechanism,
            "row_norm": row_norm,
            "center": center,
            "pair": pair,
            "clip_documents": clip_documents,
        },
        context,
        sites=False,
    )
    components = wishes.get("n_components", family.usual_components)
    fewest = 1 if components == options.AUTO else max(1, components)
    if rows < fewest:
        raise DataError(
            f"rows = {rows} is fewer than components = {components}.", hint="Give more rows."
        )
    check_whole("features", features)
    check_width("The plan", features, sparse=True)
    check_whole("rows", rows, most=2**53)
    wish: dict[str, Any] = {
        "features": features,
        "rows": rows,
        "n_components": components,
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": adjacency,
        "budget_split": options.read_split(budget_split),
        "sketch_size": sketch_size,
    }
    if family.task != "pca":
        wish |= {"mechanism": "auto" if mechanism == _ALL else mechanism, "pair": pair}
        made: TensorPlan
        if family.task == "topic-model":
            made = make_topic_plan(**wish, clip_documents=clip_documents)
        else:
            centre = _center(center, features)
            made = make_mixture_plan(**wish, center=centre, noise_variance=None, row_bound=None)
        words = options.check_document_words(document_words)
        plan_tensors(made, family.task, rows, document_words=words, json=json, quiet=quiet)
        return
    wish |= {"row_norm": options.read_row_norm(row_norm), "center": _center(center, features)}
    if not (np.isfinite(mean_norm) and mean_norm >= 0):
        raise DataError(f"mean-norm = {mean_norm} is negative.", hint="Give 0 or more.")
    eigenvalues = parse_spectrum(spectrum, features)
    results = _predictions(wish, mechanism, eigenvalues, mean_norm)
    if json:
        options.print_json([_as_json(*result) for result in results])
    elif not quiet:
        _print(results, rows=rows, features=features, components=components, spectrum=spectrum)


_Result = tuple[str, Plan | None, Prediction | str]


def _predictions(
    wish: dict[str, Any], mechanism: str, eigenvalues: FloatVector, mean_norm: float
) -> list[_Result]:
    """What each mechanism would give, or why it cannot be."""
    results: list[_Result] = []
    names = list[str](MECHANISMS) if mechanism == _ALL else [mechanism]
    for name in names:
        try:
            made = make_plan(**wish, mechanism=name, row_bound=None)
            found = predict(made, eigenvalues, rows=wish["rows"], mean_norm=mean_norm)
            results.append((made.mechanism, made, found))
        except PrivacyError as error:
            if mechanism != _ALL or error.code in ("bad-epsilon", "bad-delta"):
                raise
            results.append((name, None, error.message))
    return results


def _center(text: str, features: int) -> bool | FloatVector:
    if text not in ("private", "none", "public"):
        raise DataError(
            f"center = {text!r} is not private, none or public.", hint="Choose one of these."
        )
    return np.zeros(features) if text == "public" else text == "private"


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
    *,
    rows: int,
    features: int,
    components: int,
    spectrum: str,
) -> None:
    screen = Screen()
    table = Table(
        title=f"{rows:,} rows x {features:,} features, {components} components, {spectrum}"
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
