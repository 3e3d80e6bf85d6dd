"""``eigenveil plan``: what a fit would give, predicted before any data is read."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import declared, options
from eigenveil.cli.presenters.screen import listening, present
from eigenveil.errors import DataError
from eigenveil.models.options import options_of

_ALL = "all"


@declared.declared("table", without=("random_state",))
@options.takes(expected=options.expected, sought=options.sought)
def plan(
    context: typer.Context,
    features: Annotated[int, typer.Option(help="Number of columns.")],
    rows: Annotated[
        int | None,
        typer.Option(help="Number of rows expected; of units, with --unit. Not with --find rows."),
    ] = None,
    task: options.TaskName = "pca",
    mean_norm: Annotated[
        float,
        typer.Option(help="Norm of the mean, divided by the root mean square of centred rows."),
    ] = 0.0,
    mechanism: Annotated[
        str, typer.Option(help="One mechanism, or 'all' mechanisms that support this delta.")
    ] = _ALL,
    center: Annotated[str, typer.Option(help="private, none or public.")] = "private",
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
    expected: dict[str, Any],
    sought: tuple[float, Any] | None,
) -> None:
    """Predict what a fit would give, before any data is touched."""
    chosen = declared.read_task(task)
    if mechanism != _ALL:
        option_values["mechanism"] = mechanism
    if "center" in options.given(context):
        option_values["center"] = center
    values = declared.estimator_options(
        chosen, _centered(option_values, features), context, sites=False
    )
    components = values.get("n_components", chosen.usual_components)
    if rows is None and (sought is None or sought[1] != "rows"):
        raise options.WrongOption("rows-missing")
    if rows is None:
        rows = max(2, components) if isinstance(components, int) else 2
    asked = app.plan.PlanRequest(chosen, values, features, rows, mean_norm=mean_norm, **expected)
    with listening(quiet=quiet or json) as tell:
        found = (
            app.plan.plan_fit(asked)
            if sought is None
            else app.plan.plan_quality(asked, *sought, tell)
        )
    screen = present(found, json=json, quiet=quiet)
    if found.fit_values is not None:
        usual: dict[str, Any] = {"task": chosen.name}
        if chosen.counted:
            usual["n_components"] = chosen.usual_components
        every = options_of(chosen.name, "table")
        target = {name: every[name].default for name in ("epsilon", "delta")}
        typed = declared.as_typed(usual | target | dict(found.fit_values))
        # what is planned protects single rows, or all of a unit's
        whose = () if "unit" in found.fit_values else ("--one-row-per-person",)
        screen.next("fit FILES", typed, *whose, "--out result/")


def _centered(option_values: dict[str, Any], features: int) -> dict[str, Any]:
    """The given values, with the centre as an estimator has it."""
    text = option_values.get("center")
    if text is None:
        return option_values
    if text not in ("private", "none", "public"):
        raise DataError(
            "unknown-choice", option="center", given=text, known="private, none, public"
        )
    return option_values | {"center": [0.0] * features if text == "public" else text == "private"}
