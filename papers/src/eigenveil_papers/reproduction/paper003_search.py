"""What table 1 of paper 003 may have been made with: how near combinations of choices come."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eigenveil_papers.reproduction.experiment import Point, RunSettings, RunTask
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.paper003_methods import Problem, subspace
from eigenveil_papers.reproduction.paper003_rows import errors, split_sizes, two_classes
from eigenveil_papers.reproduction.paper003_table_claims import FORMS, SIZES, apart

PREFIX = "search: "
_NEAR = 1.5  # times as many errors, or fewer
_TOLD = ("factor", "one draw's factor", "near")
_WITH_DELTA = ("analyze-gauss", "private-power")
_GRID: Mapping[str, Mapping[str, Any]] = {
    "covtype": {
        "prepared": [
            *itertools.product(["raw"], (True, False), (True, False), [10]),
            *itertools.product(("[0, 1]", "deviation 1"), [True], (True, False), [10]),
            ("raw", True, True, 5),
        ],
        "epsilons": (0.03, 0.1, 0.3, 1.0),
        "deltas": (0.02, 1e-4),
        "methods": ("exact", "analyze-gauss", "private-power", "ppca", "wishart-sn"),
        "draws": 3,
    },
    "mnist": {
        "prepared": [
            *itertools.product(["raw"], (True, False), (True, False), [50]),
            ("raw", True, True, 500),
        ],
        "epsilons": (0.1, 0.3, 1.0, 3.0),
        "deltas": (0.02,),
        "methods": ("exact", "analyze-gauss", "wishart-sn"),
        "draws": 2,
    },
}
"""Columns, whether centred, whether divided by the largest norm (else each by its own), and k."""


def search_tasks(data: Mapping[str, Mapping[str, Any]], settings: RunSettings) -> list[RunTask]:
    """Two independent runs of each preparation: one to choose by, one to tell."""
    return [
        RunTask(nearness, {**data[name], **grid, "prepared": prepared}, run, 8.0)
        for name, grid in _GRID.items()
        if name in data and settings.scale == "full" and settings.data in (None, name)
        for prepared in grid["prepared"]
        for run in range(2)
    ]


def nearness(
    rng: np.random.Generator,
    *,
    name: str,
    data: Mapping[str, Any],
    theirs: Mapping[str, Sequence[float]],
    prepared: tuple[str, bool, bool, int],
    epsilons: Sequence[float],
    deltas: Sequence[float],
    methods: Sequence[str],
    draws: int,
) -> Iterator[Point]:
    """Of one preparation, by machine, rows tested on, delta and epsilon (of 4000 rows).

    The mean factor between the means of some draws and the printed numbers; between one draw and
    the mean of the others; and the part of cells within a factor 1.5 of the printed.
    """
    X, y = two_classes(data)
    columns, centred, largest, k = prepared
    sizes, test = split_sizes(len(X))
    fewer = SIZES[0] / sizes[0]
    tried = list(itertools.product(FORMS, (False, True), ("other rows", "training rows")))
    asked = dict.fromkeys(_takes(*each) for each in itertools.product(methods, epsilons, deltas))
    found: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for _ in range(draws):
        order = rng.permutation(len(X))
        for place, size in enumerate(sizes):
            train, held = order[test : test + size], order[:test]
            U = _prepared(X, train, columns, centred, largest)
            problem = Problem(U[train], k)
            for of, epsilon, delta in asked:
                basis = subspace(of, problem, epsilon=epsilon * fewer, delta=delta, rng=rng).T
                known, unseen = U[train] @ basis, U[held] @ basis
                both = ((unseen, y[held]), (known, y[train]))
                for form, C in itertools.product(FORMS, (1.0, fewer)):
                    wrong = errors(known, y[train], both, C=C, form=form)
                    for on, value in zip(("other rows", "training rows"), wrong, strict=True):
                        found[form, C > 1, on, of, epsilon, delta, place].append(value)
    cells = list(itertools.product(methods, range(len(SIZES))))
    paper = np.array([theirs[of][place] for of, place in cells])
    for (form, many, on), delta, epsilon in itertools.product(tried, deltas, epsilons):
        values = np.array(
            [found[form, many, on, *_takes(of, epsilon, delta), place] for of, place in cells]
        )
        mean = values.mean(axis=1)
        rest = (values.sum(axis=1, keepdims=True) - values) / (draws - 1)
        own = np.mean([apart(values[:, draw], rest[:, draw]) for draw in range(draws)])
        near = np.mean([apart(*pair) <= _NEAR for pair in zip(mean, paper, strict=True)])
        panel = (
            f"{PREFIX}{name}|{columns}|{'yes' if centred else 'no'}|"
            f"{'largest' if largest else 'its own'}|{k}|{FORMS[form]}|"
            f"{'of as many rows' if many else '1'}|{on}|{delta:g}"
        )
        for series, value in zip(_TOLD, (apart(mean, paper), float(own), float(near)), strict=True):
            yield Point(panel, series, epsilon, value)


def _takes(of: str, epsilon: float, delta: float) -> tuple[str, float, float]:
    """A method, and of epsilon and delta those that it takes."""
    return of, 1.0 if of == "exact" else epsilon, delta if of in _WITH_DELTA else 0.0


def _prepared(X: FloatArray, train: Any, columns: str, centred: bool, largest: bool) -> FloatArray:
    if columns != "raw":
        spread = np.ptp(X, axis=0) if columns == "[0, 1]" else X.std(axis=0)
        X = (X - X.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    if centred:
        X = X - X[train].mean(axis=0)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / (norms[train].max() if largest else np.maximum(norms, 1e-12)))


_HEAD = (
    *("columns", "centred", "rows divided by the norm that is", "k", "coordinates", "C"),
    *("tested on", "delta", "epsilon", "factor", "one draw's", "part of cells within 1.5"),
)
_SHOWN = 5


def found_table(numbers: Numbers) -> list[str]:
    """The combinations that come nearest, as lines of Markdown; chosen by run 0, told of run 1."""
    lines = []
    for name in _GRID:
        start = f"{PREFIX}{name}|"
        tried = {
            (*panel.removeprefix(start).split("|"), f"{x:g}"): [
                [value for _, value in sorted(numbers.by_run(panel, of)[x].items())] for of in _TOLD
            ]
            for panel in numbers.panels
            if panel.startswith(start)
            for x in numbers.by_run(panel, _TOLD[0])
        }
        if not tried:
            continue
        means = {of: [sum(runs) / len(runs) for runs in told] for of, told in tried.items()}
        alike = sum(factor <= own for factor, own, _ in means.values())
        nearest = sorted(tried, key=lambda choices: tried[choices][0][0])[:_SHOWN]
        lines += [
            f"\n**What {name} may have been made with**: {len(tried)} combinations tried, {alike}"
            " of them as near the printed numbers as one of their own draws is to the others"
            f"{', so it cannot be known which' * (alike > 1)}. The nearest of a first run, and how"
            " near they come in a second:\n",
            f"| {' | '.join(_HEAD)} |",
            "|---" * len(_HEAD) + "|",
            *(
                f"| {' | '.join([*of, *(f'{runs[-1]:.2f}' for runs in tried[of])])} |"
                for of in nearest
            ),
            "\n| choice | least factor with each, in the mean of both |",
            "|---|---|",
        ]
        for place, choice in enumerate(_HEAD[: -len(_TOLD)]):
            least: dict[str, float] = {}
            for of, (factor, *_) in means.items():
                least[of[place]] = min(factor, least.get(of[place], math.inf))
            if len(least) > 1:
                told = ", ".join(f"{value} {factor:.2f}" for value, factor in least.items())
                lines.append(f"| {choice} | {told} |")
    return lines
