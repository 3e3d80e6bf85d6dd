"""The whole second moment, released once or twice (docs/proofs/adaptive.md).

With the mechanism "adaptive" the second release is of what the first one shows to be best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import edge_of_variances, leading_eigenpairs
from eigenveil.models.explained import Explained, MeanLeft, above_noise, is_known
from eigenveil.models.pca.denoise import judged
from eigenveil.models.pca.plan import ADAPTED_MEAN, ENERGIES, MEAN_LEFT, Plan
from eigenveil.models.pca.precondition import (
    BIAS,
    Array,
    Preconditioner,
    SecondLook,
    equaliser,
    likeliest,
    precondition,
)
from eigenveil.models.pca.ways import ADAPTED, ADAPTED_NORMS, MOMENT, WHOLE_ENERGIES
from eigenveil.models.rounds import Answers, Round, RoundState
from eigenveil.models.scale import NormScale, read_scale
from eigenveil.models.schedule import CENTERED_SCALE
from eigenveil.moments.accumulators import ComponentEnergy, RowSum, SecondMoment
from eigenveil.moments.exact import SHORTEST_SEEN
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import RowRule

# -- What two releases of a second moment say together (post-processing).

# Spread, in the logarithm, of what another normalisation does to all energies alike.
_LEVELS = 0.5

# Noise is taken to be no less than this part of what was released.
_LEAST_NOISE = 1e-12


@dataclass(frozen=True)
class MergedMoments:
    """Two releases as one matrix."""

    # The average of both by the precision of each entry: the second moment of the first one's rows,
    # and noise
    mean: Array
    # The same, less the noise that can be told apart where that is judged to be better. Take the
    # components of this one.
    matrix: Array
    edge: float  # Largest eigenvalue that noise alone shows


def once(matrix: Array, edge: float, *, components: int) -> MergedMoments:
    """One release alone, whose noise has this edge."""
    half = edge / math.sqrt(float(matrix.shape[0]))  # two releases with this error are as good
    return merged(matrix, half, None, matrix, half, components=components)


def merged(
    first: Array,
    error: float,
    how: Preconditioner | None,
    second: Array,
    later_error: float,
    *,
    components: int,
) -> MergedMoments:
    """Both releases, entry by entry by precision, in the first one's units."""
    size = max(float(np.max(np.abs(first), initial=0.0)), error) or 1.0
    one, other = max(error / size, _LEAST_NOISE), later_error / size
    other = min(max(other, _LEAST_NOISE), 1.0 / _LEAST_NOISE)
    if how is None:
        part = one**2 / (one**2 + other**2)
        basis: Array | None
        mean = first / size + part * (second / size - first / size)
        variances = np.broadcast_to(0.5 * part * other**2, first.shape)
        basis = None
    else:
        energies = how.energies / size
        mean, variances = _averaged(first / size, one, how, energies, second / size, other)
        basis = how.vectors
    edge = edge_of_variances(variances)
    clean = judged(mean, basis, variances, components=components)
    return MergedMoments(mean * size, 0.5 * (clean + clean.T) * size, edge * size)


def _averaged(
    first: Array,
    error: float,
    how: Preconditioner,
    energies: Array,
    second: Array,
    later_error: float,
) -> tuple[Array, Array]:
    """The average by precision, and the variances of its entries off the diagonal in Q."""
    squared = how.weights**2
    r = how.resolved
    before = how.vectors.T @ first @ how.vectors
    level, apart = equaliser(energies, squared, how.bound, how.growth)
    if r:  # what both know of the spectrum says how far it is from that of normal rows
        strong = np.maximum(np.diag(before)[:r], 1e-300)
        diagonal = np.diag(second)[:r] / squared[:r]
        seen = np.maximum(diagonal, 1e-12 * float(np.max(np.abs(diagonal))) + 1e-300)
        log = np.log(np.clip(strong / seen / level[:r], 0.05, 20.0))
        var = (error / strong) ** 2 + np.minimum((later_error / squared[:r] / seen) ** 2, 1e6)
        common, own = float(np.sum(log / var) / np.sum(1 / var)), float(1 / np.sum(1 / var))
        common *= _LEVELS**2 / (_LEVELS**2 + own)
        left = log - common
        spread = max(float(np.mean(left**2 / var) - 1.0) / float(np.mean(1 / var)), 1e-6)
        level *= math.exp(common)
        level[:r] *= np.exp(left * spread / (spread + var))
    root = np.sqrt(level) / how.weights
    factor = np.multiply.outer(root, root)
    noise = 0.5 * (later_error * factor) ** 2
    noise += apart * (BIAS + 1.0 / how.rows) * np.multiply.outer(energies, energies)
    both = 0.5 * error**2
    variances = both * noise / (both + noise)
    mean = before + both / (both + noise) * (second * factor - before)
    found = how.vectors @ mean @ how.vectors.T
    return 0.5 * (found + found.T), variances


