"""Figure 4 d to f of paper 002: time of federated FPCA over nodes, and what trees come to.

Streams are never held. Leaves are real processes, as many at a time as this machine has processors;
what as many processors as nodes would take is computed from the leaves' own times, and called
simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from eigenveil.linalg.subspace import Subspace, merge, subspace_distance, subspace_of
from eigenveil.models.streaming.private import PrivateStreamingPCA
from eigenveil.models.streaming.tracker import StreamingPCA
from eigenveil.moments.engine import processors
from eigenveil_papers.published.data import synth
from eigenveil_papers.published.federated_pca import FPCA, merge_up_tree
from eigenveil_papers.reproduction import given
from eigenveil_papers.reproduction.experiment import (
    Claim,
    Experiment,
    Point,
    RunSettings,
    RunTask,
    Scale,
    Work,
)
from eigenveil_papers.reproduction.figure import Panel, Role, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.paper002 import BLOCK, leaf_of
from eigenveil_papers.reproduction.paper002_trackers import Offline
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Interval, Measure, paired, values
from eigenveil_papers.reproduction.runner import processes
from eigenveil_papers.reproduction.tables import about, claims_of

LEAF_RANK = 10
"""r of leaves and nodes, as in the authors' scripts."""
EPSILON, DELTA = 1.0, 1e-6
"""Of the private tree."""
_SIZES: dict[Scale, tuple[int, ...]] = {
    "full": (640_000, 1_280_000, 1_920_000, 2_560_000, 3_200_000),
    "fast": (1600, 3200, 4800, 6400, 8000),
    "toy": (320, 640, 960),
}
_FEATURES = (1000, 1000, 20)
_NODES = ((1, 2, 4, 8, 16, 32, 64), (1, 2, 8), (1, 2))
_PIECE = 1000  # rows of a stream that exist at a time


class TrackedLeaf(NamedTuple):
    """What a leaf has after a share of its rows."""

    subspace: Subspace
    elapsed: float  # Seconds spent in FPCA until then; not in drawing rows
    processor: float


def leaf(seed: Sequence[int], shares: Sequence[int], features: int) -> list[TrackedLeaf]:
    """Read a stream of Synth(1) rows that is drawn while it is read.

    The directions are the axes: FPCA takes as long for them as for any others, and rows need not be
    turned. Memory is that of a piece of 1000 rows.
    """
    rng = np.random.default_rng(list(seed))
    spectrum = 1.0 / np.arange(1, features + 1)
    tracker = FPCA(n_components=LEAF_RANK, block=BLOCK, adapt=False)
    found: list[TrackedLeaf] = []
    read, elapsed, processor = 0, 0.0, 0.0
    for share in shares:
        while read < share:
            rows = rng.standard_normal((min(_PIECE, share - read), features)) * spectrum
            read += len(rows)
            start, start_processor = time.perf_counter(), time.process_time()
            tracker.partial_fit(rows)
            elapsed += time.perf_counter() - start
            processor += time.process_time() - start_processor
        found.append(TrackedLeaf(tracker.subspace, elapsed, processor))
    return found


def leaves(
    seeds: Sequence[Sequence[int]], shares: Sequence[int], features: int
) -> list[list[TrackedLeaf]]:
    """One process's leaves, one after the other."""
    return [leaf(seed, shares, features) for seed in seeds]


class MergedTree(NamedTuple):
    """The root of a binary tree, and the seconds that its merges took."""

    root: Subspace
    all: float  # One merge after the other, as the authors' script does them
    path: float  # The slowest merge of each level: with a processor for each node


def merged(level: list[Subspace]) -> MergedTree:
    """Merge up a binary tree of a power of two of leaves."""
    everything = path = 0.0
    while len(level) > 1:
        upper, seconds = [], []
        for first, second in zip(level[::2], level[1::2], strict=True):
            start = time.perf_counter()
            upper.append(merge(first, second, rank=LEAF_RANK))
            seconds.append(time.perf_counter() - start)
        level = upper
        everything += sum(seconds)
        path += max(seconds)
    return MergedTree(level[0], everything, path)


