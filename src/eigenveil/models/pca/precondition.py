"""What a second release of the second moment should look at, and what both say together.

Everything here is a deterministic function of released numbers (post-processing). After a first
release ``A = S + s G`` of unit or shortened rows, what is known of S is its mean in a basis Q of
directions, diagonal l, and a variance t of each entry off the diagonal. A second release of rows
seen through weights w in that basis has noise of variance ``s'^2 (w.w l)^2 / (2 w_k^2 w_j^2)`` in
entry (k, j), in the first one's units. Its worth is the expected sum of the K largest eigenvalues
of what is then known of S: that is the energy which the K directions will capture. Weights are
chosen for it, and no weights (W = I) where they promise no more (algorithms.md, "A second look").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.models.pca.denoise import denoised, empirical_bayes, gained

Array = NDArray[np.float64]

#: Candidate that is one release of the whole budget.
ONE_RELEASE = "one release"

# Places of the integrals of ratios of quadratic forms are even in the logarithm.
_STEP = 0.25
_PLACES = np.exp(np.arange(-14.0, 24.0, _STEP))
# Energies of directions are taken to be at least this part of their mean, and weights (squared) to
# be no further apart than this.
_LEAST_ENERGY, _MOST_WEIGHT = 1e-3, 1e8
# Of an estimated diagonal: least part of its mean.
_LEAST_DIAGONAL = 0.1
# Part of two directions' energies that another normalisation of the rows changes between them.
BIAS = 0.005
# Predicted gains of less than this part of the loss were measured to be none: where fewer than K
# directions stand above the noise, and where K do.
_LEAST_GAIN = (0.1, 0.25)
# Of the strengths of a sketch: least part of the first.
_LEAST_STRENGTH = 1e-6
# Mean square norm, in units of the mean, at which a candidate shortens rows.
_SHORTENED = 2.0
# Nothing is looked for in matrices of entries, or under noise, of no size or beyond all size.
_TINY = 1e-100
# Steps of the eigenvalue equation, of the search of weights.
_STEPS, _SEARCH = 6, 40
# Parts of the energy that fewer than K directions may have, by which a second release is judged.
# What they get: the most times this power of their part of K, as first order asks for too much.
_SHARES, _MOST_SHARE, _LEAST_SHARE, _POWER = (0.05, 0.15, 0.3, 0.5), 0.5, 0.02, 1.5


@dataclass(frozen=True)
class Preconditioner:
    """Through what the rows of the second release are seen."""

    vectors: Array  # Q, orthonormal
    weights: Array  # w, from 0 to 1
    # Norm at which rows seen through `basis` are shortened; 0: all are divided by their norms
    bound: float
    energies: Array  # What the first release says of the energy along each direction, in its units
    resolved: int  # How many of the directions stand above the first release's noise
    rows: float  # As they were said to :func:`precondition`, at least 1
    # The square of the bound over the mean square of what is shortened; 0 without a bound
    growth: float = 0.0

    @property
    def basis(self) -> Array:
        """``M = Q diag(w)``, all columns of norm at most 1.

        A row x becomes ``y = M.T x / |M.T x|``, or ``M.T x / max(|M.T x|, bound)`` where there is a
        bound.
        """
        return np.asarray(self.vectors * self.weights)


@dataclass(frozen=True)
class SecondLook:
    """What was decided between the releases, and on which grounds."""

    # Predicted relative loss of captured energy by candidate, "one release" first
    losses: Mapping[str, float]
    chosen: str  # The candidate that was taken
    # `None`: W = I. The second release is then of the same rows, and the average of the two by
    # precision is one release of the whole budget.
    how: Preconditioner | None


@dataclass(frozen=True)
class _FirstLook:
    """What the first release says of S: ``vectors @ mean @ vectors.T``, and how surely."""

    vectors: Array
    energies: Array
    resolved: int
    variances: Array
    hidden: Array


def precondition(
    first: Array,
    error: float,
    later_error: float,
    *,
    components: int,
    rows: float,
    bounds: Mapping[str, float] | None = None,
) -> SecondLook:
    """Through what the second release should see the rows, if it should."""
    losses, made = candidates(
        first, error, later_error, components=components, rows=rows, bounds=bounds
    )
    chosen = min(losses, key=lambda name: losses[name])
    part = 0.0 if made.get(chosen) is None else _LEAST_GAIN[made[chosen].resolved >= components]
    if losses[chosen] > (1.0 - part) * losses[ONE_RELEASE]:
        chosen = ONE_RELEASE
    elif chosen != ONE_RELEASE:
        # twice the noise's variance, of which one release of the whole budget has ``part`` alone
        part = 0.5 / (1.0 + (error / later_error) ** 2)
        flat = np.broadcast_to(0.5 * error**2, first.shape)
        gain = gained(first, None, flat, components=components)[1]
        whole = float(np.sum(np.maximum(leading_eigenpairs(first, components)[0], 0.0)))
        if part * gain > (losses[ONE_RELEASE] - losses[chosen]) * whole:
            chosen = ONE_RELEASE
    return SecondLook(losses, chosen, made.get(chosen))


def likeliest(
    first: Array, error: float, later_error: float, *, components: int, rows: float
) -> tuple[str, Array]:
    """Of rows that have lengths: the candidate whose lengths are to be released, and its basis.

    Where there is no candidate, the rows as they are.
    """
    losses, made = candidates(
        first, error, later_error, components=components, rows=rows, bounds={}
    )
    name = min(made, key=lambda each: losses[each], default="")
    return name, made[name].basis if name else np.eye(first.shape[0])


def candidates(
    first: Array,
    error: float,
    later_error: float,
    *,
    components: int,
    rows: float,
    bounds: Mapping[str, float] | None = None,
) -> tuple[dict[str, float], dict[str, Preconditioner]]:
    """Predicted losses by candidate, "one release" first, and all candidates but that one.

    Parameters are those of :func:`precondition`, which takes one of these.
    """
    size = first.shape[0]
    scale = float(np.max(np.abs(first), initial=0.0)) if np.all(np.isfinite(first)) else 0.0
    known_noise = 0 < error < math.inf and 0 < later_error < math.inf
    if size < 2 or not 0 < components < size or not known_noise:
        return {ONE_RELEASE: 0.0}, {}
    if not _TINY < scale < 1 / _TINY or min(error, later_error) < _TINY * scale:
        return {ONE_RELEASE: 0.0}, {}
    if max(error, later_error) > _TINY**-0.1 * scale or not float(np.trace(first)) > 0:
        return {ONE_RELEASE: 0.0}, {}
    known = _known(first / scale, error / scale, rows / scale)
    later = later_error / scale
    rows = max(rows, 1.0)
    best = _worth(known, np.broadcast_to(0.0, first.shape), components)
    flat = np.broadcast_to(0.5 * later * later, first.shape)
    losses = {ONE_RELEASE: _loss(_worth(known, flat, components), best)}
    made = {}
    # of rows that have lengths the energies add up to less than their number
    whole = float(np.sum(known.energies)) if bounds is None else rows / scale
    each = later * float(np.sum(known.energies)) / whole
    for family, (squared, likely) in _families(known, later, components, rows).items():
        weights = np.sqrt(squared / np.max(squared))
        mean = float(weights**2 @ known.energies) / whole
        for name, growth in _growths(family, mean, bounds).items():
            noises = (_noise(known.energies, like, each, growth, rows) for like in likely)
            losses[name] = min(_loss(_worth(known, noise, components), best) for noise in noises)
            made[name] = Preconditioner(
                vectors=known.vectors,
                weights=weights,
                bound=math.sqrt(growth * mean),
                energies=known.energies * scale,
                resolved=known.resolved,
                rows=rows,
                growth=growth,
            )
    return losses, made


def _growths(family: str, mean: float, bounds: Mapping[str, float] | None) -> dict[str, float]:
    """By name of candidate: the square of its bound over the mean square of what it shortens."""
    name = f"{family}, shortened"
    if bounds is None:
        return {family: 0.0, name: _SHORTENED}
    if not bounds:  # none is known yet
        return {name: _SHORTENED}
    bound = bounds.get(name, 0.0)
    return {name: bound**2 / mean} if bound > 0 and mean > 0 else {}


def even_weights(strengths: Array) -> Array:
    """Weights from 0 to 1 under which directions of these strengths have as much energy each."""
    least = max(float(strengths[-1]), _LEAST_STRENGTH * float(strengths[0]), 1e-300)
    return np.asarray(np.sqrt(least / np.maximum(strengths, least)))


# -- What the first release says


def _known(first: Array, error: float, rows: float) -> _FirstLook:
    size = first.shape[0]
    flat = np.broadcast_to(0.5 * error**2, first.shape)
    clean = denoised(first, None, flat)
    r, shown = clean.shown.size, clean.shown
    basis = _completed(clean.matrix, r)
    e2 = 0.5 * size * error**2
    total = float(np.trace(first))
    if rows > 0 and abs(total - rows) <= 2.0 * error * math.sqrt(size):
        total = rows  # of unit rows it is, and less noisy
    total = max(total, float(np.sum(shown)), error)
    rest = max(
        total - float(np.sum(shown)),
        float(np.sum(e2 / clean.strengths)) + error * math.sqrt(r) if r else 0.0,
        1e-4 * total,
    )
    weak, hidden = np.zeros(0), np.zeros(0)
    if r < size:
        other = basis[:, r:]
        diagonal = empirical_bayes(np.diag(clean.left), np.full(size, error))
        diagonal = np.maximum(diagonal, _LEAST_DIAGONAL * float(np.mean(diagonal)))
        diagonal *= rest / float(np.sum(diagonal))
        weak, turn = np.linalg.eigh((other.T * diagonal) @ other)
        weak, other = weak[::-1], other @ turn[:, ::-1]
        weak = np.maximum(weak, _LEAST_ENERGY * rest / (size - r))
        basis = np.concatenate([basis[:, :r], other], axis=1)
        squares = _squares_outside(clean.left, basis[:, :r])
        hidden = _hidden(size - r, squares, rest, error, math.sqrt(e2) + clean.level)
    return _FirstLook(basis, np.concatenate([shown, weak]), r, flat, hidden)


def _completed(matrix: Array, count: int) -> Array:
    """An orthonormal basis, as columns: first the leading eigenvectors, whatever the others."""
    if 3 * count > matrix.shape[0]:
        return np.asarray(np.linalg.eigh(matrix)[1][:, ::-1])
    leading = leading_eigenpairs(matrix, max(count, 1))[1].T
    basis: Array = np.linalg.qr(leading, mode="complete")[0]
    basis[:, : leading.shape[1]] = leading
    return basis


def _squares_outside(matrix: Array, directions: Array) -> float:
    """The squares of a symmetric matrix as it is between directions orthogonal to these."""
    across = matrix @ directions
    inside = directions.T @ across
    return max(float(np.sum(matrix**2) - 2.0 * np.sum(across**2) + np.sum(inside**2)), 0.0)


def _hidden(size: int, found: float, rest: float, error: float, e: float) -> Array:
    """Eigenvalues, descending, of what is left: a power law of the same sum and sum of squares.

    The squares that are ``found`` stand above the noise's where none of them does. None is larger
    than ``e``: it would have been seen.
    """
    noise = error**2 * size * (size + 1) / 2
    squares = found - noise + error**2 * size
    wanted = np.clip(squares / rest**2, 1.0 / size, 1.0)
    index = np.arange(1.0, size + 1.0)
    low, high = 0.0, 8.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        shares = index**-middle
        shares /= np.sum(shares)
        low, high = (middle, high) if float(shares @ shares) < wanted else (low, middle)
    shares = index**-low
    return np.minimum(rest * shares / float(np.sum(shares)), e)


# -- What a second release is worth


def _noise(
    energies: Array,
    squared: Array,
    later: float,
    growth: float,
    rows: float,
    sides: tuple[Any, Any] = (slice(None), slice(None)),
) -> Array:
    """Variances of the second release's entries, in the first one's units, its bias among them."""
    one, other = sides
    mean = float(squared @ energies) / float(np.sum(energies)) * max(growth, 1.0)
    noise = 0.5 * (later * mean) ** 2 / np.multiply.outer(squared[one], squared[other])
    bias = _spread(energies, squared, growth) * (BIAS + 1.0 / rows)
    return np.asarray(noise + bias * np.multiply.outer(energies[one], energies[other]))


def _spread(energies: Array, squared: Array, growth: float) -> float:
    """Relative variance of the squared norms of normal unit rows seen through the weights."""
    parts = energies / float(np.sum(energies))
    mean = float(squared @ parts)
    spread = 2.0 * float(np.sum((parts * (squared / mean - 1.0)) ** 2))
    if growth > 0:
        spread *= math.exp(-max(growth - 1.0, 0.0) / math.sqrt(spread)) if spread > 0 else 0.0
    return min(spread, 1.0)


def equaliser(energies: Array, squared: Array, bound: float, growth: float) -> tuple[Array, float]:
    """By what ``A2_kk / w_k^2`` falls short of the first spectrum, for normal rows; the spread."""
    total = float(np.sum(energies))
    shares = energies / total
    mean = float(squared @ shares)
    spread = _spread(energies, squared, growth)
    if bound > 0:
        return np.full(energies.size, bound**2), spread
    ratio = _ratios(shares, np.ones_like(shares)) / _ratios(shares, squared / mean)
    return np.asarray(ratio * mean), spread


def _ratios(shares: Array, weights: Array) -> Array:
    """``E[z_k^2 / sum_j a_j p_j z_j^2]`` of standard normal z, for all k."""
    parts = weights * shares
    growth = 1.0 + 2.0 * np.multiply.outer(parts, _PLACES)
    product = np.exp(-0.5 * np.sum(np.log(growth), axis=0))
    return np.asarray((product * _PLACES / growth).sum(axis=1) * _STEP)


def _worth(known: _FirstLook, noise: Array, components: int) -> float:
    """Expected energy of the K leading directions of what is known after the second release.

    ``noise``, shape (D, D), is what the second release adds to an entry.
    """
    inside, outside = _sides(known, components)
    worth, _ = _worth_and_slope(known, noise[np.ix_(inside, outside)], components)
    wanted = components - inside.size
    return worth + (_worth_of_hidden(known, noise, wanted) if wanted else 0.0)


def _worth_and_slope(known: _FirstLook, after: Array, components: int) -> tuple[float, Array]:
    """That of the directions that stand above the noise, and its derivative by ``after``.

    An eigenvalue of ``diag(l) + M``, entries of M independent of variance m, solves
    ``lambda = l_k + sum_j m_kj / (lambda - l_j)`` over the directions j that are left out.
    """
    inside, outside = _sides(known, components)
    before = known.variances[np.ix_(inside, outside)]
    part = before / (before + after)
    gained = before * part
    strong, weak = known.energies[inside], known.energies[outside]
    gap = np.maximum(strong[:, None] - weak, 0.0)
    rise = np.sqrt(np.sum(gained, axis=1))
    for _ in range(_STEPS):  # the largest root, from above
        apart = np.maximum(gap + rise[:, None], 1e-300)
        each = gained / apart
        value = np.sum(each, axis=1)
        slope = 1.0 + np.sum(each / apart, axis=1)
        rise = np.maximum(rise - (rise - value) / slope, 0.0)
    apart = np.maximum(gap + rise[:, None], 1e-300)
    slope = 1.0 + np.sum(gained / apart**2, axis=1)
    return float(np.sum(strong) + np.sum(rise)), -(part**2) / apart / slope[:, None]


def _sides(known: _FirstLook, components: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Directions that count, those that stand above the noise, and those that do not."""
    count = min(known.resolved, components)
    order = np.arange(known.energies.size)
    order[: known.resolved] = np.argsort(-known.energies[: known.resolved], kind="stable")
    return order[:count], order[count:]


