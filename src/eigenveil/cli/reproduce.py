"""``eigenveil reproduce``: the papers' figures and tables, measured again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eigenveil.cli import options
from eigenveil.cli.options import WrongOption
from eigenveil.cli.screen import Screen
from eigenveil.errors import EigenveilError

if TYPE_CHECKING:
    from eigenveil.experiments.experiment import Scale


class _Stopped(EigenveilError):
    """Ctrl-C; what is done is kept."""

    exit_status = 130


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments such as 000-fig1, 'all', or 'list' to see which."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Only this data set; by default those of the paper.")
    ] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Where files of data sets are, such as mnist.npz.")
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--fetch", help="Get data sets that are not at hand from OpenML.")
    ] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Fewer rows and runs: minutes for all of them.")
    ] = False,
    toy: Annotated[bool, typer.Option("--toy", hidden=True)] = False,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Repetitions of each measurement.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one for each processor.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for pictures and numbers.")] = Path(
        "reproduced"
    ),
    page: Annotated[
        Path | None, typer.Option(help="Also write a page (.md) about all claims in the folder.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Do not go on with a run that was stopped.")
    ] = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Only draw and judge what was measured before.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure figures and tables of the papers again, beside this package's sound algorithms.

    Writes each as a picture (PNG, SVG), its numbers (CSV) and a verdict on every claim (JSON).
    A run that was stopped goes on where it was when the same command is given again.
    """
    from eigenveil.cli import reproduce_report as report
    from eigenveil.experiments import registry, results
    from eigenveil.experiments.page import write_page
    from eigenveil.experiments.runner import check_data

    if fast and toy:
        raise WrongOption("--fast and --toy exclude each other.", hint="Choose one.")
    if restart and redraw:
        raise WrongOption(
            "--restart measures anew and --redraw does not measure.", hint="Choose one."
        )
    scale: Scale = "fast" if fast else "toy" if toy else "full"
    from eigenveil.experiments.experiment import Settings

    settings = Settings(scale=scale, data=data, folder=data_folder, fetch=fetch, runs=runs)
    processes = jobs or _processors()
    if not names or "list" in names:
        chosen = registry.choose([n for n in names or () if n != "list"] or ["all"], settings)
        report.print_list(chosen, settings, processes, json=json, quiet=quiet)
        return
    chosen = registry.choose(names, settings)
    for experiment in chosen:
        check_data(experiment, settings)
    if page is not None and not page.absolute().parent.is_dir():
        raise WrongOption(f"{page.parent} is not a folder.", hint="Make it first.")
    outcomes = []
    with report.progress(len(chosen), quiet=quiet or json) as tell:
        for experiment in chosen:
            if redraw:
                outcomes.append(results.redraw(experiment, settings, out=out))
                continue
            try:
                outcome = results.make(
                    experiment,
                    settings,
                    out=out,
                    jobs=processes,
                    progress=tell(experiment.name),
                    restart=restart,
                )
            except KeyboardInterrupt:
                raise _Stopped(
                    f"stopped during {experiment.name}.",
                    hint=f"What was measured is kept in {out}; the same command"
                    + (" without --restart" if restart else "")
                    + " goes on from there.",
                    code="stopped",
                ) from None
            outcomes.append(outcome)
    if page is not None:
        write_page(out, page)
    if json:
        options.print_json(report.as_values(outcomes))
        return
    report.print_outcomes(outcomes, Screen(quiet=quiet), page)


def _processors() -> int:
    """Those this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
