"""Paper 002's merge: its cost, algorithm 2 beside equation 2, and the order of the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

import numpy as np

from eigenveil.linalg.subspace import Subspace, merge, subspace_distance, subspace_of
from eigenveil_papers.published.data import synth
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import chosen
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Measure, exactly
from eigenveil_papers.reproduction.tables import about, claims_of

_SIZE, _RANK, _NODES, _FEATURES = 4_000, 16, 8, 40
# Panels of the cost: values of d, r and of the blocks before, and the exponent that is allowed
_OVER = {
    "features": ((2_000, 4_000, 8_000, 16_000, 32_000), 1.1),
    "rank": ((8, 16, 32, 64, 128), 2.1),
    "blocks": ((4, 8, 16, 32), 1.1),
}
_RANKS = (2, 4, 8, 16, 32, 40)
_SECONDS = 0.05  # of processor time that a measurement takes at least


def merge_r(first: Subspace, second: Subspace, *, rank: int) -> Subspace:
    """Algorithm 2, step by step."""
    inside = first.basis.T @ second.basis
    outside, corner = np.linalg.qr(second.basis - first.basis @ inside)
    below = [np.zeros((second.rank, first.rank)), corner * second.strengths]
    square = np.block([[np.diag(first.strengths), inside * second.strengths], below])
    turn, strengths, _ = np.linalg.svd(square)
    return Subspace(np.hstack([first.basis, outside]) @ turn[:, :rank], strengths[:rank])


_METHODS = {"algorithm-2": merge_r, "eigenveil": merge}


def _seconds(work: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    count, start = 0, time.process_time()
    while (spent := time.process_time() - start) < _SECONDS or count < 2:
        work()
        count += 1
    return spent / count


def costs(rng: np.random.Generator, *, few: int) -> Iterator[Point]:
    """Processor time of one merge, over d, r and the blocks that were merged before."""
    for panel, (values, _) in _OVER.items():
        for x in values[:few]:
            here = {"features": _SIZE, "rank": _RANK, "blocks": 1, panel: x}
            parts = []
            for _ in range(here["blocks"] + 1):
                basis, _ = np.linalg.qr(rng.standard_normal((here["features"], here["rank"])))
                strengths = np.sort(rng.uniform(1, 2, here["rank"]))[::-1]
                parts.append(Subspace(basis, strengths))
            for series, method in _METHODS.items():
                one_more = partial(method, rank=here["rank"])
                before = reduce(one_more, parts[:-1])
                yield Point(panel, series, x, _seconds(partial(one_more, before, parts[-1])))


def orders(rng: np.random.Generator) -> Iterator[Point]:
    """Nodes merged in two orders: how far apart they end, and how far from all rows' subspace.

    Distances are of the leading two directions, which every r here keeps.
    """
    rows = synth(1.0, features=_FEATURES, rows=_NODES * 2 * _FEATURES, random_state=rng)
    exact = subspace_of(rows, rank=2).basis
    nodes = np.split(rows, _NODES)
    turned = [nodes[i] for i in rng.permutation(_NODES)]
    for rank in _RANKS:
        ends = [
            reduce(partial(merge_r, rank=rank), [subspace_of(each, rank=rank) for each in order])
            for order in (nodes, turned)
        ]
        one, two = (end.basis[:, :2] for end in ends)
        for series, other in (("orders", two), ("far", exact)):
            yield Point("order", series, rank, max(1e-16, subspace_distance(one, other)))
        both = [subspace_of(each, rank=rank) for each in nodes[:2]]
        same = (method(*both, rank=rank).basis for method in _METHODS.values())
        yield Point("equal", "distance", rank, max(1e-16, subspace_distance(*same)))


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    slopes = [
        ClaimPart(f"{panel}, {series}", (Effect.of("", found),), "at most", most)
        for panel, (_, most) in _OVER.items()
        for series in _METHODS
        if (found := numbers.exponents(panel, series)).size
    ]
    exact = {}
    for panel, series in (("equal", "distance"), ("order", "orders")):
        worst = {x: at for x, at in numbers.worst(panel, series).items() if x < _FEATURES}
        exact[panel] = [ClaimPart("", exactly(worst, "r = "), "at most", _EXACT.margin)]
    far = [f"{of:.2g} at r = {x:g}" for x, of in numbers.worst("order", "far").items()]
    return claims_of(
        "002-merge",
        numbers,
        _EXACT,
        {},
        {"slopes": slopes, **exact},
        others={"slopes": Measure(unit="as exponent", margin=0.0, digits=".2f")},
        asides={"order": f"from the subspace of all rows: {', '.join(far)}"},
        features=_FEATURES,
    )


_EXACT = Measure(unit="as sine", margin=1e-9, digits=".2g", most=1.0)
_STYLES = {
    "algorithm-2": SeriesStyle("algorithm 2, step by step", "paper"),
    "eigenveil": SeriesStyle("Eigenveil", "ours"),
    "orders": SeriesStyle("between two orders", "repaired"),
    "far": SeriesStyle("from all rows' subspace", "baseline"),
}
_PLAIN: dict[str, Any] = {"yscale": "linear", "ylim": (0, None)}
_merge = partial(Panel, ylabel="processor seconds", yscale="log")
_PANELS = (
    _merge("features", f"(a) one merge\nr={_RANK}", "features d"),
    _merge("rank", f"(b) one merge\nd={_SIZE}", "rank r"),
    _merge("blocks", f"(c) one merge\nd={_SIZE}, r={_RANK}", "blocks k before", **_PLAIN),
    Panel("order", f"(d) order\nd={_FEATURES}, S={_NODES}", "rank r kept", "sine", yscale="log"),
)


def _tasks(settings: RunSettings) -> list[RunTask]:
    runs = settings.repetitions()
    timed = [RunTask(costs, {"few": settings.pick(9, 9, 2)}, r, 4.0, alone=True) for r in runs]
    return timed + [RunTask(orders, {}, run, 0.2) for run in runs]


MERGE = Experiment(
    name="002-merge",
    title="FPCA's merge: its cost, and whether the order of the nodes matters",
    about=about("002-merge", nodes=_NODES, rows=2 * _FEATURES, rank=_FEATURES),
    tasks=_tasks,
    draw=lambda numbers, _: panel_grid(numbers, _PANELS, _STYLES, columns=2, title="Merge_r"),
    claims=_claims,
    given=lambda _: [
        chosen("d, r, k", "2,000 to 32,000; 8 to 128; 4 to 32"),
        chosen("rows of (d)", f"Synth(1), {_NODES} nodes, d = {_FEATURES}"),
    ],
)
