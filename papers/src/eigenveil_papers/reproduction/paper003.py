"""Figures 1 and 2 of paper 003: captured energy against epsilon and against the number of rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from eigenveil_papers.published import wishart_sn
from eigenveil_papers.reproduction.data import unit_rows
from eigenveil_papers.reproduction.experiment import Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import SERIES_STYLES, Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import symmetric_noise, symmetric_noise_over_rows
from eigenveil_papers.reproduction.numbers import Measured, Numbers
from eigenveil_papers.reproduction.paper003_claims import figure1_claims, figure2_claims
from eigenveil_papers.reproduction.paper003_methods import (
    ADD_REMOVE,
    APPROXIMATE,
    DATA,
    DELTA,
    PURE,
    Problem,
    chosen,
    components_for,
    data_arguments,
    prepared_rows,
    raw_rows,
    subspace,
    title_of,
)
from eigenveil_papers.reproduction.tables import about

_EPSILONS: Mapping[str, tuple[float, ...]] = {
    "synthetic": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "covtype": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "mnist": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
}
_FEW: Mapping[str, tuple[float, ...]] = {
    "synthetic": (0.001, 0.01, 0.1, 1.0, 10.0),
    "covtype": (0.001, 0.01, 0.1, 1.0, 10.0),
    "mnist": (30.0,),
}
FIXED_EPSILON: Mapping[str, float] = {"synthetic": 0.1, "covtype": 0.1}
_WITNESS_EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


# Work


def energy_against_epsilon(
    rng: np.random.Generator,
    *,
    name: str,
    data: Mapping[str, Any],
    epsilons: Sequence[float],
    series: Sequence[str],
) -> Iterator[Point]:
    """One run of every method at every epsilon: per cent of the exact subspace's energy."""
    X = prepared_rows(data)
    problem = Problem(X, components_for(name, X.shape[1]), raw_rows(data))
    panel = f"{name}-epsilon"
    for epsilon in epsilons:
        yield Point(panel, "exact", epsilon, 100.0)
        for of in series:
            found = subspace(of, problem, epsilon=epsilon, delta=DELTA[name], rng=rng)
            yield Point(panel, of, epsilon, problem.captured(found))


def energy_against_rows(
    rng: np.random.Generator,
    *,
    name: str,
    data: Mapping[str, Any],
    counts: Sequence[int],
    epsilon: float,
    series: Sequence[str],
) -> Iterator[Point]:
    """One run of every method on nested random subsets, each prepared for itself."""
    X = prepared_rows(data)
    k = components_for(name, X.shape[1])
    order = rng.permutation(X.shape[0])
    panel = f"{name}-rows"
    for count in counts:
        problem = Problem(unit_rows(X[order[:count]]), k)
        yield Point(panel, "exact", float(count), 100.0)
        for of in series:
            found = subspace(of, problem, epsilon=epsilon, delta=DELTA[name], rng=rng)
            yield Point(panel, of, float(count), problem.captured(found))


def witness_frequency(
    rng: np.random.Generator, *, features: int, epsilons: Sequence[float], trials: int
) -> Iterator[Point]:
    """How often a release of SN shows that a row was not there.

    The rows are a fixed set and the zero row; the neighbour has a unit vector in its place. Where
    the release less the neighbour's moment has a negative eigenvalue, the neighbour cannot have
    made it: an event of chance 0 there, and here of the chance that is measured.
    """
    X = np.vstack([0.5 * np.eye(features), np.zeros(features)])
    unit = rng.standard_normal(features)
    unit /= np.linalg.norm(unit)
    impossible = X.T @ X + np.outer(unit, unit)
    for epsilon in epsilons:
        seen = 0
        for _ in range(trials):
            released = wishart_sn(
                X, n_components=1, epsilon=epsilon, row_bound=1.0, random_state=rng
            ).released
            assert released is not None
            seen += bool(np.linalg.eigvalsh(released - impossible)[0] < 0.0)
        yield Point("witness", "wishart-sn", epsilon, seen / trials)
        yield Point("witness", "formula", epsilon, -math.expm1(-epsilon))


