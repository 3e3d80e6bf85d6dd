"""The noise that a release puts on the whitened third moment: of paper 001's methods, and of ours.

Noise is measured, not computed: a release less the exact moment it was made from. It is seen
through the exact whitening, in which the components of every method are the same orthonormal
vectors times one over the root of their weights; so these numbers compare with each other whatever
a method divides its rows by, and wherever it takes them from.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from eigenveil.errors import PrivacyError
from eigenveil.linalg.tensor import multilinear
from eigenveil.models.driver import driven, run_rounds
from eigenveil.models.mixture.plan import make_plan as make_mixture_plan
from eigenveil.models.mixture.rounds import private_mixture
from eigenveil.models.options import Options
from eigenveil.models.rounds import Answers, Round
from eigenveil.models.topics.plan import make_plan as make_topic_plan
from eigenveil.models.topics.rounds import private_topics
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.documents.documents import as_documents
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.release import Release
from eigenveil.moments.source import ArrayRows, SparseRows
from eigenveil.moments.third import ThirdMoment
from eigenveil.noise.source import SeededSource
from eigenveil_papers.published import data, orthogonal
from eigenveil_papers.reproduction.experiment import Point
from eigenveil_papers.reproduction.numbers import FloatArray
from eigenveil_papers.reproduction.paper001_tensor_panels import Model, word_counts

_TRIPLE = "triple moment"
# Turns of the components in their plane over which a measurement is averaged.
_TURNS = 64
# A sensitivity of the pair moment that leaves its whitening exact.
_NOTHING = 1e-15


def whitened_noise(
    rng: np.random.Generator,
    *,
    model: Model,
    size: int,
    count: int,
    rows: int,
    targets: Sequence[Sequence[Any]],
    draws: int = 4,
) -> Iterator[Point]:
    """Root-mean-square entries of the noise in the whitened K x K x K moment, over some draws.

    Whitening weighs a component of weight w by ``w^(-1/2)`` a mode, so that few entries make up
    most of the noise: the components' directions are turned in their plane, which gives mixtures
    that are as likely, and the mean square is taken over them.

    Series "agn" (which capeAGN's result carries as well), "avn", "conv", "eigenveil" and, of a
    mixture, "eigenveil-uncentred", which takes the rows as they are, as the paper does.
    """
    true: data.MixtureLaw | data.Topics
    if model == "mixture":
        true = mixture = data.published_mixture(size, count, rng)
        drawn = mixture.rows(rows, rng)
        _, largest = orthogonal.scaled_by_largest(drawn)
        vectors = mixture.means / largest
        share = orthogonal.gaussian_sensitivities(rows, size, mixture.noise_variance / largest**2)
        source: Any = ArrayRows(drawn)
    else:
        true = topics = data.published_topics(size, count, rng)
        vectors = topics.distributions
        share = orthogonal.topic_sensitivities(rows)
        source = as_documents(SparseRows(word_counts(topics.documents(rows, rng), size)))
    moments = _population(vectors, true.weights)
    measured: dict[tuple[float, float], dict[str, float]] = {}
    for panel, x, epsilon, delta in targets:
        target = {"epsilon": float(epsilon), "delta": float(delta)}
        key = (target["epsilon"], target["delta"])
        if key not in measured:
            squares: dict[str, list[float]] = defaultdict(list)
            for _ in range(draws):
                for name in ("agn", "avn", "conv"):
                    noise = published_noise(name, moments, share, count, rng=rng, **target)
                    squares[name].append(noise**2)
                for name, center in (("eigenveil", True), ("eigenveil-uncentred", False)):
                    if center or model == "mixture":
                        noise = own_noise(true, source, rows, center, rng=rng, **target)
                        squares[name].append(noise**2)
            measured[key] = {name: float(np.sqrt(np.mean(all_))) for name, all_ in squares.items()}
        for series, value in measured[key].items():
            yield Point(panel, series, float(x), value)


def published_noise(
    name: str,
    moments: orthogonal.Moments,
    sensitivities: orthogonal.Sensitivities,
    count: int,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> float:
    """Of a published method: its cube less the exact one, both through the exact whitening."""
    sites = data.SITES if name == "conv" else 1
    given = orthogonal.Sensitivities(_NOTHING, sensitivities.triple * sites)
    target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rng": rng}
    if name == "conv":
        result = orthogonal.conv([moments] * sites, given, count, **target)
    else:
        method = {"agn": orthogonal.agn, "avn": orthogonal.avn}[name]
        result = method(moments, given, count, **target)
    noise = result.cube - multilinear(moments.triple, result.whitening)
    # W = U diag(s)^(-1/2): back to the plane U
    strengths = np.asarray(1.0 / np.sum(np.square(result.whitening), axis=0))
    return _whitened(multilinear(noise, np.diag(np.sqrt(strengths))), strengths, rng)


def own_noise(
    true: data.MixtureLaw | data.Topics,
    source: Any,
    rows: int,
    center: bool,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> float:
    """Of ours: the released triple moment of a whole fit less the exact sum it was made from.

    The noise is isometric in the K directions, so that of the plane that was found counts as noise
    of the true plane. nan where the fit stops because the target cannot be met.
    """
    targets: dict[str, Any] = {
        "n_components": len(true.weights),
        "epsilon": epsilon,
        "delta": delta,
        "mechanism": "gaussian",
        "adjacency": "replace-one",
        "pair": "full",
    }
    rounds: Generator[Round, Answers, Any]
    if isinstance(true, data.MixtureLaw):
        mixture = Options("gaussian-mixture", "table", targets | {"center": center})
        made = make_mixture_plan(mixture, features=source.features)
        rounds = private_mixture(made, keep_all=True)
    else:
        topics = Options("topic-model", "table", targets)
        plan = make_topic_plan(topics, features=source.features)
        rounds = private_topics(plan, keep_all=True)
    seen: dict[str, tuple[Accumulator, Release]] = {}
    noise_source = SeededSource(int(rng.integers(2**32)))
    try:
        run_rounds(_watched(rounds, seen), source, noise_source)
    except PrivacyError:
        return float("nan")
    if _TRIPLE not in seen:  # it ended before
        return float("nan")
    exact, release = seen[_TRIPLE]
    noise = release.values - np.ldexp(exact.integers().astype(np.float64), exact.grid)
    origin, unit = np.zeros(source.features), 1.0
    if isinstance(exact, ThirdMoment):
        vectors = true.means  # type: ignore[union-attr]
        origin = origin if exact.rule.center is None else exact.rule.center
        unit = (exact.clip * float(exact.rule.bound or 1.0)) ** 3
    else:
        assert isinstance(exact, DocumentTriples)
        vectors = true.distributions  # type: ignore[union-attr]
        unit = exact.unit
    pair = _population(vectors - origin, true.weights).pair
    strengths = np.asarray(np.linalg.eigvalsh(pair)[-len(true.weights) :], dtype=np.float64)
    return _whitened(noise * (unit / rows), strengths, rng)


def _watched(
    rounds: Generator[Round, Answers, Any], seen: dict[str, tuple[Accumulator, Release]]
) -> Generator[Round, Answers, Any]:
    """The same rounds; keeps what was added up and what was released of it."""

    def noted(queries: Round) -> Generator[Round, Answers, Answers]:
        answers = yield queries
        for query in queries:
            seen[query.name] = (query.accumulator, answers[query.name])
        return answers

    return driven(rounds, noted)


def _population(vectors: FloatArray, weights: FloatArray) -> orthogonal.Moments:
    """Both moments of components (K, D) without sampling."""
    pair = np.einsum("k,ka,kb->ab", weights, vectors, vectors, optimize=True)
    triple = np.einsum("k,ka,kb,kc->abc", weights, vectors, vectors, vectors, optimize=True)
    return orthogonal.Moments(pair, triple)


def _whitened(noise: FloatArray, strengths: FloatArray, rng: np.random.Generator) -> float:
    """Root mean square of noise (K, K, K) in a plane, whitened by these eigenvalues."""
    squares = []
    for _ in range(_TURNS):
        turn = np.linalg.qr(rng.standard_normal((strengths.size, strengths.size)))[0]
        squares.append(float(np.mean(np.square(multilinear(noise, turn / np.sqrt(strengths))))))
    return math.sqrt(float(np.mean(squares)))
