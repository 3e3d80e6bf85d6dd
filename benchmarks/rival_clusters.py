"""Clusters: eigenveil beside a private k-means of the literature, at the same guarantee."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.report import Report
from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.lsh_clustering import LSH, LshClustering
from benchmarks.tensors import labelled
from eigenveil import PrivateGaussianMixture

DELTA, SEEDS, ROWS = 1e-5, range(6), 20_000
SECTION = "Rivals: clusters (adjusted Rand index and k-means loss, delta = 1e-05)"
# Never worse than this times the best rival that is told no more.
WORSE = 1.1


@dataclass(frozen=True)
class Case:
    """Rows by name, epsilon, and the shapes of clusters that ours is asked for."""

    name: str
    epsilon: float
    shapes: str

    def drawn(self, seed: int) -> tuple[Array, NDArray[np.int64]]:
        """Rows and their classes: real ones, or drawn anew for each seed."""
        if self.name in ("digits", "wine"):
            return labelled(self.name)
        return arranged(self.name, seed)


CASES = (
    Case("digits", 3.0, "diag"),
    Case("wine", 3.0, "diag"),
    *(
        Case(name, 1.0, "spherical")
        for name in ("three on a line, D = 4", "three on a line, D = 10", "plane", "circle")
    ),
)


def arranged(name: str, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Rows about means on a line, in a plane, or on a circle: fewer directions than means."""
    rng = np.random.default_rng(seed)
    if name == "plane":
        means = np.zeros((6, 5))
        means[:, :2] = [(a, b) for a in (-4, 0, 4) for b in (-2, 2)]
    elif name == "circle":
        angles = np.arange(6) * math.pi / 3
        means = 4.0 * np.column_stack([np.cos(angles), np.sin(angles)])
    else:
        features = int(name.rsplit(" ", 1)[1])
        direction = np.eye(4)[0] if features == 4 else np.full(features, features**-0.5)
        means = np.outer([-3.0, 0.0, 3.0], direction)
    classes = rng.integers(len(means), size=ROWS)
    return means[classes] + rng.standard_normal((ROWS, means.shape[1])), classes


def run(report: Report) -> None:
    """Both measures of all methods."""
    names = ["eigenveil", *(rival.name for rival in LSH)]
    for case in CASES:
        found = np.array([_measured(case, seed) for seed in SEEDS])  # seeds, methods, two
        for place, name in enumerate(names):
            index, loss = found[:, place].T
            shapes = f", {case.shapes}" if place == 0 else " *"
            what = f"{case.name}, epsilon = {case.epsilon:g}: {name}{shapes}"
            report.note(SECTION, what, f"index {_said(index)}, loss {_said(loss)}")
        best = float(found[:, 1:, 0].mean(axis=0).max())
        what = f"{case.name}: our index over the best rival's"
        report.add(SECTION, what, float(found[:, 0, 0].mean()) / best, 1 / WORSE)
    for what, text in (("paper", LshClustering.paper), ("* is told", LshClustering.told)):
        report.note(SECTION, f"LSH tree: {what}", text)
    text = "mean squared distance to the nearest centre, over that of scikit-learn's KMeans"
    report.note(SECTION, "loss", text)


def _measured(case: Case, seed: int) -> list[tuple[float, float]]:
    rows, classes = case.drawn(seed)
    count = int(classes.max()) + 1
    exact = KMeans(count, n_init=10, random_state=0).fit(rows).inertia_
    model = PrivateGaussianMixture(
        count, epsilon=case.epsilon, delta=DELTA, covariance_type=case.shapes
    ).fit(rows)
    loss = float((cdist(rows, model.means_, "sqeuclidean").min(axis=1)).sum()) / exact
    found = [(float(adjusted_rand_score(classes, model.predict(rows))), loss)]
    for rival in LSH:
        budget = Budget.of(case.epsilon, DELTA, np.random.default_rng())
        far = cdist(rows, rival.centers(rows, count, rival.tell(rows), budget), "sqeuclidean")
        index = float(adjusted_rand_score(classes, far.argmin(axis=1)))
        found.append((index, float(far.min(axis=1).sum()) / exact))
    return found


def _said(found: Array) -> str:
    return f"{found.mean():.3f} ± {found.std(ddof=1) / math.sqrt(found.size):.3f}"
