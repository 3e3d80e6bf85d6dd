"""Components of a released second moment, in each way of releasing it (privacy.md, section 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import (
    fix_signs,
    leading_eigenpairs,
    left_singular,
    orthonormal_basis,
    public_basis,
)
from eigenveil.models.explained import MeanLeft, of_whole_rows, shrunk
from eigenveil.models.holes import Corrected, corrected
from eigenveil.models.pca.adaptive import (
    Released,
    again,
    known_rows,
    mean_left,
    once,
    once_released,
    seen_through,
    twice_released,
)
from eigenveil.models.pca.plan import ADAPTED_MEAN, MEAN_LEFT, Plan
from eigenveil.models.pca.precondition import SecondLook, even_weights
from eigenveil.models.pca.ways import (
    ADAPTED,
    ADAPTIVE,
    DIRECTIONS,
    MOMENT,
    POWER,
    SKETCH,
    WHOLE,
    Way,
)
from eigenveil.models.rounds import Answers, Round, RoundState
from eigenveil.models.scale import NormScale
from eigenveil.moments.accumulators import RowSum, SecondMoment, Sketch
from eigenveil.moments.preparation import Effects
from eigenveil.moments.release import Release
from eigenveil.moments.rows import RowRule

_State = RoundState[Plan]


@dataclass(frozen=True)
class Factorised:
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
    adapted: SecondLook | None = None  # What the second release was of, where there were two

    @property
    def clipped_energy(self) -> float | None:
        """Share of the rows' energy that shortening them takes away, by the norms that are seen."""
        if self.scale is None or not self.scale.found or self.row_bound == 0:
            return None
        left = self.scale.mean_energy(self.row_bound) * self.row_bound**2
        return max(0.0, 1.0 - left / self.scale.mean_square())


def factorised(state: _State, bound: float, beside: Round) -> Generator[Round, Answers, Factorised]:
    """Ask for the second moment in the plan's form and factorise what comes back."""
    plan = state.plan
    precision = state.precision(moment_edge(state)) if plan.precision == "single" else "double"
    rule = state.rule(bound, precision=precision, extra_bits=state.coarser(precision))
    rule = rule if plan.apart is None else replace(rule, apart=plan.apart)
    if plan.removes_mean:
        mean = RowSum(rule, features=plan.features, count_weight=0.0)
        beside = (state.query(MEAN_LEFT, mean), *beside)
    return (yield from _FACTORISE[plan.way](state, rule, beside))


def moment_edge(state: _State) -> float:
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
    return together * noise.edge(plan.features, plan.features)


def _directions(
    state: _State, rule: RowRule, beside: Round
) -> Generator[Round, Answers, Factorised]:
    moment = SecondMoment(rule, features=state.plan.features)
    answers = yield (state.query(MOMENT, moment), *beside)
    rounded = answers[MOMENT].values
    vectors = fix_signs(orthonormal_basis(rounded.T).T)
    return Factorised(vectors, None, 0.0, answers)


