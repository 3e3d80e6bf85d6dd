"""Table 1 of paper 003: errors of a linear classifier on private projections."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from eigenveil.errors import DataError
from eigenveil_papers.reproduction.data import Source, find, load, unit_rows
from eigenveil_papers.reproduction.experiment import Experiment, Given, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import table
from eigenveil_papers.reproduction.given import NONE_PRINTED, OURS, TEXT
from eigenveil_papers.reproduction.numbers import Numbers
from eigenveil_papers.reproduction.paper003_claims import STANDARDISED, table_claims
from eigenveil_papers.reproduction.paper003_methods import (
    DATA,
    DELTA,
    Problem,
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
# Data


class TwoClasses(NamedTuple):
    """Two classes of a data set."""

    data: str  # The data set; `"synthetic"` is made
    classes: tuple[int, int]  # The places of the two among all classes
    title: str
    cost: float  # Seconds of a run, about


CASES: Mapping[str, TwoClasses] = {
    "synthetic": TwoClasses("synthetic", (0, 1), "two Gaussians", 10.0),
    # the last two classes of COVTYPE are its 6 and 7, and what stands in for it has two at all
    "covtype": TwoClasses("covtype", (-2, -1), "COVTYPE 6, 7", 2.0),
    "covtype-1-2": TwoClasses("covtype", (0, 1), "COVTYPE 1, 2", 20.0),
    "mnist": TwoClasses("mnist", (3, 7), "MNIST 3, 7", 15.0),
    "fashion-mnist": TwoClasses("fashion-mnist", (5, 7), "Fashion-MNIST 5, 7", 70.0),
}
"""The paper's three, and two that have the paper's numbers of rows where theirs are not at hand."""

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
        raise DataError("no-classes", title=found.title)
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
    standardised before training (panel ``NAME-standardised``), or those of the rows divided by the
    largest norm (panel ``NAME``). Epsilon is for 4000 training rows: with fewer it is as many times
    larger, and the noise of the mean second moment is that of 4000.
    """
    X, y = _two_classes(json.dumps(data, sort_keys=True))
    order = rng.permutation(X.shape[0])
    sizes, test = split_sizes(X.shape[0])
    held, rest = order[:test], order[test:]
    here, delta = epsilon * SIZES[0] / sizes[0], DELTA[CASES[name].data]
    for nominal, size in zip(SIZES, sizes, strict=True):
        train = rest[:size]
        problem = Problem(unit_rows(X[train]), components_for(CASES[name].data, X.shape[1]))
        center = X[train].mean(axis=0)
        unit = float(np.max(np.linalg.norm(X[train] - center, axis=1)))
        tested = (X[held] - center) / unit
        for of in series:
            found = subspace(of, problem, epsilon=here, delta=delta, rng=rng).T
            known, unseen = problem.X @ found, tested @ found
            wrong = _error(known, y[train], unseen, y[held])
            yield Point(name, of, float(nominal), wrong)
            scaler = StandardScaler().fit(known)
            known, unseen = scaler.transform(known), scaler.transform(unseen)
            wrong = _error(known, y[train], unseen, y[held])
            yield Point(name + STANDARDISED, of, float(nominal), wrong)
        yield Point(f"{name}-setting", "training rows", float(nominal), float(size))
        yield Point(f"{name}-setting", "test rows", float(nominal), float(test))
        yield Point(f"{name}-setting", "epsilon", float(nominal), here)


def _error(known: FloatArray, y: Labels, unseen: FloatArray, answers: Labels) -> float:
    """Per cent of wrong answers of a linear support vector machine as svmtrain trains it.

    C is 1, times ``N / (2 N_c)`` for the N_c rows of a class.
    """
    machine = SVC(kernel="linear", C=1.0, class_weight="balanced", cache_size=500).fit(known, y)
    return 100.0 * float(np.mean(machine.predict(unseen) != answers))


# Tasks


def _data(name: str, settings: RunSettings) -> dict[str, Any]:
    if name == "synthetic":
        rows = settings.pick(_ROWS, _ROWS, 1500)
        return {"synthetic": {"rows": rows, "features": settings.pick(100, 100, 20)}}
    source = find(CASES[name].data, settings)
    return {"source": source.as_arguments(), "classes": list(CASES[name].classes)}


def _measured(settings: RunSettings) -> list[str]:
    """The cases of a run: those beside the paper's where they have more rows than the paper's."""
    names = []
    for name, case in CASES.items():
        if settings.data not in (None, case.data):
            continue
        if settings.data is None and name not in settings.pick((*CASES,), DATA, DATA[:2]):
            continue
        source = None if name == "synthetic" else find(case.data, settings)
        if source is not None and name not in DATA:
            if source.stand_in_for or _at_hand(name, settings) < _ROWS:
                continue
            if name == "covtype-1-2" and _at_hand("covtype", settings) >= _ROWS:
                continue
        names.append(name)
    return names


def _at_hand(name: str, settings: RunSettings) -> int:
    """Rows of the two classes."""
    return len(_two_classes(json.dumps(_data(name, settings), sort_keys=True))[1])


def _tasks(settings: RunSettings) -> list[RunTask]:
    tasks = []
    for name in _measured(settings):
        arguments = {
            "name": name,
            "data": _data(name, settings),
            "epsilon": EPSILON if settings.scale != "toy" else 4.0,
            "series": list(SERIES),
        }
        tasks += [
            RunTask(work=classification_errors, arguments=arguments, run=run, cost=CASES[name].cost)
            for run in settings.repetitions(
                5,
                1 if name == "mnist" else 2,
                1 if name == "covtype" else 2,
            )
        ]
    return tasks


