"""Private PCA as a generator of rounds (privacy.md, section 8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import fix_signs, leading_eigenpairs, left_singular, orthonormal_basis
from eigenveil.models.explained import (
    Explained,
    MeanLeft,
    above_noise,
    consistent_floor,
    descending,
    energy_floor,
    is_known,
    strength_floor,
    weighted,
    with_eigenvalues,
)
from eigenveil.models.holes import Corrected, Observed, corrected
from eigenveil.models.pca.correlation import correlation_of
from eigenveil.models.pca.covariates import effects_in_data_units, find_effects
from eigenveil.models.pca.derived import advice_for_more, fewest
from eigenveil.models.pca.plan import ADAPTED_MEAN, ENERGIES, MEAN_LEFT, Plan
from eigenveil.models.pca.precondition import (
    Choice,
    even_weights,
    likeliest,
    merged,
    once,
    precondition,
)
from eigenveil.models.pca.ways import (
    ADAPTED,
    ADAPTED_NORMS,
    ADAPTIVE,
    DIRECTIONS,
    MOMENT,
    POWER,
    SKETCH,
    WHOLE,
    WHOLE_ENERGIES,
    Way,
)
from eigenveil.models.plan import CENTERED_SCALE, OBSERVED, Step
from eigenveil.models.rounds import Answers, Round, RoundState, find_center, find_scales
from eigenveil.models.scale import NormScale, read_scale
from eigenveil.models.shapes import COUNT_WEIGHT
from eigenveil.moments.accumulators import (
    ComponentEnergy,
    NormHistogram,
    RowSum,
    SecondMoment,
    Sketch,
)
from eigenveil.moments.exact import SHORTEST_SEEN
from eigenveil.moments.observed import ObservedCounts, ObservedPairs
from eigenveil.moments.release import Release
from eigenveil.moments.rows import AS_IT_IS, Effects, Preparation, RowRule
from eigenveil.noise.grid import deviation, spectral_edge
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.releases import Sharing

# Explained variances are of rows shortened at one of these quantiles of the norms that are seen:
# where the noise of their sum and what is cut off of it are least together. Of the latter, the part
# that is worth saying.
_ENERGY_QUANTILES, _CUT_SAID = (1.0, 0.99, 0.95, 0.9, 0.8), 0.1
# Where the centre's error may be this part of the rows' energy, nothing can be concluded from it.
_ALL = 0.9
# Of two releases: part of the energy that may be cut off what the second sees of rows that have
# lengths; and the noise of whole rows that is next to none, as :meth:`NormScale.least_lost` has it.
_CUT_OFF, _CLEAR = 0.1, 0.05
# Rows of the second release, where that is not of what the first one asked for.
UNIT_ROWS, WHOLE_ROWS = "unit rows", "rows with their lengths"
# Rows this much shorter than the point they are taken about are its rounding.
_ROUNDING = {"single": 2.0**-20, "double": 2.0**-48}


@dataclass(frozen=True)
class Factors:
    """The result: everything in it is computed from releases."""

    components: NDArray[np.float64]
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]  # What columns are divided by; 0 of those that are left out
    # NaN where noise hides it: of components that are not usable
    explained_variance: NDArray[np.float64]
    explained_variance_ratio: NDArray[np.float64]
    total_variance: float
    rows: float
    # Explained variance that noise, and what is left of the centre's error, show in all but one of
    # a hundred fits
    noise_floor: float
    # Which components stand above it: those whose explained variance exceeds the floor
    usable: NDArray[np.bool_]
    row_bound: float  # Norm at which rows were shortened; 0 where all were divided by their norms
    # Norm at which rows were shortened for the explained variances; 0 where these are not released
    # beside the second moment
    variance_bound: float = 0.0
    # Why the fit ended before its last release, and what would do; empty where it did not
    stopped: str = ""
    advice: str = ""
    # Effects of the covariates on all columns; `None` where there are none
    covariate_effects: NDArray[np.float64] | None = None
    # What the second of two releases of the second moment was of; empty where there was one
    adapted: str = ""
    # What it could have been of, and the part of the captured energy that each was predicted to
    # lose
    predicted_losses: Mapping[str, float] = field(default_factory=dict)


_State = RoundState[Plan]


def private_pca(
    plan: Plan,
    *,
    public_center: NDArray[np.float64] | None = None,
    max_norm: float | None = None,
    preparation: Preparation = AS_IT_IS,
    variables: NDArray[np.float64] | None = None,
    budgets: Mapping[Step, StepBudget] | None = None,
    sharing: Mapping[Step, Sharing] | None = None,
    keep_all: bool = False,
) -> Generator[Round, Answers, Factors]:
    """The rounds of a fit; all components are kept, whatever ``keep_all`` is."""
    del keep_all
    state = _State(plan, dict(budgets or {}), dict(sharing or {}))
    state.preparation = replace(preparation, holes=plan.holes)
    found = yield from release_moment(state, public_center, max_norm, variables)
    if found is None:
        return _nothing(state)
    return (yield from _variances(state, found))


@dataclass(frozen=True)
class Moment:
    """Components of a released second moment, and their strength in units of prepared rows."""

    components: NDArray[np.float64]
    strengths: NDArray[np.float64] | None  # Descending
    edge: float  # What noise alone shows of the strengths
    answers: Answers  # The releases of the moment's round
    total: float | None = None  # Energy of all prepared rows, where it is known
    left: MeanLeft | None = None  # The mean that was left in the rows, where it was released
    scale: NormScale | None = None  # Norms of the rows about the centre, where they were released
    # Norm at which rows were shortened; 0 where all were divided by their norms
    row_bound: float = 0.0
    # Whether components and strengths are those of columns of variance 1, and of whole rows
    refined: bool = False
    mended: Corrected | None = None  # The moment without the effect of missing entries
    adapted: Choice | None = None  # What the second release was of, where there were two

    @property
    def clipped_energy(self) -> float | None:
        """Share of the rows' energy that shortening them takes away, by the norms that are seen."""
        if self.scale is None or not self.scale.found or self.row_bound == 0:
            return None
        left = self.scale.mean_energy(self.row_bound) * self.row_bound**2
        return max(0.0, 1.0 - left / self.scale.mean_square())


