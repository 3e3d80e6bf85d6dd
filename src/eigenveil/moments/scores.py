"""A histogram of rows seen through one or two released directions: of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import counted
from eigenveil.moments.exact import Description, Spec, spec_of
from eigenveil.moments.histograms import CountSum
from eigenveil.moments.rows import Block, RowRule
from eigenveil.privacy.statistics import StatisticName

MOST_CELLS, MOST_DIRECTIONS = 512, 2
"""Cells along one direction, and directions."""


class ScoreHistogram(CountSum):
    """How many rows are in which cell of a square grid over what is seen of them.

    The rule has a basis of one or two columns, so that prepared rows are scores of norm at most 1;
    ``cells`` of equal size divide [-1, 1] along each. Cells are numbered along the first direction
    last, and rows that are left out are in none (docs/proofs/scores.md).
    """

    statistic: StatisticName = "score-histogram"
    prepares = True
    multiplies = False

    def __init__(self, rule: RowRule, *, cells: int, weighted: bool = False) -> None:
        assert rule.basis is not None
        self.rule, self.cells, self.weighted = rule, cells, weighted
        self._directions = rule.basis.shape[1]
        self._counts = np.zeros(self.shape, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.cells**self._directions,)

    def spec(self) -> Spec:
        return spec_of(self.rule, cells=self.cells, weighted=self.weighted)

    @classmethod
    def from_spec(cls, d: Description, known: Mapping[str, Any]) -> Self:
        return cls(known["rule"], cells=d.cells, weighted=d.weighted)

    def update(self, block: Block) -> None:
        seen, _ = self.rule(block, weighting="none")
        shares = counted(block, weighted=self.weighted)
        places = self._places(block.taking_part(seen))
        weights = None if shares is None else block.taking_part(shares)
        found = np.bincount(places, weights, minlength=self._counts.size)
        # shares of a block add up exactly in double precision
        self._counts += found.astype(np.int64, copy=False)

    def _places(self, seen: NDArray[Any]) -> NDArray[np.int64]:
        """The cell of each row, in whole numbers: the upper edge of the last belongs to it."""
        bits = self.rule.bits
        along = ((seen.astype(np.int64) + (1 << bits)) * self.cells) >> (bits + 1)
        np.minimum(along, self.cells - 1, out=along)
        places = along[:, 0]
        for each in along[:, 1:].T:
            places = places * self.cells + each
        return np.asarray(places)
