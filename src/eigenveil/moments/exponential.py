"""The exponential mechanism for directions: drawn from a sum, one after the other.

Component j is drawn with density ``exp(u' A u / scale)`` on the unit sphere of what the earlier
components leave (Kapralov & Talwar 2013; Amin et al. 2019); each draw is a release of its own, and
the record counts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eigenveil.moments.release import Release
from eigenveil.noise.sampler import ChoiceSampler, sampler_of
from eigenveil.noise.source import RandomSource, of_one_release
from eigenveil.privacy.releases import ReleaseRecord

if TYPE_CHECKING:
    from eigenveil.moments.accumulators import Accumulator


def release_vectors(
    accumulator: Accumulator, record: ReleaseRecord, source: RandomSource
) -> Release:
    """Draw ``record.draws`` vectors, shape (K, D), from an exact second moment.

    They are released rounded to the record's grid and so are orthonormal up to that: the exact
    double-precision values would give away the eigenvectors they were made from.
    """
    grid = record.noise.grid
    assert not record.mechanism.added
    assert grid is not None
    moment = np.ldexp(accumulator.integers().astype(np.float64), accumulator.grid)
    moment /= record.noise.scale
    sampler = sampler_of(record.noise.kind)
    assert isinstance(sampler, ChoiceSampler)
    vectors = sampler.chosen(moment, record.draws, of_one_release(source))
    return Release(record=record, values=np.ldexp(np.rint(np.ldexp(vectors, -grid)), grid))
