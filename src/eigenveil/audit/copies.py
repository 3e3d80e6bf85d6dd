"""Many independent copies of one release, drawn at once."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.rows import Block
from eigenveil.privacy.statistics import Layout


class Copies(Accumulator):
    """A sum ``count`` times over, so that one call adds independent noise to each copy.

    Only for sums whose entries get independent noise (layouts "vector" and "matrix"): whatever
    draws noise for such a sum draws it entry by entry, for however many entries there are. The
    record stays that of one copy.
    """

    layout: Layout = "vector"

    def __init__(self, inner: Accumulator, count: int) -> None:
        if inner.layout not in ("vector", "matrix"):
            raise ValueError(f"noise in the layout {inner.layout!r} is not drawn entry by entry")
        self.inner, self.count, self.statistic = inner, count, inner.statistic

    @property
    def grid(self) -> int:
        """That of a copy."""
        return self.inner.grid

    @property
    def shape(self) -> tuple[int, ...]:
        """All entries of all copies."""
        return (self.count * self.inner.size,)

    @property
    def parameters(self) -> dict[str, float]:
        """Those of a copy."""
        return self.inner.parameters

    def kind(self) -> tuple[Any, ...]:
        """That of a copy, and how many."""
        return (*self.inner.kind(), self.count)

    def fresh(self) -> Self:
        """Empty copies."""
        return type(self)(self.inner.fresh(), self.count)

    def update(self, block: Block) -> None:
        """Add rows to every copy."""
        self.inner.update(block)

    def merge(self, other: Self) -> None:
        """Add the rows of another such sum to every copy."""
        self.inner.merge(other.inner)

    def integers(self) -> NDArray[np.int64]:
        """Copy after copy."""
        return np.tile(self.inner.integers().ravel(), self.count)
