"""``eigenveil study``: write, check and plan what several sites agree on, before anything runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from eigenveil.app.forecasts import (
    answer_parts,
    answer_values,
    find_quality,
    tensor_scene,
    trials_text,
    trials_values,
)
from eigenveil.app.plan import check_distance, check_document_words
from eigenveil.app.results import check_place
from eigenveil.app.rows import WantedColumns
from eigenveil.checks import check_whole
from eigenveil.cli import options
from eigenveil.cli.options import check_options, estimator_options
from eigenveil.cli.presenters.screen import Screen, listening
from eigenveil.cli.presenters.study import (
    adversaries_json,
    forecast_json,
    print_plan,
    print_summary,
    summary,
)
from eigenveil.errors import DataError, EigenveilError, PrivacyError
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.study.file import read_study, schema, write_toml
from eigenveil.federation.study.study import Study, make_study
from eigenveil.files import replacing
from eigenveil.io import ReadOptions, read_vocabulary
from eigenveil.models.options import options_of
from eigenveil.models.task import TASKS, Task, part
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.moments.source import RowSource
from eigenveil.planning.forecast import DEFAULT_SPECTRUM, Forecast, forecast, pooled, try_study
from eigenveil.planning.predict import parse_spectrum
from eigenveil.planning.protocol import Choice, choose_protocol
from eigenveil.planning.quality import Sought
from eigenveil.planning.trials import Scenario, Trials
from eigenveil.tables.schema import Schema, read_schema

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
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier file.")] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
    read: ReadOptions,
) -> None:
    """Write a commented study file that every site can read, check and agree to."""
    chosen = options.read_task(task)
    targets = estimator_options(chosen, option_values, context, sites=True)
    if isinstance(targets.get("center"), np.ndarray):
        targets["center"] = targets["center"].ravel()
    given = (columns, features, from_file, vocabulary, schema, from_sites or None)
    _check_one_source(given)
    table = None if schema is None else read_schema(schema)
    if from_sites:
        # imported here: it comes with what carries messages
        from eigenveil.cli.commands.study_ask import schema_of_sites

        table = schema_of_sites([_site(text)["name"] for text in site], party, quiet=quiet)
    wanted = WantedColumns(schema=table, read=read).with_unit(targets.get("unit"))
    written = draft_study(
        chosen,
        targets,
        wanted.schema,
        name=_name_of(out) if name is None else name,
        requested_by=requested_by,
        purpose=purpose,
        sites=site,
        **_columns(options.read_names(columns), features, from_file, vocabulary, wanted),
    )
    # settled in the file: all sites must run the same, and see what they agree to
    choice = _choice(written)
    made = written if choice is None else written.with_protocol(choice.protocol)
    write_toml(made, out, overwrite=overwrite)
    if json:
        options.print_json({**summary(made, choice), "out": str(out)})
        return
    screen = Screen(quiet=quiet)
    screen.print(f"written to {out}: hash {made.hash}")
    if choice is not None:
        screen.print(f"protocol {choice.protocol}: {choice.reason}")
    screen.next("study check", out)


def by_schema(values: dict[str, Any], schema: Schema | None) -> dict[str, Any]:
    """The fields of a study, with what a schema decides: whose rows they are, and their ranges."""
    found = dict(values)
    if schema is not None and schema.unit is not None:
        found["unit"] = schema.unit
    if schema is not None and found.get("scale") == "private":
        ranges = schema.public_ranges()
        if np.isfinite(ranges).all():  # as a fit of rows that are read by the schema
            found["ranges"] = ranges.tolist()
    return found


def draft_study(
    task: Task, targets: dict[str, Any], schema: Schema | None, *, sites: Sequence[str], **own: Any
) -> Study:
    """A study of checked options, and of what a schema says."""
    values = by_schema(targets, schema)
    return make_study(
        task=task.name,
        components=values.pop("n_components", task.usual_components),
        sites=[_site(text) for text in sites],
        **own,
        **values,
    )


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
    read: ReadOptions,
) -> None:
    """Say what a study means, and whether sites' files fit it; no row is used."""
    found = read_study(study)
    files = _site_files(found, site or [])
    checked = _check_files(found, files, read=read)
    choice = _choice(found)
    if json:
        options.print_json({**summary(found, choice), "files": checked})
    elif not quiet:
        print_summary(found, choice, checked)
        Screen().next("study plan", study)


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
    found = read_study(study)
    check_whole("topic-words", topic_words)
    if fits is not None:
        check_whole("fits", fits)
    sought = options.read_find(context, quality, find)
    if rows is not None and rows < 1:
        raise DataError(f"rows = {rows} is not a positive number.", hint="Give at least 1.")
    task = TASKS[found.task]
    check_options(task, context)
    words = check_document_words(document_words)
    expected = found.expected_rows if rows is None else rows
    choice = _choice(found)  # what a run would choose, whatever spectrum is given here
    chosen = found.protocol if choice is None else choice.protocol
    data = Scenario(
        rows=expected or 2,
        spectrum=parse_spectrum(spectrum, found.width),
        distance=check_distance(distance),
        topic_words=topic_words,
        document_words=words,
    )
    if sought == "epsilon" and expected is None:
        raise options.WrongOption(
            "--quality finds the epsilon for a number of rows, and none is given.",
            hint="Give --rows, or use --find rows.",
        )
    if quality is not None and sought is not None:
        _plan_quality(
            found.with_protocol(chosen), data, quality, sought, fits, json=json, quiet=quiet
        )
        return
    outlook = part(task.of_study)(found.with_protocol(chosen), expected, words, spectrum)
    forecasts = _forecasts(found, expected, spectrum, fits, simulated=outlook is None)
    trials = Trials(note="without --rows")
    if outlook is not None and expected is not None:
        trials = try_study(found.with_protocol(chosen), data, fits=fits)
    exchanges = settle(found.with_protocol(chosen)).exchanges
    if json:
        found_json: dict[str, Any] = {
            "task": found.task,
            "protocol": chosen,
            "reason": None if choice is None else choice.reason,
            "rows": expected,
            "spectrum": spectrum if outlook is None else None,
            "study_hash": found.hash,
            "forecasts": [
                {**forecast_json(each), "chosen": each.protocol == chosen} for each in forecasts
            ],
            "adversaries": adversaries_json(found),
            "exchanges": exchanges,
        }
        if outlook is not None:
            found_json |= outlook.as_json() | trials_values(trials)
        options.print_json(found_json)
    elif not quiet:
        shown = trials_text(trials, task, _scene(found, data, spectrum))
        print_plan(found, forecasts, chosen, choice, expected, spectrum, outlook, shown)
        Screen().print(f"each site answers {exchanges} questions, one after the other.")


