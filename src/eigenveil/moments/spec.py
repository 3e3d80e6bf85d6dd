"""A sum in plain values: what an accumulator says of itself, and is made of in another process.

The description says what to add up, never how large its sensitivity is: whoever rebuilds it works
that out from what was rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from eigenveil.moments.rows import Precision, RowRule
from eigenveil.privacy.statistics import STATISTICS, StatisticName

Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# A row counts for at most its largest norm.
Weight = Annotated[float, Field(ge=0, le=1)]
# In units of a row's largest squared norm, as it is seen.
Variance = Annotated[float, Field(ge=0, le=1)]
# Far below any clipping of use; shorter, a zero row could no longer be divided by it.
_SMALLEST_CLIP = 2.0**-20


class Description(BaseModel):
    """What an accumulator adds up; its arrays travel beside it.

    A norm histogram with columns is one of what is seen of rows through a basis; with ``of`` it is
    one of what documents contribute to the sum of that name, to which the other fields belong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: StatisticName
    of: StatisticName | None = None
    features: int = Field(gt=0)
    precision: Precision
    bound: Finite = 0.0
    extra_bits: int = Field(default=0, ge=-17, le=2)
    with_count: bool = False
    count_weight: Weight = 0.0
    clip: float = Field(default=1.0, ge=_SMALLEST_CLIP, le=1)
    centred: bool = False
    columns: int = Field(default=0, ge=0)
    variance: Variance = 0.0
    nuclear: bool = False

    @property
    def with_basis(self) -> bool:
        """Whether an array of shape (features, columns) belongs to it."""
        statistic = STATISTICS[self.of or self.kind]
        return statistic.needs_basis or (statistic.may_have_basis and self.columns > 0)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays that belong to it."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.centred:
            shapes["centre"] = (self.features,)
        if self.with_basis:
            shapes["basis"] = (self.features, self.columns)
        return shapes


@dataclass(frozen=True)
class Spec:
    """What an accumulator says of itself: fields of a description, and its arrays."""

    said: Mapping[str, Any] = field(default_factory=dict)
    centre: NDArray[np.float64] | None = None
    basis: NDArray[np.float64] | None = None


def spec_of(rule: RowRule, *, basis: NDArray[np.float64] | None = None, **said: Any) -> Spec:
    """Of a sum of rows prepared by a rule."""
    rules = {"precision": rule.precision, "bound": rule.bound, "extra_bits": rule.extra_bits}
    return Spec(rules | said, centre=rule.centre, basis=basis)


@dataclass(frozen=True)
class Parts:
    """What a described sum is made of, checked."""

    rule: RowRule
    centre: NDArray[np.float64] | None
    basis: NDArray[np.float64] | None

    @property
    def known_basis(self) -> NDArray[np.float64]:
        """The basis of a sum that needs one."""
        assert self.basis is not None
        return self.basis
