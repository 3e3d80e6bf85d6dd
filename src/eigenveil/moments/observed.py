"""How many rows have an entry in each column, or in each pair of columns (tables.md, section 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import CountSum, counted
from eigenveil.moments.exact import Spec, spec_of
from eigenveil.moments.rows import Block
from eigenveil.privacy.statistics import Layout, StatisticName


class ObservedCounts(CountSum):
    """How many rows have an entry in each column, shape (D,); NaN is none.

    An invalid row counts as a row without entries.
    """

    statistic: StatisticName = "column-counts"
    layout: Layout = "vector"

    def __init__(self, features: int, *, weighted: bool = False) -> None:
        self.features, self.weighted = features, weighted
        self._counts = np.zeros(self.shape, dtype=np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """A number a column."""
        return (self.features,)

    def spec(self) -> Spec:
        return spec_of(holes=True, weighted=self.weighted)

    def update(self, block: Block) -> None:
        valid = np.asarray(~np.isinf(block.values).any(axis=1))
        there = np.asarray(~np.isnan(block.values)) & valid[:, None]
        shares = counted(block, weighted=self.weighted)
        self._counts += self._added(there, shares).astype(np.int64)

    def _added(self, there: NDArray[np.bool_], shares: NDArray[np.int64] | None) -> NDArray[Any]:
        if shares is None:
            return np.asarray(there.sum(axis=0))
        return np.asarray(shares.astype(np.float64) @ there)  # whole numbers below 2**53


class ObservedPairs(ObservedCounts):
    """How many rows have entries in both columns of each pair, shape (D, D)."""

    statistic: StatisticName = "pair-counts"
    layout: Layout = "symmetric"

    @property
    def size(self) -> int:
        return self.features * (self.features + 1) // 2

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features, self.features)

    def _added(self, there: NDArray[np.bool_], shares: NDArray[np.int64] | None) -> NDArray[Any]:
        entries = there.astype(np.float64)
        weighted = entries if shares is None else entries * shares[:, None]
        return np.asarray(weighted.T @ entries)  # whole numbers below 2**53
