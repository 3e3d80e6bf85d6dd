"""Parts of the generators of rounds: a round yields queries for noisy sums and gets the answers.

Nothing here sees a row. A round is a tuple of :class:`SumQuery`; whoever drives the generator
adds up the rows in one pass, releases each sum, and sends the releases back. One data set, many
sites and trees differ only in the driver (privacy.md, section 8).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.explained import squared_length
from eigenveil.models.holes import Observed
from eigenveil.models.plan import BasePlan
from eigenveil.models.scale import NormScale, read_scale
from eigenveil.models.schedule import (
    CENTER,
    CLOSER_RANGES,
    COLUMN_RANGES,
    COLUMNS,
    NEAR_SCALE,
    SCALE,
    SECOND_CENTER,
    SITE_MEANS,
    Step,
)
from eigenveil.models.shapes import COUNT_WEIGHT, rehearse
from eigenveil.moments.accumulators import Accumulator, RowSum
from eigenveil.moments.histograms import ColumnHistogram, NormHistogram, range_of
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.moments.release import Release
from eigenveil.moments.rows import BITS, Precision, RowRule
from eigenveil.noise.entries import coordinates
from eigenveil.privacy import statistics
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record
from eigenveil.privacy.releases import ALONE, ReleaseRecord, Sharing
from eigenveil.privacy.statistics import STATISTICS
from eigenveil.tables.scales import LIMIT, closer_ranges, ranges_of, scales_of

_CENTER_QUANTILE = 0.90
# Rounding to 2**-9 is invisible when it keeps all but this share of a unit row's energy, and what
# it can hide of one feature is below this part of the noise's edge.
_ROUNDING_SHARE = 0.002
_HIDDEN_PART = 0.1


@dataclass(frozen=True)
class SumQuery:
    """One noisy sum: an empty accumulator and the record its release must have."""

    accumulator: Accumulator
    record: ReleaseRecord

    @property
    def name(self) -> str:
        return self.record.name


Round = tuple[SumQuery, ...]
Answers = Mapping[str, Release]
Found = TypeVar("Found")


def next_round(
    rounds: Generator[Round, Answers, Found], answers: Answers | None
) -> tuple[Round, None] | tuple[None, Found]:
    """What a generator of rounds asks for next, or else its result."""
    try:
        queries = next(rounds) if answers is None else rounds.send(answers)
    except StopIteration as end:
        return None, end.value
    return queries, None


@dataclass(frozen=True, kw_only=True)
class Factors:
    """What a fit made of its releases; ``released`` are these themselves, by their names.

    Of a symmetric matrix or tensor its independent entries, the lower triangle first row by row;
    of what is larger than 32 MiB the spectrum, descending, and of a vector nothing.
    """

    released: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


# Numbers of a release that a result keeps one by one: 32 MiB.
MOST_KEPT = 1 << 22


def independent(release: Release) -> NDArray[np.float64] | None:
    """A release as a result keeps it."""
    record, values = release.record, np.asarray(release.values, dtype=np.float64)
    layout = STATISTICS[record.statistic].layout if record.mechanism.added else "matrix"
    if record.noise.size <= MOST_KEPT:
        return coordinates(layout, values) if layout in ("symmetric", "tensor") else values
    if values.ndim != 2:
        return None
    if layout == "symmetric":
        return np.array(np.linalg.eigvalsh(values)[::-1], dtype=np.float64)
    return np.array(np.linalg.svd(values, compute_uv=False), dtype=np.float64)


PlanT = TypeVar("PlanT", bound=BasePlan)


@dataclass
class RoundState(Generic[PlanT]):
    """What the rounds so far have released, as the next ones need it."""

    plan: PlanT
    budgets: dict[Step, StepBudget] = field(default_factory=dict)  # What each step may spend
    # How the parties of a study share the noise of a step
    sharing: Mapping[Step, Sharing] = field(default_factory=dict)
    center: NDArray[np.float64] | None = None  # Released or public
    # Of each site, what its centre has beyond this; `None` where all have the same
    site_offsets: NDArray[np.float64] | None = None
    center_error: float = 0.0  # Expected squared norm of the released centre's noise
    # Deviations of its entries, in the data's units; `None` where it is public
    center_deviations: NDArray[np.float64] | None = None
    rows: float | None = None  # Released number of rows
    rows_error: float = 0.0  # Deviation of its noise
    # What is done to the entries of rows first; all else is in its units
    preparation: Preparation = AS_IT_IS
    observed: Observed | None = None  # Released counts of the entries that are there
    # Expected energy that the noise of covariates' effects, and of sites' means, gives to a row
    effects_error: float = 0.0
    # Of the rows about the centre, where they were released before the second moment
    norms: NormScale | None = None
    # Why the fit ends before its last release, and what would do; empty where it does not
    stopped: str = ""
    advice: str = ""

    def __post_init__(self) -> None:
        self.budgets = dict(self.budgets or self.plan.budgets)
        if self.plan.holes:
            self.preparation = replace(self.preparation, holes=True)
        rehearse(self.plan, self.budgets, self.sharing)  # nothing fails after a first release

    def query(self, name: str, accumulator: Accumulator) -> SumQuery:
        """Ask for a sum under the name, and with the budget, that the plan's schedule gives it."""
        planned = self.plan.planned(name)
        record = calibrated_record(
            accumulator,
            name=name,
            adjacency=self.plan.adjacency,
            kind=self.plan.noises[planned.step].name,
            budget=self.budgets[planned.step],
            fraction=planned.fraction,
            draws=planned.draws,
            sharing=self.sharing.get(planned.step, ALONE),
        )
        return SumQuery(accumulator, record)

    @property
    def arithmetic(self) -> Precision:
        """Arithmetic of prepared rows: the plan's, but double where these have weights.

        A coarser grid would keep next to nothing of a unit with many rows.
        """
        return "double" if self.plan.weighted else self.plan.precision

    @property
    def count_weight(self) -> float:
        """Weight at which the next sum must carry the row count: 0 once it is known."""
        return 0.0 if self.rows is not None else COUNT_WEIGHT

    @property
    def centers(self) -> NDArray[np.float64] | None:
        """What rows are centred by: shape (D,), or where sites have their own, (S, D)."""
        if self.center is None or self.site_offsets is None:
            return self.center
        return np.asarray(self.center + self.site_offsets)

    def rescale_centers(self, factors: Any) -> None:
        """The centres in units that are so many of the units before."""
        if self.center is not None:
            self.center = self.center * factors
        if self.site_offsets is not None:
            self.site_offsets = self.site_offsets * factors

    def histogram(self) -> NormHistogram:
        """Norms of the rows less the centre."""
        return NormHistogram(
            self.centers,
            precision=self.plan.precision,
            preparation=self.preparation,
            weighted=self.plan.weighted,
        )

    def rule(self, bound: float = 0.0, *, centered: bool = True, **precision: Any) -> RowRule:
        """How rows are prepared for a sum: about the centre, shortened to ``bound``."""
        return RowRule(
            center=self.centers if centered else None,
            bound=bound,
            preparation=self.preparation,
            **({"precision": self.arithmetic} | precision),
        )

    def read(self, release: Release, known: NormScale | None = None) -> NormScale:
        """Norms about the centre; the row count is taken from them where it is not known yet."""
        scale = read_scale(release, known=known, origin=self.center)
        if self.rows is None:
            self.rows, self.rows_error = max(1.0, scale.rows), scale.deviation
        return scale

    def better(self, known: NormScale | None, release: Release) -> NormScale | None:
        """The norms about the centre where they show anything, else what was known before."""
        centered = self.read(release, known)
        return centered if centered.found else known

    def stop_for_few_rows(self, name: str) -> None:
        """End the fit: the histogram of norms of this name shows nothing above its noise."""
        self.stopped = self.plan.planned(name).ends
        self.advice = (
            f"Too few rows for the budget: {self.stopped}. Give a public row_bound (the largest "
            "norm that a row can have), or use a larger epsilon or more rows."
        )

    def longest_error(self, expected: float) -> float:
        """Squared length that the error of a released centre exceeds once in a hundred times.

        ``expected`` is its expectation.
        """
        noise = STATISTICS["row-sum"].usual(pure=self.plan.pure)
        return squared_length(expected, self.plan.features, noise=noise)

    def coarser(self, precision: Precision, step: Step = "moment") -> int:
        """Bits by which rows must be coarser for a moment's noise to live on their grid."""
        epsilon = self.budgets[step].epsilon
        if epsilon is None:
            return 0
        # twice the scale of a difference of matrices, which must be on the grid even so
        scale = statistics.trace(self.plan.adjacency) / epsilon
        finest = self.plan.noises[step].finest_grid(scale)
        if finest is None:
            return 0
        finest += self.sharing.get(step, ALONE).weight_bits
        return min(0, max(1, -finest // 2) - BITS[precision])

    def precision(self, edge: float) -> Precision:
        """Single where the plan has it and rounding rows to 2**-9 cannot be seen.

        ``edge`` is the largest eigenvalue that the moment's noise alone shows.
        """
        if self.arithmetic == "double":
            return "double"
        step = 2.0 ** -BITS["single"]
        lost = self.plan.features * step * step / 12
        hidden = (self.rows or 1.0) * step * step / 4
        fine = lost <= _ROUNDING_SHARE and hidden <= _HIDDEN_PART * edge
        return "single" if fine else "double"


def find_scales(
    state: RoundState[Any], variables: NDArray[np.float64] | None
) -> Generator[Round, Answers, None]:
    """Middles and scales of columns, where the plan finds them; sets the state's preparation.

    ``state.stopped`` is set where no column shows anything.
    """
    plan: BasePlan = state.plan
    if not plan.finds_scales:
        return
    holes = state.preparation.holes

    def over(name: str, preparation: Preparation) -> Round:
        histograms = ColumnHistogram(
            plan.features,
            precision=plan.precision,
            preparation=preparation,
            variables=variables,
            weighted=plan.weighted,
        )
        return (state.query(name, histograms),)

    first = (yield over(COLUMNS, state.preparation))[COLUMNS]
    ranges = ranges_of(first, plan.features, plan.winsorize)
    preparation = range_of(ranges.middle, ranges.half, holes=holes)
    second = (yield over(COLUMN_RANGES, preparation))[COLUMN_RANGES]
    closer = closer_ranges(second, ranges)
    preparation = range_of(closer.middle, closer.half, holes=holes)
    third = (yield over(CLOSER_RANGES, preparation))[CLOSER_RANGES]
    found = scales_of((first, second, third), ranges, closer, variables)
    state.preparation = Preparation(found.offset, found.scale, LIMIT, holes)
    hidden = np.flatnonzero(found.scale == 0)
    if plan.apart is not None:
        state.preparation = plan.apart.left_out(state.preparation, plan.features)
        hidden = np.setdiff1d(hidden, plan.apart.columns)
    if hidden.size:
        which = "1 column was" if hidden.size == 1 else f"{hidden.size} columns were"
        state.advice = (
            f"{which} left out (unscaled_): constant, or the noise hides the spread. Give "
            "ranges= if you know them, leave the columns out, or use a larger epsilon."
        )
    if hidden.size == plan.features:
        state.stopped = plan.planned(CLOSER_RANGES).ends


def find_center(
    state: RoundState[Any], public_center: NDArray[np.float64] | None
) -> Generator[Round, Answers, NormScale | None]:
    """Scale and centre of the rows, as the plan has them; sets the state's centre and row count.

    A private centre is found in two stages: at the scale of the rows' norms, then at that of their
    norms about the first centre. Where rows lie far from zero compared with their spread the first
    one's noise would be a direction with more energy than the data (tables.md, section 2a). With a
    public ``row_bound``, or about columns' middles that were found, there is one stage.
    """
    plan: BasePlan = state.plan
    if plan.centered == "public":
        state.center = prepared_center(public_center, state.preparation)
    if plan.centered != "private":
        return None
    if plan.row_bound is not None:
        state.center, state.center_error, own = yield from _mean(state, CENTER, plan.row_bound)
        _keep_deviations(state, own)
        return None
    answers = yield (state.query(SCALE, state.histogram()),)
    scale = state.read(answers[SCALE])
    if not scale.found:
        state.stop_for_few_rows(SCALE)
        return None
    bound = scale.quantile(_CENTER_QUANTILE)
    first, error, own = yield from _mean(state, CENTER, bound)
    state.center, state.center_error = first, error
    _keep_deviations(state, own)
    if plan.finds_scales:
        return scale
    answers = yield (state.query(NEAR_SCALE, state.histogram()),)
    near = state.read(answers[NEAR_SCALE], scale)
    if near.found:
        bound = near.quantile(_CENTER_QUANTILE)
    step, second_error, later = yield from _mean(state, SECOND_CENTER, bound)
    # both know the same mean, with independent noise: weighted by precision
    part = error / (error + second_error)
    state.center = np.asarray(first + part * step)
    _keep_deviations(state, (1.0 - part) ** 2 * own + part**2 * later)
    # where the first noise came out large, the second one is larger for it and weighs too little
    first_error = state.longest_error(error)
    if near.found:
        first_error = min(first_error, near.mean_square())
    state.center_error = (1.0 - part) ** 2 * first_error + part**2 * second_error
    return near if near.found else scale


def find_site_means(
    state: RoundState[Any], scale: NormScale | None
) -> Generator[Round, Answers, None]:
    """Each site's own centre, where the plan has these: the common one, moved by its mean.

    Means are shrunk by what their noise is expected to be of them (James and Stein), so that a site
    of few rows, or one that was lost, keeps the common centre.
    """
    plan: BasePlan = state.plan
    if not plan.sites:
        return
    bound = plan.row_bound
    if bound is None:
        assert scale is not None
        bound = scale.quantile(_CENTER_QUANTILE)
    sums = RowSum(
        state.rule(bound, extra_bits=2),
        features=plan.features,
        count_weight=COUNT_WEIGHT,
        blocks=plan.sites,
    )
    answers = yield (state.query(SITE_MEANS, sums),)
    release = answers[SITE_MEANS]
    values = release.values.reshape(plan.sites, plan.features + 1)
    deviation = release.record.noise.deviation(release.values.size)
    counts, error = values[:, -1] / COUNT_WEIGHT, deviation / COUNT_WEIGHT
    rows = np.maximum(counts, 2.0 * error)  # fewer cannot be told from none
    means = values[:, :-1] * (bound / rows)[:, None]
    lengths = np.sum(means * means, axis=1)
    noise = plan.features * (deviation * bound / rows) ** 2 + lengths * (error / rows) ** 2
    kept = np.maximum(0.0, lengths - noise) / np.maximum(lengths, np.finfo(float).tiny)
    kept[counts <= 2.0 * error] = 0.0
    state.site_offsets = kept[:, None] * means
    state.effects_error += float(np.sum(rows * kept**2 * noise) / np.sum(rows))


def prepared_center(
    center: NDArray[np.float64] | None, preparation: Preparation
) -> NDArray[np.float64] | None:
    """A public centre, shape (D,), where prepared rows have it."""
    return None if center is None else preparation(center[None], np.float64)[0]


def _keep_deviations(state: RoundState[Any], variances: NDArray[np.float64]) -> None:
    """Of a released centre, whose noise has these variances in prepared units."""
    scale = state.preparation.scale
    state.center_deviations = np.sqrt(variances) * (1.0 if scale is None else scale)


def _mean(
    state: RoundState[Any], name: str, bound: float
) -> Generator[Round, Answers, tuple[NDArray[np.float64], float, NDArray[np.float64]]]:
    """The mean of rows less the state's centre, shortened to ``bound``, and its squared error.

    Last the variances of its entries' errors, that of the number of rows among them.
    """
    features = state.plan.features
    sums = RowSum(
        state.rule(bound, extra_bits=2),
        features=features,
        count_weight=state.count_weight,
    )
    answers = yield (state.query(name, sums),)
    values, noise = answers[name].values, answers[name].record.noise
    if state.rows is None:
        state.rows = max(1.0, float(values[features]) / COUNT_WEIGHT)
        state.rows_error = noise.deviation(features) / COUNT_WEIGHT
    # of the rows that have a column, as the entries of others are the centre's
    shares = np.ones(features) if state.observed is None else state.observed.shares(state.rows)
    unit = bound / (state.rows * shares)
    mean = np.asarray(values[:features] * unit)
    error = noise.deviation(features) ** 2 * (unit @ unit)
    if state.plan.apart is not None:
        mean[state.plan.apart.columns] = 0.0
    own = (noise.deviation(features) * unit) ** 2 + (mean * state.rows_error / state.rows) ** 2
    return mean, float(error), own
