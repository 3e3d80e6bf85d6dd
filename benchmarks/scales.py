"""Components of correlation matrices: columns in different units (tables.md, section 2)."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from benchmarks.data import real_data
from benchmarks.report import Report
from eigenveil import NoisyResultWarning, PrivatePCA
from eigenveil.linalg.subspace import captured_energy
from eigenveil.moments.source import ArrayRows

Array = NDArray[np.float64]

FITS, COMPONENTS = 20, 5
# Covtype: ten numbers, and two categories of 4 and 40 levels.
VARIABLES = np.array([*range(10), *[10] * 4, *[11] * 40], dtype=np.float64)


def energy(rows: Array, *, variables: Array | None = None, **options: Any) -> tuple[float, float]:
    """Median captured energy of the correlation matrix's components, and columns left out."""
    some = rows.std(axis=0) > 0  # constant columns have no correlations
    exact = np.asarray(np.corrcoef(rows[:, some].T))
    found, left_out = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyResultWarning)
        for _ in range(FITS):
            source = ArrayRows(rows)
            if variables is not None:
                source.variables = variables
            model = PrivatePCA(COMPONENTS, delta=1e-5, **options).fit_rows(source)
            found.append(captured_energy(exact, model.components_[:, some]))
            left_out.append(np.count_nonzero(model.unscaled_))
    return float(np.median(found)), float(np.mean(left_out))


def run(report: Report) -> None:
    """The tables of tables.md, section 2."""
    section = (
        f"Captured energy of the first {COMPONENTS} components of the correlation matrix (median "
        f"of {FITS}, delta = 1e-5, everything private)"
    )

    def add(what: str, rows: Array, wanted: float | None, **options: Any) -> None:
        found, left_out = energy(rows, **options)
        what = f"{what}, epsilon = {options['epsilon']} (columns left out: {left_out:.1f})"
        if wanted is None:
            report.note(section, what, f"{found:.3f}")
        else:
            report.add(section, what, found, wanted)

    cancer = load_breast_cancer().data
    near = np.quantile(cancer, [0.01, 0.99], axis=0).T
    ends = np.column_stack([cancer.min(axis=0), cancer.max(axis=0)])
    data = real_data()
    private: dict[str, Any] = {"scale": "private"}
    for name, title in (("covtype", "covtype 15000 x 54"), ("wine", "wine 1599 x 11")):
        if name not in data:
            report.note(section, title, "skipped: ../shared/data is absent")
            continue
        rows = data[name][0]
        add(f"{title}, raw columns", rows, None, epsilon=1.0)
        add(f"{title}, private scales", rows, 0.91, epsilon=1.0, **private)
        if name == "covtype":
            add(
                f"{title}, private scales, categories known",
                rows,
                0.91,
                epsilon=1.0,
                variables=VARIABLES,
                **private,
            )
    add("breast cancer 569 x 30, raw columns", cancer, None, epsilon=1.0)
    add("breast cancer, private scales", cancer, 0.87, epsilon=3.0, **private)
    add("breast cancer, private scales", cancer, None, epsilon=1.0, **private)
    inside = "breast cancer, private scales within public ranges"
    add(f"{inside} (1st to 99th percentile)", cancer, 0.92, epsilon=1.0, ranges=near, **private)
    add(f"{inside} (smallest to largest)", cancer, None, epsilon=1.0, ranges=ends, **private)
    _time(report)


def _time(report: Report) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60_000, 784), dtype=np.float32)
    rows *= np.linspace(1.0, 3.0, 784, dtype=np.float32)
    seconds: dict[str, list[float]] = {"plain": [], "private": []}
    for _ in range(3):
        for name, options in (("plain", {}), ("private", {"scale": "private"})):
            start = time.process_time()
            PrivatePCA(50, precision="single", **options).fit(rows)  # type: ignore[arg-type]
            seconds[name].append(time.process_time() - start)
    ratio = min(seconds["private"]) / min(seconds["plain"])
    what = "60000 x 784, K=50: processor time with private scales over that without"
    report.add("Time of private scales", what, ratio, 1.6, at_most=True)
