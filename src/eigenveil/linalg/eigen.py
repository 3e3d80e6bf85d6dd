"""Leading eigenpairs of a symmetric matrix whose spectrum lies under noise."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import cast

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController


def single_threaded_blas() -> AbstractContextManager[object]:
    """One thread a call, while our own workers use the processors."""
    return cast("AbstractContextManager[object]", _controller().limit(limits=1))


def small_matrix_threads(size: int) -> AbstractContextManager[object]:
    """One thread for matrices of up to about a thousand rows."""
    # idle threads spin for a while after a call, and slow down whatever our workers do next
    return single_threaded_blas() if size < _LARGE else nullcontext()


_LARGE = 1500


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    """Looks through the loaded libraries once; doing so for every call would take longer."""
    return ThreadpoolController()


# Measured: LAPACK's subset driver wins below, or for many components, Lanczos above. Randomised
# solvers are no choice: a spectrum under noise has no gaps (privacy.md, section 10).
_LANCZOS_FROM = 600


def leading_eigenpairs(
    matrix: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ``count`` algebraically largest eigenvalues, descending, and eigenvectors as rows."""
    # found in single precision, then improved in double by one Rayleigh-Ritz step: the error
    # squared
    size = matrix.shape[0]
    scale = float(np.max(np.abs(matrix), initial=0.0)) or 1.0
    single = np.asarray(matrix * (1.0 / scale), dtype=np.float32, order="F")
    with small_matrix_threads(size):
        try:
            rough = _rough_vectors(single, count)
        except (np.linalg.LinAlgError, scipy.sparse.linalg.ArpackError):
            # LAPACK's subset driver gives up on some matrices whose entries are of very different
            # size, and nothing may fail after a release: divide and conquer takes them all
            rough = np.linalg.eigh(matrix * (1.0 / scale))[1][:, size - count :]
        basis = orthonormal_basis(np.asarray(rough, dtype=np.float64))
        values, turn = np.linalg.eigh(basis.T @ (matrix @ basis))
    vectors = basis @ turn[:, ::-1]
    return values[::-1].copy(), fix_signs(np.ascontiguousarray(vectors.T))


def _rough_vectors(single: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The eigenvectors of the largest eigenvalues, as columns; ``single`` is overwritten."""
    size = single.shape[0]
    if size >= _LANCZOS_FROM and count <= size // 12:
        start = np.random.default_rng(0).standard_normal((size,))  # public; any will do
        _, rough = scipy.sparse.linalg.eigsh(
            single,
            count,
            which="LA",
            v0=start.astype(np.float32),
            ncv=min(size, 2 * count + 20),
            tol=1e-4,
        )
    else:
        _, rough = scipy.linalg.eigh(
            single, subset_by_index=[size - count, size - 1], overwrite_a=True, check_finite=False
        )
    return np.asarray(rough)


def fix_signs(components: NDArray[np.float64]) -> NDArray[np.float64]:
    """Components (as rows) with the entry of largest magnitude made positive."""
    if components.size == 0:
        return components
    largest = np.argmax(np.abs(components), axis=1)
    signs = np.sign(components[np.arange(components.shape[0]), largest])
    signs[signs == 0] = 1.0
    return np.asarray(components * signs[:, None])


def orthonormal_basis(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """An orthonormal basis of the columns' span, shape (D, R)."""
    q, _ = np.linalg.qr(matrix)
    return np.asarray(q)


def public_basis(features: int, columns: int) -> NDArray[np.float64]:
    """Orthonormal columns that no data decide: the same for every study of this shape."""
    gaussian = np.random.default_rng(features).standard_normal((features, columns))
    return orthonormal_basis(gaussian)


def left_singular(
    matrix: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The leading singular values and left singular vectors (as rows) of a tall (D, R) matrix."""
    u, s, _ = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    return s[:count], fix_signs(np.ascontiguousarray(u[:, :count].T))


def truncated_root(matrix: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """The (D, rank) matrix P with ``P P'`` the best positive approximation of a symmetric one."""
    values, vectors = leading_eigenpairs(matrix, rank)
    return np.asarray(vectors.T * np.sqrt(np.maximum(values, 0.0)))


# Relative width of the bracket that is left, and steps in which a level above the edge must show.
_CLOSE, _STEPS, _STILL = 5e-3, 60, 1e-3


def edge_of_variances(variances: NDArray[np.float64]) -> float:
    """What the largest eigenvalue of a large matrix of such noise tends to, from above."""
    # the least max_i (1/u_i + sum_j v_ij u_j) over positive u (Lehner 1999; Bandeira, Boedihardjo &
    # van Handel 2023), rounded up by one part in a hundred at most
    sums = variances.sum(axis=1)
    high = 2.0 * math.sqrt(float(sums.max(initial=0.0)))
    if high == 0.0 or float(sums.min()) > (1.0 - _CLOSE) * float(sums.max()):
        return high
    low, start = 0.5 * high, np.zeros(sums.size)
    while high - low > _CLOSE * high:
        middle = 0.5 * (low + high)
        found = _solution(variances, middle, start)
        if found is None:
            low = middle
        else:
            high, start = middle, found  # that of a lower level is larger
    return high


def _solution(
    variances: NDArray[np.float64], level: float, start: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """The least u with ``1/u = level - V u``; ``None`` where none shows in a few steps."""
    u = start
    for _ in range(_STEPS):
        left = level - variances @ u
        if not float(left.min()) > 0:
            return None
        u, before = 1.0 / left, u
        if float(np.max(u - before)) <= _STILL * float(np.max(u)):
            return u
    return None


def truncated_edge(edge: float, features: int, rank: int, parties: int) -> float:
    """Largest eigenvalue of a sum of noise matrices of this edge, each cut off at ``rank``.

    Each has a semicircle's upper eigenvalues in independent directions: their mean everywhere, and
    twice the root of ``parties`` times their variance on top (free central limit).
    """
    middles = (np.arange(rank) + 0.5) / features  # shares of the eigenvalues that are above
    grid = np.linspace(-1.0, 1.0, 20001)
    above = 0.5 - (grid * np.sqrt(1 - grid**2) + np.arcsin(grid)) / np.pi
    kept = edge * np.maximum(0.0, np.interp(middles, above[::-1], grid[::-1]))
    mean, square = float(np.sum(kept)) / features, float(np.sum(kept**2)) / features
    free = parties * mean + 2.0 * math.sqrt(parties * max(0.0, square - mean * mean))
    return max(free, edge) if parties > 1 else edge
