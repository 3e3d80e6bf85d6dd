"""Components of tables with missing entries (tables.md, section 3)."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import real_data
from benchmarks.report import Report
from eigenveil import NoisyResultWarning, PrivatePCA
from eigenveil.linalg.subspace import captured_energy

Array = NDArray[np.float64]

FITS, COMPONENTS = 20, 5


def energy(rows: Array, share: float, missing: str, *, unequal: bool) -> float:
    """Median captured energy of the exact components of the whole rows."""
    exact, found = np.cov(rows.T), []
    for seed in range(FITS):
        rng = np.random.default_rng(seed)
        spread = share if unequal else 0.0
        shares = rng.uniform(share - spread, share + spread, rows.shape[1])
        holed = np.where(rng.random(rows.shape) < shares, np.nan, rows)
        model = PrivatePCA(COMPONENTS, epsilon=1.0, delta=1e-5, missing=missing).fit(holed)
        found.append(captured_energy(exact, model.components_))
    return float(np.median(found))


def run(report: Report) -> None:
    """The table of tables.md, section 3."""
    section = (
        f"Missing entries: captured energy of {COMPONENTS} components (median of {FITS}, epsilon = "
        "1, delta = 1e-5, everything private)"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyResultWarning)
        data = real_data()
        for name, wanted, unequal in (("covtype", 0.90, True), ("digits", 0.94, False)):
            if name not in data:
                continue
            rows = data[name][0]
            if name == "covtype":
                rows = rows[:, rows.std(axis=0) > 0]
                rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
            how = "unequally" if unequal else "alike"
            for share in (0.2, 0.4):
                what = f"{name}, {share:.0%} missing {how}"
                zero = energy(rows, share, "zero", unequal=unequal)
                report.note(section, f"{what}, taken for zero", f"{zero:.3f}")
                best = energy(rows, share, "independent", unequal=unequal)
                if share == 0.2:
                    report.add(section, f"{what}, corrected", best, wanted)
                else:
                    report.note(section, f"{what}, corrected", f"{best:.3f}")
