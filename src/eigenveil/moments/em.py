"""Sums of expectation maximisation: what rows add to the components of a released mixture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments.accumulators import Accumulator, counted
from eigenveil.moments.exact import (
    Description,
    ExactSum,
    Integers,
    MixtureSpec,
    Spec,
    Squares,
    largest_of,
    spec_of,
)
from eigenveil.moments.norms import FloatArray, integer_rows, squared_norms, upper_norms
from eigenveil.moments.rows import Block, RowRule
from eigenveil.privacy.statistics import StatisticName

# What counts and squares count beside means, of a sensitivity of 1.
COUNT_WEIGHT, SQUARE_WEIGHT = 0.25, 0.625
# The same in eighths: of squares, and of products of two columns, which count sqrt(2) in the
# isometric norm and here a little less: 7/5.
_OF_SQUARES, _OF_PRODUCTS, _EIGHTHS = 5, 7, 3
PRODUCT_PART = _OF_PRODUCTS / (_OF_SQUARES * math.sqrt(2.0))
"""What is released of a product of two columns, of what isometric coordinates would have."""
# Bits of an entry and of a responsibility: with squares, and without.
_WITH_SQUARES, _WITHOUT = (10, 13), (16, 16)
# Bits of the longest column of a component's factor: products with rows are then exact.
_FACTOR_BITS = 30
FARTHEST_MEAN, LARGEST_FACTOR, SMALLEST_REACH, LARGEST_LOG = 8.0, 2.0**40, 2.0**-20, 1e6
"""Of a mixture, in units of prepared rows: within these all sums are exact."""
# So far from the largest, a logarithm's exponential is nothing of 2**-16.
_NOTHING = -40.0
# Responsibilities lose this part, more than rounding adds, so that they never exceed a row's share.
_LESS = 1.0 - 2.0**-30
# Products of 33 bits are added up exactly in double precision.
_ROWS_A_PRODUCT = 1 << 19

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mixture:
    """A released mixture, as rows are compared with it: in units of prepared rows."""

    means: Array
    logs: Array  # Logarithm of each component's weight times the determinant of its factor
    # W with `W W' = inverse covariance`: a number, a diagonal, or a matrix for each component
    factors: Array
    reaches: Array  # Rows farther from a mean are shortened to this

    @property
    def arrays(self) -> dict[str, Array]:
        return dict(vars(self))


def coordinates_of(squares: Squares, components: int, features: int) -> int:
    """How many numbers are released: means, counts, squares."""
    triangle = features * (features + 1) // 2
    return (
        components * (features + 1)
        + {
            "none": 0,
            "trace": components,
            "diag": components * features,
            "full": components * triangle,
            "tied": triangle,
        }[squares]
    )


class EMSums(Accumulator):
    """``sum g_k y_k``, ``c sum g_k`` and ``b sum g_k y_k y_k'`` for every component k.

    ``g`` are the responsibilities of the components for a row, ``y_k`` the row less the mean of
    component k, shortened to its reach and divided by it. All follow from the row's own numbers and
    from a mixture that is public or released (docs/proofs/em-sums.md). A zero row adds nothing.
    """

    statistic: StatisticName = "em-sums"
    adds = ("_counts", "_means", "_squares")

    def __init__(
        self, rule: RowRule, mixture: Mixture, *, squares: Squares, weighted: bool = False
    ) -> None:
        self.rule, self.mixture, self.squares, self.weighted = rule, mixture, squares, weighted
        bits = _WITHOUT if squares == "none" else _WITH_SQUARES
        self._entry_bits, self._share_bits = bits
        count, features = mixture.means.shape
        self._centers = np.rint(np.ldexp(mixture.means, rule.bits))
        self._reaches = np.ldexp(mixture.reaches, rule.bits)
        self._factors, self._units = _integer_factors(mixture.factors, rule.bits)
        whole = math.ldexp(1.0, self._share_bits)
        entry = math.ldexp(whole, self._entry_bits)
        self._counts = ExactSum((count,), largest_term=whole)
        self._means = ExactSum((count, features), largest_term=entry)
        self._squares = ExactSum(
            (coordinates_of(squares, count, features) - count * (features + 1),),
            largest_term=math.ldexp(entry, self._entry_bits),
        )

    @property
    def grid(self) -> int:
        """That of a share times one entry, or times two and an eighth."""
        entries = self._entry_bits * (1 if self.squares == "none" else 2)
        return -self._share_bits - entries - (0 if self.squares == "none" else _EIGHTHS)

    @property
    def parameters(self) -> dict[str, float]:
        """The weights of counts and of squares."""
        weight = 0.0 if self.squares == "none" else SQUARE_WEIGHT
        return {"count_weight": COUNT_WEIGHT, "square_weight": weight}

    @property
    def shape(self) -> tuple[int, ...]:
        return (coordinates_of(self.squares, *self.mixture.means.shape),)

    def merge_key(self) -> tuple[Any, ...]:
        own = (self.squares, self.weighted)
        return (*self.rule.merge_key(), *own, *self.mixture.arrays.values())

    def spec(self) -> Spec:
        forms = {1: "spherical", self.mixture.means.shape[1]: "diag"}
        form = "full" if self.mixture.factors.ndim == 3 else forms[self.mixture.factors.shape[1]]
        known = MixtureSpec(components=self.mixture.means.shape[0], squares=self.squares, form=form)
        spec = spec_of(self.rule, weighted=self.weighted, mixture=known)
        arrays = self.mixture.arrays
        arrays["factors"] = arrays["factors"].reshape(
            known.shapes(arrays["means"].shape[1])["factors"]
        )
        return Spec(spec.fields, {**spec.arrays, **arrays})

    @classmethod
    def from_spec(cls, d: Description, known: Mapping[str, Any]) -> Self:
        assert d.mixture is not None
        arrays = {name: np.array(known["arrays"][name]) for name in d.mixture.shapes(d.features)}
        if d.mixture.form == "full":
            arrays["factors"] = arrays["factors"].reshape(-1, d.features, d.features)
        mixture = Mixture(**arrays)
        return cls(known["rule"], mixture, squares=d.mixture.squares, weighted=d.weighted)

    def update(self, block: Block) -> None:
        rows, _ = self.rule(block, weighting="none")
        shares = counted(block, weighted=self.weighted, bits=self._share_bits)
        for start in range(0, rows.shape[0], _ROWS_A_PRODUCT):
            part = slice(start, start + _ROWS_A_PRODUCT)
            some = rows[part].astype(np.float64, copy=False)
            self._add(some, None if shares is None else shares[part])

    def _add(self, rows: Array, shares: NDArray[np.int64] | None) -> None:
        held = self._responsibilities(rows, shares)
        count = rows.shape[0]
        counts, means = np.zeros(self._counts.shape), np.zeros(self._means.shape)
        squares: list[Array] = []
        for k, center in enumerate(self._centers):
            there = np.flatnonzero(held[k])
            parts, apart = held[k][there], rows[there] - center
            longest = np.maximum(upper_norms(apart), self._reaches[k])
            radius = math.ldexp(1.0, self._entry_bits)
            seen, _ = integer_rows(apart, radius / longest, radius * radius)
            weighed = seen * parts[:, None]
            counts[k] = parts.sum()
            means[k] = np.ones(there.size) @ weighed
            squares.append(self._products(seen, weighed))
        self._counts.add(counts, count)
        self._means.add(means, count)
        if self.squares == "tied":
            self._squares.add(sum(squares[1:], squares[0]), count)
        elif self.squares != "none":
            self._squares.add(np.concatenate(squares), count)

    def _products(self, seen: FloatArray, weighed: FloatArray) -> Array:
        """The numbers that squares of integer rows make."""
        match self.squares:
            case "none":
                return np.empty(0)
            case "trace":
                return np.array([np.einsum("ij,ij->j", seen, weighed).sum()])
            case "diag":
                return np.asarray(np.einsum("ij,ij->j", seen, weighed))
            case _:
                return np.asarray((weighed.T @ seen)[np.tri(seen.shape[1], dtype=bool)])

    def _responsibilities(self, rows: Array, shares: NDArray[np.int64] | None) -> Array:
        """Whole numbers (K, n), of each row its share together; 0 of a zero row."""
        scores = [
            log - 0.5 * squares
            for log, squares in zip(self.mixture.logs, self._distances(rows), strict=True)
        ]
        # one component after the other: a sum over an axis may be taken in any order
        largest = scores[0]
        for each in scores[1:]:
            largest = np.maximum(largest, each)
        parts = [exponential(each - largest) for each in scores]
        total = parts[0]
        for each in parts[1:]:
            total = total + each
        whole = np.full(rows.shape[0], math.ldexp(1.0, self._share_bits))
        if shares is not None:
            whole = shares.astype(np.float64)
        whole = np.where(rows.any(axis=1), whole, 0.0)
        held = np.array([np.floor(each / total * (whole * _LESS)) for each in parts])
        # what rounding down leaves is the likeliest component's: small shares would lose much of it
        left = whole - held.sum(axis=0)
        held[np.argmax(scores, axis=0), np.arange(rows.shape[0])] += left
        return held

    def _distances(self, rows: Array) -> Iterator[Array]:
        """Squared distances from each component, in its deviations."""
        if self._factors.ndim == 2 and self._factors.shape[1] == 1:
            # exact: squares below 2**44, and products with rows
            squares, cross = squared_norms(rows), rows @ self._centers.T
            for k, center in enumerate(self._centers):
                whole = squares - 2.0 * cross[:, k] + float(center @ center)
                yield whole * (self._units[k] * self._units[k])
            return
        for k, center in enumerate(self._centers):
            apart = rows - center
            if self._factors.ndim == 3:
                apart = apart @ self._factors[k]  # exact: 2**22 times 2**30
            else:
                apart *= self._factors[k]
            distances = upper_norms(apart) * self._units[k]
            yield distances * distances

    def integers(self) -> Integers:
        counts = _times(self._counts.integers(), 1 << (-self.grid - self._share_bits - 2))
        means = _times(
            self._means.integers().ravel(), 1 << (-self.grid - self._share_bits - self._entry_bits)
        )
        if self.squares == "none":
            return np.concatenate([means, counts])
        squares = self._squares.integers()
        if self.squares in ("trace", "diag"):
            return np.concatenate([means, counts, _times(squares, _OF_SQUARES)])
        features = self._centers.shape[1]
        rows, columns = np.tril_indices(features)
        factors = np.where(rows == columns, _OF_SQUARES, _OF_PRODUCTS)
        factors = np.tile(factors, squares.size // factors.size)
        return np.concatenate([means, counts, _times(squares, factors)])


def _times(integers: Integers, factor: int | NDArray[np.int64]) -> Integers:
    """Integers times whole numbers: Python's, where 64 bits might not hold them."""
    if largest_of(integers) * float(np.max(factor)) > 2.0**62:
        integers = integers.astype(object)
    return np.asarray(integers * factor)


