"""A sum described in plain values, so that another process can add up the same one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import ProtocolError
from eigenveil.moments.accumulators import (
    Accumulator,
    ComponentEnergy,
    RowSum,
    SecondMoment,
    Sketch,
)
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import ClippedSum, DocumentNorms, WordShares
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.em import FARTHEST_MEAN, LARGEST_FACTOR, LARGEST_LOG, SMALLEST_REACH, EMSums
from eigenveil.moments.exact import Description
from eigenveil.moments.histograms import (
    ColumnHistogram,
    NormHistogram,
    ObservedCounts,
    ObservedPairs,
)
from eigenveil.moments.preparation import (
    LARGEST_ASKED,
    LARGEST_EFFECT,
    LARGEST_LIMIT,
    LEAST_KEPT,
    SMALLEST_ASKED,
    Apart,
    Effects,
    Preparation,
)
from eigenveil.moments.rows import DTYPE, MOST_SEEN, RowRule
from eigenveil.moments.scores import MOST_CELLS, MOST_DIRECTIONS, ScoreHistogram
from eigenveil.moments.third import ThirdMoment
from eigenveil.privacy.statistics import STATISTICS

__all__ = ["ACCUMULATORS", "Description", "describe", "rebuild"]

Arrays = Mapping[str, NDArray[np.float64]]
# A column of a basis is at most this long; products of prepared rows with it are then exact.
_LONGEST_COLUMN = 1.001
# Of a tensor entries are as many as the cube; of a histogram cells as many as the square.
_MOST_COLUMNS = {name: 256 for name, each in STATISTICS.items() if each.layout == "tensor"}
_MOST_COLUMNS |= {ScoreHistogram.statistic: MOST_DIRECTIONS}

ACCUMULATORS: Mapping[str, type[Accumulator]] = MappingProxyType(
    {
        each.statistic: each
        for each in (
            NormHistogram,
            ColumnHistogram,
            RowSum,
            SecondMoment,
            Sketch,
            ComponentEnergy,
            ObservedCounts,
            ObservedPairs,
            ScoreHistogram,
            ThirdMoment,
            EMSums,
            DocumentPairs,
            WordShares,
            DocumentSketch,
            DocumentTriples,
        )
    }
)
"""Of each statistic that is a sum, the accumulator of rows; of documents, for theirs."""


def describe(accumulator: Accumulator, features: int) -> tuple[Description, dict[str, Any]]:
    """An accumulator's description and arrays."""
    spec = accumulator.spec()
    found = {"precision": "double", **spec.fields}
    arrays = {name: np.ascontiguousarray(array) for name, array in spec.arrays.items()}
    return Description(kind=accumulator.statistic, features=features, **found), arrays


def rebuild(description: Description, arrays: Arrays, *, place: int | None = None) -> Accumulator:
    """An empty accumulator as described, of the site at this place where each has its own."""
    d = description
    if d.of is not None:
        return _norms(d, arrays)
    center = np.array(arrays["center"]) if d.centered else None
    offset = np.array(arrays["offset"]) if d.offset else None
    scale = np.array(arrays["scale"]) if d.scaled else None
    for name, array in (("centre", center), ("middle", offset), ("scale", scale)):
        near = array is None or np.abs(array).max() <= _farthest(d)
        _require(near, f"a {d.kind} about a {name} far off")
    sites = d.centers or d.blocks
    placed = not sites or (place is not None and place < min(d.centers or sites, d.blocks or sites))
    _require(placed and (d.centered or not d.centers), f"a {d.kind} of {sites} sites")
    if center is not None and d.centers:
        center = center[place]
    lengths = np.array([d.bound]) if scale is None else np.append(scale, d.bound)
    limit = math.inf if d.limit is None else d.limit
    within = _are_lengths(lengths) and not LARGEST_LIMIT < limit < math.inf
    _require(within, f"a {d.kind} of rows with scales or bounds out of all range")
    effects = Effects(d.covariates, np.array(arrays["effects"])) if d.covariates else None
    taken = effects is None or (_are_effects(effects, d.features) and _takes_effects(d))
    _require(taken, f"a {d.kind} less the effects of what are no covariates")
    basis = np.array(arrays["basis"]) if d.with_basis else None
    most = min(d.features, _MOST_COLUMNS.get(d.kind, d.features))
    few = not (d.with_basis or STATISTICS[d.kind].layout == "matrix") or 1 <= d.columns <= most
    _require(few, f"a {d.kind} with {d.columns} columns, of {most} at the most,")
    short = basis is None or _longest_column(basis) <= _LONGEST_COLUMN
    _require(short, f"a {d.kind} with columns that are not unit vectors")
    _require(d.kind in ACCUMULATORS, "a sum of directions, which one party draws")
    made = ACCUMULATORS[d.kind]
    seen = basis is not None and STATISTICS[d.kind].seen_through
    squared = seen and d.kind == SecondMoment.statistic and d.columns <= MOST_SEEN
    _require(squared or not d.products, f"a {d.kind} of products of {d.columns} columns")
    apart = Apart(d.apart, d.level) if d.apart else None
    _require(apart is None or _are_apart(apart, d, scale), f"a {d.kind} of rows without categories")
    rule = RowRule(
        center=center,
        bound=d.bound,
        precision=d.precision,
        extra_bits=d.extra_bits,
        preparation=Preparation(offset, scale, limit, d.holes, effects),
        basis=basis if seen else None,
        clip=d.clip if seen else 1.0,
        products=d.products,
        apart=apart,
    )
    finest = 0 if made.multiplies else rule.extra_bits
    exact = not made.prepares or (rule.bits >= 1 and rule.extra_bits <= finest)
    _require(exact, f"a {d.kind} of entries with {rule.bits} bits")
    variables = np.array(arrays["variables"]) if d.categories else None
    known = variables is None or bool(np.isfinite(variables).all())
    _require(known, f"a {d.kind} of columns that belong to no variable")
    mixed = (d.mixture is not None) == (made is EMSums) and _is_mixture(d, arrays)
    _require(mixed, f"a {d.kind} about a mixture that cannot be one")
    cells = 1 <= d.cells <= MOST_CELLS if made is ScoreHistogram else d.cells == 0
    _require(cells, f"a {d.kind} of {d.cells} cells a side")
    own = {"rule": rule, "center": center, "preparation": rule.preparation, "basis": basis}
    beside = {"variables": variables, "arrays": arrays, "place": place if d.blocks else None}
    return made.from_spec(d, own | beside)


