"""Least squares that follow from a released covariance, beside AdaSSP at the same guarantee.

Both are told the exact centre and the 99 % quantiles of the lengths of the features' part and of
the target, which ours takes as one bound. Measured is the part of the target's variance that is
explained of the rows themselves. A last column has ours with nothing told.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.metrics import r2_score

from benchmarks.data import real_data
from benchmarks.report import Report
from benchmarks.rivals import adassp
from benchmarks.rivals.budget import Array, Budget
from eigenveil import NoisyResultWarning, PrivateCovariance
from eigenveil.errors import DataError

DELTA, EPSILONS, FITS, BOUND = 1e-5, (0.5, 1.0, 3.0), 20, 0.99
_SECTION = "Regression from a released covariance: explained part of the target's variance"


def _standard(rows: Array) -> Array:
    deviation = rows.std(axis=0)
    return np.asarray((rows - rows.mean(axis=0))[:, deviation > 0] / deviation[deviation > 0])


def tables() -> dict[str, Array]:
    """Standardised columns, the last one the target."""
    x, y = load_diabetes(return_X_y=True)
    found = {"diabetes": np.c_[x, y], "breast cancer": load_breast_cancer().data}
    data = real_data()
    for name in ("wine", "covtype", "motes volt"):
        if name in data:
            found[name] = data[name][0][:, :10] if name == "covtype" else data[name][0]
    return {name: _standard(rows) for name, rows in found.items()}


def explained(table: Array, coefficients: Array, intercept: float = 0.0) -> float:
    return float(r2_score(table[:, -1], table[:, :-1] @ coefficients + intercept))


def ours(table: Array, epsilon: float, seed: int, told: float | None) -> float:
    """Nothing follows where nothing is seen: then 0 is predicted."""
    model = PrivateCovariance(
        epsilon=epsilon,
        delta=DELTA,
        random_state=seed,
        row_bound=told,
        center=told is None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyResultWarning)
        model.fit(table)
    names = list(range(table.shape[1] - 1))
    try:
        found = model.regression(table.shape[1] - 1, names)
    except DataError:
        return 0.0
    return explained(table, found.coef_, found.intercept_)


def run(report: Report) -> None:
    for name, table in tables().items():
        least = np.linalg.lstsq(table[:, :-1], table[:, -1], rcond=None)[0]
        exact = explained(table, np.asarray(least, dtype=np.float64))
        lengths = np.linalg.norm(table[:, :-1], axis=1)
        bounds = (float(np.quantile(lengths, BOUND)), float(np.quantile(abs(table[:, -1]), BOUND)))
        joint = float(np.hypot(*bounds))
        for epsilon in EPSILONS:
            theirs, told, private = np.empty((3, FITS))
            for seed in range(FITS):
                budget = Budget.of(epsilon, DELTA, np.random.default_rng(seed))
                found = adassp.coefficients(table[:, :-1], table[:, -1], bounds, budget)
                theirs[seed] = explained(table, found)
                told[seed] = ours(table, epsilon, seed, joint)
                private[seed] = ours(table, epsilon, seed, None)
            case = f"{name}, {table.shape[0]:,} x {table.shape[1] - 1}, epsilon {epsilon:g}"
            said = (
                f"{case} (exact {exact:.3f}; {adassp.NAME} {_said(theirs)}; nothing told "
                f"{_said(private)}): ours {_said(told)}; ours less {adassp.NAME}"
            )
            report.add(_SECTION, said, float((told - theirs).mean()), 0.0)


def _said(found: Array) -> str:
    return f"{found.mean():.3f} ± {found.std(ddof=1) / np.sqrt(found.size):.3f}"
