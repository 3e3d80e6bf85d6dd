"""Gaussian noise in the shapes that releases have, as integers on the grid (unit ``2**grid``).

Isotropic in isometric coordinates: (M_ii, sqrt(2) M_ij) of symmetric matrices (privacy.md, section
2), (T_iii, sqrt(3) T_iij, sqrt(6) T_ijk) of symmetric tensors.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.entries import coordinates, tensor_copies, tensor_from_entries
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.statistics import Layout

_NORMAL_SCALE = 2.0**40


def gaussian(
    shape: tuple[int, ...], *, sigma: float, grid: int, source: RandomSource
) -> NDArray[np.int64]:
    """Independent N(0, sigma^2) entries."""
    scale = math.ldexp(sigma, -grid)
    return lattice_noise(math.prod(shape), scale=scale, power=2, source=source).reshape(shape)


def isometric(
    layout: Layout, shape: tuple[int, ...], *, sigma: float, grid: int, source: RandomSource
) -> NDArray[np.int64]:
    """N(0, sigma^2) in each isometric coordinate of an array of this layout."""
    match layout:
        case "symmetric":
            return isometric_symmetric(shape[0], sigma=sigma, grid=grid, source=source)
        case "tensor":
            return isometric_tensor(shape[0], sigma=sigma, grid=grid, source=source)
        case _:
            return gaussian(shape, sigma=sigma, grid=grid, source=source)


def isometric_entries(
    layout: Layout, shape: tuple[int, ...], *, sigma: float, grid: int, source: RandomSource
) -> NDArray[np.int64]:
    """The independent entries of :func:`isometric`; of a matrix, without making it."""
    if layout != "symmetric":
        whole = isometric(layout, shape, sigma=sigma, grid=grid, source=source)
        return coordinates(layout, whole)
    on, off = _isometric_triangle(shape[0], sigma=sigma, grid=grid, source=source)
    row = np.arange(shape[0])
    return np.insert(off, row * (row + 1) // 2, on)  # each row ends with its diagonal entry


def isometric_symmetric(
    size: int, *, sigma: float, grid: int, source: RandomSource
) -> NDArray[np.int64]:
    """A symmetric matrix, N(0, sigma^2) on and N(0, sigma^2/2) off the diagonal."""
    on, off = _isometric_triangle(size, sigma=sigma, grid=grid, source=source)
    return symmetric_from_triangle(on, off)


def _isometric_triangle(
    size: int, *, sigma: float, grid: int, source: RandomSource
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Its diagonal and its strict lower triangle, row by row."""
    off = gaussian(
        (size * (size - 1) // 2,), sigma=sigma / math.sqrt(2.0), grid=grid, source=source
    )
    return gaussian((size,), sigma=sigma, grid=grid, source=source), off


def isometric_tensor(
    size: int, *, sigma: float, grid: int, source: RandomSource
) -> NDArray[np.int64]:
    """A symmetric tensor: N(0, sigma^2) over 1, 3 or 6 where three, two or no indices are equal."""
    copies = tensor_copies(size)
    entries = np.empty(copies.size, dtype=np.int64)
    for count in (1, 3, 6):
        here = np.flatnonzero(copies == count)
        own = sigma / math.sqrt(count)
        entries[here] = gaussian((here.size,), sigma=own, grid=grid, source=source)
    return tensor_from_entries(size, entries)


def symmetric_from_triangle(
    diagonal: NDArray[np.int64], below: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The symmetric matrix with this diagonal and this strict lower triangle (row by row)."""
    size = diagonal.size
    matrix = np.empty((size, size), dtype=np.int64)
    start = 0
    for row in range(size):
        part = below[start : start + row]
        matrix[row, :row] = part
        matrix[:row, row] = part
        start += row
    np.fill_diagonal(matrix, diagonal)
    return matrix


def standard_normal(size: int, source: RandomSource) -> NDArray[np.float64]:
    """Standard normal deviates on a grid of 2**-40."""
    z = lattice_noise(size, scale=_NORMAL_SCALE, power=2, source=source).astype(np.float64)
    z /= _NORMAL_SCALE
    return z


def open_uniform(size: int, source: RandomSource) -> NDArray[np.float64]:
    """Uniform deviates strictly between 0 and 1, to 2**-52."""
    return ((source.words(size) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def log_uniform(size: int, source: RandomSource) -> NDArray[np.float64]:
    """Logarithms of uniform deviates, right down to chances of 2**-106."""
    high = (source.words(size) >> np.uint64(11)).astype(np.float64)
    low = (source.words(size) >> np.uint64(11)).astype(np.float64) + 0.5
    return np.log(high * 2.0**-53 + low * 2.0**-106)
