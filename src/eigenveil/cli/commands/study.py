"""``eigenveil study``: write, check and plan what several sites agree on, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.app.events import nobody
from eigenveil.cli import declared, options
from eigenveil.cli.commands.fit import show_written
from eigenveil.cli.presenters.screen import Screen, listening, notify, present, print_json
from eigenveil.models.task import TASKS

study_app = options.group()

LeadFolder = Annotated[Path, typer.Option("--party", help="The lead's folder.")]
LEAD = Path("parties/lead")
StudyFile = Annotated[Path, typer.Argument(help="A study, as 'eigenveil study new' writes it.")]


def _source(
    *,
    columns: options.Columns = None,
    schema: options.SchemaFile = None,
    from_sites: Annotated[
        bool,
        typer.Option("--from-sites", help="Ask the sites, and take what their schemas share."),
    ] = False,
    vocabulary: options.Vocabulary = None,
    features: Annotated[
        int | None, typer.Option(help="Number of columns, where files have no names for them.")
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from", help="A file with rows: its column names are read, nothing else."),
    ] = None,
) -> Any:
    names = options.read_names(columns)
    return app.study_draft.ColumnSource(names, features, from_file, vocabulary, schema, from_sites)


def _about(
    *,
    name: Annotated[
        str | None, typer.Option(help="Name of the study; that of the file by default.")
    ] = None,
    requested_by: Annotated[
        str, typer.Option(help="Who asks for the study: shown to every owner.")
    ] = "",
    purpose: Annotated[
        str, typer.Option(help="What the result is for: shown to every owner.")
    ] = "",
) -> dict[str, Any]:
    return dict(locals())


@study_app.command()
@declared.declared("sites", without=("random_state",))
@options.takes(read=options.reading, whose=options.whose_rows, source=_source, about=_about)
def new(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="File to write, such as study.toml.")],
    site: Annotated[
        list[str],
        typer.Option(help="A site's name; repeat."),
    ],
    task: options.TaskName = "pca",
    party: LeadFolder = LEAD,
    overwrite: options.OverFile = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
    read: Any,
    whose: dict[str, bool],
    source: Any,
    about: dict[str, Any],
) -> None:
    """Write a commented study file that every site can read, check and agree to."""
    chosen = declared.read_task(task)
    targets = declared.estimator_options(chosen, option_values, context, sites=True)
    wanted = app.study_draft.NewStudy(chosen, targets, source, site, read, about)
    written = app.study_draft.new_study(
        wanted,
        out,
        whose=whose,
        party=party,
        overwrite=overwrite,
        notify=nobody if quiet else notify,
    )
    present(written, json=json, quiet=quiet).next("study check", out)


@study_app.command()
@options.reads_files
def check(
    study: StudyFile,
    site: Annotated[
        list[str] | None,
        typer.Option(help="SITE=FILE also checks the columns of that site's file; repeat."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    read: Any,
) -> None:
    """Say what a study means, and whether sites' files fit it; no row is used."""
    checked = app.study_draft.check_study(study, site or [], read)
    present(checked, json=json, quiet=quiet).next("study plan", study)


@study_app.command()
@options.takes(expected=options.expected, sought=options.sought)
def plan(
    context: typer.Context,
    study: StudyFile,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows of all sites together; the study's expected_rows by default."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    expected: dict[str, Any],
    sought: tuple[float, Any] | None,
) -> None:
    """Say what each protocol sends and would give, and what each adversary is guaranteed."""
    found = app.study_draft.read_study(study)
    declared.check_options(TASKS[found.task], context)
    data = app.study_plan.StudyData.of(found, rows=rows, **expected)
    if sought is None:
        present(app.study_plan.plan_study(data), json=json, quiet=quiet)
        return
    with listening(quiet=json or quiet) as tell:
        reached = app.study_plan.plan_study_quality(data, *sought, tell)
    present(reached, json=json, quiet=quiet)


@study_app.command("schema")
def print_schema(
    out: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
    overwrite: options.OverFile = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Print the JSON schema of a study, for editors and other programs."""
    if out is not None:
        app.results.write_format(app.study_draft.schema(), out, overwrite=overwrite)
    if json or (out is None and not quiet):
        print_json(app.study_draft.schema() if out is None else {"out": out})
    elif out is not None:
        Screen(quiet=quiet).print(f"written to {out}")


@study_app.command()
def ask(
    study: StudyFile,
    party: LeadFolder = LEAD,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Ask the study's sites whether they have agreed to it; their owners then see it.

    Nothing runs and nothing is charged. Each site signs its answer.
    """
    present(app.study_draft.ask_sites(study, party), json=json, quiet=quiet)


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
