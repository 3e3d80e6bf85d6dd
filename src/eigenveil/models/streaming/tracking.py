"""Folding blocks of rows into a subspace, exactly: what StreamingPCA keeps (paper 002)."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import single_threaded_blas
from eigenveil.linalg.subspace import Subspace, adjust_rank, append
from eigenveil.models.holes import scores_of_observed


@dataclass(frozen=True)
class Rule:
    """How blocks are folded."""

    block_size: int  # Rows of a block, b
    extra: int  # Directions kept beyond the rank; 0 is the paper's SSVD_r
    # Bounds of AdjustRank on the last direction's share, in percent
    adaptive_rank: tuple[float, float] | None
    forgetting: float  # What the old strengths are multiplied by at every block
    center: bool  # Whether the mean is tracked
    # What becomes of rows with missing entries: "refuse", "leave-out" or "fill"
    missing: str = "refuse"


@dataclass(frozen=True)
class Tracked:
    """What is kept of rows that were folded."""

    subspace: Subspace  # Their leading directions, about the mean where a mean is tracked
    rank: int  # How many of the directions are reported, at most; more may be kept
    mean: NDArray[np.float64]  # Their weighted mean; zero where no mean is tracked
    # The sum of the rows' weights `forgetting**(2 * later blocks)`, and of their squares
    weight: float = 0.0
    weight_of_pairs: float = 0.0
    energy: float = 0.0  # The weighted sum of the rows' squared lengths, about the mean

    @property
    def features(self) -> int:
        return self.mean.size

    @property
    def released(self) -> Subspace:
        return _head(self.subspace, self.rank)


def nothing_tracked(*, features: int, rank: int) -> Tracked:
    empty = Subspace(np.zeros((features, 0)), np.zeros(0))
    return Tracked(empty, rank, np.zeros(features))


# A block's missing entries are filled anew from what the block was folded into, until they change
# by no more than this part: twice in most blocks, more often in the first ones.
_SETTLED, _MOST_FILLS = 1e-2, 30


def fold(tracked: Tracked, rows: NDArray[np.floating], rule: Rule) -> Tracked:
    """SSVD_r of what is tracked and a block of rows, (b, D), that is filled; the rank stays."""
    missing = np.isnan(rows) if rule.missing == "fill" else np.zeros(0, np.bool_)
    if not missing.any():
        return _folded(tracked, rows, rule)
    found = tracked
    if rule.center and tracked.weight == 0:
        known = np.maximum(1, np.count_nonzero(~missing, axis=0))
        found = replace(tracked, mean=np.where(missing, 0.0, rows).sum(axis=0) / known)
    whole = filled(found, rows, missing)
    for _ in range(_MOST_FILLS):
        found, before = _folded(tracked, whole, rule), whole
        whole = filled(found, rows, missing)
        if np.linalg.norm(whole - before) <= _SETTLED * np.linalg.norm(whole[missing]):
            break
    return found


def filled(
    tracked: Tracked, rows: NDArray[np.floating], missing: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Rows with the means that their missing entries have, given the others and what is tracked.

    Those of a normal law with the tracked directions' variances, and what is left of the energy
    spread evenly over all other directions (Tipping and Bishop 1999, "Probabilistic principal
    component analysis"): ridge regression on the observed entries. Incremental SVD of rows that
    are filled without the ridge is of Balzano and Wright (2013, "On GROUSE and incremental SVD").
    """
    strengths = tracked.released.strengths
    strong = strengths > 0
    if not strong.any():
        return np.where(missing, tracked.mean, rows)
    directions, squares = tracked.released.basis.T[strong], strengths[strong] ** 2
    left = max(0.0, tracked.energy - float(np.sum(squares)))
    ridge = left / max(1, tracked.features - squares.size) / squares
    scores = scores_of_observed(rows - tracked.mean, directions, ridge)
    return np.where(missing, tracked.mean + scores @ directions, rows)


def _folded(tracked: Tracked, rows: NDArray[np.floating], rule: Rule) -> Tracked:
    """The same of rows with all entries.

    With a mean, the block about its own mean and one row more are folded: the difference of the
    two means, as long as makes the scatter about the mean of all rows exact (Ross, Lim, Lin and
    Yang 2008, "Incremental learning for robust visual tracking", lemma 1).
    """
    count = rows.shape[0]
    kept = rule.forgetting**2
    old = tracked.weight * kept
    mean = tracked.mean
    block = np.ascontiguousarray(rows, dtype=np.float64)
    if rule.center:
        own = block.mean(axis=0)
        bridge, mean = _bridge(mean, old, own, count)
        block = np.vstack([block - own, bridge])
    return Tracked(
        append(tracked.subspace, block, rank=tracked.rank + rule.extra, forgetting=rule.forgetting),
        tracked.rank,
        mean,
        old + count,
        tracked.weight_of_pairs * kept**2 + count,
        tracked.energy * kept + float(np.vdot(block, block)),
    )


