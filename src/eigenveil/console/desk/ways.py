"""How an analyst's rows are fitted: as a table, or as a stream. A way is an object, found here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, ClassVar

from eigenveil.app.plan import PlanRequest
from eigenveil.app.watch import stream_values
from eigenveil.cli.commands.fit import fit
from eigenveil.cli.commands.plan import plan
from eigenveil.cli.commands.watch import watch
from eigenveil.cli.options import typed_words
from eigenveil.console.desk.forms import (
    Typed,
    declared,
    parameter_words,
    read_parameters,
    read_values,
    words_of,
)
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError
from eigenveil.models.options import Path
from eigenveil.models.task import TASKS, Task, task_named
from eigenveil.planning.trials import Trials


class Way(ABC):
    """One way of fitting: a command, and its plan."""

    path: ClassVar[Path]  # How rows come
    title: ClassVar[str] = ""  # After the task's, in a list of what can be fitted
    command: ClassVar[Callable[..., Any]]
    own: ClassVar[tuple[str, ...]] = ()  # The command's own parameters that a form has
    # Options that the command is given in any case, since it has another default
    told: ClassVar[tuple[str, ...]] = ()

    def takes(self, rows: Rows) -> bool:
        """Whether the command reads such files."""
        del rows
        return True

    @abstractmethod
    def start(self, task: Task, rows: Rows) -> list[str]:
        """The command's first words."""

    def spec(self, task: Task, values: dict[str, Any], **expected: Any) -> PlanRequest:
        """What is planned, and the data that are expected of it; checked."""
        return PlanRequest(task, values, **expected)

    def plan(self, spec: PlanRequest, **instead: Any) -> Any:
        """The plan, with other values of some options."""
        return spec.plan(**instead)

    def trials(self, spec: PlanRequest, made: Any) -> Trials:
        """Simulated fits of a plan."""
        return spec.simulated(made)


class OneTable(Way):
    """All rows at once, by ``eigenveil fit``."""

    path = "table"
    command = staticmethod(fit)

    def start(self, task: Task, rows: Rows) -> list[str]:
        """Files, result, schema and task."""
        schema = [] if rows.schema is None else ["--schema", rows.schema]
        return ["fit", *rows.data, "--out", "{result}", *schema, f"--task={task.name}"]


class Stream(Way):
    """Rows as they come, by ``eigenveil watch``; they are read once."""

    path = "stream"
    title = "as a stream"
    command = staticmethod(watch)
    own = ("block_size", "limit")
    told = ("epsilon",)  # without, it does not fit privately

    def takes(self, rows: Rows) -> bool:
        """One text file without a schema."""
        kinds = {PurePath(file).suffix.lower() for file in rows.data}
        return len(rows.data) == 1 and kinds <= {".csv", ".tsv"} and rows.schema is None

    def start(self, task: Task, rows: Rows) -> list[str]:
        """The file and the result."""
        del task
        return ["watch", *rows.data, "--out", "{result}"]

    def plan(self, spec: PlanRequest, **instead: Any) -> Any:
        """The stream's plan, with what the command chooses where nothing is said."""
        values = stream_values({**spec.values, **instead})
        return spec.task.make_plan(spec.task.options("stream", **values), features=spec.features)

    def trials(self, spec: PlanRequest, made: Any) -> Trials:
        """None: what a stream shows after each block is not simulated."""
        del spec, made
        return Trials(note="streams are not simulated")


WAYS: Mapping[str, Way] = {way.path: way for way in (OneTable(), Stream())}


class Kind:
    """What can be fitted: a task in one of its ways; named ``task`` or ``task:path``."""

    def __init__(self, name: str, rows: Rows) -> None:
        first, _, second = name.partition(":")
        self.name, self.rows = name, rows
        self.task = task_named(first)
        path = second or "table"
        if path not in WAYS or path not in self.task.plans or not WAYS[path].takes(rows):
            raise DataError(
                f"{name!r} cannot be fitted to these files.",
                hint="The form's own list has what can be.",
                code="bad-choice",
            )
        self.way = WAYS[path]

    @property
    def title(self) -> str:
        """What is computed, for people."""
        return f"{title_of(self.task)} {self.way.title}".rstrip()

    @property
    def options(self) -> dict[str, Typed]:
        """The options that its command takes."""
        return declared(self.task, self.way.path, self.way.command)

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Checked values of what was typed."""
        return read_values(self.options, given)

    def expected(self, given: Mapping[str, str]) -> dict[str, Any]:
        """What was typed of the data that are expected, for a plan."""
        return read_parameters(plan, self.task.command_options, given)

    def words(self, given: Mapping[str, str]) -> list[str]:
        """The command with what was typed."""
        options = self.options
        told = {name: options[name].option.default for name in self.way.told}
        ledger = [] if self.rows.ledger is None else ["--ledger", self.rows.ledger]
        return [
            *self.way.start(self.task, self.rows),
            *ledger,
            *words_of(typed_words(told | self.values(given))),
            *parameter_words(read_parameters(self.way.command, self.way.own, given)),
        ]

    def summary(self, given: Mapping[str, str]) -> str:
        """What was chosen, in a line."""
        own = read_parameters(self.way.command, self.way.own, given)
        words = [*words_of(typed_words(self.values(given))), *parameter_words(own)]
        chosen = [word.removeprefix("--").replace("=", " ", 1) for word in words]
        return f"{self.title}, {', '.join(chosen) or 'with the defaults'}"


def title_of(task: Task) -> str:
    """What a task computes, as a heading."""
    title = task.title.partition(";")[0]
    return f"{title[:1].upper()}{title[1:]}"


def kinds_of(rows: Rows) -> Iterator[Kind]:
    """All that can be fitted to files, tasks in their order."""
    for task in TASKS.values():
        for path, way in WAYS.items():
            if path in task.plans and way.takes(rows):
                yield Kind(task.name if path == "table" else f"{task.name}:{path}", rows)
