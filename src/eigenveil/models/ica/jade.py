"""Independent directions of a tensor of fourth cumulants (Cardoso and Souloumiac 1993)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Sweeps over all pairs of directions, and the angle that ends them; of those from a start.
_SWEEPS, _ANGLE, _NEAR = 100, 1e-9, 1e-4
# What is left of a direction's variance, at least, where the fourth moment says that it is less.
_LEAST = 0.05
# Excess kurtosis is seen that exceeds so many deviations of its noise; of m directions so many
# times the root of m. Of noise alone a joint diagonaliser takes the directions that show most: of
# 2 to 20 all but one of a hundred times the largest was below 1.45 times the root (simulated).
_SEEN, _SEEN_OF_SEVERAL = 3.0, 1.5


def symmetric_quartic(products: Array, size: int) -> Array:
    """The symmetric tensor (K, K, K, K) of a matrix of products of two.

    ``products`` is ``sum y y'`` of rows y of all ``z_i z_j``, lower triangle by rows, those of two
    different entries times the root of 2. What noise has added is projected on symmetric tensors:
    isometric noise stays isometric there.
    """
    first, second = np.tril_indices(size)
    root = np.where(first == second, 1.0, math.sqrt(2.0))
    plain = products / np.multiply.outer(root, root)
    place = np.zeros((size, size), dtype=np.intp)
    place[first, second] = place[second, first] = np.arange(first.size)
    whole = plain[place[:, :, None, None], place[None, None]]
    return np.asarray((whole + whole.transpose(0, 2, 1, 3) + whole.transpose(0, 3, 2, 1)) / 3.0)


def cumulants(moment: Array, second: Array) -> Array:
    """Fourth cumulants of rows with these fourth and second moments, all (K, ...)."""
    return moment - 0.5 * symmetric(second, second)


def symmetric(one: Array, other: Array) -> Array:
    """The sum of products of two symmetric matrices over all six ways to share four places."""
    found = np.zeros(one.shape * 2)
    for pairs in ("ij,kl->ijkl", "ik,jl->ijkl", "il,jk->ijkl"):
        found += np.einsum(pairs, one, other) + np.einsum(pairs, other, one)
    return found


class Separated(NamedTuple):
    """Sources of rows of which a fourth moment is known."""

    unmixing: Array  # (K, K): of rows
    mixing: Array  # Its inverse, the maps in columns
    kurtosis: Array  # Excess kurtosis of each, in the moment's units
    level: float  # Variance of a direction in these units: 1 but for what was shortened
    turn: Array  # The rotation, once rows are white


def separated(fourth: Array, start: Array | None = None) -> Separated:
    """Sources by the fourth moment (K, K, K, K) of rows that are nearly white.

    ``start`` is a rotation to begin from.
    """
    count = fourth.shape[0]
    second = np.einsum("ijkk->ij", fourth) / (count + 2)  # of Gaussian rows, shortened alike
    # scaled so that its products have the tensor's trace
    trace = float(np.einsum("iijj", fourth))
    products = float(np.trace(second)) ** 2 + 2.0 * float(np.sum(second**2))
    second = second * math.sqrt(max(trace, 0.0) / max(products, np.finfo(float).tiny))
    level = float(np.trace(second) / count)
    # what the released variances are off by shows here: rows are whitened once more
    values, vectors = np.linalg.eigh(second)
    values = np.maximum(values / values.mean(), _LEAST)
    again, back = ((vectors * values**power) @ vectors.T for power in (-0.5, 0.5))
    for axis in range(4):
        fourth = np.moveaxis(np.tensordot(fourth, again, axes=(axis, 0)), -1, axis)
    second = again @ second @ again
    turn = jointly_diagonal(cumulants(fourth, second), start)
    squares = (turn[:, None] * turn[None]).reshape(count * count, count)
    own = np.sum(fourth.reshape(count * count, -1) @ squares * squares, axis=0)
    spread = np.einsum("ij,ip,jp->p", second, turn, turn)
    return Separated(turn.T @ again, back @ turn, own - 3.0 * spread**2, level, turn)


def told_apart(kurtosis: Array, error: float) -> NDArray[np.bool_]:
    """Which sources show a kurtosis that noise alone, of this deviation, does not.

    All do where all but one do: that one is what the others leave.
    """
    sizes = np.sort(np.abs(kurtosis))
    several = np.sqrt(np.arange(1.0, sizes.size + 1.0))
    below = np.flatnonzero(sizes < np.maximum(_SEEN, _SEEN_OF_SEVERAL * several) * error)
    if below.size == 0 or below[-1] == 0:
        return np.ones(sizes.size, dtype=np.bool_)
    return np.asarray(np.abs(kurtosis) > sizes[below[-1]])


def jointly_diagonal(tensor: Array, start: Array | None = None) -> Array:
    """An orthonormal basis, in columns, in which a tensor's leading eigenmatrices are diagonal.

    As nearly as rotations of pairs of columns make them; from ``start`` on to four digits.
    """
    size = tensor.shape[0]
    flat = tensor.reshape(size * size, size * size)
    values, vectors = np.linalg.eigh(0.5 * (flat + flat.T))
    leading = np.argsort(-np.abs(values), kind="stable")[:size]
    stack = np.array([values[i] * vectors[:, i].reshape(size, size) for i in leading])
    stack = 0.5 * (stack + stack.transpose(0, 2, 1))
    basis, least = np.eye(size), _ANGLE
    if start is not None:
        basis, stack, least = start.copy(), start.T @ stack @ start, _NEAR
    for _ in range(_SWEEPS):
        turned = 0.0
        for p in range(size - 1):
            for q in range(p + 1, size):
                angle = _angle(stack, p, q)
                if abs(angle) > least:
                    turn = np.array(
                        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
                    )
                    stack[:, :, [p, q]] = stack[:, :, [p, q]] @ turn
                    stack[:, [p, q], :] = turn.T @ stack[:, [p, q], :]
                    basis[:, [p, q]] = basis[:, [p, q]] @ turn
                turned = max(turned, abs(angle))
        if turned <= least:
            break
    return basis


def _angle(stack: Array, p: int, q: int) -> float:
    """The rotation that makes what is off the diagonal at p and q least, of all matrices."""
    parts = np.array([stack[:, p, p] - stack[:, q, q], 2.0 * stack[:, p, q]])
    gram = parts @ parts.T
    on, off = float(gram[0, 0] - gram[1, 1]), 2.0 * float(gram[0, 1])
    return 0.5 * math.atan2(off, on + math.hypot(on, off))


def separation_error(gain: Array) -> float:
    """Moreau-Amari index of a square matrix of recovered against true sources; 0: all are found."""
    sizes = np.abs(gain)
    count = len(sizes)
    if count == 1:
        return 0.0
    rows = (sizes / sizes.max(axis=1, keepdims=True)).sum() - count
    columns = (sizes / sizes.max(axis=0, keepdims=True)).sum() - count
    return float(rows + columns) / (2.0 * count * (count - 1))
