"""Captured energy of private fits against the exact subspace, and against the published method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import power_law, real_data, second_moment
from benchmarks.report import Report
from eigenveil import PrivacyError, PrivatePCA
from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.linalg.subspace import captured_energy
from eigenveil.models.options import Options
from eigenveil.models.pca.plan import make_plan
from eigenveil.planning.predict import predict
from eigenveil.privacy import classic_sigma


def runs(rows: NDArray[Any]) -> int:
    """Runs to average: more where a single one says less and costs less."""
    return 5 if rows.size > 2_000_000 else 30


def energy(rows: NDArray[Any], components: int, *, exact_center: bool, **options: Any) -> float:
    """Mean captured energy over fresh runs; NaN when a run refuses for too few rows."""
    moment = second_moment(rows)
    data = rows - rows.mean(axis=0) if exact_center else rows
    found = []
    for _ in range(runs(rows)):
        try:
            model = PrivatePCA(components, **options).fit(data)
        except PrivacyError:
            return float("nan")
        found.append(captured_energy(moment, model.components_))
    return float(np.mean(found))


def published_energy(rows: NDArray[Any], components: int, *, epsilon: float, delta: float) -> float:
    """Analyze Gauss as published: exact mean, largest norm, classic calibration, equal triangle."""
    rng = np.random.default_rng()
    moment = second_moment(rows)
    largest = float(np.linalg.norm(rows - rows.mean(axis=0), axis=1).max())
    sigma = classic_sigma(1.0, epsilon, delta, reproduction=True)
    found = []
    for _ in range(runs(rows)):
        upper = np.triu(rng.normal(0.0, sigma, moment.shape))
        noisy = moment / largest**2 + upper + np.triu(upper, 1).T
        found.append(captured_energy(moment, leading_eigenpairs(noisy, components)[1]))
    return float(np.mean(found))


def run(report: Report) -> None:
    """All numbers of utility."""
    data = real_data()
    _exactly_centered(report, data)
    _whole_pipeline(report, data)
    _pure(report, data)
    _auto(report, data)
    _predictions(report)


def _exactly_centered(report: Report, data: dict[str, tuple[NDArray[np.float64], int]]) -> None:
    section = "Utility, exactly centred rows (center=False, delta = 1e-2)"
    if "mnist" not in data:
        report.note(section, "MNIST", "skipped: ../shared/data is absent")
        return
    rows, k = data["mnist"]
    for epsilon, adjacency, wanted in (
        (0.1, "add-remove", 0.57),
        (1.0, "add-remove", 0.89),
        (1.0, "replace-one", 0.84),
    ):
        measured = energy(
            rows,
            k,
            exact_center=True,
            center=False,
            epsilon=epsilon,
            delta=1e-2,
            adjacency=adjacency,
        )
        report.add(section, f"MNIST, K={k}, epsilon={epsilon}, {adjacency}", measured, wanted)
    options: dict[str, Any] = {"exact_center": True, "center": False, "epsilon": 1.0, "delta": 1e-2}
    measured = energy(rows, k, adjacency="replace-one", mechanism="gaussian", **options)
    what = 'the last with mechanism="gaussian", as MNIST panels of the papers\' pages have it'
    report.note(section, what, f"{measured:.4g}")


def _whole_pipeline(report: Report, data: dict[str, tuple[NDArray[np.float64], int]]) -> None:
    section = "Utility, everything private (delta = 1e-5)"
    for name, epsilon, wanted in (
        ("mnist", 1.0, 0.76),
        ("digits", 1.0, 0.93),
        ("covtype", 0.1, 0.98),
    ):
        if name not in data:
            report.note(section, name, "skipped: ../shared/data is absent")
            continue
        rows, k = data[name]
        measured = energy(rows, k, exact_center=False, epsilon=epsilon, delta=1e-5)
        report.add(section, f"{name}, K={k}, epsilon={epsilon}", measured, wanted)


def _pure(report: Report, data: dict[str, tuple[NDArray[np.float64], int]]) -> None:
    section = "Utility, pure epsilon (delta = 0)"
    rows, k = data["digits"]
    options: dict[str, Any] = {"exact_center": True, "center": False, "delta": 0.0}
    report.add(section, "digits, K=10, epsilon=1", energy(rows, k, epsilon=1.0, **options), 0.80)
    law = power_law(60_000, 200, 1.0)
    for epsilon, wanted in ((0.1, 0.70), (1.0, 0.94)):
        what = f"60000 x 200, spectrum 1/j, K=50, epsilon={epsilon}"
        report.add(section, what, energy(law, 50, epsilon=epsilon, **options), wanted)
    for mechanism in ("wishart", "vector", "bingham"):
        measured = energy(rows, k, exact_center=False, delta=0.0, epsilon=1.0, mechanism=mechanism)
        report.note(section, f"digits, everything private, {mechanism}", f"{measured:.3f}")


def _auto(report: Report, data: dict[str, tuple[NDArray[np.float64], int]]) -> None:
    for delta in (1e-5, 1e-2):
        section = f"row_norm='auto' less the better of 'unit' and published AG (delta = {delta:g})"
        for name, (rows, k) in data.items():
            for epsilon in (0.1, 1.0, 4.0, 10.0):
                options: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
                centered = {"exact_center": True, "center": False, **options}
                unit = energy(rows, k, **centered)
                auto = energy(rows, k, row_norm="auto", **centered)
                published = published_energy(rows, k, **options)
                what = (
                    f"{name}, epsilon={epsilon:g}: auto {auto:.3f}, unit {unit:.3f}, "
                    f"published {published:.3f}"
                )
                report.add(section, what, auto - max(unit, published), -0.01)


def _predictions(report: Report) -> None:
    section = "Plan: predicted less measured captured energy"
    for rows_count, features, k in ((60_000, 784, 50), (20_000, 200, 20)):
        for exponent in (0.5, 1.0, 2.0):
            rows = power_law(rows_count, features, exponent)
            for epsilon, delta in ((0.3, 1e-6), (1.0, 1e-6), (1.0, 0.0)):
                options = Options(
                    "pca", "table", {"n_components": k, "epsilon": epsilon, "delta": delta}
                )
                plan = make_plan(options, features=features)
                spectrum = np.arange(1.0, features + 1.0) ** -exponent
                found = predict(plan, spectrum, rows=rows_count).captured_energy
                measured = energy(rows, k, exact_center=False, epsilon=epsilon, delta=delta)
                what = (
                    f"{rows_count} x {features}, power {exponent}, epsilon={epsilon}, "
                    f"delta={delta:g}: measured {measured:.3f}"
                )
                if found is None:
                    report.note(section, what, "not predicted")
                else:
                    report.add(section, what, abs(found - measured), 0.03, at_most=True)
