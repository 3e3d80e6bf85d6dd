"""The statistics of rows with norm at most 1: how far each can move between neighbours.

In the isometric (Frobenius) L2 norm; the ``_l1`` functions in the L1 norm (privacy.md, section 3).
The tests search for the worst neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

from eigenveil.checks import one_of
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.mechanisms import MECHANISMS, Mechanism, Norm

if TYPE_CHECKING:
    from eigenveil.privacy.releases import ReleaseRecord


SQRT2 = math.sqrt(2.0)


def row_sum(adjacency: Adjacency, *, count_weight: float = 0.0) -> float:
    """Sum of rows ``x``, with the row count as a further coordinate of weight ``count_weight``.

    Under replace-one the count moves where one of the two rows is left out, as by one row more.
    """
    one = math.hypot(1.0, count_weight)
    return one if adjacency == "add-remove" else max(2.0, one)


def norm_histogram(adjacency: Adjacency) -> float:
    """Histogram of row norms, and the count of rows that are not left out."""
    del adjacency  # (bin, count) moves by (1, 1); a replaced row moves two bins by 1, or that
    return SQRT2


def norm_histogram_l1(adjacency: Adjacency) -> float:
    """The same in L1: one bin and the count, or two bins."""
    del adjacency
    return 2.0


def column_histogram(adjacency: Adjacency, *, variables: int) -> float:
    """Histograms of all columns together: a row counts in one bin of each variable's histogram."""
    return math.sqrt(variables if adjacency == "add-remove" else 2 * variables)


def column_histogram_l1(adjacency: Adjacency, *, variables: int) -> float:
    return float(variables if adjacency == "add-remove" else 2 * variables)


def score_histogram(adjacency: Adjacency) -> float:
    """Histogram of what is seen of rows: a row counts in one cell (docs/proofs/scores.md)."""
    return 1.0 if adjacency == "add-remove" else SQRT2


def score_histogram_l1(adjacency: Adjacency) -> float:
    return 1.0 if adjacency == "add-remove" else 2.0


def second_moment(adjacency: Adjacency) -> float:
    """``X.T @ X`` in the Frobenius norm: |xx' - yy'|_F <= sqrt(2), reached at orthogonal x, y."""
    return 1.0 if adjacency == "add-remove" else SQRT2


# Pairs of a document's words, and shares of them: no entry is negative, the norm at most 1, so that
# two point apart no further than orthogonal rows' moments.
document_pairs = word_shares = second_moment


def sketch(adjacency: Adjacency, *, clip: float) -> float:
    """``sum x p(x).T`` with |p| <= clip, in the Frobenius norm."""
    return clip if adjacency == "add-remove" else 2.0 * clip


def column_counts(size: int) -> float:
    """How many rows have each of so many columns: a row (a unit) moves each count by at most 1."""
    return math.sqrt(size)


