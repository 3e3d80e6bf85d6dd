"""What paper 001 leaves open: the split of the budget between stages, and the error of a_k.

Nothing is published to hold the numbers against. The split is that between the second moment and
the third (of independent components the fourth), all other shares as they are. The error of a_k is
measured against the operator norm of the noise, which is the largest |E(u, u, u)| that a search
finds: a lower bound, so that a bound of the error in its terms is asked for at its strictest.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eigenveil import PrivateGaussianMixture, PrivateICA, PrivateTopicModel
from eigenveil.errors import NoisyResultWarning, PrivacyError, WeakPrivacyWarning
from eigenveil.linalg.tensor import cubes, multilinear
from eigenveil.models.ica.jade import separation_error
from eigenveil.privacy.accountant import classic_sigma
from eigenveil_papers.published import data, orthogonal
from eigenveil_papers.published.moments import with_gaussian
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import chosen
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.paper001_tensor_panels import component_error, word_counts
from eigenveil_papers.reproduction.paper1910 import mixtures
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Measure
from eigenveil_papers.reproduction.tables import about, claims_of

_SHARES = (0.05, 0.15, 0.3, 0.5, 0.7, 0.85, 0.95)
_DELTA, _SIZE, _COUNT = 0.01, 10, 5
_ROWS = {"mixture": 40_000, "topics": 40_000, "ica": 10_000}
# AGN finds nothing where ours is not yet at what the rows allow: each has an epsilon of its own.
_EPSILON, _EPSILON_OURS = 2.0, 0.2
_DRAWS, _FITS_EACH = 5, 2  # of AGN's noise and of ours, whose means are a point
_NORMS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # Of the noise, over the smallest lambda
_SMALL = 0.1  # Up to there exponents are asked for
_STARTS, _STEPS = 60, 300


# -- The split of the budget.


def splits(rng: np.random.Generator, *, model: str, rows: int) -> Iterator[Point]:
    """The paper's errors over the share of the second moment, of AGN and ours (and its default)."""
    wider = _ROWS[model] / rows  # so that epsilon times the rows is the same
    moves: orthogonal.Sensitivities | None = None
    X: Any
    if model == "ica":
        X, true = mixtures(rng, "laplace", rows, 2 * _SIZE, _COUNT)
    elif model == "mixture":
        law = data.published_mixture(_SIZE, _COUNT, rng)
        X, true = law.rows(rows, rng), law.means
        scaled, largest = orthogonal.scaled_by_largest(X)
        moments = orthogonal.gaussian_moments(scaled, law.noise_variance / largest**2)
        moves = orthogonal.gaussian_sensitivities(rows, _SIZE, law.noise_variance / largest**2)
    else:
        topics = data.published_topics(_SIZE, _COUNT, rng)
        words, true = topics.documents(rows, rng), topics.distributions
        X, moments = word_counts(words, _SIZE), orthogonal.topic_moments(words, _SIZE)
        moves = orthogonal.topic_sensitivities(rows)
    seeds = rng.integers(2**31, size=_FITS_EACH).tolist()
    _, usual = _ours(model, X, true, wider * _EPSILON_OURS, seeds[0], None)
    last = "cumulants" if model == "ica" else "tensor"
    both = usual["moment"] + usual[last]
    default = usual["moment"] / both
    for share in sorted({*_SHARES, round(default, 9)}):
        split = {**usual, "moment": share * both, last: (1 - share) * both}
        fits = [_ours(model, X, true, wider * _EPSILON_OURS, seed, split) for seed in seeds]
        error = float(np.mean([of for of, _ in fits]))
        yield Point(model, "eigenveil", share, error)
        if share == round(default, 9):
            yield Point(model, "default", share, error)
        if moves is not None and share in _SHARES:
            found = [_agn(moments, moves, wider * _EPSILON, share, rng) for _ in range(_DRAWS)]
            shown = [f.directions if model == "mixture" else f.distributions for f in found]
            error = float(np.mean([component_error(vectors, true) for vectors in shown]))
            yield Point(model, "agn", share, error)


def _agn(of: Any, moves: Any, epsilon: float, share: float, rng: np.random.Generator) -> Any:
    """AGN with this share of epsilon and delta for the pair moment."""
    pair, triple = (
        with_gaussian(moment, classic_sigma(moved, p * epsilon, p * _DELTA, reproduction=True), rng)
        for moment, moved, p in (
            (of.pair, moves.pair, share),
            (of.triple, moves.triple, 1 - share),
        )
    )
    return orthogonal.components(pair, triple, _COUNT, rng=rng)


