"""Private independent components: the plan, and the rounds.

PCA's rounds up to the second moment, then one release more: all products of four of what is seen
of rows through the leading directions, whitened (docs/proofs/ica.md). Independent components follow
from that without another release.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import listed
from eigenveil.linalg.jade import cumulants, jointly_diagonal, symmetric_quartic
from eigenveil.models.covariance.plan import (
    WholeMomentPlan,
    fields_of_whole_moment,
    released_variances,
)
from eigenveil.models.explained import Array
from eigenveil.models.options import Options
from eigenveil.models.pca.rounds import release_moment
from eigenveil.models.pca.second_moment import Factorised
from eigenveil.models.pca.variances import ALL_HIDDEN, in_data_units, is_rounding
from eigenveil.models.plan import check_components, fractions_of
from eigenveil.models.rounds import Answers, Factors, Round, RoundState, SumQuery
from eigenveil.models.schedule import Planned, Step
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.moments.release import Release
from eigenveil.moments.rows import AS_IT_IS, MOST_SEEN, Preparation
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.certificate import CUMULANTS
from eigenveil.privacy.mechanisms import Mechanism
from eigenveil.privacy.releases import Sharing
from eigenveil.privacy.statistics import STATISTICS

# Of the budget, for the fourth moment.
_SHARE = 0.65
# Rows may be so many times longer than those of the second moment: what they lose to its bound
# would be taken from tails, which tell sources apart.
_LONGER = 2.0
# What is left of a direction's variance, at least, where the fourth moment says that it is less.
_LEAST = 0.05
# Excess kurtosis is seen that exceeds so many deviations of its noise.
_SEEN = 3.0
FEWEST = 1

_NOT_TOLD = (
    "Sources {which} show no excess kurtosis above the noise, and two or more of such cannot be "
    "told apart: Gaussian sources never can, others with more rows or a larger epsilon."
)
_ALONE = "One source alone is the first principal component: nothing is unmixed."
_FEW = (
    "{seen} of {wanted} directions stand above the noise: independent components are those of "
    "these. More rows or a larger epsilon would show more."
)
_STOPPED = "no direction stands above the noise of the second moment"


def _products(size: int) -> int:
    """Numbers of a released fourth moment, as products of products."""
    pairs = size * (size + 1) // 2
    return pairs * (pairs + 1) // 2


class ICAPlan(WholeMomentPlan):
    """Everything about a fit of independent components that is decided before data is touched."""

    task: Literal["ica"] = "ica"

    def _schedule(self) -> tuple[Planned, ...]:
        sizes = tuple(_products(size) for size in range(FEWEST, self.n_components + 1))
        last = Planned(CUMULANTS, "cumulants", "second-moment", sizes=sizes)
        *before, moment = super()._schedule()
        return (*before, replace(moment, ends=_STOPPED), last)

    def _noise(self, step: Step) -> Mechanism:
        if step == "cumulants":
            return STATISTICS["second-moment"].usual(pure=self.pure)
        return super()._noise(step)

    def released_values(self) -> int:
        return super().released_values() + _products(self.n_components)


def make_ica_plan(options: Options, *, features: int, **context: Any) -> ICAPlan:
    fields, steps = fields_of_whole_moment(options, features=features, **context)
    count = int(options.n_components)
    if not FEWEST <= count <= MOST_SEEN:
        raise options.refused(
            "n_components", "sources", components=count, least=FEWEST, most=MOST_SEEN
        )
    check_components(count, features)
    usual: dict[Step, float] = {step: (1.0 - _SHARE) * part for step, part in steps.items()}
    fractions = fractions_of(options, usual | {"cumulants": _SHARE})
    return ICAPlan(n_components=count, fractions=fractions, **fields)


@dataclass(frozen=True)
class ICAFactors(Factors):
    """The result: everything in it is computed from releases."""

    # Unmixing (K, D): sources are these times rows less the mean, in scales
    unmixing: Array
    kurtosis: Array  # Excess kurtosis of each source, of rows shortened for it
    usable: NDArray[np.bool_]  # Which can be told from the others
    mean: Array
    mean_error: Array  # Deviations of its noise; 0 where it is public
    scale: Array  # What columns were divided by; 0 of those that were left out
    kurtosis_error: float  # What noise and the sampling of Gaussian rows give it, a deviation
    noise_floor: float  # Variance of a direction that noise alone shows
    rows: float
    rows_error: float
    row_bound: float  # Norm at which rows were shortened
    stopped: str = ""
    advice: str = ""


def private_ica(
    plan: ICAPlan,
    *,
    public_center: Array | None = None,
    preparation: Preparation = AS_IT_IS,
    variables: Array | None = None,
    budgets: Mapping[Step, StepBudget] | None = None,
    sharing: Mapping[Step, Sharing] | None = None,
) -> Generator[Round, Answers, ICAFactors]:
    state = RoundState(plan, dict(budgets or {}), dict(sharing or {}))
    state.preparation = replace(preparation, holes=plan.holes)
    found = yield from release_moment(state, public_center, variables=variables)
    variances, floor = released_variances(state, found)
    seen = int(np.count_nonzero(np.logical_and.accumulate(variances > floor)))
    if found is not None and is_rounding(state, found.scale):
        seen = 0
    if found is None or seen < FEWEST:
        return _nothing(state, found, floor)
    white = Whitened.of(found.components[:seen], variances[:seen], _LONGER * found.row_bound)
    answers = yield (_query(state, white),)
    return _unmixed(state, found, white, answers[CUMULANTS], floor)


@dataclass(frozen=True)
class Whitened:
    """Rows as the fourth moment sees them: along directions, in their deviations, shortened."""

    directions: Array  # (K, D), orthonormal
    deviations: Array
    bound: float  # Up to which rows are seen
    basis: Array  # (D, K), with columns no longer than 1
    clip: float  # The length to which what is seen is shortened, in units of the bound

    @classmethod
    def of(cls, directions: Array, variances: Array, bound: float) -> Whitened:
        """Shortened at the root of the number of directions."""
        deviations = np.sqrt(variances)
        least = float(deviations.min())
        basis = (directions * (least / deviations)[:, None]).T
        clip = min(1.0, math.sqrt(len(variances)) * least / bound)
        return cls(directions, deviations, bound, np.ascontiguousarray(basis), clip)

    @property
    def length(self) -> float:
        """To which rows are shortened, where each direction has variance 1."""
        return self.clip * self.bound / float(self.deviations.min())


def _query(state: RoundState[ICAPlan], white: Whitened) -> SumQuery:
    """For products of what is seen of rows."""
    precision = state.arithmetic
    rule = state.rule(
        white.bound,
        precision=precision,
        extra_bits=state.coarser(precision),
        basis=white.basis,
        clip=white.clip,
        products=True,
    )
    return state.query(CUMULANTS, SecondMoment(rule, features=state.plan.features))


def _unmixed(
    state: RoundState[ICAPlan],
    found: Factorised,
    white: Whitened,
    release: Release,
    floor: float,
) -> ICAFactors:
    """Sources from the released moment, those of most variance first."""
    assert state.rows is not None
    directions, deviations = white.directions, white.deviations
    count = len(deviations)
    unit = white.length**4 / state.rows
    fourth = symmetric_quartic(np.asarray(release.values), count) * unit
    error = release.record.noise.deviation(count * (count + 1) // 2) * unit
    second = np.einsum("ijkk->ij", fourth) / (count + 2)  # of Gaussian rows, shortened alike
    # scaled so that its products have the tensor's trace
    trace = float(np.einsum("iijj", fourth))
    products = float(np.trace(second)) ** 2 + 2.0 * float(np.sum(second**2))
    second = second * math.sqrt(max(trace, 0.0) / max(products, np.finfo(float).tiny))
    # Gaussian rows show a kurtosis by sampling, too: at most this, as shortening takes a part of it
    sampled = math.sqrt(24.0 / state.rows) * float(np.trace(second) / count) ** 2
    error = math.hypot(error, sampled)
    # what the released variances are off by shows here: rows are whitened once more
    values, vectors = np.linalg.eigh(second)
    values = np.maximum(values / values.mean(), _LEAST)
    again, back = ((vectors * values**power) @ vectors.T for power in (-0.5, 0.5))
    for axis in range(4):
        fourth = np.moveaxis(np.tensordot(fourth, again, axes=(axis, 0)), -1, axis)
    second = again @ second @ again
    turn = jointly_diagonal(cumulants(fourth, second))
    own = np.einsum("ijkl,ip,jp,kp,lp->p", fourth, turn, turn, turn, turn)
    spread = np.einsum("ij,ip,jp->p", second, turn, turn)
    kurtosis = own - 3.0 * spread**2
    mixing = turn.T @ back * deviations @ directions
    order = np.argsort(-np.vecdot(mixing, mixing), kind="stable")
    largest = np.take_along_axis(mixing, np.abs(mixing).argmax(axis=1)[:, None], axis=1)
    signs = np.where(largest[:, 0] < 0, -1.0, 1.0)
    unmixing = (turn.T @ again / deviations @ directions) * signs[:, None]
    hidden = np.abs(kurtosis[order]) < _SEEN * error
    usable = ~hidden if np.count_nonzero(hidden) > 1 else np.ones(count, dtype=np.bool_)
    return ICAFactors(
        unmixing=unmixing[order],
        kurtosis=kurtosis[order],
        kurtosis_error=error,
        usable=usable,
        noise_floor=floor,
        row_bound=found.row_bound,
        advice=state.advice or _advice(usable, count, state.plan.n_components),
        **in_data_units(state),
    )


def _advice(usable: NDArray[np.bool_], seen: int, wanted: int) -> str:
    if wanted == 1:
        return _ALONE
    found = _FEW.format(seen=seen, wanted=wanted) if seen < wanted else ""
    if not usable.all():
        which = listed([str(place + 1) for place in np.flatnonzero(~usable)])
        found = f"{_NOT_TOLD.format(which=which)} {found}".strip()
    return found


def _nothing(state: RoundState[ICAPlan], found: Factorised | None, floor: float) -> ICAFactors:
    """The result of a fit that ended before its last release: public directions."""
    count, features = state.plan.n_components, state.plan.features
    return ICAFactors(
        unmixing=np.eye(count, features),
        kurtosis=np.zeros(count),
        kurtosis_error=0.0,
        usable=np.zeros(count, dtype=np.bool_),
        noise_floor=floor,
        row_bound=0.0 if found is None else found.row_bound,
        stopped=state.stopped or _STOPPED,
        advice=state.advice or ALL_HIDDEN,
        **in_data_units(state),
    )
