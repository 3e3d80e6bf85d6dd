"""The rounds of a plan, and rows as its task takes them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from eigenveil.estimators.plans import BasePlan
from eigenveil.estimators.rounds import Answers, Round
from eigenveil.models.task import task_named, task_of_plan
from eigenveil.moments.source import RowSource


def rounds_of(plan: BasePlan, **context: Any) -> Generator[Round, Answers, Any]:
    """The rounds of a plan, whatever its task; ``context`` as of each task's rounds."""
    rounds: Generator[Round, Answers, Any] = task_of_plan(plan).rounds(plan, **context)
    return rounds


def rows_for(task: str, rows: RowSource) -> RowSource:
    """Rows as a task takes them."""
    taken: RowSource = task_named(task).rows_for(rows)
    return taken
