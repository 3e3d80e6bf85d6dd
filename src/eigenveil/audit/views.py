"""What each adversary of many parties sees, and the best test of it.

Messages are made by the functions that sites, helper and leaves use: shares of the recorded noise,
masks expanded from keys, sums modulo 2**64. Envelopes, signatures and transport carry nothing that
depends on rows beside them and are left out. One site holds the row that differs; all else is the
same on both data sets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.audit.case import ClaimedLoss, FloatArray, Randomness, Samples, joined
from eigenveil.audit.releases import (
    DELTA,
    Make,
    Replicates,
    Rows,
    audited_record,
    exact,
    release_claim,
    summed,
)
from eigenveil.federation.masks import MASKS, Integers, Mask, PairMask, ZeroSum
from eigenveil.moments.accumulators import Accumulator
from eigenveil.moments.release import noisy_integers
from eigenveil.moments.rows import Block
from eigenveil.moments.stream_sums import DiscountedSum, PrefixSum
from eigenveil.noise.entries import from_coordinates
from eigenveil.privacy.guarantee import Guarantee
from eigenveil.privacy.mask_views import MASK_RATIO
from eigenveil.privacy.mechanisms import NoiseKind
from eigenveil.privacy.releases import ReleaseRecord, Sharing
from eigenveil.privacy.streams import best_factor
from eigenveil.privacy.tree_views import TreeRun, tree_guarantees
from eigenveil.privacy.views import Federation, guarantees, pairwise_covariance, zero_sum_covariance

# Values that one call draws for a site, at most.
_MOST_VALUES = 1 << 18


def guaranteed(found: Guarantee, whence: str) -> ClaimedLoss:
    """A guarantee of the package as a claim."""
    mu = found.mu
    return ClaimedLoss(
        epsilon=found.epsilon, delta=found.delta, mu=mu, exact=mu is not None, whence=whence
    )


@dataclass(frozen=True)
class ViewAttack:
    """An adversary of a masked sum over sites."""

    # Who takes part, with which masks; sites 1, 2, .. of `collusion` tell what they know, and site
    # 0 holds the row that differs.
    federation: Federation
    view: str  # As the guarantee names it
    make: Make  # As in :class:`eigenveil.audit.releases.Attack`, of site 0
    kind: NoiseKind
    rows: Rows
    other: Rows

    @cached_property
    def record(self) -> ReleaseRecord:
        """Of the sum, its noise in as many shares as the federation counts on."""
        return audited_record(self.make(), self.kind, sharing=self.federation.sharing())

    def claim(self) -> ClaimedLoss:
        """The guarantee of the view, as a study's certificate states it."""
        delta = 0.0 if self.record.pure else DELTA
        found = guarantees([self.record], self.federation, delta=delta, adjacency="add-remove")
        return guaranteed(found[self.view], "privacy.views.guarantees (docs/proofs/views.md)")

    def sample(
        self, trials: int, randomness: Randomness, *, record: ReleaseRecord | None = None
    ) -> Samples:
        """Statistics of what the adversary sees; another ``record`` is for tests."""
        record = self.record if record is None else record
        sums = [exact(summed(rows, self.make)) for rows in (self.rows, self.other)]
        test = record.mechanism.distinguished
        most = max(1, _MOST_VALUES // sums[0].size)
        found = []
        for start in range(0, trials, most):
            count = min(most, trials - start)
            seen = (self._seen(rows, count, record, randomness) for rows in (self.rows, self.other))
            found.append(Samples(*(test(values, *sums) for values in seen)))
        return joined(found)

    def _seen(
        self, rows: Rows, count: int, record: ReleaseRecord, randomness: Randomness
    ) -> FloatArray:
        """What the adversary makes of all it sees: the exact sum, and noise of known covariance."""
        grid = record.noise.grid
        assert grid is not None
        sums = [summed(rows if site == 0 else [], self.make) for site in self._sites]
        shape = sums[0].shape
        plain = [_noisy(total, count, record, randomness) for total in sums]
        if self.view == "site":  # the sum less its own part
            left = np.asarray(np.sum(plain[:-1], axis=0, dtype=np.uint64))
            return _values(left, grid, count, shape)
        hidden = self._masks(plain[0].size, record, randomness)
        sent = [message + mask for message, mask in zip(plain, hidden.masks, strict=True)]
        colluding = range(1, 1 + self.federation.collusion)
        if not self.view.startswith("aggregator") or self.federation.hidden.any_noise:
            left = np.asarray(np.sum(sent, axis=0, dtype=np.uint64))
            if self.view != "outsider":
                for site in colluding:  # their parts of the sum are known
                    left = left - plain[site]
            return _values(left, grid, count, shape)
        known = [hidden.masks[site].view(np.int64).astype(float) for site in colluding]
        parts = [sent[s].view(np.int64).astype(float) for s in self._honest] + known
        weights = _best_weights(hidden.covariance, len(self._honest))
        left_over = sum(w * part for w, part in zip(weights, parts, strict=True))
        return np.asarray(left_over * math.ldexp(1.0, grid)).reshape(count, -1)

    @property
    def _sites(self) -> range:
        return range(self.federation.sites)

    @property
    def _honest(self) -> list[int]:
        return [site for site in self._sites if not 1 <= site <= self.federation.collusion]

    def _masks(self, size: int, record: ReleaseRecord, randomness: Randomness) -> _Hidden:
        """The sites' masks, as the study's kind has them (federation.masks)."""
        masks: Mask = MASKS[self.federation.masks]
        sites, parts = self.federation.sites, [replace(masks.part("vector", record), size=size)]
        ratio = MASK_RATIO**2  # of variances
        if not isinstance(masks, PairMask):
            helper = ZeroSum([_key(randomness) for _ in self._sites], parts)
            covariance = zero_sum_covariance(sites, ratio)
            return _Hidden([helper.mask(site) for site in self._sites], _ordered(self, covariance))
        keys = {(i, j): _key(randomness) for i in self._sites for j in range(i)}
        made = []
        for site in self._sites:
            pairs = [
                (keys[max(site, other), min(site, other)], site < other)
                for other in self._sites
                if other != site
            ]
            made.append(masks.expanded(pairs, parts))
        covariance = pairwise_covariance(np.ones((sites, sites)), ratio)
        return _Hidden(made, _ordered(self, covariance))


@dataclass(frozen=True)
class _Hidden:
    """Masks of all sites, and their covariance in units of a share's variance.

    The covariance is that of the honest sites' masks followed by the colluding ones', which are
    known.
    """

    masks: list[Integers]
    covariance: FloatArray


def _ordered(attack: ViewAttack, covariance: NDArray[np.object_]) -> FloatArray:
    order = attack._honest + [s for s in attack._sites if s not in attack._honest]
    return np.asarray(covariance[np.ix_(order, order)].astype(float))


def _best_weights(covariance: FloatArray, honest: int) -> FloatArray:
    """``C^-1 e_1`` of what is seen, scaled so that the first honest site's sum counts once.

    Honest messages have a share of noise of variance 1 beside their mask.
    """
    seen = covariance + np.diag([1.0] * honest + [0.0] * (len(covariance) - honest))
    shift = np.zeros(len(seen))
    shift[0] = 1.0
    weights = np.linalg.solve(seen, shift)
    return np.asarray(weights / weights[0])


def _noisy(
    total: Accumulator, count: int, record: ReleaseRecord, randomness: Randomness
) -> Integers:
    """What a site sends before it is masked, in ``count`` sessions; all entries, one by one."""
    if record.mechanism.entrywise:
        replicates = Replicates(total, count)
        return noisy_integers(replicates, record, randomness.source).view(np.uint64)
    integers = total.integers()
    total.integers = integers.copy  # type: ignore[method-assign]  # the same every time
    drawn = (noisy_integers(total, record, randomness.source) for _ in range(count))
    parts = [from_coordinates(total.layout, total.shape, entries).ravel() for entries in drawn]
    return np.concatenate(parts).view(np.uint64)


def _key(randomness: Randomness) -> bytes:
    return randomness.source.words(4).tobytes()


def _values(integers: Integers, grid: int, count: int, shape: tuple[int, ...]) -> FloatArray:
    values = np.ldexp(integers.view(np.int64).astype(np.float64), grid)
    return np.asarray(values.reshape(count, math.prod(shape)))


# Trees and streams


@dataclass(frozen=True)
class TreeAttack:
    """An adversary of a tree of merges: the noise of so many leaves is in what it sees."""

    run: TreeRun
    noise_parts: int  # Leaves that make the noise that is promised
    view: str  # `"outsider"`, or `"aggregator at level 1"`, who sees a single leaf's message
    make: Make
    rows: Rows
    other: Rows

    @cached_property
    def record(self) -> ReleaseRecord:
        return audited_record(self.make(), sharing=Sharing(noise_parts=self.noise_parts))

    def claim(self) -> ClaimedLoss:
        found = tree_guarantees([self.record], self.run, delta=DELTA, adjacency="add-remove")
        return guaranteed(found[self.view], "privacy.tree_views (docs/proofs/tree.md)")

    def sample(self, trials: int, randomness: Randomness) -> Samples:
        leaves = self.run.arrived if self.view == "outsider" else self.run.least[0]
        grid, sums = self.record.noise.grid, []
        assert grid is not None
        for rows in (self.rows, self.other):
            total: Any = 0
            for leaf in range(leaves):
                replicates = Replicates(summed(rows if leaf == 0 else [], self.make), trials)
                total = total + noisy_integers(replicates, self.record, randomness.source)
            sums.append(np.ldexp(total.astype(float), grid).reshape(trials, -1))
        moved = exact(summed(self.rows, self.make)), exact(summed(self.other, self.make))
        return Samples(*(self.record.mechanism.distinguished(values, *moved) for values in sums))


@dataclass(frozen=True)
class StreamAttack:
    """Whoever sees every prefix of a stream of blocks; the row that differs is in the first.

    The statistic weighs the released ``C g + z``, which the prefixes stand for one to one, by what
    the row moves of it. With ``forgetting`` every block has noise of its own, and what is seen is
    the discounted sum: it stands for the blocks' releases one to one, too.
    """

    blocks: int
    make: Make
    row: FloatArray
    forgetting: float | None = None

    @cached_property
    def record(self) -> ReleaseRecord:
        if self.forgetting is not None:
            return audited_record(self.make(), sharing=Sharing(disjoint=True))
        return audited_record(self.make(), sharing=Sharing(stream=best_factor(self.blocks)))

    def claim(self) -> ClaimedLoss:
        return release_claim(self.record, "docs/proofs/streams.md, from the record alone")

    def weights(self) -> FloatArray:
        """Of the prefixes in the best statistic, shape (blocks,)."""
        if self.forgetting is not None:  # the first block's release is the first sum
            return np.asarray(np.eye(self.blocks)[0])
        factor, count = best_factor(self.blocks), self.blocks
        parts = np.array(factor.weights) / 2.0**31
        decays = 1.0 - np.array(factor.losses) / 2.0**31
        column = np.array([1.0] + [np.sum(parts * decays ** (k - 1)) for k in range(1, count)])
        mixing = sum(np.diag(np.full(count - k, c), -k) for k, c in enumerate(column))
        back = mixing @ np.linalg.inv(np.tril(np.ones((count, count))))  # prefixes to releases
        return np.asarray(column @ back)

    def sample(
        self, trials: int, randomness: Randomness, *, record: ReleaseRecord | None = None
    ) -> Samples:
        """Statistics of all prefixes of many streams, which are read side by side."""
        record = self.record if record is None else record
        direction = exact(summed([self.row], self.make))
        weights, found = self.weights(), []
        for present in (True, False):
            kind: Accumulator = Replicates(self.make(), trials)
            stream = (
                PrefixSum(kind, record, randomness.source)
                if self.forgetting is None
                else DiscountedSum(record, randomness.source, forgetting=self.forgetting)
            )
            blocks = [kind.empty() for _ in range(self.blocks)]
            if present:
                blocks[0].update(Block(np.array([self.row])))
            prefixes = [
                stream.release(block).values.reshape(trials, -1) @ direction for block in blocks
            ]
            found.append(np.asarray(weights @ prefixes))
        return Samples(*found)
