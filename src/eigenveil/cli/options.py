"""Options that several commands share, and reading them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from eigenveil.errors import DataError, EigenveilError
from eigenveil.estimators.tasks import TASKS, Task
from eigenveil.moments.documents import FEWEST_WORDS, MOST_WORDS

AUTO = "auto"


class WrongOption(EigenveilError):
    """An option that cannot be what it is, or that has no meaning beside another one."""

    exit_status = 2


def _read_components(text: str) -> int | str:
    """A number, or ``auto``."""
    try:
        return AUTO if text == AUTO else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a whole number nor 'auto'.") from None


Epsilon = Annotated[float, typer.Option(help="Privacy wish, above 0.")]
Delta = Annotated[float, typer.Option(help="Privacy wish, in [0, 1); 0 asks for pure epsilon.")]
TaskName = Annotated[
    str, typer.Option("--task", help="What is computed: pca, gaussian-mixture or topic-model.")
]
Components = Annotated[
    Any,
    typer.Option(
        "--components",
        "-k",
        parser=_read_components,
        metavar="NUMBER|auto",
        help="Number of components, or auto: those above the noise. By default 2, or auto but for "
        "pca.",
    ),
]
Mechanism = Annotated[
    str,
    typer.Option(
        help="auto, gaussian, wishart, vector, bingham, power or sketch; of mixtures and topics "
        "auto, gaussian or vector."
    ),
]
Adjacency = Annotated[
    str,
    typer.Option(help="add-remove (one row more or less) or replace-one (the row count public)."),
]
RowNorm = Annotated[
    str,
    typer.Option(help="unit, auto, a public number, or max (reproductions only)."),
]
RowBound = Annotated[
    float | None,
    typer.Option(help="A public bound on the norm of rows; skips releasing their norms."),
]
_OF_MIXTURES = "Of gaussian-mixture: "
_OF_TENSORS = "Of gaussian-mixture and topic-model: "
NoiseVariance = Annotated[
    float | None,
    typer.Option(
        help=_OF_MIXTURES + "public variance of every feature within a component; found by default."
    ),
]
Pair = Annotated[
    str,
    typer.Option(
        help=_OF_TENSORS + "the second moment is released full (D x D), as a sketch, or auto."
    ),
]
ClipDocuments = Annotated[
    bool,
    typer.Option(
        help="Of topic-model: clip what a document contributes at a released norm: less noise."
    ),
]
DocumentWords = Annotated[
    int, typer.Option(help="Of topic-model: words of a typical document, for the prediction.")
]
Vocabulary = Annotated[
    Path | None,
    typer.Option(help="Of topic-model: a file with the words, one a line, for columns by number."),
]
SketchSize = Annotated[
    int | None, typer.Option(help="Columns of the sketch; 4 times the components by default.")
]
Split = Annotated[
    str | None,
    typer.Option(
        "--budget-split",
        help="Shares, such as scale=0.02,centre=0.08,moment=0.88,variance=0.02; in place of "
        "variance the others have tensor, and topics have moment and tensor only.",
    ),
]
Invalid = Annotated[
    str,
    typer.Option(
        help="What a row that is not valid becomes (an entry that is no finite number; a document "
        "of fewer than 3 words): zero, a zero row, or error, none is used and nothing is released."
    ),
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
Header = Annotated[
    bool,
    typer.Option(
        "--header/--no-header",
        help="Text begins with a line of names; if not, its columns are named c1, c2, ...",
    ),
]


def given(context: typer.Context) -> frozenset[str]:
    """Names of the parameters that were said on the command line."""
    return frozenset(
        name
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None
        and source.name == "COMMANDLINE"
    )


def option_text(name: str) -> str:
    """A parameter as it is typed."""
    return "--" + name.replace("_", "-")


def read_task(text: str) -> Task:
    """A task by its name.

    Raises
    ------
    WrongOption
        When there is none of this name.
    """
    for task in TASKS:
        if text == task:
            return task
    raise WrongOption(
        f"--task {text!r} is not one of {', '.join(TASKS)}.", hint="Choose one of these."
    )


def check_document_words(words: int) -> int:
    """The length of documents, if there can be such.

    Raises
    ------
    DataError
        When documents of this length cannot be fitted to.
    """
    if not FEWEST_WORDS <= words <= MOST_WORDS:
        raise DataError(
            f"document-words = {words} is not from {FEWEST_WORDS} to {MOST_WORDS}.",
            hint="Give the number of words of a typical document.",
        )
    return words


def read_row_norm(text: str) -> str | float:
    """A choice, or a public number."""
    try:
        return float(text)
    except ValueError:
        return text


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


def read_split(text: str | None) -> dict[str, float] | None:
    """Shares from ``step=share,...``."""
    if text is None:
        return None
    shares = {}
    for part in text.split(","):
        step, equals, share = part.partition("=")
        try:
            if not equals:
                raise ValueError(part)
            shares[step.strip()] = float(share)
        except ValueError:
            raise DataError(
                f"budget-split: {part!r} is not step=share.",
                hint="For example: scale=0.02,centre=0.08,moment=0.88,variance=0.02.",
            ) from None
    return shares


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
