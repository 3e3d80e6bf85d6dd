"""Worst-case neighbours of this package's releases, and outputs from the code that makes them.

Rows go through preparation, accumulator, calibrated record and noise on the grid: nothing is
modelled. Where the noise of each entry is drawn by itself, many releases are drawn in one call.
Elsewhere each release is drawn by itself, and serves both data sets: its record must be the same
for both (this is checked), so what the noise is added to is all that differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eigenveil.audit.case import Claim, FloatArray, Randomness, Samples, joined
from eigenveil.audit.copies import Copies
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.exponential import release_vectors
from eigenveil.moments.release import calibrated_record, release_sum
from eigenveil.moments.rows import Block
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.gaussian import epsilon_of_mu
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.releases import NoiseKind, ReleaseRecord

Rows = Sequence[FloatArray]
Make = Callable[[], Accumulator]
# At which delta a Gaussian claim is stated in epsilon.
DELTA = 0.01
# Values that one call draws, at most.
_MOST_VALUES = 1 << 20

TESTS: dict[str, str] = {
    "gaussian": "the output along the direction in which the neighbours differ (likelihood ratio)",
    "laplace": "difference of the output's L1 distances from the two sums (likelihood ratio)",
    "vector": "difference of the output's distances from the two sums (likelihood ratio)",
    "wishart": "smallest eigenvalue of the output less the larger sum: where it is positive the "
    "ratio of likelihoods is exp(epsilon)",
    "wishart-linear": "the output along the direction in which the neighbours differ",
    "bingham": "squared part of the released directions along the row that differs (likelihood "
    "ratio)",
}


def summed(rows: Rows, make: Make) -> Accumulator:
    """The exact sum over rows."""
    total = make()
    if len(rows):
        total.update(Block(np.array(rows, dtype=float)))
    return total


def exact(total: Accumulator) -> FloatArray:
    """Its values, flat."""
    return np.asarray(np.ldexp(total.integers().astype(np.float64), total.grid).ravel())


@dataclass(frozen=True)
class Attack:
    """A release on two neighbouring data sets.

    Attributes
    ----------
    make : callable
        The empty sum.
    kind : str
        Of the noise.
    rows, other : sequences of rows
        The neighbours.
    loss : float
        Mu or epsilon that the noise is calibrated to.
    draws : int
        Directions of the bingham mechanism.
    """

    make: Make
    kind: NoiseKind
    adjacency: Adjacency
    rows: Rows
    other: Rows
    loss: float = 1.0
    draws: int = 1

    @property
    def test(self) -> str:
        """The adversary's statistic, in words."""
        linear = self.kind == "wishart" and self._larger() is None
        return TESTS["wishart-linear" if linear else self.kind]

    def record(self) -> ReleaseRecord:
        """Of the release: the same for both data sets, or this is no mechanism of this package."""
        found = [self._record(rows) for rows in (self.rows, self.other)]
        if found[0] != found[1]:
            raise AssertionError("the noise depends on the rows: a defect")
        return found[0]

    def _record(self, rows: Rows) -> ReleaseRecord:
        gaussian = self.kind == "gaussian"
        return calibrated_record(
            summed(rows, self.make),
            name="audited",
            adjacency=self.adjacency,
            kind=self.kind,
            budget=StepBudget(mu=self.loss) if gaussian else StepBudget(epsilon=self.loss),
            draws_count=self.draws,
        )

    def claim(self) -> Claim:
        """What the record proves."""
        return release_claim(self.record(), "docs/proofs, from the record alone")

    def sample(
        self, trials: int, randomness: Randomness, *, record: ReleaseRecord | None = None
    ) -> Samples:
        """Statistics of releases; another ``record`` than the calibrated one is for tests."""
        record = self.record() if record is None else record
        totals = summed(self.rows, self.make), summed(self.other, self.make)
        if self.kind == "bingham":
            first, second = (self._directions(t, trials, record, randomness) for t in totals)
            return Samples(first, second)
        if totals[0].layout in ("vector", "matrix") and self.kind in ("gaussian", "laplace"):
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
                release_sum(Copies(total, count), record, randomness.source).values.reshape(
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
        moved = self._moved()
        side = math.isqrt(moved.size)
        axis = np.linalg.eigh(moved.reshape(side, side))[1][:, -1]
        found = np.empty(trials)
        for turn in range(trials):
            vectors = release_vectors(total, record, randomness.source).values
            found[turn] = np.sum((vectors @ axis) ** 2)
        return found

    def _moved(self) -> FloatArray:
        return exact(summed(self.rows, self.make)) - exact(summed(self.other, self.make))

    def _larger(self) -> FloatArray | None:
        """The sum that exceeds the other by a positive semi-definite matrix, if one does."""
        moved = self._moved()
        side = math.isqrt(moved.size)
        values = np.linalg.eigvalsh(moved.reshape(side, side))
        if values[0] > -1e-6:
            return exact(summed(self.rows, self.make))
        return exact(summed(self.other, self.make)) if values[-1] < 1e-6 else None

    def _statistic(self, values: FloatArray) -> FloatArray:
        """What the adversary computes of outputs, shape (n, size)."""
        one, two = (exact(summed(rows, self.make)) for rows in (self.rows, self.other))
        return statistic(self.kind, values, one, two)


def statistic(kind: NoiseKind, values: FloatArray, one: FloatArray, two: FloatArray) -> FloatArray:
    """The best known statistic of outputs (n, size) that are one of two sums (size,) plus noise."""
    match kind:
        case "laplace":
            return np.asarray(np.abs(values - two).sum(axis=1) - np.abs(values - one).sum(axis=1))
        case "vector":  # the whole array's norm is the isometric one
            return np.asarray(
                np.linalg.norm(values - two, axis=1) - np.linalg.norm(values - one, axis=1)
            )
        case "wishart":
            side = math.isqrt(one.size)
            spectrum = np.linalg.eigvalsh((one - two).reshape(side, side))
            if spectrum[0] > -1e-6 or spectrum[-1] < 1e-6:
                larger = one if spectrum[0] > -1e-6 else two
                seen = (values - larger).reshape(-1, side, side)
                return np.asarray(np.linalg.eigvalsh(seen)[:, 0], dtype=np.float64)
    return np.asarray(values @ (one - two))


def release_claim(record: ReleaseRecord, whence: str) -> Claim:
    """What a record proves."""
    if record.noise.kind == "gaussian":
        mu = record.mu()
        return Claim(
            epsilon=epsilon_of_mu(mu, DELTA), delta=DELTA, mu=mu, exact=True, whence=whence
        )
    return Claim(epsilon=record.epsilon(), delta=0.0, whence=whence)
