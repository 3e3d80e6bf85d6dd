"""Figure 4 c of paper 002: time of trackers of one stream, and the memory that the paper claims."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg
from matplotlib.figure import Figure

from eigenveil.models.streaming.tracker import StreamingPCA
from eigenveil_papers.published.data import synth
from eigenveil_papers.published.federated_pca import FPCA
from eigenveil_papers.published.frequent_directions import FrequentDirections
from eigenveil_papers.published.spirit import Spirit
from eigenveil_papers.published.trackers import BlockPower, Grouse, Incremental
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import SERIES_STYLES, Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import tracker_costs
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.paper002 import BLOCK
from eigenveil_papers.reproduction.paper002_trackers import NAMES, RIVALS, Makers, even_handed, feed
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Measure, effects
from eigenveil_papers.reproduction.tables import about, claims_of

EPSILON, DELTA, COLUMNS = 1.0, 1e-6, 16
"""Of private FPCA, and the columns of a slice of its mask."""
_ROWS = 10_000  # that times are told of
_ORDER = ("fpca-open", "spirit", "grouse", "frequent-directions", "block-power")
PAPERS_TIMES = (1.0, 1.1, 3.0, 18.0, 29.0)
"""Of them over FPCA's at D = 1000, read off the paper's figure 4 c."""
_CODED = {key: f"{key}-coded" for key in ("frequent-directions", "block-power")}


class _PowerAsCoded(BlockPower):
    """As mitliag_pm.m has it: a D x D matrix is made of each row, and multiplied with Q."""

    def _step(self, block: FloatArray) -> FloatArray:
        step = np.zeros_like(self._basis)
        for row in block:
            step += (1.0 / len(block) * np.outer(row, row)) @ self._basis
        return step


class _DirectionsAsCoded(FrequentDirections):
    """As fd_rotate_sketch.m has it: all D right singular vectors of the buffer are made."""

    def _singular(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        left, values, right = scipy.linalg.svd(self._buffer[: self._filled], check_finite=False)
        return left, values, right[: len(values)]


def scripted(features: int, seed: int) -> Makers:
    """Trackers with the settings of the authors' test_execution_time: r = 10, blocks of r.

    The sketch has r rows, the power method's blocks D; SPIRIT is their program, from 3 directions
    on, with lambda 0.95 and a change at every second row. Two are there as their programs compute
    them, too.
    """
    rank = min(10, features)
    power: dict[str, Any] = {"n_components": rank, "block": features, "random_state": seed}
    spirit: dict[str, Any] = {"n_components": min(3, rank), "forgetting": 0.95, "hold_off": 2}
    return {
        "eigenveil": lambda: StreamingPCA(rank, block_size=rank),
        "fpca-open": lambda: FPCA(n_components=rank, block=rank, adapt=False),
        "frequent-directions": lambda: FrequentDirections(n_components=rank, sketch_rows=rank),
        "spirit": lambda: Spirit(adapt=True, as_coded=True, **spirit),
        "grouse": lambda: Grouse(n_components=rank, step=2.0, diminishing=True, random_state=seed),
        "block-power": lambda: BlockPower(**power),
        "incremental": lambda: Incremental(n_components=rank, block=rank),
        _CODED["frequent-directions"]: lambda: _DirectionsAsCoded(
            n_components=rank, sketch_rows=rank
        ),
        _CODED["block-power"]: lambda: _PowerAsCoded(**power),
    }


def speed(
    rng: np.random.Generator, *, features: Sequence[int], rows: int, coded: int
) -> Iterator[Point]:
    """Seconds of processor time for 10,000 rows of Synth(1), a block of 25 at a call.

    What is as coded reads the first ``coded`` rows only: its time of a row is always the same.
    ``order`` are the times over FPCA's with the most features, in the paper's order.
    """
    took: dict[str, float] = {}
    for count in features:
        X = synth(1.0, features=count, rows=rows, random_state=rng)
        X /= np.linalg.norm(X, axis=1).max()
        for panel, makers in (("even", even_handed(count, 0)[1]), ("script", scripted(count, 0))):
            for series, make in makers.items():
                part = X[:coded] if series in _CODED.values() else X
                start = time.process_time()
                feed(make(), part)
                took[series] = (time.process_time() - start) * _ROWS / len(part)
                yield Point(panel, series, count, took[series])
    for place, key in enumerate(_ORDER, start=1):
        yield Point("order", "here", place, took[key] / took["fpca-open"])
        yield Point("order", "coded", place, took[_CODED.get(key, key)] / took["fpca-open"])


def memory(
    rng: np.random.Generator, *, features: Sequence[int], rows: Sequence[int]
) -> Iterator[Point]:
    """Peak of the arrays that a tracker makes, in MiB: over D, and over the rows read.

    ``features`` with the fewest ``rows``, and ``rows`` with the fewest features. Of the mask that
    is made whole one block is enough, and at most 1000 features.
    """
    shapes = [(count, rows[0]) for count in features]
    shapes += [(features[0], length) for length in rows[1:]]
    for count, length in shapes:
        X = rng.standard_normal((length, count)) / np.arange(1, count + 1)
        rank, makers = even_handed(count, 0)
        for series, make in {**makers, **_private(rank, count)}.items():
            part = X[:BLOCK] if series == "fpca-whole" else X
            feed(make(), X[: 2 * BLOCK])  # what is imported or made once
            tracemalloc.start()
            try:
                feed(make(), part)
                used = tracemalloc.get_traced_memory()[1] / 2**20
            finally:
                tracemalloc.stop()
            if length == rows[0]:
                yield Point("memory", series, count, used)
            if count == features[0] and len(part) == length:
                yield Point("memory-rows", series, length, used)


def _private(rank: int, features: int) -> dict[str, Callable[[], Any]]:
    """Private FPCA, with the mask in slices, and where it can be with the whole mask at once."""
    target: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "random_state": 0}
    private = partial(FPCA, n_components=rank, block=BLOCK, adapt=False, **target)
    widths = {"fpca": COLUMNS} | ({"fpca-whole": features} if features <= 1000 else {})
    return {series: partial(private, columns=width) for series, width in widths.items()}


def _tasks(settings: RunSettings) -> Sequence[RunTask]:
    pick = settings.pick
    if settings.data not in (None, "synthetic"):
        return []
    arguments: dict[str, Any] = {
        "features": pick([200, 400, 600, 800, 1000], [200, 1000], [10, 50]),
        "rows": pick(_ROWS, 1000, 200),
        "coded": pick(2000, 1000, 200),
    }
    tasks = [
        RunTask(speed, arguments, run=run, cost=pick(60.0, 3.0, 0.3))
        for run in settings.repetitions(full=3, fast=2, toy=1)
    ]
    arguments = {
        "features": pick([100, 300, 1000, 3000], [100, 400], [50, 200]),
        "rows": pick([500, 5000], [200, 800], [200, 400]),
    }
    return [*tasks, RunTask(memory, arguments, cost=pick(30.0, 1.0, 0.2))]


# What is said

TIME = Measure(unit="times in time", margin=1.1, ratio=True, less=True)
GROWTH = Measure(unit="", margin=0.0, digits=".2f")
SPEEDS = {"script": "the scripts' settings", "even": "even-handed"}


def _claims(numbers: Numbers, settings: RunSettings) -> Sequence[Claim]:
    del settings
    grows = [
        ClaimPart(name, _slopes(numbers, panel, "fpca-open"), "at most", 1.2)
        for panel, name in SPEEDS.items()
    ]
    as_coded = [
        ClaimPart(
            f"{NAMES[key]}, {'as coded' if '-coded' in series else 'here'}",
            _slopes(numbers, "script", series),
            "at least" if "-coded" in series else "at most",
            1.5 if "-coded" in series else 1.2,
        )
        for key, coded in _CODED.items()
        for series in (coded, key)
    ]
    whole = _slopes(numbers, "memory", "fpca-whole", counted=True)
    largest = [
        f"{label} {curve.mean[-1]:.3g}"
        for key, label in (*_HELD.items(), ("spirit", "SPIRIT"), ("eigenveil", "ours"))
        if (curve := numbers.curve("memory", key)).x.size
    ]
    return claims_of(
        "002-fig4c",
        numbers,
        TIME,
        {"speeds": list(SPEEDS)},
        {
            "grows": grows,
            "order": [_order(numbers, "our programs", {}), _order(numbers, "as coded", _CODED)],
            "as coded": as_coded,
            "memory": [part for key in _HELD for part in _memory(numbers, key)],
            "whole mask": [ClaimPart("", whole, "at least", 1.8)],
        },
        others=dict.fromkeys(("grows", "as coded", "memory", "whole mask"), GROWTH),
        asides={
            "order": _beside(numbers),
            "memory": f"MiB at the largest D: {', '.join(largest)}" if largest else "",
        },
        columns=COLUMNS,
    )


def _order(numbers: Numbers, name: str, coded: Mapping[str, str]) -> ClaimPart:
    """Whether each method of the paper's order is faster than the next, with the most features."""
    found = [
        each[-1].named(f"{NAMES[one]} before {NAMES[two]}")
        for one, two in pairwise(_ORDER)
        if (each := effects(numbers, "script", coded.get(one, one), coded.get(two, two), TIME))
    ]
    return ClaimPart(name, tuple(found), "better")


