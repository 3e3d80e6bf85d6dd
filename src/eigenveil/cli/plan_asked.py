"""What ``eigenveil plan`` was asked, for whoever answers it: the task's predictor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eigenveil.models.task import Task


@dataclass(frozen=True)
class Asked:
    """A task, what was said of its options, and the data that are expected.

    ``spectrum``, ``mean_norm`` and ``document_words`` describe the expected rows or documents.
    """

    task: Task
    wishes: dict[str, Any]
    features: int
    rows: int
    spectrum: str
    mean_norm: float
    document_words: int
    json: bool
    quiet: bool

    def plan(self, **instead: Any) -> Any:
        """The plan of one table, with other values of some options."""
        options = self.task.options("table", **self.wishes | instead)
        return self.task.make_plan(options, features=self.features, rows=self.rows)
