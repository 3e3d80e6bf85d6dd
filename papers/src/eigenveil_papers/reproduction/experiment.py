"""What an experiment is: tasks that each give points, a drawing of them, and claims about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from eigenveil_papers.reproduction.numbers import Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # which processes that only measure do without

Scale = Literal["full", "fast", "toy"]
Paper = Literal["000", "001", "002", "003"]
T = TypeVar("T")


class Point(NamedTuple):
    """One measured number: of a series of a panel, at a horizontal position."""

    panel: str
    series: str
    x: float
    value: float


Work = Callable[..., Iterable[Point]]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a person may choose about a run."""

    # As in the paper; a few minutes for all experiments; or a second for each, for tests
    scale: Scale = "full"
    data: str | None = None  # Only this data set, or None for those of the paper
    folder: Path | None = None  # Where the data sets' files are looked for
    # Whether data sets that are not at hand are fetched from the network (OpenML)
    fetch: bool = False
    # Repetitions of each measurement, or None for as many as the scale says
    runs: int | None = None

    def pick(self, full: T, fast: T, toy: T) -> T:
        """The one of three that belongs to the scale."""
        return {"full": full, "fast": fast, "toy": toy}[self.scale]

    def repetitions(self, full: int = 10, fast: int = 2, toy: int = 2) -> range:
        """The numbers of the runs."""
        return range(self.runs if self.runs is not None else self.pick(full, fast, toy))


@dataclass(frozen=True, kw_only=True)
class RunTask:
    """A piece of work for one process: ``work(rng, **arguments)`` gives points of one run."""

    # A function of a module (processes find it by name). Its first argument is a numpy Generator,
    # seeded by the task's key: a task gives the same points whenever it is done.
    work: Work
    # JSON values only. They, the function's name and `run` are the task's key; of files with a
    # `digest` the `path` is not, so that a folder's name changes no number.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    run: int = 0  # Which repetition this is
    # Rough seconds, for the order of the tasks (long ones first) and the progress shown
    cost: float = 1.0
    # Whether nothing else may be done at the same time: it starts processes and times them
    alone: bool = False

    @property
    def key(self) -> str:
        """A digest that names the task: what is done, not when."""
        name = f"{self.work.__module__}.{self.work.__qualname__}"
        text = json.dumps([name, _without_paths(dict(self.arguments)), self.run], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def _without_paths(value: Any) -> Any:
    """The same value, but for the paths of files that are named by a digest."""
    if isinstance(value, Mapping):
        kept = {name: _without_paths(inner) for name, inner in value.items()}
        if "digest" in kept:
            kept.pop("path", None)
        return kept
    if isinstance(value, list | tuple):
        return [_without_paths(inner) for inner in value]
    return value


Verdict = Literal["holds", "does not hold", "in part", "cannot be told", "not tested"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of a paper, or of this project, and what was measured about it."""

    statement: str  # The claim in one sentence
    # Section, figure, table or theorem of the paper; or "eigenveil" for a claim of our own
    where: str
    measured: str  # The effects with their intervals, in one sentence
    verdict: Verdict  # As :mod:`eigenveil_papers.reproduction.rule` decides
    compared: str = ""  # The margin, and the smallest difference that the runs could have shown


@dataclass(frozen=True, kw_only=True)
class Given:
    """A setting of a figure: what was used here, and what the paper has."""

    what: str
    here: str
    paper: str
    # Where the paper's is from: its text, a caption, the authors' script; or that it was chosen
    # here, for the paper has none
    whence: str = "text"


def _nothing_given(settings: RunSettings) -> Sequence[Given]:
    del settings
    return ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A figure or a table of a paper."""

    name: str  # As on the command line, for instance `"000-fig1"`
    title: str  # One line: what is drawn
    paper: Paper
    about: str  # A paragraph: the setting of the paper, what differs here, and why
    datasets: tuple[str, ...]  # Those that `Settings.data` may choose from
    # Settings to tasks; finds the data, so it may raise DataError
    tasks: Callable[[RunSettings], Sequence[RunTask]]
    draw: Callable[[Numbers, RunSettings], Figure]  # Numbers and settings to a figure
    # Numbers and settings to claims, also of a run of a few points only: a claim whose points are
    # absent is "not tested"
    claims: Callable[[Numbers, RunSettings], Sequence[Claim]]
    # Settings to what was used, in rows and parameters, beside the paper's
    given: Callable[[RunSettings], Sequence[Given]] = _nothing_given
    runs: str = "not printed"  # How many runs the paper's curves are means of
    # Why what is measured differs from the curves that the paper's authors stored; empty where
    # there are none
    differences: str = ""
