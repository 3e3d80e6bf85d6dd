"""Table 1 of paper 003: errors of a linear classifier on private projections."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from eigenveil.errors import DataError
from eigenveil_papers.reproduction.data import Source, find, load, unit_rows
from eigenveil_papers.reproduction.experiment import Experiment, Point, Settings, Task
from eigenveil_papers.reproduction.figure import table
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper003_claims import table_claims
from eigenveil_papers.reproduction.paper003_methods import (
    DATA,
    DELTA,
    Problem,
    chosen,
    components_for,
    spectrum,
    subspace,
    title_of,
)

SIZES = (4000, 6000)
"""Training rows in the paper."""
FloatArray = NDArray[np.float64]
Labels = NDArray[np.int64]

_TEST = 4000
_MOST = 20_000  # rows of COVTYPE in the paper, 10000 of each class
_ROWS = 10_000  # the paper's training and test rows together, which smaller data are scaled to
EPSILON = 0.5
"""With 4000 training rows; where there are fewer, as many times more."""

SERIES: Mapping[str, str] = {
    "exact": "not private",
    "analyze-gauss": "Analyze Gauss",
    "private-power": "private power method",
    "ppca": "PPCA (Gibbs)",
    "wishart-sn": "SN (false promise)",
    "eigenveil": "Eigenveil",
    "eigenveil-pure": "Eigenveil, delta = 0",
    "wishart-repaired": "SN repaired",
}
SOUND = ("eigenveil", "eigenveil-pure", "wishart-repaired")
PAPER: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "synthetic": {
        "exact": (5.65, 5.80),
        "analyze-gauss": (5.80, 5.75),
        "private-power": (9.00, 9.05),
        "ppca": (6.375, 6.125),
        "wishart-sn": (7.50, 7.075),
    },
    "covtype": {
        "exact": (0.025, 0.025),
        "analyze-gauss": (16.80, 5.775),
        "private-power": (22.00, 15.175),
        "ppca": (31.85, 19.875),
        "wishart-sn": (7.225, 0.35),
    },
    "mnist": {
        "exact": (0.575, 0.25),
        "analyze-gauss": (3.025, 3.125),
        "private-power": (3.10, 2.55),
        "ppca": (2.725, 2.80),
        "wishart-sn": (2.50, 2.00),
    },
}
"""Per cent of errors, printed, with 4000 and 6000 training rows."""


# Rows


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


@functools.lru_cache(maxsize=3)
def _two_classes(data: str) -> tuple[FloatArray, Labels]:
    wanted = json.loads(data)
    if "synthetic" in wanted:
        return two_gaussians(**wanted["synthetic"])
    found = load(Source.of(wanted["source"]))
    if found.y is None:
        raise DataError(
            f"{found.title} has no classes.", hint="Give a file with classes.", code="no-classes"
        )
    first, second = np.unique(found.y)[wanted["classes"]]
    kept = np.flatnonzero(np.isin(found.y, (first, second)))
    if kept.size > _MOST:
        kept = np.sort(np.random.default_rng(3).choice(kept, _MOST, replace=False))
    return found.X[kept], (found.y[kept] == second).astype(np.int64)


def split_sizes(rows: int, sizes: Sequence[int] = SIZES) -> tuple[list[int], int]:
    """Training rows for each of the paper's sizes, and test rows.

    As in the paper where there are 10000 rows, else as many times fewer.
    """
    share = min(1.0, rows / _ROWS)
    test = int(share * _TEST)
    return [min(int(share * size), rows - test) for size in sizes], test


# Work


def classification_errors(
    rng: np.random.Generator,
    *,
    name: str,
    data: Mapping[str, Any],
    epsilon: float,
    series: Sequence[str],
) -> Iterator[Point]:
    """One run: per cent of test rows that a linear machine gets wrong, for every method and size.

    The subspace and the machine are of the training rows, drawn anew in each run. Coordinates are
    those of the rows divided by the largest norm, or are standardised before training (panel
    ``NAME-standardised``). Epsilon is for 4000 training rows: with fewer it is as many times
    larger, and the noise of the mean second moment is that of 4000.
    """
    X, y = _two_classes(json.dumps(data, sort_keys=True))
    order = rng.permutation(X.shape[0])
    sizes, test = split_sizes(X.shape[0])
    held, rest = order[:test], order[test:]
    here = epsilon * SIZES[0] / sizes[0]
    for nominal, size in zip(SIZES, sizes, strict=True):
        train = rest[:size]
        problem = Problem(unit_rows(X[train]), components_for(name, X.shape[1]))
        center = X[train].mean(axis=0)
        unit = float(np.max(np.linalg.norm(X[train] - center, axis=1)))
        tested = (X[held] - center) / unit
        for of in series:
            found = subspace(of, problem, epsilon=here, delta=DELTA[name], rng=rng).T
            known, unseen = problem.X @ found, tested @ found
            wrong = _error(known, y[train], unseen, y[held])
            yield Point(name, of, float(nominal), wrong)
            scaler = StandardScaler().fit(known)
            known, unseen = scaler.transform(known), scaler.transform(unseen)
            wrong = _error(known, y[train], unseen, y[held])
            yield Point(f"{name}-standardised", of, float(nominal), wrong)
        yield Point(f"{name}-setting", "training rows", float(nominal), float(size))
        yield Point(f"{name}-setting", "test rows", float(nominal), float(test))
        yield Point(f"{name}-setting", "epsilon", float(nominal), here)


def _error(known: FloatArray, y: Labels, unseen: FloatArray, answers: Labels) -> float:
    """Per cent of wrong answers of a linear support vector machine with C = 1."""
    machine = SVC(kernel="linear", C=1.0).fit(known, y)
    return 100.0 * float(np.mean(machine.predict(unseen) != answers))


# Tasks


def _data(name: str, settings: Settings) -> dict[str, Any]:
    if name == "synthetic":
        rows = settings.pick(_ROWS, _ROWS, 1500)
        return {"synthetic": {"rows": rows, "features": settings.pick(100, 100, 20)}}
    source = find(name, settings)
    # the last two classes of COVTYPE are its 6 and 7, and what stands in for it has two at all
    return {"source": source.as_arguments(), "classes": [3, 7] if name == "mnist" else [-2, -1]}


def _tasks(settings: Settings) -> list[Task]:
    tasks = []
    for name in chosen(settings):
        if name == "mnist" and settings.scale == "toy" and settings.data is None:
            continue
        series = [of for of in SERIES if name != "mnist" or of != "ppca"]
        arguments = {
            "name": name,
            "data": _data(name, settings),
            "epsilon": EPSILON if settings.scale != "toy" else 4.0,
            "series": series,
        }
        cost = {"synthetic": 6.0, "covtype": 1.0, "mnist": 6.0}[name]
        tasks += [
            Task(work=classification_errors, arguments=arguments, run=run, cost=cost)
            for run in settings.repetitions(10, 2, 1 if name == "covtype" else 2)
        ]
    return tasks


# Drawing


def _draw(numbers: Numbers, settings: Settings) -> Figure:
    names = [name for name in chosen(settings) if name in numbers.panels]
    head = ["errors in per cent"]
    for name in names:
        for size in SIZES:
            rows, epsilon = (
                numbers.at(f"{name}-setting", of, float(size))
                for of in ("training rows", "epsilon")
            )
            head.append(f"{_title(name, settings)}\n{rows:.0f} rows\nepsilon {epsilon:.3g}")
    body, strong = [], []
    for row, (series, label) in enumerate(SERIES.items()):
        cells = [label]
        for name in names:
            for size in SIZES:
                cells.append(_cell(numbers, name, series, size))
                mean = numbers.at(name, series, float(size))
                if series in SOUND and mean == _least(numbers, name, size, SOUND):
                    strong.append((row, len(cells) - 1))
        body.append(cells)
    return table(
        head,
        body,
        title="Errors of a linear machine on private projections (paper 003, table 1)",
        note="Mean and standard error over the runs; in brackets what the paper prints with 4000"
        " and 6000 rows. Bold: the best of the sound ones.\n"
        "delta = 0.1 for the two Gaussians and 0.02 for the others; 0 for PPCA, SN, its repair and"
        " the second row of Eigenveil.",
        strong=strong,
    )


def _title(name: str, settings: Settings) -> str:
    if name != "synthetic" and find(name, settings).stand_in_for:
        return title_of(name, settings).replace(", ", "\n")
    return {"synthetic": "two Gaussians", "covtype": "COVTYPE 6, 7", "mnist": "MNIST 3, 7"}[name]


def _cell(numbers: Numbers, name: str, series: str, size: int) -> str:
    curve = numbers.curve(name, series)
    printed = PAPER[name].get(series)
    suffix = f"\n({printed[SIZES.index(size)]:g})" if printed else ""
    at = np.flatnonzero(curve.x == size)
    if not at.size:
        return f"-{suffix}"
    return f"{curve.mean[at[0]]:.2f} ± {curve.error[at[0]]:.2f}{suffix}"


def _least(numbers: Numbers, name: str, size: int, series: Sequence[str]) -> float:
    found = [numbers.at(name, of, float(size)) for of in series]
    return min((value for value in found if not math.isnan(value)), default=math.nan)


TABLE1 = Experiment(
    name="003-table1",
    title="Errors of a linear machine on private projections",
    paper="003",
    about=(
        "Rows of two classes are projected on a subspace found from the training rows, and a linear"
        " support vector machine (hinge loss, C = 1) is trained on them. The paper prints neither"
        " epsilon nor delta of its table: a few values from 0.02 to 1 were tried in two or three"
        " runs, and 0.5 with 4000 training rows was taken, whose errors on the synthetic rows are"
        " near the paper's; delta is that of figure 1. Of"
        " COVTYPE's classes 6 and 7 there are 985 rows at hand and of MNIST's digits 3 and 7 there"
        " are 2038, where the paper has 20000 and 10000: training and test rows are as many times"
        " fewer than 10000, and epsilon is as many times larger, so that the noise is that of 4000"
        " rows. The two Gaussians are not in the paper: their means are so far apart that the best"
        " rule errs in 5.7 %. The paper does not say whether coordinates were standardised before"
        " training. They are not here, which was chosen after trying both: standardised, no"
        " subspace of COVTYPE leaves errors, however noisy, and the paper's are large. All methods"
        " promise for one row changed, and take rows centred and scaled exactly, as in figure 1."
        " On MNIST PPCA is left out: its chain takes too long there. Where the private power"
        " method's number of rounds would be above 2000, for two singular values are all but equal,"
        " it is 2000."
    ),
    datasets=DATA,
    tasks=_tasks,
    draw=_draw,
    claims=table_claims,
)
