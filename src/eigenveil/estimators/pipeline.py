"""Private PCA as a generator of rounds (privacy.md, section 8)."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from eigenveil.estimators.clipping import choose_bound
from eigenveil.estimators.plans import Step
from eigenveil.estimators.rounds import (
    Answers,
    Round,
    RoundState,
    find_centre,
    too_few_rows,
)
from eigenveil.estimators.scale import NormScale, read_scale
from eigenveil.estimators.settings import CENTRED_SCALE, Plan
from eigenveil.estimators.shapes import COUNT_WEIGHT
from eigenveil.linalg.eigen import fix_signs, leading_eigenpairs, left_singular, orthonormal_basis
from eigenveil.moments.accumulators import (
    ComponentEnergy,
    SecondMoment,
    Sketch,
)
from eigenveil.moments.release import Release
from eigenveil.moments.rows import RowRule
from eigenveil.noise.edges import spectral_edge
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.releases import Sharing

_ENERGY_QUANTILE = 0.99
# Relative error that eigenvalues of shortened rows are taken to have as variances of rows.
_EIGENVALUE_ERROR = 0.2


@dataclass(frozen=True)
class Factors:
    """The result: everything in it is computed from releases.

    ``usable`` says which components stand above what noise alone would show.
    """

    components: NDArray[np.float64]
    mean: NDArray[np.float64]
    explained_variance: NDArray[np.float64]
    explained_variance_ratio: NDArray[np.float64]
    total_variance: float
    rows: float
    noise_floor: float
    usable: NDArray[np.bool_]
    row_bound: float


_State = RoundState[Plan]


def private_pca(
    plan: Plan,
    *,
    stored_single: bool,
    public_centre: NDArray[np.float64] | None = None,
    max_norm: float | None = None,
    budgets: Mapping[Step, StepBudget] | None = None,
    sharing: Mapping[Step, Sharing] | None = None,
) -> Generator[Round, Answers, Factors]:
    """The rounds of a fit.

    Parameters
    ----------
    plan : Plan
    stored_single : bool
        Whether all rows are stored in single precision.
    public_centre : array of shape (D,), optional
        The public centre when ``plan.centred == "public"``.
    max_norm : float, optional
        The exact largest norm, for ``row_norm="max"`` (reproductions only).
    budgets : mapping, optional
        In place of the plan's own; for predictions on synthetic rows.
    sharing : mapping, optional
        How the parties of a study share the noise of a step.

    Raises
    ------
    PrivacyError
        When a released histogram shows too few rows for its quantiles to be found.
    """
    state = _State(plan, stored_single, dict(budgets or {}), dict(sharing or {}))
    scale = yield from find_centre(state, public_centre)
    if scale is not None and not scale.found:
        raise too_few_rows()

    beside: Round = ()
    if any(planned.name == CENTRED_SCALE for planned in plan.schedule):
        ask = state.ask(CENTRED_SCALE, state.histogram())
        if plan.planned(CENTRED_SCALE).beside:
            beside = (ask,)  # read only after the moment: one pass for both
        else:
            answers = yield (ask,)
            scale = _better(None, answers[ask.name], state)

    row_bound = _second_moment_bound(state, scale, max_norm)
    found = yield from _components(state, row_bound, beside)
    if beside:
        scale = _better(scale, found.answers[beside[0].name], state)
    return (yield from _variances(state, scale, row_bound, found))


@dataclass(frozen=True)
class _Found:
    """Components and what their release says of their strength, in units of prepared rows."""

    components: NDArray[np.float64]
    strengths: NDArray[np.float64] | None
    edge: float
    answers: Answers
    total: float | None = None


def _better(scale: NormScale | None, release: Release, state: _State) -> NormScale | None:
    """The scale of the centred rows where it shows anything, else what was known before."""
    centred = read_scale(release, public_rows=state.plan.rows)
    if not centred.found:
        return scale
    if state.rows is None:
        state.rows = max(1.0, centred.rows)
    return centred


def _second_moment_bound(state: _State, scale: NormScale | None, max_norm: float | None) -> float:
    match state.plan.row_norm:
        case "unit":
            return 0.0
        case "max":
            assert max_norm is not None
            return max_norm
        case "auto":
            if scale is None:
                return 0.0
            return choose_bound(scale, edge=_moment_edge(state), components=state.plan.n_components)
        case bound:
            return float(bound)


def _moment_edge(state: _State) -> float:
    """Largest eigenvalue that the moment's noise alone will show, before it is drawn."""
    plan = state.plan
    if plan.mechanism in ("bingham", "power", "sketch"):
        # comparable to a Gaussian release of the whole matrix, for choosing how to clip
        mu = state.budgets["moment"].mu or state.budgets["moment"].epsilon or 1.0
        return math.sqrt(2 * plan.features) / mu
    rule = RowRule(precision=state.storage, extra_bits=state.coarser(state.storage))
    moment = SecondMoment(rule, features=plan.features)
    noise = state.ask("second moment", moment).record.noise
    return spectral_edge(noise, plan.features, plan.features)


