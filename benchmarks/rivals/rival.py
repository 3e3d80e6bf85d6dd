"""What every rival is: a name, its paper, what it must be told, and how it finds components."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.rivals.budget import Array, Budget
from eigenveil.linalg.eigen import leading_eigenpairs


@dataclass(frozen=True)
class Size:
    """What is public about rows: how many and how wide, and how many components are wanted."""

    rows: int
    features: int
    components: int

    @classmethod
    def of(cls, rows: Array, components: int) -> Size:
        """Of the rows that will be fitted."""
        return cls(rows.shape[0], rows.shape[1], components)


class Rival(ABC):
    """A method of the literature, in plain floating point and with everything in its favour.

    Rows are exactly centred. ``tell`` reads them without any charge, and what it returns stands
    for what an analyst would have to know in advance (``told``, in words).
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    told: ClassVar[str]

    def suits(self, size: Size) -> bool:  # noqa: ARG002
        """Whether the method is made for such rows."""
        return True

    @abstractmethod
    def tell(self, rows: Array, size: Size, budget: Budget) -> Any:
        """What the method must be told, computed from the true rows."""

    @abstractmethod
    def components(self, rows: Array, size: Size, told: Any, budget: Budget) -> Array:
        """Orthonormal rows (K, D), with ``budget`` spent; the released values decide alone."""


def largest_norm(rows: Array) -> float:
    """Of all rows."""
    return float(np.sqrt(np.max(np.einsum("nd,nd->n", rows, rows))))


def clipped(rows: Array, bound: float) -> Array:
    """Rows, with those that are longer than the bound shortened to it."""
    norms = np.linalg.norm(rows, axis=1)
    if norms.size == 0 or norms.max() <= bound:
        return rows
    return np.asarray(rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))[:, None])


def leading(matrix: Array, count: int) -> Array:
    """Leading eigenvectors of a symmetric matrix, as rows."""
    return leading_eigenpairs(matrix, count)[1]


def random_directions(count: int, features: int, rng: np.random.Generator) -> Array:
    """Orthonormal rows that say nothing."""
    return np.asarray(np.linalg.qr(rng.standard_normal((features, count)))[0].T)
