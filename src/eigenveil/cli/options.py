"""Options that several commands share, and reading them."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from eigenveil.app.ledger_place import VARIABLE, usual_ledger
from eigenveil.cli.presenters.screen import notify
from eigenveil.errors import DataError, EigenveilError, LedgerWarning, listed
from eigenveil.files import Place
from eigenveil.io import (
    Dialect,
    FileRows,
    ReadOptions,
    WorkerFiles,
    on_workers,
    open_rows,
    read_vocabulary,
)
from eigenveil.io.formats.registry import USUAL
from eigenveil.models.options import (
    OPTIONS,
    Choice,
    Flag,
    Number,
    Option,
    Shares,
    Text,
    Vector,
    Whole,
)
from eigenveil.models.options import (
    Columns as ColumnsDomain,
)
from eigenveil.models.options import (
    Path as DataPath,
)
from eigenveil.models.task import TASKS, Task
from eigenveil.moments.documents.documents import FEWEST_WORDS, MOST_WORDS
from eigenveil.planning.quality import SOUGHT, Sought, check_quality
from eigenveil.tables.schema import Schema, read_schema

if TYPE_CHECKING:
    from eigenveil.federation.study.study import Study


class WrongOption(EigenveilError):
    """An option that cannot be what it is, or that has no meaning beside another one."""

    exit_status = 2


TaskName = Annotated[str, typer.Option("--task", help=f"What is computed: {', '.join(TASKS)}.")]
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


LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        help="The ledger that the fit is charged to: a file or a database's URL; by default one of "
        f"this user, or what {VARIABLE} names.",
    ),
]
_NO_LEDGER = (
    "no ledger: this fit is charged nowhere. What several fits of the same rows cost together is "
    "not counted, and no budget stops them; the certificate says so."
)
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


@dataclass
class LedgerChoice:
    """The values of ``--ledger``, ``--data-set`` and ``--no-ledger``.

    ``given`` is whether one of the first two was, ``charged`` whether the third was not; ``place``
    is ``None`` for the usual one.
    """

    place: str | None
    data_set: str | None
    given: bool
    charged: bool

    @contextmanager
    def open(self, *, quiet: bool) -> Iterator[dict[str, Any]]:
        """The parameters of the estimator that fits in the block.

        The usual ledger's folder is made; what is still open at the block's end is ended. Unless
        ``quiet``, the ledger says what it does, or what no ledger means is said.
        """
        with warnings.catch_warnings():
            if quiet:
                warnings.simplefilter("ignore", LedgerWarning)
            if not self.charged:
                if not quiet:
                    notify(_NO_LEDGER)
                yield {}
                return
            # imported here: the ledger's database library takes a moment to load
            from eigenveil.federation.ledger.ledger import Ledger

            if self.place is None:
                self.place = usual_ledger(make_folder=True)
            with Ledger(self.place) as ledger:
                yield {"ledger": ledger, "data_set": self.data_set}

    def notify_left(self, model: Any) -> None:
        """Print, for the owner, what is left of the accounts that a fit was charged to."""
        if self.place is None:
            return
        from eigenveil.federation.ledger.ledger import Ledger
        from eigenveil.federation.ledger.placing import budget_left_text

        ledger = Ledger(self.place)
        mine = [each for each in ledger.sessions() if each.terms.note.endswith(model.plan_.hash)]
        names = {each.terms.data_set for each in mine if each.key.study == mine[-1].key.study}
        for standing in ledger.standings():
            if standing.budget.data_set in names:
                budget = standing.budget
                notify(
                    f"ledger: {budget.data_set}: of epsilon = {budget.epsilon:g} at delta = "
                    f"{budget.delta:g}, {budget_left_text(standing)}"
                )


def read_ledger(ledger: str | None, data_set: str | None, *, no_ledger: bool) -> LedgerChoice:
    """What was said of the ledger, checked."""
    if no_ledger and (ledger is not None or data_set is not None):
        raise WrongOption(
            "--no-ledger leaves nothing to charge, and --ledger or --data-set names something.",
            hint="Leave one of them out.",
        )
    for name, value in (("ledger", ledger), ("data_set", data_set)):
        if value is not None:
            check_value(next(one for one in OPTIONS if one.name == name), value)
    return LedgerChoice(
        ledger, data_set, given=ledger is not None or data_set is not None, charged=not no_ledger
    )


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


def read_task(text: str) -> Task:
    """A task by its name."""
    if text not in TASKS:
        raise WrongOption(
            f"--task {text!r} is not one of {', '.join(TASKS)}.", hint="Choose one of these."
        )
    return TASKS[text]


def check_document_words(words: int) -> int:
    """The length of documents, if there can be such."""
    if not FEWEST_WORDS <= words <= MOST_WORDS:
        raise DataError(
            f"document-words = {words} is not from {FEWEST_WORDS} to {MOST_WORDS}.",
            hint="Give the number of words of a typical document.",
        )
    return words


def check_distance(distance: float) -> float:
    """A distance of components, if there can be such."""
    if not 0.0 < distance < math.inf:
        raise DataError(
            f"distance = {distance:g} is not above 0 and finite.",
            hint="Give it in standard deviations of a feature within a component, such as 3.",
        )
    return distance


def read_find(context: typer.Context, quality: float | None, named: str | None) -> Sought | None:
    """What is to be found by ``--quality`` and ``--find``; ``None`` where nothing is."""
    chosen = given(context)
    if quality is None:
        if named is not None:
            raise WrongOption(
                "--find is of --quality, and none is given.",
                hint="Give --quality, such as 0.95, or leave --find out.",
            )
        return None
    check_quality(quality)
    sought: Sought | None = next((one for one in SOUGHT if one == (named or SOUGHT[0])), None)
    if sought is None:
        raise WrongOption(
            f"--find {named!r} is not one of {', '.join(SOUGHT)}.", hint="Choose one of these."
        )
    if sought in chosen:
        other = next(one for one in SOUGHT if one != sought)
        raise WrongOption(
            f"--{sought} is given, and --quality finds it.",
            hint=f"Leave it out, or use --find {other}.",
        )
    if context.params.get("mechanism") == "all" and "mechanism" in chosen:
        raise WrongOption(
            "--quality answers for one mechanism, and --mechanism is 'all'.",
            hint="Name one, or leave it out for the one that a fit would use.",
        )
    return sought


def read_number(text: str) -> str | float:
    """A choice, or a number."""
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


def read_center(text: str) -> bool | NDArray[np.float64]:
    """``private``, ``none``, or a .npy file with a public centre."""
    if text in ("private", "none"):
        return text == "private"
    try:
        return np.asarray(np.load(text, allow_pickle=False), dtype=np.float64)
    except (OSError, ValueError) as error:
        raise DataError(
            f"center = {text!r} is neither 'private', 'none' nor a readable .npy file ({error}).",
            hint="Give one of these.",
        ) from None


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
            raise DataError(
                f"budget-split: {part!r} is not step=share.",
                hint="For example: scale=0.02,center=0.08,moment=0.88,variance=0.02.",
            ) from None
    return fractions


# Options that are spelled otherwise on a command line: by their name, and a letter.
_SPELLED = {"n_components": ("components", "-k"), "random_state": ("seed",)}
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


def declared(*paths: DataPath, without: Sequence[str] = ()) -> Callable[[Any], Any]:
    """Give a command the options that tasks declare, those of some paths.

    The function takes ``context``, and as ``option_values`` a dict of the values on the command
    line, by declared names. Options among its own parameters are passed to it as these.
    """
    declarations: dict[str, list[Option]] = {}
    for each in OPTIONS:
        if set(paths) & set(each.paths) and each.name not in (*_NOT_HERE, *without):
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
            names = (f"--{spelled.replace('_', '-')}", *_SPELLED.get(name, ("",))[1:])
            if kind is bool:
                names = (f"{names[0]}/--no-{names[0][2:]}",)
            hint = typer.Option(*names, help=_help(found, paths))
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

        return _in_place_of(function, command, [*own, *added])

    return decorated


def _in_place_of(
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
        chosen = {name: values.pop(name) for name in _OF_TEXT}
        dialect = Dialect(**chosen | {"na": chosen["na"] or ()})
        others = {name: values.pop(name) for name in _OF_FORMATS}
        return function(**values, read=ReadOptions(dialect=dialect, **others))

    return _in_place_of(function, command, [*own, *added])


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
    if Shares in kinds:
        return str | None, None, read_split
    if Vector in kinds and Flag in kinds:
        return str, "private", read_center
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


def _help(found: Sequence[Option], paths: Sequence[DataPath]) -> str:
    """Help of an option: of each declaration, saying of which tasks where it is not of all."""
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
    """The help of a command's parameter that is a declared option of one table."""
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
    """Names with commas between."""
    return None if text is None else [name.strip() for name in text.split(",")]


