"""What ``eigenveil reproduce`` prints: the list, its progress, and the verdicts."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, bold, coloured, description, notify
from eigenveil.errors import EigenveilError, WrongOption, printable
from eigenveil_papers.reproduction import results
from eigenveil_papers.reproduction.data import NAMES, at_hand
from eigenveil_papers.reproduction.experiment import Experiment, RunSettings, Scale, Verdict
from eigenveil_papers.reproduction.results import Reproduced
from eigenveil_papers.reproduction.rule import OURS
from eigenveil_papers.reproduction.runner import RunProgress, check_data

Notify = Callable[[str], Callable[[RunProgress], None]]
_COLOURS = {
    "holds": "green",
    "does not hold": "red",
    "in part": "yellow",
    "cannot be told": "cyan",
    "not tested": "dim",
}


def print_list(
    chosen: Sequence[Experiment], settings: RunSettings, jobs: int, *, json: bool, quiet: bool
) -> None:
    """Names, what they show, their data, and how long they take."""
    rows = []
    for experiment in chosen:
        known = {name: _at_hand(name, settings) for name in experiment.datasets}
        rows.append((experiment, known, _seconds(experiment, settings, jobs)))
    if json:
        options.print_json(
            [
                {
                    "name": experiment.name,
                    "paper": experiment.paper,
                    "title": experiment.title,
                    "data": known,
                    "seconds": None if seconds is None else round(seconds),
                }
                for experiment, known, seconds in rows
            ]
        )
        return
    out = Screen(quiet=quiet)
    table = Table(title=f"experiments ({settings.scale} scale, {jobs} processes)")
    for head in ("name", "paper", "shows", "data", "time"):
        table.add_column(
            head, justify="right" if head == "time" else "left", no_wrap=head == "name"
        )
    for experiment, known, seconds in rows:
        names = ", ".join(name if there else f"{name}*" for name, there in known.items())
        about = "-" if seconds is None else _time_text(seconds)
        table.add_row(experiment.name, experiment.paper, experiment.title, names, about)
    out.print(table)
    if any(not there for _, known, _ in rows for there in known.values()):
        out.print(
            "* not at hand: a smaller data set stands in. Give its file with --data-folder, or say "
            "--fetch."
        )
    out.print("next: eigenveil reproduce NAME, or 'all'; --fast for fewer rows and runs")


def _at_hand(name: str, settings: RunSettings) -> bool:
    return name not in NAMES or at_hand(name, settings)


def _seconds(experiment: Experiment, settings: RunSettings, jobs: int) -> float | None:
    try:
        return sum(task.cost for task in experiment.tasks(settings)) / jobs
    except EigenveilError:
        return None


def _time_text(seconds: float) -> str:
    return f"{max(seconds, 1.0):.0f} s" if seconds < 90.0 else f"{seconds / 60.0:.0f} min"


@contextmanager
def progress(count: int, *, quiet: bool) -> Iterator[Notify]:
    """A bar an experiment on a terminal, a line when one is done elsewhere, nothing when quiet."""
    if quiet:
        yield lambda _: _notify_nothing
    elif sys.stderr.isatty():
        columns = (
            description(),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[tasks]}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Screen(errors=True)) as bars:
            yield lambda name: _bar(bars, name)
    else:
        yield _LogLines(count)


def _notify_nothing(step: RunProgress) -> None:
    del step


def _bar(bars: Progress, name: str) -> Callable[[RunProgress], None]:
    task = bars.add_task(printable(name), total=1.0, tasks="")

    def step_done(step: RunProgress) -> None:
        bars.update(task, completed=step.share, tasks=f"{step.done} of {step.total} tasks")
        if step.note:
            bars.console.print(f"note: {step.note}")

    return step_done


class _LogLines:
    """For logs."""

    def __init__(self, count: int) -> None:
        self._count, self._begun = count, 0

    def __call__(self, name: str) -> Callable[[RunProgress], None]:
        self._begun += 1
        number, start = self._begun, time.monotonic()
        resumed: list[int] = []

        def step_done(step: RunProgress) -> None:
            if not resumed:
                resumed.append(step.done)
            if step.note:
                notify(f"note: {step.note}")
            if step.done == step.total:
                earlier = f", {resumed[0]} of them earlier" if resumed[0] else ""
                notify(
                    f"[{number}/{self._count}] {name}: {step.total} tasks{earlier}, "
                    f"{time.monotonic() - start:.1f} s"
                )

        return step_done


def as_values(outcomes: Sequence[Reproduced]) -> list[dict[str, Any]]:
    """The same as plain values."""
    return [
        {
            "name": outcome.experiment.name,
            "paper": outcome.experiment.paper,
            "title": outcome.experiment.title,
            "files": [str(path) for path in outcome.files],
            "claims": [asdict(claim) for claim in outcome.claims],
        }
        for outcome in outcomes
    ]


def print_outcomes(outcomes: Sequence[Reproduced], out: Screen, page: Path | None) -> None:
    """Verdicts on the papers' claims, this package's own below, and where everything lies."""
    for outcome in outcomes:
        table = Table(title=f"{outcome.experiment.name}: {outcome.experiment.title}")
        for head in ("where", "claim", "measured", "verdict"):
            table.add_column(head, no_wrap=head == "verdict")
        for claim in (claim for claim in outcome.claims if claim.where != OURS):
            colour = _COLOURS[claim.verdict]
            table.add_row(
                claim.where,
                claim.statement,
                claim.measured,
                coloured(claim.verdict, colour),
            )
        out.print(table)
    counts = Counter(c.verdict for each in outcomes for c in each.claims if c.where != OURS)
    counted = [f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict) if counts[verdict]]
    if counted:
        out.print(bold("the papers' claims:"), ", ".join(counted))
    for outcome in outcomes:
        for claim in outcome.claims:
            if claim.where == OURS:
                colour = _COLOURS[claim.verdict]
                out.print(
                    bold(f"{outcome.experiment.name}:"),
                    claim.statement,
                    coloured(f"{claim.verdict}:", colour),
                    claim.measured,
                )
    for outcome in outcomes:
        first = outcome.files[0]
        ends = ", ".join(path.name.removeprefix(first.stem) for path in outcome.files)
        out.print(f"wrote {first.with_suffix('')} ({ends})")
    if page is not None:
        out.print(f"wrote {page}")


# -- ``eigenveil reproduce``: the papers' figures and tables, measured again.


class _Stopped(EigenveilError):
    """Ctrl-C; what is done is kept."""

    exit_status = 130


_Names = Annotated[
    list[str] | None,
    typer.Argument(help="Experiments such as 000-fig1, 'all', or 'list' to see which."),
]
_Data = Annotated[
    str | None,
    typer.Option(
        help="Only this data set, such as mnist, fashion-mnist or covtype; by default those of "
        "the paper."
    ),
]
_DataFolder = Annotated[
    Path | None,
    typer.Option(
        help="Your folder of data: files by name, torchvision's root, UCI's and Debian's "
        "files; with --data also its only table, whatever it is called."
    ),
]
_Fetch = Annotated[
    bool, typer.Option("--fetch", help="Get data sets that are not at hand from OpenML.")
]
_Fast = Annotated[
    bool, typer.Option("--fast", help="Fewer rows and runs: minutes for all of them.")
]
_Toy = Annotated[bool, typer.Option("--toy", hidden=True)]
_Runs = Annotated[int | None, typer.Option(min=1, help="Repetitions of each measurement.")]
_Jobs = Annotated[
    int | None, typer.Option(min=1, help="Processes; by default one for each processor.")
]
_Out = Annotated[Path, typer.Option(help="Folder for pictures and numbers.")]
_Page = Annotated[
    Path | None,
    typer.Option(
        help="Also write a page (.md) about all pictures in the folder, and a folder of pages "
        "beside it with settings and verdicts."
    ),
]
_Restart = Annotated[
    bool, typer.Option("--restart", help="Do not go on with a run that was stopped.")
]
_Redraw = Annotated[
    bool, typer.Option("--redraw", help="Only draw and judge what was measured before.")
]


def reproduce(
    names: _Names = None,
    data: _Data = None,
    data_folder: _DataFolder = None,
    fetch: _Fetch = False,
    fast: _Fast = False,
    toy: _Toy = False,
    runs: _Runs = None,
    jobs: _Jobs = None,
    out: _Out = Path("reproduced"),
    page: _Page = None,
    restart: _Restart = False,
    redraw: _Redraw = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure figures and tables of the papers again, beside this package's sound algorithms.

    Writes each as a picture (PNG, SVG), its numbers (CSV) and a verdict on every claim (JSON).
    A run that was stopped goes on where it was when the same command is given again.
    """
    from eigenveil_papers.reproduction import page as registry

    if fast and toy:
        raise WrongOption("fast-and-toy")
    if restart and redraw:
        raise WrongOption("restart-and-redraw")
    scale: Scale = "fast" if fast else "toy" if toy else "full"
    settings = RunSettings(scale=scale, data=data, folder=data_folder, fetch=fetch, runs=runs)
    processes = jobs or _processors()
    if not names or "list" in names:
        chosen = registry.choose([n for n in names or () if n != "list"] or ["all"], settings)
        print_list(chosen, settings, processes, json=json, quiet=quiet)
        return
    chosen = registry.choose(names, settings)
    for experiment in chosen:
        check_data(experiment, settings)
    if page is not None and not page.absolute().parent.is_dir():
        raise WrongOption("no-folder-of-page", parent=page.parent)
    outcomes = []
    with progress(len(chosen), quiet=quiet or json) as notify:
        for experiment in chosen:
            if redraw:
                outcomes.append(results.redraw(experiment, settings, out=out))
                continue
            measure = partial(results.make, jobs=processes, restart=restart)
            try:
                told = notify(experiment.name)
                outcomes.append(measure(experiment, settings, out=out, progress=told))
            except KeyboardInterrupt:
                raise _Stopped("stopped", experiment=experiment.name, out=out) from None
    if page is not None:
        registry.write_page(out, page)
    if json:
        options.print_json(as_values(outcomes))
        return
    print_outcomes(outcomes, Screen(quiet=quiet), page)


def _processors() -> int:
    """Those this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
