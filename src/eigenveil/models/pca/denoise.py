"""A released second moment less the noise that can be told from it (post-processing).

Columns that hold little energy have small entries, in the directions that stand above the noise and
in what these leave. The energies are estimated from the noisy diagonal by empirical Bayes, and each
entry keeps the part that its prior variance is of its whole variance (Wiener's filter). Directions
are treated apart, for theirs are the entries that such a prior would shrink too far.

That is knowledge of the axes, and does harm where columns say nothing of where the energy is. So it
is judged: noise that is added and taken off, as large as that which is there, makes two matrices of
independent noise, each twice as large, and what is found in either way in one of them is judged on
the other by the energy that it captures there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import leading_eigenpairs

Array = NDArray[np.float64]
_Pairs = tuple[Array, Array]  # Eigenvalues, descending, and eigenvectors as rows

# Pairs of matrices that are judged on, both ways; one, and one way, where these are large.
_PAIRS, _LARGE = 2, 300
# Rows of a large matrix whose squares are enough.
_ENOUGH = 150
# Directions of a large matrix that are looked at first for those above the noise.
_FEW = 60
# Standard errors of the difference by which what shrinks must be better.
_DOUBT = 0.5
# Points of a prior, and rounds of its fixed point.
_GRID, _ROUNDS = 60, 60


@dataclass(frozen=True)
class Denoised:
    """A matrix less its noise: strong directions, and the rest entry by entry."""

    matrix: Array
    # Of the directions that stand above the noise: as they truly are, and what of that the
    # directions found have
    strengths: Array
    shown: Array
    level: float  # Mean energy of the other directions
    left: Array  # What is left without the strong directions, with its noise


def denoised(matrix: Array, basis: Array | None, variances: Array) -> Denoised:
    """Empirical Bayes: columns of little energy have small entries."""
    return _denoised(matrix, basis, _in_columns(basis, variances), None)


def _denoised(
    matrix: Array, basis: Array | None, columns: tuple[Array, Array], leading: _Pairs | None
) -> Denoised:
    """The same, where variances in columns, and perhaps leading eigenpairs, are there."""
    size = matrix.shape[0]
    across, noise = columns
    diagonal = np.diag(matrix)
    deviations = np.sqrt(2.0 * np.diag(noise))
    whole = max(float(np.sum(diagonal)), float(np.max(deviations)))
    # noise shows what is below it shifted by its mean, so that it is looked for above that
    r, level, root = 0, whole / size, np.zeros(0)
    values = np.zeros(0)
    for _ in range(size):
        if r == values.size < size:
            values, vectors = leading or _leading(matrix, max(_FEW, 2 * r))
            leading = None
            turned = vectors if basis is None else vectors @ basis
            each = turned**2 @ across  # noise of every direction, column by column
            e2 = np.sum(each, axis=1)
        cut = 2.0 * math.sqrt(e2[min(r, size - 1)]) * (1.0 + 0.5 * size ** (-2 / 3))
        if r >= size or not values[r] - level > cut:
            break
        r += 1
        above = values[:r] - level
        root = np.sqrt(np.maximum(above**2 - 4.0 * e2[:r], 0.0))
        level = max(whole - float(np.sum(level + 0.5 * (above + root))), 0.0) / max(size - r, 1)
    strengths, shown = level + 0.5 * (values[:r] - level + root), level + root
    strong = np.zeros_like(matrix)
    if r:
        prior = empirical_bayes(diagonal, deviations)
        prior /= float(np.sum(prior))
        sine = np.clip(e2[:r] / np.maximum(strengths - level, 1e-150) ** 2, 0.0, 1.0 - 1e-9)
        hidden = each[:r] / np.maximum(e2[:r], 1e-300)[:, None] * sine[:, None]
        signal = (1.0 - sine)[:, None] * prior
        found = vectors[:r].T * (signal / np.maximum(signal + hidden, 1e-300)).T
        found /= np.maximum(np.linalg.norm(found, axis=0), 1e-300)
        strong = (found * shown) @ found.T
    left = matrix - strong
    rest = _by_columns(left, noise)
    rest += strong
    return Denoised(rest, strengths, shown, level, left)


def _leading(matrix: Array, count: int) -> _Pairs:
    """At least so many of the largest eigenvalues, descending, and eigenvectors as rows."""
    size = matrix.shape[0]
    if size > _LARGE and 3 * count < size:
        return leading_eigenpairs(matrix, count)
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], np.ascontiguousarray(vectors[:, ::-1].T)


def _in_columns(basis: Array | None, variances: Array) -> tuple[Array, Array]:
    """Variances of the entries, directions of the basis times columns and columns times columns."""
    if basis is None:
        return variances, variances
    squares = basis**2
    across = variances @ squares.T
    return across, squares @ across


def _by_columns(matrix: Array, noise: Array) -> Array:
    """The matrix less its noise entry by entry."""
    weak = empirical_bayes(np.diag(matrix), np.sqrt(2.0 * np.diag(noise)))
    result = _kept(matrix, weak, noise)
    result *= matrix
    np.fill_diagonal(result, weak)
    return result


def judged(matrix: Array, basis: Array | None, variances: Array, *, components: int) -> Array:
    """The matrix to take components of, judged on independent noise.

    As it is, or :func:`denoised`, with directions apart or not, whichever captures most. Parameters
    are those of :func:`denoised`; the noise that judges is the same for all matrices of a size.
    """
    way, _ = gained(matrix, basis, variances, components=components)
    if way is None:
        return matrix
    return _shrunk(way, matrix, basis, _in_columns(basis, variances))


def gained(
    matrix: Array, basis: Array | None, variances: Array, *, components: int
) -> tuple[bool | None, float]:
    """Which of :data:`_WAYS` to shrink captures most, if any.

    And what that captures more than the matrix as it is, at twice the noise's variance.
    """
    size = matrix.shape[0]
    sensible = bool(np.all(np.isfinite(matrix)) and np.any(variances > 0))
    if not (0 < components < size and sensible):
        return None, 0.0
    rng = np.random.default_rng(size)
    pairs, ways = (1, 1) if size > _LARGE else (_PAIRS, 2)
    columns = _in_columns(basis, 2.0 * variances)
    gains = dict.fromkeys(_WAYS, 0.0)
    level = 2.0 * math.sqrt(float(np.mean(variances)))  # of twice the variance, on the diagonal
    for _ in range(pairs):
        drawn = rng.standard_normal((size, size))
        noise = drawn + drawn.T
        noise *= np.sqrt(0.5 * variances)
        del drawn
        if basis is not None:
            noise = basis @ noise @ basis.T
        looked, judge = matrix + noise, np.subtract(matrix, noise, out=noise)
        for one, other in ((looked, judge), (judge, looked))[:ways]:
            leading = _leading(one, max(_FEW, components))
            before = leading[1][:components]
            for way in _WAYS:
                clean = _shrunk(way, one, basis, columns, leading)
                found = leading_eigenpairs(clean, components)[1]
                gain = _gain(found, before, other) - _DOUBT * level * _apart(found, before)
                gains[way] += gain / (pairs * ways)
    best = max(_WAYS, key=lambda way: gains[way])
    return (best, gains[best]) if gains[best] > 0 else (None, 0.0)


# Directions that stand above the noise apart, or columns alone.
_WAYS = (True, False)


def _shrunk(
    apart: bool,
    matrix: Array,
    basis: Array | None,
    columns: tuple[Array, Array],
    leading: _Pairs | None = None,
) -> Array:
    if apart:
        return _denoised(matrix, basis, columns, leading).matrix
    return _by_columns(matrix, columns[1])


def _gain(found: Array, before: Array, other: Array) -> float:
    """What components capture of a matrix more than others."""
    return float(np.sum((found @ other) * found) - np.sum((before @ other) * before))


def _apart(found: Array, before: Array) -> float:
    """Frobenius norm of the difference of two projectors of the same rank."""
    same = float(np.sum((found @ before.T) ** 2))
    return math.sqrt(2.0 * max(0.0, found.shape[0] - same))


def _kept(left: Array, diagonal: Array, noise: Array) -> Array:
    """What to keep of each entry, in units of what is kept of the clearest ones.

    Its variance is taken to be as the product of its columns' energies, in a proportion that
    squares of entries settle; one standard error more of it, so as not to shrink for nothing.
    """
    proportion = _proportion(left, diagonal, noise)
    if proportion is None:
        return np.ones_like(left)
    kept = np.multiply.outer(proportion * diagonal, diagonal)
    kept /= kept + noise
    kept /= max(float(np.quantile(kept, 0.99)), 1e-300)
    return np.asarray(np.minimum(kept, 1.0, out=kept))


def _proportion(left: Array, diagonal: Array, noise: Array) -> float | None:
    """That of the entries' variances, by the squares of some rows; None: nothing says it."""
    some = np.arange(0, left.shape[0], max(1, left.shape[0] // _ENOUGH))
    noise = noise[some]
    excess, products = left[some] ** 2 - noise, np.multiply.outer(diagonal[some], diagonal)
    weights = products.copy()
    for each in (excess, weights):
        each[np.arange(some.size), some] = 0.0
    squared, squares = noise**2, weights**2
    proportion, room = 0.0, np.empty_like(excess)
    for step in range(4):
        trust = 1.0 / squared
        if step:
            trust = np.multiply(proportion, products, out=trust)
            trust /= noise
            trust += 1.0
            np.square(trust, out=trust)
            np.divide(1.0, trust, out=trust)
            trust /= squared
        curvature = float(np.sum(np.multiply(trust, squares, out=room)))
        if not curvature > 0:
            return None
        trust *= weights
        slope = float(np.sum(np.multiply(trust, excess, out=room))) / curvature
        proportion = max(slope, 0.0) + 2.0 / math.sqrt(curvature)
    return proportion


def empirical_bayes(diagonal: Array, deviations: Array) -> Array:
    """Posterior means under the likeliest prior on a grid of non-negative values (Robbins 1956)."""
    top = 1.2 * max(float(np.max(diagonal)), float(np.max(deviations)))
    least = max(0.05 * float(np.min(deviations)), 1e-9 * top)
    grid = np.concatenate([[0.0], np.geomspace(least, top, _GRID)])
    squares = ((diagonal[:, None] - grid) / deviations[:, None]) ** 2
    likely = np.exp(0.5 * (np.min(squares, axis=1)[:, None] - squares))
    prior = np.full(grid.size, 1.0 / grid.size)
    for _ in range(_ROUNDS):
        before = prior
        total = likely @ prior
        prior = prior * ((1.0 / total) @ likely) / diagonal.size
    weights = likely * before / total[:, None]
    mean = float(np.mean(diagonal))
    return np.asarray(np.maximum(weights @ grid, 1e-3 * mean if mean > 0 else 1e-9 * top))
