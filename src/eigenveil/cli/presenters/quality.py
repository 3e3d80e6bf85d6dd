"""Showing simulated fits, and what it takes to reach a quality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eigenveil.cli.presenters.screen import Screen, notify
from eigenveil.models.mixture.plan import MixturePlan
from eigenveil.models.task import Task
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.planning.quality import Answer, Sought
from eigenveil.planning.simulated import components_drawn
from eigenveil.planning.trials import Scenario, Trials

# How a probability and its error are computed.
OF_FITS = (
    "Simulated: the part of the fits in brackets, ± its standard error (of (k + 1) / (n + 2), so "
    "that it is not 0 where none of the fits is)."
)


def trials_json(trials: Trials) -> dict[str, Any]:
    """Simulated fits as plain values."""
    return {
        "quality": trials.quality,
        "quality_error": trials.quality_error,
        "shows_nothing": trials.as_json(),
        "simulation_note": trials.note,
    }


def shown_text(trials: Trials, task: Task, scene: str) -> str:
    """Simulated fits in sentences; ``scene`` is the data that they are of."""
    if not trials.fits:
        return f"no fits were simulated: {trials.note}."
    note = f" ({trials.note})" if trials.note else ""
    return (
        f"a fit shows nothing with probability {trials.text()}{note}; {task.quality}: "
        f"{_with_error(trials)}. Of {scene}. {OF_FITS}"
    )


def tensor_scene(plan: TensorPlan, data: Scenario) -> str:
    """The data that fits of mixtures or topics are simulated of."""
    count = components_drawn(plan)
    if isinstance(plan, MixturePlan):
        return f"{count} equal spheres at distance {data.distance:g}"
    return (
        f"{count} equal topics of {data.topic_words} words each, in documents of "
        f"{data.document_words}"
    )


def notify_tried(sought: Sought) -> Callable[[float, Trials], None]:
    """Print each value that was tried on standard error."""

    def progress(value: float, trials: Trials) -> None:
        """One line."""
        notify(f"tried {sought} = {_value(sought, value)}: {_with_error(trials)}")

    return progress


def answer_json(answer: Answer, task: Task) -> dict[str, Any]:
    """An answer as plain values."""
    verified, whole = answer.verified, answer.sought == "rows"

    def number(value: float | None) -> float | int | None:
        return int(value) if whole and value is not None else value

    return {
        "quality": answer.wanted,
        "quality_is": task.quality,
        "find": answer.sought,
        "reached": answer.value is not None,
        answer.sought: number(answer.value),
        "reason": answer.reason,
        "predicted": trials_json(answer.trials),
        "verified": None if verified is None else trials_json(verified),
        "tried": [
            {answer.sought: number(value), "quality": found} for value, found in answer.tried
        ],
    }


def print_answer(answer: Answer, task: Task, screen: Screen) -> None:
    """An answer in sentences."""
    wanted = f"quality {answer.wanted:g} ({task.quality})"
    if answer.value is None:
        screen.print(f"{wanted}: {answer.reason}")
        return
    screen.print(f"{wanted}: {answer.sought} = {_value(answer.sought, answer.value)}")
    if answer.reason:
        screen.print(f"  note: {answer.reason}")
    assert answer.verified is not None
    screen.print(
        f"predicted there: {_with_error(answer.trials)}; with other rows and noise "
        f"{_with_error(answer.verified)}. A fit shows nothing with probability "
        f"{answer.trials.text()}. {OF_FITS} Candidates are 5 % apart."
    )


def _with_error(trials: Trials) -> str:
    if trials.quality is None:
        return f"not predicted ({trials.note})" if trials.note else "not predicted"
    error = "" if trials.quality_error is None else f" ± {trials.quality_error:.1g}"
    return f"{trials.quality:.4f}{error}"


def _value(sought: Sought, value: float) -> str:
    return f"{value:g}" if sought == "epsilon" else f"{value:,.0f}"
