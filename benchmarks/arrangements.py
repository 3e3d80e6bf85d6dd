"""Mixtures of any arrangement: groups on a line, in a plane, on a circle, beside scikit-learn's."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from benchmarks.report import Report
from eigenveil import PrivateGaussianMixture

_CIRCLE = 4.0 * np.exp(2j * np.pi * np.arange(6) / 6)
MEANS: dict[str, NDArray[np.float64]] = {
    "line, D=4 K=3": np.pad([[-3.0], [0.0], [3.0]], [(0, 0), (0, 3)]),
    "line, D=10 K=3": np.outer([-3.0, 0.0, 3.0], np.full(10, 10**-0.5)),
    "plane, D=5 K=6": np.pad([[a, b] for a in (-4, 0, 4) for b in (-2.0, 2)], [(0, 0), (0, 3)]),
    "circle, D=2 K=6": np.stack([_CIRCLE.real, _CIRCLE.imag], axis=1),
}
# Wanted is this part of scikit-learn's adjusted Rand index, where a number is wanted.
_PART = 0.9
_FITS = 5
# Rows and epsilon of what nothing is wanted of.
_LESS = ((20_000, 0.3), (5000, 1.0), (2000, 1.0))


def run(report: Report) -> None:
    """Adjusted Rand indices with the number given, and how often "auto" finds it."""
    section = "Mixtures of any arrangement: adjusted Rand index, everything private, delta = 1e-5"
    for name in MEANS:
        exact = _exact(name, 20_000)
        report.note(
            section, f"{name}, 20000 rows: scikit-learn's spherical mixture", f"{exact:.3f}"
        )
        for kind in ("spherical", "tied", "diag", "full"):
            found, right = _private(name, 20_000, 1.0, kind)
            what = f"{name}, 20000 rows, epsilon=1, {kind} (auto: {right} of {_FITS})"
            report.add(section, what, found, _PART * exact)
        for rows, epsilon in _LESS:
            found, right = _private(name, rows, epsilon, "spherical")
            what = f"{name}, {rows} rows, epsilon={epsilon:g}, spherical"
            exact_text = f"scikit-learn {_exact(name, rows):.3f}"
            report.note(section, what, f"{found:.3f}; auto: {right} of {_FITS}; {exact_text}")


def drawn(name: str, rows: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Rows about these means with variance 1, and their groups."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(len(MEANS[name]), size=rows)
    return MEANS[name][labels] + rng.standard_normal((rows, MEANS[name].shape[1])), labels


def _exact(name: str, count: int) -> float:
    found = []
    for seed in range(_FITS):
        rows, labels = drawn(name, count, seed)
        model = GaussianMixture(len(MEANS[name]), covariance_type="spherical", random_state=0)
        found.append(adjusted_rand_score(labels, model.fit_predict(rows)))
    return float(np.mean(found))


def _private(name: str, count: int, epsilon: float, kind: str) -> tuple[float, int]:
    """The mean index with the number given, and how many fits find the number."""
    found, right, wanted = [], 0, len(MEANS[name])
    for seed in range(_FITS):
        rows, labels = drawn(name, count, seed)
        for asked in (wanted, "auto"):
            model = PrivateGaussianMixture(
                asked, epsilon=epsilon, delta=1e-5, covariance_type=kind, random_state=seed
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(rows)
            if asked == "auto":
                right += model.n_components_ == wanted
            else:
                found.append(adjusted_rand_score(labels, model.predict(rows)))
    return float(np.mean(found)), right
