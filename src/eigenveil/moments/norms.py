"""Norms that no processor, alignment or neighbour changes: results of a definition.

The exact squared norm, rounded up to the next of a fixed sequence of numbers. Any order of
summation shows where it lies up to a proved error; where that leaves two numbers to choose from, it
is summed up more exactly (docs/proofs/release-grid.md, claim 6).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.moments import loops

FloatArray = loops.FloatArray
_NONE = np.zeros(0, dtype=np.intp)

# Numbers to which squared norms are rounded up, in every octave: 2**8 for rows in single precision,
# whose entries are rounded to 2**-9 anyway, and 2**24 for those in double precision.
_STEP_BITS: dict[Any, int] = {np.dtype(np.float32): 8, np.dtype(np.float64): 24}

# Unit roundoff, and between which computed squares underflow and overflow cost nothing that counts.
_ROUNDOFF: dict[Any, float] = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}

_RANGE: dict[Any, tuple[float, float]] = {
    np.dtype(np.float32): (2.0**-86, 2.0**127),
    np.dtype(np.float64): (2.0**-900, 2.0**1000),
}

# Squares that are added up in single precision before their sum moves to double; of shorter rows,
# the loop that is not BLAS's is faster.
_PIECE, _SHORT = 1024, 48

_MANTISSA = 52

# Where in a step the numbers lie: as far as can be from squared norms with few digits, such as 1.
_SHIFTED = 0.38


def upper_norms(rows: FloatArray) -> NDArray[np.float64]:
    """Euclidean norms, rounded up by less than ``2**-9`` (single) or ``2**-25`` (double)."""
    return _rounded_up(rows, _STEP_BITS[rows.dtype])


def _rounded_up(rows: FloatArray, bits: int) -> NDArray[np.float64]:
    """The same with ``2**bits`` numbers an octave."""
    norms = _settled_norms(rows, bits)
    if math.isnan(norms.max(initial=0.0)):
        unsettled = np.flatnonzero(np.isnan(norms))
        some = rows[unsettled]
        if rows.dtype == np.float32:  # squares are exact in double precision
            norms[unsettled] = _rounded_up(some.astype(np.float64), bits)
        else:
            finite = np.isfinite(some).all(axis=1)
            norms[unsettled] = np.where(finite, 0.0, np.nan)
            for place in np.flatnonzero(finite & some.any(axis=1)):
                norms[unsettled[place]] = _exactly(some[place].tolist(), bits)
    return norms


def _settled_norms(rows: FloatArray, bits: int) -> NDArray[np.float64]:
    """The same, and NaN where the squares in some order of summation do not settle it."""
    # a relative error is at most twice as large in units of the last of 52 bits
    near = math.ceil(_error(rows) * 2.0 ** (_MANTISSA + 1)) + 2
    if loops.takes(rows):
        norms, shift = np.empty(rows.shape[0]), int(_steps(bits)[1])
        loops.COMPILED.norms(rows, norms, bits, shift, near, *_RANGE[rows.dtype])
        return norms
    with np.errstate(over="ignore", invalid="ignore"):
        squares = _squares(rows)
        norms = _next_numbers(squares, bits)
        np.sqrt(norms, out=norms)
    norms[~_settled(squares, near, bits, _RANGE[rows.dtype])] = np.nan
    return norms


def _squares(rows: FloatArray) -> NDArray[np.float64]:
    """Squared norms in some order of summation: off by at most :func:`_error` of them."""
    if rows.dtype == np.float64:
        return np.asarray(squared_norms(rows), dtype=np.float64)
    if rows.shape[1] <= _PIECE:
        return np.asarray(squared_norms(rows).astype(np.float64))
    total = np.zeros(rows.shape[0])
    for start in range(0, rows.shape[1], _PIECE):
        total += squared_norms(rows[:, start : start + _PIECE])
    return total


def squared_norms(rows: FloatArray) -> FloatArray:
    """Sums of squares in some order: exact for integers whose squares add up exactly."""
    if rows.shape[1] < _SHORT:
        return np.asarray(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(np.vecdot(rows, rows))


def _error(rows: FloatArray) -> float:
    """How far squared norms within the range may be off, as a part of them, in any order."""
    # n u / (1 - n u), fused or not (Higham 2002, 3.1); in single precision what underflows is less
    # than 2**-126 each of 2**-86 or more
    width: int = rows.shape[1]
    if rows.dtype == np.float64:
        return 1.01 * (width + 2) * _ROUNDOFF[rows.dtype]
    return 1.01 * (min(width, _PIECE) + 2) * _ROUNDOFF[rows.dtype] + width * 2.0**-38


def _steps(bits: int) -> tuple[np.int64, np.int64]:
    """A step as a difference of two doubles' bit patterns, and where the numbers lie in it."""
    step = 1 << (_MANTISSA - bits)
    return np.int64(step), np.int64(int(_SHIFTED * step))


