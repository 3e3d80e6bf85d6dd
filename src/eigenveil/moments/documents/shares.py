"""The sum of documents' word shares: how frequent words are, every document counting alike.

A document of L words, c_i times word i, contributes ``c / L``, shortened to a clip: no entry is
negative, and its norm is 1 at most, reached by one word again and again. Every contribution is
rounded down to integers, a function of its document alone (docs/proofs/documents.md, claim 8).
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.documents.sums import ROUNDED_UP, ClippedSum, Documents
from eigenveil.moments.exact import ExactSum, Integers
from eigenveil.privacy.statistics import Layout, StatisticName

# Bits of a document's part: 2**15 documents together stay below 2**53.
_SHARE_BITS = 36


class WordShares(ClippedSum):
    """``sum c / (L max(clip, |c| / L))`` over documents, D values, in units of the clip.

    Where documents have weights, each counts as much less.
    """

    statistic: StatisticName = "word-shares"
    layout: Layout = "vector"
    grid = -_SHARE_BITS

    def __init__(self, features: int, *, clip: float = 1.0) -> None:
        super().__init__()
        self.features, self.clip = features, clip
        self._sum = ExactSum((features,), largest_term=2.0**_SHARE_BITS)

    @property
    def parameters(self) -> dict[str, float]:
        """The clip, of which the sensitivity does not depend."""
        return {"clip": self.clip}

    @property
    def shape(self) -> tuple[int, ...]:
        """One value a word."""
        return (self.features,)

    def integers(self) -> Integers:
        self.flush()
        return self._sum.integers()

    def norms(self, documents: Documents) -> NDArray[np.float64]:
        """``|c| / L``: squares add up exactly, below 2^48."""
        squared = documents.sums(documents.counts.data**2)
        return np.asarray(np.minimum(1.0, np.sqrt(squared) * ROUNDED_UP / documents.lengths))

    def _add(self, documents: Documents) -> None:
        longest = np.maximum(self.norms(documents), self.clip)
        # what is taken off is more than the roundings here and below can add
        unit = 2.0**_SHARE_BITS * (1.0 - 2.0**-40)
        weights = unit / (documents.lengths * longest * documents.divisors)
        counts = documents.counts
        parts = np.floor(counts.data * np.repeat(weights, np.diff(counts.indptr)))
        total = np.bincount(counts.indices, weights=parts, minlength=self.features)
        self._sum.add(np.asarray(total, np.float64), documents.lengths.size)

    def _merge(self, other: Self) -> None:
        self._sum.merge(other._sum)
