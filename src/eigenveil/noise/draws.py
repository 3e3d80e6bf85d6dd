"""Noise in the shapes that releases have, as integers on the release grid (unit ``2**grid``).

Symmetric matrices live in isometric coordinates svec(M) = (M_ii, sqrt(2) M_ij): noise that is
i.i.d. there has off-diagonal entries smaller by sqrt(2) (privacy.md, section 2). So do symmetric
tensors, whose coordinates are (T_iii, sqrt(3) T_iij, sqrt(6) T_ijk).

With ``shares`` above 1 a function draws what one party draws of the noise of many: any ``shares``
such parts add up to the noise (docs/proofs/shares.md). A part of Gaussian noise is Gaussian noise
of a smaller scale.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from eigenveil.noise.cube import tensor_copies, tensor_from_entries, tensor_size
from eigenveil.noise.gamma import gamma
from eigenveil.noise.grid import wishart_unit
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import RandomSource
from eigenveil.privacy.releases import SHARE_SMOOTHING, WISHART_SMOOTHING

_NORMAL_SCALE = 2.0**40
_LIMB_BITS = 18
# Grid steps in the standard deviation of vector noise, at the least: 1024 in every entry's own,
# smaller by sqrt(2) in matrices and by sqrt(6) in tensors.
_COARSEST = 2048.0
_COARSEST_TENSOR = 4096.0


def gaussian(
    shape: tuple[int, ...], *, sigma: float, grid: int, source: RandomSource
) -> NDArray[np.int64]:
    """Independent N(0, sigma^2) entries."""
    scale = math.ldexp(sigma, -grid)
    return lattice_noise(math.prod(shape), scale=scale, power=2, source=source).reshape(shape)


def laplace(
    shape: tuple[int, ...], *, scale: float, grid: int, source: RandomSource, shares: int = 1
) -> NDArray[np.int64]:
    """Independent Laplace entries, density exp(-|z|/scale).

    A share is the difference of two Gamma variables of shape ``1 / shares``, and Gaussian noise of
    a 32nd of ``scale`` in all shares together, which hides the arithmetic.
    """
    b = math.ldexp(scale, -grid)
    size = math.prod(shape)
    if shares == 1:
        return lattice_noise(size, scale=b, power=1, source=source).reshape(shape)
    up, down = gamma(2 * size, shape=1.0 / shares, source=source).reshape(2, size)
    total = _rounded_at_random(b * (up - down), source)
    smoothing = b * math.sqrt(2.0 / (SHARE_SMOOTHING * shares))
    total += lattice_noise(size, scale=smoothing, power=2, source=source)
    return total.reshape(shape)


def isometric_symmetric(
    size: int, *, sigma: float, grid: int, source: RandomSource
) -> NDArray[np.int64]:
    """A symmetric matrix, N(0, sigma^2) on and N(0, sigma^2/2) off the diagonal."""
    off = gaussian(
        (size * (size - 1) // 2,), sigma=sigma / math.sqrt(2.0), grid=grid, source=source
    )
    on = gaussian((size,), sigma=sigma, grid=grid, source=source)
    return symmetric_from_triangle(on, off)


def isometric_tensor(
    size: int, *, sigma: float, grid: int, source: RandomSource
) -> NDArray[np.int64]:
    """A symmetric ``size`` x ``size`` x ``size`` tensor, isotropic in isometric coordinates.

    Entries are N(0, sigma^2) where all indices are equal, N(0, sigma^2/3) where two are, and
    N(0, sigma^2/6) elsewhere.
    """
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


def wishart_difference(
    size: int, *, scale: float, grid: int, source: RandomSource, shares: int = 1
) -> NDArray[np.int64]:
    """``scale (G G' - H H')`` with G, H standard Gaussian, size x (size + 1) (privacy.md 9).

    In integers throughout: G and H are drawn on a lattice of some 2**50 steps a deviation and
    multiplied exactly, the difference is rounded to the grid at random without bias, and isometric
    Gaussian noise of a 64th of an entry's deviation hides what lattice and rounding could show
    (docs/proofs/wishart-difference.md). The grid must not be finer than
    :func:`eigenveil.noise.grid.wishart_unit`. A share has as many columns as it takes for
    ``shares`` of them to bring size + 1 together.
    """
    unit = wishart_unit(scale)  # products are kept to multiples of 2**unit
    if grid < unit:
        raise ValueError(f"a grid of 2**{grid} is finer than the noise's own, 2**{unit}")
    columns = -(-(size + 1) // shares)
    # in lattice steps: 2**50 or a little more; a product of two entries is 2**54 times finer than
    # the unit
    deviation = math.sqrt(math.ldexp(scale, 3 * _LIMB_BITS - unit))
    smoothing = scale * math.sqrt(2.0 * (size + 1) / shares) / WISHART_SMOOTHING
    noise = isometric_symmetric(size, sigma=smoothing, grid=grid, source=source)
    total = _exact_gram((size, columns), deviation, source)
    total -= _exact_gram((size, columns), deviation, source)
    noise += _shifted_at_random(total, grid - unit, source)
    return noise


def vector(
    size: int, *, scale: float, grid: int, source: RandomSource, shares: int = 1
) -> NDArray[np.int64]:
    """A vector of density exp(-||z||_2 / scale).

    It is a Gaussian vector whose standard deviation is itself random: ``scale`` times the root of a
    chi-square variable with ``size + 1`` degrees of freedom. So its coordinates come from the
    lattice sampler, and no common factor is left in them to be found. A share has a variance with
    so many times fewer degrees, and a 2048th of the expected variance on top.
    """
    sigma = _mixed_sigma(size, scale, grid, shares, source)
    return gaussian((size,), sigma=sigma, grid=grid, source=source)


def vector_symmetric(
    size: int, *, scale: float, grid: int, source: RandomSource, shares: int = 1
) -> NDArray[np.int64]:
    """The same over the isometric coordinates of a symmetric matrix."""
    sigma = _mixed_sigma(size * (size + 1) // 2, scale, grid, shares, source)
    return isometric_symmetric(size, sigma=sigma, grid=grid, source=source)


def vector_tensor(
    size: int, *, scale: float, grid: int, source: RandomSource, shares: int = 1
) -> NDArray[np.int64]:
    """The same over the isometric coordinates of a symmetric tensor of three modes."""
    entries = tensor_size(size)
    sigma = _mixed_sigma(entries, scale, grid, shares, source, coarsest=_COARSEST_TENSOR)
    return isometric_tensor(size, sigma=sigma, grid=grid, source=source)


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


def _rounded_at_random(values: NDArray[np.float64], source: RandomSource) -> NDArray[np.int64]:
    """Each value rounded up or down, with the chances that leave its mean as it is."""
    below = np.floor(values)
    up = open_uniform(values.size, source) < values - below
    return np.asarray(below.astype(np.int64) + up)


def _shifted_at_random(
    matrix: NDArray[np.int64], bits: int, source: RandomSource
) -> NDArray[np.int64]:
    """A symmetric matrix over ``2**bits``, rounded up or down so that the mean stays as it is.

    Exact, with independent roundings in the triangle; the given matrix is overwritten.
    """
    size = matrix.shape[0]
    words = source.words(size * (size + 1) // 2) & np.uint64((1 << bits) - 1)
    more = words.view(np.int64)
    matrix += symmetric_from_triangle(more[:size], more[size:])
    matrix >>= np.int64(bits)
    return matrix


def _exact_gram(
    shape: tuple[int, int], deviation: float, source: RandomSource
) -> NDArray[np.int64]:
    """``G G'`` of an integer matrix, rounded down to multiples of 2**54, in that unit.

    Entries are split into three limbs of 18 bits, whose products add up exactly in double
    precision; only that of the two lowest limbs, below a 2**18th of the unit, is left out.
    """
    g = lattice_noise(math.prod(shape), scale=deviation, power=2, source=source)
    half = 1 << (_LIMB_BITS - 1)
    low = ((g + half) & (2 * half - 1)) - half
    rest = (g - low) >> _LIMB_BITS
    middle = ((rest + half) & (2 * half - 1)) - half
    limbs = [(rest - middle) >> _LIMB_BITS, middle, low]
    a, b, c = (limb.astype(np.float64).reshape(shape) for limb in limbs)

    def both(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.int64]:
        product = (left @ right.T).astype(np.int64)
        return np.asarray(product + product.T)

    # carries from the lowest products upwards; flooring twice is flooring once
    total = both(b, c) >> _LIMB_BITS
    total += both(a, c) + (b @ b.T).astype(np.int64)
    total >>= _LIMB_BITS
    total += both(a, b)
    total += (a @ a.T).astype(np.int64) << _LIMB_BITS
    return total


def _mixed_sigma(
    size: int,
    scale: float,
    grid: int,
    shares: int,
    source: RandomSource,
    *,
    coarsest: float = _COARSEST,
) -> float:
    """Standard deviation of a share of a vector of density exp(-||z||_2 / scale), drawn.

    For the whole, ``scale`` times the root of a chi-square variable with ``size + 1`` degrees of
    freedom; drawn again in the rare case (2**-30 for one coordinate, less for more) that the
    lattice is too coarse for it, which keeps the guarantee exactly (docs/proofs/vector.md). For a
    share, a chi-square variable is twice a Gamma variable, and smoothing keeps it large enough.
    """
    if shares > 1:
        mixed = float(gamma(1, shape=(size + 1) / (2.0 * shares), source=source)[0])
        return scale * math.sqrt(2.0 * mixed + (size + 1) / (SHARE_SMOOTHING * shares))
    for _ in range(100):
        z = standard_normal(size + 1, source)
        sigma = scale * math.sqrt(float(z @ z))
        if math.ldexp(sigma, -grid) >= coarsest:
            return sigma
    raise RuntimeError("the randomness source gives only small numbers: it is broken")
