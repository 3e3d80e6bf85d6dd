"""Topic proportions of a document of several topics, from released topics (post-processing).

The variational estimate of latent Dirichlet allocation (Blei, Ng & Jordan 2003, section 5): the law
of a document's proportions given its words is approached by a Dirichlet law, whose parameters solve

    gamma_k = alpha_k + sum_i c_i phi_ik,   phi_ik proportional to t_ki exp(E[log theta_k | gamma]).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

Array = NDArray[np.float64]

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
