"""What a plan's releases look like before any row is read: sizes, and what their loss rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from eigenveil.models.mixture.plan import SUMS, MixturePlan
from eigenveil.models.pca.plan import Plan
from eigenveil.models.plan import BasePlan
from eigenveil.models.schedule import Planned, Step, exactly
from eigenveil.moments.accumulators import WEIGHT_BITS
from eigenveil.moments.documents.triples import triples_error
from eigenveil.moments.exact import Description
from eigenveil.moments.histograms import BINS
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import Shape, calibrated_record
from eigenveil.privacy.releases import ALONE, ReleaseRecord, Sharing
from eigenveil.privacy.statistics import STATISTICS, tensor_size

# A sum of rows carries their count at this weight where no histogram has released it: it makes
# the noise of the sum 3% larger and is itself known to four noise deviations.
COUNT_WEIGHT = 0.25
# Documents are not clipped below this, nor is what is known of a row's variance more than 1.
SMALLEST_CLIP, LARGEST_VARIANCE = 2.0**-12, 1.0
# Bases are orthonormal but for rounding: a row's energy along them is no more than this.
_LARGEST_GAIN = 1.01

Range = tuple[float, float]


@dataclass(frozen=True)
class ReleaseShape:
    """What a plan can make of one statistic."""

    # Number of values without the row count, where the plan's schedule does not say; of a tensor
    # the most: it has as many rows as components were found, at least one
    size: Callable[[BasePlan], int]
    # Least and most weight of the row count, in `COUNT_WEIGHT`, where it is not yet known
    counts: Range = (0.0, 0.0)
    clip: Range = (1.0, 1.0)
    variance: Range = (0.0, 0.0)
    # Between which numbers these parameters of a record are
    gain: Callable[[BasePlan], Range] = lambda _: (1.0, 1.0)
    # The parameters that cost most; each of several where it is not known which do
    costliest: Callable[[BasePlan], list[dict[str, float]]] = lambda _: [{}]
    # Whether the sum is of the kind that the plan has, and not larger
    fits: Callable[[BasePlan, Description], bool] = lambda _, __: True
    # Number of variables of which a row counts in a histogram
    variables: Callable[[BasePlan], int] = lambda _: 1
    # Whether rows with weights count in whole shares, of which the sum must know
    counts_shares: bool = False
    # Exponent of the sum's own grid, where the plan alone gives it: of counts of rows, or of parts
    # of them, of which a person's are 1 together
    grid: Callable[[BasePlan], int] | None = None


def _of_counts(plan: BasePlan) -> int:
    return -WEIGHT_BITS if plan.weighted else 0


def _symmetric(plan: BasePlan) -> int:
    return plan.features * (plan.features + 1) // 2


def _matrix(plan: BasePlan) -> int:
    columns = plan.way.columns(plan) if isinstance(plan, Plan) else plan.sketch_columns
    assert columns is not None
    return plan.features * columns


def _planned(plan: BasePlan) -> int:
    raise AssertionError(f"the sizes of these releases stand in the schedule of {plan}: a defect")


def _same_components(plan: BasePlan, asked: Description) -> bool:
    if not isinstance(plan, MixturePlan) or asked.mixture is None:
        return False
    candidates = asked.mixture.components <= plan.candidates and asked.mixture.squares == "none"
    sums = asked.mixture.components <= plan.n_components
    return candidates or (sums and asked.mixture.squares == plan.squares(SUMS))


def _sketch_gain(plan: BasePlan) -> float:
    return math.sqrt(plan.sketch_columns)


def _few_columns(plan: BasePlan, asked: Description) -> bool:
    return asked.columns <= plan.rank


def _few_cells(plan: BasePlan, asked: Description) -> bool:
    planned = [each.sizes or (0,) for each in plan.schedule if each.step == "scores"]
    cells: int = asked.cells**asked.columns * max(1, len(asked.groups))
    return any(cells <= sizes[-1] for sizes in planned)


SHAPES: Mapping[str, ReleaseShape] = MappingProxyType(
    {
        "norm-histogram": ReleaseShape(lambda _: BINS + 1, counts_shares=True, grid=_of_counts),
        "column-histogram": ReleaseShape(
            _planned,
            counts_shares=True,
            grid=_of_counts,
            variables=lambda plan: plan.variables,
            costliest=lambda plan: [{"variables": plan.variables}],
        ),
        "column-counts": ReleaseShape(
            lambda plan: plan.features, counts_shares=True, grid=_of_counts
        ),
        "pair-counts": ReleaseShape(_symmetric, counts_shares=True, grid=_of_counts),
        "score-histogram": ReleaseShape(
            _planned, clip=(0.0, 1.0), counts_shares=True, grid=_of_counts, fits=_few_cells
        ),
        "row-sum": ReleaseShape(lambda plan: plan.features, counts=(1.0, 1.0)),
        "second-moment": ReleaseShape(_symmetric),
        "bingham-vectors": ReleaseShape(_symmetric),
        "sketch": ReleaseShape(_matrix, clip=(0.0, 1.0)),
        "component-energy": ReleaseShape(
            lambda plan: plan.n_components + 1,
            counts=(0.0, 1.0),
            gain=lambda _: (1.0, _LARGEST_GAIN),
            costliest=lambda _: [{"gain": _LARGEST_GAIN}],
        ),
        "third-moment": ReleaseShape(
            lambda plan: tensor_size(plan.rank),
            counts_shares=True,
            variance=(0.0, LARGEST_VARIANCE),
            costliest=lambda _: [{"variance": 0.0}, {"variance": LARGEST_VARIANCE}],
            fits=_few_columns,
        ),
        "em-sums": ReleaseShape(
            _planned,
            counts_shares=True,
            counts=(1.0, 1.0),
            fits=_same_components,
        ),
        "document-pairs": ReleaseShape(
            _symmetric,
            clip=(0.0, 1.0),
            fits=lambda plan, asked: asked.nuclear == (plan.noises["moment"].norm == "nuclear"),
        ),
        "word-shares": ReleaseShape(lambda plan: plan.features, clip=(0.0, 1.0)),
        "document-sketch": ReleaseShape(
            _matrix,
            clip=(0.0, 1.0),
            gain=lambda plan: (_sketch_gain(plan),) * 2,
            costliest=lambda plan: [
                {"gain": _sketch_gain(plan)},
                {"gain": _sketch_gain(plan), "clip": 0.5},
            ],
            fits=lambda plan, asked: asked.columns <= plan.sketch_columns,
        ),
        "document-triples": ReleaseShape(
            lambda plan: tensor_size(plan.rank),
            counts_shares=True,
            gain=lambda _: (1.0, 2.0),
            costliest=lambda plan: [
                {"gain": 1.0 + triples_error(plan.n_components, SMALLEST_CLIP)}
            ],
            fits=_few_columns,
        ),
    }
)
"""Of each statistic."""


def sizes_of(plan: BasePlan, planned: Planned, *, count: bool) -> Sequence[int]:
    """How many values a planned release may have; ``count``: the row count rides along."""
    if planned.sizes is not None:
        return planned.sizes
    if STATISTICS[planned.statistic].layout == "tensor":
        return [tensor_size(rows) + count for rows in range(1, plan.rank + 1)]
    return exactly(SHAPES[planned.statistic].size(plan) + count)


def ranges_of(plan: BasePlan, planned: Planned) -> dict[str, Range]:
    """Between which numbers the further parameters of a release's record can be."""
    shape = SHAPES[planned.statistic]
    known = not planned.counts and plan.is_counted_before(planned.name)
    weight = 0.0 if known else COUNT_WEIGHT
    least, most = shape.counts
    return {
        "square_weight": (planned.square_weight,) * 2,
        "clip": shape.clip,
        "gain": shape.gain(plan),
        "count_weight": (least * weight, most * weight),
        "variance": shape.variance,
        "variables": (float(shape.variables(plan)),) * 2,
    }


