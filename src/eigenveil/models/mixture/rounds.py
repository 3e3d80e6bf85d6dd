"""A private mixture of spherical Gaussians as a generator of rounds.

Rows are taken about a point beside their centre, never the centre itself: about their own mean K
components span only K - 1 directions. Any point near the rows will do, so the centre need not be
good, and the answer does not depend on where the data's origin is.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import orthonormal_basis
from eigenveil.models.plan import CENTERED_SCALE, Step
from eigenveil.models.rounds import Answers, Round, RoundState, find_center
from eigenveil.models.scale import NormScale
from eigenveil.models.shapes import LARGEST_VARIANCE
from eigenveil.models.tensors.plan import MixturePlan
from eigenveil.models.tensors.polish import polished_means
from eigenveil.models.tensors.whitening import (
    NO_COMPONENT,
    REPEATS,
    Bulk,
    PairMoment,
    full_pair,
    leading_part,
    recover,
    shortfall,
    sketched_pair,
    usable,
)
from eigenveil.moments.accumulators import NormHistogram, SecondMoment, Sketch
from eigenveil.moments.rows import RowRule
from eigenveil.moments.third import ThirdMoment
from eigenveil.noise.grid import deviation, spectral_edge
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.releases import Sharing

# Rows longer than this quantile of the norms are shortened, before and after the projection.
_QUANTILE = 0.98
# How far from the centre rows are taken, in root mean square norms of centred rows. Nearer, one of
# the K directions is weak; farther, rows are longer for nothing (measured: 0.15 to 0.5 do alike).
_OFFSET = 0.3

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
    usable : array of bool, shape (K,)
        Which components can be distinguished from the others in spite of the noise.
    row_bound : float
        Length to which centred rows were shortened.
    converged : bool
    stopped : str or None
        Why the fit ended before it had spent everything: nothing was found, and the one component
        stands in.
    advice : str
        What would do, where a component is missing or not usable.
    """

    means: NDArray[np.float64]
    weights: NDArray[np.float64]
    noise_variance: float
    rows: float
    strengths: NDArray[np.float64]
    noise_floor: float
    usable: NDArray[np.bool_]
    row_bound: float
    converged: bool
    stopped: str | None = None
    advice: str = ""


def private_mixture(
    plan: MixturePlan,
    *,
    stored_single: bool,
    public_center: NDArray[np.float64] | None = None,
    budgets: Mapping[Step, StepBudget] | None = None,
    sharing: Mapping[Step, Sharing] | None = None,
    keep_all: bool = False,
) -> Generator[Round, Answers, MixtureFactors]:
    """The rounds of a fit: norms, centre, pair moment, projected norms, triple moment.

    Parameters
    ----------
    plan : MixturePlan
    stored_single : bool
        Whether all rows are stored in single precision.
    public_center : array of shape (D,), optional
        The public centre when ``plan.centered == "public"``.
    budgets : mapping, optional
        In place of the plan's own.
    sharing : mapping, optional
        How the parties of a study share the noise of a step.
    keep_all : bool
        Take all components, below the noise as well: for forecasts and measurements of the noise.

    Returns
    -------
    MixtureFactors
        With fewer components where not all stand above the noise. Where none does, or nothing shows
        how long rows are, the fit ends early and leaves the rest of its budget unspent.
    """
    state = _State(plan, stored_single, dict(budgets or {}), dict(sharing or {}))
    scale = yield from find_center(state, public_center)
    if state.stopped:
        return _without_scale(state)
    if plan.needs_centered_scale:
        answers = yield (state.query(CENTERED_SCALE, state.histogram()),)
        centered = state.read(answers[CENTERED_SCALE], scale)
        scale = centered if centered.found else scale
        if scale is None and plan.row_bound is None:
            state.stop_for_few_rows(answers[CENTERED_SCALE].record)
            return _without_scale(state)
    place = _place(state, scale)
    pair, rule = yield from _pair(state, place, keep_all=keep_all)
    if pair is None:
        return _without_components(state, place, scale)

    histogram = NormHistogram(
        rule.center,
        precision=rule.precision,
        with_count=state.with_count,
        basis=pair.basis,
        bound=rule.bound,
        preparation=rule.preparation,
        weighted=state.plan.weighted,
    )
    name = "scale of projected rows"
    answers = yield (state.query(name, histogram),)
    projected = state.read(answers[name])
    clip = min(1.0, projected.quantile(_QUANTILE) / place.bound) if projected.found else 1.0
    assert state.rows is not None
    variance = pair.bulk / state.rows
    if plan.noise_variance is not None:
        variance = plan.noise_variance / place.bound**2
    third = ThirdMoment(
        rule,
        pair.basis,
        clip=clip,
        variance=min(LARGEST_VARIANCE, variance / clip**2),
        weighted=state.plan.weighted,
    )
    answers = yield (state.query("triple moment", third),)
    total = None if place.offset is None else place.offset * state.rows
    release = answers["triple moment"]
    triple = release.values * clip**3
    triple_noise = deviation(release.record.noise, third.shape[0]) * clip**3
    found = recover(pair, triple, rows=state.rows, total=total)
    seen, weights = polished_means(
        pair.core,
        triple,
        found.seen,
        found.counts,
        core_noise=pair.deviation,
        triple_noise=triple_noise,
        noise_variance=variance,
        rows=state.rows,
    )
    order = np.argsort(-weights, kind="stable")
    unit = place.bound**2 / state.rows
    can_be_used = usable(
        pair, found, triple_noise=triple_noise, repeats=0 if keep_all else REPEATS
    )[order]
    return MixtureFactors(
        means=place.origin + place.bound * (seen[order] @ pair.basis.T),
        weights=weights[order],
        noise_variance=variance * place.bound**2,
        rows=state.rows,
        strengths=pair.strengths * unit,
        noise_floor=pair.floor * unit,
        usable=can_be_used,
        row_bound=place.bound,
        converged=found.converged,
        advice=shortfall(pair, plan, can_be_used),
    )


