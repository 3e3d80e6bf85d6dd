"""Paper 003's theorem 2 and paper 001's three bounds of section 4, against what is measured.

Both say the same three things about the leading subspace of ``A + E``, up to constants: with
``s`` for the size of the noise, the energy lost is O(K s), the distance of the subspaces is
O(s / gap), and the error of the approximation of rank K grows by O(s). Constants are taken from
their proofs: ``2 K |E|``, ``2 |E| / gap`` and ``2 |E|``, with a bound on the noise's spectral norm
|E| that fails with chance 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from eigenveil_papers.published import PublishedMoment, capepca, second_moment, wishart_sn
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
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Measure, decide

Which = Literal["sn", "capepca"]

_ROWS, _SITES, _DELTA = 20_000, 10, 0.01
_FEATURES, _COMPONENTS = 64, 4
_CHANCE = 1e-6  # that the noise's norm is above what the bounds are drawn for, a point
_EPSILONS: dict[Which, tuple[float, ...]] = {
    "sn": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "capepca": (0.01, 0.03, 0.1, 0.3, 1.0),
}
_AT: dict[Which, float] = {"sn": 0.1, "capepca": 0.3}
_SIZES = (16, 32, 64, 128, 256)
_COUNTS = (2_000, 8_000, 32_000)

MEASURES = ("energy", "distance", "approximation")
_YLABEL = {
    "energy": "energy lost",
    "distance": "distance of the projections",
    "approximation": "growth of the error of rank K",
}


class Measures(NamedTuple):
    """What the three bounds are about, or the bounds themselves."""

    energy: float
    distance: float
    approximation: float


def measures(exact: FloatArray, noisy: FloatArray, count: int) -> Measures:
    """Of the leading ``count`` directions of a noisy symmetric matrix, both (D, D)."""
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


def strong_rows(rng: np.random.Generator, count: int, features: int) -> FloatArray:
    """Gaussian rows with K strong directions: variances 4 to 2 and, of the others, 0.2."""
    variances = np.full(features, 0.2)
    variances[:_COMPONENTS] = np.linspace(4.0, 2.0, _COMPONENTS)
    return np.asarray(rng.standard_normal((count, features)) * np.sqrt(variances))


def _sn(
    moment: PublishedMoment, epsilon: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """The noisy sum, and a bound on the noise's norm."""
    made = wishart_sn(moment, n_components=1, epsilon=epsilon, random_state=rng)
    assert made.released is not None
    return made.released, norm_of_wishart(moment.features, epsilon)


def _capepca(
    sites: Sequence[PublishedMoment], epsilon: float, rng: np.random.Generator
) -> tuple[FloatArray, float]:
    """The noisy mean, and a bound on the noise's norm."""
    made = capepca(sites, n_components=1, epsilon=epsilon, delta=_DELTA, random_state=rng)
    assert made.released is not None
    assert made.deviation is not None
    return made.released, norm_of_gauss(sites[0].features, made.deviation)


def one_run(
    rng: np.random.Generator,
    *,
    which: Which,
    sweep: Literal["epsilon", "features"],
    positions: Sequence[float],
) -> Iterator[Point]:
    """Measured and promised, at each position of a sweep: panels ``{measure}-{sweep}``."""
    exact: FloatArray | None = None
    for x in positions:
        features = int(x) if sweep == "features" else _FEATURES
        epsilon = float(x) if sweep == "epsilon" else _AT[which]
        if sweep == "features" or exact is None:
            rows = strong_rows(rng, _ROWS, features)
            moment = second_moment(rows)
            parts = [second_moment(p, row_bound=moment.row_bound) for p in _split(rows)]
        if which == "sn":
            exact = moment.total
            noisy, norm = _sn(moment, epsilon, rng)
        else:
            exact = moment.mean
            noisy, norm = _capepca(parts, epsilon, rng)
        found, bound = measures(exact, noisy, _COMPONENTS), promised(exact, _COMPONENTS, norm)
        for name, value, most in zip(MEASURES, found, bound, strict=True):
            yield Point(f"{name}-{sweep}", "measured", float(x), value)
            yield Point(f"{name}-{sweep}", "bound", float(x), most)


def as_printed(rng: np.random.Generator, *, counts: Sequence[int]) -> Iterator[Point]:
    """Section 4 of 001 to the letter: A is the sum over rows, tau the deviation of their mean."""
    for count in counts:
        rows = strong_rows(rng, count, _FEATURES)
        moment = second_moment(rows)
        sites = [second_moment(p, row_bound=moment.row_bound) for p in _split(rows)]
        noisy, _ = _capepca(sites, _AT["capepca"], rng)
        total = pooled_moment(sites).total
        found = measures(total, noisy * count, _COMPONENTS)
        tau = gauss_deviation(count, epsilon=_AT["capepca"], delta=_DELTA)
        bound = promised(total, _COMPONENTS, norm_of_gauss(_FEATURES, tau))
        yield Point("printed", "measured", float(count), found.energy)
        yield Point("printed", "bound", float(count), bound.energy)


def _split(rows: FloatArray) -> list[FloatArray]:
    size = len(rows) // _SITES
    return [rows[i * size : (i + 1) * size] for i in range(_SITES)]


def _tasks(which: Which, settings: RunSettings) -> list[RunTask]:
    epsilons: tuple[float, ...] = _EPSILONS[which]
    sizes: tuple[int, ...] = _SIZES
    if settings.scale == "toy":
        epsilons, sizes = epsilons[::2], (16, 64)
    tasks = []
    for run in settings.repetitions():
        sweeps = (("epsilon", epsilons), ("features", sizes))
        tasks += [
            RunTask(
                work=one_run,
                arguments={"which": which, "sweep": sweep, "positions": list(positions)},
                run=run,
                cost=2.0,
            )
            for sweep, positions in sweeps
        ]
        if which == "capepca":
            counts = list(_COUNTS[:: 2 if settings.scale == "toy" else 1])
            tasks.append(RunTask(work=as_printed, arguments={"counts": counts}, run=run, cost=1.0))
    return tasks


