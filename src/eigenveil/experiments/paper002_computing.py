"""Figure 4 of paper 002: trackers' error, time and memory, and the scaling of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from eigenveil.experiments.data import find, title_of
from eigenveil.experiments.experiment import Experiment, Scale, Settings, Task
from eigenveil.experiments.figure import AxisScale, Panel, panel_grid
from eigenveil.experiments.looks import LOOKS, Look, Role
from eigenveil.experiments.numbers import Numbers
from eigenveil.experiments.paper002_computing_claims import RIVALS, claims
from eigenveil.experiments.paper002_streams import lemma_1, memory, spectra, speed, tracking, trees

_SIZES: dict[Scale, tuple[int, ...]] = {
    "full": (8192, 16_384, 32_768),
    "fast": (2048, 6144),
    "toy": (1024, 4096),
}
_SIZE_ROLES: tuple[Role, ...] = ("paper", "paper-2", "repaired")  # from the largest on

LOOK: dict[str, Look] = {
    "eigenveil": Look("Eigenveil, StreamingPCA (no noise)", "ours"),
    "eigenveil-private": Look("Eigenveil, private sums (epsilon 1)", "ours-2"),
    "fpca-open": Look("FPCA without mask", "paper"),
    **{key: LOOKS[key] for key in RIVALS},
    **{
        f"rows={size}": Look(f"FPCA without mask, {size} rows", role)
        for sizes in _SIZES.values()
        for size, role in zip(reversed(sizes), _SIZE_ROLES, strict=False)
    },
}


def _names(settings: Settings) -> tuple[str, ...]:
    if settings.data is not None:
        return () if settings.data == "synthetic" else (settings.data,)
    motes = ("motes-light", "motes-volt")
    return settings.pick((*motes, "wine", "mnist"), (*motes, "wine"), motes)


def _tasks(settings: Settings) -> Sequence[Task]:
    tasks = []
    arguments: dict[str, Any]
    for run in settings.repetitions(full=5, fast=2, toy=1):
        for name in _names(settings):
            arguments = {
                "name": name,
                "data": find(name, settings).as_arguments(),
                "rows": settings.pick(None, 4000, 1000),
            }
            cost = 3.2 if name == "mnist" else settings.pick(0.8, 0.4, 0.1)
            tasks.append(Task(work=tracking, arguments=arguments, run=run, cost=cost))
        if settings.data not in (None, "synthetic"):
            continue
        arguments = {
            "alphas": settings.pick([0.01, 0.1, 0.5, 1.0, 2.0], [0.1, 0.5, 1.0], [0.5, 1.0]),
            "features": settings.pick(100, 100, 30),
            "rows": settings.pick(5000, 2000, 1000),
        }
        tasks.append(
            Task(work=spectra, arguments=arguments, run=run, cost=settings.pick(2.7, 0.7, 0.1))
        )
        arguments = {
            "features": settings.pick([10, 30, 100, 300, 1000], [10, 100, 1000], [10, 50]),
            "rows": settings.pick(1000, 300, 200),
        }
        tasks.append(
            Task(work=speed, arguments=arguments, run=run, cost=settings.pick(2.0, 0.4, 0.1))
        )
        arguments = {
            "features": settings.pick(400, 100, 50),
            "sizes": list(_SIZES[settings.scale]),
            "nodes": settings.pick([1, 2, 4, 8, 16, 32, 64], [1, 4, 16, 32], [1, 4]),
            "alpha": 1.0,
        }
        tasks.append(
            Task(work=trees, arguments=arguments, run=run, cost=settings.pick(22.0, 1.5, 0.3))
        )
        arguments = {"features": 50, "rows": 2048, "rank": 8, "nodes": [1, 4, 16, 64]}
        tasks.append(Task(work=lemma_1, arguments=arguments, run=run, cost=0.2))
        if run == 0:
            arguments = {
                "features": settings.pick([100, 300, 1000, 3000], [100, 400], [50, 200]),
                "rows": settings.pick([500, 5000], [200, 800], [200, 400]),
            }
            tasks.append(
                Task(work=memory, arguments=arguments, run=run, cost=settings.pick(2.8, 0.4, 0.1))
            )
    return tasks


# The figure


def _draw(numbers: Numbers, settings: Settings) -> Figure:
    motes = [name for name in _names(settings) if name.startswith("motes")]
    drawn = motes or list(_names(settings))
    titles = {name: title_of(find(name, settings)) for name in drawn}

    def errors(kind: str, ylabel: str) -> list[Panel]:
        across = _panel(f"synth-{kind}", "Synth(alpha), end of stream", "alpha", ylabel)
        return [across, *[_panel(f"{n}-{kind}", titles[n], "rows read", ylabel) for n in drawn]]

    tree = {"tree-total": "(d) slowest path", "tree-computing": "(e) slowest leaf"}
    panels = [
        *errors("distance", "distance of subspaces"),
        _panel("speed", "(c) time of a row", "features D", "microseconds"),
        *errors("excess", "RMSE beyond offline PCA's"),
        _panel("memory", "peak memory of arrays", "features D", "MiB"),
        *[_panel(key, title, "nodes", "seconds") for key, title in tree.items()],
        _panel("tree-merging", "(f) merging on the path", "nodes", "seconds"),
        _panel("tree-error", "error at the root, largest stream", "nodes", "distance of subspaces"),
    ]
    return panel_grid(
        numbers,
        panels,
        LOOK,
        columns=len(drawn) + 2,
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
        "One stream without masks: r = 6, blocks of 25 rows; frequent directions with a sketch of "
        "16 rows (a buffer of 32), the block power method with blocks of 100, SPIRIT without "
        "forgetting (its memory here is that of a D x D array, which it does not "
        "need). Rows are not centred; incremental PCA subtracts the mean and is held against "
        "offline PCA of centred rows. The errors are those against offline PCA of the rows read so "
        "far. Synth(alpha) has 5000 rows and 100 features. Trees: Synth(1), 400 features instead "
        "of 1000 and up to 32 768 rows instead of 3.2 million, r = 10; the nodes work one after "
        "the other, and the time of the slowest path is processor time of the slowest leaf and of "
        "the slowest merge of each level, the lesser of two turns. Private sums: epsilon 1, delta "
        "1e-6, one row more or less, rows divided by their own norms."
    ),
    datasets=("synthetic", "motes-light", "motes-volt", "wine", "mnist"),
    tasks=_tasks,
    draw=_draw,
    claims=claims,
)