def release_moment(
    state: RoundState[Any],
    public_center: NDArray[np.float64] | None,
    max_norm: float | None = None,
    variables: NDArray[np.float64] | None = None,
) -> Generator[Round, Answers, Moment | None]:
    """The rounds up to the second moment, of any plan that is PCA's or built on it."""
    plan: Plan = state.plan
    if plan.counts_of_holes():
        kind = ObservedPairs if plan.missing == "pairs" else ObservedCounts
        counts = kind(plan.features, weighted=plan.weighted)
        answers = yield (state.query(OBSERVED, counts),)
        state.observed = Observed.of(answers[OBSERVED])
    yield from find_scales(state, variables)
    if state.stopped:
        return None
    scale = yield from find_center(state, public_center)
    if state.stopped:
        return None
    scale = yield from find_effects(state, scale)
    if state.stopped:
        return None
    beside: Round = ()
    if any(planned.name == CENTERED_SCALE for planned in plan.schedule):
        query = state.query(CENTERED_SCALE, state.histogram())
        if plan.planned(CENTERED_SCALE).beside:
            beside = (query,)  # read only after the moment: one pass for both
        else:
            answers = yield (query,)
            scale = _better(scale, answers[query.name], state)

    state.norms = scale
    row_bound = _second_moment_bound(state, scale, max_norm)
    found = yield from _components(state, row_bound, beside)
    if beside:
        scale = _better(scale, found.answers[CENTERED_SCALE], state)
    return replace(found, scale=scale, row_bound=found.row_bound or row_bound)


def _nothing(state: _State) -> Factors:
    """The result of a fit that ended before its components were released: public directions."""
    plan = state.plan
    count = plan.n_components if plan.variance_share is None else 1
    none = np.full(count, np.nan)
    return Factors(
        components=np.eye(count, plan.features),
        **_in_data_units(state),
        explained_variance=none,
        explained_variance_ratio=none.copy(),
        total_variance=0.0,
        rows=state.rows or 1.0,
        noise_floor=0.0,
        usable=np.zeros(count, dtype=np.bool_),
        row_bound=0.0,
        stopped=state.stopped,
        advice=state.advice,
    )


def _better(scale: NormScale | None, release: Release, state: _State) -> NormScale | None:
    """The scale of the centred rows where it shows anything, else what was known before."""
    centered = state.read(release, scale)
    return centered if centered.found else scale


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
            return state.plan.choose_bound(scale, edge=_moment_edge(state))
        case bound:
            return float(bound)


