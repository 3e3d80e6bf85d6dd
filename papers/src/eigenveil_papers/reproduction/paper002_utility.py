"""Figure 3 of paper 002: the first direction's accuracy against epsilon, for power-law spectra."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.models.streaming.private import PrivateStreamingPCA
from eigenveil_papers.published.data import synth
from eigenveil_papers.published.federated_pca import FPCA
from eigenveil_papers.published.sulq import mod_sulq, omega
from eigenveil_papers.reproduction.experiment import Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import (
    SERIES_STYLES,
    AxisScale,
    Panel,
    SeriesStyle,
    panel_grid,
)
from eigenveil_papers.reproduction.given import power_laws
from eigenveil_papers.reproduction.numbers import FloatArray, Measured, Numbers
from eigenveil_papers.reproduction.paper002 import (
    BLOCK,
    RANK,
    alignment,
    fpca_as_coded,
    mod_sulq_as_coded,
    needed_deviation,
    random_alignment,
)
from eigenveil_papers.reproduction.paper002_utility_claims import (
    DELTA,
    FEATURES,
    FIRST_BATCH,
    METHODS,
    OPEN,
    ROWS,
    SMALL_DELTA,
    claims,
)
from eigenveil_papers.reproduction.tables import about

ALPHAS = (0.01, 0.1, 0.5, 1.0)
_PAPERS = (
    *(0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.2, 1.6),
    *(2.0, 2.4, 2.8, 3.2, 3.6, 4.0),
)  # of the 40 from 0.1 to 4
_SHOWN = frozenset((0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 2.4, 3.2, 4.0))  # of them, on log scales
_FEW = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
_BELOW = (0.001, 0.003, 0.01, 0.03)  # ours needs less than the paper's smallest epsilon
_ABOVE = (8.0, 16.0, 32.0, 64.0)  # for the ratio at the small delta

STYLES: dict[str, SeriesStyle] = {
    "eigenveil": SeriesStyle("Eigenveil, same rows", "ours"),
    "eigenveil-unit": SeriesStyle("Eigenveil, rows divided by their own norms", "ours-2"),
    "fpca": SeriesStyle("FPCA as in the text", "paper"),
    "fpca-as-coded": SeriesStyle("FPCA as coded (mask of the stream's length)", "paper-2"),
    "mod-sulq": SeriesStyle("MOD-SuLQ, symmetric", "baseline"),
    "mod-sulq-asymmetric": SeriesStyle("MOD-SuLQ, not symmetric (FPCA of one block)", "baseline-3"),
    "mod-sulq-as-coded": SeriesStyle("MOD-SuLQ as coded (half without noise)", "baseline-4"),
    "fpca-first-batch": SeriesStyle(f"FPCA, first batch of {FIRST_BATCH} rows", "repaired"),
    "mod-sulq-asymmetric-as-coded": SeriesStyle(
        "MOD-SuLQ, not symmetric, as coded (eq. 6)", "repaired-2"
    ),
    "needed": SeriesStyle("exact Gaussian mechanism", "exact"),
    "random": SERIES_STYLES["random"],
    "alpha=0.01": SeriesStyle("alpha = 0.01", "level-1"),
    "alpha=0.1": SeriesStyle("alpha = 0.1", "level-2"),
    "alpha=0.5": SeriesStyle("alpha = 0.5", "level-3"),
    "alpha=1": SeriesStyle("alpha = 1", "level-4"),
}


def utility(
    rng: np.random.Generator,
    *,
    alpha: float,
    delta: float,
    features: int,
    rows: int,
    epsilons: Sequence[float],
    ours: Sequence[float],
    methods: Sequence[str],
    panel: str,
) -> Iterator[Point]:
    """q_A of every method at every epsilon on one draw of Synth(alpha); ours at ``ours`` too.

    Rows are divided by the largest norm found: with the singular values that Synth says, norms are
    about 1/sqrt(n), and masks for norms of 1 would hide everything.
    """
    X = synth(alpha, features=features, rows=rows, random_state=rng)
    X /= math.sqrt(float(np.max(np.einsum("nd,nd->n", X, X))))
    first = leading_eigenpairs(X.T @ X, 1)[1][0]
    for epsilon in sorted({*epsilons, *ours}):
        for method in methods:
            if epsilon in epsilons or method.startswith("eigenveil"):
                found = _components(method, X, epsilon=epsilon, delta=delta, rng=rng)
                yield Point(panel, method, epsilon, alignment(first, found))


def _components(
    method: str, X: FloatArray, *, epsilon: float, delta: float, rng: np.random.Generator
) -> FloatArray:
    target: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "random_state": int(rng.integers(2**32)),
    }
    features = X.shape[1]
    match method:
        case "fpca" | "fpca-first-batch":
            whole = omega(epsilon, delta, features, FIRST_BATCH)
            tracker = FPCA(
                omega_0=whole if method == "fpca-first-batch" else None,
                n_components=RANK,
                block=BLOCK,
                columns=features,
                adapt=False,
                row_bound=1.0,
                **target,
            )
            return tracker.partial_fit(X).components
        case "fpca-as-coded":
            return fpca_as_coded(X, epsilon=epsilon, delta=delta, columns=features, rng=rng)
        case "mod-sulq" | "mod-sulq-asymmetric":
            symmetric = method == "mod-sulq"
            return mod_sulq(
                X, n_components=1, symmetric=symmetric, row_bound=1.0, **target
            ).components
        case "mod-sulq-as-coded" | "mod-sulq-asymmetric-as-coded":
            form = {"symmetric": method == "mod-sulq-as-coded"}
            return mod_sulq_as_coded(X, epsilon=epsilon, delta=delta, rng=rng, **form)
        case _:
            norm = 1.0 if method == "eigenveil" else "unit"
            stream = PrivateStreamingPCA(1, adjacency="replace-one", row_norm=norm, **target)
            return np.asarray(stream.fit(X).components_)


def noise(
    rng: np.random.Generator, *, features: int, rows: int, delta: float, epsilons: Sequence[float]
) -> Iterator[Point]:
    """Deviation of the noise on a second moment, measured, and as computed for the others.

    That of the published masks is measured off the diagonal of what is released; that of ours is
    read from the certificate (of an entry of the diagonal; off it, it is smaller by sqrt(2)).
    """
    X = synth(1.0, features=features, rows=rows, random_state=rng)
    X /= math.sqrt(float(np.max(np.einsum("nd,nd->n", X, X))))
    moment = X.T @ X / rows
    above = np.triu_indices(features, 1)
    for epsilon in epsilons:
        target: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
        for method in ("mod-sulq", "mod-sulq-asymmetric"):
            found = mod_sulq(
                X,
                n_components=1,
                symmetric=method == "mod-sulq",
                row_bound=1.0,
                random_state=rng,
                **target,
            )
            assert found.released is not None
            measured = float(np.sqrt(np.mean((found.released - moment)[above] ** 2)))
            yield Point("noise", method, epsilon, measured)
        stream = PrivateStreamingPCA(
            1,
            adjacency="replace-one",
            row_norm=1.0,
            random_state=int(rng.integers(2**32)),
            **target,
        ).fit(X)
        scale = stream.certificate_.releases[0].noise.scale
        yield Point("noise", "eigenveil", epsilon, scale / rows)
        yield Point("noise", "fpca", epsilon, omega(epsilon, delta, features, BLOCK))
        yield Point("noise", "needed", epsilon, needed_deviation(epsilon, delta, rows))


def _tasks(settings: RunSettings) -> Sequence[RunTask]:
    epsilons = list(settings.pick(_PAPERS, _FEW, (0.1, 1.0, 4.0)))
    rows = settings.pick(ROWS, ROWS, 2000)
    shape = {"features": FEATURES, "rows": rows}
    of_paper = {"delta": DELTA, "epsilons": epsilons, "ours": [*_BELOW, OPEN]}
    of_paper["methods"] = list(METHODS)
    of_small: dict[str, Any] = {"delta": SMALL_DELTA, "epsilons": [*_FEW, *_ABOVE]}
    of_small |= {"ours": list(_BELOW), "methods": ["mod-sulq", "mod-sulq-asymmetric", "eigenveil"]}
    cost = 0.155 * len(epsilons) * rows / ROWS
    drawn = [("alpha=", of_paper, cost, a) for a in settings.pick(ALPHAS, ALPHAS, (0.1, 1.0))]
    drawn += [("small-delta-", of_small, 0.15, alpha) for alpha in (0.1, 1.0)]
    tasks = []
    for run in settings.repetitions(full=30, fast=4, toy=2):
        for panel, arguments, seconds, alpha in drawn:
            here = shape | arguments | {"alpha": alpha, "panel": f"{panel}{alpha:g}"}
            tasks.append(RunTask(utility, here, run, seconds))
        arguments = shape | {"delta": DELTA, "epsilons": list(_FEW)}
        tasks.append(RunTask(noise, arguments, run, 0.1))
    return tasks


# The figure


_BY_METHOD = {
    "fpca": "(a) FPCA as in the text",
    "mod-sulq-asymmetric": "(b) MOD-SuLQ, not symmetric",
    "mod-sulq": "(c) MOD-SuLQ, symmetric",
    "eigenveil": "Eigenveil, same rows",
    "fpca-as-coded": "(a) FPCA as coded",
    "mod-sulq-asymmetric-as-coded": "(b) MOD-SuLQ, not symmetric, as coded",
}


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    del settings
    alphas, small = (
        [panel for panel in numbers.panels if panel.startswith(start)]
        for start in ("alpha=", "small-delta-")
    )
    drawn = [row for row in numbers.measured if row.x != OPEN]
    again = [
        row._replace(panel=f"of-{row.series}", series=row.panel)
        for row in drawn
        if row.panel in alphas and row.series in _BY_METHOD and row.x >= min(_PAPERS)
    ]
    if {row.x for row in drawn if row.panel in alphas} >= set(_PAPERS):
        shown = _SHOWN | set(_BELOW)
        drawn = [row for row in drawn if row.panel not in alphas or row.x in shown]
    for panel in [*alphas, *small, *[f"of-{method}" for method in _BY_METHOD]]:
        positions = sorted({row.x for row in [*drawn, *again] if row.panel == panel})
        level = random_alignment(FEATURES)
        again += [Measured(panel, "random", x, level, 0) for x in [*positions[:1], *positions[-1:]]]
    methods = [_q(f"of-{method}", title, "linear") for method, title in _BY_METHOD.items()]
    noise = f"noise on the second moment\nD={FEATURES}, N={ROWS}, delta={DELTA:g}"
    panels = [
        *methods[:4],
        *[_q(panel, f"all methods, {panel.replace('=', ' = ')}") for panel in alphas],
        *methods[4:],
        *[_q(p, f"alpha = {p.rpartition('-')[2]}, delta = {SMALL_DELTA:g}") for p in small],
        Panel("noise", noise, "epsilon", "deviation of an entry", yscale="log"),
    ]
    title = "Accuracy of the first direction"
    return panel_grid(Numbers([*drawn, *again]), panels, STYLES, title=title)


def _q(key: str, title: str, xscale: AxisScale = "log") -> Panel:
    delta = "" if "delta" in title else f", delta={DELTA:g}"
    title = f"{title}\nD={FEATURES}, N={ROWS}{delta}"
    return Panel(key, title, "epsilon", "q_A", xscale=xscale, ylim=(0.0, 1.04))


FIG3 = Experiment(
    name="002-fig3",
    title="Accuracy of the first direction against epsilon and the spectrum",
    about=about("002-fig3"),
    tasks=_tasks,
    draw=_draw,
    claims=claims,
    given=power_laws,
)
