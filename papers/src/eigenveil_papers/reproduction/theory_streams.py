"""Paper 002's lemma 2: the fewest rows of a block, and the sample complexity that it inherits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from eigenveil_papers.published import PublishedMoment, mod_sulq
from eigenveil_papers.published.federated_pca import streaming_mod_sulq
from eigenveil_papers.published.sulq import omega, smallest_batch
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import SERIES_STYLES, Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import NO_RUNS, chosen
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.rule import TIMES, ClaimPart, Effect, Measure, exactly
from eigenveil_papers.reproduction.tables import about, claims_of

_EPSILON, _DELTA = 1.0, 0.05
_SIZES = (16, 32, 64, 128, 256)
_SHARES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
_STRONG = 0.5  # the leading eigenvalue; the others share what is left of a row's unit norm
_LEVEL = 0.7  # of |<v1, v1^>|: far above a random direction's, which is 0.2 at D = 16
_DRAWS = 10  # of a run, whose mean is a point
_ROOM = 0.15  # of the exponent of D
_WANTED = (1e-3, 1e-2, 1e-1)

METHODS = ("mod-sulq", "iteration", "iteration-6")


def order(features: int) -> float:
    """Rows that MOD-SuLQ needs, up to a constant: ``D^1.5 sqrt(ln(D^2/delta)) / (epsilon gap)``."""
    gap = _STRONG - (1 - _STRONG) / (features - 1)
    return float(features**1.5 * math.sqrt(math.log(features**2 / _DELTA)) / (_EPSILON * gap))


def overlaps(rng: np.random.Generator, *, features: int, draws: int) -> Iterator[Point]:
    """|<v1, v1^>| over the rows, in units of the order: panels ``d{features}``."""
    spectrum = np.full(features, (1 - _STRONG) / (features - 1))
    spectrum[0] = _STRONG
    # D rows with this second moment stand for n: the noise is that of n
    block = np.diag(np.sqrt(features * spectrum))
    for share in _SHARES:
        rows = max(1, round(share * order(features)))
        moment = PublishedMoment(
            mean=np.diag(spectrum), rows=rows, row_bound=1.0, public_bound=True
        )
        mask = omega(_EPSILON, _DELTA, features, rows)
        found: dict[str, list[float]] = {method: [] for method in METHODS}
        for _ in range(draws):
            target = {"n_components": 1, "epsilon": _EPSILON, "delta": _DELTA}
            symmetric = mod_sulq(moment, random_state=rng, **target)  # type: ignore[arg-type]
            found["mod-sulq"].append(abs(float(symmetric.components[0, 0])))
            for method, rank in (("iteration", features), ("iteration-6", 6)):
                basis = streaming_mod_sulq(
                    block, rank=rank, deviation=mask, columns=max(1, features // 8), rng=rng
                ).basis
                found[method].append(abs(float(basis[0, 0])))
        for method, values in found.items():
            yield Point(f"d{features}", method, share, float(np.mean(values)))


def batches(
    rng: np.random.Generator, *, features: Sequence[int], wanted: Sequence[float]
) -> Iterator[Point]:
    """The mask's deviation at the block size of lemma 2(2), as printed and with its slip repaired.

    As printed, ``T = 1/omega_0 [4 D/eps sqrt(...) + sqrt(2/eps)]^-1``.
    """
    del rng
    for omega_0, size in product(wanted, features):
        printed = max(1, math.ceil(1 / (omega_0 * omega(_EPSILON, _DELTA, size, 1))))
        repaired = smallest_batch(omega_0, epsilon=_EPSILON, delta=_DELTA, features=size)
        for series, rows in (("printed", printed), ("repaired", repaired)):
            over = omega(_EPSILON, _DELTA, size, rows) / omega_0
            yield Point(f"batch-{omega_0:g}", series, float(size), over)


def _sizes(settings: RunSettings) -> tuple[int, ...]:
    return settings.pick(_SIZES, _SIZES[:4], (16, 64))


def _tasks(settings: RunSettings) -> list[RunTask]:
    sizes = _sizes(settings)
    tasks = [
        RunTask(overlaps, {"features": size, "draws": _DRAWS}, run, 0.1 + (size / 110) ** 2)
        for size in sizes
        for run in settings.repetitions()
    ]
    arguments = {"features": list(sizes), "wanted": list(_WANTED)}
    return [*tasks, RunTask(batches, arguments, cost=0.1)]


class Needed(NamedTuple):
    """Where a curve first reaches the level, in units of the order."""

    rows: float  # By interpolation; the first or the last position where only a bound is known
    # -1 where the curve is there from its first position on, 1 where it does not get there
    bound: int


def needed(x: FloatArray, values: FloatArray) -> Needed:
    above = np.flatnonzero(values >= _LEVEL)
    if not above.size:
        return Needed(float(x[-1]), 1)
    at = int(above[0])
    if at == 0:
        return Needed(float(x[0]), -1)
    (x0, x1), (y0, y1) = x[at - 1 : at + 1], values[at - 1 : at + 1]
    return Needed(float(x0 + (x1 - x0) * (_LEVEL - y0) / (y1 - y0)), 0)


def _by_size(numbers: Numbers) -> dict[int, str]:
    """The panels of cosines, by D."""
    return dict(sorted((int(panel[1:]), panel) for panel in numbers.panels if panel[0] == "d"))


def growth(numbers: Numbers, method: str) -> Effect | None:
    """The exponent of D with which the rows needed grow beyond :func:`order`, over the runs.

    A straight line through the logarithms, run by run. Where only a bound on the rows is known at
    some D, so it is of the exponent.
    """
    curves: dict[int, dict[int, Needed]] = {}
    for size, panel in _by_size(numbers).items():
        by_run: dict[int, list[tuple[float, float]]] = {}
        for x, runs in sorted(numbers.by_run(panel, method).items()):
            for run, value in runs.items():
                by_run.setdefault(run, []).append((x, value))
        for run, points in by_run.items():
            curves.setdefault(run, {})[size] = needed(*np.array(points).T)
    slopes, below, above = [], False, False
    for found in curves.values():
        if len(found) < 2:
            continue
        logs = np.log(sorted(found))
        weights = logs - logs.mean()
        each = [found[size] for size in sorted(found)]
        slopes.append(float(weights @ np.log([one.rows for one in each]) / (weights @ weights)))
        turns = [float(np.sign(w)) * one.bound for w, one in zip(weights, each, strict=True)]
        below, above = below or min(turns) < 0, above or max(turns) > 0
    return Effect.of("", np.array(slopes), below=below, above=above) if slopes else None


_EXPONENT = Measure(unit="", margin=0.0, digits=".2f")


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    parts, asides = {}, {}
    for method in METHODS:
        found, told = growth(numbers, method), []
        for size, panel in _by_size(numbers).items():
            curve = numbers.curve(panel, method)
            if curve.x.size:
                rows, bound = needed(curve.x, curve.mean)
                least = {-1: "less than ", 0: "", 1: "more than "}[bound]
                told.append(f"{least}{rows:.2f} at D = {size}")
        effects = () if found is None else (found,)
        parts[method] = [ClaimPart("exponent of D beyond the order", effects, "at most", _ROOM)]
        asides[method] = f"rows for |<v1, v1^>| = {_LEVEL:g} over the order: {', '.join(told)}"
    for series in ("printed", "repaired"):
        parts[series] = []
        for omega_0 in _WANTED:
            over = numbers.worst(f"batch-{omega_0:g}", series)
            logs = exactly({x: float(np.log(value)) for x, value in over.items()}, "D = ")
            parts[series].append(ClaimPart(f"omega_0 = {omega_0:g}", logs, "at most"))
    others = dict.fromkeys(METHODS, _EXPONENT)
    return claims_of("002-lemma2", numbers, TIMES, {}, parts, others=others, asides=asides)


_STYLES = {
    "mod-sulq": SERIES_STYLES["mod-sulq"],
    "iteration": SeriesStyle("iteration (7), all directions", "paper"),
    "iteration-6": SeriesStyle("iteration (7), 6 directions", "paper-2"),
    "printed": SeriesStyle("T as printed", "baseline-3"),
    "repaired": SeriesStyle("T repaired", "exact"),
}


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    del settings
    sizes, at = _by_size(numbers), f"ε={_EPSILON:g}, δ={_DELTA:g}"
    letters = iter("abcdefg")
    panels = [
        Panel(
            panel,
            f"({next(letters)}) D={size}, {at}",
            "rows over the order",
            "|<v1, v1^>|",
            ylim=(0.0, 1.05),
        )
        for size, panel in sizes.items()
    ]
    batch = f"({next(letters)}) mask at T rows\nomega_0={_WANTED[1]:g}, {at}"
    key, deviation = f"batch-{_WANTED[1]:g}", "deviation over omega_0"
    panels.append(Panel(key, batch, "features D", deviation, yscale="log"))
    return panel_grid(numbers, panels, _STYLES, title="Lemma 2 of Federated-PCA")


LEMMA2 = Experiment(
    name="002-lemma2",
    title="Lemma 2: block size and sample complexity",
    about=about(
        "002-lemma2", strong=_STRONG, epsilon=_EPSILON, delta=_DELTA, level=_LEVEL, room=_ROOM
    ),
    tasks=_tasks,
    draw=_draw,
    claims=_claims,
    given=lambda settings: [
        chosen("(epsilon, delta)", f"({_EPSILON:g}, {_DELTA:g})"),
        chosen("spectrum", f"{_STRONG:g}, the others alike, their sum 1"),
        chosen("features D", ", ".join(str(size) for size in _sizes(settings))),
        chosen("rows", f"{_SHARES[0]:g} to {_SHARES[-1]:g} of the order"),
        chosen("fits of a run", str(_DRAWS)),
    ],
    runs=NO_RUNS,
)
