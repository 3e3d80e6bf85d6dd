"""Figure 4 of paper 002: trackers' error, time and memory, and the scaling of trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from eigenveil_papers.reproduction.data import at_hand, find, title_of
from eigenveil_papers.reproduction.experiment import Experiment, Given, RunSettings, RunTask, Scale
from eigenveil_papers.reproduction.figure import (
    SERIES_STYLES,
    AxisScale,
    Panel,
    Role,
    SeriesStyle,
    panel_grid,
)
from eigenveil_papers.reproduction.given import trackers
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper002_computing_claims import (
    COMMON,
    ENTRIES,
    EVEN,
    OWN,
    RIVALS,
    claims,
)
from eigenveil_papers.reproduction.paper002_streams import (
    SCRIPTED,
    lemma_1,
    memory,
    spectra,
    speed,
    tracking,
    trees,
)
from eigenveil_papers.reproduction.paper002_trees import streamed_tree

_SIZES: dict[Scale, tuple[int, ...]] = {
    "full": (640_000, 1_280_000, 1_920_000, 2_560_000, 3_200_000),
    "fast": (1600, 3200, 4800, 6400, 8000),
    "toy": (320, 640, 960),
}
_TREE_FEATURES = (1000, 1000, 20)
_NODES = ((1, 2, 4, 8, 16, 32, 64), (1, 2, 8), (1, 2))
_SIZE_ROLES: Mapping[int, Role] = {-1: "level-4", 2: "level-3", 0: "level-2"}
"""By place among the sizes: the largest, the middle one and the smallest are drawn."""

STYLES: dict[str, SeriesStyle] = {
    "eigenveil": SeriesStyle("Eigenveil, StreamingPCA (no noise)", "ours"),
    "eigenveil-private": SeriesStyle("Eigenveil, private sums (epsilon 1)", "ours-2"),
    "fpca-open": SeriesStyle("FPCA without mask", "paper"),
    **{key: SERIES_STYLES[key] for key in RIVALS},
    "frequent-directions as scripted": SeriesStyle("FD's rows as in the scripts", "random"),
    "spirit as scripted": SeriesStyle("SPIRIT with signs, as in the scripts", "exact-3"),
    **{
        f"rows={sizes[place]}": SeriesStyle(f"FPCA, {sizes[place]} rows, real processes", role)
        for sizes in _SIZES.values()
        for place, role in _SIZE_ROLES.items()
    },
    "simulated": SeriesStyle("the most rows, a processor for each node: simulated", "exact"),
}


def _names(settings: RunSettings) -> tuple[str, ...]:
    if settings.data is not None:
        return () if settings.data == "synthetic" else (settings.data,)
    motes = ["motes-light", "motes-volt"]
    # what stands in for these is drawn for the other motes already
    motes += [of for of in ("motes-humidity", "motes-temperature") if at_hand(of, settings)]
    return (*motes, *settings.pick(("wine", "mnist"), ("wine",), ()))


def _tasks(settings: RunSettings) -> Sequence[RunTask]:
    pick = settings.pick
    arguments: dict[str, Any]
    tasks = []
    for run in settings.repetitions(full=3, fast=2, toy=1):
        task = partial(RunTask, run=run)
        for name in _names(settings):
            data = find(name, settings).as_arguments()
            arguments = {"name": name, "data": data, "rows": pick(None, 2000, 1000)}
            cost = 45.0 if name == "mnist" else pick(4.0, 2.0, 0.3)
            tasks.append(task(work=tracking, arguments=arguments, cost=cost))
        if settings.data not in (None, "synthetic"):
            continue
        shape = {"features": pick(400, 100, 30), "rows": pick(4000, 2000, 1000)}
        for alpha in pick((0.001, 0.1, 0.5, 1.0, 2.0, 3.0), (0.1, 0.5, 1.0), (0.5, 1.0)):
            arguments = {"alphas": [alpha], **shape}
            tasks.append(task(work=spectra, arguments=arguments, cost=pick(16.0, 1.5, 0.3)))
        arguments = {
            "features": pick([10, 30, 100, 300, 1000], [10, 100, 1000], [10, 50]),
            "rows": pick(1000, 200, 200),
        }
        tasks.append(task(work=speed, arguments=arguments, cost=pick(30.0, 3.0, 0.3)))
        arguments = {
            "features": pick(400, 100, 50),
            "rows": pick(32_768, 6144, 4096),
            "nodes": pick([1, 2, 4, 8, 16, 32, 64], [1, 4, 16, 32], [1, 4]),
            "alpha": 1.0,
        }
        tasks.append(task(work=trees, arguments=arguments, cost=pick(15.0, 1.5, 0.3)))
        arguments = {"features": 50, "rows": 2048, "rank": 8, "nodes": [1, 4, 16, 64]}
        tasks.append(task(work=lemma_1, arguments=arguments, cost=0.2))
        if run == 0:
            tasks += _tasks_of_one_run(settings)
    return tasks


def _tasks_of_one_run(settings: RunSettings) -> Iterator[RunTask]:
    pick = settings.pick
    arguments: dict[str, Any] = {
        "features": pick([100, 300, 1000, 3000], [100, 400], [50, 200]),
        "rows": pick([500, 5000], [200, 800], [200, 400]),
    }
    yield RunTask(work=memory, arguments=arguments, cost=pick(2.8, 0.4, 0.1))
    shape = {"features": pick(*_TREE_FEATURES), "sizes": list(_SIZES[settings.scale])}
    # a task for each number of nodes: what is done of them is kept if a run is stopped
    for nodes in pick(*_NODES):
        cost = pick(140.0 if nodes == 1 else 80.0, 3.0, 0.1)
        arguments = {**shape, "nodes": nodes}
        yield RunTask(work=streamed_tree, arguments=arguments, cost=cost, alone=True)


def _given(settings: RunSettings) -> Sequence[Given]:
    nodes = ", ".join(str(count) for count in settings.pick(*_NODES))
    return trackers(settings, _names(settings), nodes)


# The figure


_KINDS = {
    COMMON: ("scripts' settings, common rank", "RMSE beyond offline PCA's"),
    OWN: ("scripts' settings, own ranks", "RMSE beyond offline PCA's"),
    EVEN: ("even-handed settings", "RMSE beyond offline PCA's"),
    ENTRIES: ("scripts' settings and measure", "squared difference of entries"),
}


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    names = _names(settings)
    titles = {name: title_of(find(name, settings)) for name in names}

    def errors(what: str) -> list[Panel]:
        title, ylabel = _KINDS[what]
        across = _panel(f"synth-{what}", f"(a) Synth(alpha), at the end\n{title}", "alpha", ylabel)
        return [
            across,
            *[
                _panel(f"{name}-{what}", f"(b) {titles[name]}\n{title}", "rows read", ylabel)
                for name in names
            ],
        ]

    tree = {
        "tree-total": f"(d) FPCA up a tree, D = {settings.pick(*_TREE_FEATURES)}",
        "tree-computing": "(e) leaves",
        "tree-merging": "(f) merging",
    }
    panels = [
        *errors(COMMON),
        *errors(OWN),
        *errors(EVEN),
        *errors(ENTRIES)[:1],
        _panel(f"speed{SCRIPTED}", "(c) time of a row, scripts' settings", "D", "microseconds"),
        _panel("speed", "(c) time of a row, even-handed", "D", "microseconds"),
        _panel("memory", "peak memory of arrays\n(not drawn in the paper)", "D", "MiB"),
        *[_panel(key, title, "nodes", "seconds") for key, title in tree.items()],
        _panel(
            "tree-error",
            "error at the root\n(not drawn in the paper)",
            "nodes",
            "distance of subspaces",
        ),
    ]
    drawn = Numbers(
        row
        for row in numbers.measured
        if row.series in STYLES or not (row.panel.startswith("tree-") and "=" in row.series)
    )
    return panel_grid(
        drawn,
        panels,
        STYLES,
        columns=len(names) + 1,
        title="Paper 002, figure 4: tracking of one stream without masks, and binary trees",
    )


def _panel(key: str, title: str, xlabel: str, ylabel: str) -> Panel:
    scale: AxisScale = "log"
    return Panel(key=key, title=title, xlabel=xlabel, ylabel=ylabel, xscale=scale, yscale=scale)


FIG4 = Experiment(
    name="002-fig4",
    title="Error, time and memory of trackers; scaling of binary trees",
    paper="002",
    about=(
        "One stream without masks, in two settings. As the authors' scripts have it (their public "
        "programs test_fpca_real and test_fpca_synthetic; the paper gives no settings): the stream "
        "is centred beforehand; FPCA follows the rank from a seed r, 10 for the motes and 5 for "
        "MNIST, wine and Synth, in blocks of 2r (50 for Synth) and with alpha = 1, beta = 10; the "
        "sketch of frequent directions has r rows; SPIRIT follows the rank too, with lambda 0.9 "
        "(1 for Synth), and may change it at any row; the power method has blocks of D rows and "
        "GROUSE steps of 2, divided by the number of the row, which are left out from pi/2 on: of "
        "rows in their own units nearly all are. Methods are compared by the directions that FPCA, "
        "SPIRIT and the seed have in common, as the scripts do, and each by its own against as "
        "many of offline PCA. Even-handed: r = 6, rows as they are, blocks of 25, a sketch of 16 "
        "rows (a buffer of 32), the power method with blocks of 100, nothing forgotten, GROUSE's "
        "greedy step; of wine, with 11 columns, r = 2 and a sketch of 5, for more would hold all "
        "of it. Incremental PCA subtracts the mean and is then held against offline PCA of centred "
        "rows. SPIRIT is that of its paper, not of the program. Humidity and temperature, of the "
        "same motes, are drawn where their files are in --data-folder. Synth(alpha) has 4000 rows "
        "and 400 features, as in the scripts. Trees: Synth(1) along the axes, 1000 features, up to "
        "3.2 million rows, each drawn when it is read and never held; r = 10 and blocks of 25. "
        "Real processes, as many as processors, do the leaves; the time is that of FPCA alone, of "
        "the slowest process, and of all merges one after the other. Simulated is the slowest leaf "
        "and the slowest merge of each level. Private sums: 32 768 rows of 400 features, epsilon "
        "1, delta 1e-6, one row more or less, rows divided by their own norms."
    ),
    datasets=(
        *("synthetic", "motes-light", "motes-volt", "motes-humidity", "motes-temperature"),
        *("wine", "mnist"),
    ),
    tasks=_tasks,
    draw=_draw,
    claims=claims,
    given=_given,
)