def _components(state: _State, bound: float, beside: Round) -> Generator[Round, Answers, _Found]:
    """Ask for the second moment in the plan's form and factorise what comes back."""
    plan, k = state.plan, state.plan.n_components
    precision = state.precision(_moment_edge(state)) if state.stored_single else "double"
    rule = RowRule(
        centre=state.centre,
        bound=bound,
        precision=precision,
        extra_bits=state.coarser(precision),
    )
    match plan.mechanism:
        case "power":
            return (yield from _power(state, rule, beside))
        case "sketch":
            return (yield from _sketch(state, rule, beside))
        case "bingham":
            moment = SecondMoment(rule, features=plan.features)
            answers = yield (state.ask("second moment", moment), *beside)
            rounded = answers["second moment"].values
            vectors = fix_signs(orthonormal_basis(rounded.T).T)
            return _Found(vectors, None, 0.0, answers)
        case _:
            moment = SecondMoment(rule, features=plan.features)
            answers = yield (state.ask("second moment", moment), *beside)
            release = answers["second moment"]
            values, components = leading_eigenpairs(release.values, k)
            if release.edge is not None:  # cut-off eigenvalues: their sum is not the rows' energy
                return _Found(components, values, release.edge, answers)
            total = float(np.trace(release.values))
            edge = spectral_edge(release.record.noise, plan.features, plan.features)
            return _Found(components, values, edge, answers, total)


def _sketch(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, _Found]:
    plan = state.plan
    # public and independent of the data: the same for every study of this shape
    gaussian = np.random.default_rng(plan.features).standard_normal(
        (plan.features, plan.sketch_size)
    )
    basis = orthonormal_basis(gaussian)
    clip = 1.3 * math.sqrt(plan.sketch_size / plan.features)  # privacy.md, section 6
    answers = yield (
        state.ask("sketch", Sketch(rule, basis, clip=min(1.0, clip))),
        *beside,
    )
    release = answers["sketch"]
    strengths, components = left_singular(release.values, plan.n_components)
    edge = spectral_edge(release.record.noise, plan.features, plan.sketch_size)
    return _Found(components, strengths, edge, answers)


def _power(state: _State, rule: RowRule, beside: Round) -> Generator[Round, Answers, _Found]:
    plan = state.plan
    gaussian = np.random.default_rng(plan.features).standard_normal(
        (plan.features, plan.n_components)
    )
    basis = orthonormal_basis(gaussian)
    answers: dict[str, Release] = {}
    for turn in range(plan.power_rounds):
        # a start that knows nothing catches sqrt(K/D) of a row: clip there, and at 1 once it does
        clip = min(1.0, 1.3 * math.sqrt(plan.n_components / plan.features)) if turn == 0 else 1.0
        name = f"power round {turn + 1}"
        ask = state.ask(name, Sketch(rule, basis, clip=clip))
        answers |= yield (ask, *(beside if turn == 0 else ()))
        basis = orthonormal_basis(answers[name].values)
    strengths, components = left_singular(answers[name].values, plan.n_components)
    edge = spectral_edge(answers[name].record.noise, plan.features, plan.n_components)
    return _Found(components, strengths, edge, answers)


