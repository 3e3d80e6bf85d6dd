"""Options of commands: those that tasks declare, those that several commands share, their values.

Read for every help: nothing here loads a numerical library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from eigenveil import app
from eigenveil.app.ledger_place import VARIABLE
from eigenveil.cli.presenters.screen import print_json as print_json
from eigenveil.errors import DataError, listed
from eigenveil.errors import WrongOption as WrongOption
from eigenveil.models.options import (
    OPTIONS,
    Choice,
    Flag,
    Number,
    Option,
    Pair,
    Shares,
    Text,
    Vector,
    Whole,
    options_of,
    tasks_with,
)
from eigenveil.models.options import (
    Columns as ColumnsDomain,
)
from eigenveil.models.options import (
    Path as DataPath,
)
from eigenveil.models.task import TASKS, Task

TaskName = Annotated[str, typer.Option("--task", help=f"What is computed: {', '.join(TASKS)}.")]
OneRow = Annotated[
    bool,
    typer.Option(
        "--one-row-per-person",
        help="Nobody has more than one row: in place of --unit, or of a schema with one.",
    ),
]
DocumentWords = Annotated[
    int,
    typer.Option(help="Of topic-model: number of words of a typical document, for the prediction."),
]
Distance = Annotated[
    float,
    typer.Option(
        help="Of gaussian-mixture: distance of a component's mean from that of all rows, in "
        "standard deviations of a feature within a component, for the prediction."
    ),
]
TopicWords = Annotated[
    int,
    typer.Option(
        help="Of topic-model: over how many words a topic is spread evenly, for the prediction."
    ),
]
Fits = Annotated[
    int | None, typer.Option(help="Number of simulated fits; by default 5 to 20, by their size.")
]
Quality = Annotated[
    float | None,
    typer.Option(
        help="Find what it takes to reach this quality, above 0 and below 1: the captured energy; "
        "of other tasks the accuracy that the plan predicts."
    ),
]
Find = Annotated[
    str | None,
    typer.Option(help="With --quality: 'epsilon' (the default), or 'rows' at the given epsilon."),
]
Vocabulary = Annotated[
    Path | None,
    typer.Option(help="Of topic-model: a file with the words, one a line, for columns by number."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
ResultFolder = Annotated[Path, typer.Argument(help="A folder that 'eigenveil fit' wrote.")]
Columns = Annotated[
    str | None, typer.Option(help="Names of the columns to use, in order, with commas between.")
]
Exclude = Annotated[
    str | None, typer.Option(help="Names of columns to leave out, with commas between.")
]
DaskScheduler = Annotated[
    str | None,
    typer.Option(
        "--dask",
        help="Scheduler of a Dask cluster whose workers read the files, each where it is, such as "
        "tcp://host:8786.",
    ),
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
SITE_HELP = (
    "NAME=FILE of a site that keeps its rows; repeat for each file. With --sql also NAME=URL of "
    "its database."
)
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="The ledger that the fit is charged to: a file or a database's URL; by default one of "
        f"this user, or what {VARIABLE} names.",
    ),
]
DataSetOption = Annotated[
    str | None,
    typer.Option(
        "--data-set",
        help="What the rows are called in the ledger; by default the account that their files have "
        "there, or a new one, called by the first file's path.",
    ),
]
NoLedger = Annotated[
    bool,
    typer.Option(
        "--no-ledger",
        help="Charge the fit nowhere: nothing counts what fits of the same rows cost together, as "
        "the certificate then says.",
    ),
]


def read_account(ledger: str | None, data_set: str | None, *, no_ledger: bool) -> Any:
    """What was said of the ledger, checked: an ``app.fit.Account``."""
    if no_ledger and (ledger is not None or data_set is not None):
        raise WrongOption("no-ledger-and-ledger")
    for name, value in (("ledger", ledger), ("data_set", data_set)):
        if value is not None:
            check_value(next(one for one in OPTIONS if one.name == name), value)
    return app.fit.Account(ledger, data_set, charged=not no_ledger)


def given(context: typer.Context) -> frozenset[str]:
    """Names of the parameters that were given on the command line, or by the environment."""
    return frozenset(
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None
        and source.name in ("COMMANDLINE", "ENVIRONMENT")
    )


def check_whose_rows(context: typer.Context, columns: Any, unit: str | None, *, said: bool) -> None:
    """Require the answer to whose each row is; that of the environment gives way to a unit."""
    columns.whose_rows(unit, **whose_row_said(context, said=said))


def whose_row_said(context: typer.Context, *, said: bool) -> dict[str, bool]:
    """Whether it was typed that nobody has two rows, or the environment says so."""
    source = context.get_parameter_source("one_row_per_person")
    typed = source is not None and source.name == "COMMANDLINE"
    return {"one": said and typed, "usual": said and not typed}


def option_text(name: str) -> str:
    """A parameter as it is typed."""
    return "--" + name.replace("_", "-")


def read_task(text: str) -> Task:
    if text not in TASKS:
        raise WrongOption("unknown-choice", option="--task", given=text, known=", ".join(TASKS))
    return TASKS[text]


def read_find(context: typer.Context, quality: float | None, named: str | None) -> Any:
    """What is to be found by ``--quality`` and ``--find``; ``None`` where nothing is."""
    chosen = given(context)
    if quality is None:
        if named is not None:
            raise WrongOption("find-without-quality")
        return None
    sought = app.forecasts.sought_of(quality, named)
    if sought in chosen:
        other = "rows" if sought == "epsilon" else "epsilon"
        raise WrongOption("sought-and-given", option=sought, other=other)
    if context.params.get("mechanism") == "all" and "mechanism" in chosen:
        raise WrongOption("quality-of-all-mechanisms")
    return sought


def read_number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _read_count(text: str) -> str | int | float:
    """A choice, a whole number, or a share."""
    try:
        return int(text)
    except ValueError:
        return read_number(text)


def read_split(text: str) -> dict[str, float]:
    """Shares from ``step=share,...``."""
    fractions = {}
    for part in text.split(","):
        step, equals, fraction = part.partition("=")
        try:
            if not equals:
                raise ValueError(part)
            fractions[step.strip()] = float(fraction)
        except ValueError:
            raise DataError("bad-share-of-step", part=part) from None
    return fractions


# Options that are spelled otherwise on a command line: by their name, and a letter.
_SPELLED = {
    "n_components": ("components", "-k"),
    "random_state": ("seed",),
}
# Those that commands have of their own, or none has: what is only one, name:epsilon of sites, and
# what a schema says of each column.
_NOT_HERE = ("noise", "site_epsilon", "ledger", "data_set", "ranges")


def option_name(name: str) -> str:
    """An option's parameter of a command, by its declared name."""
    return _SPELLED.get(name, (name,))[0]


