"""Private variational LDA: Park, Foulds, Chaudhuri & Welling 2016, 2020 (VIPS).

Written from the formulas (arXiv 1609.04120; JAIR 68, 109-157) and from what the authors' published
code does: expected counts of words by topic, each document's shortened to a length, with Gaussian
noise, and negative ones set to zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.special import digamma

from benchmarks.rivals.budget import Array, Budget

# Of the topics' Dirichlet law, and iterations of a document's own step.
ETA, ITERATIONS = 0.1, 20
# A random start, as its authors draw it.
SHAPE = 100.0
# Counts of words of documents that are worked on together.
BLOCK = 2048


@dataclass(frozen=True)
class PrivateLda:
    """Steps of variational Bayes over all documents, each from noisy expected counts.

    The authors take random batches and moments accountants; here every step sees all documents,
    which gains as much, and steps add up exactly. A document's counts are shortened to the length
    that half of the documents have, which is told. The start is random, and says nothing.
    """

    steps: int
    paper = "Park, Foulds, Chaudhuri, Welling 2016"
    told = "alpha0, median length of a document's counts"

    @property
    def name(self) -> str:
        """With the number of steps."""
        return f"private variational LDA, {self.steps} steps from a random start"

    def tell(self, counts: scipy.sparse.csr_array) -> float:
        """The median length of a document's expected counts where it has one topic."""
        return float(np.median(np.sqrt(counts.multiply(counts).sum(axis=1))))

    def topics(
        self, counts: scipy.sparse.csr_array, alpha: Array, told: float, budget: Budget
    ) -> Array:
        """Topics (K, D), as probabilities, after all steps."""
        shape = (alpha.size, counts.shape[1])
        found = budget.rng.gamma(SHAPE, 1.0 / SHAPE, shape)
        for _ in range(self.steps):
            exact = expected_counts(counts, found, alpha, told)
            noisy = budget.gaussian(exact, told, 1.0 / self.steps)
            found = ETA + np.maximum(noisy, 0.0)
        found = found - ETA + 1e-12
        return np.asarray(found / found.sum(axis=1, keepdims=True))


def expected_counts(
    counts: scipy.sparse.csr_array, weights: Array, alpha: Array, longest: float
) -> Array:
    """Counts of words by topic that each document is expected to have, (K, D), shortened."""
    words = np.exp(digamma(weights) - digamma(weights.sum(axis=1, keepdims=True))).T
    total = np.zeros(weights.shape)
    for start in range(0, counts.shape[0], BLOCK):
        total += _of_block(counts[start : start + BLOCK], words, alpha, longest)
    return total


def _of_block(block: scipy.sparse.csr_array, words: Array, alpha: Array, longest: float) -> Array:
    places = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
    own = words[block.indices]
    gamma = alpha + (block.sum(axis=1) / alpha.size)[:, None]
    for _ in range(ITERATIONS):
        weights, ratios = _held(gamma, own, block, places)
        gamma = alpha + weights * (ratios @ words)
    weights, ratios = _held(gamma, own, block, places)
    parts = weights[places] * own * ratios.data[:, None]
    lengths = np.sqrt(np.bincount(places, np.sum(parts**2, axis=1), block.shape[0]))
    parts *= np.minimum(1.0, longest / np.maximum(lengths, 1e-300))[places, None]
    return np.array([np.bincount(block.indices, part, block.shape[1]) for part in parts.T])


def _held(
    gamma: Array, own: Array, block: scipy.sparse.csr_array, places: NDArray[np.int64]
) -> tuple[Array, scipy.sparse.csr_array]:
    weights = np.exp(digamma(gamma) - digamma(gamma.sum(axis=1))[:, None])
    likely = np.maximum(np.sum(weights[places] * own, axis=1), 1e-300)
    shape = block.shape
    return weights, scipy.sparse.csr_array(
        (block.data / likely, block.indices, block.indptr), shape
    )


PRIVATE_LDA = (PrivateLda(5), PrivateLda(10), PrivateLda(20))
