"""Symmetric tensors of three modes: seen through a matrix, and taken apart into components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.linalg.eigen import small_matrix_threads

# Starts for each row of the tensor: more change nothing (measured, see power_iteration).
_STARTS_PER_ROW = 3
_FEWEST_STARTS = 30
# All starts go so far at most, or until no coordinate moves by more than _SETTLED; then only the
# best goes on. Measured: 10 steps choose a little worse under strong noise, 30 no better.
_SHARED_STEPS = 20
_SETTLED = 1e-3
# Numbers held at once while many starts are contracted: 32 MiB of them.
_BLOCK = 2**22


@dataclass(frozen=True)
class TensorComponents:
    """The tensor ``sum_k values[k] v_k (x) v_k (x) v_k + rest``, strongest component first."""

    # Descending, none negative, in the tensor's units. A component that is not there (nothing above
    # the tolerance was left to be found) has exactly 0.
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]  # Rows of norm 1
    # Whether the winning start met the tolerance; where False, the component is only the best that
    # the given iterations reached
    converged: NDArray[np.bool_]
    iterations: NDArray[np.int64]  # Steps that the winning start took
    residual: float  # Frobenius norm of the rest as a part of the tensor's; 0 for a tensor of zeros


def multilinear(tensor: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """``T(W, W, W)``, (K, K, K): the tensor (R, R, R) seen through a matrix (R, K)."""
    size = _cube_size(tensor)
    if matrix.ndim != 2 or matrix.shape[0] != size:
        raise DataError("tensor-shape", shape=matrix.shape, size=size)
    turned = tensor
    for _ in range(3):  # the first mode goes, a new one comes last
        rest = turned.shape[1:]
        turned = (turned.reshape(size, -1).T @ matrix).reshape(*rest, matrix.shape[1])
    return np.asarray(turned)


def cubes(weights: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """``sum_k weights[k] v_k (x) v_k (x) v_k`` of vectors (K, R): symmetric up to rounding."""
    count, size = vectors.shape
    pairs = (vectors[:, :, None] * vectors[:, None, :]).reshape(count, size * size)
    return np.asarray(((weights[:, None] * vectors).T @ pairs).reshape(size, size, size))


def identity_terms(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """What spherical noise of unit variance about a mean adds to a third moment."""
    (size,) = vector.shape
    tensor = np.zeros((size, size, size))
    same = np.arange(size)
    tensor[:, same, same] += vector[:, None]
    tensor[same, :, same] += vector
    tensor[same, same, :] += vector
    return tensor


def power_iteration(
    tensor: NDArray[np.float64],
    count: int,
    *,
    rng: np.random.Generator,
    restarts: int | None = None,
    iterations: int = 1000,
    tolerance: float = 1e-9,
) -> TensorComponents:
    """The ``count`` components of a symmetric tensor whose components are nearly orthogonal.

    Anandkumar, Ge, Hsu, Kakade and Telgarsky, JMLR 15 (2014), algorithm 1: for each component many
    starts, uniform on the whole sphere, take power steps together; the one with the largest ``T(u,
    u, u)`` goes on alone, then its cube is taken off. Values are never negative: ``-u`` has the
    opposite one. Only the symmetric part of the tensor counts.
    """
    size = _cube_size(tensor)
    restarts = max(_FEWEST_STARTS, _STARTS_PER_ROW * size) if restarts is None else restarts
    _check_request(tensor, size, count, restarts, iterations, tolerance)
    left, exponent = _scaled_symmetric(tensor)
    whole = float(np.linalg.norm(left))
    # Vectors within the tolerance leave about this much behind; and so does rounding.
    nothing = whole * max(4.0 * tolerance, 8.0 * size * np.finfo(np.float64).eps)
    values = np.zeros(count)
    vectors = np.zeros((count, size))
    converged = np.ones(count, dtype=np.bool_)
    steps = np.zeros(count, dtype=np.int64)
    with small_matrix_threads(size):
        for k in range(count):
            if np.linalg.norm(left) <= nothing:
                # none are left: any unit vectors will do, so the ones that the others leave out
                vectors[k:] = np.linalg.svd(vectors[:k])[2][k:count]
                break
            starts = _unit(rng.standard_normal((restarts, size)))
            best, shared = _best_end(left, starts, min(_SHARED_STEPS, iterations))
            values[k], vectors[k], converged[k], alone = _polished(
                left, best, iterations - shared, tolerance
            )
            steps[k] = shared + alone
            left -= cubes(values[k : k + 1], vectors[k : k + 1])
    order = np.argsort(-values, kind="stable")
    return TensorComponents(
        values=np.ldexp(values[order], exponent),
        vectors=vectors[order],
        converged=converged[order],
        iterations=steps[order],
        residual=float(np.linalg.norm(left)) / whole if whole else 0.0,
    )


def _best_end(
    tensor: NDArray[np.float64], starts: NDArray[np.float64], most: int
) -> tuple[NDArray[np.float64], int]:
    """Where the best of all starts (N, R) has come by power iteration, and in how many steps."""
    ends, step, moved = starts, 0, np.inf
    turned = _contracted(tensor, ends)
    while step < most and moved > _SETTLED:
        # a start that the tensor maps to zero stays where it is
        ahead = _unit(np.where(np.any(turned, axis=1)[:, None], turned, ends))
        moved = float(np.max(np.abs(ahead - ends)))
        ends, step = ahead, step + 1
        turned = _contracted(tensor, ends)
    values = np.einsum("nr,nr->n", turned, ends)
    return ends[int(np.argmax(np.abs(values)))], step


def _polished(
    tensor: NDArray[np.float64], vector: NDArray[np.float64], most: int, tolerance: float
) -> tuple[float, NDArray[np.float64], bool, int]:
    """Value, vector, whether it converged, and steps, from a start near a maximum of T(u, u, u).

    A Newton step on the sphere where the tensor's curvature is a maximum's and the step climbs
    (Jaffe, Weiss, Nadler, Carmi and Kluger 2018, SIAM J. Matrix Anal. Appl. 39); else a power step,
    shifted until it cannot swing past (Kolda and Mayo 2014, same journal, 35). Measured on noise
    alone, R = 30: 50 steps, and every start converged; without the shift 100, without Newton 430,
    and either way one in ten was still on its way after 1000.
    """
    matrix, value = _seen_from(tensor, vector)
    for step in range(most + 1):
        if value < 0:  # from behind; a shifted step would stay at a minimum
            vector, matrix, value = -vector, -matrix, -value
        slope = matrix @ vector - value * vector
        converged = bool(np.linalg.norm(slope) <= tolerance * value)
        if converged or step == most:
            break
        along = np.eye(vector.size) - np.outer(vector, vector)
        bends, directions = np.linalg.eigh(along @ matrix @ along)
        climbed = False
        if 2.0 * bends[-1] < value:
            newton = directions @ ((directions.T @ slope) / (value - 2.0 * bends))
            ahead = _unit(vector + newton)
            seen = _seen_from(tensor, ahead)
            climbed = seen[1] >= value * (1.0 - 1e-12)  # at the top it is level, but for rounding
        if not climbed:
            shift = max(0.0, -2.0 * float(np.linalg.eigvalsh(matrix)[0]))
            ahead = _unit(matrix @ vector + shift * vector)
            seen = _seen_from(tensor, ahead)
        vector, (matrix, value) = ahead, seen
    return value, vector, converged, step


def _contracted(tensor: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """``T(I, u, u)`` of each row u of (N, R), as rows."""
    size = tensor.shape[0]
    flat = tensor.reshape(size, size * size)
    turned = np.empty_like(vectors)
    some = max(1, _BLOCK // (size * size))
    for first in range(0, len(vectors), some):
        part = vectors[first : first + some]
        matrices = (part @ flat).reshape(-1, size, size)
        turned[first : first + some] = (matrices @ part[:, :, None])[..., 0]
    return turned


def _seen_from(
    tensor: NDArray[np.float64], vector: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """The matrix ``T(I, I, u)`` and the number ``T(u, u, u)``."""
    matrix = tensor @ vector
    return matrix, float(vector @ matrix @ vector)


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def _scaled_symmetric(tensor: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """The symmetric part, scaled by a power of two to entries of at most 1, and the exponent."""
    exponent = int(np.frexp(np.max(np.abs(tensor)))[1])
    scaled = np.ldexp(np.asarray(tensor, dtype=np.float64), -exponent)
    pairs = (scaled + scaled.transpose(0, 2, 1)) / 2.0
    turned = pairs + pairs.transpose(1, 0, 2) + pairs.transpose(2, 1, 0)
    return np.ascontiguousarray(turned / 3.0), exponent


def _cube_size(tensor: NDArray[np.float64]) -> int:
    shape = tensor.shape
    if len(shape) != 3 or len(set(shape)) != 1 or shape[0] < 1:
        raise DataError("not-cubic", shape=shape)
    return int(shape[0])


def _check_request(
    tensor: NDArray[np.float64],
    size: int,
    count: int,
    restarts: int,
    iterations: int,
    tolerance: float,
) -> None:
    if not np.all(np.isfinite(tensor)):
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(tensor))[0])
        raise DataError("not-finite", place=f"Entry {place} of the tensor", value="not finite")
    if not 1 <= count <= size:
        raise DataError("component-count", size=size, components=count)
    for name, number in (("restarts", restarts), ("iterations", iterations)):
        if number < 1:
            raise DataError("out-of-range", name=name, value=number, wanted="1 or more")
    if not 0 < tolerance < 1:
        raise DataError("out-of-range", name="tolerance", value=tolerance, wanted="between 0 and 1")