def adjusted(tracked: Tracked, shares: tuple[float, float]) -> Tracked:
    """AdjustRank of the reported directions; those kept beyond them take their place."""
    alpha, beta = shares
    released = adjust_rank(tracked.released, alpha=alpha, beta=beta)
    kept = tracked.subspace.rank - tracked.released.rank
    longer = released.rank > tracked.subspace.rank
    subspace = released if longer else _head(tracked.subspace, released.rank + kept)
    return replace(tracked, subspace=subspace, rank=released.rank)


def merged(first: Tracked, second: Tracked, *, rank: int, rule: Rule) -> Tracked:
    """Merge_r of two that were tracked apart, neither forgotten."""
    rows = second.subspace.basis.T * second.subspace.strengths[:, None]
    mean = first.mean
    energy = first.energy + second.energy
    if rule.center:
        bridge, mean = _bridge(mean, first.weight, second.mean, second.weight)
        rows = np.vstack([rows, bridge])
        energy += float(np.vdot(bridge, bridge))
    return Tracked(
        append(first.subspace, rows, rank=rank + rule.extra),
        rank,
        mean,
        first.weight + second.weight,
        first.weight_of_pairs + second.weight_of_pairs,
        energy,
    )


def _head(subspace: Subspace, rank: int) -> Subspace:
    if subspace.rank <= rank:
        return subspace
    return Subspace(subspace.basis[:, :rank], subspace.strengths[:rank])


def _bridge(
    first: NDArray[np.float64], first_weight: float, second: NDArray[np.float64], weight: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The row that the scatter about the common mean has beside both scatters; that mean."""
    share = weight / (first_weight + weight)
    difference = second - first
    return math.sqrt(first_weight * share) * difference, first + share * difference


class Tracker:
    """A stream cut into blocks of one length; what does not fill a block waits.

    Memory is that of the subspace and one block, O(D (r + extra + b)), however long the stream.
    """

    def __init__(self, *, features: int, rank: int, rule: Rule) -> None:
        self.rule = rule
        self.rows = 0
        self.state = nothing_tracked(features=features, rank=rank)
        self._buffer = np.empty((rule.block_size, features))
        self._filled = 0
        self._read: Tracked | None = None

    @property
    def waiting(self) -> NDArray[np.float64]:
        """Rows that do not fill a block yet."""
        return self._buffer[: self._filled]

    def push(self, rows: NDArray[np.floating]) -> None:
        """Take rows, (n, D): finite, of any number."""
        count, length = rows.shape[0], self.rule.block_size
        self._read = None
        self.rows += count
        start = 0
        if self._filled:
            start = min(count, length - self._filled)
            self._buffer[self._filled : self._filled + start] = rows[:start]
            self._filled += start
            if self._filled < length:
                return
        with self._threads(length):
            if self._filled:
                self._fold_block(self._buffer)
            while start + length <= count:
                self._fold_block(rows[start : start + length])
                start += length
        self._filled = count - start
        self._buffer[: self._filled] = rows[start:]

    def absorb(self, other: Tracker) -> None:
        """Merge_r with what another tracker folded; its rows that wait wait here next."""
        waiting, theirs = other.waiting.copy(), other.state
        adaptive = self.rule.adaptive_rank is not None
        if other.rows > waiting.shape[0]:
            if self.state.weight == 0:
                rank = theirs.rank if adaptive else self.state.rank
                subspace = _head(theirs.subspace, rank + self.rule.extra)
                self.state = replace(theirs, subspace=subspace, rank=rank)
            else:
                rank = max(self.state.rank, theirs.rank) if adaptive else self.state.rank
                self.state = merged(self.state, theirs, rank=rank, rule=self.rule)
            self.rows += other.rows - waiting.shape[0]
            self._read = None
        if waiting.shape[0]:
            self.push(waiting)

    def read(self) -> Tracked:
        """What is tracked, with the rows that wait folded in; the tracking goes on without that.

        So results do not depend on when they were requested. The rank is adjusted by complete
        blocks only.
        """
        if not self._filled:
            return self.state
        if self._read is None:
            with self._threads(self._filled):
                self._read = fold(self.state, self.waiting, self.rule)
        return self._read

    def _threads(self, count: int) -> AbstractContextManager[Any]:
        """For folds of that many rows."""
        return _threads(self.state.features, self.state.rank + self.rule.extra + count)

    def _fold_block(self, block: NDArray[np.floating]) -> None:
        self.state = fold(self.state, block, self.rule)
        if self.rule.adaptive_rank is not None:
            self.state = adjusted(self.state, self.rule.adaptive_rank)


_SMALLEST_THREADED, _LARGEST_ALONE = 2_000, 1_000_000


def _threads(features: int, rows: int) -> AbstractContextManager[Any]:
    """One thread for folds of this size that a second one slows down.

    Measured: a second thread doubles the time of a fold of 31 x 784, and on busy processors can
    take a hundred times as long. The smallest never use two, and need not pay for asking.
    """
    size = features * rows
    return single_threaded_blas() if _SMALLEST_THREADED < size < _LARGEST_ALONE else nullcontext()