def _given(which: Which) -> list[Given]:
    said = [
        chosen("rows, features, K", f"{_ROWS:,}, {_FEATURES} or as drawn, {_COMPONENTS}"),
        chosen("spectrum", "K variances from 4 to 2, the others 0.2"),
        chosen("epsilon", f"as drawn; over the features {_AT[which]:g}"),
        chosen("constants", "those of the proofs; the noise's norm to a chance of 1e-6"),
    ]
    if which == "capepca":
        said.append(chosen("sites, delta", f"{_SITES}, {_DELTA:g}"))
    return said


_STYLES = {
    "measured": SeriesStyle("measured", "paper"),
    "bound": SeriesStyle("the bound, with its proof's constants", "exact"),
}
_XLABEL = {"epsilon": "epsilon", "features": "features D"}


def _draw(numbers: Numbers, title: str) -> Figure:
    panels = [
        Panel(
            key=f"{measure}-{sweep}",
            title=f"({letter}) {_YLABEL[measure]}",
            xlabel=label,
            ylabel=_YLABEL[measure],
            yscale="log",
        )
        for letter, (sweep, label, measure) in zip(
            "abcdef",
            ((s, label, m) for s, label in _XLABEL.items() for m in MEASURES),
            strict=True,
        )
    ]
    panels.append(
        Panel(
            key="printed",
            title="(g) energy lost, to the letter:\nA of sums, noise of means",
            xlabel="rows N",
            ylabel="energy lost",
            yscale="log",
        )
    )
    return panel_grid(numbers, panels, _STYLES, title=title)


SHARE = Measure(unit="of the bound", margin=0.0, digits=".2g")
"""What was measured over its bound."""


def bounded(statement: str, where: str, numbers: Numbers, panels: Iterable[str]) -> Claim:
    """That nothing measured is above its bound: on average at each position, and in any fit.

    The mean has an interval over the runs. The largest of all fits has none: the bound is for each
    fit, but with a chance of 1e-6, so that one above it refutes it.
    """
    parts = []
    for panel in panels:
        found, bounds = (numbers.by_run(panel, of) for of in ("measured", "bound"))
        shares = {
            x: np.array([runs[run] / bounds[x][run] for run in runs if run in bounds[x]])
            for x, runs in sorted(found.items())
            if x in bounds
        }
        means = [Effect.of(f"{x:g}", of) for x, of in shares.items() if of.size]
        if means:
            fits = np.concatenate(list(shares.values()))
            means.append(Effect(f"the worst of {fits.size} fits", float(fits.max()), 0.0))
        parts.append(ClaimPart(name=panel, effects=tuple(means), asks="at most", level=1.0))
    return decide(statement, where, parts, SHARE)


def _three(numbers: Numbers, where: str, size: str) -> list[Claim]:
    said = {
        "energy": f"The subspace captures the exact one's energy less O(K {size}).",
        "distance": f"The projections are O({size} / gap) apart.",
        "approximation": f"The error of the approximation of rank K grows by O({size}).",
    }
    return [
        bounded(said[measure], where, numbers, [f"{measure}-{sweep}" for sweep in _XLABEL])
        for measure in MEASURES
    ]


def _claims_of_003(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    return _three(numbers, "Theorem 2", "D/epsilon")


def _claims_of_001(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    where = "Section 4, three guarantees"
    return [
        *_three(numbers, f"{where}, A as a mean over rows", "tau sqrt(D)"),
        bounded(
            "To the letter, where A is the sum over all rows and tau the noise of a mean, the "
            "energy lost is O(tau K sqrt(D)).",
            where,
            numbers,
            ["printed"],
        ),
    ]


_ABOUT = (
    f"The bounds are stated up to constants; drawn are those of their proofs: twice the noise's "
    f"spectral norm, for which a bound that fails with chance {_CHANCE:g} is taken. Gaussian rows "
    f"with {_COMPONENTS} strong directions (variances 4 to 2, the others 0.2), {_ROWS} of them, "
    f"divided by their largest norm, {_FEATURES} features or as drawn. Where the second bound is "
    "above 1 the noise is as large as the gap, and it says nothing."
)

THEOREM2 = Experiment(
    name="003-theorem2",
    title="SN's approximation guarantees (theorem 2) and what is measured",
    paper="003",
    about=_ABOUT + f" Over the features epsilon is {_AT['sn']:g}.",
    datasets=("synthetic",),
    tasks=lambda settings: _tasks("sn", settings),
    draw=lambda numbers, _: _draw(numbers, "Theorem 2 of SN: three bounds"),
    claims=_claims_of_003,
    given=lambda _: _given("sn"),
    runs=NO_RUNS,
)
BOUNDS = Experiment(
    name="001-bounds",
    title="capePCA's three guarantees (section 4) and what is measured",
    paper="001",
    about=_ABOUT
    + f" {_SITES} sites, delta {_DELTA:g}; over the features epsilon is {_AT['capepca']:g}. "
    "The section writes A for the sum over rows and tau for the noise of a mean, which (g) takes "
    "to the letter: the energy of a sum is N times that of the mean, the bound is not. In all "
    "other panels A is the mean.",
    datasets=("synthetic",),
    tasks=lambda settings: _tasks("capepca", settings),
    draw=lambda numbers, _: _draw(numbers, "capePCA: three bounds"),
    claims=_claims_of_001,
    given=lambda _: _given("capepca"),
    runs=NO_RUNS,
)
