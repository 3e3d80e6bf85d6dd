"""Intervals of a mixture: of what its rows say of its components, which a sum of them released.

The last sum of expectation maximisation is of rows as the mixture before it shares them between
its components. That mixture follows from earlier releases, and the sum's noise is its own: numbers,
means and squares of the rows that each component has are known with the noise's own law. Where
components stand apart the sharing is that of the rows' own fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from eigenveil.models.intervals.bars import Array, Bars, Flags, Kind, Quantity, deviations
from eigenveil.models.intervals.replayed import ANOTHER, replayed
from eigenveil.models.mixture.plan import SUMS, MixturePlan
from eigenveil.models.result import Result
from eigenveil.moments.em import COUNT_WEIGHT, PRODUCT_PART, SQUARE_WEIGHT, EMSums
from eigenveil.moments.exact import Squares

NO_SUMS = "no sum of expectation maximisation was released"
FEW = "noise hides how many rows the component has"
NO_FOURTH = "how far squares vary needs rows' fourth moments, which are not released"
NOT_BY_COLUMN = "how far each column varies within a component is not released"
PUBLIC = "it is public, not released"
# A number of rows that is divided by exceeds so many deviations of its noise.
_SURE = 4.0
# Part of a distance that is rounding.
_NEAR = 1e-6


@dataclass(frozen=True)
class NoisySums:
    """The last released sum, in the order of the result's components."""

    counts: Array  # (K,)
    sums: Array  # (K, D), of rows less the mean before, in reaches
    squares: Array  # (K,), (K, D), (K, D, D), or (1, D, D) where components have one covariance
    noise: float  # Of an entry of the sums
    before: Array  # Means before, (K, D), in the data's units
    reach: Array  # (K,), likewise
    form: Squares

    @property
    def count_noise(self) -> float:
        return self.noise / COUNT_WEIGHT

    @property
    def few(self) -> Flags:
        return np.asarray(self.counts <= _SURE * self.count_noise)

    @property
    def safe_counts(self) -> Array:
        """Numbers of rows that are divided by; endless where noise hides them."""
        return np.where(self.few, 1e100, self.counts)

    def in_rows(self, bars: Bars) -> Bars:
        """Bars with nothing for components whose rows noise hides."""
        few = self.few.reshape(-1, *(1,) * (bars.why.ndim - 1))
        return bars.but(np.broadcast_to(few, bars.why.shape), FEW)


def sums_of(result: Result) -> NoisySums | str:
    """The last sum of a result; or why it is not known."""
    plan = result.plan
    assert isinstance(plan, MixturePlan)
    name = f"{SUMS} {plan.count_of(SUMS)}"
    if name not in result.factors.released:
        return NO_SUMS
    again = replayed(result)
    if isinstance(again, str):
        return again
    sums, release = again.queries[name].accumulator, again.answers[name]
    assert isinstance(sums, EMSums)
    count, features = sums.mixture.means.shape
    values, size = release.values, count * features
    counts = values[size : size + count] / COUNT_WEIGHT
    noise = release.record.noise.deviation(values.size)
    held = np.maximum(counts, _SURE * noise / COUNT_WEIGHT)
    center = 0.0 if sums.rule.center is None else sums.rule.center
    before, reach = center + sums.rule.bound * sums.mixture.means, sums.mixture.reaches
    shifts = values[:size].reshape(count, features) * (sums.rule.bound * reach / held)[:, None]
    order = _places(result.factors.means, before, shifts)
    if order is None:
        return ANOTHER
    squares = _whole(values[size + count :] / SQUARE_WEIGHT, sums.squares, features)
    return NoisySums(
        counts=counts[order],
        sums=values[:size].reshape(count, features)[order],
        squares=squares if squares.shape[0] != count else squares[order],
        noise=noise,
        before=before[order],
        reach=sums.rule.bound * reach[order],
        form=sums.squares,
    )


