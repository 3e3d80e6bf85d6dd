"""The sum over a stream's blocks so far, released after every block (docs/proofs/streams.md)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import PrivacyError
from eigenveil.moments.accumulators import Accumulator, check_same_kind
from eigenveil.moments.exact import Integers, largest_of, scaled_sum
from eigenveil.moments.release import Release, noise_integers
from eigenveil.noise.entries import coordinates, from_coordinates
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.releases import STREAM_UNIT, ReleaseRecord
from eigenveil.privacy.streams import PARTS, StreamFactor

Floats = NDArray[np.float64]
# Sums and their buffers of this size stay within 64 bits; beyond, they are Python's integers.
_LARGEST = 2.0**61
_HALF_BITS = 31
_LOW = np.int64((1 << _HALF_BITS) - 1)


class PrefixSum:
    """One mergeable sum of a stream, with the noise of a matrix mechanism."""

    def __init__(
        self, accumulator: Accumulator, record: ReleaseRecord, source: RandomSource
    ) -> None:
        assert record.stream is not None
        assert record.noise.grid is not None
        self._kind, self._record, self._source = accumulator.empty(), record, source
        self._mechanism = _Mechanism(record.stream, accumulator.size)
        self._unit = min(accumulator.grid, STREAM_UNIT)
        self.blocks = 0

    def check_room(self) -> None:
        """Raise where the horizon is over."""
        stream = self._record.stream
        assert stream is not None
        if self.blocks >= stream.blocks:
            raise PrivacyError("horizon-over", blocks=stream.blocks)

    def release(self, total: Accumulator) -> Release:
        """The noisy sum of all blocks, of which ``total`` is the next."""
        grid, layout = self._record.noise.grid, self._kind.layout
        assert grid is not None
        self.check_room()
        check_same_kind(self._kind, total)
        part = coordinates(layout, total.integers())
        self.blocks += 1
        noise = noise_integers(self._kind, self._record, self._source)
        mixed = self._mechanism.mixed(part, total.grid - self._unit)
        noisy = scaled_sum(mixed, 1, self._unit - grid, noise)
        prefix = self._mechanism.prefix(noisy)
        values = from_coordinates(layout, self._kind.shape, np.ldexp(prefix, grid))
        return Release(self._as_noisy(), values)

    def _as_noisy(self) -> ReleaseRecord:
        """A record of a single release with as much noise."""
        stream, noise = self._record.stream, self._record.noise
        assert stream is not None
        larger = noise.model_copy(update={"scale": noise.scale * stream.spread(self.blocks)})
        return self._record.model_copy(update={"noise": larger, "stream": None})


class Discounted:
    """Released sums added up, older ones counting less: post-processing, whoever does it."""

    def __init__(self, forgetting: float) -> None:
        self._kept = forgetting
        self._values: Floats | None = None
        self._variance = 0.0

    def add(self, release: Release) -> Release:
        """The discounted sum with one more release; its record states how noisy it is."""
        if self._values is None:
            self._values = np.zeros_like(release.values)
        noise = release.record.noise
        self._values = self._kept * self._values + release.values
        self._variance = self._kept**2 * self._variance + noise.scale**2
        larger = noise.model_copy(update={"scale": math.sqrt(self._variance)})
        return Release(release.record.model_copy(update={"noise": larger}), self._values)


class DiscountedSum:
    """The sum over a stream's blocks, each released alone, older ones counting less (claim 4)."""

    def __init__(self, record: ReleaseRecord, source: RandomSource, *, forgetting: float) -> None:
        assert record.disjoint
        self._record, self._source = record, source
        self._sum = Discounted(forgetting)

    def check_room(self) -> None:
        """There always is: for the streams that have a horizon."""

    def release(self, total: Accumulator) -> Release:
        return self._sum.add(total.release(self._record, self._source))


class _Mechanism:
    """C on one side of the noise, exactly up to whole units; its inverse's sums on the other."""

    def __init__(self, factor: StreamFactor, size: int) -> None:
        self._terms = list(zip(factor.weights, factor.losses, strict=True))
        self._inside: list[Integers] = [np.zeros(size, dtype=np.int64) for _ in self._terms]
        self._most = 0.0  # of a block's sums, added up over blocks
        self._outside = [np.zeros(size) for _ in self._terms]
        self._prefix = np.zeros(size)

    def mixed(self, block: Integers, bits: int = 0) -> Integers:
        """The next part of ``C g``, g in units of ``2**-bits``; products are rounded down."""
        self._most += largest_of(block) * 2.0**bits + 1.0
        if (1 + len(self._terms)) * self._most > _LARGEST:
            block = block.astype(object)
            self._inside = [kept.astype(object) for kept in self._inside]
        block = block << bits
        total = block.copy()
        for place, (weight, loss) in enumerate(self._terms):
            kept = self._inside[place]
            total += _product(kept, weight)
            self._inside[place] = kept - _product(kept, loss) + block
        return total

    def prefix(self, noisy: Integers) -> Floats:
        """The sum of all blocks so far that the released ``w = C g + z`` stands for."""
        found = noisy.astype(np.float64)
        for kept, (weight, _) in zip(self._outside, self._terms, strict=True):
            found -= kept * (weight / PARTS)
        for kept, (_, loss) in zip(self._outside, self._terms, strict=True):
            kept *= 1.0 - loss / PARTS
            kept += found
        self._prefix += found
        return self._prefix


def _product(values: Integers, part: int) -> Integers:
    """``floor(values * part / PARTS)`` exactly; 64-bit values are below 2**62."""
    if values.dtype == object:
        return np.asarray(values * part >> _HALF_BITS)
    factor = np.int64(part)
    return (values >> _HALF_BITS) * factor + (((values & _LOW) * factor) >> _HALF_BITS)