def _whole(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, Factorised]:
    plan = state.plan
    released = yield from _RELEASE[plan.way](state, rule, beside)
    matrix, edge, answers, left = released.matrix, released.edge, released.answers, released.left
    others = np.setdiff1d(np.arange(plan.features), plan.aside)
    mended = None
    if state.observed is not None:
        kept = state.observed.kept(known_rows(state, answers))
        mended = corrected(matrix, edge, kept, components=plan.n_components)
        matrix, edge = mended.matrix, mended.edge
    if plan.refines_scales and not released.cut_off:
        return _refined(state, replace(released, matrix=matrix, edge=edge), mended)
    if plan.aside:  # their columns hold noise alone
        matrix = matrix[np.ix_(others, others)]
    values, found = leading_eigenpairs(matrix, plan.n_components)
    clean = released.clean
    if mended is None and not plan.aside and not released.cut_off and clean is None:
        clean = once(matrix, edge, components=plan.n_components).matrix
    if clean is not None:
        found = leading_eigenpairs(clean, plan.n_components)[1]
    components = np.zeros((found.shape[0], plan.features))
    components[:, others] = found
    # the sum of eigenvalues that were cut off is not the rows' energy
    total = None if released.cut_off else float(np.trace(matrix))
    return Factorised(
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


def _refined(state: _State, released: Released, mended: Corrected | None) -> Factorised:
    """Components of columns of variance 1; the state's scales and centre become those."""
    plan, first, left = state.plan, state.preparation, released.left
    assert first.scale is not None
    covariates = np.isin(np.arange(plan.features), plan.aside)
    scaled = (first.scale > 0) & ~covariates
    found = correlation_of(
        released.matrix,
        released.edge,
        scaled=scaled,
        covariates=covariates,
        components=plan.n_components,
        rows=state.rows or max(1.0, float(np.trace(released.matrix))),
        unit_rows=released.bound == 0.0,
    )
    if left is not None:
        inverse = 1.0 / found.factors[scaled]
        error = left.error * math.sqrt(float(np.mean(inverse * inverse)))
        left = replace(left, total=left.total[scaled] * inverse, error=error)
    if mended is not None:
        rescaled = released.matrix / np.multiply.outer(found.factors, found.factors)
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
    state.rescale_centers(np.where(scaled | covariates, 1.0, 0.0) / found.factors)
    return Factorised(
        found.components,
        found.strengths,
        found.edge,
        released.answers,
        found.total,
        left,
        row_bound=released.bound,
        refined=True,
        mended=mended,
        adapted=released.adapted,
    )


def _sketch(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, Factorised]:
    plan = state.plan
    basis = public_basis(plan.features, plan.sketch_columns)
    clip = min(1.0, 1.3 * math.sqrt(plan.sketch_columns / plan.features))  # privacy.md, section 6
    answers = yield (state.query("sketch", Sketch(rule, basis, clip=clip)), *beside)
    release, left = answers["sketch"], mean_left(state, answers)
    matrix = release.values if left is None else release.values - left.outer(basis) / clip
    strengths, basis = left_singular(matrix, plan.sketch_columns)
    edge = release.record.noise.edge(plan.features, plan.sketch_columns)
    k = plan.n_components
    found = Factorised(basis[:k], strengths[:k], edge, answers, left=left)
    if not plan.way.adapts(plan):
        return found
    # the strengths still say how many directions the range holds; which they are is told inside it
    weights = even_weights(strengths)
    seen = seen_through(rule, basis.T * weights)
    later = yield from again(state, seen)
    inside, left = later[ADAPTED].values, mean_left(state, later, ADAPTED_MEAN)
    if left is not None:
        inside = inside - left.outer()
    turn = leading_eigenpairs(inside / np.multiply.outer(weights, weights), k)[1]
    return replace(found, components=fix_signs(turn @ basis), answers={**answers, **later})


def _power(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, Factorised]:
    plan = state.plan
    basis = public_basis(plan.features, plan.n_components)
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
        left = left or mean_left(state, answers)
        matrix = answers[name].values
        if left is not None:
            matrix = matrix - left.outer(basis) / clip
        basis = orthonormal_basis(matrix)
    strengths, components = left_singular(matrix, plan.n_components)
    edge = answers[name].record.noise.edge(plan.features, plan.n_components)
    return Factorised(components, strengths, edge, answers, left=left)


_RELEASE: dict[Way, Callable[[_State, RowRule, Round], Generator[Round, Answers, Released]]] = {
    WHOLE: once_released,
    ADAPTIVE: twice_released,
}

_FACTORISE: dict[Way, Callable[[_State, RowRule, Round], Generator[Round, Answers, Factorised]]] = {
    WHOLE: _whole,
    ADAPTIVE: _whole,
    DIRECTIONS: _directions,
    SKETCH: _sketch,
    POWER: _power,
}

Array = NDArray[np.float64]

# Variance that relative variances of columns in scales of histograms have before the moment is
# looked at; what its noise hides is shrunk towards 1 accordingly.
_KNOWN_BEFORE = 0.36
# Eigenvalues are taken to be no less than this part of their mean where their map is inverted.
_LEAST = 1e-6


@dataclass(frozen=True)
class Correlation:
    """What a moment shows of columns of variance 1."""

    # By which the scales of columns are to be multiplied, up to a common factor; 1 where a column
    # has none
    factors: Array
    components: Array  # Leading directions of columns in these scales
    strengths: Array  # Energy of the rows along them, as the moment shows it
    edge: float  # What noise alone shows of that, of whatever direction
    total: float  # Energy of all


def correlation_of(
    matrix: Array,
    edge: float,
    *,
    scaled: NDArray[np.bool_],
    covariates: NDArray[np.bool_],
    components: int,
    rows: float,
    unit_rows: bool,
) -> Correlation:
    """Leading directions of the correlations of columns; ``edge`` is that of symmetric noise."""
    places = np.flatnonzero(scaled)
    error = edge / math.sqrt(2.0 * scaled.size)
    edge *= math.sqrt(places.size / scaled.size)
    size, own = places.size, matrix[np.ix_(places, places)]
    values, vectors = np.linalg.eigh(own)
    signal = np.maximum(shrunk(values, edge), _LEAST * rows / size)
    ratios = np.ones(size)
    if unit_rows:
        ratios = of_whole_rows(signal / rows, size) * rows / signal
    whole = (vectors * (values * ratios)) @ vectors.T
    variances, noise = np.diag(whole), error * float(ratios[0])
    mean = float(np.mean(variances))
    squares = np.ones(size)
    if mean > noise:
        part = noise / mean
        weight = _KNOWN_BEFORE / (_KNOWN_BEFORE + part * part)
        squares = np.maximum(part, 1.0 + weight * (variances / mean - 1.0))
    own_factors = np.sqrt(squares)
    inverse = 1.0 / own_factors
    # noise is taken off the eigenvalues before the directions are found
    clean = ((vectors * (signal * ratios)) @ vectors.T) * np.multiply.outer(inverse, inverse)
    count = min(components, size)
    found = leading_eigenpairs(clean, count)[1]
    seen = found * inverse
    strengths = np.einsum("ki,ij,kj->k", seen, whole, seen)
    directions = np.zeros((components, matrix.shape[0]))
    directions[:count, places] = found
    for index, column in enumerate(np.flatnonzero(~scaled & ~covariates)[: components - count]):
        directions[count + index, column] = 1.0  # there are no more directions
    factors = np.ones(matrix.shape[0])
    factors[places] = own_factors
    return Correlation(
        factors,
        directions,
        np.append(strengths, np.zeros(components - count)),
        edge * float(ratios[0]) * edge_growth(inverse * inverse),
        float(np.sum(variances / squares)),
    )


def edge_growth(variances: Array) -> float:
    """How much larger the edge of symmetric noise is whose entries are multiplied.

    Entry (i, j) by ``sqrt(variances_i variances_j)``, variances of shape (D,). With those, t, the
    edge of noise of edge 2 s is the least ``y s sqrt(mean(t / (y - t)))`` over y above the largest
    t: where the self-consistent equation of its resolvent, ``u^2 = s^2 mean(t / (y - t))`` at
    ``z = y u``, ceases to have a real solution. It is 2 s where all are 1.
    """
    top = float(np.max(variances))
    places = top * (1.0 + np.exp(np.linspace(-12.0, 8.0, 400)))
    means = np.mean(variances / (places[:, None] - variances), axis=1)
    return 0.5 * float(np.min(places * np.sqrt(means)))
