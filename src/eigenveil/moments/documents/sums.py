"""Sums over documents: how they wait, what is clipped, how long they are, and shares of words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from eigenveil.moments.accumulators import WEIGHT_BITS, Accumulator, shares_of
from eigenveil.moments.documents.documents import MOST_DOCUMENTS, DocumentBlock
from eigenveil.moments.exact import ExactSum, Integers, Spec
from eigenveil.moments.histograms import BINS, norm_bins
from eigenveil.moments.rows import Block, RowWeights
from eigenveil.privacy.statistics import StatisticName

# Entries of what waits for a product.
_MOST_WAITING = 1 << 21
# Norms are rounded up by this: far more than their arithmetic is off.
ROUNDED_UP = 1.0 + 2.0**-40


class Documents(NamedTuple):
    """Counts and lengths of some documents, and with what weight each counts: by default 1."""

    counts: Any
    lengths: NDArray[np.int64]
    weights: RowWeights | None = None

    @classmethod
    def of(cls, blocks: Sequence[DocumentBlock]) -> Documents:
        counts = scipy.sparse.vstack([each.values for each in blocks], format="csr")
        lengths = np.concatenate([each.lengths for each in blocks])
        if all(each.weights is None for each in blocks):
            return cls(counts, lengths)
        found = [
            RowWeights(np.ones_like(each.lengths), np.zeros_like(each.lengths))
            if each.weights is None
            else each.weights
            for each in blocks
        ]
        joined = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return cls(counts, lengths, RowWeights(*joined))

    def taken(self, which: Any) -> Documents:
        weights = self.weights
        if weights is not None:
            weights = RowWeights(weights.divisors[which], weights.ranks[which])
        return Documents(self.counts[which], self.lengths[which], weights)

    @property
    def divisors(self) -> NDArray[np.float64]:
        """A document's weight is 1 over this: the number of its unit's, or more."""
        if self.weights is None:
            return np.ones(self.lengths.size)
        return self.weights.divisors.astype(np.float64)

    @property
    def pairs(self) -> NDArray[np.float64]:
        """Ordered pairs of places, ``L (L - 1)``: exact."""
        return (self.lengths * (self.lengths - 1)).astype(np.float64)

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sums over each document of what belongs to its counts; none is without words."""
        return np.asarray(np.add.reduceat(values, self.counts.indptr[:-1]))


class DocumentSum(Accumulator):
    """A sum over documents: they wait until there are enough to make products of."""

    def __init__(self) -> None:
        self._waiting: list[DocumentBlock] = []
        self._waiting_documents = self._waiting_entries = 0

    def update(self, block: Block) -> None:
        """Add a block of documents; a block of rows is read as counts."""
        if not isinstance(block, DocumentBlock):
            block = DocumentBlock(block.values, weights=block.weights)
        self._waiting.append(block)
        self._waiting_documents += block.lengths.size
        self._waiting_entries += block.entries
        if self._waiting_documents >= MOST_DOCUMENTS or self._waiting_entries >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        blocks, self._waiting = self._waiting, []
        self._waiting_documents = self._waiting_entries = 0
        if not blocks:
            return
        documents = Documents.of(blocks)
        if documents.weights is not None and not documents.weights.divisors.all():
            documents = documents.taken(documents.weights.divisors > 0)  # what does not count
        if not documents.lengths.all():  # those that are left out
            documents = documents.taken(documents.lengths > 0)
        for start in range(0, documents.lengths.size, MOST_DOCUMENTS):
            self._add(documents.taken(slice(start, start + MOST_DOCUMENTS)))

    @abstractmethod
    def _add(self, documents: Documents) -> None:
        """Add at most ``MOST_DOCUMENTS``, at least one, all with words."""


class ClippedSum(DocumentSum):
    """A sum of contributions of documents, each shortened to ``clip``, in units of ``clip``."""

    clip: float

    @abstractmethod
    def norms(self, documents: Documents) -> NDArray[np.float64]:
        """How long contributions are before they are clipped, over the gain: above 0, at most 1.

        Rounded up, and a function of each document alone.
        """


class DocumentNorms(DocumentSum):
    """How many documents contribute how much to a sum before it is clipped: a norm histogram."""

    statistic: StatisticName = "norm-histogram"
    adds = ("_counts",)

    def __init__(self, of: ClippedSum, *, weighted: bool = False) -> None:
        super().__init__()
        self.of, self.weighted = of, weighted
        self._counts = np.zeros(BINS + 1, dtype=np.int64)

    @property
    def grid(self) -> int:
        return -WEIGHT_BITS if self.weighted else 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self._counts.shape

    def spec(self) -> Spec:
        inner = self.of.spec()
        own = {"of": self.of.statistic, "weighted": self.weighted}
        return replace(inner, fields={**inner.fields, **own})

    def integers(self) -> Integers:
        self.flush()
        return self._counts.copy()

    def _add(self, documents: Documents) -> None:
        norms = self.of.norms(documents)
        shares = shares_of(documents.weights, norms.size, weighted=self.weighted)
        self._counts[:BINS] += norm_bins(norms, shares)
        self._counts[BINS] += norms.size if shares is None else shares.sum()


# Bits of a document's part: 2**15 documents together stay below 2**53.
_SHARE_BITS = 36


class WordShares(ClippedSum):
    """``sum c / (L max(clip, |c| / L))`` over documents, D values, in units of the clip."""

    statistic: StatisticName = "word-shares"
    grid = -_SHARE_BITS

    def __init__(self, features: int, *, clip: float = 1.0) -> None:
        super().__init__()
        self.features, self.clip = features, clip
        self._sum = ExactSum((features,), largest_term=2.0**_SHARE_BITS)

    @property
    def parameters(self) -> dict[str, float]:
        return {"clip": self.clip}

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.features,)

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
