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
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import public_basis
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
from eigenveil.models.mixture.plan import (
    CANDIDATES,
    NO_COMPONENTS,
    PROJECTED,
    SCORES,
    SUMS,
    MixturePlan,
)
from eigenveil.models.mixture.scores import ScoreGrid
from eigenveil.models.mixture.shrinkage import Spectrum
from eigenveil.models.mixture.starts import (
    LEAST_VARIANCE,
    PlacedRows,
    State,
    finest,
    in_cells,
    lifted,
    query_of_scores,
    starts_in_cells,
)
from eigenveil.models.rounds import Answers, Factors, Round, SumQuery, find_center
from eigenveil.models.scale import NormScale
from eigenveil.models.schedule import CENTERED_SCALE
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
from eigenveil.moments.release import Release
from eigenveil.moments.rows import RowRule
from eigenveil.moments.scores import MOST_DIRECTIONS
from eigenveil.moments.third import ThirdMoment

# At most this part of the rows is shortened, before and after the projection, and no more than so
# many times those in the edge of the pair moment's noise.
_MOST_SHORTENED, _HIDDEN = 0.02, 4.0
# How far from the centre rows are taken, in root mean square norms of centred rows. Nearer, one of
# the K directions is weak; farther, rows are longer for nothing (measured: 0.15 to 0.5 do alike).
_OFFSET = 0.3

# What the moments show of a component is not less, in units of prepared rows.
_LEAST_WEIGHT = 1e-4
# Rows of a candidate on average, in deviations of the noise of their sums.
_ROWS_OF_A_CANDIDATE = 6.0
# Directions of the second moment that are looked at, where no third moment needs as many.
_MOST_DIRECTIONS = 64


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
    # Of 1, 2, ... components: how badly they describe the released cells, each parameter counted
    criteria: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))


def private_mixture(
    plan: MixturePlan,
    *,
    public_center: NDArray[np.float64] | None = None,
    keep_all: bool = False,
    **begun: Any,
) -> Generator[Round, Answers, MixtureFactors]:
    """The rounds of a fit: norms, centre, pair moment, triple moment or candidates, sums."""
    state = State(plan, **begun)
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
    pair, about, rule = yield from _pair(state, place, keep_all=keep_all)
    if pair is None:
        return _without_components(state, place, scale)
    grid = ScoreGrid.of(about, state.rows or 1.0)
    queries: tuple[SumQuery, ...] = (query_of_scores(state, grid, rule),)
    if plan.shape.by_moments:
        queries = (*queries, _projected(state, pair, rule))
    answers = yield queries
    cells = grid.read(answers[SCORES], state.rows or 1.0)
    seen = None if keep_all else in_cells(state, pair, about, grid, cells)
    start = None
    if seen is not None and starts_in_cells(plan, pair, seen):
        start = lifted(state, place, pair, about, grid, seen)
    spectrum, known, converged = None, None, True
    if plan.shape.by_moments:  # whether it is needed or not: rows do not decide what is released
        projected = answers[PROJECTED]
        found, apart, converged = yield from _by_moments(
            state, place, pair, rule, projected, keep_all=keep_all
        )
    elif start is None:
        spectrum = Spectrum.of(pair, state.rows or 1.0)
        found = yield from _by_candidates(state, spectrum, rule)
        apart = np.zeros(found.weights.size, dtype=bool)
    if start is not None:
        found, apart, known = start.components, start.there, start.known
        for number in range(1, plan.count_of(CANDIDATES) + 1):
            step = yield from _sums(state, f"{CANDIDATES} {number}", rule, found)
            found = moved(found, step, as_they_are=True, known=known)
    for number in range(1, plan.count_of(SUMS) + 1):
        step = yield from _sums(state, f"{SUMS} {number}", rule, found)
        public = plan.noise_variance is not None
        found = moved(found, step, as_they_are=public, spectrum=spectrum, known=known)
    there = told_apart(found, apart, asked=1 if plan.auto_components else plan.n_components)
    factors = _factors(state, place, pair, found, there, converged)
    if seen is None:
        return factors
    if seen.hidden and plan.auto_components and not factors.advice:
        factors = replace(factors, advice=may_be_more(seen.hidden))
    return replace(factors, criteria=seen.costs)


