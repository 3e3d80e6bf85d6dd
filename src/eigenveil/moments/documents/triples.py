"""Sums over the triples of a document's words, seen through a few released directions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import check_same_kind, shares_of
from eigenveil.moments.documents.sums import ROUNDED_UP, ClippedSum, Documents
from eigenveil.moments.exact import Integers, IntegerSum, sum_of
from eigenveil.moments.norms import integer_rows
from eigenveil.moments.third import ROWS_A_PRODUCT, cube_sums
from eigenveil.noise.entries import tensor_from_entries, tensor_indices
from eigenveil.privacy.statistics import StatisticName, tensor_size

# Of the basis; of products of two of its entries; of the two factors of the second part, and of the
# third part's weights and cubes; of the first part's factor. Parts have 36 bits.
_WORD_BITS, _TABLE_BITS, _FACTOR_BITS, _CUBE_BITS = 24, 28, 18, 12
_TRIPLE_BITS = 36
# The mean cube of words counts for this much at least in the bound of a contribution, so that its
# factor does not make the cubes' rounding too large.
_LEAST_CUBE = 1.0 / 16.0
# Lengths of contributions of documents with up to so many different words are worked out; no
# contribution is taken for shorter than this part of its bound, which limits what they are
# multiplied by.
_FEW_WORDS, _LEAST_OF_BOUND = 24, 1.0 / 8.0
# What rounding can add to a squared length, of terms of 5 at most.
_OF_ROUNDING = 2.0**-40
# Entries of the products of a document's words at once.
_MOST_PRODUCTS = 1 << 20
# Documents in a product of the second part, whose factors are larger where they are clipped.
_CLIPPED_A_PRODUCT = 1 << 12
# Entries of a table of words at once.
_TABLE_ENTRIES = 1 << 22
# Sums of so many contributions, of 36 bits and a little more, stay within 64.
_MOST_TRIPLES = 1 << 26
# A document with a weight counts in whole parts of one over two to this.
_SHARE_BITS = 8


def triples_error(columns: int, clip: float = 1.0) -> float:
    """How far a document's integer triples may be from the exact ones (documents.md, claim 9)."""
    half, r = 0.5 + 2.0**-20, math.sqrt(columns)
    step, fine = 2.0**-_CUBE_BITS, 2.0**-_FACTOR_BITS
    k = min(1.0 / _LEAST_OF_BOUND, 1.0 / clip)
    e, cubed = half * r * step, math.cbrt(4.5 * k)
    first = 3 * cubed**2 * e + 3 * cubed * e**2 + e**3
    amplified = 2.0 ** (_FACTOR_BITS - _TABLE_BITS - 1) * math.cbrt(1.5 / clip) ** 2
    d, table, root = half * r * fine, (half + amplified) * r**2 * fine, math.cbrt(1.5 * k)
    second = 3 * (root**2 * d + root * table + d * table)
    most = min(k / _LEAST_CUBE, 1.0 / clip)
    weight, more = (2.0**-12, 2.0**-12) if clip == 1.0 else (2.0**-9 * math.sqrt(1.5 * k), 2.0**-5)
    third = weight + (most + more) * half * r**3 * fine
    return (first + second + third) * (1 + 1e-12)


