"""What a plan's releases look like before any row is read: sizes, and what their loss rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from eigenveil.models.pca.plan import Plan
from eigenveil.models.plan import BasePlan, Planned, Step
from eigenveil.moments.accumulators import BINS
from eigenveil.moments.documents.triples import triples_error
from eigenveil.moments.release import calibrated_record
from eigenveil.noise.cube import tensor_size
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.releases import ALONE, ReleaseRecord, Sharing
from eigenveil.privacy.statistics import StatisticName

# A sum of rows carries their count at this weight where no histogram has released it: it makes
# the noise of the sum 3% larger and is itself known to four noise deviations.
COUNT_WEIGHT = 0.25
# Documents are not clipped below this, nor is what is known of a row's variance more than 1.
SMALLEST_CLIP, LARGEST_VARIANCE = 2.0**-12, 1.0
# Bases are orthonormal but for rounding: a row's energy along them is no more than this.
_LARGEST_GAIN = 1.01


@dataclass(frozen=True)
class Shape:
    """A sum that is not there yet, as its calibration needs it.

    ``grid`` is the coarsest that the real sum can have.
    """

    statistic: StatisticName
    shape: tuple[int, ...]
    size: int
    grid: int = 0
    parameters: Mapping[str, float] = field(default_factory=dict)


def sizes_of(plan: BasePlan, planned: Planned, *, count: bool) -> range:
    """How many values a planned release may have; ``count``: the row count rides along.

    A tensor has as many rows as components were found, at least one.
    """
    d, k = plan.features, plan.n_components
    match planned.statistic:
        case "column-counts":
            size = d
        case "norm-histogram":
            size = BINS + (not plan.count_is_public)
        case "row-sum":
            size = d + count
        case "sketch" | "document-sketch":
            columns = plan.way.columns(plan) if isinstance(plan, Plan) else plan.sketch_columns
            assert columns is not None
            size = d * columns
        case "component-energy":
            size = k + 1 + count
        case "third-moment" | "document-triples":
            return range(1, tensor_size(k) + 1)
        case _:
            size = d * (d + 1) // 2
    return range(size, size + 1)


def rehearse(
    plan: BasePlan, budgets: Mapping[Step, StepBudget], sharing: Mapping[Step, Sharing]
) -> list[ReleaseRecord]:
    """Calibrate every planned release as it could come, so that none fails after another was made.

    Returns
    -------
    list of ReleaseRecord
        One a release, of a shape that it can have.

    Raises
    ------
    PrivacyError
        ``hopeless-noise`` or ``epsilon-below-resolution``, before anything is released.
    """
    found: list[ReleaseRecord] = []
    for planned in plan.schedule:
        records = [
            calibrated_record(
                shape,
                name=planned.name,
                adjacency=plan.adjacency,
                kind=plan.kind(planned.step),
                budget=budgets[planned.step].scaled(planned.fraction),
                draws_count=planned.draws,
                sharing=sharing.get(planned.step, ALONE),
            )
            for shape in _worst(plan, planned)
        ]
        found.append(records[0])
    return found


def _worst(plan: BasePlan, planned: Planned) -> list[Shape]:
    """The shapes of a release that cost most."""
    d, k = plan.features, plan.n_components
    size = sizes_of(plan, planned, count=True)[-1]
    rows = k if planned.statistic in ("third-moment", "document-triples") else d
    known: list[dict[str, float]] = [{}]
    match planned.statistic:
        case "row-sum":
            known = [{"count_weight": COUNT_WEIGHT}]
        case "component-energy":
            known = [{"count_weight": COUNT_WEIGHT, "gain": _LARGEST_GAIN}]
        case "document-sketch":
            gain = math.sqrt(plan.sketch_columns)
            known = [{"gain": gain}, {"gain": gain, "clip": 0.5}]
        case "third-moment":
            known = [{"variance": 0.0}, {"variance": LARGEST_VARIANCE}]
        case "document-triples":
            known = [{"gain": 1.0 + triples_error(k, SMALLEST_CLIP)}]
    return [Shape(planned.statistic, (rows,), size, parameters=found) for found in known]