def _beside(numbers: Numbers) -> str:
    """Each method's time over FPCA's at the largest D."""
    told = []
    for series, name in (("here", "here"), ("coded", "as coded")):
        times = numbers.curve("order", series).mean
        if len(times) == len(_ORDER):
            each = ", ".join(
                f"{NAMES[key]} {of:.2g}" for key, of in zip(_ORDER, times, strict=True)
            )
            told.append(f"times over FPCA's, {name}: {each}")
    return "; ".join(told)


_HELD = {"fpca-open": "without a mask", "fpca": "private"}


def _memory(numbers: Numbers, key: str) -> list[ClaimPart]:
    slopes = _slopes(numbers, "memory", key, counted=True)
    x, values = numbers.complete("memory-rows", key)
    longer: tuple[Effect, ...] = ()
    if len(x) > 1:
        # peaks are counted: of one run, for a second one has the same
        times = float(np.max(values[:, -1] / values[:, 0]))
        longer = (Effect(f"{x[-1] / x[0]:g} times the rows", times, 0.0),)
    return [
        ClaimPart(f"{_HELD[key]}: exponent of D", slopes, "at most", 1.2),
        ClaimPart(f"{_HELD[key]}: factor", longer, "at most", 1.2),
    ]


def _slopes(
    numbers: Numbers, panel: str, series: str, *, counted: bool = False
) -> tuple[Effect, ...]:
    """The exponent with which a cost grows over the positions, by run."""
    slopes = numbers.exponents(panel, series)
    if not slopes.size:
        return ()
    return (Effect("", float(slopes.max()), 0.0) if counted else Effect.of("", slopes),)


