"""Figure 2 of paper 002: rows projected on the first two components, with and without masks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from eigenveil.errors import PrivacyError
from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.linalg.subspace import captured_energy
from eigenveil.models.pca.estimator import PrivatePCA
from eigenveil.models.streaming.private import PrivateStreamingPCA
from eigenveil_papers.published.federated_pca import FPCA
from eigenveil_papers.published.sulq import mod_sulq, omega
from eigenveil_papers.reproduction.data import Source, find, load, title_of, unit_rows
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import Panel, Role, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import projections
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers, random_directions
from eigenveil_papers.reproduction.paper002 import (
    BLOCK,
    RANK,
    epsilon_as_coded,
    fpca_as_coded,
    needed_deviation,
    overlap,
)
from eigenveil_papers.reproduction.rule import ClaimPart, Measure, values
from eigenveil_papers.reproduction.tables import about, claims_of

EPSILON, DELTA = 0.1, 0.1
METHODS = {
    "exact": "offline PCA",
    "fpca-open": "FPCA, no mask",
    "fpca": "FPCA, text's mask",
    "fpca-as-coded": "FPCA as coded, not private",
    "mod-sulq": "MOD-SuLQ, symmetric",
    "eigenveil": "Eigenveil, streaming",
}
"""What is drawn, by series; "eigenveil-all" is measured besides."""
ENERGY = Measure(unit="of the best two components' energy", margin=0.02, most=1.0)
_DRAWN = 600


def project(
    rng: np.random.Generator,
    *,
    name: str,
    data: Mapping[str, Any],
    rows: int | None,
    drawn: int,
    draw: bool,
) -> Iterator[Point]:
    """All methods once: energy and overlap of two components, and the scores of some rows.

    Panels ``NAME-energy`` and ``NAME-overlap``, at x = 2 components; ``NAME-scores-METHOD``, with
    a series for each class, position the first score and value the second.
    """
    found = load(Source.of(data))
    raw = found.X[:rows]
    X = unit_rows(raw)
    centered = raw - raw.mean(axis=0)
    moment = X.T @ X
    _, exact = leading_eigenpairs(moment, 2)
    shown = rng.choice(len(X), min(drawn, len(X)), replace=False)
    classes = np.zeros(len(X), dtype=np.int64) if found.y is None else found.y[:rows]
    for method in (*METHODS, "eigenveil-all"):
        components = _components(method, raw, centered, X, rng)
        yield Point(f"{name}-energy", method, 2.0, captured_energy(moment, components))
        yield Point(f"{name}-overlap", method, 2.0, overlap(exact, components))
        if draw and method in METHODS:
            scores = X[shown] @ components.T
            scores *= np.where(np.sum(scores * (X[shown] @ exact.T), axis=0) < 0, -1.0, 1.0)
            for row, (first, second) in zip(shown, scores, strict=True):
                panel = f"{name}-scores-{method}"
                yield Point(panel, str(classes[row]), float(first), float(second))
    norm = float(np.sqrt(np.max(np.einsum("nd,nd->n", centered, centered))))
    count, features = X.shape
    really = epsilon_as_coded(EPSILON, DELTA, features=features, rows=count, row_norm=norm)
    yield Point(f"{name}-epsilon", "fpca-as-coded", EPSILON, really)
    ratio = omega(EPSILON, DELTA, features, BLOCK) / needed_deviation(EPSILON, DELTA, count)
    yield Point(f"{name}-noise", "fpca", EPSILON, ratio)
    strongest = 2.0 * math.sqrt(features) * omega(EPSILON, DELTA, features, BLOCK)
    first = float(leading_eigenpairs(moment, 1)[0][0]) / count
    yield Point(f"{name}-noise-norm", "fpca", EPSILON, strongest / first)


def _components(
    method: str, raw: FloatArray, centered: FloatArray, X: FloatArray, rng: np.random.Generator
) -> FloatArray:
    seed = int(rng.integers(2**32))
    target: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "random_state": seed}
    ours: dict[str, Any] = {**target, "adjacency": "replace-one"}
    match method:
        case "exact":
            found = leading_eigenpairs(X.T @ X, 2)[1]
        case "fpca-open":
            tracker = FPCA(n_components=min(RANK, X.shape[1]), block=BLOCK, adapt=False)
            found = tracker.partial_fit(X).finish().components
        case "fpca":
            tracker = FPCA(
                n_components=RANK, block=BLOCK, columns=BLOCK, adapt=False, row_bound=1.0, **target
            )
            found = tracker.partial_fit(X).components
        case "fpca-as-coded":
            found = fpca_as_coded(centered, epsilon=EPSILON, delta=DELTA, columns=BLOCK, rng=rng)
        case "mod-sulq":
            found = mod_sulq(X, n_components=2, row_bound=1.0, **target).components
        case "eigenveil":
            found = PrivateStreamingPCA(2, **ours).fit(X).components_
        case _:
            try:
                found = PrivatePCA(2, **ours).fit(raw).components_
            except PrivacyError:  # too few rows: it says so and returns nothing
                found = random_directions(X.shape[1], 2, rng)
    return np.asarray(found[:2])


def _names(settings: RunSettings) -> tuple[str, ...]:
    if settings.data is not None:
        return (settings.data,)
    return settings.pick(("mnist", "wine"), ("mnist", "wine"), ("digits", "wine"))


def _tasks(settings: RunSettings) -> Sequence[RunTask]:
    pick, tasks = settings.pick, []
    shape = {"rows": pick(10_000, 1500, 1000), "drawn": pick(_DRAWN, _DRAWN, 100)}
    for name in _names(settings):
        source = find(name, settings)
        cost = pick(15.0, 5.0, 1.0) if source.name in {"mnist", "fashion-mnist"} else 0.2
        given = {"name": name, "data": source.as_arguments(), **shape}
        for run in settings.repetitions():
            tasks.append(RunTask(project, {**given, "draw": run == 0}, run, cost))
    return tasks


# The figure

# By class
_STYLES = {
    str(kind): SeriesStyle(f"class {kind}", role)
    for kind, role in enumerate[Role](
        (
            *("ours", "paper-2", "ours-2", "paper", "baseline"),
            *("ours-curator", "baseline-3", "baseline-5", "repaired-2", "level-3"),
        )
    )
}
_LETTERS = {
    (name, method): letter
    for name, letters in (("mnist", "abcd"), ("wine", "efgh"))
    for method, letter in zip(("exact", "fpca-open", "fpca", "mod-sulq"), letters, strict=True)
}


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    names = [name for name in _names(settings) if f"{name}-scores-exact" in numbers.panels]
    panels = [
        Panel(
            f"{name}-scores-{method}",
            _panel_title(numbers, name, method, settings),
            "first score",
            "second score",
            letter=_LETTERS.get((name, method), ""),
            xscale="linear",
            points=True,
        )
        for name in names
        for method in METHODS
    ]
    title = "Rows on their first two components"
    return panel_grid(numbers, panels, _STYLES, title=title)


def _panel_title(numbers: Numbers, name: str, method: str, settings: RunSettings) -> str:
    energy = numbers.at(f"{name}-energy", method, 2.0)
    promise = f"ε=δ={EPSILON:g}, " if method not in ("exact", "fpca-open") else ""
    return f"{title_of(find(name, settings))}: {METHODS[method]}\n{promise}energy {energy:.3g}"


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    names = _names(settings)

    def held(method: str, least: float) -> list[ClaimPart]:
        found = {name: values(numbers, f"{name}-energy", method) for name in names}
        return [ClaimPart(name, of, "at least", least) for name, of in found.items()]

    def told(kind: str, method: str) -> str:
        return ", ".join(
            f"{name} {numbers.at(f'{name}-{kind}', method, EPSILON):.2g}"
            for name in names
            if f"{name}-{kind}" in numbers.panels
        )

    need = {name: values(numbers, f"{name}-noise", "fpca", ratio=True) for name in names}
    return claims_of(
        "002-fig2",
        numbers,
        ENERGY,
        {"energy": [f"{name}-energy" for name in names]},
        {
            "no mask": held("fpca-open", 0.95),
            "mask": held("fpca", 0.95),
            "as coded": held("fpca-as-coded", 0.8),
            "need": [ClaimPart(name, of, "at least", math.log(10)) for name, of in need.items()],
        },
        others={"need": Measure(unit="times the deviation needed", margin=1.0, ratio=True)},
        asides={
            "mask": "the mask's spectral norm (about) over the first eigenvalue of the rows: "
            + told("noise-norm", "fpca"),
            "as coded": f"the epsilon that this mask gives at delta {DELTA:g}, claimed to be "
            f"{EPSILON:g}: " + told("epsilon", "fpca-as-coded"),
        },
    )


FIG2 = Experiment(
    name="002-fig2",
    title="Projections on the first two components, with and without masks",
    about=about("002-fig2"),
    datasets=("mnist", "wine", "digits", "fashion-mnist"),
    tasks=_tasks,
    draw=_draw,
    claims=_claims,
    given=projections,
)