class DocumentTriples(ClippedSum):
    """Triples of words seen through a basis U: the mean of ``u_i(x)u_j(x)u_k``, K x K x K.

    Three sums of exact integers modulo ``2**64``, in which only the total of at most ``2**26``
    documents has to fit: that of more is the sum of such totals.
    """

    statistic: StatisticName = "document-triples"

    def __init__(
        self, basis: NDArray[np.float64], *, clip: float = 1.0, weighted: bool = False
    ) -> None:
        super().__init__()
        self.basis, self.clip, self.weighted = basis, clip, weighted
        self.features, rows = basis.shape
        self.rho = _longest_row(basis)
        radius = math.ldexp(1.0, _WORD_BITS)
        factors = np.full(self.features, radius / self.rho)
        words, _ = integer_rows(np.ascontiguousarray(basis, np.float64), factors, radius * radius)
        self._words = words.astype(np.float64, copy=False)
        squares = np.vecdot(self._words, self._words)
        self._squares = np.ceil(np.ldexp(squares, _TABLE_BITS - 2 * _WORD_BITS))
        self._whole = IntegerSum((tensor_size(rows),), largest_term=2.0 ** (_TRIPLE_BITS + 1))
        self._cubes = np.zeros((rows, rows, rows), dtype=np.int64)
        self._products = np.zeros((rows * (rows + 1) // 2, rows), dtype=np.int64)
        self._weights = np.zeros(self.features, dtype=np.int64)
        self._documents = 0  # in the open parts, or shares

    @property
    def grid(self) -> int:
        """That of a part, times a share where documents have weights."""
        return -_TRIPLE_BITS - (_SHARE_BITS if self.weighted else 0)

    @property
    def unit(self) -> float:
        """What the released statistic is to be multiplied by."""
        return self.clip * self.rho**3

    @property
    def parameters(self) -> dict[str, float]:
        """How long a document's contribution is at most: 1, and what rounding may add."""
        return {"gain": 1.0 + triples_error(self.shape[0], self.clip)}

    @property
    def shape(self) -> tuple[int, ...]:
        return self._cubes.shape

    @property
    def size(self) -> int:
        return tensor_size(self.shape[0])

    def integers(self) -> Integers:
        self.flush()
        entries = sum_of(self._whole.integers(), self._open_entries())
        return tensor_from_entries(self.shape[0], entries)

    def _open_entries(self) -> NDArray[np.int64]:
        """The sum over documents that are not in a total yet, entries ``i >= j >= k``."""
        i, j, k = tensor_indices(self.shape[0])
        entries: NDArray[np.int64] = _weighted_cubes(self._words, self._weights)
        entries += self._cubes[i, j, k]
        for first, second, third in ((i, j, k), (i, k, j), (j, k, i)):  # first >= second
            entries -= self._products[first * (first + 1) // 2 + second, third]
        return entries

    def norms(self, documents: Documents) -> NDArray[np.float64]:
        """The contributions' lengths or bounds of them: n of :func:`triples_error`, rounded up."""
        return self._norms(documents, documents.counts @ self._words)

    def _norms(self, documents: Documents, seen: NDArray[np.float64]) -> NDArray[np.float64]:
        bound = self._bounds(documents, seen)
        few = np.diff(documents.counts.indptr) <= _FEW_WORDS
        if few.any():
            exact = _lengths(documents.taken(few), self._words)
            bound[few] = np.minimum(bound[few], np.maximum(exact, bound[few] * _LEAST_OF_BOUND))
        return bound

    def _bounds(self, documents: Documents, seen: NDArray[np.float64]) -> NDArray[np.float64]:
        """The bound n1 of all contributions' lengths."""
        counts, lengths, _ = documents
        length = lengths.astype(np.float64)
        spread = (counts @ self._squares) * 2.0**-_TABLE_BITS / length  # an exact sum
        squared = np.zeros(lengths.size)
        for column in seen.T:  # as one product, it could depend on the neighbours
            squared += column * column
        squared *= (2.0**-_WORD_BITS / length) ** 2
        others = (length - 1.0) * (length - 2.0)
        bound = length * length * squared * np.sqrt(squared)
        bound += 3.0 * length * spread * np.sqrt(spread)
        bound += 2.0 * np.maximum(spread, _LEAST_CUBE)
        return np.asarray(np.minimum(1.0, bound * ROUNDED_UP / others))

    def _add(self, documents: Documents) -> None:
        shares = shares_of(
            documents.weights, documents.lengths.size, weighted=self.weighted, bits=_SHARE_BITS
        )
        if shares is not None:
            order = np.argsort(shares, kind="stable")
            order = order[shares[order] > 0]
            if order.size == 0:
                return
            documents, shares = documents.taken(order), shares[order]
        counts, lengths, _ = documents
        alike = _alike(shares, lengths.size)
        self._count(sum(share * (part.stop - part.start) for part, share in alike))
        seen = counts @ self._words
        factors = _triple_factors(lengths)
        if self.clip < 1.0:
            factors = factors.larger(1.0 / np.maximum(self._norms(documents, seen), self.clip))
        for part, share in alike:
            for some in _cut(part, ROWS_A_PRODUCT):
                columns = np.rint(seen[some] * factors.cube[some, None]).T
                cubes = cube_sums(np.ascontiguousarray(columns)).astype(np.int64)
                self._cubes += share * cubes
        seen *= factors.single[:, None]
        np.rint(seen, out=seen)
        for pairs, table in self._tables():
            product = counts @ table
            product *= factors.pair[:, None]
            np.rint(product, out=product)
            for part, share in alike:
                for some in _cut(part, _CLIPPED_A_PRODUCT):
                    found = (product[some].T @ seen[some]).astype(np.int64)
                    self._products[pairs] += share * found
        weights = np.rint(factors.weight)
        if shares is not None:
            weights *= shares
        self._weights += (weights @ counts).astype(np.int64)

    def merge(self, other: Self) -> None:
        check_same_kind(self, other)
        other.flush()
        self._whole.merge(other._whole)
        self._count(other._documents)
        self._cubes += other._cubes
        self._products += other._products
        self._weights += other._weights

    def _count(self, documents: int) -> None:
        """Make room for the parts of so many documents more."""
        if self._documents + documents > _MOST_TRIPLES:
            self._whole.add(self._open_entries(), self._documents)
            for part in (self._cubes, self._products, self._weights):
                part.fill(0)
            self._documents = 0
        self._documents += documents

    def _tables(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Products of two entries of every word, ``i >= j``, rounded: some pairs at a time."""
        rows, start, first = self.shape[0], 0, 0
        while first < rows:
            last, width = first + 1, first + 1
            while last < rows and (width + last + 1) * self.features <= _TABLE_ENTRIES:
                last, width = last + 1, width + last + 1
            table = np.empty((self.features, width))
            end = 0
            for i in range(first, last):
                begin, end = end, end + i + 1
                np.multiply(
                    self._words[:, : i + 1], self._words[:, i : i + 1], out=table[:, begin:end]
                )
            table *= 2.0 ** (_TABLE_BITS - 2 * _WORD_BITS)
            np.rint(table, out=table)
            yield slice(start, start + width), table
            start, first = start + width, last


def _lengths(documents: Documents, words: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lengths of the contributions of documents of few different words, rounded up.

    With p = c / L, y = sum p_i u_i, q = sum p_i u_i(x)u_i, g_i = <u_i, y> and G_ij = <u_i, u_j>,

        (|T| / alpha)^2 = |y|^6 - 6/L |y|^2 sum p g^2 + 3/L^2 (|q|^2 |y|^2 + 2 |q y|^2)
                          + 4/L^2 sum p g^3 - 12/L^3 sum p_i g_i <u_i, q u_i> + 4/L^4 sum p p G^3.

    G is exact, being integers. All else is done number by number in a fixed order, so that it
    depends on a document alone, with fewer than 2^10 roundings of terms that add up to 5 at most.
    """
    counts, lengths, _ = documents
    sizes = np.diff(counts.indptr)
    found = np.empty(lengths.size)
    for size in np.unique(sizes).tolist():
        places = np.flatnonzero(sizes == size)
        step = max(1, _MOST_PRODUCTS // (size * max(size, words.shape[1])))
        for start in range(0, places.size, step):
            some = places[start : start + step]
            entries = counts.indptr[some][:, None] + np.arange(size)
            length = lengths[some].astype(np.float64)
            p = counts.data[entries] / length[:, None]
            own = words[counts.indices[entries]]
            gram = (own @ own.transpose(0, 2, 1)) * 2.0 ** (-2 * _WORD_BITS)
            found[some] = _length(p, gram, length)
    return found


def _length(
    p: NDArray[np.float64], gram: NDArray[np.float64], length: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The same of documents with as many different words, (n, m) and (n, m, m)."""
    size = p.shape[1]
    g, h, r, k = np.zeros((4, *p.shape))
    for j in range(size):
        g += p[:, j, None] * gram[:, :, j]
    for j in range(size):
        part, each = gram[:, :, j], p[:, j, None]
        square = part * part
        h += each * square
        r += each * (square * part)
        k += (each * g[:, j, None]) * part
    y, of_q, along, of_qy, cubes, mixed, own = np.zeros((7, length.size))
    for i in range(size):
        gi, pi = g[:, i], p[:, i]
        y += pi * gi
        along += pi * (gi * gi)
        of_q += pi * h[:, i]
        of_qy += pi * (gi * k[:, i])
        cubes += pi * (gi * gi * gi)
        mixed += pi * (gi * h[:, i])
        own += pi * r[:, i]
    once = 1.0 / length
    twice = once * once
    square = y * y * y - 6.0 * once * (along * y) + 3.0 * twice * (of_q * y + 2.0 * of_qy)
    square += 4.0 * twice * cubes - 12.0 * (once * twice) * mixed + 4.0 * (twice * twice) * own
    alpha = length * length / ((length - 1.0) * (length - 2.0))
    longest = alpha * np.sqrt(np.maximum(square, 0.0) + _OF_ROUNDING)
    return np.asarray(np.minimum(1.0, longest * ROUNDED_UP))


def _cut(part: slice, most: int) -> Iterator[slice]:
    """Neighbours, so many at the most."""
    for start in range(part.start, part.stop, most):
        yield slice(start, min(start + most, part.stop))


def _alike(shares: NDArray[np.int64] | None, documents: int) -> list[tuple[slice, int]]:
    """Neighbours of the same share, of shares in ascending order; all, where all count one."""
    if shares is None:
        return [(slice(0, documents), 1)]
    different, starts = np.unique(shares, return_index=True)
    ends = np.append(starts[1:], documents)
    found = zip(starts.tolist(), ends.tolist(), different.tolist(), strict=True)
    return [(slice(start, end), share) for start, end, share in found]


def _longest_row(basis: NDArray[np.float64]) -> float:
    """Length of the longest row, rounded up to 12 bits so that machines agree about it."""
    longest = math.sqrt(float(np.max(np.vecdot(basis, basis), initial=0.0)))
    mantissa, exponent = math.frexp(longest * (1.0 - 2.0**-40))
    return max(2.0**-60, math.ldexp(math.ceil(math.ldexp(mantissa, 12)), exponent - 12))


class _Factors(NamedTuple):
    """What sums over a document's words are multiplied by in each part."""

    cube: NDArray[np.float64]
    single: NDArray[np.float64]
    pair: NDArray[np.float64]
    weight: NDArray[np.float64]

    def larger(self, times: NDArray[np.float64]) -> _Factors:
        """Those of contributions so many times as large."""
        # one by one: what numpy makes of a number may depend on its place
        root = np.array([math.cbrt(each) for each in times.tolist()])
        return _Factors(
            self.cube * root, self.single * root, self.pair * (root * root), self.weight * times
        )


def _triple_factors(lengths: NDArray[np.int64]) -> _Factors:
    """Those of contributions that are not clipped: once a length, so that nothing else decides."""
    different, places = np.unique(lengths, return_inverse=True)
    factors = np.empty((4, different.size))
    for column, length in enumerate(different.tolist()):
        others = (length - 1) * (length - 2)
        root = math.cbrt(length / others)
        factors[:, column] = (
            math.ldexp(math.cbrt(length * length / others) / length, _CUBE_BITS - _WORD_BITS),
            math.ldexp(root / length, _FACTOR_BITS - _WORD_BITS),
            math.ldexp(root * root / length, _FACTOR_BITS - _TABLE_BITS),
            math.ldexp(2.0 / others, _FACTOR_BITS) / length,
        )
    return _Factors(*factors[:, places])


def _weighted_cubes(words: NDArray[np.float64], weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """``sum weight u(x)u(x)u`` over words, modulo 2**64, of rounded cubes, ``i >= j >= k``."""
    rows = words.shape[1]
    total = np.zeros(tensor_size(rows), dtype=np.int64)
    used = np.flatnonzero(weights)
    step = max(1, _TABLE_ENTRIES // rows)
    for begin in range(0, used.size, step):
        some = used[begin : begin + step]
        own, weight = words[some], weights[some]
        start = 0
        for i in range(rows):
            for j in range(i + 1):
                pair = own[:, i] * own[:, j] * 2.0 ** (_FACTOR_BITS - 3 * _WORD_BITS)
                cubes = np.rint(pair[:, None] * own[:, : j + 1]).astype(np.int64)
                total[start : start + j + 1] += weight @ cubes
                start += j + 1
    return total