def _variances(
    state: _State, scale: NormScale | None, row_bound: float, found: _Found
) -> Generator[Round, Answers, Factors]:
    """Explained variance in the data's units, from a release of its own where it has a share."""
    plan, components = state.plan, found.components
    mean = state.centre if state.centre is not None else np.zeros(plan.features)
    kept = scale.mean_energy(row_bound) if scale is not None else 1.0  # of a row, when prepared
    if "variance" in state.budgets:
        bound = plan.row_bound
        if bound is None:  # without a scale, of rows as they were prepared
            bound = row_bound if scale is None else scale.quantile(_ENERGY_QUANTILE)
        rule = RowRule(centre=state.centre, bound=bound, precision=state.storage)
        energy = ComponentEnergy(rule, components, count_weight=state.count_weight)
        answers = yield (state.ask("explained variance", energy),)
        values = answers["explained variance"].values
        if state.rows is None:
            state.rows = max(1.0, float(values[-1]) / COUNT_WEIGHT)
        k = plan.n_components
        unit = (bound or 1.0) ** 2 / state.rows  # unit rows have no units of their own
        along, total = values[:k] * unit, float(np.sum(values[: k + 1])) * unit
        deviation = answers["explained variance"].record.noise.scale * unit
        along = _with_eigenvalues(along, total, deviation, found, state.rows * kept)
    else:
        # prepared rows are all there is: their energy, in units of the bound
        assert found.strengths is not None
        rows = state.rows or max(1.0, found.total or float(np.sum(found.strengths)))
        unit = (row_bound or 1.0) ** 2 / rows
        if plan.one_pass and scale is not None and row_bound == 0.0:
            unit *= scale.mean_square()  # unit rows have no units of their own
        along = found.strengths * unit
        total = max((found.total or 0.0) * unit, float(np.sum(along)))
        state.rows = rows
    variance = _descending(along)
    total = max(total, float(np.sum(variance)), np.finfo(float).tiny)
    # what shows without any signal, as the energy of an average prepared row: the moment's noise,
    # and the noise of the mean, which all rows share as a direction
    floor = found.edge * (1.0 + plan.features ** (-2 / 3)) / state.rows
    if scale is not None:
        floor += scale.share_of_offset(state.centre_error, row_bound)
    if found.strengths is None:
        usable = np.ones(plan.n_components, dtype=bool)
    else:
        usable = found.strengths > floor * state.rows
    return Factors(
        components=components,
        mean=mean,
        explained_variance=variance,
        explained_variance_ratio=variance / total,
        total_variance=total,
        rows=state.rows,
        noise_floor=min(1.0, floor / kept) * total,
        usable=np.asarray(usable),
        row_bound=row_bound,
    )


def _with_eigenvalues(
    along: NDArray[np.float64],
    total: float,
    deviation: float,
    found: _Found,
    energy: float,
) -> NDArray[np.float64]:
    """Released variances, averaged with what the released eigenvalues say of them.

    An eigenvalue under noise of edge 2 s stands for a signal theta with ``theta + s^2/theta`` (its
    eigenvector keeping ``theta - s^2/theta`` of it), in rows' energy. That is far less noisy than
    the release of the variances, but it is of shortened rows: a fifth of it counts as its error, so
    that the release prevails where it is good.
    """
    if found.total is None or found.strengths is None or total <= 0:
        return along
    s = found.edge / 2
    above = np.maximum(found.strengths, found.edge)
    theta = (above + np.sqrt(above**2 - found.edge**2)) / 2
    shares = np.maximum(0.0, theta - s * s / theta) / energy
    other = np.minimum(1.0, shares) * total
    error = np.hypot(_EIGENVALUE_ERROR * other, s / energy * total)
    weight = error**2 / (error**2 + deviation**2)
    return np.asarray(weight * along + (1.0 - weight) * other)


def _descending(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest non-negative, non-increasing sequence: what is known of variances for free."""
    fit = IsotonicRegression(y_min=0.0, increasing=False)
    return np.asarray(fit.fit_transform(np.arange(values.size), values), dtype=np.float64)
