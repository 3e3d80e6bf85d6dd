"""A private mixture of Gaussians as a generator of rounds.

Spherical components are found by second and third moments. Others are not what third moments show:
they are found by sums about candidates that are drawn from the second moment. Sums of expectation
maximisation then make both better.

Rows are taken about a point beside their centre, never the centre itself: about their own mean K
components span only K - 1 directions. Any point near the rows will do, so the centre need not be
good, and the answer does not depend on where the data's origin is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import orthonormal_basis
from eigenveil.models.mixture.covariances import SphericalCovariances
from eigenveil.models.mixture.em import (
    EMStep,
    MixtureComponents,
    as_mixture,
    candidates,
    clustered,
    moved,
    next_candidates,
    read_sums,
    told_apart,
)
from eigenveil.models.mixture.plan import CANDIDATES, NO_COMPONENTS, SUMS, MixturePlan
from eigenveil.models.mixture.shrinkage import Spectrum
from eigenveil.models.rounds import Answers, Factors, Round, RoundState, find_center
from eigenveil.models.scale import NormScale
from eigenveil.models.schedule import CENTERED_SCALE, Step
from eigenveil.models.shapes import LARGEST_VARIANCE
from eigenveil.models.tensors.polish import MeanMoments, polished_means
from eigenveil.models.tensors.whitening import (
    NO_COMPONENT,
    REPEATS,
    Bulk,
    PairMoment,
    full_pair,
    leading_part,
    recover,
    shortfall,
    shown,
    sketched_pair,
    usable,
)
from eigenveil.moments.accumulators import SecondMoment, Sketch
from eigenveil.moments.em import EMSums
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import RowRule
from eigenveil.moments.third import ThirdMoment
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.releases import Sharing

# At most this part of the rows is shortened, before and after the projection, and no more than so
# many times those in the edge of the pair moment's noise.
_MOST_SHORTENED, _HIDDEN = 0.02, 4.0
# How far from the centre rows are taken, in root mean square norms of centred rows. Nearer, one of
# the K directions is weak; farther, rows are longer for nothing (measured: 0.15 to 0.5 do alike).
_OFFSET = 0.3

# What the moments show of a component is not less, in units of prepared rows.
_LEAST_WEIGHT, _LEAST_VARIANCE = 1e-4, 1e-9
# Rows of a candidate on average, in deviations of the noise of their sums.
_ROWS_OF_A_CANDIDATE = 6.0
# Directions of the second moment that are looked at, where no third moment needs as many.
_MOST_DIRECTIONS = 64

_State = RoundState[MixturePlan]


@dataclass(frozen=True)
class MixtureFactors(Factors):
    """The result: everything in it is computed from releases."""

    means: NDArray[np.float64]
    weights: NDArray[np.float64]  # They add up to 1, the largest first
    covariances: NDArray[np.float64]  # As scikit-learn has them
    noise_variance: float  # Mean variance of a feature within components
    rows: float
    strengths: NDArray[np.float64]  # Leading eigenvalues of the pair moment, as variances
    noise_floor: float  # What of these noise alone would show
    # Which components can be distinguished from the others in spite of the noise
    usable: NDArray[np.bool_]
    row_bound: float  # Length to which centred rows were shortened
    converged: bool
    # Why the fit ended before it had spent everything: nothing was found, and the one component
    # stands in
    stopped: str | None = None
    advice: str = ""  # What would do, where a component is missing or not usable


def private_mixture(
    plan: MixturePlan,
    *,
    public_center: NDArray[np.float64] | None = None,
    budgets: Mapping[Step, StepBudget] | None = None,
    sharing: Mapping[Step, Sharing] | None = None,
    keep_all: bool = False,
) -> Generator[Round, Answers, MixtureFactors]:
    """The rounds of a fit: norms, centre, pair moment, triple moment or candidates, sums."""
    state = _State(plan, dict(budgets or {}), dict(sharing or {}))
    scale = yield from find_center(state, public_center)
    if state.stopped:
        return _without_scale(state)
    if plan.needs_centered_scale:
        answers = yield (state.query(CENTERED_SCALE, state.histogram()),)
        centered = state.read(answers[CENTERED_SCALE], scale)
        scale = centered if centered.found else scale
        if scale is None and plan.row_bound is None:
            state.stop_for_few_rows(CENTERED_SCALE)
            return _without_scale(state)
    place = _place(state, scale)
    pair, rule = yield from _pair(state, place, keep_all=keep_all)
    if pair is None:
        return _without_components(state, place, scale)
    spectrum = None
    if plan.shape.by_moments:
        found, apart, converged = yield from _by_moments(state, place, pair, rule, keep_all)
    else:
        spectrum = Spectrum.of(pair, state.rows or 1.0)
        found = yield from _by_candidates(state, spectrum, rule)
        apart, converged = np.zeros(found.weights.size, dtype=bool), True
    known = None if plan.noise_variance is None else plan.noise_variance / place.bound**2
    for number in range(1, plan.count_of(SUMS) + 1):
        step = yield from _sums(state, f"{SUMS} {number}", rule, found)
        found = moved(found, step, variance=known, spectrum=spectrum)
    return _factors(state, place, pair, found, told_apart(found, apart), converged)


def _by_moments(
    state: _State, place: _Place, pair: PairMoment, rule: RowRule, keep_all: bool
) -> Generator[Round, Answers, tuple[MixtureComponents, NDArray[np.bool_], bool]]:
    """Spherical components by the triple moment, and which of them are found in spite of noise."""
    plan = state.plan
    histogram = NormHistogram(
        rule.center,
        precision=rule.precision,
        basis=pair.basis,
        bound=rule.bound,
        preparation=rule.preparation,
        weighted=plan.weighted,
    )
    name = "scale of projected rows"
    answers = yield (state.query(name, histogram),)
    projected = state.read(answers[name])
    clip = 1.0
    if projected.found:
        clip = min(1.0, projected.quantile(_quantile(state)) / place.bound)
    assert state.rows is not None
    variance = pair.bulk / state.rows
    if plan.noise_variance is not None:
        variance = plan.noise_variance / place.bound**2
    third = ThirdMoment(
        rule,
        pair.basis,
        clip=clip,
        variance=min(LARGEST_VARIANCE, variance / clip**2),
        weighted=plan.weighted,
    )
    answers = yield (state.query("triple moment", third),)
    total = None if place.offset is None else place.offset * state.rows
    release = answers["triple moment"]
    triple = release.values * clip**3
    triple_noise = release.record.noise.deviation(third.shape[0]) * clip**3
    found = recover(pair, triple, rows=state.rows, total=total)
    moments = MeanMoments(pair.core, triple, pair.deviation, triple_noise, variance, state.rows)
    seen, weights = polished_means(moments, found.seen, found.counts)
    apart = usable(pair, found, triple_noise=triple_noise, repeats=0 if keep_all else REPEATS)
    variances = np.full(weights.size, max(variance, _LEAST_VARIANCE))
    components = MixtureComponents(
        means=seen @ pair.basis.T,
        weights=np.maximum(weights, _LEAST_WEIGHT),
        covariances=SphericalCovariances(variances, weights.size, plan.features),
        counts=weights * state.rows,
    )
    return components, apart, found.converged


def _by_candidates(
    state: _State, spectrum: Spectrum, rule: RowRule
) -> Generator[Round, Answers, MixtureComponents]:
    """Components of any shape, by sums about candidates from the second moment."""
    plan = state.plan
    assert state.rows is not None
    found = candidates(spectrum, _wanted_candidates(state, spectrum, rule))
    count = plan.count_of(CANDIDATES)
    for number in range(1, count + 1):
        step = yield from _sums(state, f"{CANDIDATES} {number}", rule, found)
        if number < count:
            found = next_candidates(found, step, spectrum)
    return clustered(
        found,
        step,
        spectrum,
        rows=state.rows,
        components=plan.n_components,
        auto=plan.auto_components,
        shape=plan.shape,
    )


def _wanted_candidates(state: _State, spectrum: Spectrum, rule: RowRule) -> int:
    """So many that each has enough rows: few rows of each are hidden by the noise."""
    plan, name = state.plan, f"{CANDIDATES} 1"
    assert state.rows is not None
    sums = EMSums(
        _finest(rule),
        as_mixture(candidates(spectrum, plan.candidates)),
        squares=plan.squares(name),
        weighted=plan.weighted,
    )
    noise = state.query(name, sums).record.noise.deviation(sums.size)
    known = int(state.rows / (_ROWS_OF_A_CANDIDATE * noise))
    return int(np.clip(known, min(plan.candidates, 2 * plan.n_components), plan.candidates))


def _finest(rule: RowRule) -> RowRule:
    """Rows as they are prepared for sums of expectation maximisation."""
    return replace(rule, precision="double", extra_bits=0)


def _sums(
    state: _State, name: str, rule: RowRule, found: MixtureComponents
) -> Generator[Round, Answers, EMStep]:
    squares = state.plan.squares(name)
    sums = EMSums(
        _finest(rule),
        as_mixture(found),
        squares=squares,
        weighted=state.plan.weighted,
    )
    answers = yield (state.query(name, sums),)
    return read_sums(answers[name], found, squares)


def _factors(
    state: _State,
    place: _Place,
    pair: PairMoment,
    found: MixtureComponents,
    can_be_used: NDArray[np.bool_],
    converged: bool,
) -> MixtureFactors:
    assert state.rows is not None
    order = np.argsort(-found.weights, kind="stable")
    square = place.bound**2
    variance = float(found.weights @ found.covariances.traces) / state.plan.features
    return MixtureFactors(
        means=place.origin + place.bound * found.means[order],
        weights=found.weights[order],
        covariances=found.covariances.of(order) * square,
        noise_variance=variance * square,
        rows=state.rows,
        strengths=pair.strengths * (square / state.rows),
        noise_floor=pair.floor * (square / state.rows),
        usable=can_be_used[order],
        row_bound=place.bound,
        converged=converged,
        advice=shortfall(state.plan, can_be_used),
    )


def _quantile(state: _State) -> float:
    """Rows longer than this quantile of the norms are shortened.

    As few as the noise of the pair moment hides: rare components have long rows.
    """
    assert state.rows is not None
    return 1.0 - min(_MOST_SHORTENED, _HIDDEN * _edge(state) / state.rows)


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
        stopped=NO_COMPONENTS,
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
        covariances=state.plan.shape.alike(noise_variance, state.plan.features).values,
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
        bound = scale.quantile(_quantile(state))
    size = bound if scale is None else bound * math.sqrt(scale.mean_energy(bound))
    if state.center is None:
        return _Place(np.zeros(plan.features), bound, None)
    if plan.covariance_type != "spherical":
        return _Place(np.asarray(state.center), bound, None)
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
    precision = state.precision(_edge(state)) if plan.precision == "single" else "double"
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
        return _leading(taken, plan, keep_all=keep_all), rule
    gaussian = np.random.default_rng(plan.features).standard_normal(
        (plan.features, plan.sketch_columns)
    )
    basis = orthonormal_basis(gaussian)
    clip = min(1.0, 1.3 * math.sqrt(plan.sketch_columns / plan.features))  # privacy.md, section 6
    answers = yield (state.query("pair moment", Sketch(rule, basis, clip=clip)),)
    release = answers["pair moment"]
    taken = partial(sketched_pair, release.values, basis / clip, release.record.noise, bulk)
    return _leading(taken, plan, keep_all=keep_all), rule


def _leading(
    taken: Callable[..., PairMoment], plan: MixturePlan, *, keep_all: bool
) -> PairMoment | None:
    """What of a pair moment stands above its noise: of any shape, all directions that do.

    More than noise shows on average, as their energies are taken for no more than they are.
    """
    if plan.shape.by_moments:
        return leading_part(taken, plan, keep_all=keep_all)
    most = max(plan.n_components, min(plan.features, _MOST_DIRECTIONS))
    if keep_all:
        return taken(components=plan.n_components, most=most)
    pair = taken(components=None, most=most)
    count = shown(pair)
    return taken(components=count, most=most) if count else None


def _edge(state: _State) -> float:
    """Largest eigenvalue that a pair moment's noise alone will show, before it is drawn."""
    plan = state.plan
    if plan.pair == "sketch":
        budget = state.budgets["moment"]
        return math.sqrt(2 * plan.features) / (budget.mu or budget.epsilon or 1.0)
    rule = state.rule(centered=False, extra_bits=state.coarser(state.arithmetic))
    noise = state.query("pair moment", SecondMoment(rule, features=plan.features)).record.noise
    return noise.edge(plan.features, plan.features)
