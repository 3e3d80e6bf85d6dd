"""``eigenveil watch``: track the leading directions of rows as they come."""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.status import Status

from eigenveil import app
from eigenveil.cli import declared, options
from eigenveil.cli.options import WrongOption
from eigenveil.cli.presenters.screen import (
    Screen,
    listening,
    notify,
    plain_values,
    say,
)
from eigenveil.models.options import OPTIONS

# Options of streams that rows of a text have no use for.
_NOT_OF_TEXT = ("stream.center", "unit", "max_rows_per_unit", "scale", "block_size")


def _blocks(
    *,
    block_size: Annotated[
        int, typer.Option("--block-size", "-b", min=1, help="Number of rows in a block.")
    ] = 100,
    every: Annotated[
        int, typer.Option(min=1, help="Number of blocks between two printed lines.")
    ] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Stop after this number of rows.")
    ] = None,
) -> dict[str, Any]:
    return {"block": block_size, "every": every, "limit": limit}


@declared.declared(
    "stream", "tracking", without=_NOT_OF_TEXT, unset=("epsilon", "publish", "adjacency")
)
@options.takes(
    columns=options.named_columns,
    account=options.account,
    whose=options.whose_rows,
    blocks=_blocks,
)
def watch(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            help="A .csv or .tsv file; - is standard input: tail -F FILE | eigenveil watch -"
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the components at the end: .csv, .parquet, .feather or .npy; "
            "with --epsilon also .npz (the model) or a folder, as 'eigenveil fit' writes it."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace what was written before.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    quiet: options.Quiet = False,
    *,
    option_values: dict[str, Any],
    columns: Any,
    account: Any,
    whose: dict[str, bool],
    blocks: dict[str, Any],
) -> None:
    """Track the leading directions of rows as they come, and print how they drift.

    A line a block: rows until now, rank, the share of the rows' energy that the components capture,
    and the sine of the largest angle to the subspace of the line before and of the first block.
    Ctrl-C ends it in good order. Without --epsilon what it prints and writes is as private as the
    rows; with it, a stream is published once at its end, with --horizon after every block of so
    many, or with --forgetting after every block without end.
    """
    _check_together(context, private="epsilon" in option_values)
    asked = app.watch.Watch(
        None if file == "-" else Path(file),
        option_values,
        columns,
        account,
        **blocks,
        out=out,
        overwrite=overwrite,
    )
    if asked.private:
        columns.whose_rows(None, **whose)
    stop = app.watch.Stop()
    with stop.listening(), _shown(stop, json=json, quiet=quiet) as tell:
        found = app.watch.watch(asked, tell, stop)
    if json and not quiet:
        _print_line(found, stop)
    elif not quiet:
        Screen().show(found.parts())
    if found.problem is not None:
        raise found.problem


def _check_together(context: typer.Context, *, private: bool) -> None:
    """Raise where an option has no meaning beside another one."""
    paths = {path: {o.name for o in OPTIONS if path in o.paths} for path in ("stream", "tracking")}
    own, other = paths["stream"] | {"no_ledger"}, paths["tracking"]
    wrong = other - own | {"center"} if private else own - other
    for name in wrong - {"block_size"}:
        if declared.option_name(name) in options.given(context):
            raise WrongOption(
                "tracking-and-privacy",
                option=options.option_text(name),
                kind="without" if private else "with",
            )


@contextmanager
def _shown(stop: Any, *, json: bool, quiet: bool) -> Iterator[Callable[[Any], None]]:
    """Show events: lines, JSON, on a terminal one line that changes, or nothing."""
    status: Status | None = None
    with listening(quiet=quiet or json) as others:

        def tell(event: Any) -> None:
            unpublished = isinstance(event, app.watch.Unpublished)
            if not unpublished and not isinstance(event, app.watch.TrackedSubspace):
                others(event)
            elif quiet or (unpublished and json):
                return
            elif status is not None:
                status.update(app.watch.moment_text(event.moment if unpublished else event))
            elif unpublished:  # not of the result: for the owner of the rows, as progress is
                notify(app.watch.moment_text(event.moment))
            elif json:
                _print_line(event, stop)
            else:
                _print(app.watch.moment_text(event), stop)

        if json or quiet or not sys.stdout.isatty():
            yield tell
            return
        with Screen().status("waiting for rows") as status:
            yield tell


def _print_line(value: object, stop: Any) -> None:
    _print(json_format.dumps(plain_values(value)), stop)


def _print(text: str, stop: Any) -> None:
    try:
        say(text, most=None)
    except BrokenPipeError:  # such as after "| head": as good as Ctrl-C
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        stop.requested = True