def rehearse(
    plan: BasePlan, budgets: Mapping[Step, StepBudget], sharing: Mapping[Step, Sharing]
) -> list[ReleaseRecord]:
    """Calibrate every planned release as it could come, so that none fails later."""
    found: list[ReleaseRecord] = []
    for planned in plan.schedule:
        records = [
            calibrated_record(
                shape,
                name=planned.name,
                adjacency=plan.adjacency,
                kind=plan.noises[planned.step].name,
                budget=budgets[planned.step],
                fraction=planned.fraction,
                draws=planned.draws,
                sharing=sharing.get(planned.step, ALONE),
            )
            for shape in _worst(plan, planned)
        ]
        found.append(records[0])
    return found


def planned_sizes(plan: BasePlan) -> dict[str, int]:
    """Numbers of every planned release, by its name, the most that it can have."""
    return {each.name: _worst(plan, each)[0].size for each in plan.schedule}


def _worst(plan: BasePlan, planned: Planned) -> list[Shape]:
    """The shapes of a release that cost most."""
    ranges = ranges_of(plan, planned)
    _, count = ranges["count_weight"]
    size = sizes_of(plan, planned, count=count > 0)[-1]
    fixed = {"count_weight": count, "square_weight": ranges["square_weight"][1]}
    tensor = STATISTICS[planned.statistic].layout == "tensor"
    rows = plan.rank if tensor else plan.features
    return [
        Shape(planned.statistic, (rows,), size, parameters=fixed | found)
        for found in SHAPES[planned.statistic].costliest(plan)
    ]