_FITS: dict[str, tuple[Any, str]] = {
    "mixture": (PrivateGaussianMixture, "means_"),
    "topics": (PrivateTopicModel, "topics_"),
    "ica": (PrivateICA, "components_"),
}


def _ours(
    model: str, X: Any, true: FloatArray, epsilon: float, seed: int, split: dict[str, float] | None
) -> tuple[float, dict[str, float]]:
    """The error of a fit, and its shares.

    Of random vectors where it stops, and where it finds fewer sources than there are.
    """
    fit, result = _FITS[model]
    target = {"epsilon": epsilon, "delta": _DELTA, "adjacency": "replace-one"}
    made = fit(_COUNT, budget_split=split, random_state=seed, **target)
    found = np.random.default_rng(seed).standard_normal((_COUNT, X.shape[1]))
    try:
        with warnings.catch_warnings():
            for told in (NoisyResultWarning, WeakPrivacyWarning):  # delta is the paper's
                warnings.simplefilter("ignore", told)  # it is measured how good it is
            made.fit(X)
        if model != "ica" or len(getattr(made, result)) == _COUNT:
            found = getattr(made, result)
    except PrivacyError:
        pass
    shares = dict(made.plan_.fractions) if split is None else split
    if model == "ica":
        return separation_error(found @ true), shares
    power = 2 if model == "mixture" else 1  # topics are distributions, means are directions
    return component_error(found / np.linalg.norm(found, power, 1)[:, None], true), shares


# -- The error of a_k.


def largest_value(tensor: FloatArray, rng: np.random.Generator) -> float:
    """The largest |E(u, u, u)| of unit vectors found, by power iterations with a shift."""
    here = rng.standard_normal((_STARTS, len(tensor)))
    shift = float(np.linalg.norm(tensor))
    for _ in range(_STEPS):
        here /= np.linalg.norm(here, axis=1, keepdims=True)
        here = np.einsum("ijk,nj,nk->ni", tensor, here, here, optimize=True) + shift * here
    here /= np.linalg.norm(here, axis=1, keepdims=True)
    values = np.einsum("ijk,ni,nj,nk->n", tensor, here, here, here, optimize=True)
    return float(np.abs(values).max())


def perturbed(rng: np.random.Generator, *, norms: Sequence[float]) -> Iterator[Point]:
    """The largest error of a component over the noise's operator norm, over the least lambda.

    ``cube``: of v_k from the cube itself, times lambda_k over the least, with one start as
    published and with ten. ``agn``: of a_k, from pair moment and triple moment with the noise of
    AGN, the norm that of the triple's noise through the exact whitening.
    """
    law = data.published_mixture(_SIZE, _COUNT, rng)
    strengths = law.weights**-0.5
    least = float(strengths.min())
    basis = data.orthogonal_rows(_COUNT, _COUNT, rng)
    cube, eye = cubes(strengths, basis), np.eye(_COUNT)
    noise = with_gaussian(np.zeros_like(cube), 1.0, rng)
    noise /= largest_value(noise, rng)
    exact = (law.means.T * law.weights) @ law.means, cubes(law.weights, law.means)
    moves = orthogonal.gaussian_sensitivities(1, _SIZE, law.noise_variance)
    noises = [
        with_gaussian(0 * m, tau, rng)
        for m, tau in zip(exact, (moves.pair, moves.triple), strict=True)
    ]
    seen = largest_value(multilinear(noises[1], orthogonal.whitening_of(exact[0], _COUNT)), rng)
    for x in norms:
        for series, starts in (("one-start", 1), ("ten-starts", 10)):
            noisy = cube + x * least * noise
            found = orthogonal.components(eye, noisy, _COUNT, rng=rng, restarts=starts).directions
            apart = np.linalg.norm(found[:, None] - basis, axis=2).min(axis=0)
            yield Point("cube", series, x, float(np.max(apart * strengths)) / least)
        yield Point("cube", "bound", x, 8 * x)
        pair, triple = (m + x * least / seen * e for m, e in zip(exact, noises, strict=True))
        made = orthogonal.components(pair, triple, _COUNT, rng=rng).directions
        apart = np.linalg.norm(made[:, None] - law.means, axis=2).min(axis=0)
        yield Point("agn", "agn", x, float(apart.max()))


# -- What is asked, and drawn.

_ERRORS = Measure(unit="times in the error", margin=1.1, ratio=True, less=True)
_EXPONENT = Measure(unit="in the exponent", margin=0.1, digits=".2f")
_TIMES = Measure(unit="times eps over lambda_k", margin=0.0, digits=".2g")


