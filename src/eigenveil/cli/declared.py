"""Options that tasks declare, as those of commands: their parameters, their values, their words."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli.options import given, option_text, read_names, takes
from eigenveil.errors import DataError, WrongOption, listed
from eigenveil.models.domains import (
    Flag,
    NamedColumns,
    Number,
    NumberAFeature,
    OfSites,
    OneOf,
    Option,
    Pair,
    Path,
    Shares,
    SomeColumns,
    Text,
    WholeNumber,
)
from eigenveil.models.options import OPTIONS, options_of, tasks_with
from eigenveil.models.task import TASKS, Task

# Options that are spelled otherwise on a command line: by their name, and a letter.
_SPELLED = {
    "n_components": ("components", "-k"),
    "random_state": ("seed",),
}
# Those that commands have of their own, or none has: what is only one, and what a schema says of
# each column.
_NOT_HERE = ("noise", "ledger", "data_set", "ranges", "vocabulary")


def option_name(name: str) -> str:
    """An option's parameter of a command, by its declared name."""
    return _SPELLED.get(name, (name,))[0]


def as_typed(values: Mapping[str, Any]) -> str:
    """Values of declared options as a command line that gives them; a public centre is a file."""
    words: list[str] = []
    for name, value in values.items():
        option = option_text(option_name(name))
        if name == "center" and not isinstance(value, bool):
            words += option, "CENTER.npy"
        elif name == "center":
            words += option, "private" if value else "none"
        elif isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif isinstance(value, Mapping):
            words += option, ",".join(f"{step}={_exact(share)}" for step, share in value.items())
        elif isinstance(value, tuple):
            words += option, ",".join(map(str, value))
        else:
            words += option, _exact(value) if isinstance(value, float) else str(value)
    return " ".join(words)


def _exact(number: float) -> str:
    """The shortest text of a number that is read as the same one."""
    text = f"{number:g}"
    return text if float(text) == number else repr(number)


def declared(
    *paths: Path,
    only: Sequence[str] | None = None,
    without: Sequence[str] = (),
    unset: Sequence[str] = (),
    options: Sequence[Option] = OPTIONS,
) -> Callable[[Any], Any]:
    """Give a command the options that tasks, or others, declare: those of some paths.

    It takes as ``option_values`` those that were given, by declared names; options among its own
    parameters are passed as these. ``without`` leaves some out, also ``path.name``; those ``unset``
    have no default.
    """
    declarations: dict[str, list[Option]] = {}
    for each in options:
        known = {each.name} | {f"{path}.{each.name}" for path in each.paths}
        wanted = only is None or each.name in only
        if wanted and set(paths) & set(each.paths) and not known & {*_NOT_HERE, *without}:
            declarations.setdefault(each.name, []).append(each)

    def decorated(function: Any) -> Any:
        taken = inspect.signature(function).parameters
        own = {name: each for name, each in declarations.items() if option_name(name) not in taken}
        readers = {name: kind_of(found)[2] for name, found in own.items()}

        def option_values(context: typer.Context, **values: Any) -> dict[str, Any]:
            chosen = given(context)
            spelled = {name: option_name(name) for name in readers}
            return {
                name: readers[name](values[option])
                for name, option in spelled.items()
                if option in chosen
            }

        made: Any = option_values
        made.__signature__ = inspect.Signature(
            [
                _parameter("context", typer.Context, inspect.Parameter.empty),
                *(_option(name, each, paths, name in unset) for name, each in own.items()),
            ]
        )
        return takes(option_values=made)(function)

    return decorated


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _option(
    name: str, found: Sequence[Option], paths: Sequence[Path], unset: bool
) -> inspect.Parameter:
    spelled, *letters = _SPELLED.get(name, (name,))
    kind, default, _ = kind_of(found)
    if unset:
        kind, default = kind | None, None
    typed = option_text(spelled)
    names = (f"{typed}/--no-{typed[2:]}" if kind is bool else typed, *letters)
    metavar = "ALPHA BETA" if kind == tuple[float, float] | None else None
    hint = typer.Option(*names, help=_help(found, paths), metavar=metavar)
    return _parameter(spelled, Annotated[kind, hint], default)


