"""The registry of statistics: what is released of rows, how far it moves, which noise may hide it.

A statistic is a sum over rows; its accumulator has the same name in ``eigenveil.moments``. The
sensitivities are functions of :mod:`eigenveil.privacy.sensitivity`, one a statistic and norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

from eigenveil.checks import one_of
from eigenveil.privacy import sensitivity
from eigenveil.privacy.mechanisms import MECHANISMS, Mechanism, Norm

if TYPE_CHECKING:
    from eigenveil.privacy.releases import ReleaseRecord

Layout = Literal["vector", "matrix", "symmetric", "tensor"]
Bound = Callable[["ReleaseRecord"], float]
_MOST_RATIO = 2.0
_ROOT_OF_2 = math.sqrt(2.0) * (1.0 + 1e-15)


def tensor_size(rows: int) -> int:
    """Independent coordinates of a symmetric tensor of three modes with so many rows in each."""
    return rows * (rows + 1) * (rows + 2) // 6


def tensor_rows(size: int) -> int:
    """The rows of which :func:`tensor_size` is ``size``.

    Raises
    ------
    ValueError
        When no symmetric tensor has so many independent coordinates.
    """
    # (n + 1)^3 - (n + 1) = 6 size, so that the cube root is a little below n + 1
    rows = max(1, round(math.cbrt(6.0 * size)) - 1)
    if tensor_size(rows) != size:
        raise ValueError(f"no symmetric tensor has {size} independent coordinates")
    return rows


@dataclass(frozen=True)
class Statistic:
    """What is released of rows of norm at most 1, or of documents.

    Attributes
    ----------
    name : str
    layout : {"vector", "matrix", "symmetric", "tensor"}
        Which entries are independent.
    bounds : mapping of norm to function of a record
        Its sensitivities.
    pure : tuple of norm
        In which noise of pure epsilon may hide it, the best first.
    ratios : mapping of norm to float
        How much larger a loss can be if a row is changed than if one is added, where it is not 2:
        a changed row is one less and one more, and where the two cannot point apart, it is less.
    proof : str or None
        Page of docs/proofs of its sensitivity, where the proofs of the noise do not list it.
    needs_basis, may_have_basis : bool
        Whether a public or released matrix belongs to it, or may.
    of_documents : bool
    check : callable or None
        Raises ValueError for a record of it that no proof covers.
    """

    name: str
    layout: Layout
    bounds: Mapping[Norm, Bound]
    pure: tuple[Norm, ...]
    ratios: Mapping[Norm, float] = field(default_factory=dict)
    proof: str | None = None
    needs_basis: bool = False
    may_have_basis: bool = False
    of_documents: bool = False
    check: Callable[[ReleaseRecord], None] | None = None

    @property
    def copies(self) -> int:
        """Entries of the whole array that one coordinate may stand for: 6 of a symmetric tensor.

        A coordinate that stands for m entries is sqrt(m) times each of them, so the noise in an
        entry has a deviation smaller by that. What is no tensor counts as a symmetric matrix.
        """
        return 6 if self.layout == "tensor" else 2

    @cached_property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Those it can be released with: first without pure epsilon, then the best pure one."""
        mixed = [m for m in MECHANISMS.values() if not m.pure and m.norm in self.bounds]
        pure = [m for norm in self.pure for m in MECHANISMS.values() if m.pure and m.norm == norm]
        return (*mixed, *pure)

    def usual(self, *, pure: bool) -> Mechanism:
        """The mechanism that is taken where none is asked for."""
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


_ALL = (
    Statistic(
        "norm-histogram",
        "vector",
        {
            "l2": lambda r: sensitivity.norm_histogram(r.adjacency),
            "l1": lambda r: sensitivity.norm_histogram_l1(r.adjacency),
        },
        pure=("l1",),
        ratios={"l2": 1.0, "l1": 1.0},
        may_have_basis=True,
    ),
    Statistic(
        "row-sum",
        "vector",
        {"l2": lambda r: sensitivity.row_sum(r.adjacency, count_weight=r.count_weight)},
        pure=("l2",),
    ),
    Statistic(
        "second-moment",
        "symmetric",
        {
            "l2": lambda r: sensitivity.second_moment(r.adjacency),
            "nuclear": lambda r: sensitivity.trace(r.adjacency),
        },
        pure=("nuclear", "l2"),
        ratios={"l2": _ROOT_OF_2},
    ),
    Statistic(
        "sketch",
        "matrix",
        {"l2": lambda r: sensitivity.sketch(r.adjacency, clip=r.clip)},
        pure=("l2",),
        needs_basis=True,
    ),
    Statistic(
        "component-energy",
        "vector",
        {
            "l2": lambda r: sensitivity.component_energy(
                r.adjacency, gain=r.gain, count_weight=r.count_weight
            ),
            "l1": lambda r: sensitivity.component_energy_l1(
                r.adjacency, gain=r.gain, count_weight=r.count_weight
            ),
        },
        pure=("l1",),
        ratios={"l2": _ROOT_OF_2},
        needs_basis=True,
    ),
    Statistic(
        "bingham-vectors",
        "symmetric",
        {"score": lambda r: sensitivity.bingham_score(r.adjacency)},
        pure=("score",),
    ),
    Statistic(
        "third-moment",
        "tensor",
        {
            "l2": lambda r: sensitivity.third_moment(
                r.adjacency, rows=tensor_rows(r.noise.size), variance=r.variance
            )
        },
        pure=("l2",),
        proof="third-moment.md",
        needs_basis=True,
        check=_whole_tensor,
    ),
    Statistic(
        "document-pairs",
        "symmetric",
        {
            "l2": lambda r: sensitivity.document_pairs(r.adjacency),
            "nuclear": lambda r: sensitivity.trace(r.adjacency),
        },
        pure=("nuclear", "l2"),
        ratios={"l2": _ROOT_OF_2},
        proof="documents.md",
        of_documents=True,
        check=_in_the_nuclear_norm,
    ),
    Statistic(
        "document-sketch",
        "matrix",
        {"l2": lambda r: sensitivity.document_sketch(r.adjacency, gain=r.gain, clip=r.clip)},
        pure=("l2",),
        proof="documents.md",
        of_documents=True,
    ),
    Statistic(
        "document-triples",
        "tensor",
        {"l2": lambda r: sensitivity.document_triples(r.adjacency, gain=r.gain)},
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
