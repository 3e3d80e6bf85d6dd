"""Paper 001's sites that differ: where section 3.1 has a solution, what it shows, what it gains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from eigenveil.errors import PrivacyError
from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.models.pca.federated import FederatedPCA
from eigenveil_papers.audits.parties import MARGINAL, cape_view
from eigenveil_papers.published import (
    capeagn,
    capepca,
    data,
    orthogonal,
    second_moment,
    second_moments,
)
from eigenveil_papers.published.cape_pca import (
    equal_plan,
    gain,
    published_variances,
    times_claimed,
    unequal_plan,
)
from eigenveil_papers.reproduction.data import unit_rows
from eigenveil_papers.reproduction.experiment import Claim, Experiment, Point, RunSettings, RunTask
from eigenveil_papers.reproduction.figure import Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import NO_RUNS, chosen
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers, random_directions
from eigenveil_papers.reproduction.paper001_tensor_claims import ERROR, MATCHES
from eigenveil_papers.reproduction.paper001_tensor_panels import MixtureFit, component_error
from eigenveil_papers.reproduction.rule import (
    ClaimPart,
    Effect,
    Measure,
    Question,
    exactly,
    values,
)
from eigenveil_papers.reproduction.tables import about, claims_of

_DELTA = 0.01
_TIMES = Measure(unit="times", margin=0.0, digits=".3g")
_ALIKE = Measure(unit="of the sites' variances", margin=0.0, digits=".0%", most=1.0)
_SHARE = Measure(unit="of the random sites", margin=0.0, digits=".1%", most=1.0)
_LOST = Measure(unit="times in the energy lost", margin=1.0, ratio=True, less=True)
_DRAWS = {"full": 2000, "fast": 400, "toy": 100}
_UP_TO = (2, 3, 4, 5, 6, 8)
KINDS = {
    "rows": "rows differ, weights by rows, one target",
    "targets": "rows and targets differ, weights by rows",
    "quality": "rows, targets and quality weights differ",
}


def unequal(rng: np.random.Generator, *, sites: Sequence[int], draws: int) -> Iterator[Point]:
    """Random sites: the share that section 3.1 serves, and mu and noise where it does and not."""
    for number in sites:
        x, gains = float(number), []
        for kind in KINDS:
            shares, losses, masked = [], [], []
            for _ in range(draws):
                rows = np.exp(rng.uniform(math.log(100), math.log(10_000), number)).round()
                gains.append(gain(rows.astype(int).tolist()) / _gain_limits(rows))
                epsilon = np.full(number, 0.5)
                if kind != "rows":
                    epsilon = np.exp(rng.uniform(math.log(0.1), 0.0, number))
                weights = rows / rows.sum()
                if kind == "quality":
                    weights = weights * rng.uniform(0.25, 1.0, number)
                    weights /= weights.sum()
                tau = math.sqrt(2 * math.log(1.25 / _DELTA)) / (rows * epsilon)
                one = math.sqrt(2 * math.log(1.25 / _DELTA)) / (rows.sum() * epsilon.min())
                masked.append(float(np.max(weights * tau)) / one)
                try:
                    plan = unequal_plan(weights.tolist(), tau.tolist(), one)
                except PrivacyError:
                    shares.append(0.0)
                    continue
                shares.append(1.0)
                losses.append(float(times_claimed(plan).max()))
            yield Point("share", kind, x, float(np.mean(shares)))
            yield Point("masked", kind, x, float(np.mean(masked)))
            if losses:
                yield Point("loss", kind, x, float(np.median(losses)))
        yield Point("gain", "over the least", x, float(np.min(gains, axis=0)[0]))
        yield Point("gain", "over the most", x, float(np.max(gains, axis=0)[1]))
        yield Point("loss", "equal", x, float(times_claimed(equal_plan(number, 1.0)).max()))


# Three sites, one with noise besides; its weight nearly as low as section 3.1 can solve, or lower
_NOISE, _EPSILON, _FEATURES, _COMPONENTS = (0.25, 0.5, 1.0, 2.0, 4.0), 0.3, 20, 3
_NAMES = ("noisy", "one", "other")
_WEIGHTS = {"capepca": (2.0, 3.0, 3.0), "eigenveil": (1.0, 10.0, 10.0)}


def weighed(rng: np.random.Generator, *, noise: Sequence[float]) -> Iterator[Point]:
    """Energy of the clean rows that is lost, with sites weighed by rows and by quality."""
    axes = random_directions(_FEATURES, 2 * _COMPONENTS, rng)
    strong, other = axes[:_COMPONENTS], axes[_COMPONENTS:]
    drawn = rng.standard_normal((3, 2000, _FEATURES)) * 0.3
    drawn += rng.standard_normal((3, 2000, _COMPONENTS)) @ strong
    clean = second_moment(drawn.reshape(-1, _FEATURES)).mean
    best = float(leading_eigenpairs(clean, _COMPONENTS)[0].sum())
    besides = rng.standard_normal((2000, _COMPONENTS)) @ other
    target: dict[str, Any] = {"n_components": _COMPONENTS, "epsilon": _EPSILON, "delta": _DELTA}
    ours = {**target, "center": False, "budget_split": {"moment": 1.0}, "adjacency": "replace-one"}
    for x in noise:
        rows = drawn.copy()
        rows[0] += x * besides
        sites = list(unit_rows(rows.reshape(-1, _FEATURES)).reshape(rows.shape))
        for series, by_quality in _WEIGHTS.items():
            for name, weights in ((series, None), (f"{series}-weighed", by_quality)):
                if series == "capepca":
                    moments = second_moments(sites, row_bound=1.0)
                    of = capepca(moments, weights=weights, random_state=rng, **target).components
                else:
                    ours["weights"] = weights and dict(zip(_NAMES, weights, strict=True))
                    fit = FederatedPCA(random_state=int(rng.integers(2**31)), **ours)
                    of = fit.fit(dict(zip(_NAMES, sites, strict=True))).components_
                yield Point("lost", name, x, 1.0 - float(np.trace(of @ clean @ of.T)) / best)


_ROWS_OF_SITES = (10_000, 20_000, 70_000)
_TENSOR_EPSILONS = (0.1, 1.0, 10.0)


def unequal_tensors(rng: np.random.Generator, *, epsilons: Sequence[float]) -> Iterator[Point]:
    """CapeAGN of three unequal sites by section 3.1, AGN on all rows, and ours on them."""
    size, count = 10, 5
    mixture = data.published_mixture(size, count, rng)
    rows = mixture.rows(sum(_ROWS_OF_SITES), rng)
    scaled, largest = orthogonal.scaled_by_largest(rows)
    variance = mixture.noise_variance / largest**2
    parts = [scaled, *np.split(scaled, np.cumsum(_ROWS_OF_SITES)[:-1])]
    whole, *sites = (orthogonal.gaussian_moments(part, variance) for part in parts)
    of_whole, *of_sites = (
        orthogonal.gaussian_sensitivities(len(part), size, variance) for part in parts
    )
    for epsilon in epsilons:
        target: dict[str, Any] = {"epsilon": epsilon, "delta": _DELTA}
        for name, made in (
            ("capeagn", capeagn(sites, of_sites, count, rng=rng, **target)),
            ("agn", orthogonal.agn(whole, of_whole, count, rng=rng, **target)),
        ):
            found = made.components(rng=rng).directions
            yield Point("tensors", name, epsilon, component_error(found, mixture.means))
        ours = MixtureFit(rows, count)(epsilon, _DELTA, int(rng.integers(2**31)))
        yield Point("tensors", "eigenveil", epsilon, component_error(ours, mixture.means))


def _gain_limits(rows: FloatArray) -> FloatArray:
    sites, total = len(rows), float(rows.sum())
    most = (total / sites) ** 2 * (1 / (total - sites + 1) ** 2 + sites - 1)
    return np.array([sites, most])


def _unequal_tasks(settings: RunSettings) -> list[RunTask]:
    draws, sites = _DRAWS[settings.scale], settings.pick(_UP_TO, _UP_TO, _UP_TO[:4])
    noise, epsilons = (list(of[:: settings.pick(1, 1, 2)]) for of in (_NOISE, _TENSOR_EPSILONS))
    tasks = [
        RunTask(unequal, {"draws": draws, "sites": [s]}, run, 2.0)
        for s in sites
        for run in settings.repetitions(full=3, fast=3, toy=3)
    ]
    for work, given, full in (
        (weighed, {"noise": noise}, 20),
        (unequal_tensors, {"epsilons": epsilons}, 60),
    ):
        tasks += [RunTask(work, given, run, 2.0) for run in settings.repetitions(full, fast=4)]
    return tasks


def _unequal_claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    (alike, of_alike), (without, with_f) = _reduces(), _without()
    kinds: tuple[tuple[str, str, Question], ...] = (
        ("solved", "share", "at least"),
        ("promised", "loss", "at most"),
        ("masked", "masked", "at most"),
    )
    parts = {
        asked: [
            ClaimPart(name, values(numbers, panel, kind), asks, 1.0) for kind, name in KINDS.items()
        ]
        for asked, panel, asks in kinds
    }
    worst: tuple[tuple[str, Question, Callable[[Iterable[float]], float]], ...] = (
        ("over the least", "at least", min),
        ("over the most", "at most", max),
    )
    parts["gain"] = [
        ClaimPart(series, exactly(numbers.worst("gain", series, of), "S = "), asks, 1.0)
        for series, asks, of in worst
    ]
    return claims_of(
        "001-unequal",
        numbers,
        _TIMES,
        {"lost": ["lost"], "tensors": ["tensors"]},
        {**parts, "reduces": alike, "without f_s": without},
        others={
            "solved": _SHARE,
            "reduces": _ALIKE,
            "lost": _LOST,
            "tensors": ERROR,
            "same": replace(ERROR, margin=MATCHES),
        },
        asides={
            "reduces": of_alike,
            "gain": "the conventional mean weighs all sites alike: weighed by rows its noise is S "
            "times as much, so that correlated noise gains S there, whatever the rows",
            "without f_s": with_f,
        },
    )


def _without() -> tuple[list[ClaimPart], str]:
    """Computed from the messages, without f_s and with it: nothing is estimated."""
    claimed = MARGINAL.mu
    assert claimed is not None
    found: dict[bool, list[ClaimPart]] = {False: [], True: []}
    for used, trusted in product(found, ("two", "all")):
        seen = {}
        for sites in _UP_TO[1:]:
            colluding = sites - 2 if trusted == "two" else 0
            view = cape_view(colluding, sites=sites, aggregator=False, aggregator_noise=used)
            seen[float(sites)] = view.mu / claimed
        effects = exactly(seen, "S = ")
        found[used].append(ClaimPart(f"{trusted} sites trusted", effects, "at most", 1.0))
    ends = [each.value for part in found[True] for each in part.effects]
    return found[False], (
        f"with f_s {min(ends):.3g} to {max(ends):.3g}; the aggregator, who takes f_s off, sees as "
        "much with it as without"
    )


def _reduces() -> tuple[list[ClaimPart], str]:
    """For each number of equal sites: the share of them without equation 2's variance, and why."""
    parts, told = [], []
    for sites in _UP_TO:
        plan = equal_plan(sites, 1.0)
        others, why = 1.0, "no solution"
        with suppress(PrivacyError):
            other = unequal_plan(plan.weights.tolist(), plan.requirements.tolist(), plan.pooled)
            own = np.array([each.g for each in other.variances])
            others = float(np.mean(~np.isclose(own, published_variances(sites, 1.0).g)))
            why = f"own noise {own.min():.3g} to {own.max():.3g}"
        parts.append(ClaimPart(f"S = {sites}", (Effect("", others, 0.0),), "at most"))
        told.append(f"S = {sites}: {why}")
    return parts, "; ".join(told)


