"""How an analyst's rows are fitted: as a table, or as a stream. A way is an object, found here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

from eigenveil.app.plan import PlanRequest
from eigenveil.app.watch import stream_values
from eigenveil.console.desk.forms import fields_of, read_values, said_of, typed
from eigenveil.console.settings import Rows
from eigenveil.errors import DataError, EigenveilError, short_name
from eigenveil.federation.study.study import Study
from eigenveil.models.domains import Flag, Name, Number, Option, Path, WholeNumber
from eigenveil.models.options import options_of
from eigenveil.models.task import TASKS, Task, task_named
from eigenveil.planning.forecast import DEFAULT_SPECTRUM, fit_memory, forecast, try_study
from eigenveil.planning.trials import Trials
from eigenveil.privacy.guarantee import neighbours_text

_NOTHING: tuple[Any, ...] = ((), ())
# What is expected of data that nobody has seen, for a plan; a task has some of it.
_EXPECTED = {
    each.name: each
    for each in (
        Option(
            "spectrum", (Name(),), DEFAULT_SPECTRUM,
            "Expected eigenvalues: power:1.0, exponential:20, spike:5:0.8, or numbers.", *_NOTHING,
        ),
        Option(
            "mean_norm", (Number(0.0, 1e9),), 0.0,
            "Norm of the mean, divided by the root mean square of centred rows.", *_NOTHING,
        ),
        Option(
            "distance", (Number(0.0, 1e9, open_low=True),), 3.0,
            "Expected distance of the means, in standard deviations of a feature within one.",
            *_NOTHING,
        ),
        Option(
            "topic_words", (WholeNumber(),), 20,
            "Expected number of words that make up a topic.", *_NOTHING,
        ),
        Option(
            "document_words", (WholeNumber(3, 100_000),), 20,
            "Expected number of words of a document.", *_NOTHING,
        ),
    )
}  # fmt: skip
# Whose each row is must be said before rows are read: by this, by a unit, or by a schema with one.
ONE_ROW = Option(
    "one_row_per_person", (Flag(),), False,
    "Yes where nobody has more than one row. Otherwise give the unit: the column that says whose "
    "each row is, so that all rows of a person are protected together.",
    *_NOTHING,
)  # fmt: skip
_BLOCK_SIZE = Option("block_size", (WholeNumber(),), 100, "Rows of a block.", *_NOTHING)


def expected_of(task: Task) -> list[Option]:
    """What a plan of a task is told of the data, as options."""
    return [each for name, each in _EXPECTED.items() if name in task.command_options]


@dataclass(frozen=True)
class FitWay:
    path: Path  # How rows come
    title: str = ""  # After the task's, in a list of what can be fitted
    own: tuple[Option, ...] = ()  # What only this way has
    without: tuple[str, ...] = ()  # Options that it cannot take
    schemas: bool = True  # Whether a schema can say what the columns are

    def takes(self, rows: Rows) -> bool:
        """Whether it reads such files: a stream is one text file without a schema."""
        texts = {PurePath(file).suffix.lower() for file in rows.data} <= {".csv", ".tsv"}
        return self.schemas or (len(rows.data) == 1 and texts and rows.schema is None)

    def plan(self, request: PlanRequest, **instead: Any) -> Any:
        if self.path == "table":
            return request.plan(**instead)
        values = stream_values({**request.values, **instead})
        options = request.task.options(self.path, **values)
        return request.task.make_plan(options, features=request.features)

    def trials(self, request: PlanRequest, made: Any) -> Trials:
        """Simulated fits of a plan; what a stream shows after each block is not simulated."""
        if self.path == "table":
            return request.simulated(made)
        return Trials(note="streams are not simulated")


WAYS: Mapping[str, FitWay] = {
    way.path: way
    for way in (
        FitWay("table", own=(ONE_ROW,)),
        FitWay(
            "stream", "as a stream", (ONE_ROW, _BLOCK_SIZE), ("unit", "max_rows_per_unit"), False
        ),
    )
}


class Kind:
    """What can be fitted: a task in one of its ways; named ``task`` or ``task:path``."""

    def __init__(self, name: str) -> None:
        first, _, second = name.partition(":")
        self.name, self.task = name, task_named(first)
        path = second or "table"
        if path not in WAYS or path not in self.task.plans:
            raise DataError("no-such-fit", name=short_name(name))
        self.way = WAYS[path]

    @property
    def title(self) -> str:
        return f"{self.task.heading} {self.way.title}".rstrip()

    @cached_property
    def options(self) -> list[Option]:
        found = options_of(self.task.name, self.way.path)
        return [each for name, each in found.items() if name not in self.way.without]

    @property
    def epsilon(self) -> float:
        """The privacy target where none is typed: what is fitted here is always private."""
        return next(float(each.default) for each in self.options if each.name == "epsilon")

    def form(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "quality": self.task.quality,
            # but for whose each row is, which is asked before
            "options": [each for each in fields_of(self.options) if each["name"] != "unit"],
            "own": fields_of((each for each in self.way.own if each is not ONE_ROW), first=True),
            "expected": fields_of(expected_of(self.task), first=True),
            "schemas": self.way.schemas,
            "targets": self.task.takes_targets,
        }

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        return read_values(self.options, given)

    def own(self, given: Mapping[str, str]) -> dict[str, Any]:
        usual = {each.name: each.default for each in self.way.own}
        return usual | read_values(self.way.own, given)

    def expected(self, given: Mapping[str, str]) -> dict[str, Any]:
        """What was typed of the data that are expected, for a plan."""
        return read_values(expected_of(self.task), given)

    def summary(self, given: Mapping[str, str]) -> str:
        values = self.values(given) | read_values(self.way.own, given)
        for whose in ("unit", ONE_ROW.name):  # said by itself
            values.pop(whose, None)
        chosen = [said_of(name, typed(value)) for name, value in values.items()]
        return f"{self.title}, {', '.join(chosen) or 'with the defaults'}"


def kinds() -> Iterator[Kind]:
    """All that can be fitted, tasks in their order."""
    for task in TASKS.values():
        for path in WAYS:
            if path in task.plans:
                yield Kind(task.name if path == "table" else f"{task.name}:{path}")


# -- one point of a forecast: how good a fit would be at one epsilon, and what it takes

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