# Of two releases: part of the energy that may be cut off what the second sees of rows that have
# lengths; and the noise of whole rows that is next to none, as :meth:`NormScale.least_lost` has it.
_CUT_OFF, _CLEAR = 0.1, 0.05
# Explained variances are of rows shortened at one of these quantiles of the norms that are seen:
# where the noise of their sum and what is cut off of it are least together.
ENERGY_QUANTILES = (1.0, 0.99, 0.95, 0.9, 0.8)
# Rows of the second release, where that is not of what the first one asked for.
UNIT_ROWS, WHOLE_ROWS = "unit rows", "rows with their lengths"

_State = RoundState[Plan]


@dataclass(frozen=True)
class Released:
    """The whole second moment of prepared rows about their mean, as far as that was released."""

    matrix: NDArray[np.float64]
    edge: float  # Largest eigenvalue that noise alone shows
    answers: Answers  # Of the moment's rounds
    left: MeanLeft | None  # The mean that was taken off
    bound: float  # Norm at which the rows were shortened; 0 where all were divided by their norms
    # The same less the noise that can be told apart, for the components
    clean: NDArray[np.float64] | None = None
    cut_off: bool = False  # Whether only the largest eigenvalues were sent
    adapted: SecondLook | None = None


def once_released(
    state: _State, rule: RowRule, beside: Round
) -> Generator[Round, Answers, Released]:
    """One release of the whole budget."""
    moment = SecondMoment(rule, features=state.plan.features)
    answers = yield (state.query(MOMENT, moment), *beside)
    release, left = answers[MOMENT], mean_left(state, answers)
    matrix = release.values if left is None else release.values - left.outer()
    edge = release.record.noise.edge(state.plan.features, state.plan.features)
    if release.edge is not None:
        return Released(matrix, release.edge, answers, left, rule.bound, cut_off=True)
    return Released(matrix, edge, answers, left, rule.bound)


