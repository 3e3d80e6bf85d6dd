"""Private PCA as a generator of rounds (privacy.md, section 8)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.holes import Observed
from eigenveil.models.pca.covariates import find_effects
from eigenveil.models.pca.plan import Plan
from eigenveil.models.pca.score_plot import with_scores
from eigenveil.models.pca.second_moment import Factorised, factorised, moment_edge
from eigenveil.models.pca.variances import PCAFactors, data_units, explained
from eigenveil.models.pca.ways import ADAPTIVE
from eigenveil.models.rounds import (
    Answers,
    Round,
    RoundState,
    find_center,
    find_scales,
    find_site_means,
    next_round,
)
from eigenveil.models.scale import NormScale
from eigenveil.models.schedule import CENTERED_SCALE, OBSERVED
from eigenveil.moments.histograms import ObservedCounts, ObservedPairs
from eigenveil.moments.preparation import Effects

_State = RoundState[Plan]


def private_pca(
    plan: Plan,
    *,
    public_center: NDArray[np.float64] | None = None,
    max_norm: float | None = None,
    variables: NDArray[np.float64] | None = None,
    **begun: Any,
) -> Generator[Round, Answers, PCAFactors]:
    state = _State(plan, **begun)
    found = yield from release_moment(state, public_center, max_norm, variables)
    if found is None:
        return _nothing(state)
    factors = yield from explained(state, found)
    return (yield from with_scores(state, factors))


def release_moment(
    state: RoundState[Any],
    public_center: NDArray[np.float64] | None,
    max_norm: float | None = None,
    variables: NDArray[np.float64] | None = None,
) -> Generator[Round, Answers, Factorised | None]:
    """The rounds up to the second moment, of any plan that is PCA's or built on it."""
    plan: Plan = state.plan
    rounds = _release_moment(state, public_center, max_norm, variables)
    if not plan.counts_of_holes():
        return (yield from rounds)
    kind = ObservedPairs if plan.missing == "pairs" else ObservedCounts
    counts = state.query(OBSERVED, kind(plan.features, weighted=plan.weighted))
    answers = yield (counts, *next(rounds))
    state.observed = Observed.of(answers[OBSERVED])
    queries, found = next_round(rounds, answers)
    while queries is not None:
        queries, found = next_round(rounds, (yield queries))
    return found


def _release_moment(
    state: RoundState[Any],
    public_center: NDArray[np.float64] | None,
    max_norm: float | None,
    variables: NDArray[np.float64] | None,
) -> Generator[Round, Answers, Factorised | None]:
    """The same, without the counts where entries are missing: a first round needs none."""
    plan: Plan = state.plan
    yield from find_scales(state, variables)
    if state.stopped:
        return None
    if plan.scores_by:  # they are 0 in all rows from here on
        none = np.zeros((plan.features, len(plan.scores_by)))
        state.preparation = replace(state.preparation, effects=Effects(plan.scores_by, none))
    scale = yield from find_center(state, public_center)
    if state.stopped:
        return None
    yield from find_site_means(state, scale)
    scale = yield from find_effects(state, scale)
    if state.stopped:
        return None
    beside: Round = ()
    names = [planned.name for planned in plan.schedule]
    if CENTERED_SCALE in names:
        query = state.query(CENTERED_SCALE, state.histogram())
        if names.index(CENTERED_SCALE) > names.index(plan.way.schedule(plan)[0].name):
            beside = (query,)  # read only after the moment: one pass for both
        else:
            answers = yield (query,)
            scale = state.better(scale, answers[query.name])

    state.norms = scale
    row_bound = _second_moment_bound(state, scale, max_norm)
    found = yield from factorised(state, row_bound, beside)
    if beside:
        scale = state.better(scale, found.answers[CENTERED_SCALE])
    return replace(found, scale=scale, row_bound=found.row_bound or row_bound)


def _nothing(state: _State) -> PCAFactors:
    """The result of a fit that ended before its components were released: public directions."""
    plan = state.plan
    count = plan.n_components if plan.variance_share is None else 1
    none = np.full(count, np.nan)
    return PCAFactors(
        components=np.eye(count, plan.features),
        **data_units(state),
        explained_variance=none,
        explained_variance_ratio=none.copy(),
        total_variance=0.0,
        noise_floor=0.0,
        usable=np.zeros(count, dtype=np.bool_),
        row_bound=0.0,
        stopped=state.stopped,
        advice=state.advice,
    )


def _second_moment_bound(state: _State, scale: NormScale | None, max_norm: float | None) -> float:
    match state.plan.row_norm:
        case "unit":
            return 0.0
        case "max":
            assert max_norm is not None
            return max_norm
        case "auto":
            if scale is None or state.plan.way is ADAPTIVE:  # the latter decides between releases
                return 0.0
            return state.plan.choose_bound(scale, edge=moment_edge(state))
        case bound:
            return float(bound)
