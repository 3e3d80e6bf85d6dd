"""What an experiment is: tasks that each give points, a drawing of them, and claims about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

from eigenveil_papers.reproduction.numbers import Numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # which processes that only measure do without

Scale = Literal["full", "fast", "toy"]
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
    # Repetitions of each measurement, or None for as many as the scale says
    runs: int | None = None
    # Of numbers that were measured before: the data sets that they are of (`data.Source`), whose
    # rows need not be at hand
    sources: tuple[Any, ...] = ()

    def pick(self, full: T, fast: T, toy: T) -> T:
        return {"full": full, "fast": fast, "toy": toy}[self.scale]

    def repetitions(self, full: int = 10, fast: int = 2, toy: int = 2) -> range:
        return range(self.runs if self.runs is not None else self.pick(full, fast, toy))


@dataclass(frozen=True)
class RunTask:
    """A piece of work for one process: ``work(rng, **arguments)`` gives points of one run."""

    # A function of a module (processes find it by name). Its first argument is a numpy Generator,
    # seeded by the task's key: a task gives the same points whenever it is done.
    work: Work
    # JSON values only. They, the function's name and `run` are the task's key; of files with a
    # `digest` the `path` is not, so that a folder's name changes no number.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    run: int = 0  # Which repetition this is
    # Rough seconds, for the order of the tasks: long ones first
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
            kept = {name: of for name, of in kept.items() if name not in ("path", "shape")}
        return kept
    if isinstance(value, list | tuple):
        return [_without_paths(inner) for inner in value]
    return value


Outcome = Literal["shown", "contradicted", "undecided", "not tested"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """At how many positions a claim has which outcome."""

    shown: int = 0
    contradicted: int = 0
    undecided: int = 0
    untested: int = 0  # Positions at which the claim could not have failed, or was not reached
    smallest: str = ""  # The smallest difference that could have been shown, in words

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], smallest: str = "") -> Verdict:
        """Of the outcomes at the positions."""
        shown, contradicted, undecided, untested = (outcomes.count(o) for o in get_args(Outcome))
        return cls(
            shown=shown,
            contradicted=contradicted,
            undecided=undecided,
            untested=untested,
            smallest=smallest if len(outcomes) > untested else "",
        )

    def count(self, outcome: Outcome) -> int:
        return int(getattr(self, outcome.replace("not tested", "untested")))

    @property
    def positions(self) -> int:
        """Those at which the claim was tested."""
        return self.shown + self.contradicted + self.undecided

    @property
    def outcome(self) -> Outcome:
        """Contradicted or else undecided at some position, shown at all, or not tested."""
        if self.contradicted:
            return "contradicted"
        return "undecided" if self.undecided else "shown" if self.shown else "not tested"

    def __str__(self) -> str:
        if not self.positions:
            return "not tested" + (f" at any of {self.untested} positions" * bool(self.untested))
        text = (
            f"shown at {self.shown} of {self.positions} positions, contradicted at "
            f"{self.contradicted}, undecided at {self.undecided}"
        )
        text += f"; not tested at {self.untested} more" if self.untested else ""
        return text + (f"; {self.smallest}" if self.smallest else "")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of a paper, or of this project, and what was measured about it."""

    statement: str  # The claim in one sentence
    # Section, figure, table or theorem of the paper; or "eigenveil" for a claim of our own
    where: str
    measured: str  # The effects with their intervals, in one sentence
    verdict: Verdict  # As :mod:`eigenveil_papers.reproduction.rule` decides
    compared: str = ""  # The margin, and the level of the intervals


@dataclass(frozen=True)
class Given:
    """A setting of a figure: what was used here, and what the paper has."""

    what: str
    here: str
    paper: str
    # Where the paper's is from: its text, a caption, the authors' script; or that it was chosen
    # here, for the paper has none
    whence: str = "text"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    name: str  # As on the command line, for instance `"000-fig1"`
    title: str  # One line: what is drawn
    about: str  # A paragraph: the setting of the paper, what differs here, and why
    datasets: tuple[str, ...] = ("synthetic",)  # Those that `Settings.data` may choose from
    # Settings to tasks; finds the data, so it may raise DataError
    tasks: Callable[[RunSettings], Sequence[RunTask]]
    draw: Callable[[Numbers, RunSettings], Figure]  # Numbers and settings to a figure
    # Numbers and settings to claims, also of a run of a few points only: a claim whose points are
    # absent is "not tested"
    claims: Callable[[Numbers, RunSettings], Sequence[Claim]]
    # Settings to what was used, in rows and parameters, beside the paper's
    given: Callable[[RunSettings], Sequence[Given]] = lambda _: ()
    # Numbers and settings to tables in Markdown, which stand below the picture
    tables: Callable[[Numbers, RunSettings], str] = lambda *_: ""
    runs: str = "not printed"  # How many runs the paper's curves are means of
    # Why what is measured differs from the curves that the paper's authors stored; empty where
    # there are none
    differences: str = ""

    @property
    def paper(self) -> str:
        return self.name.split("-")[0]
