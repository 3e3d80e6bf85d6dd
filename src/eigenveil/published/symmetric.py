"""Noise on the unique entries of symmetric arrays, as the papers draw it, and ranks as they take.

The papers draw every unique entry with the same deviation. The isometric choice, off-diagonal
entries sqrt(2) smaller, has the same guarantee (:mod:`eigenveil.noise`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy.sparse.linalg
from numpy.typing import NDArray

from eigenveil.linalg.eigen import fix_signs, leading_eigenpairs
from eigenveil.linalg.threads import small_matrix_threads
from eigenveil.published.result import FloatArray

RankBy = Literal["magnitude", "value"]

_LANCZOS_FROM = 600  # below, all eigenpairs at once are as fast


def unique_entries(size: int, modes: int) -> int:
    """Unique entries of a symmetric array with ``modes`` modes of ``size``."""
    return math.comb(size + modes - 1, modes)


def mirrored(entries: FloatArray, size: int, modes: int) -> FloatArray:
    """Symmetric arrays (..., size, ..., size) with these unique entries, along the last axis."""
    return np.asarray(entries[..., _places(size, modes)])


@lru_cache(maxsize=8)
def _places(size: int, modes: int) -> NDArray[np.intp]:
    """Which unique entry stands where: ``i + j(j+1)/2 + k(k+1)(k+2)/6`` for ``i <= j <= k``."""
    ordered = np.sort(np.indices((size,) * modes), axis=0)
    places = np.zeros((size,) * modes, dtype=np.intp)
    for mode, index in enumerate(ordered):
        rising = math.prod((index + step for step in range(mode + 1)), start=np.ones_like(index))
        places += rising // math.factorial(mode + 1)
    return places


def with_gaussian(moment: FloatArray, tau: float, rng: np.random.Generator) -> FloatArray:
    """The symmetric array with independent N(0, tau^2) on every unique entry."""
    size, modes = moment.shape[0], moment.ndim
    entries = rng.normal(scale=tau, size=unique_entries(size, modes))
    return moment + mirrored(entries, size, modes)


def leading(
    matrix: FloatArray, count: int, *, rank_by: RankBy = "magnitude"
) -> tuple[FloatArray, FloatArray]:
    """The leading singular values, descending, and singular vectors as rows (count, D).

    As published: the papers take the SVD of a noisy symmetric matrix, so that a negative eigenvalue
    counts by its absolute value. ``rank_by="value"`` gives the leading eigenpairs instead, which is
    better under much noise: only directions with positive eigenvalues can be the data's.

    Parameters
    ----------
    matrix : array of shape (D, D), symmetric
    count : int
    rank_by : {"magnitude", "value"}
    """
    if rank_by == "value":
        return leading_eigenpairs(matrix, count)
    size = len(matrix)
    with small_matrix_threads(size):
        if size >= _LANCZOS_FROM and count <= size // 12:
            start = np.random.default_rng(0).standard_normal(size)  # public; any will do
            values, vectors = scipy.sparse.linalg.eigsh(
                matrix, count, which="LM", v0=start, ncv=min(size, 2 * count + 20), tol=1e-8
            )
        else:
            values, vectors = np.linalg.eigh(matrix)
    order = np.argsort(-np.abs(values), kind="stable")[:count]
    return np.abs(values[order]), fix_signs(np.ascontiguousarray(vectors[:, order].T))
