"""One point of a forecast: how good a fit would be at one epsilon, and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eigenveil.app.plan import PlanRequest
from eigenveil.console.desk.forms import read_values
from eigenveil.console.desk.ways import Kind, expected_of
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
    values, expected = kind.values(given), kind.expected(given)
    request = PlanRequest(kind.task, values, features, rows, fits=FITS, **expected)
    request.scenario()
    try:
        made = kind.way.plan(request, epsilon=epsilon)
        trials = kind.way.trials(request, made)
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
    expected = read_values(expected_of(task), given)
    components = {"n_components": study.components}
    data = PlanRequest(task, components, study.width, rows, **expected).scenario()
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