def may_be_more(part: float) -> str:
    """What is said where a component may be two."""
    return (
        f"There may be more components: {part:.0%} of the rows would pass for one component where "
        "they are two, three deviations apart. More rows or a larger epsilon would tell. Or give "
        "n_components, where it is known."
    )


def _projected(state: State, pair: PairMoment, rule: RowRule) -> SumQuery:
    """For the norms of rows as the pair moment's directions show them."""
    histogram = NormHistogram(
        rule.center,
        precision=rule.precision,
        basis=pair.basis,
        bound=rule.bound,
        preparation=rule.preparation,
        weighted=state.plan.weighted,
    )
    return state.query(PROJECTED, histogram)


def _by_moments(
    state: State,
    place: PlacedRows,
    pair: PairMoment,
    rule: RowRule,
    scale: Release,
    *,
    keep_all: bool,
) -> Generator[Round, Answers, tuple[MixtureComponents, NDArray[np.bool_], bool]]:
    """Spherical components by the triple moment, and which of them are found in spite of noise."""
    plan = state.plan
    projected = state.read(scale)
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
    variances = np.full(weights.size, max(variance, LEAST_VARIANCE))
    components = MixtureComponents(
        means=seen @ pair.basis.T,
        weights=np.maximum(weights, _LEAST_WEIGHT),
        covariances=SphericalCovariances(variances, weights.size, plan.features),
        counts=weights * state.rows,
    )
    return components, apart, found.converged


