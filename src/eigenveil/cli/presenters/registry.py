"""The presenters by task, the options that each task has, and results of any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

import eigenveil
from eigenveil.cli.options import (
    WrongOption,
    check_value,
    given,
    option_name,
    option_text,
)
from eigenveil.app.presenters.base import Presenter
from eigenveil.errors import DataError, listed
from eigenveil.models.options import options_of, tasks_with
from eigenveil.models.stored import StoredModel, estimator_of
from eigenveil.models.task import TASKS, Task


def presenter_of(model: StoredModel) -> Presenter:
    """The presenter of a fitted model."""
    return next(presenter for presenter in presenters() if isinstance(model, presenter.stored))


def presenters() -> Iterator[Presenter]:
    """Those of all tasks."""
    return (task.get_presenter() for task in TASKS.values())


def load_model(path: Path) -> StoredModel:
    """A model that any estimator saved."""
    name = estimator_of(path)
    if any(name in presenter.stored._FAMILY for presenter in presenters()):
        kind: type[StoredModel] = getattr(eigenveil, name)
        return kind.load(path)
    raise DataError(
        f"{path} holds a {name}, which this version does not know.",
        hint="Use the version that wrote it, or a later one.",
    )


def estimator_options(
    task: Task, option_values: Mapping[str, Any], context: typer.Context, *, sites: bool
) -> dict[str, Any]:
    """What was given for a task's options, checked."""
    check_options(task, context)
    declared = options_of(task.name, "sites" if sites else "table")
    for name, value in option_values.items():
        if name in declared:
            check_value(declared[name], value)
            continue
        option = option_name(name)
        if not sites and task.has(name, "sites"):
            raise DataError(
                f"{option_text(option)} is for several sites.",
                hint="Give --site NAME=FILE for each.",
            )
        # what sites need a protocol for, one data set does by other means
        if sites and task.has(name, "table"):
            raise DataError(
                f"{option_text(option)} is for one data set.",
                hint="With --site choose a --protocol.",
            )
        raise _not_for(option, task, tasks_with(name, "table", "sites"))
    return dict(option_values)


def check_options(task: Task, context: typer.Context) -> None:
    """Raise where an option was given that only commands have, and not for the task."""
    for option in given(context):
        tasks = tuple(other.name for other in TASKS.values() if option in other.command_options)
        if tasks and option not in task.command_options:
            raise _not_for(option, task, tasks)


def _not_for(option: str, task: Task, tasks: tuple[str, ...]) -> WrongOption:
    return WrongOption(
        f"{option_text(option)} is not for --task {task.name}.",
        hint=f"It is for {listed(tasks)}; leave it out.",
    )