def _beside(
    numbers: Numbers, panels: Mapping[str, float], series: str
) -> tuple[list[ClaimPart], str]:
    """Of each panel one split beside each other that was tried, run by run, and the best one."""
    parts, least = [], []
    for panel, wanted in panels.items():
        x, errors = numbers.complete(panel, series)
        if wanted in x:
            logs = dict(zip(x.tolist(), np.log(errors.T), strict=True))
            least.append(f"{panel} {min(x, key=lambda at, of=logs: of[at].mean()):.2g}")  # type: ignore[misc]
            found = (Effect.of(f"{at:.2g}", logs[at] - logs[wanted]) for at in logs if at != wanted)
            parts.append(ClaimPart(panel, tuple(found), "not worse"))
    return parts, f"least at the share {', '.join(least)}"


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    half, least = _beside(numbers, {"mixture": 0.5, "topics": 0.5}, "agn")
    usual = {m: x for m in _ROWS for x in numbers.by_run(m, "default")}
    default, least_of_ours = _beside(numbers, usual, "eigenveil")
    within: list[ClaimPart] = []
    exponents: dict[str, list[ClaimPart]] = {"cube": [], "agn": []}
    for panel, series in (("cube", "ten-starts"), ("cube", "one-start"), ("agn", "agn")):
        slopes = numbers.exponents(panel, series, [x for x in _NORMS if x <= _SMALL])
        if slopes.size:
            exponents[panel].append(ClaimPart(series, (Effect.of("", slopes - 1.0),), "same"))
        x, errors = numbers.complete(panel, series, [x for x in _NORMS if x <= 1 / _COUNT])
        found = (Effect.of(f"{at:g}", of / at) for at, of in zip(x, errors.T, strict=True))
        within.append(ClaimPart(series, tuple(found), "at most", 8.0))
    return claims_of(
        "001-open",
        numbers,
        _ERRORS,
        {},
        {"half": half, "default": default, "within": within[:2], **exponents},
        others={"within": _TIMES, "cube": _EXPONENT, "agn": _EXPONENT},
        asides={"half": least, "default": least_of_ours},
        small=_SMALL,
    )


_STYLES = {
    "agn": SeriesStyle(f"AGN (ε={_EPSILON:g}; equal: 0.5)", "paper"),
    "eigenveil": SeriesStyle(f"Eigenveil (ε={_EPSILON_OURS:g})", "ours"),
    "default": SeriesStyle("its default", "ours-curator"),
    "one-start": SeriesStyle("power method, one start", "baseline"),
    "ten-starts": SeriesStyle("ten starts", "repaired-2"),
    "bound": SeriesStyle("8 eps", "exact"),
}
_split = partial(Panel, xlabel="share of the second moment", xscale="linear", yscale="log")
_noise = partial(Panel, xlabel="operator norm of the noise / λ_min", yscale="log")
_TITLE = "What 001 leaves open: the split of the budget between stages, and the error of a_k"
_AT = f"\nδ={_DELTA:g}, N="
_PANELS = (
    _split("mixture", f"(a) mixtures{_AT}{_ROWS['mixture']}", ylabel="error of components"),
    _split("topics", f"(b) topics{_AT}{_ROWS['topics']}", ylabel="error of components"),
    _split("ica", f"(c) independent components{_AT}{_ROWS['ica']}", ylabel="gain index"),
    _noise("cube", "(d) v_k from the cube\nK=5", ylabel="error λ_k / λ_min"),
    _noise("agn", "(e) a_k from both moments\nD=10, K=5", ylabel="largest error"),
)


def _tasks(settings: RunSettings) -> list[RunTask]:
    runs = settings.repetitions(full=20, fast=3)
    rows = {m: settings.pick(n, n, n // 10) for m, n in _ROWS.items()}
    tasks = [
        RunTask(splits, {"model": model, "rows": count}, run, count / 3e4)
        for model, count in rows.items()
        for run in runs
    ]
    return tasks + [RunTask(perturbed, {"norms": list(_NORMS)}, run) for run in runs]


OPEN = Experiment(
    name="001-open",
    title=_TITLE,
    about=about("001-open"),
    tasks=_tasks,
    draw=lambda numbers, _: panel_grid(numbers, _PANELS, _STYLES, title=_TITLE),
    claims=_claims,
    given=lambda _: [
        chosen("rows", ", ".join(f"{m} {n:,}" for m, n in _ROWS.items())),
        chosen("D, K", "10, 5 (independent components 20, 5)"),
        chosen("epsilon, delta", f"AGN {_EPSILON:g}, ours {_EPSILON_OURS:g}; {_DELTA:g}"),
        chosen("noise, a run", f"mean of {_DRAWS} draws of AGN's, {_FITS_EACH} of ours"),
    ],
)
