"""Many independent copies of one release, drawn at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.audit.case import ClaimedLoss, FloatArray, Randomness, Samples, joined
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.release import release_sum, release_vectors
from eigenveil.moments.rows import Block
from eigenveil.moments.source import ArrayRows
from eigenveil.privacy.accountant import epsilon_of_mu
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.mechanisms import MECHANISMS, Mechanism, NoiseKind
from eigenveil.privacy.releases import ALONE, ReleaseRecord, Sharing
from eigenveil.privacy.statistics import Layout
from eigenveil.tables.units import LabelledRows, UnitRows


class Replicates(Accumulator):
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
        return self.inner.grid

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count * self.inner.size,)

    @property
    def parameters(self) -> dict[str, float]:
        return self.inner.parameters

    def merge_key(self) -> tuple[Any, ...]:
        return (*self.inner.merge_key(), self.count)

    def empty(self) -> Self:
        return type(self)(self.inner.empty(), self.count)

    def update(self, block: Block) -> None:
        self.inner.update(block)

    def merge(self, other: Self) -> None:
        self.inner.merge(other.inner)

    def integers(self) -> NDArray[np.int64]:
        return np.tile(self.inner.integers().ravel(), self.count)


# -- Worst-case neighbours of this package's releases, and outputs from the code that makes them.
#
# Rows go through preparation, accumulator, calibrated record and noise on the grid: nothing is
# modelled. Where the noise of each entry is drawn by itself, many releases are drawn in one call.
# Elsewhere each release is drawn by itself, and serves both data sets: its record must be the same
# for both (this is checked), so what the noise is added to is all that differs.

Rows = Sequence[FloatArray]
Make = Callable[[], Accumulator]
# At which delta a Gaussian claim is stated in epsilon.
DELTA = 0.01
# Of a unit's rows, so that they are in several blocks.
_ROWS_A_BLOCK = 4
# Values that one call draws, at most.
_MOST_VALUES = 1 << 20


def summed(rows: Rows, make: Make) -> Accumulator:
    """The exact sum over rows; over units, where each is a table of its rows."""
    total = make()
    if len(rows) == 0:
        return total
    if rows[0].ndim == 1:
        total.update(Block(np.array(rows, dtype=float)))
        return total
    units = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
    table = ArrayRows(np.concatenate(rows).astype(np.float64), rows_a_block=_ROWS_A_BLOCK)
    for block in UnitRows(LabelledRows(table, units)).blocks():
        total.update(block)
    return total


def exact(total: Accumulator) -> FloatArray:
    return np.asarray(np.ldexp(total.integers().astype(np.float64), total.grid).ravel())


@dataclass(frozen=True)
class Attack:
    """A release on two neighbouring data sets."""

    make: Make  # The empty sum
    kind: NoiseKind  # Of the noise
    adjacency: Adjacency
    rows: Rows  # The neighbours
    other: Rows
    loss: float = 1.0  # Mu or epsilon that the noise is calibrated to

    @property
    def mechanism(self) -> Mechanism:
        return MECHANISMS[self.kind]

    @property
    def test(self) -> str:
        return self.mechanism.test_of(*self._exact())

    @property
    def at_once(self) -> bool:
        """Whether many releases can be drawn in one call."""
        return self.mechanism.entrywise and self.make().layout in ("vector", "matrix")

    def record(self) -> ReleaseRecord:
        """Of the release: the same for both data sets, or this is no mechanism of this package."""
        found = [self._record(rows) for rows in (self.rows, self.other)]
        if found[0] != found[1]:
            raise AssertionError("the noise depends on the rows: a defect")
        return found[0]

    def _record(self, rows: Rows) -> ReleaseRecord:
        return audited_record(
            summed(rows, self.make), self.kind, loss=self.loss, adjacency=self.adjacency
        )

    def claim(self) -> ClaimedLoss:
        return release_claim(self.record(), "docs/proofs, from the record alone")

    def sample(
        self, trials: int, randomness: Randomness, *, record: ReleaseRecord | None = None
    ) -> Samples:
        """Statistics of releases; another ``record`` than the calibrated one is for tests."""
        record = self.record() if record is None else record
        totals = summed(self.rows, self.make), summed(self.other, self.make)
        if not self.mechanism.added:
            first, second = (self._directions(t, trials, record, randomness) for t in totals)
            return Samples(first, second)
        if self.at_once:
            return self._at_once(totals, trials, record, randomness)
        return self._one_by_one(totals, trials, record, randomness)

    def _at_once(
        self,
        totals: tuple[Accumulator, Accumulator],
        trials: int,
        record: ReleaseRecord,
        randomness: Randomness,
    ) -> Samples:
        size, found = totals[0].size, []
        most = max(1, _MOST_VALUES // size)
        for start in range(0, trials, most):
            count = min(most, trials - start)
            outputs = [
                release_sum(Replicates(total, count), record, randomness.source).values.reshape(
                    count, size
                )
                for total in totals
            ]
            found.append(Samples(*(self._statistic(values) for values in outputs)))
        return joined(found)

    def _one_by_one(
        self,
        totals: tuple[Accumulator, Accumulator],
        trials: int,
        record: ReleaseRecord,
        randomness: Randomness,
    ) -> Samples:
        total, integers = totals[0], totals[0].integers()
        total.integers = integers.copy  # type: ignore[method-assign]  # the same every time
        moved = exact(totals[1]) - exact(totals[0])
        values = np.empty((trials, moved.size))
        for turn in range(trials):
            values[turn] = release_sum(total, record, randomness.source).values.ravel()
        return Samples(self._statistic(values), self._statistic(values + moved))

    def _directions(
        self, total: Accumulator, trials: int, record: ReleaseRecord, randomness: Randomness
    ) -> FloatArray:
        first, second = self._exact()
        moved = first - second
        side = math.isqrt(moved.size)
        axis = np.linalg.eigh(moved.reshape(side, side))[1][:, -1]
        found = np.empty(trials)
        for turn in range(trials):
            vectors = release_vectors(total, record, randomness.source).values
            found[turn] = np.sum((vectors @ axis) ** 2)
        return found

    def _exact(self) -> tuple[FloatArray, FloatArray]:
        return exact(summed(self.rows, self.make)), exact(summed(self.other, self.make))

    def _statistic(self, values: FloatArray) -> FloatArray:
        """What the adversary computes of outputs, shape (n, size)."""
        return self.mechanism.distinguished(values, *self._exact())


def audited_record(
    total: Accumulator,
    kind: NoiseKind = "gaussian",
    *,
    loss: float = 1.0,
    adjacency: Adjacency = "add-remove",
    sharing: Sharing = ALONE,
) -> ReleaseRecord:
    """The record of a release that spends so much of mu or epsilon, whichever is the noise's."""
    budget = StepBudget(epsilon=loss) if MECHANISMS[kind].pure else StepBudget(mu=loss)
    return calibrated_record(
        total, name="audited", adjacency=adjacency, kind=kind, budget=budget, sharing=sharing
    )


def release_claim(record: ReleaseRecord, whence: str) -> ClaimedLoss:
    if record.pure:
        return ClaimedLoss(epsilon=record.epsilon(), delta=0.0, whence=whence)
    mu = record.mu()
    return ClaimedLoss(
        epsilon=epsilon_of_mu(mu, DELTA), delta=DELTA, mu=mu, exact=True, whence=whence
    )
