"""What an experiment is: tasks that each give points, a drawing of them, and claims about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from matplotlib.figure import Figure

from eigenveil_papers.reproduction.numbers import Numbers

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
class Settings:
    """What a person may choose about a run.

    Attributes
    ----------
    scale : {"full", "fast", "toy"}
        As in the paper; a few minutes for all experiments; or a second for each, for tests.
    data : str or None
        Only this data set, or None for those of the paper.
    folder : Path or None
        Where the data sets' files are looked for.
    fetch : bool
        Whether data sets that are not at hand are fetched from the network (OpenML).
    runs : int or None
        Repetitions of each measurement, or None for as many as the scale says.
    """

    scale: Scale = "full"
    data: str | None = None
    folder: Path | None = None
    fetch: bool = False
    runs: int | None = None

    def pick(self, full: T, fast: T, toy: T) -> T:
        """The one of three that belongs to the scale."""
        return {"full": full, "fast": fast, "toy": toy}[self.scale]

    def repetitions(self, full: int = 10, fast: int = 2, toy: int = 2) -> range:
        """The numbers of the runs."""
        return range(self.runs if self.runs is not None else self.pick(full, fast, toy))


@dataclass(frozen=True, kw_only=True)
class Task:
    """A piece of work for one process: ``work(rng, **arguments)`` gives points of one run.

    Attributes
    ----------
    work : callable
        A function of a module (processes find it by name). Its first argument is a numpy
        Generator, seeded by the task's key: a task gives the same points whenever it is done.
    arguments : mapping
        JSON values only. They, the function's name and ``run`` are the task's key; of files with
        a ``digest`` the ``path`` is not, so that a folder's name changes no number.
    run : int
        Which repetition this is.
    cost : float
        Rough seconds, for the order of the tasks (long ones first) and the progress shown.
    alone : bool
        Whether nothing else may be done at the same time: it starts processes and times them.
    """

    work: Work
    arguments: Mapping[str, Any] = field(default_factory=dict)
    run: int = 0
    cost: float = 1.0
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
    """A sentence of a paper, or of this project, and what was measured about it.

    Attributes
    ----------
    statement : str
        The claim in one sentence.
    where : str
        Section, figure, table or theorem of the paper; or "eigenveil" for a claim of our own.
    measured : str
        The effects with their intervals, in one sentence.
    verdict : {"holds", "does not hold", "in part", "cannot be told", "not tested"}
        As :mod:`eigenveil_papers.reproduction.rule` decides.
    compared : str
        The margin, and the smallest difference that the runs could have shown.
    """

    statement: str
    where: str
    measured: str
    verdict: Verdict
    compared: str = ""


@dataclass(frozen=True, kw_only=True)
class Given:
    """A setting of a figure: what was used here, and what the paper has.

    Attributes
    ----------
    what, here, paper : str
    whence : str
        Where the paper's is from: its text, a caption, the authors' script; or that it was chosen
        here, for the paper has none.
    """

    what: str
    here: str
    paper: str
    whence: str = "text"


def _nothing_given(settings: Settings) -> Sequence[Given]:
    del settings
    return ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A figure or a table of a paper.

    Attributes
    ----------
    name : str
        As on the command line, for instance ``"000-fig1"``.
    title : str
        One line: what is drawn.
    paper : {"000", "001", "002", "003"}
    about : str
        A paragraph: the setting of the paper, what differs here, and why.
    datasets : tuple of str
        Those that ``Settings.data`` may choose from.
    tasks : callable
        Settings to tasks; finds the data, so it may raise DataError.
    draw : callable
        Numbers and settings to a figure.
    claims : callable
        Numbers and settings to claims, also of a run of a few points only: a claim whose points
        are absent is "not tested".
    given : callable
        Settings to what was used, in rows and parameters, beside the paper's.
    runs : str
        How many runs the paper's curves are means of.
    differences : str
        Why what is measured differs from the curves that the paper's authors stored; empty where
        there are none.
    """

    name: str
    title: str
    paper: Paper
    about: str
    datasets: tuple[str, ...]
    tasks: Callable[[Settings], Sequence[Task]]
    draw: Callable[[Numbers, Settings], Figure]
    claims: Callable[[Numbers, Settings], Sequence[Claim]]
    given: Callable[[Settings], Sequence[Given]] = _nothing_given
    runs: str = "not printed"
    differences: str = ""
