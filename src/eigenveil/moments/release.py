"""From an exact sum to one noisy release and its record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.exact import Integers, modulo, scaled_sum
from eigenveil.noise.entries import coordinates, from_coordinates
from eigenveil.noise.sampler import ChoiceSampler, NoiseSampler, sampler_of
from eigenveil.noise.source import RandomSource, of_one_release
from eigenveil.privacy.releases import ReleaseRecord

if TYPE_CHECKING:
    from eigenveil.moments.accumulators import Accumulator


@dataclass(frozen=True)
class Release:
    """Noisy values and what was spent on them. Whatever is computed from one is free."""

    # `edge`: the largest eigenvalue that noise alone shows, where the record does not tell it

    record: ReleaseRecord
    values: NDArray[np.float64]
    edge: float | None = None


def release_sum(accumulator: Accumulator, record: ReleaseRecord, source: RandomSource) -> Release:
    """Add the recorded noise to the exact sum, of any number of rows."""
    entries = _noisy_entries(accumulator, record, source, 0)
    return release_of(record, from_coordinates(accumulator.layout, accumulator.shape, entries))


def release_of(record: ReleaseRecord, integers: Integers) -> Release:
    """The release whose values are these multiples of its grid, rounded once to doubles."""
    assert record.noise.grid is not None
    unit = math.ldexp(1.0, record.noise.grid)
    return Release(record=record, values=integers.astype(np.float64) * unit)


def noisy_integers(
    accumulator: Accumulator, record: ReleaseRecord, source: RandomSource, *, weight_bits: int = 0
) -> NDArray[np.int64]:
    """Entries of the sum times its weight and a share of the noise, on the grid, mod 2**64."""
    return modulo(_noisy_entries(accumulator, record, source, weight_bits))


# Half of what 64 bits with a sign hold is for rows, the rest for noise.
_MOST_OF_ROWS = 2.0**62


def capacity(record: ReleaseRecord) -> float:
    """Rows of weight 1 that a sum modulo ``2**64`` of several parties surely holds."""
    # beyond, it may have wrapped: no matter of privacy, as whoever sees the noisy sum can wrap it,
    # too; but no use can then be made of it, which the released number of rows shows
    assert record.noise.grid is not None
    return math.ldexp(_MOST_OF_ROWS / max(1.0, record.gain), record.noise.grid)


def _noisy_entries(
    accumulator: Accumulator, record: ReleaseRecord, source: RandomSource, weight_bits: int
) -> Integers:
    """Independent entries of the exact sum times the recorded weight and a share of the noise."""
    grid = record.noise.grid
    assert grid is not None
    noise = noise_integers(accumulator, record, source)
    factor = round(math.ldexp(record.weight, weight_bits))
    bits = accumulator.grid - weight_bits - grid
    exact = coordinates(accumulator.layout, accumulator.integers())
    return scaled_sum(exact, factor, bits, noise)


def noise_integers(
    accumulator: Accumulator, record: ReleaseRecord, source: RandomSource
) -> NDArray[np.int64]:
    """One of ``noise_parts`` parts of the noise of each independent entry, in the grid's units."""
    sampler = sampler_of(record.noise.kind)
    assert isinstance(sampler, NoiseSampler)
    return sampler.noise(
        accumulator.layout, accumulator.shape, record.noise, of_one_release(source)
    )


# -- The exponential mechanism for directions: drawn from a sum, one after the other.
#
# Component j is drawn with density ``exp(u' A u / scale)`` on the unit sphere of what the earlier
# components leave (Kapralov & Talwar 2013; Amin et al. 2019); each draw is a release of its own,
# and the record counts them.


def release_vectors(
    accumulator: Accumulator, record: ReleaseRecord, source: RandomSource
) -> Release:
    """Draw ``record.draws`` vectors, shape (K, D), from an exact second moment."""
    # rounded to the grid: exact doubles would give away the eigenvectors they were made from
    grid = record.noise.grid
    assert not record.mechanism.added
    assert grid is not None
    moment = np.ldexp(accumulator.integers().astype(np.float64), accumulator.grid)
    moment /= record.noise.scale
    sampler = sampler_of(record.noise.kind)
    assert isinstance(sampler, ChoiceSampler)
    vectors = sampler.chosen(moment, record.draws, of_one_release(source))
    return Release(record=record, values=np.ldexp(np.rint(np.ldexp(vectors, -grid)), grid))
