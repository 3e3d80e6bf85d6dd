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


def wishart_trace(adjacency: Adjacency) -> float:
    """Nuclear-norm sensitivity that the Wishart difference is calibrated to.

    Adding a row adds a positive semi-definite matrix of trace at most 1; replacing one is a removal
    and an addition.
    """
    return 1.0 if adjacency == "add-remove" else 2.0
