"""The tasks that commands know, which options each has, and results of any of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

import eigenveil
from eigenveil.cli.family import Family
from eigenveil.cli.of_mixtures import MixtureFamily
from eigenveil.cli.of_pca import PCAFamily
from eigenveil.cli.of_topics import TopicFamily
from eigenveil.cli.options import AUTO, WrongOption, given, option_text
from eigenveil.errors import DataError
from eigenveil.estimators.stored import StoredModel, estimator_of
from eigenveil.estimators.tasks import Task

FAMILIES: dict[Task, Family] = {
    family.task: family for family in (PCAFamily(), MixtureFamily(), TopicFamily())
}
# Options that are no wish of an estimator, and the tasks that have them.
_OTHER_OPTIONS: dict[str, tuple[Task, ...]] = {
    "projection": ("pca",),
    "spectrum": ("pca",),
    "mean_norm": ("pca",),
    "vocabulary": ("topic-model",),
    "document_words": ("topic-model",),
}
# Wishes that several sites have and one data set has not.
_OF_SITES = ("protocol", "masks", "collusion", "dropouts")
_OPTIONS = {"n_components": "components", "random_state": "seed"}


def family_of(model: StoredModel) -> Family:
    """The family of a fitted model."""
    return next(family for family in FAMILIES.values() if isinstance(model, family.stored))


def load_model(path: Path) -> StoredModel:
    """A model that any estimator saved.

    Raises
    ------
    OutputError, DataError
        When the file is absent, or no model.
    """
    name = estimator_of(path)
    if any(name in family.stored._FAMILY for family in FAMILIES.values()):
        kind: type[StoredModel] = getattr(eigenveil, name)
        return kind.load(path)
    raise DataError(
        f"{path} holds a {name}, which this version does not know.",
        hint="Use the version that wrote it, or a later one.",
    )


def wishes_of(
    family: Family, wishes: Mapping[str, Any], context: typer.Context, *, sites: bool
) -> dict[str, Any]:
    """The wishes that a task's estimator has, under the names of its constructor.

    Raises
    ------
    WrongOption, DataError
        Naming an option that was given and has no meaning for the task, or for its data.
    """
    check_options(family, context)
    said = given(context)
    takes = frozenset(family.estimator(sites=sites)._get_param_names())
    for name in wishes:
        option = _OPTIONS.get(name, name)
        if name in takes or option not in said:
            continue
        if not sites and name in _OF_SITES:
            raise DataError(
                f"{option_text(option)} is for several sites.",
                hint="Give --site NAME=FILE for each.",
            )
        # what sites need a protocol for, one data set does by other means
        if sites and name in family.estimator(sites=False)._get_param_names():
            raise DataError(
                f"{option_text(option)} is for one data set.",
                hint="With --site choose a --protocol.",
            )
        raise _not_for(option, family.task, tuple(_tasks_with(name)))
    check_components(family, wishes["n_components"])
    return {
        name: wish
        for name, wish in wishes.items()
        if name in takes and not (name == "n_components" and wish is None)
    }


def check_options(family: Family, context: typer.Context) -> None:
    """Raise where an option was given that is no wish of an estimator and not for the task."""
    said = given(context)
    for option, tasks in _OTHER_OPTIONS.items():
        if option in said and family.task not in tasks:
            raise _not_for(option, family.task, tasks)


def check_components(family: Family, components: int | str | None) -> None:
    """Raise where a task's components cannot be counted."""
    if components == AUTO and family.usual_components != AUTO:
        raise WrongOption(
            f"--components auto is not for --task {family.task}.",
            hint="Give a number; the result says which components stand above the noise.",
        )


def _tasks_with(name: str) -> list[Task]:
    """Tasks whose estimators of one data set have a wish."""
    return [
        task
        for task, family in FAMILIES.items()
        if name in family.estimator(sites=False)._get_param_names()
    ]


def _not_for(option: str, task: Task, tasks: tuple[Task, ...]) -> WrongOption:
    return WrongOption(
        f"{option_text(option)} is not for --task {task}.",
        hint=f"It is for {' and '.join(tasks)}; leave it out.",
    )