def typed_words(values: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Values of declared options as they are typed: each an option, and its text if it has one.

    A public centre is a file.
    """
    for name, value in values.items():
        option = option_text(option_name(name))
        if name == "center":
            yield (
                option,
                ("private" if value else "none") if isinstance(value, bool) else ("CENTER.npy"),
            )
        elif isinstance(value, bool):
            yield (option if value else f"--no-{option[2:]}",)
        elif isinstance(value, Mapping):
            yield option, ",".join(f"{step}={_exact(share)}" for step, share in value.items())
        elif isinstance(value, tuple):
            yield option, ",".join(map(str, value))
        else:
            yield option, _exact(value) if isinstance(value, float) else str(value)


def _exact(number: float) -> str:
    """The shortest text of a number that is read as the same one."""
    text = f"{number:g}"
    return text if float(text) == number else repr(number)


def as_typed(values: Mapping[str, Any]) -> str:
    """Values of declared options as a command line that gives them."""
    return " ".join(word for words in typed_words(values) for word in words)


def declared(
    *paths: DataPath,
    only: Sequence[str] | None = None,
    without: Sequence[str] = (),
    unset: Sequence[str] = (),
) -> Callable[[Any], Any]:
    """Give a command the options that tasks declare, those of some paths.

    The function takes ``context``, and as ``option_values`` a dict of the values on the command
    line, by declared names. Options among its own parameters are passed to it as these. ``without``
    leaves some out, also ``path.name``; those ``unset`` have no default.
    """
    declarations: dict[str, list[Option]] = {}
    for each in OPTIONS:
        known = {each.name} | {f"{path}.{each.name}" for path in each.paths}
        wanted = only is None or each.name in only
        if wanted and set(paths) & set(each.paths) and not known & {*_NOT_HERE, *without}:
            declarations.setdefault(each.name, []).append(each)

    def decorated(function: Any) -> Any:
        signature = inspect.signature(function, eval_str=True)
        own = [each for name, each in signature.parameters.items() if name != "option_values"]
        taken = {each.name for each in own}
        added, readers = [], {}
        for name, found in declarations.items():
            if (spelled := option_name(name)) in taken:
                continue
            kind, default, reader = kind_of(found)
            if name in unset:
                kind, default = kind | None, None
            names = (f"--{spelled.replace('_', '-')}", *_SPELLED.get(name, ("",))[1:])
            if kind is bool:
                names = (f"{names[0]}/--no-{names[0][2:]}",)
            metavar = "ALPHA BETA" if kind == tuple[float, float] | None else None
            hint = typer.Option(*names, help=_help(found, paths), metavar=metavar)
            added.append(
                inspect.Parameter(
                    spelled,
                    inspect.Parameter.KEYWORD_ONLY,
                    annotation=Annotated[kind, hint],
                    default=default,
                )
            )
            readers[name] = reader

        def command(**values: Any) -> Any:
            chosen = given(values["context"])
            option_values = {}
            for name, reader in readers.items():
                value = values.pop(option_name(name))
                if option_name(name) in chosen:
                    option_values[name] = reader(value)
            return function(**values, option_values=option_values)

        return in_place_of(function, command, [*own, *added])

    return decorated


def in_place_of(
    function: Any, command: Callable[..., Any], parameters: Sequence[inspect.Parameter]
) -> Any:
    """A command under a function's name and help, whose options are these parameters."""
    plain = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    made: Any = command
    made.__signature__ = inspect.signature(function, eval_str=True).replace(parameters=plain)
    made.__annotations__ = {each.name: each.annotation for each in plain}
    made.__name__, made.__doc__ = function.__name__, function.__doc__
    return made


_OF_TEXT: Mapping[str, tuple[Any, Any]] = {
    "header": (
        Annotated[
            bool,
            typer.Option(
                "--header/--no-header",
                help="Text files begin with a line of column names; without it, columns are named "
                "c1, c2, ...",
            ),
        ],
        True,
    ),
    "separator": (
        Annotated[
            str | None,
            typer.Option(
                help="Of text files: the character between cells, or tab, comma, semicolon, pipe; "
                "by default what the line of names has."
            ),
        ],
        None,
    ),
    "decimal": (
        Annotated[
            str | None,
            typer.Option(
                help="Of text files: '.' or ','; by default either, where no comma is between "
                "cells."
            ),
        ],
        None,
    ),
    "encoding": (
        Annotated[
            str | None,
            typer.Option(help="Of text files: such as utf-8, utf-16, latin-1; guessed by default."),
        ],
        None,
    ),
    "na": (
        Annotated[
            list[str] | None,
            typer.Option(
                help="Of text files: a word or number that stands for a missing value, beside "
                "cells that are no numbers; repeat."
            ),
        ],
        None,
    ),
    "comment": (
        Annotated[
            str | None,
            typer.Option(
                help="Of text files: what lines begin with that are no rows; by default #, before "
                "the names only."
            ),
        ],
        None,
    ),
    "newlines_in_cells": (
        Annotated[
            bool,
            typer.Option(
                "--newlines-in-cells",
                help="Of text files: quoted cells go on over the ends of lines; by default they "
                "end with their line. The certificate then assumes that every quote is closed.",
            ),
        ],
        False,
    ),
}
"""How text files are written: the fields of a dialect, and their options."""
_OF_FORMATS: Mapping[str, tuple[Any, Any]] = {
    "layer": (
        Annotated[
            str | None,
            typer.Option(help="Of single cells: a layer in place of X; raw is adata.raw."),
        ],
        None,
    ),
    "mask": (
        Annotated[
            Path | None,
            typer.Option(
                help="Of images: a public NIfTI image or .npy array, not 0 where a voxel is a "
                "column."
            ),
        ],
        None,
    ),
    "variants": (
        Annotated[
            Path | None,
            typer.Option(
                help="Of genotypes: a public manifest of the variants that are the columns, as "
                "'eigenveil variants new' writes it; by its frequencies they are standardised."
            ),
        ],
        None,
    ),
}
"""How files of other formats are read: the other fields of ReadOptions, and their options."""
OF_READING = (*_OF_TEXT, *_OF_FORMATS)


def reads_files(function: Any) -> Any:
    """Give a command that reads files the options of how they are read; it takes ``read``."""
    signature = inspect.signature(function, eval_str=True)
    own = [each for name, each in signature.parameters.items() if name != "read"]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
        )
        for name, (annotation, default) in {**_OF_TEXT, **_OF_FORMATS}.items()
    ]

    def command(**values: Any) -> Any:
        text = {name: values.pop(name) for name in _OF_TEXT}
        others = {name: values.pop(name) for name in _OF_FORMATS}
        return function(**values, read=app.rows.read_options(text, **others))

    return in_place_of(function, command, [*own, *added])


