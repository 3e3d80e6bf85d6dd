"""What units cost in time, and what a person with many rows moves: tables.md, section 1."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import power_law
from benchmarks.report import Report
from benchmarks.speed import paired
from eigenveil import PrivatePCA

Array = NDArray[np.float64]

ROWS, FEATURES, UNITS, COMPONENTS = 60000, 784, 6000, 50
TIME = "Persons: time of a fit, 60000 x 784 float32, 6000 units (median of pairs)"
MOVED = "Persons: angle of the first component when a person with 3000 rows goes, eps = 1"
FITS, PAIRS = 60, 5


def run(report: Report) -> None:
    """Time, then movement."""
    _time(report)
    _movement(report)


def _time(report: Report) -> None:
    rows = power_law(ROWS, FEATURES, 1.0, dtype=np.float32) + np.float32(1.0)
    ids = np.random.default_rng(1).integers(0, UNITS, ROWS)
    texts = np.array([f"patient {number}" for number in range(UNITS)])[ids]

    def fit(rows: Any, groups: Any = None, precision: str = "single") -> None:
        model = PrivatePCA(COMPONENTS, epsilon=1.0, delta=1e-5, precision=precision)
        model.fit(rows, groups=groups)

    fit(rows[:2000])  # what is loaded at the first call
    for name, groups in (("numbers", ids), ("texts", texts)):
        own, plain, ratio = paired(partial(fit, rows, groups), partial(fit, rows), pairs=PAIRS)
        report.add(TIME, f"units by {name}: times the fit without", ratio, 1.6, at_most=True)
        report.note(TIME, f"units by {name}: seconds, and without", f"{own:.3g}, {plain:.3g}")
    double = partial(fit, rows.astype(np.float64), precision="double")
    own, plain, ratio = paired(partial(double, ids), double, pairs=PAIRS)
    report.add(TIME, "rows stored in double precision: times", ratio, 1.6, at_most=True)
    report.note(TIME, "the same: seconds, and without", f"{own:.3g}, {plain:.3g}")


def persons() -> tuple[Array, NDArray[np.int64]]:
    """2000 persons with 1 to 50 rows each, and one, the last, with 3000 in a direction of its own.

    Twenty columns, one direction above the others.
    """
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(2000), rng.integers(1, 51, 2000))
    rows = rng.standard_normal((ids.size, 20))
    rows[:, 0] *= 1.45
    rows = np.concatenate([rows, 0.1 * rng.standard_normal((3000, 20))])
    rows[-3000:, 1] += 9.0 * rng.choice([-1, 1], 3000)
    return rows, np.append(ids, np.full(3000, 2000))


def _movement(report: Report) -> None:
    """Angles between first components, in degrees: of fits with and without, and of fits alike."""
    rows, ids = persons()
    there = ids < 2000

    def firsts(*, units: bool, without: bool) -> Array:
        which = there if without else np.ones_like(there)
        found = []
        for _ in range(FITS):
            model = PrivatePCA(2, epsilon=1.0, delta=1e-5)
            model.fit(rows[which], groups=ids[which] if units else None)
            found.append(model.components_[0])
        return np.array(found)

    def angles(one: Array, other: Array) -> Array:
        return np.asarray(np.degrees(np.arccos(np.clip(np.abs(one @ other.T), 0.0, 1.0))))

    for name, units in (("rows protected", False), ("persons protected", True)):
        one, other = (firsts(units=units, without=without) for without in (False, True))
        across = float(np.median(angles(one, other)))
        alike = [angles(each, each)[np.triu_indices(FITS, 1)] for each in (one, other)]
        within = float(np.median(np.concatenate(alike)))
        report.note(MOVED, f"{name}: between fits of the same rows, median", f"{within:.3g}")
        what = f"{name}: between fits with and without"
        if units:
            report.add(MOVED, f"{what}, times that", across / within, 1.1, at_most=True)
        else:
            report.note(MOVED, f"{what}, times that", f"{across / within:.4g}")
