"""Rows of two classes for table 1 of paper 003, and the machine that tells them apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from eigenveil.errors import DataError
from eigenveil_papers.reproduction.data import Source, kept, load, some_of
from eigenveil_papers.reproduction.numbers import FloatArray
from eigenveil_papers.reproduction.paper003_methods import spectrum
from eigenveil_papers.reproduction.paper003_table_claims import SIZES

Labels = NDArray[np.int64]

_TEST = 4000
_MOST = 20_000  # rows of COVTYPE in the paper, 10000 of each class
MANY = 10_000
"""The paper's training and test rows together, which smaller data are scaled to."""


def two_gaussians(*, rows: int, features: int) -> tuple[FloatArray, Labels]:
    """Two classes of one covariance and other means, (rows, features) and 0 or 1.

    The paper says "one of two different means and a fixed covariance matrix with bounded spectral
    norm". Here the covariance is that of figure 1's rows, and the means differ within its leading
    directions, by so much that the best linear rule errs in 5.7 % of rows: the paper's error
    without privacy.
    """
    rng = np.random.default_rng(31)
    spread, axes = spectrum(features, rng)
    leading = max(2, features // 10)
    direction = np.zeros(features)
    direction[:leading] = np.sqrt(spread[:leading]) * rng.choice([-1.0, 1.0], leading)
    direction *= 1.58 / math.sqrt(leading)
    y = np.arange(rows) % 2
    X = rng.standard_normal((rows, features)) * np.sqrt(spread)
    X += np.where(y[:, None] == 1, direction, -direction)
    return X @ axes, y


@kept
def two_classes(wanted: Mapping[str, Any]) -> tuple[FloatArray, Labels]:
    if "synthetic" in wanted:
        return two_gaussians(**wanted["synthetic"])
    found = load(Source.of(wanted["source"]))
    if found.y is None:
        raise DataError("no-classes", title=found.title)
    first, second = np.unique(found.y)[wanted["classes"]]
    kept = some_of(np.flatnonzero(np.isin(found.y, (first, second))), _MOST)
    return found.X[kept], (found.y[kept] == second).astype(np.int64)


def split_sizes(rows: int, sizes: Sequence[int] = SIZES) -> tuple[list[int], int]:
    """Training rows for each of the paper's sizes, and test rows.

    As in the paper where there are 10000 rows, else as many times fewer.
    """
    share = min(1.0, rows / MANY)
    test = int(share * _TEST)
    return [min(int(share * size), rows - test) for size in sizes], test


def errors(
    known: FloatArray,
    y: Labels,
    unseen: Sequence[tuple[FloatArray, Labels]],
    *,
    C: float = 1.0,
    form: str = "",
) -> list[float]:
    """Per cent of wrong answers of a linear support vector machine as svmtrain trains it.

    C is times ``N / (2 N_c)`` for the N_c rows of a class. With the form ``STANDARDISED`` all rows'
    coordinates are divided by the known ones' deviations, as svmtrain does if not told otherwise.
    """
    machine = SVC(kernel="linear", C=C, class_weight="balanced", cache_size=500)
    rule = make_pipeline(StandardScaler(), machine) if form else machine
    rule.fit(known, y)
    return [100.0 * float(np.mean(rule.predict(rows) != right)) for rows, right in unseen]
