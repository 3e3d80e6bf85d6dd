"""A sum described in plain values, so that another process can add up the same one.

The description says what to add up, never how large its sensitivity is: whoever rebuilds it works
that out from what was rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from eigenveil.errors import ProtocolError
from eigenveil.moments.accumulators import (
    Accumulator,
    ComponentEnergy,
    NormHistogram,
    RowSum,
    SecondMoment,
    Sketch,
)
from eigenveil.moments.rows import DTYPE, Precision, RowRule
from eigenveil.privacy.releases import Statistic

Arrays = Mapping[str, NDArray[np.float64]]
Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# A row counts for at most its largest norm.
Weight = Annotated[float, Field(ge=0, le=1)]
# Far below any clipping of use; shorter, a zero row could no longer be divided by it.
_SMALLEST_CLIP = 2.0**-20
# A column of a basis is at most this long; products of prepared rows with it are then exact.
_LONGEST_COLUMN = 1.001


class Description(BaseModel):
    """What an accumulator adds up; its arrays travel beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Statistic
    features: int = Field(gt=0)
    precision: Precision
    bound: Finite = 0.0
    extra_bits: int = Field(default=0, ge=-17, le=2)
    with_count: bool = False
    count_weight: Weight = 0.0
    clip: float = Field(default=1.0, ge=_SMALLEST_CLIP, le=1)
    centred: bool = False
    columns: int = Field(default=0, ge=0)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays that belong to it."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.centred:
            shapes["centre"] = (self.features,)
        if self.kind in ("sketch", "component-energy"):
            shapes["basis"] = (self.features, self.columns)
        return shapes


def describe(accumulator: Accumulator, features: int) -> tuple[Description, dict[str, Any]]:
    """An accumulator's description and arrays."""
    if isinstance(accumulator, NormHistogram):
        found: dict[str, Any] = {
            "precision": accumulator.precision,
            "with_count": accumulator.with_count,
        }
        centre = accumulator.centre
    else:
        assert isinstance(accumulator, RowSum | SecondMoment | Sketch | ComponentEnergy)
        rule = accumulator.rule
        found = {"precision": rule.precision, "bound": rule.bound, "extra_bits": rule.extra_bits}
        centre = rule.centre
    basis = None
    match accumulator:
        case RowSum():
            found["count_weight"] = accumulator.count_weight
        case ComponentEnergy():
            found["count_weight"] = accumulator.count_weight
            basis = accumulator.components.T
        case Sketch():
            found["clip"] = accumulator.clip
            basis = accumulator.basis
    arrays = {}
    if centre is not None:
        arrays["centre"] = centre
    if basis is not None:
        arrays["basis"] = np.ascontiguousarray(basis)
        found["columns"] = basis.shape[1]
    description = Description(
        kind=accumulator.statistic,
        features=features,
        centred=centre is not None,
        **found,
    )
    return description, arrays


def rebuild(description: Description, arrays: Arrays) -> Accumulator:
    """An empty accumulator as described.

    Raises
    ------
    ProtocolError
        When its sums would not be exact: a centre beyond the arithmetic's range, rows that are
        prepared too finely or not at all, or a basis with columns that are too long.
    """
    d = description
    centre = np.array(arrays["centre"]) if d.centred else None
    if centre is not None and not np.abs(centre).max() <= np.finfo(DTYPE[d.precision]).max / 4:
        raise ProtocolError(f"A {d.kind} about a centre far off was asked for.", code="bad-ask")
    if d.kind == "norm-histogram":
        return NormHistogram(centre, precision=d.precision, with_count=d.with_count)
    rule = RowRule(centre=centre, bound=d.bound, precision=d.precision, extra_bits=d.extra_bits)
    if rule.bits < 1 or (rule.extra_bits > 0 and d.kind != "row-sum"):
        raise ProtocolError(
            f"A {d.kind} of entries with {rule.bits} bits was asked for.",
            hint="It is refused; check that all parties run the same version.",
            code="bad-ask",
        )
    if d.kind == "row-sum":
        return RowSum(rule, features=d.features, count_weight=d.count_weight)
    if d.kind == "second-moment":
        return SecondMoment(rule, features=d.features)
    if d.kind == "bingham-vectors":
        raise ProtocolError("Directions are drawn by one party, not added up.", code="bad-ask")
    basis = np.array(arrays["basis"])
    if not (1 <= d.columns <= d.features and _longest_column(basis) <= _LONGEST_COLUMN):
        raise ProtocolError(
            f"A {d.kind} with columns that are not unit vectors was asked for.",
            hint="It is refused; check that all parties run the same version.",
            code="bad-ask",
        )
    if d.kind == "sketch":
        return Sketch(rule, basis, clip=d.clip)
    return ComponentEnergy(rule, basis.T, count_weight=d.count_weight)


def _longest_column(basis: NDArray[np.float64]) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.max(np.einsum("ij,ij->j", basis, basis))))