def _next_numbers(squares: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """The first number of the sequence above each."""
    step, shift = _steps(bits)
    patterns = squares.view(np.int64) + shift
    patterns |= step - 1
    patterns += 1 - shift
    return patterns.view(np.float64)


def _settled(
    squares: NDArray[np.float64], near: int, bits: int, within: tuple[float, float]
) -> NDArray[np.bool_]:
    """Whether no number of the sequence is so near that it may be on the other side."""
    step, shift = _steps(bits)
    places = squares.view(np.int64) + shift
    places &= step - 1
    places -= near  # what was less is now larger than any place, without a sign
    settled = np.asarray(places.view(np.uint64) < np.uint64(max(0, int(step) - 2 * near)))
    lowest, highest = within
    if not (squares.min(initial=highest) >= lowest and squares.max(initial=lowest) <= highest):
        settled &= (squares >= lowest) & (squares <= highest)  # some are not, or are no numbers
    return settled


def _exactly(row: list[float], bits: int) -> float:
    """The norm of a row of finite numbers, not all 0, by exact arithmetic."""
    square = sum((Fraction(entry) ** 2 for entry in row), Fraction(0))
    half = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    square /= Fraction(4) ** half  # between 1/4 and 8
    above = _next_number(float(square) * (1.0 - 2.0**-40), bits)
    while Fraction(above) <= square:
        above = _next_number(above, bits)
    try:
        return math.ldexp(math.sqrt(above), half)
    except OverflowError:
        return float(np.finfo(np.float64).max)


def _next_number(square: float, bits: int) -> float:
    return float(_next_numbers(np.array([square]), bits)[0])


# Times that a row which rounding made too long is shortened; one or two do.
_MENDS = 8


def integer_rows(
    rows: FloatArray,
    factors: NDArray[np.float64],
    limits: NDArray[np.float64] | float,
    out: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Rows times their factors, rounded to integers with no squared norm above ``limits``.

    With the exact squared norms; each a function of its row and limit alone. ``factors`` may be
    written to.
    """
    rounded = np.empty_like(rows) if out is None else out
    narrow = factors.astype(rows.dtype, copy=False)
    squares, longer = _times_factors(rows, factors, limits, rounded)
    long = np.flatnonzero(squares > limits) if longer else _NONE
    for attempt in range(_MENDS):
        if long.size == 0:
            return rounded, squares
        limit = limits[long] if isinstance(limits, np.ndarray) else limits
        if attempt < _MENDS - 1:  # shorten by what the rounding added, and a little more
            less = 1.0 - 0.5 / np.sqrt(np.maximum(limit, 1.0))
            narrow[long] *= np.sqrt(limit / squares[long]) * less
            rounded[long] = np.rint(rows[long] * narrow[long, None])
        else:  # rounding towards zero is shorter for certain
            rounded[long] = np.trunc(rows[long] * narrow[long, None])
        squares[long] = squared_norms(rounded[long])
        long = long[squares[long] > limit]
    if long.size:
        raise AssertionError("a prepared row is longer than its bound: a defect")
    return rounded, squares


def _times_factors(
    rows: FloatArray,
    factors: NDArray[np.float64],
    limits: NDArray[np.float64] | float,
    rounded: FloatArray,
) -> tuple[FloatArray, int]:
    """Rows times factors, rounded, into ``rounded``: their squares, and whether one is longer."""
    if loops.takes(rows, rounded) and rows.size:
        squares = np.empty(rows.shape[0], rows.dtype)
        each, most = (limits, 0.0) if isinstance(limits, np.ndarray) else (None, float(limits))
        return squares, loops.COMPILED.rounded(rows, factors, each, most, rounded, squares)
    np.multiply(rows, factors.astype(rows.dtype, copy=False)[:, None], out=rounded)
    np.rint(rounded, out=rounded)
    squares = squared_norms(rounded)
    return squares, int(np.count_nonzero(squares > limits))


def within_range(
    rows: FloatArray, longest: NDArray[np.float64]
) -> tuple[FloatArray, NDArray[np.float64]]:
    """Rows whose factor would leave the arithmetic's range, moved to unit size by powers of 2."""
    if longest.min(initial=1.0) >= 1e-30 and longest.max(initial=1.0) <= 1e30:
        return rows, longest
    extreme = np.flatnonzero((longest < 1e-30) | ((longest > 1e30) & np.isfinite(longest)))
    if extreme.size == 0:
        return rows, longest
    _, exponents = np.frexp(longest[extreme])
    moved = np.array(rows)
    moved[extreme] = np.ldexp(rows[extreme], -exponents[:, None].astype(np.int32))
    longest[extreme] = np.ldexp(longest[extreme], -exponents)
    return moved, longest