def _places(means: Array, before: Array, shifts: Array) -> NDArray[np.intp] | None:
    """Of the result's components, the places in the sum; ``None`` where they are of another one.

    A mean is moved by a part of what the sum shows, whatever direction that is: it lies in the ball
    whose diameter leads from the mean before to where the sum alone would put it.
    """
    if means.shape != before.shape:
        return None
    middle, radius = before + 0.5 * shifts, 0.5 * np.linalg.norm(shifts, axis=1)
    size = float(np.abs(before).max()) + float(radius.max())
    apart = np.linalg.norm(means[:, None] - middle, axis=2) - radius
    near = np.linalg.norm(means[:, None] - before, axis=2)
    outside = np.maximum(apart, 0.0)
    order = linear_sum_assignment(outside + _NEAR * near)[1]
    moved = outside[np.arange(order.size), order]
    return np.asarray(order) if float(moved.max()) <= _NEAR * size else None


def _whole(squares: Array, form: Squares, features: int) -> Array:
    """Released squares with one row for each component that has some."""
    match form:
        case "none":
            return np.zeros((0,))
        case "trace":
            return squares
        case "diag":
            return squares.reshape(-1, features)
    rows, columns = np.tril_indices(features)
    parts = squares.reshape(-1, rows.size) / _parts(features)[rows, columns]
    whole = np.empty((parts.shape[0], features, features))
    whole[:, rows, columns] = whole[:, columns, rows] = parts
    return whole


def _parts(features: int) -> Array:
    """What of each product was released, in that of a square."""
    found = np.full((features, features), PRODUCT_PART * math.sqrt(2.0))
    np.fill_diagonal(found, 1.0)
    return found


def of_mixture(result: Result, level: float, of: Kind) -> Iterator[Quantity]:
    """All that a mixture has intervals of."""
    factors, width = result.factors, deviations(level)
    facts = sums_of(result)
    count, features = factors.means.shape
    components = tuple(str(number) for number in range(1, count + 1))
    columns = result.labels
    drawn_too = of == "population"
    about = "of the rows that the mixture before the last sum gives each component, shortened to "
    about += "its reach about the mean before"
    bars: Bars | str
    bars = facts if isinstance(facts, str) else _weights(facts, width, drawn_too=drawn_too)
    said = "part of the rows that the mixture before the last sum gives each component"
    yield Quantity("weight", said, ("component",), (components,), _shown(bars, (count,)))
    bars = facts if isinstance(facts, str) else _means(facts, width, drawn_too=drawn_too)
    axes: tuple[str, ...] = ("component", "feature")
    means = _shown(bars, (count, features))
    yield Quantity("mean", f"mean {about}", axes, (components, columns), means)
    shape = factors.covariances.shape
    if isinstance(facts, str):
        bars = facts
    elif facts.form == "none":
        bars = PUBLIC
    else:
        bars = NO_FOURTH if drawn_too else _covariances(facts, width)
    all_axes = {"component": components, "feature": columns, "other": columns}
    axes = tuple(all_axes)[: len(shape)]
    assert isinstance(result.plan, MixturePlan)
    if result.plan.shape.shared:
        axes = ("feature", "other")
    labels = tuple(all_axes[each] for each in axes)
    yield Quantity("covariance", f"covariance {about}", axes, labels, _shown(bars, shape))


def _shown(bars: Bars | str, shape: tuple[int, ...]) -> Bars:
    return Bars.none(shape, bars) if isinstance(bars, str) else bars


def _weights(facts: NoisySums, width: float, *, drawn_too: bool) -> Bars | str:
    """Numbers of rows over all; of the population a row is in a component or is not, at most."""
    count, total = facts.counts.size, float(facts.counts.sum())
    if total <= _SURE * facts.count_noise * math.sqrt(count):
        return FEW
    share = facts.counts / total
    spread = (facts.count_noise / total) ** 2 * ((1.0 - share) ** 2 + (count - 1) * share**2)
    if drawn_too:
        spread = spread + np.clip(share * (1.0 - share), 0.0, None) / total
    return Bars.about(share, width * np.sqrt(spread), within=(0.0, 1.0))


