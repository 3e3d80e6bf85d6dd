"""Paper 000's two remarks on sensitivity: of the root P_s, and in L1 for Laplace noise.

Sensitivities are searched for: what is found is reached by two neighbouring tables, so that it is a
lower bound. That of the second moment is known, sqrt(2)/N for a row replaced, and searched for too,
which shows what the search finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from eigenveil.privacy.accountant import classic_sigma
from eigenveil_papers.reproduction.experiment import Point
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers
from eigenveil_papers.reproduction.rule import ClaimPart, Effect, Measure, exactly

ROWS_OVER = (10, 100, 1_000, 10_000, 100_000)
SIZES_OVER = (2, 4, 8, 16, 32, 64)
EPSILON, DELTA = 0.5, 0.01
_FEATURES, _RANK = 4, 2
_TABLES, _STARTS = 48, 40
ROOTS = {"root": _RANK, "root-all": _FEATURES}


def sensitivities_of_roots(
    rng: np.random.Generator, *, counts: Sequence[int], steps: int
) -> Iterator[Point]:
    """The farthest that a replaced row was found to move P_s, or the second moment (Frobenius)."""
    for count in counts:
        yield Point("root", "moment", count, _searched(rng, count, steps, _of_moments))
        for series, rank in ROOTS.items():
            found = _searched(rng, count, steps, partial(_of_roots, rank=rank))
            yield Point("root", series, count, found)


def _searched(
    rng: np.random.Generator,
    count: int,
    steps: int,
    moved: Callable[[FloatArray, FloatArray], FloatArray],
) -> float:
    """Hill climbing of many tables at once, by steps of all sizes.

    In the axes of the other rows' moment: its eigenvalues (any that add up to at most N - 1 over N
    are those of N - 1 rows of norms up to 1, by Schur and Horn), the row and what replaces it.
    """
    shape = (_TABLES, 3 * _FEATURES + 1)

    def value(given: FloatArray) -> FloatArray:
        share = np.exp(given[:, : _FEATURES + 1])
        others = share[:, :-1] / share.sum(axis=1, keepdims=True) * (count - 1) / count
        rows = given[:, _FEATURES + 1 :].reshape(_TABLES, 2, _FEATURES)
        rows = rows / np.maximum(1.0, np.linalg.norm(rows, axis=2, keepdims=True))
        both = rows[..., :, None] * rows[..., None, :] / count
        both += others[:, None, :, None] * np.eye(_FEATURES)
        return moved(both[:, 0], both[:, 1])

    best = rng.standard_normal(shape)
    reached = value(best)
    for _ in range(steps):
        size = 10.0 ** rng.uniform(-7, 0.5, (_TABLES, 1))
        tried = best + size * rng.standard_normal(shape) * (rng.random(shape) < 0.5)
        found = value(tried)
        better = found > reached
        best[better], reached[better] = tried[better], found[better]
    return float(reached.max())


def _of_moments(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.norm(first - second, axis=(1, 2)))


def _of_roots(first: FloatArray, second: FloatArray, rank: int) -> FloatArray:
    """Frobenius distance of P and P', whose columns are turned as near to P as can be.

    Eigenvectors have no sign and the aggregator takes P P': any turn would do for it.
    """
    roots = []
    for moment in (first, second):
        values, vectors = np.linalg.eigh(moment)
        kept = np.sqrt(np.maximum(values[:, None, -rank:], 0.0))
        roots.append(vectors[..., -rank:] * kept)
    left, _, right = np.linalg.svd(roots[1].transpose(0, 2, 1) @ roots[0])
    return np.asarray(np.linalg.norm(roots[0] - roots[1] @ (left @ right), axis=(1, 2)))


def deviations(rng: np.random.Generator, *, sizes: Sequence[int]) -> Iterator[Point]:
    """An entry's noise, times N, by Laplace in L1 and by Gauss in L2, of the triangle's entries."""
    gauss = classic_sigma(1.0, EPSILON, DELTA, reproduction=True)
    for size in sizes:
        found = {power: _largest_move(rng, size, power) for power in (1, 2)}
        yield Point("laplace", "laplace", size, math.sqrt(2) * found[1] / EPSILON)
        yield Point("laplace", "gauss", size, gauss * found[2])


def _largest_move(rng: np.random.Generator, size: int, power: int) -> float:
    """The largest norm of the triangle of x x' - y y' found, |x|, |y| <= 1.

    A norm is convex: at each step x and y become the leading and last eigenvectors of its gradient,
    which never lowers it.
    """
    best = 0.0
    half = 0.5 * (1 + np.eye(size))  # the triangle's gradient as a symmetric matrix
    for _ in range(_STARTS):
        start = rng.standard_normal((size, size))
        gradient, reached = start + start.T, 0.0
        while True:
            _, vectors = np.linalg.eigh(gradient)
            x, y = vectors[:, -1], vectors[:, 0]
            move = np.outer(x, x) - np.outer(y, y)
            found = float(np.sum(np.abs(move[np.tril_indices(size)]) ** power) ** (1 / power))
            if found <= reached * (1 + 1e-9):
                break
            reached = found
            gradient = half * np.sign(move) * np.abs(move) ** (power - 1)
        best = max(best, reached)
    return best


TIMES = Measure(unit="times", margin=1.1, ratio=True)


def sensitivity_parts(numbers: Numbers) -> tuple[dict[str, list[ClaimPart]], str]:
    """By what is asked, of the farthest that any run found; and the exponents of N."""
    worst = {series: numbers.worst("root", series) for series in ("moment", *ROOTS)}
    known = {x: math.sqrt(2) / x for x in worst["moment"]}
    laplace, gauss = (numbers.worst("laplace", of) for of in ("laplace", "gauss"))
    higher = {rank: _ratios(worst[series], known) for series, rank in ROOTS.items()}
    parts = {
        "much higher": [
            ClaimPart(f"R = {rank} of {_FEATURES}", found, "at least", math.log(2))
            for rank, found in higher.items()
        ],
        "varies": [
            ClaimPart("Laplace", _steps(laplace), "at least", TIMES.room),
            ClaimPart("Gauss", _steps(gauss), "at most", TIMES.room),
        ],
        "less noise": [ClaimPart("", _ratios(laplace, gauss), "better")],
    }
    slopes = {of: _slope(found) for of, found in worst.items() if len(found) > 1}
    told = ", ".join(f"{of} {slope:.2f}" for of, slope in slopes.items())
    return parts, f"exponents of N, as found: {told}"


def _ratios(first: dict[float, float], second: dict[float, float]) -> tuple[Effect, ...]:
    return exactly({x: math.log(first[x] / second[x]) for x in first})


def _steps(found: dict[float, float]) -> tuple[Effect, ...]:
    return tuple(
        Effect(f"{one:g} to {two:g}", math.log(found[two] / found[one]), 0.0)
        for one, two in pairwise(found)
    )


def _slope(found: dict[float, float]) -> float:
    return float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])