def _moment_edge(state: _State) -> float:
    """Largest eigenvalue that the moment's noise alone will show, before it is drawn."""
    plan = state.plan
    if not plan.way.whole:
        # comparable to a Gaussian release of the whole matrix, for choosing how to clip
        mu = state.budgets["moment"].mu or state.budgets["moment"].epsilon or 1.0
        return math.sqrt(2 * plan.features) / mu
    rule = state.rule(centered=False, extra_bits=state.coarser(state.arithmetic))
    moment = SecondMoment(rule, features=plan.features)
    noise = state.query(MOMENT, moment).record.noise
    # of all releases together: their precisions add up
    together = math.sqrt(plan.planned(MOMENT).fraction)
    return together * spectral_edge(noise, plan.features, plan.features)


def _components(state: _State, bound: float, beside: Round) -> Generator[Round, Answers, Moment]:
    """Ask for the second moment in the plan's form and factorise what comes back."""
    plan = state.plan
    precision = state.precision(_moment_edge(state)) if plan.precision == "single" else "double"
    rule = state.rule(bound, precision=precision, extra_bits=state.coarser(precision))
    if plan.removes_mean:
        mean = RowSum(rule, features=plan.features, count_weight=0.0)
        beside = (state.query(MEAN_LEFT, mean), *beside)
    return (yield from _FACTORISE[plan.way](state, rule, beside))


def _directions(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, Moment]:
    moment = SecondMoment(rule, features=state.plan.features)
    answers = yield (state.query(MOMENT, moment), *beside)
    rounded = answers[MOMENT].values
    vectors = fix_signs(orthonormal_basis(rounded.T).T)
    return Moment(vectors, None, 0.0, answers)


def _whole(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, Moment]:
    plan = state.plan
    released = yield from _RELEASE[plan.way](state, rule, beside)
    matrix, edge, answers, left = released.matrix, released.edge, released.answers, released.left
    others = np.setdiff1d(np.arange(plan.features), plan.covariates)
    mended = None
    if state.observed is not None:
        kept = state.observed.kept(_rows(state, answers))
        mended = corrected(matrix, edge, kept, components=plan.n_components)
        matrix, edge = mended.matrix, mended.edge
    if plan.refines_scales and not released.cut_off:
        refined = _refined(
            state,
            matrix,
            edge,
            answers,
            unit_rows=released.bound == 0.0,
            left=left,
            mended=mended,
            adapted=released.adapted,
        )
        return replace(refined, row_bound=released.bound)
    if plan.covariates:  # their columns hold noise alone
        matrix = matrix[np.ix_(others, others)]
    values, found = leading_eigenpairs(matrix, plan.n_components)
    clean = released.clean
    if mended is None and not plan.covariates and not released.cut_off and clean is None:
        clean = once(matrix, edge, components=plan.n_components).matrix
    if clean is not None:
        found = leading_eigenpairs(clean, plan.n_components)[1]
    components = np.zeros((found.shape[0], plan.features))
    components[:, others] = found
    # the sum of eigenvalues that were cut off is not the rows' energy
    total = None if released.cut_off else float(np.trace(matrix))
    return Moment(
        components,
        values,
        edge,
        answers,
        total,
        left,
        row_bound=released.bound,
        mended=mended,
        adapted=released.adapted,
    )


@dataclass(frozen=True)
class _Released:
    """The whole second moment of prepared rows about their mean, as far as that was released."""

    matrix: NDArray[np.float64]
    edge: float  # Largest eigenvalue that noise alone shows
    answers: Answers  # Of the moment's rounds
    left: MeanLeft | None  # The mean that was taken off
    bound: float  # Norm at which the rows were shortened; 0 where all were divided by their norms
    # The same less the noise that can be told apart, for the components
    clean: NDArray[np.float64] | None = None
    cut_off: bool = False  # Whether only the largest eigenvalues were sent
    adapted: Choice | None = None


def _once(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, _Released]:
    """One release of the whole budget."""
    moment = SecondMoment(rule, features=state.plan.features)
    answers = yield (state.query(MOMENT, moment), *beside)
    release, left = answers[MOMENT], _mean_left(state, answers)
    matrix = release.values if left is None else release.values - left.outer()
    edge = spectral_edge(release.record.noise, state.plan.features, state.plan.features)
    if release.edge is not None:
        return _Released(matrix, release.edge, answers, left, rule.bound, cut_off=True)
    return _Released(matrix, edge, answers, left, rule.bound)


