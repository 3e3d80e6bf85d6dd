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

_PRESENT = 0.5
MOST_CELLS, MOST_DIRECTIONS = 512, 2
"""Cells along one direction, and directions."""


class ScoreHistogram(CountSum):
    """How many rows are in which cell of a square grid over what is seen of them.

    The rule has a basis of one or two columns, so that prepared rows are scores of norm at most 1;
    ``cells`` of equal size divide [-1, 1] along each. Cells are numbered along the first direction
    last, and rows that are left out are in none (docs/proofs/scores.md).

    ``groups`` are numbers of columns as they were read: a row is of the first group whose entry is
    the largest and above one half, and in the cells of that group; one of no group is in none.
    """

    statistic: StatisticName = "score-histogram"
    prepares = True
    multiplies = False

    def __init__(
        self,
        rule: RowRule,
        *,
        cells: int,
        weighted: bool = False,
        groups: tuple[int, ...] = (),
    ) -> None:
        assert rule.basis is not None
        self.rule, self.cells, self.weighted, self.groups = rule, cells, weighted, groups
        self._directions = rule.basis.shape[1]
        self._counts = np.zeros(self.shape, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        return (max(1, len(self.groups)) * self.cells**self._directions,)

    def spec(self) -> Spec:
        return spec_of(self.rule, cells=self.cells, weighted=self.weighted, groups=self.groups)

    @classmethod
    def from_spec(cls, d: Description, known: Mapping[str, Any]) -> Self:
        return cls(known["rule"], cells=d.cells, weighted=d.weighted, groups=d.groups)

    def update(self, block: Block) -> None:
        seen, _ = self.rule(block, weighting="none")
        shares = counted(block, weighted=self.weighted)
        places = self._places(block.taking_part(seen))
        weights = None if shares is None else block.taking_part(shares)
        if self.groups:
            group = block.taking_part(self._group(block.values))
            some = group >= 0
            places = (group * self.cells**self._directions + places)[some]
            weights = None if weights is None else weights[some]
        found = np.bincount(places, weights, minlength=self._counts.size)
        # shares of a block add up exactly in double precision
        self._counts += found.astype(np.int64, copy=False)

    def _group(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The number of each row's group; -1 of none."""
        entries = values[:, list(self.groups)]
        found = np.argmax(entries, axis=1)
        there = np.take_along_axis(entries, found[:, None], axis=1)[:, 0] > _PRESENT
        return np.asarray(np.where(there, found, -1), dtype=np.int64)

    def _places(self, seen: NDArray[Any]) -> NDArray[np.int64]:
        """The cell of each row, in whole numbers: the upper edge of the last belongs to it."""
        bits = self.rule.bits
        along = ((seen.astype(np.int64) + (1 << bits)) * self.cells) >> (bits + 1)
        np.minimum(along, self.cells - 1, out=along)
        places = along[:, 0]
        for each in along[:, 1:].T:
            places = places * self.cells + each
        return np.asarray(places)