def _given(settings: RunSettings) -> Sequence[Given]:
    found = []
    for name in _measured(settings):
        at_hand = _at_hand(name, settings)
        sizes, test = split_sizes(at_hand)
        epsilon = (EPSILON if settings.scale != "toy" else 4.0) * SIZES[0] / sizes[0]
        theirs, whence = _CHOSEN_FROM.get(name, ("none: added here", OURS))
        found += [
            Given(
                what=f"rows of {_title(name, settings)}".replace("\n", " "),
                here=f"{at_hand:,}",
                paper=theirs,
                whence=whence,
            ),
            Given(
                what="its training rows; test rows; epsilon",
                here=f"{sizes[0]:,} and {sizes[1]:,}; {test:,}; {epsilon:.3g}",
                paper=f"{SIZES[0]:,} and {SIZES[1]:,}; fixed; {NONE_PRINTED}"
                if name in PAPER
                else "none: added here",
                whence=TEXT if name in PAPER else OURS,
            ),
        ]
    return [
        *found,
        Given(what="delta", here="0.1; others 0.02", paper=NONE_PRINTED, whence="that of figure 1"),
        Given(
            what="coordinates",
            here="standardised, and as they are",
            paper="standardised",
            whence="svmtrain's default",
        ),
    ]


_CHOSEN_FROM = {
    "synthetic": ("5,000, fewer than it trains with", TEXT),
    "covtype": ("20,000, 10,000 of each class", TEXT),
    "mnist": ("5,000, or 5,000 of each digit", TEXT),
}
"""Rows that the paper says it has."""


# Drawing


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    names = [name for name in CASES if name in numbers.panels]
    head = ["errors in per cent"]
    for name in names:
        for size in SIZES:
            rows, epsilon = (
                numbers.at(f"{name}-setting", of, float(size))
                for of in ("training rows", "epsilon")
            )
            head.append(f"{_title(name, settings)}\n{rows:.0f} rows\nepsilon {epsilon:.3g}")
    body: list[list[str]] = []
    strong = []
    for form, heading in _FORMS.items():
        body.append([heading, *[""] * (len(head) - 1)])
        strong.append((len(body) - 1, 0))
        for series, label in SERIES.items():
            cells = [label]
            for panel, name in ((f"{name}{form}", name) for name in names):
                for size in SIZES:
                    printed = PAPER.get(name, {}).get(series) if form else None
                    cells.append(_cell(numbers, panel, series, size, printed))
                    mean = numbers.at(panel, series, float(size))
                    if series in SOUND and mean == _least(numbers, panel, size, SOUND):
                        strong.append((len(body), len(cells) - 1))
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


_FORMS = {STANDARDISED: "standardised, as svmtrain does", "": "not standardised"}


def _title(name: str, settings: RunSettings) -> str:
    case = CASES[name]
    if name != "synthetic" and find(case.data, settings).stand_in_for:
        return title_of(case.data, settings).replace(", ", "\n")
    return case.title.replace("-MNIST", "-\nMNIST")


def _cell(
    numbers: Numbers, panel: str, series: str, size: int, printed: tuple[float, float] | None
) -> str:
    curve = numbers.curve(panel, series)
    suffix = f"\n({printed[SIZES.index(size)]:g})" if printed else ""
    at = np.flatnonzero(curve.x == size)
    if not at.size:
        return f"-{suffix}"
    return f"{curve.mean[at[0]]:.2f} ± {curve.error[at[0]]:.2f}{suffix}"


def _least(numbers: Numbers, panel: str, size: int, series: Sequence[str]) -> float:
    found = [numbers.at(panel, of, float(size)) for of in series]
    return min((value for value in found if not math.isnan(value)), default=math.nan)


TABLE1 = Experiment(
    name="003-table1",
    title="Errors of a linear machine on private projections",
    paper="003",
    about=(
        "Rows of two classes are projected on a subspace found from the training rows, and a linear"
        " support vector machine is trained on them. The paper used MATLAB's svmtrain, which by"
        " default standardises the coordinates and weighs a class by the rows of the other (hinge"
        " loss, C = 1); so do the first rows of the table, and the paper's claims are about these."
        " The second rows leave the coordinates as they are. The paper prints neither epsilon nor"
        " delta of its table: a few values from 0.02 to 1 were tried on coordinates as they are,"
        " and 0.5 with 4000 training rows was taken, whose errors on the synthetic rows are near"
        " the paper's; delta is that of figure 1. Where fewer than the paper's 10000 rows of two"
        " classes are at hand (in the copies of this project's developers 985 of COVTYPE's classes"
        " 6 and 7, and 2038 of MNIST's digits 3 and 7), training and test rows are as many times"
        " fewer than 10000, and epsilon is as many times larger, so that the noise is that of 4000"
        " rows. Beside them stand two pairs that have the paper's numbers of rows: COVTYPE's"
        " classes 1 and 2, and Fashion-MNIST's 5 and 7, sandals and sneakers (its 3 and 7 are told"
        " apart without errors). The two Gaussians are not in the paper: their means are so far"
        " apart that the best rule errs in 5.7 %. All methods promise for one row changed, and take"
        " rows centred and scaled exactly, as in figure 1. Where the private power method's number"
        " of rounds would be above 2000, for two singular values are all but equal, it is 2000."
    ),
    datasets=(*DATA, "fashion-mnist"),
    tasks=_tasks,
    draw=_draw,
    claims=table_claims,
    given=_given,
)
