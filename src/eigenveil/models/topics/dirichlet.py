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
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

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


# Iterations, and by how much a proportion may still move on average when they end.
_ITERATIONS, _STEADY = 200, 1e-5
# Counts of a block of documents that are worked on together.
_MOST_ENTRIES = 1 << 18


def proportions(counts: Any, topics: Array, concentration: Array) -> tuple[Array, Array]:
    """Expected proportions of the topics in documents, and a bound of their log-chances."""
    documents = scipy.sparse.csr_array(counts, dtype=np.float64)
    ends = documents.indptr.astype(np.int64)
    shares = np.empty((documents.shape[0], concentration.size))
    bounds = np.empty(documents.shape[0])
    start = 0
    while start < documents.shape[0]:
        stop = int(np.searchsorted(ends, ends[start] + _MOST_ENTRIES, side="right")) - 1
        some = slice(start, min(max(start + 1, stop), documents.shape[0]))
        shares[some], bounds[some] = _of_block(documents[some], topics.T, concentration)
        start = some.stop
    return shares, bounds


def _of_block(documents: Any, words: Array, concentration: Array) -> tuple[Array, Array]:
    """The same of a block; ``words`` is (D, K)."""
    size, lengths = documents.shape[0], documents.sum(axis=1)
    places = np.repeat(np.arange(size), np.diff(documents.indptr))
    of_entry = words[documents.indices]
    gamma = concentration + (lengths / concentration.size)[:, None]
    for _ in range(_ITERATIONS):
        before = gamma
        weights, likely = _expected(gamma, of_entry, places)
        ratios = scipy.sparse.csr_array(
            (documents.data / likely, documents.indices, documents.indptr), shape=documents.shape
        )
        gamma = concentration + weights * (ratios @ words)
        moved = np.abs(gamma - before).mean(axis=1) / (lengths + concentration.sum())
        if size == 0 or float(moved.max()) < _STEADY:
            break
    _, likely = _expected(gamma, of_entry, places)
    logs = np.bincount(places, weights=documents.data * np.log(likely), minlength=size)
    total, expected = gamma.sum(axis=1), digamma(gamma) - digamma(gamma.sum(axis=1))[:, None]
    bounds = logs + np.sum((concentration - gamma) * expected + gammaln(gamma), axis=1)
    bounds += gammaln(concentration.sum()) - np.sum(gammaln(concentration)) - gammaln(total)
    return gamma / total[:, None], bounds


def _expected(
    gamma: Array, of_entry: Array, places: NDArray[np.intp]
) -> tuple[Array, NDArray[np.float64]]:
    """exp(E[log theta]) of every document, and what each of its words has of it."""
    weights = np.exp(digamma(gamma) - digamma(gamma.sum(axis=1))[:, None])
    likely = np.einsum("ek,ek->e", weights[places], of_entry)
    return weights, np.maximum(likely, np.finfo(float).tiny)