def _without_scale(state: _State) -> MixtureFactors:
    return _stand_in(
        state,
        noise_variance=state.plan.noise_variance or 0.0,
        bound=state.plan.row_bound or 0.0,
        stopped=state.stopped,
        advice=state.advice,
    )


def _without_components(state: _State, place: _Place, scale: NormScale | None) -> MixtureFactors:
    """What is left where no component stands above the noise of the pair moment."""
    variance = state.plan.noise_variance
    if variance is None:
        variance = 0.0 if scale is None else scale.mean_square() / state.plan.features
    return _stand_in(
        state,
        noise_variance=variance,
        bound=place.bound,
        stopped="no component stands above the noise of the released pair moment",
        advice=NO_COMPONENT,
    )


def _stand_in(
    state: _State, *, noise_variance: float, bound: float, stopped: str, advice: str
) -> MixtureFactors:
    """One component at the centre, which shows nothing of the rows beyond what was released."""
    center = np.zeros(state.plan.features) if state.center is None else state.center
    return MixtureFactors(
        means=np.asarray(center, dtype=np.float64)[None].copy(),
        weights=np.ones(1),
        noise_variance=noise_variance,
        rows=state.rows or 1.0,
        strengths=np.zeros(1),
        noise_floor=0.0,
        usable=np.zeros(1, dtype=bool),
        row_bound=bound,
        converged=True,
        stopped=stopped,
        advice=advice,
    )


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
    if state.center is None:
        return _Place(np.zeros(plan.features), bound, None)
    # public and independent of the data: the same for every study of this shape
    direction = np.random.default_rng(plan.features).standard_normal((plan.features,))
    step = direction * (_OFFSET * size / float(np.linalg.norm(direction)))
    bound = math.hypot(bound, _OFFSET * size)
    # a public centre need not be the rows' mean
    offset = step / bound if plan.centered == "private" else None
    return _Place(state.center - step, bound, offset)


def _pair(
    state: _State, place: _Place, *, keep_all: bool
) -> Generator[Round, Answers, tuple[PairMoment | None, RowRule]]:
    """The pair moment in the plan's form; ``None`` where nothing stands above its noise."""
    plan = state.plan
    precision = state.precision(_edge(state)) if state.stored_single else "double"
    rule = RowRule(
        center=place.origin if np.any(place.origin) else None,
        bound=place.bound,
        precision=precision,
        extra_bits=state.coarser(precision),
        preparation=state.preparation,
    )
    known = None
    if plan.noise_variance is not None and state.rows is not None:
        known = plan.noise_variance / place.bound**2 * state.rows
    bulk = Bulk(known, rows=state.rows, offset=place.offset)
    if plan.pair == "full":
        answers = yield (state.query("pair moment", SecondMoment(rule, features=plan.features)),)
        release = answers["pair moment"]
        taken = partial(full_pair, release.values, release.record.noise, bulk)
        return leading_part(taken, plan, keep_all=keep_all), rule
    gaussian = np.random.default_rng(plan.features).standard_normal(
        (plan.features, plan.sketch_columns)
    )
    basis = orthonormal_basis(gaussian)
    clip = min(1.0, 1.3 * math.sqrt(plan.sketch_columns / plan.features))  # privacy.md, section 6
    answers = yield (state.query("pair moment", Sketch(rule, basis, clip=clip)),)
    release = answers["pair moment"]
    taken = partial(sketched_pair, release.values, basis / clip, release.record.noise, bulk)
    return leading_part(taken, plan, keep_all=keep_all), rule


def _edge(state: _State) -> float:
    """Largest eigenvalue that a pair moment's noise alone will show, before it is drawn."""
    plan = state.plan
    if plan.pair == "sketch":
        budget = state.budgets["moment"]
        return math.sqrt(2 * plan.features) / (budget.mu or budget.epsilon or 1.0)
    rule = state.rule(centered=False, extra_bits=state.coarser(state.arithmetic))
    noise = state.query("pair moment", SecondMoment(rule, features=plan.features)).record.noise
    return spectral_edge(noise, plan.features, plan.features)
