"""Private independent components: the plan, and the rounds.

PCA's rounds up to the second moment, then one release more: all products of four of what is seen
of rows through the leading directions, whitened (docs/proofs/ica.md). Independent components follow
from that without another release.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import listed
from eigenveil.models.covariance.plan import (
    WholeMomentPlan,
    fields_of_whole_moment,
    released_variances,
)
from eigenveil.models.explained import Array
from eigenveil.models.ica.jade import separated, symmetric_quartic, told_apart
from eigenveil.models.options import Options
from eigenveil.models.pca.rounds import release_moment
from eigenveil.models.pca.second_moment import Factorised
from eigenveil.models.pca.variances import ALL_HIDDEN, in_data_units, is_rounding
from eigenveil.models.plan import check_components, fractions_of
from eigenveil.models.rounds import Answers, Factors, Round, RoundState, SumQuery
from eigenveil.models.schedule import Planned, Step
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.privacy.certificate import CUMULANTS
from eigenveil.privacy.mechanisms import Mechanism
from eigenveil.privacy.statistics import STATISTICS

# Of the budget, for the fourth moment.
_SHARE = 0.65
# Rows may be so many times longer than those of the second moment: what they lose to its bound
# would be taken from tails, which tell sources apart.
_LONGER = 2.0
FEWEST = 1

_NOT_TOLD = (
    "Sources {which} show no excess kurtosis above the noise, and two or more of such cannot be "
    "told apart: Gaussian sources never can, others with more rows or a larger epsilon."
)
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
    variables: Array | None = None,
    **begun: Any,
) -> Generator[Round, Answers, ICAFactors]:
    state = RoundState(plan, **begun)
    found, floor, fourth = yield from released_moments(state, public_center, variables)
    if fourth is None:
        return _nothing(state, found, floor)
    return _unmixed(state, fourth, floor)


def released_moments(
    state: RoundState[ICAPlan], public_center: Array | None, variables: Array | None = None
) -> Generator[Round, Answers, tuple[Factorised | None, float, FourthMoment | None]]:
    """The rounds: the second moment, the floor of variances, and the fourth where one is seen."""
    found = yield from release_moment(state, public_center, variables=variables)
    variances, floor = released_variances(state, found)
    seen = int(np.count_nonzero(np.logical_and.accumulate(variances > floor)))
    if found is not None and is_rounding(state, found.scale):
        seen = 0
    if found is None or seen < FEWEST:
        return found, floor, None
    white = Whitened.of(found.components[:seen], variances[:seen], _LONGER * found.row_bound)
    release = (yield (_query(state, white),))[CUMULANTS]
    assert state.rows is not None
    unit = white.length**4 / state.rows
    tensor = symmetric_quartic(np.asarray(release.values), seen) * unit
    error = release.record.noise.deviation(seen * (seen + 1) // 2) * unit
    return found, floor, FourthMoment(found, white, tensor, error)


@dataclass(frozen=True)
class FourthMoment:
    """A released fourth moment of whitened rows."""

    found: Factorised
    white: Whitened
    tensor: Array  # (K, K, K, K), symmetric
    error: float  # Deviation of its noise, isometric


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


def _unmixed(state: RoundState[ICAPlan], fourth: FourthMoment, floor: float) -> ICAFactors:
    """Sources from the released moment, those of most variance first."""
    assert state.rows is not None
    directions, deviations = fourth.white.directions, fourth.white.deviations
    found, count = separated(fourth.tensor), len(deviations)
    # Gaussian rows show a kurtosis by sampling, too: at most this, as shortening takes a part of it
    error = math.hypot(fourth.error, math.sqrt(24.0 / state.rows) * found.level**2)
    mixing = found.mixing.T * deviations @ directions
    order, signs = in_order(mixing)
    unmixing = (found.unmixing / deviations @ directions)[order] * signs[:, None]
    kurtosis = found.kurtosis[order]
    usable = told_apart(kurtosis, error)
    return ICAFactors(
        unmixing=unmixing,
        kurtosis=kurtosis,
        kurtosis_error=error,
        usable=usable,
        noise_floor=floor,
        row_bound=fourth.found.row_bound,
        advice=state.advice or _advice(usable, count, state.plan.n_components),
        **in_data_units(state),
    )


def in_order(maps: Array) -> tuple[NDArray[np.intp], Array]:
    """Places of maps (K, D) by variance, and then their signs: the largest entry is positive."""
    order = np.argsort(-np.vecdot(maps, maps), kind="stable")
    largest = np.take_along_axis(maps, np.abs(maps).argmax(axis=1)[:, None], axis=1)[order, 0]
    return order, np.where(largest < 0, -1.0, 1.0)


def _advice(usable: NDArray[np.bool_], seen: int, wanted: int) -> str:
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
