"""``eigenveil study``: write, check and plan what several sites agree on, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.checks import check_whole
from eigenveil.cli import options
from eigenveil.cli.options import check_options, estimator_options
from eigenveil.cli.presenters.screen import Screen, listening, notify, present, print_json
from eigenveil.models.options import DEFAULT_SPECTRUM
from eigenveil.models.task import TASKS

study_app = typer.Typer(
    help="A study: one file that several sites agree on, checked before any row is read.",
    no_args_is_help=True,
    add_completion=False,
)

LeadFolder = Annotated[Path, typer.Option("--party", help="The lead's folder.")]
LEAD = Path("parties/lead")
StudyFile = Annotated[Path, typer.Argument(help="A study, as 'eigenveil study new' writes it.")]


@study_app.command()
@options.declared("sites", without=("random_state",))
@options.reads_files
def new(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="File to write, such as study.toml.")],
    site: Annotated[
        list[str],
        typer.Option(help="A site's name, or name:epsilon for one with a smaller target; repeat."),
    ],
    task: options.TaskName = "pca",
    columns: options.Columns = None,
    schema: options.SchemaFile = None,
    from_sites: Annotated[
        bool,
        typer.Option("--from-sites", help="Ask the sites, and take what their schemas share."),
    ] = False,
    party: LeadFolder = LEAD,
    vocabulary: options.Vocabulary = None,
    features: Annotated[
        int | None, typer.Option(help="Number of columns, where files have no names for them.")
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option("--from", help="A file with rows: its column names are read, nothing else."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the study; that of the file by default.")
    ] = None,
    requested_by: Annotated[
        str, typer.Option(help="Who asks for the study: shown to every owner.")
    ] = "",
    purpose: Annotated[
        str, typer.Option(help="What the result is for: shown to every owner.")
    ] = "",
    one_row_per_person: options.OneRow = False,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier file.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
    read: Any,
) -> None:
    """Write a commented study file that every site can read, check and agree to."""
    chosen = options.read_task(task)
    targets = estimator_options(chosen, option_values, context, sites=True)
    written = app.study_draft.new_study(
        out,
        chosen,
        targets,
        app.study_draft.ColumnSource(
            options.read_names(columns), features, from_file, vocabulary, schema, from_sites
        ),
        sites=site,
        whose=options.whose_row_said(context, said=one_row_per_person),
        name=name,
        requested_by=requested_by,
        purpose=purpose,
        party=party,
        read=read,
        overwrite=overwrite,
        notify=_nobody if quiet else notify,
    )
    present(written, json=json, quiet=quiet).next("study check", out)


def _nobody(text: object) -> None:
    del text


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
def plan(
    context: typer.Context,
    study: StudyFile,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows of all sites together; the study's expected_rows by default."),
    ] = None,
    spectrum: Annotated[
        str,
        typer.Option(
            help="Expected eigenvalues: power:1.0, exponential:20, spike:5:0.8, or numbers."
        ),
    ] = DEFAULT_SPECTRUM,
    distance: options.Distance = 3.0,
    topic_words: options.TopicWords = 20,
    document_words: options.DocumentWords = 20,
    fits: options.Fits = None,
    quality: options.Quality = None,
    find: options.Find = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Say what each protocol sends and would give, and what each adversary is guaranteed."""
    found = app.study_draft.read_study(study)
    for option, count in (("topic-words", topic_words), ("fits", fits)):
        if count is not None:
            check_whole(option, count)
    sought = options.read_find(context, quality, find)
    check_options(TASKS[found.task], context)
    data = app.study_plan.StudyData.of(
        found,
        rows=rows,
        spectrum=spectrum,
        fits=fits,
        distance=app.plan.check_distance(distance),
        topic_words=topic_words,
        document_words=app.plan.check_document_words(document_words),
    )
    if quality is None or sought is None:
        present(app.study_plan.plan_study(data), json=json, quiet=quiet)
        return
    with listening(quiet=json or quiet) as tell:
        reached = app.study_plan.plan_study_quality(data, quality, sought, tell)
    present(reached, json=json, quiet=quiet)


@study_app.command("schema")
def print_schema(
    out: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier file.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Print the JSON schema of a study, for editors and other programs."""
    if out is None:
        if json or not quiet:
            print_json(app.study_draft.schema())
        return
    app.study_draft.write_schema(out, overwrite=overwrite)
    if json:
        print_json({"out": out})
    else:
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
