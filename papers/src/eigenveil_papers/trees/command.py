"""``eigenveil simulate-tree``: a tree of sites in one process, its table and its figure."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator
from rich.table import Table

from eigenveil.app.parts import bytes_text
from eigenveil.app.results import CERTIFICATE, check_free, new_folder, view_parts
from eigenveil.app.rows import read_places
from eigenveil.cli import options
from eigenveil.cli.options import WrongOption
from eigenveil.cli.presenters.screen import Screen, bold, counted
from eigenveil.files import Place
from eigenveil.io import ReadOptions
from eigenveil.models.model_options import OF_SKETCH
from eigenveil.plots.style import BLUE, GREY, INK, RED
from eigenveil_papers.trees.report import TreeReport, as_values

_MIB = 2.0**20


def level_name(report: TreeReport, level: int) -> str:
    """A level in words."""
    if level == 0:
        return "leaves"
    return "root" if level == report.tree.depth else f"level {level}"


def tree_figure(report: TreeReport) -> Any:
    """Axes of three panels, one above the other; of given rows they are as private as these."""
    figure = Figure(figsize=(6.6, 7.6), layout="constrained")
    error, size, seconds = figure.subplots(3, 1, sharex=True)
    place = np.arange(len(report.levels))
    _errors(error, report, place)
    _sizes(size, report, place)
    _seconds(seconds, report, place)
    names = [f"{level_name(report, level.level)}\n({level.parties})" for level in report.levels]
    seconds.set_xticks(place, names)
    seconds.set_xlabel("level of the tree (parties)")
    seconds.set_xlim(-0.6, place[-1] + 0.6)
    for axes in (error, size, seconds):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=GREY, alpha=0.35, lw=0.6)
        axes.set_axisbelow(True)
    figure.align_ylabels()
    outcome = report.outcome
    guarantee = outcome.guarantee_
    figure.suptitle(
        f"{int(np.count_nonzero(outcome.arrived)):,} of {report.tree.leaf_count:,} leaves arrived, "
        f"{report.rows:,} {'made-up ' if report.made_up else ''}rows\n"
        f"the root's result: epsilon = {guarantee.epsilon:.3g}, delta = {guarantee.delta:.2g}"
        + ("" if guarantee.certified else " (not certified)"),
        fontsize=10,
    )
    return np.array([error, size, seconds])


def _curves(axes: Any, place: Any, curves: dict[str, Any], loc: str) -> None:
    """Two curves over the levels, with their labels."""
    styles = {"marker": "o", "color": BLUE}, {"marker": "s", "color": RED, "ls": "--"}
    for (label, values), style in zip(curves.items(), styles, strict=True):
        axes.plot(place, values, lw=1.4, ms=5.5, label=label, **style)
    axes.set_yscale("log")
    axes.legend(frameon=False, loc=loc)


def _errors(axes: Any, report: TreeReport, place: Any) -> None:
    """How much the components of a level miss."""

    def shown(errors: list[float | None]) -> list[float]:
        return [np.nan if error is None else 100.0 * max(error, 1e-9) for error in errors]

    curves = {
        "private sums, as sent": shown([level.error for level in report.levels]),
        "merged subspaces, no noise": shown([level.merged_error for level in report.levels]),
    }
    _curves(axes, place, curves, "lower left")
    axes.set_ylabel("energy missed\n(% of the best possible)")
    axes.yaxis.set_major_locator(LogLocator(numticks=6))


def _sizes(axes: Any, report: TreeReport, place: Any) -> None:
    """What a level sends in all."""
    sizes = np.array([level.bytes for level in report.levels]) / _MIB
    axes.bar(place, sizes, width=0.55, color=BLUE)
    for at, size, level in zip(place, sizes, report.levels, strict=True):
        if level.messages:
            text = f"{level.messages:,}\nmessages" if level.messages > 1 else "1\nmessage"
            axes.annotate(
                text,
                (at, size),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7.5,
                color=INK,
            )
    axes.set_ylabel("sent by the level\n(MiB, private sums)")
    axes.set_ylim(0, 1.28 * float(sizes.max(initial=0.0)) or 1.0)


def _seconds(axes: Any, report: TreeReport, place: Any) -> None:
    """Processor time of a level, and of its slowest party."""
    curves = {
        "all parties of the level": [max(level.seconds, 1e-6) for level in report.levels],
        "its slowest party": [max(level.slowest, 1e-6) for level in report.levels],
    }
    _curves(axes, place, curves, "upper right")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylabel("processor time (s)")


# -- ``eigenveil simulate-tree``: merging up a tree of sites, level by level.


_TABLE, _FIGURES = "tree.csv", ("tree.png", "tree.svg")


_Files = Annotated[
    list[str] | None,
    typer.Argument(
        help="Files of your own, whose rows are dealt to the leaves at random; without them "
        "rows are made up.",
        show_default=False,
    ),
]
_Nodes = Annotated[int, typer.Option(help="Leaves: sites with rows, 2 or more.")]
_FanOut = Annotated[int, typer.Option(help="Children of an inner node, 2 or more.")]
_Features = Annotated[int, typer.Option(help="Columns of the made-up rows.")]
_Components = Annotated[
    int | None,
    typer.Option(
        "--components", "-k", help="Components; 10, or half the columns where there are few."
    ),
]
_SketchColumns = Annotated[
    int,
    typer.Option(
        "--sketch-size", help="Columns of the sketch, and directions of a merged subspace."
    ),
]
_Rows = Annotated[int, typer.Option(help="Rows of a leaf.")]
_Epsilon = Annotated[float, typer.Option(help="Privacy target.")]
_Delta = Annotated[float, typer.Option(help="Privacy target.")]
_Lost = Annotated[
    float, typer.Option(help="Share of the leaves that never send, at random, in [0, 1).")
]
_Tolerate = Annotated[
    float,
    typer.Option(help="Share of the leaves that may be missing: the others draw all of the noise."),
]
_LostSubtrees = Annotated[
    int, typer.Option(help="Inner nodes that take messages and never send, at random.")
]
_Late = Annotated[
    float, typer.Option(help="Share of the arriving leaves that come after their node sent.")
]
_Protect = Annotated[
    str,
    typer.Option(
        help="Which adversary the target is for: outsider (the leaves share the noise) or "
        "aggregators "
        "(each leaf draws all of it)."
    ),
]
_Rounds = Annotated[
    int,
    typer.Option(help="Rounds, each of other rows, lost and late leaves; each row is in one."),
]
_Forgetting = Annotated[
    float,
    typer.Option(help="With rounds: what earlier ones are multiplied by at each further one."),
]
_Seed = Annotated[
    int | None,
    typer.Option(help="Reproducible rows, losses and noise: the result is not certified."),
]
_Out = Annotated[Path, typer.Option(help="Folder to write; it must not exist.")]
_Overwrite = Annotated[bool, typer.Option(help="Replace an earlier result.")]


@options.reads_files
def simulate_tree(
    context: typer.Context,
    files: _Files = None,
    nodes: _Nodes = 1024,
    fan_out: _FanOut = 4,
    features: _Features = 1000,
    components: _Components = None,
    sketch_columns: _SketchColumns = 50,
    rows: _Rows = 200,
    epsilon: _Epsilon = 1.0,
    delta: _Delta = 1e-6,
    lost: _Lost = 0.3,
    tolerate: _Tolerate = 0.35,
    lost_subtrees: _LostSubtrees = 0,
    late: _Late = 0.05,
    protect: _Protect = "outsider",
    rounds: _Rounds = 1,
    forgetting: _Forgetting = 1.0,
    columns: options.Columns = None,
    exclude: options.Exclude = None,
    sql: options.Sql = None,
    database: options.Database = None,
    seed: _Seed = None,
    out: _Out = Path("tree"),
    overwrite: _Overwrite = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    *,
    read: ReadOptions,
) -> None:
    """Simulate a tree of sites, on made-up rows or yours: time, bytes and error of every level.

    The parties are those of a real tree: leaves add their part of the noise, inner nodes merge, the
    root publishes. Some leaves are lost, some are late. What it prints and writes of your own files
    is as private as they are, since errors are measured against their exact components.
    """
    places = read_places(files, sql, database, needed=False)
    of_files = _given(context, places, columns=columns, exclude=exclude, read=read)
    if rounds == 1 and forgetting != 1.0:
        raise WrongOption("forgetting-of-one-round")
    _check(rounds=rounds, nodes=nodes, fan_out=fan_out, rows=rows, sketch=sketch_columns, seed=seed)
    _check_shares(lost=lost, late=late, tolerate=tolerate)
    check_free(out, overwrite=overwrite)
    from eigenveil_papers.trees import simulated

    asked = {"epsilon": epsilon, "delta": delta, "protect": protect, OF_SKETCH: sketch_columns}
    if rounds > 1:
        asked |= {"publish": "blocks", "forgetting": forgetting}
    width = features if of_files is None else of_files.shape[1]
    study = _study(nodes, fan_out, width, components, tolerate, asked)
    played = rows if of_files is None else of_files
    with new_folder(out) as folder:
        with counted("leaves", quiet=quiet or json) as progress:
            play = partial(simulated.simulate_tree, study, lost_subtrees=lost_subtrees, seed=seed)
            report = play(rows=played, lost=lost, late=late, rounds=rounds, progress=progress)
        _write(report, folder)
    if json:
        options.print_json({**as_values(report), "out": str(out)})
    else:
        _print(report, Screen(quiet=quiet), out)


def _study(
    nodes: int,
    fan_out: int,
    width: int,
    components: int | None,
    tolerate: float,
    asked: dict[str, Any],
) -> Any:
    from eigenveil.federation.tree.private import make_tree_study
    from eigenveil.federation.tree.tree import MergeTree

    return make_tree_study(
        MergeTree.with_leaves(nodes, fan_out=fan_out),
        features=width,
        n_components=max(1, min(_COMPONENTS, width // 2)) if components is None else components,
        lost=min(nodes - 1, math.ceil(tolerate * nodes - 1e-9)),
        **asked,
    )


_COMPONENTS = 10
_MADE_UP, _OF_FILES = ("rows", "features"), ("columns", "exclude", *options.OF_READING)


def _given(
    context: typer.Context,
    files: Sequence[str | Place],
    *,
    columns: str | None,
    exclude: str | None,
    read: ReadOptions,
) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """All rows of the files, (n, D); ``None`` where there are none."""
    given_names = options.given(context)
    for name in _MADE_UP if files else _OF_FILES:
        if name in given_names:
            raise WrongOption(
                "of-other-rows",
                option=options.option_text(name),
                rows="made-up rows" if files else "files",
            )
    if not files:
        return None
    from scipy.sparse import issparse

    from eigenveil.io.open import open_rows
    from eigenveil.moments.engine import check_block
    from eigenveil_papers.trees.simulated import NEEDS_ALL

    rows = open_rows(
        files,
        columns=options.read_names(columns),
        exclude=options.read_names(exclude) or (),
        read=read,
    )
    blocks = [np.empty((0, rows.features))]
    for block in rows.blocks():
        check_block(block, rows.names, hint=NEEDS_ALL)
        values: Any = block.values
        dense = values.toarray() if issparse(values) else values
        blocks.append(np.asarray(dense, dtype=np.float64))
    return np.vstack(blocks)


def _check(
    *, rounds: int, nodes: int, fan_out: int, rows: int, sketch: int, seed: int | None
) -> None:
    for name, value, least, why in (
        ("--rounds", rounds, 1, "a tree has a round"),
        ("--nodes", nodes, 2, "a tree has at least two leaves"),
        ("--fan-out", fan_out, 2, "a node that merges has at least two children"),
        ("--rows", rows, 1, "a leaf has rows"),
        ("--sketch-size", sketch, 1, "a sketch has columns"),
        ("--seed", 0 if seed is None else seed, 0, "a seed is not negative"),
    ):
        if value < least:
            raise WrongOption("too-small", name=name, value=value, least=least, why=why)


def _check_shares(**shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value < 1:
            raise WrongOption(
                "out-of-range",
                name=f"--{name}",
                value=value,
                wanted="from 0 to below 1, a share of the leaves",
            )


_COLUMNS = (
    *("level", "parties", "sent", "least", "messages", "bytes", "seconds", "slowest"),
    *("error", "merged_error", "merged_bytes", "merged_seconds"),
)


def _write(report: TreeReport, folder: Path) -> None:
    from eigenveil import plots

    with (folder / _TABLE).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_COLUMNS)
        for level in report.levels:
            values = (getattr(level, name) for name in _COLUMNS)
            table.writerow(["" if value is None else value for value in values])
    report.outcome.certificate.write(folder / CERTIFICATE)
    axes = tree_figure(report)
    for name in _FIGURES:
        plots.save_figure(axes, folder / name)


def _print(report: TreeReport, screen: Screen, out: Path) -> None:

    table = Table(title=f"{report.tree.leaf_count} leaves, {report.tree.fan_out} children a node")
    for name in (
        "level",
        "parties",
        "sent",
        "messages",
        "bytes",
        "all (s)",
        "slowest (ms)",
        "missed, private",
        "missed, merged",
    ):
        table.add_column(name, justify="left" if name == "level" else "right")
    for level in report.levels:
        top = level.level == report.tree.depth
        table.add_row(
            level_name(report, level.level),
            f"{level.parties:,}",
            "-" if top else f"{level.sent:,}",
            "-" if top else f"{level.messages:,}",
            "-" if top else bytes_text(level.bytes),
            f"{level.seconds:.3f}",
            f"{1000 * level.slowest:.2f}",
            _percent(level.error),
            _percent(level.merged_error),
        )
    screen.print(table)
    screen.print(
        "missed: share of the energy of the best components of all rows that arrived, on average "
        "over the level: of the private sums as sent, and of merged subspaces without noise."
    )
    if len(report.rounds) > 1:
        _print_rounds(report, screen)
    arrived = int(np.count_nonzero(report.outcome.arrived))
    screen.print(
        f"{arrived:,} of {report.tree.leaf_count:,} leaves arrived ({report.late} late), "
        f"{report.rows:,} rows; the root's result after {report.seconds:.1f} s on "
        f"{report.workers} threads. Were every party a computer of its own: "
        f"{report.critical_seconds:.3f} s of work on the longest way up."
    )
    screen.show(view_parts(report.outcome.guarantees_))
    guarantee = report.outcome.guarantee_
    screen.print(bold("guarantee of the result:"), guarantee)
    notes = (note for found in report.outcome.guarantees_.values() for note in found.caveats)
    for note in dict.fromkeys(notes):
        if note not in guarantee.caveats or guarantee.certified:
            screen.print(f"  note: {note}.")
    files = ", ".join((_TABLE, *_FIGURES, CERTIFICATE))
    whose = (
        "Rows were made up"
        if report.made_up
        else "Errors are measured from your rows, and as private as they are"
    )
    screen.print(f"written to {out}: {files}. {whose}; check the noise with")
    screen.next("certify", out)


def _print_rounds(report: TreeReport, screen: Screen) -> None:
    table = Table(title="the root's refreshed result, round by round")
    for name in ("round", "leaves", "rows", "missed of the round's best"):
        table.add_column(name, justify="right")
    for number, each in enumerate(report.rounds, start=1):
        table.add_row(f"{number}", f"{each.arrived:,}", f"{each.rows:,}", _percent(each.error))
    screen.print(table)
    screen.print("All else is about the last round; the guarantees are for a row of any round.")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g} %"