def pair_counts(size: int) -> float:
    """The same of pairs of columns, of which the triangle has so many values: |11'|_F = D."""
    return float((math.isqrt(8 * size + 1) - 1) // 2)


def component_energy(adjacency: Adjacency, *, gain: float, count_weight: float = 0.0) -> float:
    """Squares of the row along released components, the rest of its energy, and the count.

    Of a row not negative, and of sum ``gain`` at most: two such are at most ``sqrt(2) gain`` apart.
    The count moves where one of the two rows is left out.
    """
    one = math.hypot(gain, count_weight)
    return one if adjacency == "add-remove" else max(SQRT2 * gain, one)


def component_energy_l1(adjacency: Adjacency, *, gain: float, count_weight: float = 0.0) -> float:
    one = gain + count_weight
    return one if adjacency == "add-remove" else max(2.0 * gain, one)


def bingham_score(adjacency: Adjacency) -> float:
    """Factor by which the exponential mechanism's exponent must be divided.

    The score ``u.T A u`` is monotone and moves by at most 1 under add-remove, so
    ``exp(epsilon * score)`` is epsilon-DP; under replace-one ``exp(epsilon/2 * score)`` is.
    """
    return 1.0 if adjacency == "add-remove" else 2.0


def trace(adjacency: Adjacency) -> float:
    """A second moment or pairs of words, in the nuclear norm: of one 1; a change is two of them."""
    return 1.0 if adjacency == "add-remove" else 2.0


def third_moment(adjacency: Adjacency, *, rows: int, variance: float) -> float:
    """``sum y(x)y(x)y - variance (y(x)I + two permutations)``, y in R^rows, in the Frobenius norm.

    With x = |y|^2 a row contributes a tensor of squared norm
    ``x^3 - 6 variance x^2 + (3 rows + 6) variance^2 x``, which grows up to x = 1, but for rows = 1,
    where it is ``x (x - 3 variance)^2`` and has a top at x = variance. The tensor of -y is the
    opposite of that of y.
    """
    if rows == 1 and 0.25 < variance < 1.0:
        farthest = 2.0 * variance * math.sqrt(variance)
    elif rows == 1:
        farthest = abs(1.0 - 3.0 * variance)
    else:
        farthest = math.sqrt(1.0 - 6.0 * variance + (3.0 * rows + 6.0) * variance * variance)
    return farthest if adjacency == "add-remove" else 2.0 * farthest


def document_sketch(adjacency: Adjacency, *, gain: float, clip: float = 1.0) -> float:
    """Pairs times a public matrix with rows up to ``gain`` long (documents.md, claim 3)."""
    # 2**-22 is for entries rounded towards zero; clipped contributions can be opposite
    if adjacency == "add-remove":
        return gain
    return (SQRT2 + 2.0**-22 if clip == 1.0 else 2.0) * gain


def document_triples(adjacency: Adjacency, *, gain: float) -> float:
    """Triples of a document's words seen through a matrix, no longer than ``gain``, or opposite."""
    return gain if adjacency == "add-remove" else 2.0 * gain


def em_sums(adjacency: Adjacency, *, count_weight: float, square_weight: float) -> float:
    """Sums of expectation maximisation: means, counts and squares of all components together.

    A row's contribution is in the convex hull of 0 and of what it would contribute to one component
    alone. Two rows are farthest apart in two components, or, opposite or at an angle, in one
    (docs/proofs/em-sums.md).
    """
    b2, c2 = square_weight * square_weight, count_weight * count_weight
    if adjacency == "add-remove":
        return math.sqrt(1.0 + b2 + c2)
    same = 4.0 if b2 <= 0.5 else 2.0 + 2.0 * b2 + 0.5 / b2
    return math.sqrt(max(same, 2.0 * (1.0 + b2 + c2)))


# -- The registry; an accumulator has its statistic's name in ``eigenveil.moments``.


Layout = Literal["vector", "matrix", "symmetric", "tensor"]
Bound = Callable[["ReleaseRecord"], float]
_MOST_RATIO = 2.0
_ROOT_OF_2 = math.sqrt(2.0) * (1.0 + 1e-15)


def tensor_size(rows: int) -> int:
    """Independent coordinates of a symmetric tensor of three modes with so many rows in each."""
    return rows * (rows + 1) * (rows + 2) // 6


def tensor_rows(size: int) -> int:
    """The rows of which :func:`tensor_size` is ``size``."""
    # (n + 1)^3 - (n + 1) = 6 size, so that the cube root is a little below n + 1
    rows = max(1, round(math.cbrt(6.0 * size)) - 1)
    if tensor_size(rows) != size:
        raise ValueError(f"no symmetric tensor has {size} independent coordinates")
    return rows


@dataclass(frozen=True)
class Statistic:
    """What is released of rows of norm at most 1, or of documents."""

    name: str
    layout: Layout  # Which entries are independent
    bounds: Mapping[Norm, Bound]  # Its sensitivities
    pure: tuple[Norm, ...]  # In which noise of pure epsilon may hide it, the best first
    # How much larger a loss can be if a row is changed than if one is added, where it is not 2: a
    # changed row is one less and one more, and where the two cannot point apart, it is less
    ratios: Mapping[Norm, float] = field(default_factory=dict)
    # Page of docs/proofs of its sensitivity, where the proofs of the noise do not list it
    proof: str | None = None
    needs_basis: bool = False  # Whether a public or released matrix belongs to it, or may
    may_have_basis: bool = False
    # Whether that matrix is what rows are seen through before anything else, so that they have norm
    # at most 1 and every sensitivity is that of rows (docs/proofs/adaptive.md)
    seen_through: bool = False
    of_documents: bool = False
    # Raises ValueError for a record of it that no proof covers
    check: Callable[[ReleaseRecord], None] | None = None

    @property
    def copies(self) -> int:
        """Entries of the whole array that one coordinate may stand for: 6 of a symmetric tensor."""
        # so the noise in an entry has a deviation smaller by the root of that; others count as
        # symmetric
        return 6 if self.layout == "tensor" else 2

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Those it can be released with: first without pure epsilon, then the best pure one."""
        mixed = [m for m in MECHANISMS.values() if not m.pure and m.norm in self.bounds]
        pure = [m for norm in self.pure for m in MECHANISMS.values() if m.pure and m.norm == norm]
        return (*mixed, *pure)

    def usual(self, *, pure: bool) -> Mechanism:
        """The mechanism that is taken where none is requested."""
        return next(m for m in self.mechanisms if m.pure or not pure)

    def replacing_ratio(self, norm: Norm) -> float:
        """How much larger a loss can be if a row is changed than if one is added: at most 2."""
        return self.ratios.get(norm, _MOST_RATIO)


def _whole_tensor(record: ReleaseRecord) -> None:
    tensor_rows(record.noise.size)


def _in_the_nuclear_norm(record: ReleaseRecord) -> None:
    if record.mechanism.norm == "nuclear" and record.clip < 1.0:
        raise ValueError(
            f"pairs clipped in the Frobenius norm cannot have {record.noise.kind} noise"
        )


def _third_moment(record: ReleaseRecord) -> float:
    rows = tensor_rows(record.noise.size)
    return third_moment(record.adjacency, rows=rows, variance=record.variance)


def _of(sensitivity: Callable[..., float]) -> Bound:
    """Of a record: a sensitivity whose further arguments are its fields of the same names."""
    names = list(signature(sensitivity).parameters)[1:]
    return lambda record: sensitivity(record.adjacency, **{n: getattr(record, n) for n in names})


_ALL = (
    Statistic(
        "norm-histogram",
        "vector",
        {"l2": _of(norm_histogram), "l1": _of(norm_histogram_l1)},
        pure=("l1",),
        ratios={"l2": 1.0, "l1": 1.0},
        may_have_basis=True,
    ),
    Statistic(
        "column-histogram",
        "vector",
        {"l2": _of(column_histogram), "l1": _of(column_histogram_l1)},
        pure=("l1",),
        ratios={"l2": _ROOT_OF_2},
        proof="scales.md",
    ),
    Statistic(
        "row-sum",
        "vector",
        {"l2": _of(row_sum)},
        pure=("l2",),
        may_have_basis=True,
        seen_through=True,
    ),
    Statistic(
        "second-moment",
        "symmetric",
        {"l2": _of(second_moment), "nuclear": _of(trace)},
        pure=("nuclear", "l2"),
        ratios={"l2": _ROOT_OF_2},
        may_have_basis=True,
        seen_through=True,
    ),
    Statistic(
        "score-histogram",
        "vector",
        {"l2": _of(score_histogram), "l1": _of(score_histogram_l1)},
        pure=("l1",),
        ratios={"l2": _ROOT_OF_2},
        proof="scores.md",
        needs_basis=True,
        seen_through=True,
    ),
    Statistic("sketch", "matrix", {"l2": _of(sketch)}, pure=("l2",), needs_basis=True),
    Statistic(
        "component-energy",
        "vector",
        {"l2": _of(component_energy), "l1": _of(component_energy_l1)},
        pure=("l1",),
        ratios={"l2": _ROOT_OF_2},
        needs_basis=True,
    ),
    Statistic(
        "column-counts",
        "vector",
        {"l2": lambda r: column_counts(r.noise.size), "l1": lambda r: float(r.noise.size)},
        pure=("l1",),
        ratios={"l2": 1.0, "l1": 1.0},
        proof="missing.md",
    ),
    Statistic(
        "pair-counts",
        "symmetric",
        {"l2": lambda r: pair_counts(r.noise.size)},
        pure=("l2",),
        ratios={"l2": 1.0},
        proof="missing.md",
    ),
    Statistic("bingham-vectors", "symmetric", {"score": _of(bingham_score)}, pure=("score",)),
    Statistic(
        "third-moment",
        "tensor",
        {"l2": _third_moment},
        pure=("l2",),
        proof="third-moment.md",
        needs_basis=True,
        check=_whole_tensor,
    ),
    Statistic("em-sums", "vector", {"l2": _of(em_sums)}, pure=("l2",), proof="em-sums.md"),
    Statistic(
        "document-pairs",
        "symmetric",
        {"l2": _of(document_pairs), "nuclear": _of(trace)},
        pure=("nuclear", "l2"),
        ratios={"l2": _ROOT_OF_2},
        proof="documents.md",
        of_documents=True,
        check=_in_the_nuclear_norm,
    ),
    Statistic(
        "word-shares",
        "vector",
        {"l2": _of(word_shares)},
        pure=("l2",),
        ratios={"l2": _ROOT_OF_2},
        proof="documents.md",
        of_documents=True,
    ),
    Statistic(
        "document-sketch",
        "matrix",
        {"l2": _of(document_sketch)},
        pure=("l2",),
        proof="documents.md",
        of_documents=True,
    ),
    Statistic(
        "document-triples",
        "tensor",
        {"l2": _of(document_triples)},
        pure=("l2",),
        proof="documents.md",
        needs_basis=True,
        of_documents=True,
        check=_whole_tensor,
    ),
)

STATISTICS: Mapping[str, Statistic] = MappingProxyType({each.name: each for each in _ALL})

StatisticName = Annotated[str, *one_of(STATISTICS)]
"""The name of a statistic, in records."""
