"""Documents of several topics: their moments made those of documents of one (post-processing).

In latent Dirichlet allocation a document's topic proportions follow a Dirichlet law with
concentrations alpha_k that add up to a0. With mu the expected share of each word,

    E[x1 x2]    - a0 / (a0 + 1) mu mu                    = sum_k alpha_k / (a0 (a0 + 1)) t_k t_k
    E[x1 x2 x3] - a0 / (a0 + 2) (E[x1 x2] mu + two permutations)
                + 2 a0^2 / ((a0 + 1) (a0 + 2)) mu mu mu  = sum_k 2 alpha_k / (a0 (a0 + 1) (a0 + 2))
                                                                 t_k t_k t_k

(Anandkumar et al. 2012, A spectral algorithm for latent Dirichlet allocation). So ``a0 + 1`` times
the first and ``(a0 + 1) (a0 + 2) / 2`` times the second are the moments of documents of one topic
each, topic k having the share ``alpha_k / a0`` of them. All three moments lie in the span of the
topics, so that this is done in K dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.tensors.whitening import PairMoment, positive

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Frequencies:
    """How frequent words are, as it was released beside the pairs."""

    shares: Array  # Of each word; they add up to 1, but for noise none is negative
    rows: float  # How many documents the pair moment adds up, each for what clipping left of it
    deviation: float  # Of the noise in each share


def frequencies(
    released: Array, deviation: float, pair_values: Array, test: Array | None
) -> Frequencies:
    """What a released sum of word shares and a pair moment say together.

    Notes
    -----
    Every document's pairs add up to its shares: clipping left of them what the sum of either has.
    """
    total = max(1.0, float(np.sum(released)))
    shares = released / total
    seen = shares if test is None else shares @ test
    # what noise adds to the square, on average
    own = (deviation / total) ** 2 * (shares.size if test is None else test.size)
    square, rows = float(seen @ seen) - own, total
    if square > own:
        along = float(pair_values.sum(axis=0) @ seen) / square
        rows = along if 0.0 < along < 2.0 * total else total
    return Frequencies(shares, rows, deviation / total)


def of_one_topic(
    pair: PairMoment, triple: Array, known: Frequencies, alpha0: float
) -> tuple[PairMoment, Array, float]:
    """Moments that documents of one topic each would have."""
    mean = known.shares @ pair.basis
    cross = np.multiply.outer(pair.core, mean)
    cross = cross + cross.transpose(0, 2, 1) + cross.transpose(2, 1, 0)
    cube = np.multiply.outer(np.multiply.outer(mean, mean), mean)
    scale = clipped_alike(pair, triple)
    corrected = (
        triple * scale
        - alpha0 / (alpha0 + 2.0) * cross
        + 2.0 * alpha0**2 / ((alpha0 + 1.0) * (alpha0 + 2.0)) * known.rows * cube
    )
    core = (alpha0 + 1.0) * pair.core - alpha0 * known.rows * np.outer(mean, mean)
    # noise of the mean acts in one direction, beside that of all
    of_mean = alpha0 * known.rows * float(np.linalg.norm(mean)) * known.deviation
    deviation = math.hypot((alpha0 + 1.0) * pair.deviation, of_mean)
    factor = (alpha0 + 1.0) * (alpha0 + 2.0) / 2.0
    hidden = (alpha0 + 1.0) * pair.hidden
    found = replace(pair, core=positive(core, deviation), deviation=deviation, hidden=hidden)
    return found, factor * corrected, factor * scale


# Clipping leaves no less of the triples than this part of what it leaves of the pairs, nor more
# than one over it.
_MOST_TILTED = 4.0


def clipped_alike(pair: PairMoment, triple: Array) -> float:
    """By how much a triple moment is to be multiplied to add up as many documents as the pairs.

    A document's triples add up, over one of their places, to its pairs: so seen through the sum of
    the basis' rows, on which every topic has 1, the triple moment is the pair moment.
    """
    along = triple @ pair.basis.sum(axis=0)
    # the pair moment's noise is the smaller
    ratio = float(np.vdot(along, pair.core)) / float(np.vdot(pair.core, pair.core))
    return float(np.clip(1.0 / ratio if ratio > 0 else 1.0, 1.0 / _MOST_TILTED, _MOST_TILTED))
