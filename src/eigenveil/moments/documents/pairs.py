"""Sums over the pairs of a document's words, whole or seen through a public matrix.

Exact integers, and functions of each document alone (docs/proofs/documents.md).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.moments.documents.sums import ROUNDED_UP, ClippedSum, Documents
from eigenveil.moments.exact import ExactSum
from eigenveil.privacy.statistics import StatisticName

# Bits of a pair's part of a document, as of a product of two prepared entries.
_PAIR_BITS = 18

# A smaller weight of pairs is too coarse, being rounded down to an integer.
_LEAST_WEIGHT = 256.0

# Entries are rounded one by one only where a document's words times the square of its divisor are
# not more: else what rounding moves a unit's documents by could add up.
_MOST_ROUNDED = float(1 << 24)


def _pair_weights(
    documents: Documents, longest: NDArray[np.float64] | float, bits: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Weights of pairs, exact, and of which documents entries are rounded, not the weight."""
    exact = 4.0**bits / (documents.pairs * longest * documents.divisors)
    words = np.diff(documents.counts.indptr)
    few = words * documents.divisors**2 <= _MOST_ROUNDED
    return exact, (exact < _LEAST_WEIGHT) & few


def _long_documents(
    documents: Documents, weights: NDArray[np.float64], rounded: NDArray[np.bool_]
) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.float64], float]]:
    """Documents with too small a weight of a pair: number, words, counts, and the weight.

    A 2^-20th smaller, as their entries are rounded one by one (docs/proofs/documents.md, claim 5).
    """
    counts = documents.counts
    for row in np.flatnonzero(rounded):
        own = slice(counts.indptr[row], counts.indptr[row + 1])
        yield (
            int(row),
            counts.indices[own],
            counts.data[own],
            float(weights[row]) * (1.0 - 2.0**-20),
        )