def _means(facts: NoisySums, width: float, *, drawn_too: bool) -> Bars | str:
    """Sums over numbers of rows, by Fieller's set (1954), which is exact."""
    counts = facts.safe_counts[:, None]
    noise = np.full_like(facts.sums, facts.noise**2)
    if drawn_too:
        if facts.form not in ("diag", "full"):
            return NOT_BY_COLUMN
        squares = facts.squares if facts.form == "diag" else _diagonals(facts.squares)
        noise = noise + np.maximum(squares, 0.0)
    square = counts**2 - (width * facts.count_noise) ** 2
    half = facts.sums * counts / square
    root = np.sqrt(np.maximum(0.0, half**2 - (facts.sums**2 - width**2 * noise) / square))
    share = facts.sums / counts
    bars = Bars.about(share, share - (half - root), half + root - share)
    return facts.in_rows(bars.each(lambda end: facts.before + facts.reach[:, None] * end))


def _covariances(facts: NoisySums, width: float) -> Bars:
    """By the delta method: squares about the mean before, less those of the way from there."""
    if facts.form == "tied":
        return _tied(facts, width)
    counts, noise = facts.safe_counts, facts.noise
    own: Array | float = noise / SQUARE_WEIGHT
    if facts.form == "trace":
        size = facts.sums.shape[1]
        way = np.sum(facts.sums**2, axis=1)
        spread, way = 4.0 * way * noise**2 + 2.0 * size * noise**4, way - size * noise**2
    elif facts.form == "diag":
        counts = counts[:, None]
        spread, way = _ways(facts.sums, facts.sums, noise, own=True)
    else:
        counts = counts[:, None, None]
        own = own / _parts(facts.sums.shape[1])
        spread, way = _products(facts.sums, noise)
    square, way = facts.squares / counts, way / counts**2
    of_count = (square - 2.0 * way) * facts.count_noise
    errors = np.sqrt(own**2 + of_count**2 + spread / counts**2) / counts
    bars = Bars.about(square - way, width * errors)
    unit = facts.reach**2 / (facts.sums.shape[1] if facts.form == "trace" else 1)
    return facts.in_rows(bars.times(unit.reshape(-1, *(1,) * (square.ndim - 1))))


def _tied(facts: NoisySums, width: float) -> Bars:
    counts, total = facts.safe_counts[:, None, None], float(facts.counts.sum())
    shape = facts.squares.shape[1:]
    if facts.few.any():
        return Bars.none(shape, FEW)
    spread, way = _products(facts.sums, facts.noise)
    found = (facts.squares[0] - np.sum(way / counts, axis=0)) / total
    own = facts.noise / SQUARE_WEIGHT / _parts(shape[0])
    of_counts = (way / counts**2 - found) * facts.count_noise
    errors = np.sqrt(own**2 + np.sum(of_counts**2 + spread / counts**2, axis=0)) / total
    return Bars.about(found, width * errors).times(float(facts.reach[0]) ** 2)


def _ways(one: Array, other: Array, noise: float, *, own: bool) -> tuple[Array, Array]:
    """Variance of the product of two sums with noise, and the product without what noise adds."""
    variance = noise**2
    if own:
        return 4.0 * one**2 * variance + 2.0 * variance**2, one**2 - variance
    return (one**2 + other**2) * variance + variance**2, one * other


def _products(sums: Array, noise: float) -> tuple[Array, Array]:
    """The same of every pair of columns, (K, D, D)."""
    spread, way = _ways(sums[:, :, None], sums[:, None, :], noise, own=False)
    places = np.arange(sums.shape[1])
    spread[:, places, places], way[:, places, places] = _ways(sums, sums, noise, own=True)
    return spread, way


def _diagonals(matrices: Array) -> Array:
    return np.asarray(np.diagonal(matrices, axis1=1, axis2=2))
