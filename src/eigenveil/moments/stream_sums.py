"""The sum over a stream's blocks so far, released after every block (docs/proofs/streams.md)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError, PrivacyError
from eigenveil.moments.accumulators import Accumulator, check_same_kind
from eigenveil.moments.release import Release, coordinates, from_coordinates, noise_integers
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.releases import STREAM_UNIT, ReleaseRecord
from eigenveil.privacy.streams import PARTS, StreamFactor

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
# Sums, their buffers and the noise stay within 63 bits.
_LARGEST = 2.0**61
_HALF_BITS = 31
_LOW = np.int64((1 << _HALF_BITS) - 1)


class PrefixSum:
    """One mergeable sum of a stream, with the noise of a matrix mechanism.

    Memory is that of ``2 terms + 2`` sums, whatever the number of blocks.

    Parameters
    ----------
    accumulator : Accumulator
        An empty sum of the kind that blocks are added up in.
    record : ReleaseRecord
        Of all releases together, with its ``stream``.
    source : RandomSource
        Of the noise.
    """

    def __init__(
        self, accumulator: Accumulator, record: ReleaseRecord, source: RandomSource
    ) -> None:
        assert record.stream is not None
        assert record.noise.grid is not None
        self._kind, self._record, self._source = accumulator.fresh(), record, source
        self._mechanism = _Mechanism(record.stream, accumulator.size)
        self._unit = min(accumulator.grid, STREAM_UNIT)
        self._rows = 0
        self.blocks = 0

    def check_room(self, rows: int) -> None:
        """Raise where the horizon is over, or so many rows more would leave the arithmetic.

        Raises
        ------
        PrivacyError, DataError
            Nothing was added.
        """
        stream, grid = self._record.stream, self._record.noise.grid
        assert stream is not None
        assert grid is not None
        if self.blocks >= stream.blocks:
            raise horizon_over(stream.blocks)
        most = math.ldexp(_LARGEST, min(grid, self._unit))
        if self._rows + rows > most:
            raise DataError(
                f"More than {int(most):.3g} rows in one stream.",
                hint="Start a new stream.",
                code="too-many-rows",
            )

    def release(self, total: Accumulator, rows: int) -> Release:
        """The noisy sum of all blocks, of which ``total`` is the next: the sum of ``rows`` rows.

        The release's record says how noisy it is; what it cost is in the record of the stream.

        Raises
        ------
        PrivacyError, DataError
            As :meth:`check_room`.
        """
        grid, layout = self._record.noise.grid, self._kind.layout
        assert grid is not None
        self.check_room(rows)
        check_same_kind(self._kind, total)
        part = coordinates(layout, total.integers()) << (total.grid - self._unit)
        self._rows += rows
        self.blocks += 1
        noise = coordinates(layout, noise_integers(self._kind, self._record, self._source))
        noisy = (self._mechanism.mixed(part) << (self._unit - grid)) + noise
        prefix = self._mechanism.prefix(noisy)
        values = from_coordinates(layout, self._kind.shape, np.ldexp(prefix, grid))
        return Release(self._as_noisy(), values)

    def _as_noisy(self) -> ReleaseRecord:
        """A record of a single release with as much noise."""
        stream, noise = self._record.stream, self._record.noise
        assert stream is not None
        larger = noise.model_copy(update={"scale": noise.scale * stream.spread(self.blocks)})
        return self._record.model_copy(update={"noise": larger, "stream": None})


def horizon_over(blocks: int) -> PrivacyError:
    """The error of a stream that has had all of its blocks."""
    return PrivacyError(
        f"The horizon of {blocks} blocks is over: the privacy wish covers no more.",
        hint="Start a new stream with a budget of its own, or a larger horizon.",
        code="horizon-over",
    )


class _Mechanism:
    """C on one side of the noise, exactly up to whole units; its inverse's sums on the other."""

    def __init__(self, factor: StreamFactor, size: int) -> None:
        self._terms = list(zip(factor.weights, factor.losses, strict=True))
        self._inside = [np.zeros(size, dtype=np.int64) for _ in self._terms]
        self._outside = [np.zeros(size) for _ in self._terms]
        self._prefix = np.zeros(size)

    def mixed(self, block: Integers) -> Integers:
        """The next part of ``C g``; every product is rounded down to a whole unit."""
        total = block.copy()
        for place, (weight, loss) in enumerate(self._terms):
            kept = self._inside[place]
            total += _product(kept, weight)
            self._inside[place] = kept - _product(kept, loss) + block
        return total

    def prefix(self, noisy: Integers) -> Floats:
        """The sum of all blocks so far that the released ``w = C g + z`` stands for.

        Post-processing: it reads nothing but w.
        """
        found = noisy.astype(np.float64)
        for kept, (weight, _) in zip(self._outside, self._terms, strict=True):
            found -= kept * (weight / PARTS)
        for kept, (_, loss) in zip(self._outside, self._terms, strict=True):
            kept *= 1.0 - loss / PARTS
            kept += found
        self._prefix += found
        return self._prefix


def _product(values: Integers, part: int) -> Integers:
    """``floor(values * part / PARTS)`` exactly, for values below 2**62."""
    factor = np.int64(part)
    return (values >> _HALF_BITS) * factor + (((values & _LOW) * factor) >> _HALF_BITS)