def bytes_text(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    import json

    typer.echo(json.dumps(value, indent=2))


# -- Which columns of files a command uses, and under which names.


@dataclass(frozen=True)
class WantedColumns:
    """The values of ``--columns``, ``--exclude``, ``--vocabulary``, ``--schema``, and of text.

    ``names`` are all columns' names, also of files without any; ``read`` is how files are read;
    ``unit`` is the column with each row's unit; ``dask`` is the scheduler of the cluster that reads
    the files.
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    names: Sequence[str] | None = None
    read: ReadOptions = USUAL
    schema: Schema | None = None
    unit: str | None = None
    dask: str | None = None

    @classmethod
    def of_study(cls, study: Study, own: WantedColumns) -> WantedColumns:
        """What a study reads of a site's files, whose owner may have a schema of its own."""
        if own.schema is not None and study.table_schema is not None:
            study.table_schema.check_same(own.schema, "--schema")
        elif own.schema is not None:
            raise DataError(
                "--schema is given, and the study has no schema.",
                hint="Leave it out, or let the study's lead write the study with --schema.",
                code="other-schema",
            )
        if study.columns is None:
            return replace(own, schema=None, unit=study.unit)
        if study.table_schema is not None:
            return cls(schema=study.table_schema, read=own.read, dask=own.dask)
        return cls(list(study.columns), read=own.read, unit=study.unit, dask=own.dask)

    def with_unit(self, unit: str | None) -> WantedColumns:
        """The same, with the unit that an option names."""
        if self.schema is None:
            return replace(self, unit=unit)
        if unit not in (None, self.schema.unit):
            raise WrongOption(
                f"--unit {unit}: the schema gives role 'unit' to "
                f"{'no column' if self.schema.unit is None else repr(self.schema.unit)}.",
                hint="Give the column role = 'unit' in the schema, and leave --unit out.",
            )
        return self

    def open(self, files: Sequence[str | Place]) -> FileRows:
        """The rows of files with these columns."""
        return open_rows(
            files,
            columns=self.columns,
            exclude=self.exclude,
            names=self.names,
            read=self.read,
            schema=self.schema,
            unit=self.unit,
        )

    def open_like(self, files: Sequence[str | Place]) -> FileRows:
        """The same; files without names have the columns in this order."""
        if self.names is None and self.columns is not None:
            try:
                return self.open(files)
            except DataError as error:
                if error.code != "no-names":
                    raise
            return open_rows(files, read=self.read)
        return self.open(files)

    def rows(self, files: Sequence[str | Place]) -> FileRows | WorkerFiles:
        """The rows of files with these columns, where they are to be read."""
        return self._where(self.open(files))

    def rows_like(self, files: Sequence[str | Place]) -> FileRows | WorkerFiles:
        """The same; files without names have the columns in this order."""
        return self._where(self.open_like(files))

    def _where(self, opened: FileRows) -> FileRows | WorkerFiles:
        return opened if self.dask is None else on_workers(opened, self.dask, read=self.read)


def read_columns(
    columns: str | None,
    exclude: str | None,
    vocabulary: Path | None,
    schema: Path | None = None,
    *,
    read: ReadOptions,
    dask: str | None = None,
) -> WantedColumns:
    """The values as they are typed."""
    if schema is not None:
        if columns is not None or exclude is not None or vocabulary is not None:
            raise WrongOption(
                "--schema and --columns, --exclude or --vocabulary all say which columns.",
                hint="Give roles in the schema: feature, ignore.",
            )
        return WantedColumns(schema=read_schema(schema), read=read, dask=dask)
    if vocabulary is None:
        return WantedColumns(read_names(columns), read_names(exclude) or (), read=read, dask=dask)
    if columns is not None or exclude is not None:
        raise WrongOption(
            "--vocabulary and --columns or --exclude both say which columns.",
            hint="Give the wanted words as the vocabulary.",
        )
    return WantedColumns(names=read_vocabulary(vocabulary), read=read, dask=dask)
