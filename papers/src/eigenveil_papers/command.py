"""What ``eigenveil reproduce`` prints: the list, its progress, and the verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from eigenveil.app.parts import TablePart
from eigenveil.cli import options
from eigenveil.cli.presenters.screen import Screen, bold, coloured, notify
from eigenveil.cli.presenters.screen import counted as tasks_bar
from eigenveil.errors import EigenveilError, WrongOption
from eigenveil.moments.engine import processors
from eigenveil_papers.reproduction import results
from eigenveil_papers.reproduction.data import NAMES, at_hand
from eigenveil_papers.reproduction.experiment import Experiment, RunSettings, Scale
from eigenveil_papers.reproduction.headlines import counted
from eigenveil_papers.reproduction.results import Reproduced
from eigenveil_papers.reproduction.rule import OURS
from eigenveil_papers.reproduction.runner import RunProgress, check_data

_COLOURS = {"shown": "green", "contradicted": "red", "undecided": "cyan", "not tested": "dim"}


def print_list(
    chosen: Sequence[Experiment], settings: RunSettings, jobs: int, *, json: bool, quiet: bool
) -> None:
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
    cells = [
        (
            *(experiment.name, experiment.paper, experiment.title),
            ", ".join(name if there else f"{name}*" for name, there in known.items()),
            "-" if seconds is None else _time_text(seconds),
        )
        for experiment, known, seconds in rows
    ]
    title = f"experiments ({settings.scale} scale, {jobs} processes)"
    heads = ("name", "paper", "shows", "data", "time")
    out.show([TablePart(title, heads, cells, right=("time",))])
    if any(not there for _, known, _ in rows for there in known.values()):
        out.print("* not at hand: a smaller data set stands in. Give its file with --data-folder.")
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
def progress(name: str, place: str, *, quiet: bool) -> Iterator[Callable[[RunProgress], None]]:
    """A bar on a terminal, and a line when the experiment is done; nothing when quiet."""
    start, steps = time.monotonic(), list[RunProgress]()
    with tasks_bar(name, quiet=quiet) as bar:

        def told(step: RunProgress) -> None:
            steps.append(step)
            if bar is not None:
                bar(step.done, step.total)
            if step.note and not quiet:
                notify(f"note: {step.note}")

        yield told
    if steps and not quiet:
        earlier = f", {steps[0].done} of them earlier" if steps[0].done else ""
        seconds = time.monotonic() - start
        notify(f"[{place}] {name}: {steps[-1].total} tasks{earlier}, {seconds:.1f} s")


def as_values(outcomes: Sequence[Reproduced]) -> list[dict[str, Any]]:
    return [
        {
            "name": outcome.experiment.name,
            "paper": outcome.experiment.paper,
            "title": outcome.experiment.title,
            "files": outcome.files,
            "claims": outcome.claims,
        }
        for outcome in outcomes
    ]


def print_outcomes(outcomes: Sequence[Reproduced], out: Screen, page: Path | None) -> None:
    """Verdicts on the papers' claims, this package's own below, and where everything lies."""
    for outcome in outcomes:
        table = Table(title=f"{outcome.experiment.name}: {outcome.experiment.title}")
        for head in ("where", "claim", "measured", "verdict"):
            table.add_column(head, ratio=2 if head == "measured" else 1)
        for claim in (claim for claim in outcome.claims if claim.where != OURS):
            colour = _COLOURS[claim.verdict.outcome]
            table.add_row(
                claim.where, claim.statement, claim.measured, coloured(str(claim.verdict), colour)
            )
        out.print(table)
    theirs = tuple(c for each in outcomes for c in each.claims if c.where != OURS)
    if theirs:
        out.print(counted(theirs))
    for outcome in outcomes:
        for claim in outcome.claims:
            if claim.where == OURS:
                colour = _COLOURS[claim.verdict.outcome]
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
    settings = RunSettings(scale=scale, data=data, folder=data_folder, runs=runs)
    processes = jobs or processors()
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
    for number, experiment in enumerate(chosen, 1):
        if redraw:
            outcomes.append(results.redraw(experiment, settings, out=out))
            continue
        measure = partial(results.make, jobs=processes, restart=restart)
        try:
            place = f"{number}/{len(chosen)}"
            with progress(experiment.name, place, quiet=quiet or json) as told:
                outcomes.append(measure(experiment, settings, out=out, progress=told))
        except KeyboardInterrupt:
            raise _Stopped("stopped", experiment=experiment.name, out=out) from None
    if page is not None:
        registry.write_page(out, page)
    if json:
        options.print_json(as_values(outcomes))
        return
    print_outcomes(outcomes, Screen(quiet=quiet), page)
