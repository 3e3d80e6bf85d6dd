"""Paper 003's theorem 2 and paper 001's three bounds of section 4, against what is measured.

Both say the same three things about the leading subspace of ``A + E``, up to constants: with
``s`` for the size of the noise, the energy lost is O(K s), the distance of the subspaces is
O(s / gap), and the error of the approximation of rank K grows by O(s). Constants are taken from
their proofs: ``2 K |E|``, ``2 |E| / gap`` and ``2 |E|``, with a bound on the noise's spectral norm
|E| that fails with chance 1e-6. Where a bound is above the largest value that there is, nothing can
exceed it: it is not tested there. So the orders are asked for, too: the exponents with which what
is measured and its bound grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from eigenveil_papers.published import (
    PublishedMoment,
    capepca,
    second_moment,
    second_moments,
    wishart_sn,
)
from eigenveil_papers.published.moments import pooled_moment
from eigenveil_papers.published.sn import gauss_deviation
from eigenveil_papers.reproduction.experiment import (
    Claim,
    Experiment,
    Given,
    Point,
    RunSettings,
    RunTask,
)
from eigenveil_papers.reproduction.figure import Panel, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.given import NO_RUNS, chosen
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Interval, Measure
from eigenveil_papers.reproduction.tables import about, claims_of

Which = Literal["sn", "capepca"]

_ROWS, _SITES, _DELTA = 20_000, 10, 0.01
_FEATURES, _COMPONENTS = 64, 4
_CHANCE = 1e-6  # that the noise's norm is above what the bounds are drawn for, a point
_EPSILONS: dict[Which, tuple[float, ...]] = {
    "sn": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
    "capepca": (0.01, 0.03, 0.1, 0.3, 1.0),
}
_AT: dict[Which, float] = {"sn": 0.1, "capepca": 0.3}
_SIZES = (16, 32, 64, 128, 256)
_ROWS_OVER = (2_500, 10_000, 40_000)
_GAPS = (0.1, 0.3, 1.0, 3.0, 10.0)
_EPSILON_OVER_GAPS = 1.0
_COUNTS = (2_000, 8_000, 32_000)

MEASURES = ("energy", "distance", "approximation")
_YLABEL = {
    "energy": "energy lost",
    "distance": "distance of the projections",
    "approximation": "growth of the error of rank K",
}


class Measures(NamedTuple):
    """What the three bounds are about, the bounds themselves, or the largest values there are."""

    energy: float
    distance: float
    approximation: float


def measures(exact: FloatArray, noisy: FloatArray, count: int) -> Measures:
    values, vectors = np.linalg.eigh(exact)
    best = vectors[:, -count:]
    found_values, found = np.linalg.eigh(noisy)
    kept = found[:, -count:]
    low_rank = (kept * found_values[-count:]) @ kept.T
    return Measures(
        energy=float(np.trace(best.T @ exact @ best) - np.trace(kept.T @ exact @ kept)),
        distance=float(np.linalg.norm(best @ best.T - kept @ kept.T, 2)),
        approximation=float(np.linalg.norm(exact - low_rank, 2) - abs(values[-count - 1])),
    )


def promised(exact: FloatArray, count: int, norm: float) -> Measures:
    """The three bounds for noise of spectral norm ``norm``, with their proofs' constants."""
    values = np.linalg.eigvalsh(exact)
    gap = float(values[-count] - values[-count - 1])
    return Measures(2 * count * norm, 2 * norm / gap, 2 * norm)


def largest(exact: FloatArray, count: int) -> Measures:
    """The largest values there are: all of the energy that other directions lack, and opposites."""
    values = np.linalg.eigvalsh(exact)
    return Measures(float(values[-count:].sum() - values[:count].sum()), 1.0, math.inf)


def norm_of_wishart(features: int, epsilon: float) -> float:
    """SN's noise: the squared largest singular value of a (D, D + 1) Gaussian matrix."""
    tail = math.sqrt(2 * math.log(1 / _CHANCE))
    return (math.sqrt(features) + math.sqrt(features + 1) + tail) ** 2 / (2 * epsilon)


