"""Sensitivities of sum-form statistics of rows with norm at most 1: one function a statistic.

Each takes the adjacency and returns how far the statistic can move between neighbours, in the
isometric (Frobenius) L2 norm; the ``_l1`` functions in the L1 norm (privacy.md, section 3).
The tests search for the worst neighbours and compare.
"""

from __future__ import annotations

import math

from eigenveil.privacy.guarantee import Adjacency

SQRT2 = math.sqrt(2.0)


def row_sum(adjacency: Adjacency, *, count_weight: float = 0.0) -> float:
    """Sum of rows ``x``, with the row count as a further coordinate of weight ``count_weight``.

    Under replace-one the count does not move, whatever its weight.
    """
    return math.hypot(1.0, count_weight) if adjacency == "add-remove" else 2.0


def norm_histogram(adjacency: Adjacency) -> float:
    """Histogram of row norms; add-remove also releases the count (one coordinate more)."""
    del adjacency  # (bin, count) moves by (1, 1); a replaced row moves two bins by 1
    return SQRT2


def norm_histogram_l1(adjacency: Adjacency) -> float:
    """The same in L1: one bin and the count, or two bins."""
    del adjacency
    return 2.0


def second_moment(adjacency: Adjacency) -> float:
    """``X.T @ X`` in the Frobenius norm: |xx' - yy'|_F <= sqrt(2), reached at orthogonal x, y."""
    return 1.0 if adjacency == "add-remove" else SQRT2


def sketch(adjacency: Adjacency, *, clip: float) -> float:
    """``sum x p(x).T`` with |p| <= clip, in the Frobenius norm."""
    return clip if adjacency == "add-remove" else 2.0 * clip


def component_energy(adjacency: Adjacency, *, gain: float, count_weight: float = 0.0) -> float:
    """Squares of the row along released components, the rest of its energy, and the count.

    A row contributes a non-negative vector whose entries add up to at most ``gain`` (1 for exactly
    orthonormal components): its L2 norm is at most ``gain``, and two such vectors are at most
    ``sqrt(2) gain`` apart.
    """
    return math.hypot(gain, count_weight) if adjacency == "add-remove" else SQRT2 * gain


def component_energy_l1(adjacency: Adjacency, *, gain: float, count_weight: float = 0.0) -> float:
    """The same in L1."""
    return gain + count_weight if adjacency == "add-remove" else 2.0 * gain


def bingham_score(adjacency: Adjacency) -> float:
    """Factor by which the exponential mechanism's exponent must be divided.

    The score ``u.T A u`` is monotone and moves by at most 1 under add-remove, so
    ``exp(epsilon * score)`` is epsilon-DP; under replace-one ``exp(epsilon/2 * score)`` is.
    """
    return 1.0 if adjacency == "add-remove" else 2.0


def trace(adjacency: Adjacency) -> float:
    """Sensitivity of a second moment, or of pairs of words, in the nuclear norm.

    Adding a row adds a positive semi-definite matrix of trace at most 1, adding a document a
    symmetric one of nuclear norm at most 1; replacing one is a removal and an addition.
    """
    return 1.0 if adjacency == "add-remove" else 2.0


def third_moment(adjacency: Adjacency, *, rows: int, variance: float) -> float:
    """``sum y(x)y(x)y - variance (y(x)I + two permutations)``, y in R^rows, in the Frobenius norm.

    With x = |y|^2 a row contributes a tensor of squared norm
    ``x^3 - 6 variance x^2 + (3 rows + 6) variance^2 x``, which grows up to x = 1, but for rows = 1,
    where it is ``x (x - 3 variance)^2`` and has a top at x = variance. The tensor of -y is the
    opposite of that of y.
    """
    if rows == 1 and 0.25 < variance < 1.0:
        farthest = 2.0 * variance * math.sqrt(variance)
    elif rows == 1:
        farthest = abs(1.0 - 3.0 * variance)
    else:
        farthest = math.sqrt(1.0 - 6.0 * variance + (3.0 * rows + 6.0) * variance * variance)
    return farthest if adjacency == "add-remove" else 2.0 * farthest


def document_pairs(adjacency: Adjacency) -> float:
    """Pairs of a document's words, in the Frobenius norm: no entry is negative, the norm at most 1.

    Reached by documents of one word again and again.
    """
    return 1.0 if adjacency == "add-remove" else SQRT2


def document_sketch(adjacency: Adjacency, *, gain: float, clip: float = 1.0) -> float:
    """The same pairs times a public matrix whose rows are no longer than ``gain``.

    For documents of three words or more: ``a a`` and ``a b`` with opposite rows would be sqrt(5/2)
    apart (docs/proofs/documents.md, claim 3). The 2**-22 is for entries rounded towards zero.
    Contributions that are clipped to below the longest, and are in units of ``clip``, can be
    opposite.
    """
    if adjacency == "add-remove":
        return gain
    return (SQRT2 + 2.0**-22 if clip == 1.0 else 2.0) * gain


def document_triples(adjacency: Adjacency, *, gain: float) -> float:
    """Triples of a document's words seen through a matrix; no triple is longer than ``gain``.

    Two words with opposite rows are twice as far apart.
    """
    return gain if adjacency == "add-remove" else 2.0 * gain