def kind_of(found: Sequence[Option]) -> tuple[Any, Any, Callable[[Any], Any]]:
    """The type of an option on the command line, its default, and how its value is read."""
    kinds = {type(domain) for option in found for domain in option.values}
    default = found[0].default if len({repr(one.default) for one in found}) == 1 else None

    def same(value: Any) -> Any:
        return value

    if ColumnsDomain in kinds:
        return str | None, None, read_covariates
    if Text in kinds:
        return str | None, None, same
    if Pair in kinds:
        return tuple[float, float] | None, None, same
    if Shares in kinds:
        return str | None, None, read_split
    if Vector in kinds and Flag in kinds:
        return str, "private", lambda text: app.rows.read_center(text)
    if Flag in kinds:
        return bool, default, same
    if Choice in kinds:
        reader: Callable[[Any], Any] = same
        if Whole in kinds:
            reader = _read_count
        elif Number in kinds:
            reader = read_number
        return (str if default is not None else str | None), default, reader
    kind: Any = int if Whole in kinds else float
    return (kind if default is not None else kind | None), default, same


_STREAMS = {"stream", "tracking"}  # A stream is private where it has an epsilon


def _help(found: Sequence[Option], paths: Sequence[DataPath]) -> str:
    """Help of an option: of each declaration, saying of which tasks where it is not of all."""
    if set(paths) <= _STREAMS:
        of_stream, others = (
            [one.help for one in found if path in one.paths] for path in ("stream", "tracking")
        )
        if of_stream == others or len(paths) == 1:
            return (of_stream or others)[0]
        said = [("With --epsilon: ", of_stream), ("Without --epsilon: ", others)]
        return " ".join(f"{where}{text[0]}" for where, text in said if text)
    texts: dict[str, list[str]] = {}
    for option in found:
        kept = texts.setdefault(option.help, [])
        kept += [task for task in option.tasks if task not in kept]
    every = {task for tasks in texts.values() for task in tasks} == set(TASKS) and len(texts) == 1
    text = " ".join(
        text if every else f"Of {listed(tasks)}: {text}" for text, tasks in texts.items()
    )
    only_sites = len(paths) > 1 and all(option.paths == ("sites",) for option in found)
    where = "With --site: " if only_sites else ""
    center = {Flag, Vector} <= {type(domain) for domain in found[0].values}
    how = " Give private, none, or a .npy file with a public centre." if center else ""
    return f"{where}{text}{how}"


