"""A private mixture of spherical Gaussians as a generator of rounds.

Rows are taken about a point beside their centre, never the centre itself: about their own mean K
components span only K - 1 directions. Any point near the rows will do, so the centre need not be
good, and the answer does not depend on where the data's origin is.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.estimators.plans import Step
from eigenveil.estimators.polish import polished_means
from eigenveil.estimators.rounds import (
    Answers,
    Round,
    RoundState,
    find_centre,
    too_few_rows,
)
from eigenveil.estimators.scale import NormScale
from eigenveil.estimators.tensor_settings import MixturePlan
from eigenveil.estimators.whitening import (
    Bulk,
    PairMoment,
    check_rank,
    full_pair,
    recover,
    sketched_pair,
)
from eigenveil.linalg.eigen import orthonormal_basis
from eigenveil.moments.accumulators import NormHistogram, SecondMoment, Sketch
from eigenveil.moments.rows import RowRule
from eigenveil.moments.tensors import ThirdMoment
from eigenveil.noise.edges import deviation, spectral_edge
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.releases import Sharing

# Rows longer than this quantile of the norms are shortened, before and after the projection.
_QUANTILE = 0.98
# How far from the centre rows are taken, in root mean square norms of centred rows. Nearer, one of
# the K directions is weak; farther, rows are longer for nothing (measured: 0.15 to 0.5 do alike).
_OFFSET = 0.3
# The noise variance of y cannot be more than a row's largest squared norm.
_LARGEST_VARIANCE = 1.0

_State = RoundState[MixturePlan]


@dataclass(frozen=True)
class MixtureFactors:
    """The result: everything in it is computed from releases.

    Attributes
    ----------
    means : array of shape (K, D)
    weights : array of shape (K,)
        They add up to 1, the largest first.
    noise_variance : float
        Of every feature within a component.
    rows : float
    strengths : array
        Leading eigenvalues of the pair moment, as variances.
    noise_floor : float
        What of these noise alone would show.
    above_noise : int
        How many of them stand clearly above it.
    row_bound : float
        Length to which centred rows were shortened.
    converged : bool
    """

    means: NDArray[np.float64]
    weights: NDArray[np.float64]
    noise_variance: float
    rows: float
    strengths: NDArray[np.float64]
    noise_floor: float
    above_noise: int
    row_bound: float
    converged: bool


def private_mixture(
    plan: MixturePlan,
    *,
    stored_single: bool,
    public_centre: NDArray[np.float64] | None = None,
    budgets: Mapping[Step, StepBudget] | None = None,
    sharing: Mapping[Step, Sharing] | None = None,
) -> Generator[Round, Answers, MixtureFactors]:
    """The rounds of a fit: norms, centre, pair moment, projected norms, triple moment.

    Parameters
    ----------
    plan : MixturePlan
    stored_single : bool
        Whether all rows are stored in single precision.
    public_centre : array of shape (D,), optional
        The public centre when ``plan.centred == "public"``.
    budgets : mapping, optional
        In place of the plan's own.
    sharing : mapping, optional
        How the parties of a study share the noise of a step.

    Raises
    ------
    PrivacyError
        When a released histogram shows too few rows for its quantiles to be found, or the pair
        moment fewer components than were asked for.
    """
    state = _State(plan, stored_single, dict(budgets or {}), dict(sharing or {}))
    scale = yield from find_centre(state, public_centre)
    if plan.needs_centred_scale:
        answers = yield (state.ask("scale of centred rows", state.histogram()),)
        centred = state.read(answers["scale of centred rows"])
        scale = centred if centred.found else scale
        if scale is None and plan.row_bound is None:
            raise too_few_rows()
    place = _place(state, scale)
    pair, rule = yield from _pair(state, place)
    check_rank(pair, wanted=_wanted(plan))

    histogram = NormHistogram(
        rule.centre,
        precision=rule.precision,
        with_count=state.with_count,
        basis=pair.basis,
        bound=rule.bound,
    )
    name = "scale of projected rows"
    answers = yield (state.ask(name, histogram),)
    projected = state.read(answers[name])
    clip = min(1.0, projected.quantile(_QUANTILE) / place.bound) if projected.found else 1.0
    assert state.rows is not None
    variance = pair.bulk / state.rows
    if plan.noise_variance is not None:
        variance = plan.noise_variance / place.bound**2
    third = ThirdMoment(
        rule, pair.basis, clip=clip, variance=min(_LARGEST_VARIANCE, variance / clip**2)
    )
    answers = yield (state.ask("triple moment", third),)
    total = None if place.offset is None else place.offset * state.rows
    release = answers["triple moment"]
    triple = release.values * clip**3
    found = recover(pair, triple, rows=state.rows, total=total)
    seen, weights = polished_means(
        pair.core,
        triple,
        found.seen,
        found.counts,
        core_noise=pair.deviation,
        triple_noise=deviation(release.record.noise, third.shape[0]) * clip**3,
        noise_variance=variance,
        rows=state.rows,
    )
    order = np.argsort(-weights, kind="stable")
    unit = place.bound**2 / state.rows
    return MixtureFactors(
        means=place.origin + place.bound * (seen[order] @ pair.basis.T),
        weights=weights[order],
        noise_variance=variance * place.bound**2,
        rows=state.rows,
        strengths=pair.strengths * unit,
        noise_floor=pair.floor * unit,
        above_noise=pair.above,
        row_bound=place.bound,
        converged=found.converged,
    )


def _wanted(plan: MixturePlan) -> int | None:
    """How many components must stand above the noise; ``None``: at least one."""
    if plan.auto_components:
        return None
    return plan.n_components if plan.below_noise == "error" else 0


@dataclass(frozen=True)
class _Place:
    """Where rows are taken from, and how long they may be from there.

    ``offset`` is the rows' mean from there, in units of the bound, where it is known.
    """

    origin: NDArray[np.float64]
    bound: float
    offset: NDArray[np.float64] | None


def _place(state: _State, scale: NormScale | None) -> _Place:
    plan = state.plan
    bound = plan.row_bound or 0.0
    if scale is not None and plan.row_bound is None:
        bound = scale.quantile(_QUANTILE)
    size = bound if scale is None else bound * math.sqrt(scale.mean_energy(bound))
    if state.centre is None:
        return _Place(np.zeros(plan.features), bound, None)
    # public and independent of the data: the same for every study of this shape
    direction = np.random.default_rng(plan.features).standard_normal((plan.features,))
    step = direction * (_OFFSET * size / float(np.linalg.norm(direction)))
    bound = math.hypot(bound, _OFFSET * size)
    # a public centre need not be the rows' mean
    offset = step / bound if plan.centred == "private" else None
    return _Place(state.centre - step, bound, offset)


def _pair(state: _State, place: _Place) -> Generator[Round, Answers, tuple[PairMoment, RowRule]]:
    """The pair moment in the plan's form."""
    plan = state.plan
    precision = state.precision(_edge(state)) if state.stored_single else "double"
    rule = RowRule(
        centre=place.origin if np.any(place.origin) else None,
        bound=place.bound,
        precision=precision,
        extra_bits=state.coarser(precision),
    )
    known = None
    if plan.noise_variance is not None and state.rows is not None:
        known = plan.noise_variance / place.bound**2 * state.rows
    bulk = Bulk(known, rows=state.rows, offset=place.offset)
    components = None if plan.auto_components else plan.n_components
    if plan.pair == "full":
        answers = yield (state.ask("pair moment", SecondMoment(rule, features=plan.features)),)
        release = answers["pair moment"]
        pair = full_pair(
            release.values,
            release.record.noise,
            bulk,
            components=components,
            most=plan.n_components,
        )
        return pair, rule
    gaussian = np.random.default_rng(plan.features).standard_normal(
        (plan.features, plan.sketch_size)
    )
    basis = orthonormal_basis(gaussian)
    clip = min(1.0, 1.3 * math.sqrt(plan.sketch_size / plan.features))  # privacy.md, section 6
    answers = yield (state.ask("pair moment", Sketch(rule, basis, clip=clip)),)
    release = answers["pair moment"]
    pair = sketched_pair(
        release.values,
        basis / clip,
        release.record.noise,
        bulk,
        components=components,
        most=plan.n_components,
    )
    return pair, rule


def _edge(state: _State) -> float:
    """Largest eigenvalue that a pair moment's noise alone will show, before it is drawn."""
    plan = state.plan
    if plan.pair == "sketch":
        budget = state.budgets["moment"]
        return math.sqrt(2 * plan.features) / (budget.mu or budget.epsilon or 1.0)
    rule = RowRule(precision=state.storage, extra_bits=state.coarser(state.storage))
    noise = state.ask("pair moment", SecondMoment(rule, features=plan.features)).record.noise
    return spectral_edge(noise, plan.features, plan.features)