def _worth_of_hidden(known: _FirstLook, noise: Array, wanted: int) -> float:
    """What as many directions of the rest will capture that do not stand above the noise yet.

    A direction of strength theta in noise whose rows' variances add up to ``e^2`` keeps
    ``1 - e^2/theta^2`` of it (Benaych-Georges & Nadakuditi 2011).
    """
    r = known.resolved
    weak, true = known.energies[r:], known.hidden
    before = known.variances[r:, r:]
    after = noise[r:, r:]
    both = before * after / (before + after)
    squared = float(weak @ np.sum(both, axis=1)) / float(np.sum(weak))
    level = float(np.mean(true))
    above = np.maximum(true[:wanted] - level, 1e-300)
    return float(np.sum(level + np.maximum(above - squared / above, 0.0)))


def _loss(worth: float, best: float) -> float:
    return max(0.0, 1.0 - worth / best) if best > 0 else 0.0


# -- Weights


def _families(
    known: _FirstLook, later: float, components: int, rows: float
) -> dict[str, tuple[Array, list[Array]]]:
    """Squared weights by name of candidate, and those by which its loss is predicted: the least."""
    energies, q = known.energies, min(known.resolved, components)
    if known.resolved >= components:
        found = _searched(known, _inverse(energies, q, _MOST_SHARE), later, components, rows)
        return {"searched": (found, [found])}
    share = max(_LEAST_SHARE, _MOST_SHARE * (q / components) ** _POWER)
    likely = [_inverse(energies, q, each) for each in (_SHARES if q else (0.0,))]
    return {"inverse": (_inverse(energies, q, share), likely)}