def _require(holds: bool | np.bool_, what: str) -> None:
    if not holds:
        raise ProtocolError("bad-query", what=what)


def _is_mixture(d: Description, arrays: Arrays) -> bool:
    """Whether sums about these components are exact."""
    if d.mixture is None:
        return True
    given = [arrays[name] for name in d.mixture.shapes(d.features)]
    if not all(np.isfinite(array).all() for array in given):
        return False
    factors, reaches = np.abs(arrays["factors"]), arrays["reaches"]
    longest = np.sqrt(np.max(np.einsum("ij,ij->i", arrays["means"], arrays["means"])))
    within = bool(longest <= FARTHEST_MEAN and factors.max() <= LARGEST_FACTOR)
    within &= bool(np.abs(arrays["logs"]).max() <= LARGEST_LOG)
    one = d.mixture.squares != "tied" or bool(np.all(reaches == reaches[0]))
    far = bool(np.all((reaches >= SMALLEST_REACH) & (reaches <= FARTHEST_MEAN)))
    return within and one and far


def _norms(description: Description, arrays: Arrays) -> DocumentNorms:
    if description.kind == DocumentNorms.statistic:
        update = {"kind": description.of, "of": None}
        of = rebuild(description.model_copy(update=update), arrays)
        if isinstance(of, ClippedSum):
            return DocumentNorms(of, weighted=description.weighted)
    raise ProtocolError("bad-query", what=f"a {description.kind} of a {description.of}")


def _farthest(d: Description) -> float:
    """How far off a centre, a middle or a scale may be."""
    return min(LARGEST_ASKED, float(np.finfo(DTYPE[d.precision]).max) / 4)


def _are_lengths(lengths: NDArray[np.float64]) -> bool:
    """Whether all are 0 or in a range in which one over them is, too."""
    within = (lengths >= SMALLEST_ASKED) & (lengths <= LARGEST_ASKED)
    return bool((within | (lengths == 0)).all())


def _takes_effects(d: Description) -> bool:
    """Whether effects can be taken off: of columns that all have entries, beside others."""
    return not d.holes and ACCUMULATORS.get(d.kind) is not ColumnHistogram


def _are_effects(effects: Effects, features: int) -> bool:
    columns = effects.columns
    there = len(set(columns)) == len(columns) and max(columns) < features
    return there and bool((np.abs(effects.sizes) <= LARGEST_EFFECT).all())


def _are_apart(apart: Apart, d: Description, scale: NDArray[np.float64] | None) -> bool:
    """Whether these are columns, each of one category, that other entries leave room for."""
    columns, kinds = apart.columns, (SecondMoment.statistic, RowSum.statistic)
    there = all(d.apart) and len(set(columns)) == len(columns) and max(columns) < d.features
    there = there and scale is not None and not scale[columns].any()
    return bool(there and d.kind in kinds and not d.with_basis and apart.kept >= LEAST_KEPT)


def _longest_column(basis: NDArray[np.float64]) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.max(np.einsum("ij,ij->j", basis, basis))))