def _by_candidates(
    state: State, spectrum: Spectrum, rule: RowRule
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


def _wanted_candidates(state: State, spectrum: Spectrum, rule: RowRule) -> int:
    """So many that each has enough rows: few rows of each are hidden by the noise."""
    plan, name = state.plan, f"{CANDIDATES} 1"
    assert state.rows is not None
    sums = EMSums(
        finest(rule),
        as_mixture(candidates(spectrum, plan.candidates)),
        squares=plan.squares(name),
        weighted=plan.weighted,
    )
    noise = state.query(name, sums).record.noise.deviation(sums.size)
    known = int(state.rows / (_ROWS_OF_A_CANDIDATE * noise))
    return int(np.clip(known, min(plan.candidates, 2 * plan.n_components), plan.candidates))


def _sums(
    state: State, name: str, rule: RowRule, found: MixtureComponents
) -> Generator[Round, Answers, EMStep]:
    squares = state.plan.squares(name)
    sums = EMSums(
        finest(rule),
        as_mixture(found),
        squares=squares,
        weighted=state.plan.weighted,
    )
    answers = yield (state.query(name, sums),)
    return read_sums(answers[name], found, squares)


def _factors(
    state: State,
    place: PlacedRows,
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


def _quantile(state: State) -> float:
    """Rows longer than this quantile of the norms are shortened.

    As few as the noise of the pair moment hides: rare components have long rows.
    """
    assert state.rows is not None
    return 1.0 - min(_MOST_SHORTENED, _HIDDEN * _edge(state) / state.rows)


def _without_scale(state: State) -> MixtureFactors:
    return _stand_in(
        state,
        noise_variance=state.plan.noise_variance or 0.0,
        bound=state.plan.row_bound or 0.0,
        stopped=state.stopped,
        advice=state.advice,
    )


def _without_components(state: State, place: PlacedRows, scale: NormScale | None) -> MixtureFactors:
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
    state: State, *, noise_variance: float, bound: float, stopped: str, advice: str
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


def _place(state: State, scale: NormScale | None) -> PlacedRows:
    plan = state.plan
    bound = plan.row_bound or 0.0
    if scale is not None and plan.row_bound is None:
        bound = scale.quantile(_quantile(state))
    size = bound if scale is None else bound * math.sqrt(scale.mean_energy(bound))
    if state.center is None:
        return PlacedRows(np.zeros(plan.features), bound, None)
    if plan.covariance_type != "spherical":
        return PlacedRows(np.asarray(state.center), bound, None)
    # public and independent of the data: the same for every study of this shape
    direction = np.random.default_rng(plan.features).standard_normal((plan.features,))
    step = direction * (_OFFSET * size / float(np.linalg.norm(direction)))
    bound = math.hypot(bound, _OFFSET * size)
    # a public centre need not be the rows' mean
    offset = step / bound if plan.centered == "private" else None
    return PlacedRows(state.center - step, bound, offset)


def _pair(
    state: State, place: PlacedRows, *, keep_all: bool
) -> Generator[Round, Answers, tuple[PairMoment | None, PairMoment, RowRule]]:
    """The pair moment in the plan's form; ``None`` where nothing stands above its noise.

    With it the same about the rows' centre, where it is another.
    """
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
    offset = place.offset if plan.shape.by_moments else np.zeros(plan.features)
    bulk = Bulk(known, rows=state.rows, offset=offset)
    if plan.pair == "full":
        answers = yield (state.query("pair moment", SecondMoment(rule, features=plan.features)),)
        release, test = answers["pair moment"], np.eye(plan.features)
        made = partial(full_pair, noise=release.record.noise)
        return *_taken(state, made, release.values, test, bulk, keep_all=keep_all), rule
    basis = public_basis(plan.features, plan.sketch_columns)
    clip = min(1.0, 1.3 * math.sqrt(plan.sketch_columns / plan.features))  # privacy.md, section 6
    answers = yield (state.query("pair moment", Sketch(rule, basis, clip=clip)),)
    release, test = answers["pair moment"], basis / clip
    made = partial(sketched_pair, test=test, noise=release.record.noise)
    return *_taken(state, made, release.values, test, bulk, keep_all=keep_all), rule


def _taken(
    state: State,
    made: Callable[..., PairMoment],
    values: NDArray[np.float64],
    test: NDArray[np.float64],
    bulk: Bulk,
    *,
    keep_all: bool,
) -> tuple[PairMoment | None, PairMoment]:
    """What stands above the noise of ``M test``, and the leading directions about the centre."""
    plan = state.plan
    pair = _leading(partial(made, values, bulk=bulk), plan, keep_all=keep_all)
    offset = np.zeros(plan.features) if bulk.offset is None else bulk.offset
    moved = values - (state.rows or 1.0) * np.outer(offset, offset @ test)
    about = made(
        moved,
        bulk=replace(bulk, offset=np.zeros(plan.features)),
        components=min(plan.features, plan.sketch_columns, MOST_DIRECTIONS),
        most=min(plan.features, plan.sketch_columns, MOST_DIRECTIONS + 1),
    )
    # a histogram shows all of so few features: none needs to stand out
    few = plan.features <= MOST_DIRECTIONS and not plan.shape.by_moments
    return (about if pair is None and few else pair), about


def _leading(
    taken: Callable[..., PairMoment], plan: MixturePlan, *, keep_all: bool
) -> PairMoment | None:
    """What of a pair moment stands above its noise: of any shape, all directions that do.

    More than noise shows on average, as their energies are taken for no more than they are.
    """
    if plan.shape.by_moments:
        return leading_part(taken, plan, keep_all=keep_all)
    most = max(plan.rank, min(plan.features, _MOST_DIRECTIONS))
    if keep_all:
        return taken(components=plan.rank, most=most)
    pair = taken(components=None, most=most)
    count = shown(pair)
    return taken(components=count, most=most) if count else None


def _edge(state: State) -> float:
    """Largest eigenvalue that a pair moment's noise alone will show, before it is drawn."""
    plan = state.plan
    if plan.pair == "sketch":
        budget = state.budgets["moment"]
        return math.sqrt(2 * plan.features) / (budget.mu or budget.epsilon or 1.0)
    rule = state.rule(centered=False, extra_bits=state.coarser(state.arithmetic))
    noise = state.query("pair moment", SecondMoment(rule, features=plan.features)).record.noise
    return noise.edge(plan.features, plan.features)