def _twice(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, _Released]:
    """Two releases, the second of what the first one shows to be best (docs/proofs/adaptive.md).

    Where that is the same rows again, their average is one release of the whole budget.
    """
    plan, d = state.plan, state.plan.features
    first = yield from _once(state, rule, beside)
    part, rest = (plan.planned(name).fraction for name in (MOMENT, ADAPTED))
    error = first.edge / math.sqrt(2.0 * d)  # of symmetric noise of this edge
    later = error * math.sqrt(part / rest)
    rows = state.rows or max(1.0, float(np.trace(first.matrix)))
    wanted = plan.n_components
    if plan.variance_share is not None:  # none below the noise
        values = np.linalg.eigvalsh(first.matrix)
        wanted = min(wanted, max(1, int(np.count_nonzero(values > first.edge))))
    if plan.row_norm == "auto":
        bound = yield from _length_needed(state, first, later * math.sqrt(2.0 * d), wanted)
        if bound > 0:
            return (yield from _of_whole_rows(state, rule, first, bound, wanted))
    look = partial(precondition, first.matrix, error, later, components=wanted, rows=rows)
    if isinstance(plan.row_norm, str):
        choice = look(bounds={"": 0.0} if plan.row_norm == "max" else None)
    else:
        choice = yield from _shortened(state, rule, first, (error, later, rows), look)
    how = choice.how
    again = rule if how is None else _seen_through(state, rule, how.basis, how.bound)
    answers = yield from _again(state, again)
    second, left = answers[ADAPTED].values, _mean_left(state, answers, ADAPTED_MEAN)
    matrix, taken = first.matrix, first.left
    if how is None and first.left is not None and left is not None:
        # two releases of one sum: what is taken off is their average
        taken = left = first.left.averaged(left, part / (part + rest))
        matrix = first.answers[MOMENT].values - left.outer()
    if left is not None:
        second = second - left.outer()
    both = merged(matrix, error, how, second, later, components=wanted)
    return replace(
        first,
        matrix=both.mean,
        edge=both.edge,
        answers={**first.answers, **answers},
        left=taken,
        clean=both.matrix,
        adapted=choice,
    )


def _shortened(
    state: _State,
    rule: RowRule,
    first: _Released,
    known: tuple[float, float, float],
    look: Callable[..., Choice],
) -> Generator[Round, Answers, Choice]:
    """What the second release is of where rows have lengths: these are released first.

    Rows that are seen through the likeliest basis are shortened where the longest ones have a tenth
    of the energy beyond: so neither a few of them nor the noise decide.
    """
    plan = state.plan
    error, later, rows = known
    name, basis = likeliest(first.matrix, error, later, components=plan.n_components, rows=rows)
    lengths = NormHistogram(
        rule.center,
        precision="double",
        basis=basis,
        bound=rule.bound,
        preparation=state.preparation,
        weighted=plan.weighted,
    )
    answers = yield (state.query(ADAPTED_NORMS, lengths),)
    seen, bound = read_scale(answers[ADAPTED_NORMS]), 0.0
    if seen.found:  # what the first release says that there is, less its own error
        energy = float(np.sum((first.matrix @ basis) * basis))
        energy -= error * float(np.linalg.norm(basis.T @ basis))
        bound = seen.holding(1.0 - _CUT_OFF, energy * rule.bound**2) / rule.bound
    return look(bounds={name: bound})


def _length_needed(
    state: _State, first: _Released, edge: float, components: int
) -> Generator[Round, Answers, float]:
    """Where the second release shortens rows, for ``row_norm="auto"``; 0: unit rows will do.

    They will not where whole rows have less of their energy along the directions that unit rows
    show than rows whose length does not go with their direction have (of_whole_rows), and need not
    where shortened rows have next to no noise. ``edge`` is that of the second release.
    """
    plan, scale = state.plan, state.norms
    directions = leading_eigenpairs(
        once(first.matrix, first.edge, components=components).matrix, plan.n_components
    )[1]
    bound = math.sqrt(plan.features) if scale is None else _energy_bound(state, scale)
    energy = ComponentEnergy(state.rule(bound), directions, count_weight=state.count_weight)
    release = (yield (state.query(WHOLE_ENERGIES, energy),))[WHOLE_ENERGIES]
    if scale is None:
        return 0.0
    assert state.rows is not None
    noise = deviation(release.record.noise, plan.n_components)
    along, total = (
        release.values[:components],
        float(np.sum(release.values[: plan.n_components + 1])),
    )
    bound, share = scale.least_lost(edge, components)
    if share <= _CLEAR:
        return bound
    if not is_known(total, noise * math.sqrt(plan.n_components + 1)):
        return 0.0
    strengths = leading_eigenpairs(first.matrix, components)[0]
    whole = Explained.released(along, total, noise, plan.n_components + 1 - components)
    unit = Explained.of_strengths(strengths, first.edge, state.rows, unit_rows_of=plan.features)
    return bound if unit.exceeds(whole) else 0.0


