"""Simulated fits of covariances, mixtures and topics, on rows as the user expects them.

The plan's own rounds run on rows that are drawn, as those of PCA do
(:mod:`eigenveil.planning.predict`). Where there are more rows, features or words than are worth
drawing, fewer are, and the budgets are scaled so that the noise keeps its size against them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from eigenveil.models.covariance.plan import CovariancePlan
from eigenveil.models.driver import rounds_of
from eigenveil.models.ica.jade import separation_error
from eigenveil.models.ica.plan import ICAPlan
from eigenveil.models.mixture.plan import MixturePlan
from eigenveil.models.model_options import COVARIANCE, ICA, MIXTURE, PCA, TOPICS
from eigenveil.models.task import task_of_plan
from eigenveil.models.tensors.plan import TensorPlan
from eigenveil.models.topics.plan import TopicPlan
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.moments.source import ArrayRows, RowSource, SparseRows
from eigenveil.planning.predict import MOST_ROWS, rows_of_spectrum, try_pca
from eigenveil.planning.trials import (
    ONE_CURATOR,
    Scenario,
    Simulation,
    TrialNoise,
    Trials,
    run_trial,
    times,
)

Array = NDArray[np.float64]

_MOST_FEATURES = 800
# Of mixtures more rows are drawn: third moments take more to show anything.
_MOST_MIXTURE_ROWS, _MOST_DOCUMENTS = 20_000, 5_000
_MOST_MIXTURE_FEATURES, _MOST_WORDS = 200, 300
# Components that are drawn where their number is to be found.
USUAL_COMPONENTS = 5
# Decompositions of the third moment, each as costly as so many numbers an entry.
_NUMBERS_AN_ENTRY = 10_000
# A public bound on the norms is taken to be so many root mean squares of them.
_BOUND = 2.0


def try_covariance(plan: CovariancePlan, data: Scenario, how: Simulation = ONE_CURATOR) -> Trials:
    """Simulated fits of a covariance on Gaussian rows.

    Their quality is 1 less the relative error of the covariance (Frobenius), at least 0.
    """
    features = plan.features
    if features > _MOST_FEATURES:
        return Trials(note=f"not simulated beyond {_MOST_FEATURES} features")
    drawn = min(data.rows, MOST_ROWS)
    small = plan.model_copy(
        update={
            "row_bound": None if plan.row_bound is None else _BOUND,
            "row_norm": "auto" if plan.row_bound is None else _BOUND,
            "precision": "single",
            "sites": 0,  # of rows without sites' means
        }
    )
    budgets = how.budgets(plan, data.rows / drawn, features)

    def simulate(number: int) -> tuple[float, Any]:
        rows = rows_of_spectrum(plan, data, features, drawn, (how.seed, number))
        given = ArrayRows(rows.values)
        factors = _tried(small, given, how.noise(number), budgets, preparation=rows.preparation)
        exact = rows.moment / drawn
        error = np.linalg.norm(factors.covariance - exact) / np.linalg.norm(exact)
        return 1.0 - float(error), factors

    return how.trials(simulate, drawn * features)


def try_ica(plan: ICAPlan, data: Scenario, how: Simulation = ONE_CURATOR) -> Trials:
    """Simulated fits of Laplace and uniform sources, mixed so that rows have the spectrum.

    Their quality is 1 less the Moreau-Amari index of the sources that are found, at least 0.
    """
    features, count = plan.features, plan.n_components
    if features > _MOST_FEATURES:
        return Trials(note=f"not simulated beyond {_MOST_FEATURES} features")
    drawn = min(data.rows, _MOST_MIXTURE_ROWS)
    small = plan.model_copy(
        update={
            "row_bound": None if plan.row_bound is None else _BOUND,
            "row_norm": "auto" if plan.row_bound is None else _BOUND,
        }
    )
    budgets = how.budgets(plan, data.rows / drawn, features)
    deviations = np.sqrt(data.spectrum / data.spectrum.sum())

    def simulate(number: int) -> tuple[float, Any]:
        rng = np.random.default_rng((how.seed, number, 0))
        sources = rng.laplace(scale=math.sqrt(0.5), size=(drawn, count))
        sources[:, 1::2] = rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), (drawn, count // 2))
        turn = np.linalg.qr(rng.standard_normal((count, count)))[0]
        axes = np.linalg.qr(rng.standard_normal((features, features)))[0] * deviations
        mixing = axes[:, :count] @ turn
        rows = sources @ mixing.T
        rows += rng.standard_normal((drawn, features - count)) @ axes[:, count:].T
        given = ArrayRows(rows)
        public = plan.scaled == "public"
        preparation = Preparation(scale=np.ones(features)) if public else AS_IT_IS
        factors = _tried(small, given, how.noise(number), budgets, preparation=preparation)
        if factors.stopped or factors.unmixing.shape[0] < count:
            return 0.0, factors
        return max(0.0, 1.0 - separation_error(factors.unmixing / factors.scale @ mixing)), factors

    return how.trials(simulate, drawn * features)


def try_mixture(plan: MixturePlan, data: Scenario, how: Simulation = ONE_CURATOR) -> Trials:
    """Simulated fits of a mixture of equal spheres whose means are all as far from one another.

    Their quality is the share of the rows whose nearest mean is that of the right component, the
    one whose exact mean is nearest; the fit's components are matched with these as well as can be.
    """
    count = components_drawn(plan)
    features = min(plan.features, max(_MOST_MIXTURE_FEATURES, count))
    drawn = min(data.rows, _MOST_MIXTURE_ROWS)
    variance = 1.0 if not plan.noise_variance else plan.noise_variance
    radius = data.distance / math.sqrt(1.0 - 1.0 / count) if count > 1 else 0.0
    bound = plan.row_bound
    if bound is not None:
        bound = _BOUND * math.sqrt(variance * (features + radius**2))
    small = _small(plan, features).model_copy(update={"row_bound": bound, "precision": "single"})
    # a row's energy is that of its features: of fewer, its mean's part of it is larger
    energy = [d + radius**2 for d in (features, plan.features)]
    budgets = how.budgets(plan, data.rows / drawn, features, _columns(plan))
    budgets["moment"] = times(budgets["moment"], energy[0] / energy[1])
    if "tensor" in budgets:
        budgets["tensor"] = times(budgets["tensor"], (energy[0] / energy[1]) ** 1.5)

    def simulate(number: int) -> tuple[float, Any]:
        rng = np.random.default_rng((how.seed, number, 1))
        axes = np.linalg.qr(rng.standard_normal((features, count)))[0].T
        means = (math.sqrt(variance) * radius * axes).astype(np.float32)
        rng = np.random.default_rng((how.seed, number, 0))
        rows = rng.standard_normal((drawn, features), dtype=np.float32)
        rows *= np.float32(math.sqrt(variance))
        rows += means[np.arange(drawn) % count]
        factors = _tried(small, ArrayRows(rows), how.noise(number), budgets)
        return _agreement(rows, means, factors.means), factors

    return how.trials(simulate, drawn * features + _NUMBERS_AN_ENTRY * count**3)


def try_topics(plan: TopicPlan, data: Scenario, how: Simulation = ONE_CURATOR) -> Trials:
    """Simulated fits of equal topics, each spread evenly over words of its own.

    Their quality is the probability that a topic and the fit's have in common, the mean over the
    topics: 1 less half of the L1 distance, the fit's topics being matched as well as can be.
    """
    count, spread = components_drawn(plan), data.topic_words
    used = count * spread
    if used > plan.features:
        words = f"{count} topics of {spread} words are more than {plan.features:,}"
        return Trials(note=f"{words}: not simulated")
    features = min(plan.features, max(_MOST_WORDS, used))
    if features > _MOST_FEATURES:
        return Trials(note=f"not simulated beyond {_MOST_FEATURES} words of all topics")
    drawn = min(data.rows, _MOST_DOCUMENTS)
    small = _small(plan, features)
    budgets = how.budgets(plan, data.rows / drawn, features, _columns(plan))
    topics = np.zeros((count, features))
    for number in range(count):
        topics[number, number * spread : (number + 1) * spread] = 1.0 / spread

    def simulate(number: int) -> tuple[float, Any]:
        rng = np.random.default_rng((how.seed, number, 0))
        size = (drawn, data.document_words)
        places = rng.integers(spread, size=size) + spread * _topics(rng, size, count, plan.alpha0)
        ends = np.arange(0, places.size + 1, data.document_words)
        counts = scipy.sparse.csr_array(
            (np.ones(places.size), places.ravel(), ends), shape=(drawn, features)
        )
        counts.sum_duplicates()
        rows = task_of_plan(plan).rows_for(SparseRows(counts))
        factors = _tried(small, rows, how.noise(number), budgets)
        common = np.minimum(topics[:, None], factors.topics[None]).sum(axis=2)
        return _matched(common) / count, factors

    return how.trials(simulate, drawn * features + _NUMBERS_AN_ENTRY * count**3)


def _topics(
    rng: np.random.Generator, size: tuple[int, int], count: int, alpha0: float
) -> NDArray[np.intp]:
    """The topic of each word of documents: one a document, or of a Dirichlet law."""
    rows = np.arange(size[0])[:, None]
    if alpha0 == 0.0:
        return np.broadcast_to(rows % count, size)
    ends = np.cumsum(rng.dirichlet(np.full(count, alpha0 / count), size[0]), axis=1)
    ends[:, -1] = 1.0
    places = np.searchsorted((ends + rows).ravel(), rng.random(size) + rows, side="right")
    return np.asarray(np.minimum(places - count * rows, count - 1))


def components_drawn(plan: TensorPlan) -> int:
    """How many components or topics simulated data have: each in a direction of its own."""
    if plan.auto_components:
        return min(plan.rank, USUAL_COMPONENTS, max(1, plan.features - 1))
    return plan.rank


def _columns(plan: TensorPlan) -> int | None:
    return plan.sketch_columns if plan.sketched else None


def _small(plan: Any, features: int) -> Any:
    columns = min(plan.sketch_columns, features)
    most = max(1, features - 1) if plan.auto_components else features
    return plan.model_copy(
        update={
            "features": features,
            "n_components": min(plan.n_components, most, columns if plan.sketched else most),
            "sketch_columns": columns,
        }
    )


def _tried(plan: Any, rows: RowSource, noise: TrialNoise, budgets: Any, **context: Any) -> Any:
    center = np.zeros(plan.features) if plan.centered == "public" else None
    rounds = rounds_of(plan, public_center=center, budgets=budgets, **context)
    return run_trial(rounds, rows, noise)


def _agreement(rows: Any, means: Any, found: Array) -> float:
    """The share of rows that are nearest to the mean that is matched with their own."""
    exact = _nearest(rows, means)
    seen = _nearest(rows, found.astype(np.float32))
    table = np.zeros((means.shape[0], found.shape[0]))
    np.add.at(table, (exact, seen), 1.0)
    return _matched(table) / float(np.sum(table))


def _nearest(rows: Any, means: Any) -> NDArray[np.intp]:
    return np.asarray(np.argmax(rows @ means.T - 0.5 * (means**2).sum(axis=1), axis=1))


def _matched(worth: Array) -> float:
    """The most that pairs of rows and columns are worth together."""
    return float(worth[linear_sum_assignment(worth, maximize=True)].sum())


SIMULATORS: Mapping[str, Callable[..., Trials]] = {
    PCA: try_pca,
    MIXTURE: try_mixture,
    TOPICS: try_topics,
    COVARIANCE: try_covariance,
    ICA: try_ica,
}
"""Simulated fits of a plan, by its task."""
