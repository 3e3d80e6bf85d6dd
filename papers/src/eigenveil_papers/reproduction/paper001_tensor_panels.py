"""Component errors of mixtures and topics: paper 001's tensor methods, and ours, on the same rows.

Rows are as the text of section 6.2 says: drawn anew for every run, each site with rows of its own,
and for the paper's methods a noise variance that is known. The authors' generator gave all sites
the same rows (published.data.repeated_sites), which ``repeated`` measures besides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil import PrivateGaussianMixture, PrivateTopicModel
from eigenveil.errors import DataError, PrivacyError
from eigenveil_papers.published import data, orthogonal
from eigenveil_papers.reproduction.experiment import Point, RunSettings, RunTask
from eigenveil_papers.reproduction.numbers import FloatArray

Model = Literal["mixture", "topics"]
Target = Sequence[Any]  # panel, horizontal position, epsilon, delta

# Starts of the exact decomposition for each component: the paper's baseline is the tensor power
# method of its reference [3], which takes several; the private ones take one, as published.
_EXACT_STARTS = 10
_SITE_METHODS = {"capeagn": orthogonal.capeagn, "conv": orthogonal.conv, "local": orthogonal.local}
_POOLED_METHODS = {"agn": orthogonal.agn, "avn": orthogonal.avn}


def component_error(found: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """The mean over found rows of the distance to the nearest true one (the papers' q_comp).

    Distances are Euclidean, in the rows' units. Several found rows may share a true one, so a
    component that was missed need not be seen. Signs are not matched: components of a symmetric
    tensor of three modes have one.
    """
    return float(np.mean(np.min(_distances(found, true), axis=1)))


def _distances(found: NDArray[np.float64], true: NDArray[np.float64]) -> NDArray[np.float64]:
    if found.ndim != 2 or true.ndim != 2 or found.shape[1] != true.shape[1]:
        raise DataError("component-shape", shape=found.shape, shape_2=true.shape)
    for name, rows in (("found", found), ("true", true)):
        if rows.size == 0 or not np.all(np.isfinite(rows)):
            raise DataError(
                "component-values", name=name, problem="not finite" if rows.size else "empty"
            )
    return np.asarray(np.linalg.norm(found[:, None, :] - true[None, :, :], axis=2))


@dataclass(frozen=True)
class TensorProblem:
    """The moments of all sites as published, what is to be found, and how ours finds it.

    ``ours`` takes epsilon, delta and a seed, and returns components (K, D).
    """

    sites: list[orthogonal.Moments]
    sensitivities: orthogonal.Sensitivities
    true: FloatArray
    kind: Literal["directions", "distributions"]
    ours: Callable[[float, float, int], FloatArray]

    @property
    def count(self) -> int:
        return int(self.true.shape[0])

    def error(self, found: orthogonal.PublishedComponents) -> float:
        """The paper's q_comp: of unit vectors, or of topics made probabilities."""
        return component_error(getattr(found, self.kind), self.true)


def component_errors(
    rng: np.random.Generator,
    *,
    model: Model,
    size: int,
    count: int,
    rows: int,
    targets: Sequence[Target],
    repeated: bool = False,
) -> Iterator[Point]:
    problem = (
        _mixture(rng, size, count, rows) if model == "mixture" else _topics(rng, size, count, rows)
    )
    same = {
        "exact": _exact(problem, rng),
        "exact-one-start": _exact(problem, rng, starts=1),
        "random": _random(problem, rng),
    }
    again = None
    if repeated and model == "mixture":
        mixture = data.published_mixture(size, count, rng)
        made = data.repeated_sites(mixture, rows, rng)
        again = replace(problem, sites=made[0], sensitivities=made[1], true=mixture.means)
        same["exact-repeated"] = _exact(again, rng)
    measured: dict[tuple[float, float], dict[str, float]] = {}
    for panel, x, epsilon, delta in targets:
        if (epsilon, delta) not in measured:
            found = _private(problem, epsilon, delta, rng)
            if again is not None:
                result = orthogonal.capeagn(
                    again.sites, again.sensitivities, count, epsilon=epsilon, delta=delta, rng=rng
                )
                found["capeagn-repeated"] = again.error(result.components(rng=rng))
            measured[epsilon, delta] = found
        for series, value in (same | measured[epsilon, delta]).items():
            yield Point(panel, series, float(x), value)


def _private(
    problem: TensorProblem, epsilon: float, delta: float, rng: np.random.Generator
) -> dict[str, float]:
    count = problem.count
    target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rng": rng}
    found = {}
    for name, of_sites in _SITE_METHODS.items():
        result = of_sites(problem.sites, problem.sensitivities, count, **target)
        found[name] = problem.error(result.components(rng=rng))
    pooled = _pooled(problem.sites)
    share = len(problem.sites)
    of_all = orthogonal.Sensitivities(
        problem.sensitivities.pair / share, problem.sensitivities.triple / share
    )
    for name, of_one in _POOLED_METHODS.items():
        found[name] = problem.error(of_one(pooled, of_all, count, **target).components(rng=rng))
    try:
        ours = problem.ours(epsilon, delta, int(rng.integers(2**32)))
        found["eigenveil"] = component_error(ours, problem.true)
    except PrivacyError:  # it says that the target cannot be met, and stops
        found["eigenveil"] = float("nan")
    return found


def _pooled(sites: Sequence[orthogonal.Moments]) -> orthogonal.Moments:
    """The mean of the sites' moments: those of all rows, as sites have equally many."""
    pair, triple = (np.mean(moments, axis=0) for moments in zip(*sites, strict=True))
    return orthogonal.Moments(pair, triple)


def _exact(problem: TensorProblem, rng: np.random.Generator, starts: int = _EXACT_STARTS) -> float:
    pooled = _pooled(problem.sites)
    made = orthogonal.components(*pooled, problem.count, rng=rng, restarts=starts)
    return problem.error(made)


def _random(problem: TensorProblem, rng: np.random.Generator) -> float:
    drawn = rng.standard_normal(problem.true.shape)
    return problem.error(orthogonal.PublishedComponents(drawn, np.ones(problem.count), True))


@dataclass(frozen=True)
class MixtureFit:
    """Ours on the rows of all sites together: masks take nothing from it and add nothing."""

    rows: FloatArray
    count: int

    def __call__(self, epsilon: float, delta: float, seed: int) -> FloatArray:
        fitted = PrivateGaussianMixture(
            self.count, epsilon=epsilon, delta=delta, adjacency="replace-one", random_state=seed
        ).fit(self.rows)
        return np.asarray(
            fitted.means_ / np.linalg.norm(fitted.means_, axis=1, keepdims=True), dtype=np.float64
        )


@dataclass(frozen=True)
class _DocumentsFit:
    """The same of documents, given as counts."""

    counts: scipy.sparse.csr_matrix
    count: int

    def __call__(self, epsilon: float, delta: float, seed: int) -> FloatArray:
        fitted = PrivateTopicModel(
            self.count, epsilon=epsilon, delta=delta, adjacency="replace-one", random_state=seed
        ).fit(self.counts)
        return np.asarray(fitted.topics_, dtype=np.float64)


def _mixture(rng: np.random.Generator, size: int, count: int, rows: int) -> TensorProblem:
    mixture = data.published_mixture(size, count, rng)
    drawn = mixture.rows(rows, rng)
    share = rows // data.SITES
    sites = []
    for start in range(0, rows, share):
        scaled, largest = orthogonal.scaled_by_largest(drawn[start : start + share])
        variance = mixture.noise_variance / largest**2
        sites.append(orthogonal.gaussian_moments(scaled, variance))
    # as the authors do, the last site's variance stands for all
    sensitivities = orthogonal.gaussian_sensitivities(share, size, variance)
    return TensorProblem(
        sites, sensitivities, mixture.means, "directions", MixtureFit(drawn, count)
    )


def _topics(rng: np.random.Generator, size: int, count: int, rows: int) -> TensorProblem:
    topics = data.published_topics(size, count, rng)
    words = topics.documents(rows, rng)
    share = rows // data.SITES
    sites = [
        orthogonal.topic_moments(words[start : start + share], size)
        for start in range(0, rows, share)
    ]
    return TensorProblem(
        sites,
        orthogonal.topic_sensitivities(share),
        topics.distributions,
        "distributions",
        _DocumentsFit(word_counts(words, size), count),
    )


def word_counts(words: NDArray[np.int64], size: int) -> scipy.sparse.csr_matrix:
    """The document-term matrix of documents of one length, (n, length) words."""
    ends = np.arange(0, words.size + 1, words.shape[1])
    ones = np.ones(words.size)
    counts = scipy.sparse.csr_matrix((ones, words.ravel(), ends), shape=(len(words), size))
    counts.sum_duplicates()
    return counts


# -- What the panels of paper 001's figures 3 to 5 sweep over, and the tasks that measure them.


Over = Literal["epsilon", "rows", "delta"]
DELTA = 0.01

_EPSILONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
_DELTAS = (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2)
# Model size (D, K): the epsilons of the panels over rows, and the one of those over delta.
_Sizes = dict[tuple[int, int], tuple[tuple[float, ...], float]]
_SIZES: _Sizes = {(10, 5): ((0.5, 2.0), 0.1), (50, 10): ((1.0, 5.0), 2.0)}
_TOY_SIZES: _Sizes = {(20, 3): ((1.0,), 1.0)}


class PointSetting(NamedTuple):
    rows: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Sweep:
    """A panel of component errors: one of rows, epsilon and delta varies."""

    model: Model
    size: int
    count: int
    over: Over
    values: tuple[float, ...]
    rows: int = 0
    epsilon: float = 0.0
    delta: float = DELTA

    @property
    def panel(self) -> str:
        fixed = f"eps{self.epsilon:g}" if self.over == "rows" else f"n{self.rows}"
        return f"{self.model}-d{self.size}-{fixed}-{self.over}"

    @property
    def statement(self) -> str:
        given = [f"D={self.size}, K={self.count}"]
        if self.over != "rows":
            given.append(f"N={short(self.rows)}")
        if self.over != "epsilon":
            given.append(f"ε={self.epsilon:g}")
        return ", ".join(given)

    @property
    def authors(self) -> str:
        """The name of the authors' stored curves, should there be any."""
        model = {"mixture": "MOG", "topics": "STM"}[self.model]
        over = "samples" if self.over == "rows" else self.over
        name = f"{model}_vs_{over}_K_{self.count}_D_{self.size}"
        if self.over != "rows":
            name += f"_N_{short(self.rows)}"
        if self.over != "epsilon":
            name += f"_eps_{self.epsilon:g}".replace(".", "_")
        return name

    def at(self, x: float) -> PointSetting:
        given = {"rows": self.rows, "epsilon": self.epsilon, "delta": self.delta, self.over: x}
        return PointSetting(int(given["rows"]), float(given["epsilon"]), float(given["delta"]))


def short(rows: int) -> str:
    """A number of rows as the paper writes it."""
    return f"{rows // 1000}k" if rows % 1000 == 0 else str(rows)


def error_sweeps(model: Model, settings: RunSettings) -> list[Sweep]:
    """Figures 3 and 4: over epsilon for two numbers of rows, then over rows."""
    few = settings.pick((100_000, 800_000), (50_000, 100_000), (10_000, 40_000))
    epsilons: tuple[float, ...] = settings.pick(_EPSILONS, (0.1, 1.0, 10.0), (0.5, 10.0))
    many = settings.pick(
        (50_000, 100_000, 200_000, 500_000, 800_000), (20_000, 100_000), (10_000, 40_000)
    )
    sizes = settings.pick(_SIZES, _SIZES, _TOY_SIZES)
    over_epsilon = [
        Sweep(model, size, count, "epsilon", epsilons, rows=rows)
        for size, count in sizes
        for rows in few
    ]
    over_rows = [
        Sweep(model, size, count, "rows", tuple(map(float, many)), epsilon=epsilon)
        for (size, count), (requested, _) in sizes.items()
        for epsilon in requested
    ]
    return [*over_epsilon, *over_rows]


def delta_sweeps(settings: RunSettings) -> list[Sweep]:
    """Figure 5: over delta, of mixtures and then of topics."""
    few = settings.pick((100_000, 800_000), (50_000, 100_000), (40_000,))
    deltas = settings.pick(_DELTAS, (1e-4, 1e-2), (1e-4, 5e-2))
    models: tuple[Model, ...] = ("mixture", "topics")
    return [
        Sweep(model, size, count, "delta", deltas, rows=rows, epsilon=epsilon)
        for model in models
        for (size, count), (_, epsilon) in settings.pick(_SIZES, _SIZES, _TOY_SIZES).items()
        for rows in few
    ]


def error_tasks(
    sweeps: Iterable[Sweep], runs: Sequence[int], *, repeated: bool = False
) -> list[RunTask]:
    """One task for each run of each data set: all panels that show it share its moments."""
    targets: dict[tuple[Model, int, int, int], list[list[object]]] = defaultdict(list)
    for sweep in sweeps:
        for x in sweep.values:
            rows, epsilon, delta = sweep.at(x)
            of = (sweep.model, sweep.size, sweep.count, rows)
            targets[of].append([sweep.panel, x, epsilon, delta])
    return [
        RunTask(
            component_errors,
            {
                "model": model,
                "size": size,
                "count": count,
                "rows": rows,
                "targets": requested,
                "repeated": repeated,
            },
            run,
            _cost(model, size, rows, len(requested)),
        )
        for (model, size, count, rows), requested in targets.items()
        for run in runs
    ]


def _cost(model: Model, size: int, rows: int, targets: int) -> float:
    """Seconds: the moments of mixtures take D^2 a row, a fit of ours D or so."""
    moments = 1e-8 * rows * size**2 if model == "mixture" else 0.0
    return moments + targets * (0.17 + rows * (1.7e-6 if size > 20 else 8.5e-7))