def _of_whole_rows(
    state: _State, rule: RowRule, first: _Released, bound: float, components: int
) -> Generator[Round, Answers, _Released]:
    """The second release of rows that keep their lengths; what captures more there is taken.

    The components of the first release, which knows nothing of this one's noise, are judged on it.
    """
    d = state.plan.features
    answers = yield from _again(state, replace(rule, bound=bound))
    left = _mean_left(state, answers, ADAPTED_MEAN)
    matrix = answers[ADAPTED].values
    if left is not None:
        matrix = matrix - left.outer()
    edge = spectral_edge(answers[ADAPTED].record.noise, d, d)
    own = once(first.matrix, first.edge, components=components).matrix
    directions = leading_eigenpairs(own, components)[1]
    values = leading_eigenpairs(matrix, components)[0]
    captured = float(np.sum((directions @ matrix) * directions))
    kept = float(np.sum(above_noise(values, edge)))
    most = max(captured, kept, np.finfo(float).tiny)
    losses = {
        UNIT_ROWS: 1.0 - max(captured, 0.0) / most,
        WHOLE_ROWS: 1.0 - kept / most,
    }
    together = {**first.answers, **answers}
    if captured > kept:
        choice = Choice(losses, UNIT_ROWS, None)
        return replace(first, answers=together, clean=own, adapted=choice)
    choice = Choice(losses, WHOLE_ROWS, None)
    clean = once(matrix, edge, components=components).matrix
    return _Released(matrix, edge, together, left, bound, clean=clean, adapted=choice)


def _seen_through(
    state: _State, rule: RowRule, basis: NDArray[np.float64], bound: float = 0.0
) -> RowRule:
    """Prepared rows as they are seen through a released basis, divided by their norms or shortened.

    ``bound`` is where they are shortened; 0: nowhere, all have norm 1.
    """
    return replace(
        rule,
        precision="double",
        extra_bits=state.coarser("double"),
        basis=basis,
        clip=max(bound, SHORTEST_SEEN),
    )


def _again(state: _State, rule: RowRule) -> Generator[Round, Answers, Answers]:
    """The last release of the second moment, of these rows, and beside it their mean."""
    d = state.plan.features
    queries: Round = (state.query(ADAPTED, SecondMoment(rule, features=d)),)
    if state.plan.removes_mean:
        mean = RowSum(rule, features=d, count_weight=0.0)
        queries = (*queries, state.query(ADAPTED_MEAN, mean))
    return (yield queries)


_RELEASE: dict[Way, Callable[[_State, RowRule, Round], Generator[Round, Answers, _Released]]] = {
    WHOLE: _once,
    ADAPTIVE: _twice,
}


def _refined(
    state: _State,
    matrix: NDArray[np.float64],
    edge: float,
    answers: Answers,
    *,
    unit_rows: bool,
    left: MeanLeft | None,
    mended: Corrected | None,
    adapted: Choice | None,
) -> Moment:
    """Components of columns of variance 1; the state's scales and centre become those."""
    plan, first = state.plan, state.preparation
    assert first.scale is not None
    covariates = np.isin(np.arange(plan.features), plan.covariates)
    scaled = (first.scale > 0) & ~covariates
    found = correlation_of(
        matrix,
        scaled=scaled,
        covariates=covariates,
        components=plan.n_components,
        edge=edge * math.sqrt(np.count_nonzero(scaled) / plan.features),
        error=edge / math.sqrt(2.0 * plan.features),  # of symmetric noise of this edge
        rows=state.rows or max(1.0, float(np.trace(matrix))),
        unit_rows=unit_rows,
        left=left,
    )
    if mended is not None:
        rescaled = matrix / np.multiply.outer(found.factors, found.factors)
        mended = replace(mended, matrix=rescaled)
    limit = first.limit  # in scales; of public ranges, those of the column with the smallest
    if plan.ranged:
        limit /= float(np.min(found.factors[scaled]))
    effects = first.effects
    if effects is not None:  # of covariates the scales stay
        effects = Effects(effects.columns, effects.sizes / found.factors[:, None])
    state.preparation = replace(
        first, scale=first.scale * found.factors, limit=limit, effects=effects
    )
    if state.center is not None:
        state.center = np.where(scaled | covariates, state.center, 0.0) / found.factors
    return Moment(
        found.components,
        found.strengths,
        found.edge,
        answers,
        found.total,
        found.left,
        refined=True,
        mended=mended,
        adapted=adapted,
    )