_UNEQUAL_STYLES = {
    "rows": SeriesStyle(KINDS["rows"], "paper"),
    "targets": SeriesStyle(KINDS["targets"], "paper-2"),
    "quality": SeriesStyle(KINDS["quality"], "baseline"),
    "equal": SeriesStyle("equal sites (equation 2)", "exact"),
    "capepca": SeriesStyle("capePCA, capeAGN", "baseline-2"),
    "capepca-weighed": SeriesStyle("capePCA, weights 2:3:3", "baseline-3"),
    "capeagn": SeriesStyle("capePCA, capeAGN", "baseline-2"),
    "agn": SeriesStyle("AGN on all rows", "baseline-4"),
    "eigenveil": SeriesStyle("Eigenveil", "ours"),
    "eigenveil-weighed": SeriesStyle("Eigenveil, weights 1:10:10", "ours-2"),
}


_sites = partial(Panel, xlabel="sites S")
_PANELS = (
    _sites("share", "(a) served by section 3.1", ylabel="share of random sites"),
    _sites("loss", "(b) mu of the aggregator's view", ylabel="worst site, times the claimed"),
    _sites("masked", "(c) noise of a masked sum", ylabel="times one curator's"),
    Panel(
        "lost",
        f"(d) one noisy site of 3\nD={_FEATURES}, K={_COMPONENTS}, N=6,000, ε={_EPSILON:g}",
        "deviation of its noise over the signal's",
        "energy lost, of the exact one",
        yscale="log",
    ),
    Panel(
        "tensors",
        "(e) mixtures at sites of 10k, 20k, 70k rows\nD=10, K=5",
        "ε",
        "error of components",
        yscale="log",
    ),
)


UNEQUAL = Experiment(
    name="001-unequal",
    title="Sites that differ (section 3.1): where its solution exists, and what it shows",
    about=about("001-unequal"),
    tasks=_unequal_tasks,
    draw=lambda numbers, _: panel_grid(
        numbers, _PANELS, _UNEQUAL_STYLES, title=f"Sites that differ (δ={_DELTA:g})"
    ),
    claims=_unequal_claims,
    given=lambda settings: [
        chosen("random sites, a run", f"{_DRAWS[settings.scale]:,} for each S and kind"),
        chosen("rows of a site", "100 to 10,000, even in their logarithms"),
        chosen("epsilon of a site", "0.5, or 0.1 to 1, even in their logarithms"),
        chosen("delta", f"{_DELTA:g}"),
        chosen("weights", "by rows, or those times 0.25 to 1; (d): as drawn"),
    ],
    runs=NO_RUNS,
)