def norm_of_gauss(features: int, tau: float) -> float:
    """Of a symmetric matrix with N(0, tau^2) on every entry of its triangle.

    Its largest eigenvalue is on average at most that of ``(Z + Z')/sqrt 2``, whose diagonal has
    more variance, and so at most ``2 tau sqrt(D)`` (Slepian); as a function of the unique entries
    it is sqrt(2) Lipschitz. The smallest one likewise.
    """
    return tau * (2 * math.sqrt(features) + 2 * math.sqrt(math.log(2 / _CHANCE)))


def strong_rows(
    rng: np.random.Generator, count: int, features: int, *, gap: float = 0.0
) -> FloatArray:
    """Gaussian rows with K strong directions: variances 4 to 2 and, of the others, 0.2.

    With a ``gap`` those of the strong directions are that and up to twice that above the others.
    """
    variances = np.full(features, 0.2)
    variances[:_COMPONENTS] += gap * np.linspace(2.0, 1.0, _COMPONENTS)
    if not gap:
        variances[:_COMPONENTS] = np.linspace(4.0, 2.0, _COMPONENTS)
    return np.asarray(rng.standard_normal((count, features)) * np.sqrt(variances))


def _sn(
    moment: PublishedMoment, epsilon: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    made = wishart_sn(moment, n_components=1, epsilon=epsilon, random_state=rng)
    assert made.released is not None
    return made.released, norm_of_wishart(moment.features, epsilon)


def _capepca(
    sites: Sequence[PublishedMoment], epsilon: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    made = capepca(sites, n_components=1, epsilon=epsilon, delta=_DELTA, random_state=rng)
    assert made.released is not None
    assert made.deviation is not None
    return made.released, norm_of_gauss(sites[0].features, made.deviation)


def one_run(
    rng: np.random.Generator,
    *,
    which: Which,
    sweep: Literal["epsilon", "features", "rows"],
    positions: Sequence[float],
) -> Iterator[Point]:
    """Measured and promised, at each position of a sweep: panels ``{measure}-{sweep}``."""
    exact: FloatArray | None = None
    for x in positions:
        features = int(x) if sweep == "features" else _FEATURES
        epsilon = float(x) if sweep == "epsilon" else _AT[which]
        if sweep != "epsilon" or exact is None:
            rows = strong_rows(rng, int(x) if sweep == "rows" else _ROWS, features)
            moment = second_moment(rows)
            parts = second_moments(np.split(rows, _SITES), row_bound=moment.row_bound)
        if which == "sn":
            exact = moment.total
            noisy, norm = _sn(moment, epsilon, rng)
        else:
            exact = moment.mean
            noisy, norm = _capepca(parts, epsilon, rng)
        found, bound = measures(exact, noisy, _COMPONENTS), promised(exact, _COMPONENTS, norm)
        most = largest(exact, _COMPONENTS)
        for series, values in (("measured", found), ("bound", bound), ("largest", most)):
            for name, value in zip(MEASURES, values, strict=True):
                if value < math.inf:
                    yield Point(f"{name}-{sweep}", series, float(x), value)


def over_gaps(rng: np.random.Generator, *, gaps: Sequence[float]) -> Iterator[Point]:
    """How near SN's subspace is to the exact one, over the gap of the variances: the mean squared
    cosine, 1 where they are the same.
    """
    for gap in gaps:
        moment = second_moment(strong_rows(rng, _ROWS, _FEATURES, gap=gap))
        noisy, _ = _sn(moment, _EPSILON_OVER_GAPS, rng)
        best, kept = (np.linalg.eigh(of)[1][:, -_COMPONENTS:] for of in (moment.total, noisy))
        yield Point("gap", "measured", gap, float(np.sum((best.T @ kept) ** 2)) / _COMPONENTS)


def as_printed(rng: np.random.Generator, *, counts: Sequence[int]) -> Iterator[Point]:
    """Section 4 of 001 to the letter: A is the sum over rows, tau the deviation of their mean."""
    for count in counts:
        rows = strong_rows(rng, count, _FEATURES)
        bound_of_all = second_moment(rows).row_bound
        sites = second_moments(np.split(rows, _SITES), row_bound=bound_of_all)
        noisy, _ = _capepca(sites, _AT["capepca"], rng)
        total = pooled_moment(sites).total
        found = measures(total, noisy * count, _COMPONENTS)
        tau = gauss_deviation(count, epsilon=_AT["capepca"], delta=_DELTA)
        bound = promised(total, _COMPONENTS, norm_of_gauss(_FEATURES, tau))
        yield Point("printed", "measured", float(count), found.energy)
        yield Point("printed", "bound", float(count), bound.energy)


def _tasks(which: Which, settings: RunSettings) -> list[RunTask]:
    every = settings.pick(1, 1, 2)
    sweeps: dict[str, tuple[float, ...]] = {
        "epsilon": _EPSILONS[which][::every],
        "features": settings.pick(_SIZES, _SIZES, (16, 64)),
        "rows": _ROWS_OVER[::every],
    }
    tasks = []
    for run in settings.repetitions():
        for sweep, of in sweeps.items():
            given = {"which": which, "sweep": sweep, "positions": list(of)}
            tasks.append(RunTask(one_run, given, run, 0.2))
        if which == "sn":
            tasks.append(RunTask(over_gaps, {"gaps": list(_GAPS[::every])}, run, 0.1))
        else:
            tasks.append(RunTask(as_printed, {"counts": list(_COUNTS[::every])}, run, 0.1))
    return tasks


def _given(which: Which) -> list[Given]:
    sites = [chosen("sites, delta", f"{_SITES}, {_DELTA:g}")] if which == "capepca" else []
    return [
        chosen("rows, features, K", f"{_ROWS:,}, {_FEATURES} or as drawn, {_COMPONENTS}"),
        chosen("spectrum", "K variances from 4 to 2, the others 0.2"),
        chosen("epsilon", f"as drawn; over the features and rows {_AT[which]:g}"),
        chosen("constants", "those of the proofs; the noise's norm to a chance of 1e-6"),
        *sites,
    ]


_STYLES = {
    "measured": SeriesStyle("measured", "paper"),
    "bound": SeriesStyle("the bound, with its proof's constants", "exact"),
    "largest": SeriesStyle("the largest value there is", "random"),
}
_XLABEL = {"epsilon": "epsilon", "features": "features D", "rows": "rows N"}


def _fixed(which: Which, over: str) -> str:
    said = {"epsilon": f"ε={_AT[which]:g}", "features": f"D={_FEATURES}", "rows": f"N={_ROWS:,}"}
    if over == "gap":
        said["epsilon"] = f"ε={_EPSILON_OVER_GAPS:g}"
    said.pop(over, None)
    more = [f"δ={_DELTA:g}", f"S={_SITES}"] if which == "capepca" else ["δ=0"]
    return ", ".join([*said.values(), f"K={_COMPONENTS}", *more])


def _draw(numbers: Numbers, which: Which, title: str) -> Figure:
    log = partial(Panel, yscale="log")
    panels = [
        log(f"{of}-{sweep}", f"({letter}) {_YLABEL[of]}\n{_fixed(which, sweep)}", label, "")
        for letter, ((sweep, label), of) in zip(
            "abcdefghi", product(_XLABEL.items(), MEASURES), strict=True
        )
    ]
    printed = f"(j) to the letter: A of sums, noise of means\n{_fixed(which, 'rows')}"
    near = f"(j) nearness to the exact subspace\n{_fixed(which, 'gap')}"
    panels.append(log("printed", printed, "rows N", "energy lost"))
    panels.append(Panel("gap", near, "eigengap of variances", "cosine^2"))
    return panel_grid(numbers, panels, _STYLES, title=title)


SHARE = Measure(unit="of the bound", margin=0.0, digits=".2g")
"""What was measured over its bound."""
EXPONENT = Measure(unit="in the exponent", margin=0.1, digits=".2f")
_NEARNESS = Measure(unit="of the mean squared cosine", margin=0.005, most=1.0)


def bounded(numbers: Numbers, panels: Iterable[str]) -> list[ClaimPart]:
    """That nothing measured is above its bound: on average at each position, and in any fit.

    The mean has an interval over the runs. The largest of all fits has none: the bound is for each
    fit, but with a chance of 1e-6, so that one above it refutes it. Where the bound is above the
    largest value there is, none can be.
    """
    parts = []
    for panel in panels:
        found, most = (_over_bound(numbers, panel, of) for of in ("measured", "largest"))
        ends = {x: float(most[x].max()) if x in most else math.inf for x in found}
        means = [
            Effect.of(f"{x:g}", of, possible=Interval(-math.inf, ends[x]))
            for x, of in found.items()
        ]
        fits = [of for x, of in found.items() if ends[x] > 1.0]
        if fits:
            every = np.concatenate(fits)
            means.append(Effect(f"the worst of {every.size} fits", float(every.max()), 0.0))
        parts.append(ClaimPart(panel, tuple(means), "at most", 1.0))
    return parts


def _over_bound(numbers: Numbers, panel: str, series: str) -> dict[float, FloatArray]:
    found, bounds = (numbers.by_run(panel, of) for of in (series, "bound"))
    return {
        x: np.array([runs[run] / bounds[x][run] for run in runs if run in bounds[x]])
        for x, runs in sorted(found.items())
        if x in bounds
    }


def of_order(numbers: Numbers, panels: Iterable[str]) -> tuple[list[ClaimPart], str]:
    """That nothing measured grows with a larger exponent than its bound; and the exponents.

    Exponents are slopes of logarithms, of each run, over the positions at which the mean is below
    half of the largest value there is: beyond, nothing grows any more.
    """
    parts, said = [], []
    for panel in panels:
        most = numbers.curve(panel, "largest")
        ends = dict(zip(most.x, most.mean, strict=True))
        curve = numbers.curve(panel, "measured")
        kept = [x for x, at in zip(curve.x, curve.mean, strict=True) if at < ends.get(x, 1e300) / 2]
        one, two = (numbers.exponents(panel, of, kept) for of in ("measured", "bound"))
        if one.size:
            said.append(f"{panel} {one.mean():.2f} beside {two.mean():.2f}")
            parts.append(ClaimPart(panel, (Effect.of("", one - two),), "at most", 0.1))
    return parts, f"exponents, measured beside the bound's: {', '.join(said)}"


def _claims(figure: str, numbers: Numbers) -> list[Claim]:
    parts = {of: bounded(numbers, [f"{of}-{sweep}" for sweep in _XLABEL]) for of in MEASURES}
    parts["printed"] = bounded(numbers, ["printed"])
    others = dict.fromkeys(parts, SHARE)
    asides = {}
    for sweep in _XLABEL:
        parts[sweep], asides[sweep] = of_order(numbers, [f"{of}-{sweep}" for of in MEASURES])
    return claims_of(
        figure,
        numbers,
        EXPONENT,
        {"gap": ["gap"]},
        parts,
        others={**others, "gap": _NEARNESS},
        asides=asides,
        gap=_GAPS[-1],
    )


_WORDS = {"sites": _SITES, "delta": _DELTA, "rows": _ROWS, "features": _FEATURES}
_WORDS |= {"components": _COMPONENTS, "chance": _CHANCE}

THEOREM2 = Experiment(
    name="003-theorem2",
    title="SN's approximation guarantees (theorem 2) and what is measured",
    about=about("003-theorem2", at=_AT["sn"], **_WORDS),
    tasks=lambda settings: _tasks("sn", settings),
    draw=lambda numbers, _: _draw(numbers, "sn", "Theorem 2 of SN: three bounds"),
    claims=lambda numbers, _: _claims("003-theorem2", numbers),
    given=lambda _: _given("sn"),
    runs=NO_RUNS,
)
BOUNDS = Experiment(
    name="001-bounds",
    title="capePCA's three guarantees (section 4) and what is measured",
    about=about("001-bounds", at=_AT["capepca"], **_WORDS),
    tasks=lambda settings: _tasks("capepca", settings),
    draw=lambda numbers, _: _draw(numbers, "capepca", "capePCA: three bounds"),
    claims=lambda numbers, _: _claims("001-bounds", numbers),
    given=lambda _: _given("capepca"),
    runs=NO_RUNS,
)