def in_data_units(state: RoundState[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and scale of columns, as whoever has rows needs them."""
    d, first = state.plan.features, state.preparation
    scale = np.ones(d) if first.scale is None else first.scale
    mean = np.zeros(d) if state.center is None else state.center * scale
    return mean if first.offset is None else mean + first.offset, scale


def _in_data_units(state: _State) -> dict[str, Any]:
    mean, scale = in_data_units(state)
    return {"mean": mean, "scale": scale, "covariate_effects": effects_in_data_units(state)}


def _mean_left(state: _State, answers: Answers, name: str = MEAN_LEFT) -> MeanLeft | None:
    """What was left of the rows' mean, where it was released."""
    release = answers.get(name)
    if release is None:
        return None
    error = deviation(release.record.noise, state.plan.features)
    return MeanLeft(release.values, error, _rows(state, answers), release.record.mechanism)


def _rows(state: _State, answers: Answers) -> float:
    """Their number, of a histogram that is released beside the moment where none was before."""
    if state.rows is None:
        state.read(answers[CENTERED_SCALE])
    assert state.rows is not None
    return state.rows


def _sketch(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, Moment]:
    plan = state.plan
    # public and independent of the data: the same for every study of this shape
    gaussian = np.random.default_rng(plan.features).standard_normal(
        (plan.features, plan.sketch_columns)
    )
    basis = orthonormal_basis(gaussian)
    clip = min(1.0, 1.3 * math.sqrt(plan.sketch_columns / plan.features))  # privacy.md, section 6
    answers = yield (state.query("sketch", Sketch(rule, basis, clip=clip)), *beside)
    release, left = answers["sketch"], _mean_left(state, answers)
    matrix = release.values if left is None else release.values - left.outer(basis) / clip
    strengths, basis = left_singular(matrix, plan.sketch_columns)
    edge = spectral_edge(release.record.noise, plan.features, plan.sketch_columns)
    k = plan.n_components
    found = Moment(basis[:k], strengths[:k], edge, answers, left=left)
    if not plan.way.adapts(plan):
        return found
    # the strengths still say how many directions the range holds; which they are is told inside it
    weights = even_weights(strengths)
    again = _seen_through(state, rule, basis.T * weights)
    later = yield from _again(state, again)
    inside, left = later[ADAPTED].values, _mean_left(state, later, ADAPTED_MEAN)
    if left is not None:
        inside = inside - left.outer()
    turn = leading_eigenpairs(inside / np.multiply.outer(weights, weights), k)[1]
    return replace(found, components=fix_signs(turn @ basis), answers={**answers, **later})


def _power(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, Moment]:
    plan = state.plan
    gaussian = np.random.default_rng(plan.features).standard_normal(
        (plan.features, plan.n_components)
    )
    basis = orthonormal_basis(gaussian)
    answers: dict[str, Release] = {}
    left: MeanLeft | None = None
    for power_round in range(plan.power_rounds):
        # a start that knows nothing catches sqrt(K/D) of a row: clip there, and at 1 once it does
        least = 1.3 * math.sqrt(plan.n_components / plan.features)
        clip = min(1.0, least) if power_round == 0 else 1.0
        name = f"power round {power_round + 1}"
        answers |= yield (
            state.query(name, Sketch(rule, basis, clip=clip)),
            *(beside if power_round == 0 else ()),
        )
        left = left or _mean_left(state, answers)
        matrix = answers[name].values
        if left is not None:
            matrix = matrix - left.outer(basis) / clip
        basis = orthonormal_basis(matrix)
    strengths, components = left_singular(matrix, plan.n_components)
    edge = spectral_edge(answers[name].record.noise, plan.features, plan.n_components)
    return Moment(components, strengths, edge, answers, left=left)


_FACTORISE: dict[Way, Callable[[_State, RowRule, Round], Generator[Round, Answers, Moment]]] = {
    WHOLE: _whole,
    ADAPTIVE: _whole,
    DIRECTIONS: _directions,
    SKETCH: _sketch,
    POWER: _power,
}


def _variances(state: _State, found: Moment) -> Generator[Round, Answers, Factors]:
    """Explained variance in the data's units, from a release of its own where it has a share."""
    plan, k = state.plan, state.plan.n_components
    scale, row_bound = found.scale, found.row_bound
    kept = scale.mean_energy(row_bound) if scale is not None else 1.0  # of a row, when prepared
    error: float | None = None
    bound = plan.row_bound if scale is None else _energy_bound(state, scale)
    if "variance" in state.budgets and bound is None:
        _stop_before_variances(state)
    if "variance" in state.budgets and bound is not None:
        rule = state.rule(bound)
        energy = ComponentEnergy(rule, found.components, count_weight=state.count_weight)
        answers = yield (state.query(ENERGIES, energy),)
        values = answers[ENERGIES].values
        if state.rows is None:
            state.rows = max(1.0, float(values[-1]) / COUNT_WEIGHT)
        unit = bound * bound / state.rows
        along, total = values[:k] * unit, float(np.sum(values[: k + 1])) * unit
        error = deviation(answers[ENERGIES].record.noise, k) * unit
        if found.mended is not None:  # what rows with holes have less
            more = found.mended.seen(found.components)
            along, error = along * more, error * float(np.max(more))
            total *= found.mended.seen_in_all
    else:
        # prepared rows are all there is: their energy, in units of the bound
        strengths = np.ones(k) if found.strengths is None else found.strengths
        rows = state.rows or max(1.0, found.total or float(np.sum(strengths)))
        unit = (row_bound or 1.0) ** 2 / rows
        if plan.one_pass and scale is not None and row_bound == 0.0:
            unit *= scale.mean_square()  # unit rows have no units of their own
        along = strengths * unit
        total = max((found.total or 0.0) * unit, float(np.sum(along)))
        state.rows = rows
    known, cut = True, 0.0
    if error is not None:
        cut = 0.0 if scale is None or bound is None else scale.cut_off(bound)
        other, apart = (0.0, math.inf) if scale is None else scale.spread(state.center, bound)
        total, total_error = weighted(total, error * math.sqrt(k + 1), other, apart)
        known = is_known(total, total_error)
    total = max(total, np.finfo(float).tiny)
    offset = offset_left(state, found, total)
    hidden = state.advice or ALL_HIDDEN
    if found.strengths is None:
        variance = descending(along)
        nominal = offset * total + energy_floor(along, error)
        stands = variance > nominal
    else:
        floor = strength_floor(found.edge, offset * state.rows, size=plan.features)
        energies = None
        if error is not None and found.total is not None:
            unit_rows = plan.features if row_bound == 0.0 and not found.refined else None
            whole = state.rows * kept
            apart = known and whole > 0
            if apart:
                said = Explained.released(along, total, error)
                apart = _are_of_other_rows(state, found, said, whole, unit_rows, bound)
            if not apart:
                along, energies = with_eigenvalues(
                    along,
                    total,
                    error,
                    found.strengths,
                    found.edge,
                    whole,
                    unit_rows_of=unit_rows,
                )
        variance = descending(along, energies)
        stands = found.strengths > floor
        nominal = min(1.0, floor / (state.rows * kept)) * total
    if not known or offset > _ALL or is_rounding(state, scale):
        stands = np.zeros(k, dtype=np.bool_)
    total = max(total, float(np.sum(variance)))
    noise_floor = consistent_floor(variance, stands, nominal)
    if found.refined and known:
        variance, total, noise_floor = _of_variance_one(state, variance, total, noise_floor)
    usable = np.asarray(variance > noise_floor)
    seen = np.where(usable, variance, np.nan)
    # what components of noise explain of these rows or others is nothing to advise on
    advice = state.advice or _cut_short(cut, bound) if usable.any() else hidden
    if usable.any() and plan.variance_share is not None:
        advice = advice or advice_for_more(variance / total, usable, plan.variance_share)
    if plan.variance_share is not None:
        k = fewest(variance / total, usable, plan.variance_share)
    return Factors(
        components=found.components[:k],
        **_in_data_units(state),
        explained_variance=seen[:k],
        explained_variance_ratio=seen[:k] / total,
        total_variance=total,
        rows=state.rows,
        noise_floor=noise_floor,
        usable=usable[:k],
        row_bound=row_bound,
        variance_bound=0.0 if error is None or bound is None else bound,
        stopped=state.stopped,
        advice=advice,
        adapted="" if found.adapted is None else found.adapted.chosen,
        predicted_losses={} if found.adapted is None else dict(found.adapted.losses),
    )


def _are_of_other_rows(
    state: _State,
    found: Moment,
    said: Explained,
    energy: float,
    unit_rows: int | None,
    longest: float | None,
) -> bool:
    """Whether the eigenvalues say something else than the released variances: the latter hold then.

    Where they say more, the state's advice says what to do.
    """
    assert found.strengths is not None
    other = Explained.of_strengths(found.strengths, found.edge, energy, unit_rows_of=unit_rows)
    if not other.exceeds(said):
        return said.exceeds(other)
    bound = found.row_bound
    made = f"shortened to {bound:.3g}" if bound > 0 else "divided by their norms"
    kept = "" if longest is None else f" up to {longest:.3g} (variance_bound_)"
    way = "" if state.plan.row_norm == "auto" else "'auto', or "
    state.advice = state.advice or (
        f"The components explain {other.share:.0%} of the variance of rows that are {made}, and "
        f"{said.share:.0%} of that of rows with their lengths{kept}, which is what is published: "
        f"long rows lie in other directions. Where these matter, give row_norm={way}a public "
        "number that few rows exceed."
    )
    return True


def _cut_short(cut: float, bound: float | None) -> str:
    """What to say where explained variances are of rows that lost much of theirs."""
    if cut < _CUT_SAID or bound is None:
        return ""
    return (
        f"The explained variances are those of rows shortened to {bound:.3g} (variance_bound_), "
        f"which leaves out about {cut:.0%} of the variance: few rows hold it. A larger epsilon "
        "shows more."
    )


def _of_variance_one(
    state: _State, variance: NDArray[np.float64], total: float, floor: float
) -> tuple[NDArray[np.float64], float, float]:
    """Variances whose total is the number of scaled columns; the state's scales follow."""
    first = state.preparation
    assert first.scale is not None
    count = np.count_nonzero(np.delete(first.scale, list(state.plan.covariates)))
    unit = count / total
    state.preparation = replace(first, scale=first.scale / math.sqrt(unit))
    if state.center is not None:
        state.center = state.center * math.sqrt(unit)
    return variance * unit, float(count), floor * unit


def _energy_bound(state: _State, scale: NormScale) -> float:
    """Where rows are shortened for the release of their energies."""
    budget, rows = state.budgets.get("variance"), state.rows or 1.0
    bounds = [scale.quantile(quantile) for quantile in _ENERGY_QUANTILES]
    if budget is None:
        return bounds[0]
    loss = budget.scaled(state.plan.planned(ENERGIES).fraction)
    coordinates = state.plan.n_components + 1
    # of the sum of all coordinates; the L1 sensitivity of all of them together is 1
    noise = math.sqrt(coordinates) / (loss.mu or (loss.epsilon or 1.0) / math.sqrt(2.0))

    def wrong(bound: float) -> float:
        seen = max(rows * scale.mean_energy(bound), 1e-300)
        return math.hypot(noise / seen, scale.cut_off(bound))

    return min(bounds, key=wrong)


def _stop_before_variances(state: _State) -> None:
    """No norms were found: there is no bound to release the variances under."""
    state.stopped = state.plan.schedule[-2].ends
    state.advice = (
        f"The explained variances are those of rows of equal length: {state.stopped}. Give a "
        "public row_bound, more rows, or a larger epsilon."
    )


def offset_left(state: RoundState[Any], found: Moment, total: float) -> float:
    """Energy that the centre's and the effects' errors give to an average prepared row, at most.

    ``total`` is the rows' whole variance, for where no norms are known.
    """
    assert state.rows is not None
    known, squared = 0.0, 0.0
    if found.left is not None:
        known = found.left.remaining() / state.rows
    elif state.plan.centered == "private":
        squared = state.longest_error(state.center_error)
    if state.effects_error > 0:
        squared += state.longest_error(state.effects_error)
    return known + (_share_of(state, found, squared, total) if squared > 0 else 0.0)


def _share_of(state: RoundState[Any], found: Moment, squared: float, total: float) -> float:
    """Energy that an offset of this squared length gives to an average prepared row, at most."""
    if found.scale is not None:
        return found.scale.share_of_offset(squared, found.row_bound, state.center)
    return 1.0 if squared >= total else squared / total


def is_rounding(state: RoundState[Any], scale: NormScale | None) -> bool:
    """Whether rows differ from the point they are taken about by no more than its rounding."""
    if scale is None or state.center is None:
        return False
    far = float(np.linalg.norm(state.center))
    return scale.quantile(_ENERGY_QUANTILES[0]) <= far * _ROUNDING[state.plan.precision]


ALL_HIDDEN = (
    "Nothing stands above the noise. Use a larger epsilon, more rows or fewer features; a public "
    "centre or a public row_bound help, too. 'eigenveil plan' simulates what they show."
)
"""What would do where no component is usable."""