def energy_shares(
    rng: np.random.Generator, *, name: str, data: Mapping[str, Any], counts: Sequence[int]
) -> Iterator[Point]:
    """Per cent of all energy in the leading k directions, of rows centred and not; no privacy."""
    del rng
    for series, rows in (("centred", prepared_rows(data)), ("as they are", raw_rows(data))):
        values = np.linalg.eigvalsh(rows.T @ rows)[::-1]
        held = 100.0 * np.cumsum(values) / np.sum(values)
        for count in counts:
            if count <= held.size:
                yield Point(f"{name}-share", series, float(count), float(held[count - 1]))
        fewest = float(np.searchsorted(held, 90.0) + 1)
        yield Point(f"{name}-share", f"fewest, {series}", 90.0, fewest)


# Tasks


def _tasks1(settings: RunSettings) -> list[RunTask]:
    tasks = []
    for name in chosen(settings):
        if name == "mnist" and settings.scale == "toy" and settings.data is None:
            continue
        # an eigendecomposition for each vector takes too long of MNIST
        series = [of for of in (*APPROXIMATE, *PURE) if (of, name) != ("ppca-exact", "mnist")]
        # MNIST is not in the paper's figure, and dear: the power method takes 532 rounds there
        times = {"mnist": (5, 1, 1), "covtype": (20, 3, 1), "synthetic": (20, 3, 2)}[name]
        data = {"name": name, "data": data_arguments(name, settings)}
        epsilons = list(settings.pick(_EPSILONS[name], _FEW[name], (0.1, 10.0)))
        arguments = {**data, "epsilons": epsilons, "series": [*series, ADD_REMOVE]}
        cost = {"synthetic": 11.0, "covtype": 4.0, "mnist": 120.0}[name]
        for run in settings.repetitions(*times):
            tasks.append(RunTask(energy_against_epsilon, arguments, run, cost))
        tasks.append(RunTask(energy_shares, {**data, "counts": [10, 50, 500]}, cost=0.5))
    epsilons = list(settings.pick(_WITNESS_EPSILONS, _WITNESS_EPSILONS, (0.5, 2.0)))
    trials = settings.pick(1000, 500, 400)
    witness: dict[str, Any] = {"features": 5, "epsilons": epsilons, "trials": trials}
    return tasks + [RunTask(witness_frequency, witness, run, 2.0) for run in settings.repetitions()]


def row_counts(rows: int, settings: RunSettings) -> list[int]:
    """From a sixtieth of the rows (200, where it is less) to all, evenly in the logarithm."""
    least = min(max(200.0, rows / 60), rows / 2)
    counts = np.geomspace(least, rows, settings.pick(8, 5, 2))
    return sorted({int(float(f"{count:.2g}")) for count in counts[:-1]} | {rows})


def _tasks2(settings: RunSettings) -> list[RunTask]:
    tasks = []
    for name in chosen(settings, ("synthetic", "covtype")):
        data = data_arguments(name, settings)
        counts = row_counts(prepared_rows(data).shape[0], settings)
        series = [of for of in (*APPROXIMATE, *PURE) if of != "eigenveil-all"]
        for run in settings.repetitions(10, 3, 1 if name == "covtype" else 2):
            arguments = {
                "name": name,
                "data": data,
                "counts": counts,
                "epsilon": FIXED_EPSILON[name] if settings.scale != "toy" else 1.0,
                "series": series,
            }
            cost = {"synthetic": 3.6, "covtype": 2.1}[name]
            tasks.append(RunTask(energy_against_rows, arguments, run, cost))
    return tasks


# Drawing

