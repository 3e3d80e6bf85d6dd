"""``eigenveil study run``, ``status``, ``end`` and ``fetch``: a lead's studies between parties."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.cli import options
from eigenveil.cli.commands.fit import show_written
from eigenveil.cli.commands.study import LEAD, LeadFolder, StudyFile, study_app
from eigenveil.cli.presenters.screen import Screen, notify, present

_STOPPED = 130

Run = Annotated[str, typer.Argument(help="A run, as 'study run' and 'study status' name it.")]
Signatures = Annotated[
    int | None,
    typer.Option(help="Sites that must have signed the result; all by default."),
]


@study_app.command()
def run(
    study: StudyFile,
    out: options.NewFolder,
    party: LeadFolder = LEAD,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a site may take for one answer, above 0.")
    ] = 600.0,
    wait_for_sites: Annotated[
        float,
        typer.Option(help="Seconds to wait until all sites are connected and have approved."),
    ] = 3600.0,
    signatures: Signatures = None,
    overwrite: options.OverResult = False,
    plots: options.Plots = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a study over its sites and write the result.

    Ctrl-C ends the study; a second Ctrl-C leaves it running.
    """
    app.results.check_free(out, overwrite=overwrite)
    for name, seconds in (("timeout", timeout), ("wait-for-sites", wait_for_sites)):
        if not seconds > 0:
            raise options.WrongOption("bad-seconds", option=name, seconds=seconds)
    agreed = app.fit.read_study(study)
    stop, silent = app.watch.Stop(), quiet or json
    # the folder is tried before anything is spent
    with app.results.new_folder(out) as folder, app.study.open_lead(party) as session:
        events = app.study.run_study(
            session,
            agreed,
            timeout=timeout,
            patience=wait_for_sites,
            signatures=signatures,
            stop=stop,
        )
        with stop.listening():
            finished = _followed(events, silent=silent)
        written = app.fit.write_study_result(finished.model, folder, figures=plots)
    model, signed = finished.model, finished.signed
    found = app.fit.FittedStudy(model, out, written, signed=signed, run=finished.run)
    show_written(present(found, json=json, quiet=quiet), found)


def _followed(events: Any, *, silent: bool) -> Any:
    """Tell what happens until a study is finished, or ended by its lead."""
    screen, began = Screen(quiet=silent), ""
    try:
        for event in events:
            match event:
                case app.study.Started(run, settled):
                    began = run
                    screen.print(f"study {settled.name}, hash {settled.hash}", soft_wrap=True)
                    said = f"run {run}; to follow it: eigenveil study status {run}"
                    screen.print(said, soft_wrap=True)
                case app.study.Moved(text=text) if not silent:
                    notify(text)
                case app.study.Ended():
                    if not silent:
                        notify(
                            "ended: what sites have answered stays spent, what was only reserved "
                            "is free."
                        )
                    raise typer.Exit(_STOPPED)
                case app.study.Finished():
                    return event
    except KeyboardInterrupt:  # the second one
        notify(f"left running; it is followed by: eigenveil study status {began}")
        raise typer.Exit(_STOPPED) from None


@study_app.command()
def status(
    run: Annotated[
        str | None, typer.Argument(help="A run, as 'study run' names it; all by default.")
    ] = None,
    party: LeadFolder = LEAD,
    json: options.Json = False,
) -> None:
    """Say how far studies are."""
    with app.study.open_lead(party) as session:
        found = session.studies() if run is None else {run: session.status(run)}
    present(app.study.LeadRuns(found), json=json)


@study_app.command()
def end(run: Run, party: LeadFolder = LEAD, quiet: options.Quiet = False) -> None:
    """End a study that waits or runs; what its sites have answered stays spent."""
    with app.study.open_lead(party) as session:
        session.end(run)
    Screen(quiet=quiet).print(f"ended: run {run}")


@study_app.command()
def fetch(
    run: Run,
    out: options.NewFolder,
    party: LeadFolder = LEAD,
    signatures: Signatures = None,
    overwrite: options.OverResult = False,
    plots: options.Plots = True,
    quiet: options.Quiet = False,
) -> None:
    """Fetch the result of a study that has finished, and write it as 'study run' does."""
    app.results.check_free(out, overwrite=overwrite)
    with app.results.new_folder(out) as folder, app.study.open_lead(party) as session:
        model, signed = session.result(run, signatures=signatures)
        app.fit.write_study_result(model, folder, figures=plots)
    if not quiet:
        notify(f"fetched: the result of study {model.study_.hash} is in {out}, {signed}")
