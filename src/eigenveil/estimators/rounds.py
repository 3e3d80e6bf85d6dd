"""What generators of rounds are made of: each round asks for noisy sums, the answers come back.

Nothing here sees a row. A round is a tuple of :class:`Ask`; whoever drives the generator adds up
the rows in one pass, releases each sum, and sends the releases back. One data set, many sites and
trees differ only in the driver (privacy.md, section 8).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import PrivacyError
from eigenveil.estimators.plans import BasePlan, Step
from eigenveil.estimators.scale import NormScale, read_scale
from eigenveil.estimators.shapes import COUNT_WEIGHT, rehearse
from eigenveil.moments.accumulators import Accumulator, NormHistogram, RowSum
from eigenveil.moments.release import Release, calibrated_record
from eigenveil.moments.rows import BITS, Precision, RowRule
from eigenveil.noise.grid import wishart_unit
from eigenveil.privacy import sensitivity
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.releases import ALONE, ReleaseRecord, Sharing

_CENTRE_QUANTILE = 0.90
# Rounding to 2**-9 is invisible when it keeps all but this share of a unit row's energy, and what
# it can hide of one feature is below this part of the noise's edge.
_ROUNDING_SHARE = 0.002
_HIDDEN_PART = 0.1


@dataclass(frozen=True)
class Ask:
    """One noisy sum: an empty accumulator and the record its release must have."""

    accumulator: Accumulator
    record: ReleaseRecord

    @property
    def name(self) -> str:
        """The release's name."""
        return self.record.name


Round = tuple[Ask, ...]
Answers = Mapping[str, Release]


PlanT = TypeVar("PlanT", bound=BasePlan)


@dataclass
class RoundState(Generic[PlanT]):
    """What the rounds so far have released, as the next ones need it.

    Attributes
    ----------
    plan : BasePlan
    stored_single : bool
        Whether all rows are stored in single precision.
    budgets : dict of step to StepBudget
        What each step may spend.
    sharing : mapping of step to Sharing
        How the parties of a study share the noise of a step.
    centre : array of shape (D,) or None
        Released or public.
    centre_error : float
        Expected squared norm of the released mean's noise.
    rows : float or None
        Released or public number of rows.
    """

    plan: PlanT
    stored_single: bool
    budgets: dict[Step, StepBudget] = field(default_factory=dict)
    sharing: Mapping[Step, Sharing] = field(default_factory=dict)
    centre: NDArray[np.float64] | None = None
    centre_error: float = 0.0
    rows: float | None = None

    def __post_init__(self) -> None:
        """Start from the plan where nothing else is said."""
        self.budgets = dict(self.budgets or self.plan.budgets())
        if self.plan.rows is not None:
            self.rows = float(self.plan.rows)
        rehearse(self.plan, self.budgets, self.sharing)  # nothing fails after a first release

    def ask(self, name: str, accumulator: Accumulator) -> Ask:
        """Ask for a sum under the name, and with the budget, that the plan's schedule gives it."""
        planned = self.plan.planned(name)
        record = calibrated_record(
            accumulator,
            name=name,
            adjacency=self.plan.adjacency,
            kind=self.plan.kind(planned.step),
            budget=self.budgets[planned.step].scaled(planned.share),
            draws_count=planned.draws,
            sharing=self.sharing.get(planned.step, ALONE),
        )
        return Ask(accumulator, record)

    @property
    def storage(self) -> Precision:
        """Arithmetic in which the rows are stored."""
        return "single" if self.stored_single else "double"

    @property
    def count_weight(self) -> float:
        """Weight at which the next sum must carry the row count: 0 once it is known."""
        return 0.0 if self.rows is not None else COUNT_WEIGHT

    @property
    def with_count(self) -> bool:
        """Whether a histogram carries the row count: where it is not public."""
        return self.plan.adjacency == "add-remove"

    def histogram(self) -> NormHistogram:
        """Norms of the rows less the centre."""
        return NormHistogram(self.centre, precision=self.storage, with_count=self.with_count)

    def read(self, release: Release) -> NormScale:
        """A released histogram; the row count is taken from it where it is not known yet."""
        scale = read_scale(release, public_rows=self.plan.rows)
        if self.rows is None:
            self.rows = max(1.0, scale.rows)
        return scale

    def coarser(self, precision: Precision) -> int:
        """Bits by which rows must be coarser for Wishart noise to live on their grid."""
        epsilon = self.budgets["moment"].epsilon
        if self.plan.kind("moment") != "wishart":
            return 0
        assert epsilon is not None
        scale = sensitivity.wishart_trace(self.plan.adjacency) / (2.0 * epsilon)
        finest = wishart_unit(2.0 * scale) + self.sharing.get("moment", ALONE).weight_bits
        return min(0, max(1, -finest // 2) - BITS[precision])

    def precision(self, edge: float) -> Precision:
        """Single where the rows are stored so and rounding them to 2**-9 cannot be seen.

        ``edge`` is the largest eigenvalue that the moment's noise alone shows.
        """
        if not self.stored_single:
            return "double"
        step = 2.0 ** -BITS["single"]
        lost = self.plan.features * step * step / 12
        hidden = (self.rows or 1.0) * step * step / 4
        fine = lost <= _ROUNDING_SHARE and hidden <= _HIDDEN_PART * edge
        return "single" if fine else "double"


def find_centre(
    state: RoundState[Any],
    public_centre: NDArray[np.float64] | None,
) -> Generator[Round, Answers, NormScale | None]:
    """Scale and centre of the rows, as the plan has them; sets the state's centre and row count.

    Returns
    -------
    NormScale or None
        Of the rows before centring, if it was released. If nothing is found in it, there is no
        centre, and nothing more was released.
    """
    plan: BasePlan = state.plan
    if plan.centred == "public":
        state.centre = public_centre
    if plan.centred != "private":
        return None
    scale, bound = None, plan.row_bound
    if bound is None:
        answers = yield (state.ask("scale", state.histogram()),)
        scale = state.read(answers["scale"])
        if not scale.found:
            return scale
        bound = scale.quantile(_CENTRE_QUANTILE)
    sums = RowSum(
        RowRule(bound=bound, precision=state.storage, extra_bits=2),
        features=plan.features,
        count_weight=state.count_weight,
    )
    answers = yield (state.ask("centre", sums),)
    values, noise = answers["centre"].values, answers["centre"].record.noise
    if state.rows is None:
        state.rows = max(1.0, float(values[plan.features]) / COUNT_WEIGHT)
    state.centre = np.asarray(values[: plan.features] * (bound / state.rows))
    size, squared = noise.size, noise.size * noise.scale**2
    if noise.kind != "gaussian":
        squared *= size + 1
    state.centre_error = float(squared * (bound / state.rows) ** 2)
    return scale


def too_few_rows() -> PrivacyError:
    """The error for data too small for a scale to be found."""
    return PrivacyError(
        "Too few rows for the budget: the released histogram of the rows' norms shows nothing "
        "above its noise.",
        hint="Give a public row_bound (the largest norm that rows can have), more rows, or a "
        "larger epsilon.",
        code="too-few-rows",
    )
