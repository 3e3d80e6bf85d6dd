"""Independent directions of a tensor of fourth cumulants (Cardoso and Souloumiac 1993)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Sweeps over all pairs of directions, and the angle that ends them.
_SWEEPS, _ANGLE = 100, 1e-9


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
    found = moment.copy()
    for pairs in ("ij,kl->ijkl", "ik,jl->ijkl", "il,jk->ijkl"):
        found -= np.einsum(pairs, second, second)
    return found


def jointly_diagonal(tensor: Array) -> Array:
    """An orthonormal basis, in columns, in which a tensor's leading eigenmatrices are diagonal.

    As nearly as rotations of pairs of columns make them.
    """
    size = tensor.shape[0]
    flat = tensor.reshape(size * size, size * size)
    values, vectors = np.linalg.eigh(0.5 * (flat + flat.T))
    leading = np.argsort(-np.abs(values), kind="stable")[:size]
    stack = np.array([values[i] * vectors[:, i].reshape(size, size) for i in leading])
    stack = 0.5 * (stack + stack.transpose(0, 2, 1))
    basis = np.eye(size)
    for _ in range(_SWEEPS):
        turned = 0.0
        for p in range(size - 1):
            for q in range(p + 1, size):
                angle = _angle(stack, p, q)
                if abs(angle) > _ANGLE:
                    turn = np.array(
                        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
                    )
                    stack[:, :, [p, q]] = stack[:, :, [p, q]] @ turn
                    stack[:, [p, q], :] = turn.T @ stack[:, [p, q], :]
                    basis[:, [p, q]] = basis[:, [p, q]] @ turn
                turned = max(turned, abs(angle))
        if turned <= _ANGLE:
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