def streamed_tree(
    rng: np.random.Generator, *, features: int, sizes: Sequence[int], nodes: int
) -> Iterator[Point]:
    """Times of one tree, for streams of several numbers of rows.

    Each node reads its part of the longest stream, and tells what it has after its parts of the
    shorter ones, so that all sizes take one pass. Panels ``tree-total``, ``tree-computing`` and
    ``tree-merging``, in seconds over nodes; ``tree-far``, the distance of the root from the true
    directions. Series ``rows=N`` are elapsed time of real processes, ``simulated`` is of the
    longest stream with as many processors as nodes: the slowest leaf and the slowest merges.
    """
    shares = [size // nodes for size in sorted(sizes)]
    stem = int(rng.integers(2**62))
    seeds = [[stem, number] for number in range(nodes)]
    count = min(processors(), nodes)
    if count == 1:
        told = [leaves(seeds, shares, features)]
    else:
        with processes(count) as pool:
            # all have started and have loaded what they need before any is timed
            list(pool.map(leaves, [[]] * count, [[]] * count, [1] * count))
            parts = [seeds[first::count] for first in range(count)]
            told = list(pool.map(leaves, parts, [shares] * count, [features] * count))
    aim = np.eye(features)[:, :LEAF_RANK]
    for place, size in enumerate(sorted(sizes)):
        here = [[found[place] for found in of] for of in told]
        # node i is of process i modulo their number: the tree is the same for any number of them
        up = merged([here[node % count][node // count].subspace for node in range(nodes)])
        computing = max(sum(found.elapsed for found in of) for of in here)
        name = f"rows={size}"
        yield Point("tree-computing", name, nodes, computing)
        yield Point("tree-total", name, nodes, computing + up.all)
        yield Point("tree-far", name, nodes, subspace_distance(aim, up.root.basis))
        if nodes > 1:
            yield Point("tree-merging", name, nodes, up.all)
        if size == max(sizes):
            slowest = max(found.processor for of in here for found in of)
            yield Point("tree-computing", "simulated", nodes, slowest)
            yield Point("tree-total", "simulated", nodes, slowest + up.path)
            if nodes > 1:
                yield Point("tree-merging", "simulated", nodes, up.path)
    yield Point("tree-processors", "here", nodes, float(processors()))


# The roots that trees come to


def trees(
    rng: np.random.Generator, *, features: int, rows: int, nodes: Sequence[int], alpha: float
) -> Iterator[Point]:
    """Error of roots over the number of leaves: of FPCA, of ours, and of our private sums."""
    X = synth(alpha, features=features, rows=rows, random_state=rng)
    X *= np.sqrt(len(X))
    exact = Offline(X, centered=False, most=LEAF_RANK)
    for count in nodes:
        parts = np.array_split(X, count)
        for series, root in _ROOTS.items():
            found = root(parts, int(rng.integers(2**32)))
            yield Point("tree-error", series, count, exact.distance(found))


def _fpca_root(parts: Sequence[FloatArray], seed: int) -> FloatArray:
    del seed
    leaves = [leaf_of(rows, LEAF_RANK) for rows in parts]
    return np.asarray(merge_up_tree(leaves, rank=LEAF_RANK).basis.T)


def _up(level: list[Any], empty: Callable[[], Any]) -> Any:
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [empty().merge(first).merge(second) for first, second in pairs]
    return level[0]


def _our_root(parts: Sequence[FloatArray], seed: int) -> FloatArray:
    del seed
    level = [StreamingPCA(LEAF_RANK).fit(rows) for rows in parts]
    return np.asarray(_up(level, lambda: StreamingPCA(LEAF_RANK)).components_)


def _private_root(parts: Sequence[FloatArray], seed: int) -> FloatArray:
    def empty() -> PrivateStreamingPCA:
        return PrivateStreamingPCA(LEAF_RANK, epsilon=EPSILON, delta=DELTA, random_state=seed)

    root = _up([empty().partial_fit(rows) for rows in parts], empty)
    root.release()
    return np.asarray(root.components_)


_ROOTS: Mapping[str, Callable[[Sequence[FloatArray], int], FloatArray]] = {
    "fpca-open": _fpca_root,
    "eigenveil": _our_root,
    "eigenveil-private": _private_root,
}


def lemma_1(
    rng: np.random.Generator, *, features: int, rows: int, rank: int, nodes: Sequence[int]
) -> Iterator[Point]:
    """Error of merged subspaces where r is the rank of all rows, and where it is less.

    ``exact`` and ``truncated``; ``order-`` these are the distances between the results of two
    orders of the same nodes. Over the number of nodes.
    """
    X = (
        rng.standard_normal((rows, rank))
        * np.arange(rank, 0, -1)
        @ rng.standard_normal((rank, features))
    )
    for count in nodes:
        parts = np.array_split(X, count)
        for series, kept in (("exact", rank), ("truncated", rank // 2)):
            leaves = [leaf_of(part, kept) for part in parts]
            root = merge_up_tree(leaves, rank=kept)
            aim = subspace_of(X, rank=kept)
            yield Point("lemma-1", series, count, subspace_distance(aim.basis, root.basis))
            turned = [leaves[place] for place in rng.permutation(count)]
            other = merge_up_tree(turned, rank=kept)
            between = subspace_distance(other.basis, root.basis)
            yield Point("lemma-1", f"order-{series}", count, between)
            if kept == rank:
                strengths = np.abs(root.strengths / aim.strengths - 1.0)
                yield Point("lemma-1", "strengths", count, float(np.max(strengths)))


def _tasks(settings: RunSettings) -> Sequence[RunTask]:
    if settings.data not in (None, "synthetic"):
        return []
    pick = settings.pick
    nodes = pick([1, 2, 4, 8, 16, 32, 64], [1, 4, 16, 32], [1, 4])
    shape = {"features": pick(400, 100, 50), "rows": pick(32_768, 6144, 4096), "nodes": nodes}
    lemma = {"features": 50, "rows": 2048, "rank": 8, "nodes": [1, 4, 16, 64]}
    each: list[tuple[Work, dict[str, Any], float]] = [
        (trees, {**shape, "alpha": 1.0}, pick(12.0, 1.5, 0.3)),
        (lemma_1, lemma, 0.2),
    ]
    runs = settings.repetitions(full=6, fast=2, toy=1)
    tasks = [RunTask(*task[:2], run, task[2]) for run in runs for task in each]
    streamed = {"features": pick(*_FEATURES), "sizes": list(_SIZES[settings.scale])}
    # a task for each number of nodes: what is done of them is kept if a run is stopped
    for count in pick(*_NODES):
        cost = pick(140.0 if count == 1 else 80.0, 3.0, 0.1)
        arguments = {**streamed, "nodes": count}
        tasks.append(RunTask(streamed_tree, arguments, cost=cost, alone=True))
    return tasks


# What is said

_ROUNDING = 1e-8  # an error below it is that of an exact method
DISTANCE = Measure(unit="in the distance of subspaces", margin=0.0, digits=".2g", most=1.0)
ROOTS = Measure(unit="times in the distance of subspaces", margin=1.05, ratio=True, less=True)
NOISY_ROOTS = replace(ROOTS, margin=1.25)
SPEED_UP = Measure(unit="of a processor", margin=0.0, digits=".2f")
SLOWER = Measure(unit="times in time", margin=1.05, ratio=True, less=True)
EXACT = Measure(unit="", margin=0.0, digits=".1e")


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings

    def worst(name: str, series: str) -> ClaimPart:
        found = numbers.points("lemma-1", series)[:, 1]
        largest = (Effect("", float(found.max()), 0.0),) if found.size else ()
        return ClaimPart(name, largest, "at most", _ROUNDING)

    scales, again = _scaling(numbers)
    short = numbers.curve("lemma-1", "truncated").mean
    same = worst("r = 8", "order-exact")
    nowhere = tuple(replace(e, possible=Interval(0.0, 0.0)) for e in same.effects)
    return claims_of(
        "002-fig4df",
        numbers,
        ROOTS,
        {"roots": ["tree-error"]},
        {
            "scales": [scales],
            "rises again": [again],
            "root": [ClaimPart("", values(numbers, "tree-error", "fpca-open"), "at most", 0.2)],
            "private roots": [_private_roots(numbers)],
            "all rows": [worst("subspaces", "exact"), worst("singular values", "strengths")],
            "any order": [replace(same, effects=nowhere), worst("r = 4", "order-truncated")],
        },
        others={
            "scales": SPEED_UP,
            "rises again": SLOWER,
            "root": DISTANCE,
            "private roots": NOISY_ROOTS,
            **dict.fromkeys(("all rows", "any order"), EXACT),
        },
        asides={
            "scales": _simulated(numbers),
            "all rows": f"with r = 4 up to {short.max():.2g}" if short.size else "",
        },
    )


def _times(numbers: Numbers) -> dict[float, FloatArray]:
    """Seconds of the largest stream by nodes: one measurement from each share of it.

    All sizes are shares of one pass over the largest one. What each share takes of its own, times
    their number, and with the merges at its end, is one measurement of the whole.
    """
    sizes = sorted(
        int(of.removeprefix("rows="))
        for of in numbers.series("tree-computing")
        if of.startswith("rows=")
    )
    times: dict[float, list[float]] = {}
    for place, size in enumerate(sizes):
        ends = numbers.curve("tree-computing", f"rows={size}")
        merging = numbers.curve("tree-merging", f"rows={size}")
        starts = numbers.curve("tree-computing", f"rows={sizes[place - 1]}") if place else None
        rows = size - (sizes[place - 1] if place else 0)
        for x, end in zip(ends.x, ends.mean, strict=True):
            own = end - (starts.at(x) if starts else 0.0)
            merges = merging.at(x) if x > 1 else 0.0
            times.setdefault(float(x), []).append(own * sizes[-1] / rows + merges)
    found = {x: np.array(of) for x, of in sorted(times.items())}
    return {x: of for x, of in found.items() if of.size == len(sizes) and not np.isnan(of).any()}


def _scaling(numbers: Numbers) -> tuple[ClaimPart, ClaimPart]:
    """How much faster nodes with a processor each are, and how much slower more of them are."""
    times = _times(numbers)
    here = int(numbers.curve("tree-processors", "here").mean.max(initial=1))
    alone, full = times.get(1.0), times.get(float(here))
    faster = tuple(
        Effect.of(f"{x:g} nodes", alone / of / x)
        for x, of in times.items()
        if alone is not None and 1 < x <= here
    )
    slower = tuple(
        Effect.of(f"{x:g} nodes", SLOWER.between(full, of))
        for x, of in times.items()
        if full is not None and x > here > 1
    )
    name = f"{here} processors"
    return ClaimPart(name, faster, "at least", 0.7), ClaimPart(name, slower, "better")


def _simulated(numbers: Numbers) -> str:
    """What as many processors as nodes would give: not measured, and without a say."""
    total, merging = (numbers.curve(of, "simulated") for of in ("tree-total", "tree-merging"))
    if total.x.size < 2 or not merging.x.size:
        return ""
    most = float(total.x[-1])
    return (
        "simulated (the slowest leaf's own time and the slowest merges, no communication): "
        f"{total.mean[0] / total.mean[-1]:.3g} times as fast with {most:g} nodes, of which merging "
        f"takes {100 * merging.mean[-1] / total.mean[-1]:.2g} %"
    )


def _private_roots(numbers: Numbers) -> ClaimPart:
    ours = numbers.by_run("tree-error", "eigenveil-private")
    more = tuple(
        effect
        for x, runs in sorted(ours.items())
        if x > 1
        for effect in paired(f"{x:g} nodes", runs, ours.get(1.0, {}), NOISY_ROOTS)
    )
    return ClaimPart("", more, "same")


# The figure


_SIZE_ROLES: tuple[Role, ...] = ("level-1", "level-2", "level-3", "level-4", "baseline")
STYLES: dict[str, SeriesStyle] = {
    "eigenveil": SeriesStyle("Eigenveil, StreamingPCA (no noise)", "ours"),
    "eigenveil-private": SeriesStyle("Eigenveil, private sums", "ours-2"),
    "fpca-open": SeriesStyle("FPCA without mask", "paper"),
    **{
        f"rows={size}": SeriesStyle(f"FPCA, {size:,} rows, real processes", role)
        for sizes in _SIZES.values()
        for size, role in zip(sizes, _SIZE_ROLES, strict=False)
    },
    "simulated": SeriesStyle("the most rows, a processor a node: simulated", "exact"),
}


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    drawn = f"D = {settings.pick(*_FEATURES)}, r = {LEAF_RANK}, b = {BLOCK}"
    rows, features = settings.pick(("32,768", 400), ("6144", 100), ("4096", 50))
    panels = [
        Panel(key, f"{title}\n{drawn}", "nodes", "seconds", letter=letter, yscale="log")
        for key, title, letter in (
            ("tree-total", "FPCA up a binary tree", "d"),
            ("tree-computing", "leaves", "e"),
            ("tree-merging", "merging", "f"),
        )
    ]
    root = (
        f"error at the root, {rows} rows, D = {features}\nprivate: ε = {EPSILON:g}, δ = {DELTA:g}"
    )
    panels.append(Panel("tree-error", root, "nodes", "distance of subspaces", yscale="log"))
    return panel_grid(numbers, panels, STYLES, columns=2, title="Scaling of binary trees")


FIG4DF = Experiment(
    name="002-fig4df",
    title="Scaling of binary trees",
    about=about("002-fig4df"),
    tasks=_tasks,
    draw=_draw,
    claims=_claims,
    given=given.trees,
)