def kind_of(found: Sequence[Option]) -> tuple[Any, Any, Callable[[Any], Any]]:
    """The type of an option on the command line, its default, and how its value is read."""
    kinds = {type(domain) for option in found for domain in option.values}
    default = found[0].default if len({repr(one.default) for one in found}) == 1 else None
    for domain, (kind, reader) in _ALONE.items():
        if domain in kinds:
            return kind | None, None, reader
    if NumberAFeature in kinds and Flag in kinds:
        return str, "private", lambda text: app.rows.read_center(text)
    if Flag in kinds:
        return bool, default, _same
    numbers = [
        number for domain, number in ((WholeNumber, int), (Number, float)) if domain in kinds
    ]
    if OneOf in kinds:
        types = [int, float] if int in numbers else numbers
        return str if default is not None else str | None, default, partial(_number, types)
    kind = numbers[0]
    return kind if default is not None else kind | None, default, _same


def _same(value: Any) -> Any:
    return value


def _number(types: Sequence[Any], text: str) -> Any:
    for kind in types:
        with suppress(ValueError):
            return kind(text)
    return text


_STREAMS = {"stream", "tracking"}  # A stream is private where it has an epsilon


def _help(found: Sequence[Option], paths: Sequence[Path]) -> str:
    """Help of an option: of each declaration, saying of which tasks where it is not of all."""
    if set(paths) <= _STREAMS:
        of_stream, others = (
            [one.help for one in found if path in one.paths] for path in ("stream", "tracking")
        )
        if of_stream == others or len(paths) == 1:
            return (of_stream or others)[0]
        said = [("With --epsilon: ", of_stream), ("Without --epsilon: ", others)]
        return " ".join(f"{where}{text[0]}" for where, text in said if text)
    texts: dict[str, list[str]] = {}
    for option in found:
        kept = texts.setdefault(option.help, [])
        kept += [task for task in option.tasks if task not in kept]
    every = {task for tasks in texts.values() for task in tasks} == set(TASKS) and len(texts) == 1
    text = " ".join(
        text if every else f"Of {listed(tasks)}: {text}" for text, tasks in texts.items()
    )
    only_sites = len(paths) > 1 and all(option.paths == ("sites",) for option in found)
    where = "With --site: " if only_sites else ""
    center = {Flag, NumberAFeature} <= {type(domain) for domain in found[0].values}
    how = " Give private, none, or a .npy file with a public centre." if center else ""
    return f"{where}{text}{how}"


def option_help(name: str) -> Any:
    found = [one for one in OPTIONS if one.name == name and "table" in one.paths]
    return typer.Option(help=_help(found, ("table",)))


def check_value(option: Option, value: object) -> None:
    """Raise unless an option's value is allowed, naming it as it is typed."""
    replace(option, name=option_text(option_name(option.name))).check(value)


def read_covariates(text: str) -> tuple[str | int, ...]:
    """Names with commas between; numbers, where all of them are."""
    names = read_names(text) or []
    if all(name.isascii() and name.isdigit() for name in names):
        return tuple(int(name) for name in names)
    return tuple(names)


def read_pairs(text: str) -> dict[str, float]:
    """Numbers by their names, from ``name=number,...``."""
    found = {}
    for part in text.split(","):
        name, equals, number = part.partition("=")
        try:
            if not equals:
                raise ValueError(part)
            found[name.strip()] = float(number)
        except ValueError:
            raise DataError("bad-named-number", part=part) from None
    return found


# Kinds of options that are said in one way only: the type, and how the text is read.
_ALONE: Mapping[type, tuple[Any, Callable[[Any], Any]]] = {
    SomeColumns: (str, read_covariates),
    NamedColumns: (str, read_names),
    Text: (str, _same),
    Pair: (tuple[float, float], _same),
    Shares: (str, read_pairs),
    OfSites: (str, read_pairs),
}


# -- What tasks have of options.


def read_task(text: str) -> Task:
    if text not in TASKS:
        raise WrongOption("unknown-choice", option="--task", given=text, known=", ".join(TASKS))
    return TASKS[text]


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
            raise DataError("of-several-sites", option=option_text(option))
        # what sites need a protocol for, one data set does by other means
        if sites and task.has(name, "table"):
            raise DataError(
                "of-one-data-set",
                option=option_text(option),
                way_out="With --site choose a --protocol.",
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
        "option-of-other-task", option=option_text(option), task=task.name, tasks=listed(tasks)
    )