STYLES_003 = {
    "eigenveil": SERIES_STYLES["eigenveil"]._replace(label="Eigenveil"),
    "eigenveil-strict": SeriesStyle("Eigenveil, delta = 1e-6", "ours-sketch"),
    **{key: series_style for key, series_style in SERIES_STYLES.items() if key != "eigenveil"},
    "eigenveil-all": SERIES_STYLES["eigenveil-all"]._replace(role="ours-curator"),
    "analyze-gauss": SERIES_STYLES["analyze-gauss"]._replace(label="Analyze Gauss (delta > 0)"),
    "wishart-sn": SERIES_STYLES["wishart-sn"]._replace(
        label="SN as published (not private as claimed)"
    ),
    "formula": SeriesStyle("1 - exp(-epsilon)", "exact-2"),
}
"""Here Eigenveil is one curator: the data set is in one place."""


def _split(numbers: Numbers, axis: str) -> Numbers:
    """Each panel of a data set as two: methods that promise (epsilon, delta), and epsilon alone."""
    rows: list[Measured] = [row for row in numbers.measured if row.panel == "witness"]
    for kind, series in _KINDS.items():
        rows += [
            row._replace(panel=f"{row.panel}-{kind}")
            for row in numbers.measured
            if row.panel.endswith(f"-{axis}") and row.series in ("exact", *series)
        ]
    return Numbers(rows)


# AG beside the pure ones: the paper holds SN against it
_KINDS = {"delta": APPROXIMATE, "pure": (*PURE, "analyze-gauss")}


def _panel(name: str, axis: str, kind: str, settings: RunSettings) -> Panel:
    plain = title_of(name, settings)
    rows, features = raw_rows(data_arguments(name, settings)).shape
    promise = f"delta = {DELTA[name]:g}" if kind == "delta" else "delta = 0"
    if axis == "rows":
        promise = f"epsilon = {FIXED_EPSILON[name]:g}, {promise}"
    promise += f", k={components_for(name, features)}"
    promise += f", N={rows:,}" if axis == "epsilon" else ""
    return Panel(
        f"{name}-{axis}-{kind}",
        f"{plain}\n{promise}" if "," in plain else f"{plain}, {promise}",
        axis,
        "energy (% of not private)",
        letter={"synthetic": "a", "covtype": "b"}.get(name, ""),
        ylim=(0, 103),
    )


def _draw1(numbers: Numbers, settings: RunSettings) -> Figure:
    names = [name for name in chosen(settings) if f"{name}-epsilon" in numbers.panels]
    witness = Panel(
        "witness", "SN: releases that give a row away", "epsilon", "frequency", ylim=(0, 1.03)
    )
    panels = [_panel(name, "epsilon", kind, settings) for kind in _KINDS for name in names]
    title = "Captured energy against epsilon (paper 003, figure 1)"
    return panel_grid(_split(numbers, "epsilon"), [*panels, witness], STYLES_003, title=title)


def _draw2(numbers: Numbers, settings: RunSettings) -> Figure:
    names = chosen(settings, ("synthetic", "covtype"))
    panels = [_panel(name, "rows", kind, settings) for name in names for kind in _KINDS]
    title = "Captured energy against the number of rows (paper 003, figure 2)"
    return panel_grid(_split(numbers, "rows"), panels, STYLES_003, columns=2, title=title)


FIG1 = Experiment(
    name="003-fig1",
    title="Captured energy against epsilon, and the witness against SN",
    about=about("003-fig1"),
    datasets=DATA,
    tasks=_tasks1,
    draw=_draw1,
    claims=figure1_claims,
    given=symmetric_noise,
    runs="10",
)

FIG2 = Experiment(
    name="003-fig2",
    title="Captured energy against the number of rows",
    about=about("003-fig2"),
    datasets=("synthetic", "covtype"),
    tasks=_tasks2,
    draw=_draw2,
    claims=figure2_claims,
    given=symmetric_noise_over_rows,
    runs="10",
)
