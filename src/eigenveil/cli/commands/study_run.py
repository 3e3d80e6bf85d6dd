"""``eigenveil study run``, ``status``, ``end`` and ``fetch``: a lead's studies between parties."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eigenveil import app
from eigenveil.app.parts import TextTable
from eigenveil.cli import options
from eigenveil.cli.commands.fit import show_written
from eigenveil.cli.commands.study import LEAD, LeadFolder, StudyFile, study_app
from eigenveil.cli.presenters.screen import Screen, notify

if TYPE_CHECKING:
    from eigenveil.network.lead import StudyStatus

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
    screen = Screen(quiet=quiet or json)
    began = ""
    # the folder is tried before anything is spent
    with app.results.new_folder(out) as folder, app.study.open_lead(party) as session:
        stop = app.watch.Stop()
        try:
            with stop.listening():
                for event in app.study.run_study(
                    session,
                    agreed,
                    timeout=timeout,
                    patience=wait_for_sites,
                    signatures=signatures,
                    stop=stop,
                ):
                    match event:
                        case app.study.Started(began, settled):
                            screen.print(
                                f"study {settled.name}, hash {settled.hash}", soft_wrap=True
                            )
                            screen.print(
                                f"run {began}; to follow it: eigenveil study status {began}",
                                soft_wrap=True,
                            )
                        case app.study.Moved(text=text) if not (quiet or json):
                            notify(text)
                        case app.study.Ended():
                            if not (quiet or json):
                                notify(
                                    "ended: what sites have answered stays spent, what was only "
                                    "reserved is free."
                                )
                            raise typer.Exit(_STOPPED)
                        case app.study.Finished():
                            finished = event
        except KeyboardInterrupt:  # the second one
            notify(f"left running; it is followed by: eigenveil study status {began}")
            raise typer.Exit(_STOPPED) from None
        written = app.fit.write_study_result(finished.model, folder, figures=plots)
    found = app.fit.Fitted(finished.model, out, written)
    if json:
        signed = {"signed": asdict(finished.signed), "run": finished.run}
        options.print_json(found.as_json() | signed)
        return
    screen.show(found.parts())
    screen.print(f"certificate: {finished.signed}", soft_wrap=True)
    show_written(screen, found)


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
    if json:
        options.print_json({name: _as_json(each) for name, each in found.items()})
        return
    screen = Screen()
    if not found:
        screen.print("The aggregator knows of no study of this lead.")
        return
    rows = [
        (name, each.name, each.state, f"{each.step}: {each.answered} answered" if each.step else "")
        for name, each in found.items()
    ]
    screen.show([TextTable("studies", ("run", "study", "state", "step"), rows, overflow="fold")])
    for name, each in found.items():
        if each.missing:
            screen.print(f"{name[:8]}: {app.study.missing_of(each)}")
        if each.error is not None:
            screen.print(f"{name[:8]}: {each.error}")


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


def _as_json(found: StudyStatus) -> dict[str, Any]:
    error = found.error
    return {
        "study": found.name,
        "study_hash": found.study_hash,
        "state": found.state,
        "step": found.step,
        "answered": found.answered,
        "missing": dict(found.missing),
        "error": None
        if error is None
        else {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "spent": None if error.spent is None else error.spent.as_dict(),
        },
    }
