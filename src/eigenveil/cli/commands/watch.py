"""``eigenveil watch``: track the leading directions of rows as they come."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from eigenveil.app.events import telling
from eigenveil.app.results import check_free, check_place, new_folder, write_result
from eigenveil.cli import options
from eigenveil.cli.options import WrongOption
from eigenveil.cli.presenters.screen import listening
from eigenveil.cli.presenters.watch import Moment, Report, Tracking
from eigenveil.errors import DataError, OutputError
from eigenveil.io import ReadOptions
from eigenveil.io.follow import FollowedRows
from eigenveil.io.formats.registry import writers
from eigenveil.io.stopping import Stop
from eigenveil.io.write import write_columns
from eigenveil.models.streaming.tracker import StreamingPCA
from eigenveil.moments.rows import Block

_MODEL = ".npz"


class WatchOut:
    """A file or folder that can be written; checked before any row is read."""

    def __init__(self, path: Path, *, private: bool, overwrite: bool) -> None:
        self.path = path
        kind = path.suffix.lower()
        self._folder = private and not kind
        if self._folder:
            check_free(path, overwrite=overwrite)
            return
        tables = [ending for ending, each in writers().items() if not each.labels]
        known = (*tables, _MODEL) if private else tuple(tables)
        if kind not in known:
            raise OutputError(
                f"{path} is not of a format that can be written.",
                hint=f"Its name must end in one of {', '.join(known)}.",
                code="unknown-format",
            )
        check_place(path, overwrite=overwrite)

    def write(self, model: Any, names: Sequence[str] | None) -> None:
        """Write the whole result, the model, or a line of loadings a feature."""
        if self._folder:
            with new_folder(self.path) as folder:
                write_result(model, folder, figures=True)
        elif self.path.suffix.lower() == _MODEL:
            model.save(self.path)
        else:
            columns: list[tuple[str, Any]] = [
                (f"PC{index + 1}", component) for index, component in enumerate(model.components_)
            ]
            if names is not None and self.path.suffix.lower() != ".npy":
                columns.insert(0, ("feature", np.array(names, dtype=object)))
            write_columns(self.path, columns)


# -- ``eigenveil watch``: the subspace of a growing file, and how it drifts.


_PRIVATE = "With --epsilon: "
_OF_PRIVATE = (
    "delta", "horizon", "publish", "adjacency", "row_norm", "ledger", "data_set",
    "no_ledger",
)  # fmt: skip
_OF_PLAIN = ("adaptive_rank", "center")


@options.reads_files
def watch(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(help="A .csv or .tsv file; - is standard input."),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more lines at the end of the file.")
    ] = False,
    components: Annotated[
        int, typer.Option("--components", "-k", min=1, help="Number of components.")
    ] = 2,
    block_size: Annotated[
        int, typer.Option("--block-size", "-b", min=1, help="Number of rows in a block.")
    ] = 100,
    adaptive_rank: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="ALPHA BETA",
            help="One component more or less after a block whose last one's share of the strengths "
            "is above BETA or below ALPHA, in percent; paper 002 has 1 10.",
        ),
    ] = None,
    forgetting: Annotated[
        float,
        typer.Option(
            help="Factor for what is kept of older blocks at each block, singular values or, with "
            "--epsilon, released sums; 1 keeps everything."
        ),
    ] = 1.0,
    center: Annotated[
        bool, typer.Option("--center", help="Subtract the running mean of the rows.")
    ] = False,
    columns: options.Columns = None,
    exclude: options.Exclude = None,
    every: Annotated[
        int, typer.Option(min=1, help="Number of blocks between two printed lines.")
    ] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Stop after this number of rows.")
    ] = None,
    poll: Annotated[
        float, typer.Option(min=0.001, help="Seconds between checks of a file with nothing new.")
    ] = 0.5,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to write the components at the end: .csv, .parquet, .feather or .npy; "
            "with --epsilon also .npz (the model) or a folder, as 'eigenveil fit' writes it."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace what was written before.")] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="Track privately: a privacy target, above 0.")
    ] = None,
    delta: Annotated[
        float, typer.Option(help=_PRIVATE + "in [0, 1); 0 means pure epsilon.")
    ] = 1e-6,
    publish: Annotated[
        str | None,
        typer.Option(
            help=_PRIVATE + "end (components at the end only), continual (after each block, up to "
            "the horizon) or blocks (after each block without end, each with noise of its own); by "
            "default continual if there is a horizon, and blocks with --forgetting."
        ),
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help=_PRIVATE + "most blocks of a continual stream.")
    ] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(
            help=_PRIVATE + "add-remove (one row more or less; not of a continual stream, where it "
            "would shift all later blocks) or replace-one (the row count public)."
        ),
    ] = None,
    row_norm: Annotated[
        str, typer.Option(help=_PRIVATE + "unit, or a public number that rows are clipped at.")
    ] = "unit",
    ledger: options.LedgerOption = None,
    data_set: options.DataSetOption = None,
    no_ledger: options.NoLedger = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
    quiet: options.Quiet = False,
    *,
    read: ReadOptions,
) -> None:
    """Track the leading directions of rows as they come, and print how they drift.

    A line a block: rows until now, rank, the share of the rows' energy that the components capture,
    and the sine of the largest angle to the subspace of the line before and of the first block.
    Ctrl-C ends it in good order. Without --epsilon what it prints and writes is as private as the
    rows.
    """
    _check_together(context, private=epsilon is not None)
    place = None if out is None else WatchOut(out, private=epsilon is not None, overwrite=overwrite)
    account = options.read_account(ledger, data_set, no_ledger=no_ledger)
    if epsilon is not None:
        tracking = _private(
            publish or usual_publish(horizon, forgetting),
            adjacency,
            n_components=components,
            epsilon=epsilon,
            delta=delta,
            horizon=horizon,
            forgetting=forgetting,
            row_norm=options.read_number(row_norm),
        )
    else:
        tracking = Tracking(
            StreamingPCA(
                n_components=components,
                block_size=block_size,
                adaptive_rank=adaptive_rank,
                forgetting=forgetting,
                center=center,
            )
        )
    stop = Stop()
    with stop.listening(), contextlib.ExitStack() as stack:
        if epsilon is not None:
            tell = stack.enter_context(listening(quiet=quiet or json))
            stack.enter_context(telling(tell))
            tracking.model.set_params(**account.open(stack, tell))
            tracking.model._files = None if file == "-" else [Path(file)]
        _run(
            tracking,
            FollowedRows(
                None if file == "-" else file,
                columns=options.read_names(columns),
                exclude=options.read_names(exclude) or (),
                dialect=read.dialect,
                follow=follow,
                poll=poll,
                stop=stop,
                strict=epsilon is None,
            ),
            _Pace(block_size, every, limit),
            Report(stop, json=json, quiet=quiet),
            stop,
            place,
        )


def _check_together(context: typer.Context, *, private: bool) -> None:
    """Raise where an option has no meaning beside another one."""
    given_names = options.given(context)
    for name in _OF_PLAIN if private else _OF_PRIVATE:
        if name in given_names:
            raise WrongOption(
                f"{options.option_text(name)} is for tracking {'without' if private else 'with'} "
                "--epsilon.",
                hint="Leave one of them out.",
            )


def usual_publish(horizon: int | None, forgetting: float) -> str:
    """When a private stream is published, where that was not said."""
    if horizon is not None:
        return "continual"
    return "end" if forgetting == 1.0 else "blocks"


def _private(publish: str, adjacency: str | None, **targets: Any) -> Tracking:
    """Private tracking."""
    # imported here: certificates and accountants take a moment to load
    from eigenveil.models.streaming.private import PrivateStreamingPCA

    adjacency = adjacency_of(publish, adjacency)
    model = PrivateStreamingPCA(publish=publish, adjacency=adjacency, **targets)
    return Tracking(model, publishes=publish != "end", horizon=targets["horizon"])


def adjacency_of(publish: str, adjacency: str | None) -> str:
    """Whose presence is protected, given or not."""
    if publish == "end":
        return adjacency or "add-remove"
    if adjacency == "add-remove":
        raise WrongOption(
            "--adjacency add-remove cannot be kept by a stream whose blocks have a fixed "
            "number of rows: one row more shifts all later ones.",
            hint="Use --adjacency replace-one, or --publish end.",
        )
    return "replace-one"


@dataclass(frozen=True)
class _Pace:
    """Rows of a block, blocks of a line, and rows in all."""

    block: int
    line: int
    limit: int | None


def _run(
    tracking: Tracking,
    rows: FollowedRows,
    pace: _Pace,
    report: Report,
    stop: Stop,
    place: WatchOut | None,
) -> None:
    problem: DataError | None = None
    with report.live():
        try:
            for moment in _moments(tracking, rows, pace, stop):
                report.moment(moment, published=tracking.publishes)
        except DataError as error:
            # what was learnt until then is as good as ever, but a release would cost what it costs
            if not tracking.blocks or not tracking.publishes:
                raise
            problem = error
    if not tracking.publishes and not tracking.blocks and rows.names is not None:
        tracking.take(
            Block(np.empty((0, len(rows.names)))), rows.names
        )  # no rows: what is released does not say so
    if not tracking.blocks and not stop.requested:
        raise DataError(f"No rows in {rows.path}.", hint="Give at least one row.", code="no-rows")
    why = _why(tracking, pace, stop, problem)
    if tracking.blocks:
        tracking.finish(rows.names)
        if place is not None:
            place.write(tracking.model, rows.names)
    written = place.path if place is not None and tracking.blocks else None
    report.end(tracking, rows.names, why, written)
    if problem is not None:
        raise problem


def _moments(tracking: Tracking, rows: FollowedRows, pace: _Pace, stop: Stop) -> Iterator[Moment]:
    with contextlib.closing(rows.blocks(pace.block, limit=pace.limit)) as blocks:
        for block in blocks:
            tracking.take(block, rows.names)
            if tracking.blocks % pace.line == 0:
                yield tracking.moment()
            if tracking.blocks_left == 0 or stop.requested:
                return


def _why(tracking: Tracking, pace: _Pace, stop: Stop, problem: DataError | None) -> str:
    if problem is not None:
        return "error"
    if tracking.blocks_left == 0:
        return "horizon"
    if tracking.rows == pace.limit:
        return "limit"
    return "stopped" if stop.requested else "rows"
