"""One point of a forecast: how good a fit would be at one epsilon, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eigenveil.app.plan import PlanRequest
from eigenveil.cli.commands.study import plan as plan_of_study
from eigenveil.console.desk.forms import read_parameters
from eigenveil.console.desk.ways import Kind
from eigenveil.errors import EigenveilError
from eigenveil.federation.study.study import Study
from eigenveil.models.task import TASKS
from eigenveil.planning.forecast import fit_memory, forecast, try_study
from eigenveil.planning.trials import Trials
from eigenveil.privacy.guarantee import neighbours_text

# Simulated fits of a point; each is some seconds of a mixture or of topics.
FITS = 4


def point_of_table(
    kind: Kind, given: Mapping[str, str], features: int, rows: int, epsilon: float
) -> dict[str, Any]:
    """What a fit of one table, or a stream, would give at an epsilon."""
    spec = kind.way.spec(
        kind.task,
        kind.values(given),
        features=features,
        rows=rows,
        fits=FITS,
        **kind.expected(given),
    )
    spec.scenario()
    try:
        made = kind.way.plan(spec, epsilon=epsilon)
        trials = kind.way.trials(spec, made)
    except EigenveilError as error:  # at this epsilon
        return _refused(epsilon, error)
    return _point(epsilon, trials) | {
        "bytes": 8 * made.released_values(),
        "memory": fit_memory(made),
        "delta": made.delta,
        "whose": neighbours_text(made.adjacency, made.unit),
    }


def point_of_study(
    study: Study, given: Mapping[str, str], rows: int, epsilon: float
) -> dict[str, Any]:
    """What a study's protocol would give at an epsilon, with all sites taking part."""
    task = TASKS[study.task]
    spec = PlanRequest(
        task,
        {"n_components": study.components},
        features=study.width,
        rows=rows,
        **read_parameters(plan_of_study, task.command_options, given),
    )
    data = spec.scenario()
    try:
        there = study.with_epsilon(epsilon)
        sizes = forecast(there, there.width, None)
        trials = try_study(there, data, fits=FITS)
    except EigenveilError as error:
        return _refused(epsilon, error)
    return _point(epsilon, trials) | {
        "bytes": sizes.round_bytes,
        "memory": sizes.memory_bytes,
        "delta": study.delta,
        "whose": neighbours_text(study.adjacency, there.plan(there.width).unit),
    }


def _point(epsilon: float, trials: Trials) -> dict[str, Any]:
    """What simulated fits came to; of those that stopped with nothing the quality is 0."""
    return {
        "epsilon": epsilon,
        "quality": trials.quality,
        "error": trials.quality_error,
        "nothing": trials.probability,
        "note": trials.note,
        "problem": "",
    }


def _refused(epsilon: float, error: EigenveilError) -> dict[str, Any]:
    nothing = dict.fromkeys(("bytes", "memory", "delta", "whose"))
    return _point(epsilon, Trials()) | nothing | {"problem": error.message}