def _integer_factors(factors: Array, bits: int) -> tuple[Array, Array]:
    """Factors, rounded to integers where they are matrices, and the unit of a distance in each."""
    units = np.full(factors.shape[0], math.ldexp(1.0, -bits))
    if factors.ndim == 2:
        return (factors, units) if factors.shape[1] > 1 else (factors, units * factors[:, 0])
    longest = np.sqrt(np.max(np.sum(factors * factors, axis=1), axis=1))
    exponents = _FACTOR_BITS - np.frexp(longest)[1]
    whole = np.rint(np.ldexp(factors, exponents[:, None, None]))
    return whole, np.ldexp(units, -exponents)


# exp(r) on |r| <= ln(2)/2, to 2**-40
_TERMS = tuple(1.0 / math.factorial(n) for n in range(10, -1, -1))
_LN2 = math.log(2.0)


def exponential(values: Array) -> Array:
    """``exp`` of numbers from -40 to 0, to 2**-40 of it; 0 of smaller ones."""
    # by itself of each number: what a library makes of one may depend on its place in the array
    clipped = np.maximum(values, _NOTHING)
    powers = np.rint(clipped * (1.0 / _LN2))
    rest = clipped - powers * _LN2
    found = np.full(values.shape, _TERMS[0])
    for term in _TERMS[1:]:
        found *= rest
        found += term
    return np.where(values < _NOTHING, 0.0, np.ldexp(found, powers.astype(np.int32)))
