"""Captured energy against epsilon, as ``eigenveil plan`` and ``study plan`` forecast it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eigenveil.errors import EigenveilError
from eigenveil.planning.predict import parse_spectrum, predict

EPSILONS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.5, 5.0, 10.0)
FITS = 6


def curve_of_plan(
    plan_at: Callable[[float], Any], features: int, rows: int, spectrum: str
) -> dict[str, Any]:
    """The curve of one table; a point that no plan has is left out.

    Parameters
    ----------
    plan_at : callable
        The plan of an epsilon.
    """
    values = parse_spectrum(spectrum, features)
    points, problem = [], ""
    for epsilon in EPSILONS:
        try:
            found = predict(plan_at(epsilon), values, rows=rows, fits=FITS)
        except EigenveilError as error:
            problem = error.message
            continue
        points.append(
            _point(epsilon, found.captured_energy, found.trials)
            | {"bytes": 8 * found.released_values, "memory": found.memory_bytes}
        )
    return {"points": points, "problem": problem if not points else ""}


def _point(epsilon: float, energy: float | None, trials: Any) -> dict[str, Any]:
    shows = trials.as_json()
    return {
        "epsilon": epsilon,
        "energy": energy,
        "error": trials.quality_error if energy is not None else None,
        "nothing": shows["probability"],
    }


def curve_of_study(study_at: Callable[[float], Any], rows: int, spectrum: str) -> dict[str, Any]:
    """The curve of a study's protocol, with all sites taking part."""
    from eigenveil.planning.forecast import forecast

    points, problem = [], ""
    for epsilon in EPSILONS:
        try:
            study = study_at(epsilon)
            found = forecast(study, study.width, rows, spectrum, fits=FITS)
        except EigenveilError as error:
            problem = error.message
            continue
        points.append(
            _point(epsilon, found.captured_energy, found.trials)
            | {"bytes": found.round_bytes, "memory": found.memory_bytes}
        )
    return {"points": points, "problem": problem if not points else ""}