# The figure


STYLES: dict[str, SeriesStyle] = {
    "eigenveil": SeriesStyle("Eigenveil, StreamingPCA (no noise)", "ours"),
    "fpca-open": SeriesStyle("FPCA without mask", "paper"),
    **{key: SERIES_STYLES[key] for key in RIVALS},
    _CODED["frequent-directions"]: SeriesStyle("frequent directions as coded", "level-1"),
    _CODED["block-power"]: SeriesStyle("power method as coded", "level-2"),
    "fpca": SeriesStyle("FPCA, private, mask in slices", "repaired-2"),
    "fpca-whole": SeriesStyle("FPCA, private, whole mask", "repaired"),
    "here": SeriesStyle("times over FPCA's, here", "level-3"),
    "coded": SeriesStyle("times over FPCA's, D x D matrices as coded", "level-4"),
}
_SHORT = ("FPCA", "SPIRIT", "GROUSE", "FD", "PM")


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    def panel(key: str, title: str, xlabel: str, ylabel: str, **more: Any) -> Panel:
        return Panel(key, title, xlabel, ylabel, yscale="log", **more)

    most = settings.pick(1000, 1000, 50)
    places = np.arange(1.0, 1.0 + len(_ORDER))
    seconds = "seconds for 10,000 rows"
    rows = settings.pick(500, 200, 200)
    mask = f"ε = {EPSILON:g}, δ = {DELTA:g}, b = {BLOCK}"
    panels = [
        panel("script", "scripts' settings, r = 10", "D", seconds, letter="c"),
        panel(
            "order",
            f"the paper's order, D = {most}",
            "",
            "times FPCA's time",
            authors={"here": (places, PAPERS_TIMES)},
            ticks=dict(zip(places.tolist(), _SHORT, strict=True)),
        ),
        panel("even", "even-handed, r = 6, b = 25", "D", seconds),
        panel("memory", f"memory of arrays, {rows} rows\nprivate: {mask}", "D", "MiB at the peak"),
    ]
    title = "Time of trackers, and their memory (not drawn in the paper)"
    return panel_grid(numbers, panels, STYLES, columns=2, title=title)


FIG4C = Experiment(
    name="002-fig4c",
    title="Time and memory of trackers of a stream",
    about=about("002-fig4c"),
    tasks=_tasks,
    draw=_draw,
    claims=_claims,
    given=tracker_costs,
    runs="3",
)