def _scene(study: Study, data: Scenario, spectrum: str) -> str:
    """The data that fits are simulated of."""
    plan = study.plan(study.width)
    return (
        tensor_scene(plan, data) if isinstance(plan, TensorPlan) else f"Gaussian rows, {spectrum}"
    )


def _plan_quality(
    study: Study,
    data: Scenario,
    quality: float,
    sought: Sought,
    fits: int | None,
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Say what it takes the study's protocol to reach a quality."""

    def try_at(value: float, seed: int = 0, rows: int = data.rows) -> Trials:
        """Fits with another epsilon, or other rows; sites keep smaller targets of their own."""
        there = replace(data, rows=int(value) if sought == "rows" else rows)
        made = study if sought == "rows" else study.with_epsilon(value)
        return try_study(made, there, fits=fits, seed=seed)

    task, fewest = TASKS[study.task], max(2, len(study.sites))
    with listening(quiet=json or quiet) as tell:
        answer = find_quality(quality, sought, try_at, fewest=fewest, tell=tell)
    if json:
        options.print_json(
            {
                "task": task.name,
                "protocol": study.protocol,
                "study_hash": study.hash,
                **answer_values(answer, task),
            }
        )
    elif not quiet:
        screen = Screen()
        screen.print(f"study {study.name}, protocol {study.protocol}:")
        screen.show(answer_parts(answer, task))
        if answer.value is not None and sought == "epsilon":
            screen.print(f"next: write epsilon = {answer.value:g} into the study")


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
            options.print_json(schema())
        return
    import json as json_format

    check_place(out, overwrite=overwrite)
    with replacing(out) as scratch:
        scratch.write_text(json_format.dumps(schema(), indent=2) + "\n", encoding="utf-8")
    if json:
        options.print_json({"out": str(out)})
    else:
        Screen(quiet=quiet).print(f"written to {out}")


# -- reading the command line


def _name_of(path: Path) -> str:
    """A study's name from its file's."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", path.stem).lstrip("_.-")[:64]
    return name or "study"


def _site(text: str) -> dict[str, Any]:
    name, colon, target = text.partition(":")
    if not colon:
        return {"name": name}
    try:
        return {"name": name, "epsilon": float(target)}
    except ValueError:
        raise DataError(
            f"--site {text}: {target!r} is not a number.",
            hint="Give a name, or name:epsilon, such as south:0.5.",
        ) from None


def _check_one_source(given: Sequence[object]) -> None:
    """Columns have one source."""
    count = sum(each is not None for each in given)
    if count != 1:
        raise DataError(
            f"{count} of --columns, --features, --from, --schema, --from-sites and --vocabulary "
            "were given.",
            hint="Give only one of them.",
            code="columns-or-features",
        )


def _columns(
    names: list[str] | None,
    features: int | None,
    from_file: str | None,
    vocabulary: Path | None,
    wanted: WantedColumns,
) -> dict[str, Any]:
    """The fields that name the columns."""
    if vocabulary is not None:
        return {"columns": tuple(read_vocabulary(vocabulary))}
    if wanted.schema is not None:
        return {"columns": wanted.schema.names, "table_schema": wanted.schema}
    if from_file is None:
        return {"columns": names, "features": features}
    rows = wanted.open([from_file])
    return {"features": rows.features} if rows.names is None else {"columns": tuple(rows.names)}


def _site_files(study: Study, given: Sequence[str]) -> dict[str, str]:
    """File by site."""
    names = [site.name for site in study.sites]
    files: dict[str, str] = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not (equals and file):
            raise DataError(
                f"--site {text}: not SITE=FILE.", hint=f"For example: --site {names[0]}=rows.csv."
            )
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            raise DataError(
                f"--site {text}: the study has no site {name!r}.",
                hint=f"Did you mean {near[0]!r}?" if near else f"Its sites are {', '.join(names)}.",
                code="unknown-site",
            )
        if name in files:
            raise DataError(
                f"--site {text}: site {name!r} is given twice.",
                hint="Give one file, folder or pattern a site.",
            )
        files[name] = file
    return files


def _check_files(study: Study, files: dict[str, str], *, read: ReadOptions) -> dict[str, str]:
    """What was found of each site's file; all errors are reported at once."""
    found, wrong = {}, []
    for name, file in files.items():
        try:
            found[name] = _fits(
                study,
                WantedColumns.of_study(study, WantedColumns(read=read)).open_like([file]),
            )
        except EigenveilError as error:
            wrong.append((name, error))
    if wrong:
        raise DataError(
            "; ".join(f"site {name!r}: {error.message.rstrip('.')}" for name, error in wrong) + ".",
            hint=wrong[0][1].hint,
            code=wrong[0][1].code,
        )
    return found


def _fits(study: Study, rows: RowSource) -> str:
    if rows.features != study.width:
        raise DataError(
            f"its file has {rows.features} columns and the study {study.width}",
            hint="Name the wanted columns in the study (columns), or correct the file.",
            code="other-features",
        )
    named = study.columns is not None and rows.names is not None
    by = "by name" if named else "by number"
    return f"all {study.width} columns are there ({by})"


def _choice(study: Study) -> Choice | None:
    """Which protocol 'auto' is, and why; ``None`` where the study names one."""
    return choose_protocol(study, study.width) if study.protocol == "auto" else None


def _forecasts(
    study: Study, rows: int | None, spectrum: str, fits: int | None, *, simulated: bool
) -> list[Forecast]:
    """All protocols' forecasts, and that of all rows in one place where it can be simulated."""
    found = [pooled(study, study.width, rows, spectrum, fits=fits)] if simulated else []
    for protocol in options_of(study.task, "sites")["protocol"].choices:
        if protocol == "auto":
            continue
        try:
            there = study.with_protocol(protocol)
            found.append(forecast(there, study.width, rows, spectrum, fits=fits))
        except PrivacyError as error:
            found.append(Forecast(protocol, None, Trials(), error.message.rstrip("."), 0, 0, 0))
    return found
