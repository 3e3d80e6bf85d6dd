"""Options that several commands share: their types, and groups that a command takes over whole.

Read for every help: nothing here loads a numerical library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.app.ledger_place import VARIABLE
from eigenveil.cli.presenters.screen import print_json as print_json
from eigenveil.errors import WrongOption as WrongOption
from eigenveil.models.model_options import DEFAULT_SPECTRUM
from eigenveil.models.options import OPTIONS
from eigenveil.models.task import TASKS

TaskName = Annotated[str, typer.Option("--task", help=f"What is computed: {', '.join(TASKS)}.")]
Vocabulary = Annotated[
    Path | None,
    typer.Option(help="Of topic-model: a file with the words, one a line, for columns by number."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
ResultFolder = Annotated[Path, typer.Argument(help="A folder that 'eigenveil fit' wrote.")]
NewFolder = Annotated[Path, typer.Option(help="Folder to write; it must not exist.")]
OverResult = Annotated[bool, typer.Option(help="Replace an earlier result.")]
OverFile = Annotated[bool, typer.Option(help="Replace an earlier file.")]
Plots = Annotated[bool, typer.Option(help="Write figures.")]
Columns = Annotated[
    str | None, typer.Option(help="Names of the columns to use, in order, with commas between.")
]
Exclude = Annotated[
    str | None, typer.Option(help="Names of columns to leave out, with commas between.")
]
SchemaFile = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="What the columns are, as 'eigenveil schema new' writes it: instead of --columns and "
        "--exclude.",
    ),
]
Sql = Annotated[
    str | None,
    typer.Option(
        "--sql", help="A query whose answer has the rows; with a database's URL, or --from."
    ),
]
SitesSql = Annotated[
    str | None,
    typer.Option(
        "--sql",
        help="A query that each site's database answers with its rows: --site NAME=URL.",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="With --sql: the database, such as postgresql://host/name or sqlite:///file.db. Leave "
        "the password to the database's own files.",
    ),
]


def group(text: str | None = None) -> typer.Typer:
    """A group of commands; its help, where it has none of its own, is what the list of all says."""
    return typer.Typer(help=text, no_args_is_help=True, add_completion=False)


# -- Options that several commands share: functions whose parameters a command takes over.


def takes(**makers: Callable[..., Any]) -> Callable[[Any], Any]:
    """Give a command the parameters of functions; it takes what they return, by these names.

    A parameter that the command has itself is passed to both.
    """

    def decorated(function: Any) -> Any:
        every = inspect.signature(function, eval_str=True).parameters
        own = {name: each for name, each in every.items() if name not in makers}
        asked = {
            name: inspect.signature(maker, eval_str=True).parameters
            for name, maker in makers.items()
        }

        def command(**values: Any) -> Any:
            made = {
                name: makers[name](**{each: values[each] for each in parameters})
                for name, parameters in asked.items()
            }
            return function(**{name: values[name] for name in own}, **made)

        added = {name: each for parameters in asked.values() for name, each in parameters.items()}
        parameters = (own | added | own).values()
        plain = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        made: Any = command
        made.__signature__ = inspect.Signature(plain)
        made.__annotations__ = {each.name: each.annotation for each in plain}
        made.__name__, made.__doc__ = function.__name__, function.__doc__
        return made

    return decorated


def result_folder(
    *, out: NewFolder, overwrite: OverResult = False, plots: Plots = True
) -> dict[str, Any]:
    """Where a result is written, and what of it."""
    return {"out": out, "figures": plots, "overwrite": overwrite}


def _dialect(
    *,
    header: Annotated[
        bool,
        typer.Option(
            "--header/--no-header",
            help="Text files begin with a line of column names; without it, columns are named "
            "c1, c2, ...",
        ),
    ] = True,
    separator: Annotated[
        str | None,
        typer.Option(
            help="Of text files: the character between cells, or tab, comma, semicolon, pipe; "
            "by default what the line of names has."
        ),
    ] = None,
    decimal: Annotated[
        str | None,
        typer.Option(
            help="Of text files: '.' or ','; by default either, where no comma is between cells."
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(help="Of text files: such as utf-8, utf-16, latin-1; guessed by default."),
    ] = None,
    na: Annotated[
        list[str] | None,
        typer.Option(
            help="A word or number that stands for a missing value, beside cells that are no "
            "numbers; repeat. A schema keeps this, and how text is written, under [reading]."
        ),
    ] = None,
    comment: Annotated[
        str | None,
        typer.Option(
            help="Of text files: what lines begin with that are no rows; by default #, before "
            "the names only."
        ),
    ] = None,
    newlines_in_cells: Annotated[
        bool,
        typer.Option(
            "--newlines-in-cells",
            help="Of text files: quoted cells go on over the ends of lines; by default they "
            "end with their line. The certificate then assumes that every quote is closed.",
        ),
    ] = False,
) -> dict[str, Any]:
    return dict(locals())


@takes(dialect=_dialect)
def reading(
    *,
    layer: Annotated[
        str | None,
        typer.Option(help="Of single cells: a layer in place of X; raw is adata.raw."),
    ] = None,
    mask: Annotated[
        Path | None,
        typer.Option(
            help="Of images: a public NIfTI image or .npy array, not 0 where a voxel is a column."
        ),
    ] = None,
    regions: Annotated[
        bool,
        typer.Option(
            "--regions",
            help="Of images: the mask is a public atlas whose entries number regions, and a column "
            "is the mean over each.",
        ),
    ] = False,
    variants: Annotated[
        Path | None,
        typer.Option(
            help="Of genotypes: a public manifest of the variants that are the columns, as "
            "'eigenveil variants new' writes it; by its frequencies they are standardised."
        ),
    ] = None,
    sheet: Annotated[
        str | None, typer.Option(help="Of .xlsx files: the sheet's name; by default the first.")
    ] = None,
    dialect: dict[str, Any],
) -> Any:
    """How files are read: the fields of a dialect, and those of other formats."""
    return app.rows.read_options(
        layer=layer, mask=mask, regions=regions, variants=variants, sheet=sheet, **dialect
    )


OF_READING = tuple(inspect.signature(reading).parameters)
reads_files = takes(read=reading)


@takes(read=reading)
def named_columns(*, columns: Columns = None, exclude: Exclude = None, read: Any) -> Any:
    """The columns that are named on the line."""
    return app.rows.read_columns(read_names(columns), read_names(exclude), read=read)


@takes(read=reading)
def wanted_columns(
    *,
    vocabulary: Vocabulary = None,
    columns: Columns = None,
    exclude: Exclude = None,
    schema: SchemaFile = None,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask",
            help="Scheduler of a Dask cluster whose workers read the files, each where it is, such "
            "as tcp://host:8786.",
        ),
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(
            "--spark",
            help="Master of a Spark cluster whose executors read the files, each where it is, such "
            "as spark://host:7077, yarn or local[4].",
        ),
    ] = None,
    read: Any,
) -> Any:
    """The columns, however they are given, and how files are read."""
    names = read_names(columns), read_names(exclude)
    return app.rows.read_columns(*names, vocabulary, schema, read=read, dask=dask, spark=spark)


def account(
    *,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            help="The ledger that the fit is charged to: a file or a database's URL; by default "
            f"one of this user, or what {VARIABLE} names.",
        ),
    ] = None,
    data_set: Annotated[
        str | None,
        typer.Option(
            "--data-set",
            help="What the rows are called in the ledger; by default the account that their files "
            "have there, or a new one, called by the first file's path.",
        ),
    ] = None,
    no_ledger: Annotated[
        bool,
        typer.Option(
            "--no-ledger",
            help="Charge the fit nowhere: nothing counts what fits of the same rows cost together, "
            "as the certificate then says.",
        ),
    ] = False,
) -> Any:
    """What a fit is charged to, checked."""
    if no_ledger and (ledger is not None or data_set is not None):
        raise WrongOption("no-ledger-and-ledger")
    for name, value in (("ledger", ledger), ("data_set", data_set)):
        if value is not None:
            declared = next(one for one in OPTIONS if one.name == name)
            replace(declared, name=option_text(name)).check(value)
    return app.fit.Account(ledger, data_set, charged=not no_ledger)


def whose_rows(
    *,
    context: typer.Context,
    one_row_per_person: Annotated[
        bool,
        typer.Option(
            "--one-row-per-person",
            help="Nobody has more than one row: in place of --unit, or of a schema with one.",
        ),
    ] = False,
) -> dict[str, bool]:
    """Whether it was typed that nobody has two rows, or the environment says so."""
    source = context.get_parameter_source("one_row_per_person")
    typed = source is not None and source.name == "COMMANDLINE"
    return {"one": one_row_per_person and typed, "usual": one_row_per_person and not typed}


def expected(
    *,
    spectrum: Annotated[
        str,
        typer.Option(
            help="Expected eigenvalues: power:1.0, exponential:20, spike:5:0.8, or numbers."
        ),
    ] = DEFAULT_SPECTRUM,
    distance: Annotated[
        float,
        typer.Option(
            help="Of gaussian-mixture: distance of a component's mean from that of all rows, in "
            "standard deviations of a feature within a component, for the prediction."
        ),
    ] = 3.0,
    topic_words: Annotated[
        int,
        typer.Option(
            help="Of topic-model: over how many words a topic is spread evenly, for the prediction."
        ),
    ] = 20,
    document_words: Annotated[
        int,
        typer.Option(
            help="Of topic-model: number of words of a typical document, for the prediction."
        ),
    ] = 20,
    fits: Annotated[
        int | None,
        typer.Option(help="Number of simulated fits; by default 5 to 20, by their size."),
    ] = None,
) -> dict[str, Any]:
    """The data that are expected, and how many fits of such are simulated."""
    return dict(locals())


def sought(
    *,
    context: typer.Context,
    quality: Annotated[
        float | None,
        typer.Option(
            help="Find what it takes to reach this quality, above 0 and below 1: the captured "
            "energy; of other tasks the accuracy that the plan predicts."
        ),
    ] = None,
    find: Annotated[
        str | None,
        typer.Option(
            help="With --quality: 'epsilon' (the default), or 'rows' at the given epsilon."
        ),
    ] = None,
) -> Any:
    """A quality, and what is to be found that reaches it; ``None`` where nothing is."""
    if quality is None:
        if find is not None:
            raise WrongOption("find-without-quality")
        return None
    chosen, found = given(context), app.forecasts.sought_of(quality, find)
    if found in chosen:
        other = "rows" if found == "epsilon" else "epsilon"
        raise WrongOption("sought-and-given", option=found, other=other)
    if context.params.get("mechanism") == "all" and "mechanism" in chosen:
        raise WrongOption("quality-of-all-mechanisms")
    return quality, found


def given(context: typer.Context) -> frozenset[str]:
    """Names of the parameters that were given on the command line, or by the environment."""
    return frozenset(
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None
        and source.name in ("COMMANDLINE", "ENVIRONMENT")
    )


def option_text(name: str) -> str:
    """A parameter as it is typed."""
    return "--" + name.replace("_", "-")


def read_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]