def _inverse(energies: Array, count: int, share: float) -> Array:
    """``1/l`` on the leading directions, with this share of the energy, ``1/sqrt(l)`` on others."""
    squared = np.empty_like(energies)
    share = share if count else 0.0
    if count:
        squared[:count] = share / count / energies[:count]
    rest = np.sqrt(energies[count:])
    squared[count:] = (1.0 - share) / (rest * float(np.sum(rest)))
    return squared


def _searched(known: _FirstLook, start: Array, later: float, components: int, rows: float) -> Array:
    """Weights of the most worth near ``start``, by quasi-Newton steps in their logarithms."""
    energies = known.energies
    inside, outside = _sides(known, components)
    total = float(np.sum(energies))

    def minus(log: Array) -> tuple[float, Array]:
        squared = np.exp(log)
        parts = squared * energies / total
        mean = float(np.sum(parts))
        pure = 0.5 * (later * mean) ** 2 / np.multiply.outer(squared[inside], squared[outside])
        bias = _noise(energies, squared, 0.0, 0.0, rows, (inside, outside))
        worth, derivative = _worth_and_slope(known, pure + bias, components)
        flow = derivative * pure
        slope = 2.0 * float(np.sum(flow)) * parts / mean
        slope[inside] -= np.sum(flow, axis=1)
        slope[outside] -= np.sum(flow, axis=0)
        return -worth / total, -slope / total

    log = np.log(start)
    half = 0.5 * math.log(_MOST_WEIGHT)
    middle = 0.5 * float(np.max(log) + np.min(log))
    limits = [(middle - half, middle + half)] * log.size
    found = scipy.optimize.minimize(
        minus, log, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": _SEARCH}
    )
    return np.asarray(np.exp(found.x - np.max(found.x)))
