"""Forms of tasks, as tasks and commands declare their options: fields, and what was typed in them.

Nothing here knows a task by its name: what a task, a path and a command have together is a field.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from eigenveil.cli.options import kind_of, option_name, option_text
from eigenveil.errors import DataError
from eigenveil.models.options import Choice, Flag, Nothing, Option, Path, Vector, options_of
from eigenveil.models.task import Task

# What stands in a form's first part, where a task has it; the rest is folded away.
_FIRST = (
    "n_components", "epsilon", "delta", "covariance_type", "alpha0", "expected_rows", "collusion",
    "dropouts",
)  # fmt: skip
YES, NO = "yes", "no"
_FLAGS = {YES: True, NO: False}


@dataclass(frozen=True)
class Field:
    """One field of a form."""

    name: str  # As it is typed on a command line
    label: str
    help: str
    default: str  # As it is typed
    choices: list[str]  # The texts that it may be; none where a value is typed
    unit: str = ""
    empty: str = "nothing"  # What an empty choice means
    first: bool = True  # Whether it is shown at once


@dataclass(frozen=True)
class Typed:
    """A declared option as a form has it."""

    option: Option
    follows: bool = False  # Whether the command chooses one of the texts where none is given

    @property
    def choices(self) -> list[str]:
        """The texts of which the form offers one; an empty one is nothing.

        Arrays cannot be typed: the other values are offered.
        """
        domains = [each for each in self.option.values if not isinstance(each, Vector)]
        flags = [each for each in domains if isinstance(each, Flag)]
        if flags:
            return [text for text, value in _FLAGS.items() if flags[0].has(value)]
        if not all(isinstance(each, Choice | Nothing) for each in domains):
            return []
        none = self.follows or any(isinstance(each, Nothing) for each in domains)
        return [""] * none + list(self.option.choices)

    @property
    def default(self) -> str:
        """The text of what is meant where nothing is typed."""
        value = self.option.default
        return "" if value is None or (self.follows and self.choices) else _plain(value)

    def field(self) -> Field:
        """The field."""
        name = option_name(self.option.name)
        return Field(
            name,
            name.replace("_", " "),
            self.option.help,
            self.default,
            self.choices,
            "" if self.choices else self.option.unit.replace("the data's", "in the data's units"),
            "by the other options" if self.follows else "nothing",
            self.option.name in _FIRST,
        )

    def read(self, text: str) -> Any:
        """A value, read as the command line reads it, and checked."""
        named = replace(self.option, name=option_name(self.option.name))
        if self.choices and text not in self.choices:
            named.check(text)  # a file with a centre, too, is not read for a form
        if any(isinstance(each, Flag) for each in self.option.values):
            return _FLAGS[text]
        kind, _, reader = kind_of([self.option])
        value = reader(_number(kind, text))
        named.check(value)
        return value


def parameters_of(command: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a command, by name."""
    return dict(inspect.signature(command, eval_str=True).parameters)


def declared(task: Task, path: Path, command: Callable[..., Any]) -> dict[str, Typed]:
    """The options that a task has on a path and a command takes, but what is for one machine."""
    taken = parameters_of(command)
    return {
        name: Typed(option, taken[option_name(name)].default is None is not option.default)
        for name, option in options_of(task.name, path).items()
        if option_name(name) in taken and not option.local
    }


def fields_of(options: Mapping[str, Typed]) -> list[dict[str, Any]]:
    """The fields of options that can be chosen, those first that most fits set."""
    found = [each.field() for each in options.values() if len(each.choices) != 1]
    return [asdict(each) for each in sorted(found, key=lambda each: not each.first)]


def read_values(options: Mapping[str, Typed], given: Mapping[str, str]) -> dict[str, Any]:
    """Checked values of what was typed, without what is as by default."""
    return {
        name: each.read(text)
        for name, each in options.items()
        if (text := given.get(option_name(name), "").strip()) not in ("", each.default)
    }


def command_fields(
    task: Task, command: Callable[..., Any], names: Iterable[str]
) -> list[dict[str, Any]]:
    """The fields of parameters that only commands have."""
    wanted, found = set(names), []
    for name, parameter in parameters_of(command).items():
        if name not in wanted:
            continue
        kind, hint = get_args(parameter.annotation)[:2]
        default = "" if parameter.default is None else _plain(parameter.default)
        choices = [NO, YES] if kind is bool else []
        about = hint.help.removeprefix(f"Of {task.name}: ")
        about = f"{about[:1].upper()}{about[1:]}"
        found.append(Field(name, name.replace("_", " "), about, default, choices))
    return [asdict(each) for each in found]


def read_parameters(
    command: Callable[..., Any], names: Iterable[str], given: Mapping[str, str]
) -> dict[str, Any]:
    """Values of parameters that only commands have, without what is as by default."""
    taken, found = parameters_of(command), {}
    for name in names:
        if name not in taken or (text := given.get(name, "").strip()) == "":
            continue
        kind, hint = get_args(taken[name].annotation)[:2]
        value = text == YES if kind is bool else _number(kind, text)
        least = -math.inf if hint.min is None else hint.min
        if not isinstance(value, kind) or (isinstance(value, int | float) and value < least):
            raise DataError(
                f"{name.replace('_', ' ')} = {text!r:.60} is not a number"
                + ("." if hint.min is None else f" of at least {least}."),
                hint=str(hint.help),
                code="bad-parameter",
            )
        if value != taken[name].default:
            found[name] = value
    return found


def words_of(pairs: Iterable[tuple[str, ...]]) -> list[str]:
    """Options as words of a command, each one word: no text can be taken for another option."""
    return ["=".join(pair) for pair in pairs]


def parameter_words(values: Mapping[str, Any]) -> list[str]:
    """The words of a command's own parameters."""
    return words_of(
        (option_text(name),) if value is True else (option_text(name), str(value))
        for name, value in values.items()
    )


def _number(kind: Any, text: str) -> Any:
    """A text as a number, where the kind is one and the text too."""
    for number in (int, float):
        if kind in (number, number | None):
            with suppress(ValueError):
                return number(text)
    return text


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return f"{value:g}" if isinstance(value, float) else str(value)
