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
from eigenveil.moments.document_sums import (
    ClippedSum,
    DocumentNorms,
    DocumentPairs,
    DocumentSketch,
)
from eigenveil.moments.document_triples import DocumentTriples
from eigenveil.moments.rows import DTYPE, Precision, RowRule
from eigenveil.moments.tensors import ThirdMoment
from eigenveil.privacy.statistics import STATISTICS, StatisticName

Arrays = Mapping[str, NDArray[np.float64]]
Finite = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# A row counts for at most its largest norm.
Weight = Annotated[float, Field(ge=0, le=1)]
# In units of a row's largest squared norm, as it is seen.
Variance = Annotated[float, Field(ge=0, le=1)]
# Far below any clipping of use; shorter, a zero row could no longer be divided by it.
_SMALLEST_CLIP = 2.0**-20
# A column of a basis is at most this long; products of prepared rows with it are then exact.
_LONGEST_COLUMN = 1.001
# Of a tensor, whose entries are as many as the cube.
_MOST_MODES = 256


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
        kind = self.of or self.kind
        return STATISTICS[kind].needs_basis or (kind == "norm-histogram" and self.columns > 0)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays that belong to it."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.centred:
            shapes["centre"] = (self.features,)
        if self.with_basis:
            shapes["basis"] = (self.features, self.columns)
        return shapes


def describe(accumulator: Accumulator, features: int) -> tuple[Description, dict[str, Any]]:
    """An accumulator's description and arrays."""
    if isinstance(accumulator, DocumentNorms):
        of, arrays = describe(accumulator.of, features)
        update = {
            "kind": accumulator.statistic,
            "of": of.kind,
            "with_count": accumulator.with_count,
        }
        return of.model_copy(update=update), arrays
    found: dict[str, Any] = {"precision": "double"}
    centre = basis = None
    match accumulator:
        case NormHistogram():
            centre = accumulator.centre
            found = {
                "precision": accumulator.precision,
                "with_count": accumulator.with_count,
                "bound": accumulator.bound,
            }
        case RowSum() | SecondMoment() | Sketch() | ComponentEnergy() | ThirdMoment():
            rule = accumulator.rule
            centre = rule.centre
            found = {
                "precision": rule.precision,
                "bound": rule.bound,
                "extra_bits": rule.extra_bits,
            }
    match accumulator:
        case RowSum():
            found["count_weight"] = accumulator.count_weight
        case ComponentEnergy():
            found["count_weight"] = accumulator.count_weight
            basis = accumulator.components.T
        case Sketch():
            found["clip"] = accumulator.clip
            basis = accumulator.basis
        case ThirdMoment():
            found["clip"], found["variance"] = accumulator.clip, accumulator.variance
            basis = accumulator.basis
        case NormHistogram():
            basis = accumulator.basis
        case DocumentTriples():
            found["clip"], basis = accumulator.clip, accumulator.basis
        case DocumentPairs():
            found["clip"], found["nuclear"] = accumulator.clip, accumulator.nuclear
            found["extra_bits"] = accumulator.extra_bits
        case DocumentSketch():
            found["clip"], found["columns"] = accumulator.clip, accumulator.columns
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
        prepared too finely or not at all, or a basis with columns that are too long. Also for no
        columns, for more than features, for tensors too large to hold, and for norms of what is no
        sum over documents.
    """
    d = description
    if d.of is not None:
        return _norms(d, arrays)
    centre = np.array(arrays["centre"]) if d.centred else None
    if centre is not None and not np.abs(centre).max() <= np.finfo(DTYPE[d.precision]).max / 4:
        raise ProtocolError(f"A {d.kind} about a centre far off was asked for.", code="bad-ask")
    basis = np.array(arrays["basis"]) if d.with_basis else None
    most = min(d.features, _MOST_MODES) if STATISTICS[d.kind].layout == "tensor" else d.features
    if (d.with_basis or d.kind == "document-sketch") and not 1 <= d.columns <= most:
        raise ProtocolError(
            f"A {d.kind} with {d.columns} columns was asked for, of {most} at the most.",
            hint="It is refused; check that all parties run the same version.",
            code="bad-ask",
        )
    if basis is not None and not _longest_column(basis) <= _LONGEST_COLUMN:
        raise ProtocolError(
            f"A {d.kind} with columns that are not unit vectors was asked for.",
            hint="It is refused; check that all parties run the same version.",
            code="bad-ask",
        )
    if d.kind == "norm-histogram":
        return NormHistogram(
            centre, precision=d.precision, with_count=d.with_count, basis=basis, bound=d.bound
        )
    rule = RowRule(centre=centre, bound=d.bound, precision=d.precision, extra_bits=d.extra_bits)
    if rule.bits < 1 or (rule.extra_bits > 0 and d.kind != "row-sum"):
        raise ProtocolError(
            f"A {d.kind} of entries with {rule.bits} bits was asked for.",
            hint="It is refused; check that all parties run the same version.",
            code="bad-ask",
        )
    match d.kind:
        case "row-sum":
            return RowSum(rule, features=d.features, count_weight=d.count_weight)
        case "second-moment":
            return SecondMoment(rule, features=d.features)
        case "document-pairs":
            return DocumentPairs(
                d.features, clip=d.clip, nuclear=d.nuclear, extra_bits=d.extra_bits
            )
        case "document-sketch":
            return DocumentSketch(d.features, d.columns, clip=d.clip)
        case "bingham-vectors":
            raise ProtocolError("Directions are drawn by one party, not added up.", code="bad-ask")
    assert basis is not None
    match d.kind:
        case "sketch":
            return Sketch(rule, basis, clip=d.clip)
        case "component-energy":
            return ComponentEnergy(rule, basis.T, count_weight=d.count_weight)
        case "third-moment":
            return ThirdMoment(rule, basis, clip=d.clip, variance=d.variance)
        case "document-triples":
            return DocumentTriples(basis, clip=d.clip)
    raise AssertionError(f"nothing adds up {d.kind}: a defect")


def _norms(description: Description, arrays: Arrays) -> DocumentNorms:
    if description.kind == "norm-histogram":
        update = {"kind": description.of, "of": None, "with_count": False}
        of = rebuild(description.model_copy(update=update), arrays)
        if isinstance(of, ClippedSum):
            return DocumentNorms(of, with_count=description.with_count)
    raise ProtocolError(
        f"A {description.kind} of a {description.of} was asked for.",
        hint="It is refused; check that all parties run the same version.",
        code="bad-ask",
    )


def _longest_column(basis: NDArray[np.float64]) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.max(np.einsum("ij,ij->j", basis, basis))))