def _whole(weights: NDArray[np.float64], rounded: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Weights rounded down, and 0 where entries are."""
    return np.where(rounded, 0.0, np.floor(weights))


class DocumentPairs(ClippedSum):
    """``sum w_d (c c' - diag(c))`` over documents d, D x D, in units of the clip."""

    statistic: StatisticName = "document-pairs"

    def __init__(
        self, features: int, *, clip: float = 1.0, nuclear: bool = False, extra_bits: int = 0
    ) -> None:
        super().__init__()
        self.features, self.clip, self.nuclear = features, clip, nuclear
        self.extra_bits = extra_bits
        self._bits = _PAIR_BITS + extra_bits
        self._sum = ExactSum(self.shape, largest_term=4.0**self._bits)

    @property
    def grid(self) -> int:
        return -2 * self._bits

    @property
    def size(self) -> int:
        return self.features * (self.features + 1) // 2

    @property
    def parameters(self) -> dict[str, float]:
        """A clip of the Frobenius norm: no record with Wishart noise takes it."""
        return {} if self.nuclear else {"clip": self.clip}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features, self.features)

    def norms(self, documents: Documents) -> NDArray[np.float64]:
        """Frobenius norms, or bounds of nuclear norms."""
        # a count above 2^18 is taken for that in the sum, which is then exact: one part in 2^17 at
        # most
        squared = documents.sums(documents.counts.data**2)  # exact: below 2^48
        if self.nuclear:
            longest = squared + documents.lengths
        else:
            own = np.minimum(documents.counts.data, 2.0**18).astype(np.int64)
            longest = np.sqrt(squared * squared - documents.sums(own * own * (2 * own - 1)))
        return np.asarray(np.minimum(1.0, longest * ROUNDED_UP / documents.pairs))

    def _add(self, documents: Documents) -> None:
        # exact, of as many as are added up at once: docs/proofs/documents.md, claim 10
        counts, lengths, _ = documents
        longest = 1.0 if self.clip == 1.0 else np.maximum(self.norms(documents), self.clip)
        exact, rounded = _pair_weights(documents, longest, self._bits)
        weights = _whole(exact, rounded)
        part = _weighted_gram(counts, weights)
        part[np.diag_indices(self.features)] -= weights @ counts
        for row, words, own, weight in _long_documents(documents, exact, rounded):
            if self.nuclear and self.clip < 1.0:
                bound = 4.0**self._bits / float(documents.divisors[row])
                weight = _nuclear_weight(int(lengths[row]), own.size, weight, bound)
            pairs = np.outer(own, own)
            pairs[np.diag_indices(own.size)] -= own
            part[np.ix_(words, words)] += np.floor(pairs * weight)
        self._sum.add(part, lengths.size)


def _nuclear_weight(length: int, words: int, weight: float, bound: float) -> float:
    """A smaller weight, that rounding entries down leaves the nuclear norm below its bound."""
    surely = bound / (length * (length - 1)) * (1.0 - 2.0**-20)
    shorter = 1.0 - 1.001 * words * math.sqrt(words) / bound
    return max(surely, weight * shorter)


# A product of two sparse entries costs as much as this many of dense ones (measured).
_SPARSE_COST = 60.0

_DENSE_ENTRIES = 1 << 21


def _weighted_gram(counts: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """``counts.T @ diag(weights) @ counts`` in the cheaper way: exact, as nothing is negative."""
    documents, features = counts.shape
    entries = np.diff(counts.indptr).astype(np.float64)
    if _SPARSE_COST * (entries @ entries) < documents * float(features) ** 2:
        weighted = counts.data * np.repeat(weights, np.diff(counts.indptr))
        left = scipy.sparse.csr_array((weighted, counts.indices, counts.indptr), shape=counts.shape)
        return np.asarray((left.T.tocsr() @ counts).toarray())
    total = np.zeros((features, features))
    step = max(256, _DENSE_ENTRIES // features)
    for start in range(0, documents, step):
        dense = counts[start : start + step].toarray()
        total += (dense * weights[start : start + step, None]).T @ dense
    return total


class DocumentSketch(ClippedSum):
    """``sum w_d (c (S'c)' - diag(c) S)``: the pairs times a public matrix S of signs, D x R."""

    statistic: StatisticName = "document-sketch"
    grid = -2 * _PAIR_BITS

    def __init__(self, features: int, columns: int, *, clip: float = 1.0) -> None:
        super().__init__()
        self.features, self.columns, self.clip = features, columns, clip
        self._sum = ExactSum(self.shape, largest_term=self._largest_term)

    @cached_property
    def signs(self) -> NDArray[np.float64]:
        """The matrix S of 1 and -1, shape (D, R); shared, not to be written to."""
        return public_signs(self.features, self.columns)

    @property
    def parameters(self) -> dict[str, float]:
        """The length of a row of S, and the clip."""
        return {"gain": math.sqrt(self.columns), "clip": self.clip}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features, self.columns)

    def empty(self) -> Self:
        found = super().empty()
        found.__dict__["signs"] = self.signs
        return found

    def norms(self, documents: Documents) -> NDArray[np.float64]:
        """Frobenius norms over that of a row of S."""
        return self._norms(documents, documents.counts @ self.signs)

    def _norms(self, documents: Documents, seen: NDArray[np.float64]) -> NDArray[np.float64]:
        """Frobenius norms, given ``z = S'c``: of exact integers, their products' error added."""
        counts, lengths, _ = documents
        repeated = counts.data > 1  # what occurs once is in z
        again = scipy.sparse.csr_array(
            (
                counts.data[repeated] * (counts.data[repeated] - 1.0),
                counts.indices[repeated],
                np.append(0, np.cumsum(repeated))[counts.indptr],
            ),
            shape=counts.shape,
        )
        squared = seen + again @ self.signs
        total, across, sizes = np.zeros((3, lengths.size))
        for column in range(self.columns):  # as one product, it could depend on the neighbours
            own, other = seen[:, column], squared[:, column]
            product = own * other
            total += own * own
            across += product
            sizes += np.abs(product)
        whole = documents.sums(counts.data**2) * (total + self.columns)
        square = np.maximum(whole - 2.0 * across, 0.0) + (whole + 2.0 * sizes) * 2.0**-40
        longest = np.sqrt(square) * ROUNDED_UP
        return np.asarray(
            np.minimum(1.0, longest / (documents.pairs * math.sqrt(self.columns)) * ROUNDED_UP)
        )

    def _add(self, documents: Documents) -> None:
        seen = documents.counts @ self.signs
        longest = 1.0 if self.clip == 1.0 else np.maximum(self._norms(documents, seen), self.clip)
        exact, rounded = _pair_weights(documents, longest, _PAIR_BITS)
        terms = self._terms(documents, seen, exact)
        for part in _parts(terms, int(2.0**53 / self._largest_term)):
            product = self._product(documents.taken(part), seen[part], exact[part], rounded[part])
            self._sum.add(product, int(terms[part].sum()))

    def _product(
        self,
        documents: Documents,
        seen: NDArray[np.float64],
        exact: NDArray[np.float64],
        rounded: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Contributions of documents that together stay below 2^53."""
        counts, weights = documents.counts, _whole(exact, rounded)
        # by word: several times faster than by document
        product = counts.T.tocsr() @ (weights[:, None] * seen)
        product -= (weights @ counts)[:, None] * self.signs
        for row, words, own, weight in _long_documents(documents, exact, rounded):
            pairs = own[:, None] * (seen[row] - self.signs[words])
            product[words] += np.trunc(pairs * weight)
        return np.asarray(product)

    @property
    def _largest_term(self) -> float:
        """Of a document that counts as one."""
        return 4.0**_PAIR_BITS if self.clip == 1.0 else 4.0 ** (_PAIR_BITS + 1)

    def _terms(
        self, documents: Documents, seen: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """As how many documents each counts in a sum: 1, but for odd ones (claim 10)."""
        if self.clip == 1.0:
            return np.ones(documents.lengths.size, dtype=np.int64)
        most = np.maximum.reduceat(documents.counts.data, documents.counts.indptr[:-1])
        farthest = np.maximum(seen.max(axis=1), -seen.min(axis=1))
        terms = most * weights * (farthest + 1.0) / self._largest_term
        return np.asarray(np.maximum(1.0, np.ceil(terms * ROUNDED_UP)), dtype=np.int64)


def _parts(terms: NDArray[np.int64], most: int) -> Iterator[slice]:
    """Neighbours that together count as no more than so many, or are alone."""

    def parts(start: int, stop: int) -> Iterator[slice]:
        if stop - start <= 1 or int(terms[start:stop].sum()) <= most:
            yield slice(start, stop)
            return
        middle = (start + stop) // 2
        yield from parts(start, middle)
        yield from parts(middle, stop)

    return parts(0, terms.size)


def public_signs(features: int, columns: int) -> NDArray[np.float64]:
    """A matrix of 1 and -1, shape (features, columns), the same for ever and everywhere."""
    size = features * columns
    digest = hashlib.shake_256(f"eigenveil signs {features} {columns}".encode())
    octets = np.frombuffer(digest.digest(-(-size // 8)), dtype=np.uint8)
    bits = np.unpackbits(octets, count=size, bitorder="big")
    return np.asarray(1.0 - 2.0 * bits, dtype=np.float64).reshape(features, columns)