def twice_released(
    state: _State, rule: RowRule, beside: Round
) -> Generator[Round, Answers, Released]:
    """Two releases, the second of what the first one shows to be best (docs/proofs/adaptive.md).

    Where that is the same rows again, their average is one release of the whole budget.
    """
    plan, d = state.plan, state.plan.features
    first = yield from once_released(state, rule, beside)
    part, rest = (plan.planned(name).fraction for name in (MOMENT, ADAPTED))
    error = first.edge / math.sqrt(2.0 * d)  # of symmetric noise of this edge
    later = error * math.sqrt(part / rest)
    rows = state.rows or max(1.0, float(np.trace(first.matrix)))
    wanted = plan.n_components
    if plan.variance_share is not None:  # none below the noise
        values = np.linalg.eigvalsh(first.matrix)
        wanted = min(wanted, max(1, int(np.count_nonzero(values > first.edge))))
    if plan.row_norm == "auto":
        if CENTERED_SCALE in first.answers:
            state.norms = state.better(state.norms, first.answers[CENTERED_SCALE])
        bound = yield from _length_needed(state, first, later * math.sqrt(2.0 * d), wanted)
        if bound > 0:
            return (yield from _of_whole_rows(state, rule, first, bound, wanted))
    look = partial(precondition, first.matrix, error, later, components=wanted, rows=rows)
    if isinstance(plan.row_norm, str):
        choice = look(bounds={"": 0.0} if plan.row_norm == "max" else None)
    else:
        choice = yield from _shortened(state, rule, first, (error, later, rows), look)
    how = choice.how
    answers = yield from again(
        state, rule if how is None else seen_through(rule, how.basis, how.bound)
    )
    second, left = answers[ADAPTED].values, mean_left(state, answers, ADAPTED_MEAN)
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
    first: Released,
    known: tuple[float, float, float],
    look: Callable[..., SecondLook],
) -> Generator[Round, Answers, SecondLook]:
    """What the second release is of where rows have lengths: these are released first.

    Rows that are seen through the likeliest basis are shortened where the longest ones have a tenth
    of the energy beyond: so neither a few of them nor the noise decide.
    """
    plan = state.plan
    error, later, rows = known
    name, basis = likeliest(first.matrix, error, later, components=plan.n_components, rows=rows)
    lengths = NormHistogram(
        rule.center,
        precision=rule.precision,
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
    state: _State, first: Released, edge: float, components: int
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
    bound = math.sqrt(plan.features) if scale is None else energy_bound(state, scale)
    energy = ComponentEnergy(state.rule(bound), directions, count_weight=state.count_weight)
    release = (yield (state.query(WHOLE_ENERGIES, energy),))[WHOLE_ENERGIES]
    if scale is None:
        return 0.0
    assert state.rows is not None
    noise = release.record.noise.deviation(plan.n_components)
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
    state: _State, rule: RowRule, first: Released, bound: float, components: int
) -> Generator[Round, Answers, Released]:
    """The second release of rows that keep their lengths; what captures more there is taken.

    The components of the first release, which knows nothing of this one's noise, are judged on it.
    """
    d = state.plan.features
    answers = yield from again(state, replace(rule, bound=bound))
    left = mean_left(state, answers, ADAPTED_MEAN)
    matrix = answers[ADAPTED].values
    if left is not None:
        matrix = matrix - left.outer()
    edge = answers[ADAPTED].record.noise.edge(d, d)
    own = once(first.matrix, first.edge, components=components).matrix
    directions = leading_eigenpairs(own, components)[1]
    values = leading_eigenpairs(matrix, components)[0]
    captured = float(np.sum((directions @ matrix) * directions))
    kept = float(np.sum(above_noise(values, edge)))
    most = max(captured, kept, np.finfo(float).tiny)
    losses = {UNIT_ROWS: 1.0 - max(captured, 0.0) / most, WHOLE_ROWS: 1.0 - kept / most}
    together = {**first.answers, **answers}
    if captured > kept:
        choice = SecondLook(losses, UNIT_ROWS, None)
        return replace(first, answers=together, clean=own, adapted=choice)
    choice = SecondLook(losses, WHOLE_ROWS, None)
    clean = once(matrix, edge, components=components).matrix
    return Released(matrix, edge, together, left, bound, clean=clean, adapted=choice)


def seen_through(rule: RowRule, basis: NDArray[np.float64], bound: float = 0.0) -> RowRule:
    """Prepared rows as they are seen through a released basis, divided by their norms or shortened.

    ``bound`` is where they are shortened; 0: nowhere, all have norm 1.
    """
    return replace(rule, basis=basis, clip=max(bound, SHORTEST_SEEN))


def again(state: _State, rule: RowRule) -> Generator[Round, Answers, Answers]:
    """The last release of the second moment, of these rows, and beside it their mean."""
    d = state.plan.features
    queries: Round = (state.query(ADAPTED, SecondMoment(rule, features=d)),)
    if state.plan.removes_mean:
        mean = RowSum(rule, features=d, count_weight=0.0)
        queries = (*queries, state.query(ADAPTED_MEAN, mean))
    return (yield queries)


def mean_left(state: _State, answers: Answers, name: str = MEAN_LEFT) -> MeanLeft | None:
    """What was left of the rows' mean, where it was released."""
    release = answers.get(name)
    if release is None:
        return None
    error = release.record.noise.deviation(state.plan.features)
    return MeanLeft(release.values, error, known_rows(state, answers), release.record.mechanism)


def known_rows(state: _State, answers: Answers) -> float:
    """Their number, of a histogram that is released beside the moment where none was before."""
    if state.rows is None:
        state.read(answers[CENTERED_SCALE])
    assert state.rows is not None
    return state.rows


def energy_bound(state: _State, scale: NormScale) -> float:
    """Where rows are shortened for the release of their energies."""
    budget, rows = state.budgets.get("variance"), state.rows or 1.0
    bounds = [scale.quantile(quantile) for quantile in ENERGY_QUANTILES]
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