def option_help(name: str) -> Any:
    found = [one for one in OPTIONS if one.name == name and "table" in one.paths]
    return typer.Option(help=_help(found, ("table",)))


def check_value(option: Option, value: object) -> None:
    """Raise unless an option's value is allowed, naming it as it is typed."""
    replace(option, name=option_text(option_name(option.name))).check(value)


def read_covariates(text: str) -> tuple[str | int, ...]:
    """Names with commas between; numbers, where all of them are."""
    names = read_names(text) or []
    if all(name.isascii() and name.isdigit() for name in names):
        return tuple(int(name) for name in names)
    return tuple(names)


def read_names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


# -- What tasks have of options.


def estimator_options(
    task: Task, option_values: Mapping[str, Any], context: typer.Context, *, sites: bool
) -> dict[str, Any]:
    """What was given for a task's options, checked."""
    check_options(task, context)
    declared = options_of(task.name, "sites" if sites else "table")
    for name, value in option_values.items():
        if name in declared:
            check_value(declared[name], value)
            continue
        option = option_name(name)
        if not sites and task.has(name, "sites"):
            raise DataError("of-several-sites", option=option_text(option))
        # what sites need a protocol for, one data set does by other means
        if sites and task.has(name, "table"):
            raise DataError(
                "of-one-data-set",
                option=option_text(option),
                way_out="With --site choose a --protocol.",
            )
        raise _not_for(option, task, tasks_with(name, "table", "sites"))
    return dict(option_values)


def check_options(task: Task, context: typer.Context) -> None:
    """Raise where an option was given that only commands have, and not for the task."""
    for option in given(context):
        tasks = tuple(other.name for other in TASKS.values() if option in other.command_options)
        if tasks and option not in task.command_options:
            raise _not_for(option, task, tasks)


def _not_for(option: str, task: Task, tasks: tuple[str, ...]) -> WrongOption:
    return WrongOption(
        "option-of-other-task", option=option_text(option), task=task.name, tasks=listed(tasks)
    )
