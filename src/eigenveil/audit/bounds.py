"""What an adversary provably learns who sees outputs on two neighbouring data sets.

All bounds are one-sided: a sound mechanism stays under its claim but for the stated chance, and a
broken one is shown broken. Half of the outputs choose the adversary's test, the other half measure
it, so choosing costs nothing (Clopper & Pearson 1934; Nasr et al. 2023 for the Gaussian form). The
outputs on one data set must be independent of each other; those on the two data sets need not be,
because the errors of either side are bounded by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta

FloatArray = NDArray[np.float64]

# Thresholds that the choosing half tries, the closer the rarer the event.
_LEVELS = np.concatenate(
    [np.geomspace(1e-5, 1e-3, 40, endpoint=False), np.linspace(0.001, 0.999, 400)]
)
_LEVELS = np.unique(np.concatenate([_LEVELS, 1.0 - _LEVELS]))


def epsilon_lower_bound(
    first: FloatArray, second: FloatArray, *, delta: float, false_alarm: float = 1e-8
) -> float:
    """A lower bound on epsilon at ``delta``, wrong with chance at most ``false_alarm``."""

    def loss(likely: FloatArray, unlikely: FloatArray) -> FloatArray:
        return np.where(likely > delta, np.log((likely - delta) / unlikely), -math.inf)

    return _lower_bound(first, second, false_alarm, loss)


def mu_lower_bound(first: FloatArray, second: FloatArray, *, false_alarm: float = 1e-8) -> float:
    """A lower bound on mu, wrong with chance at most ``false_alarm``.

    Any test between neighbours of a mu-GDP mechanism has errors ``alpha, beta`` with
    ``Phi^-1(1 - alpha) - Phi^-1(beta) <= mu``.
    """
    return _lower_bound(
        first, second, false_alarm, lambda likely, unlikely: ndtri(likely) + ndtri(1.0 - unlikely)
    )


def _lower_bound(
    first: FloatArray,
    second: FloatArray,
    false_alarm: float,
    loss: Callable[[FloatArray, FloatArray], FloatArray],
) -> float:
    """The loss that the measuring half shows by the event that looks best to the choosing half."""
    level = false_alarm / 2
    best, chosen = -math.inf, None
    with np.errstate(divide="ignore", invalid="ignore"):
        for family in _families(first, second):
            found = loss(*family.chances(level))
            found = np.where(np.isnan(found), -math.inf, found)
            place = int(np.argmax(found))
            if found[place] > best:
                best, chosen = float(found[place]), family.event(place)
        if chosen is None:
            return 0.0
        likely, unlikely = chosen.chances(level)
        bound = float(loss(np.array(likely), np.array(unlikely)))
    return 0.0 if math.isnan(bound) else max(0.0, bound)


def delta_lower_bounds(
    first: FloatArray, second: FloatArray, epsilons: ArrayLike, *, false_alarm: float = 1e-8
) -> FloatArray:
    """Lower bounds on delta at each epsilon, one of them wrong by chance ``false_alarm``."""
    requested = np.asarray(epsilons, dtype=np.float64)
    level = false_alarm / (2 * max(1, requested.size))
    families = _families(first, second)
    chances = [family.chances(level) for family in families]
    bounds = np.zeros(requested.size)
    for index, epsilon in enumerate(requested):
        found = [likely - math.exp(epsilon) * unlikely for likely, unlikely in chances]
        tops = [float(np.max(values)) for values in found]
        best = int(np.argmax(tops))
        event = families[best].event(int(np.argmax(found[best])))
        likely_here, unlikely_here = event.chances(level)
        bounds[index] = max(0.0, likely_here - math.exp(epsilon) * unlikely_here)
    return bounds


def chance_bounds(hits: int, trials: int, *, false_alarm: float) -> tuple[float, float]:
    """Clopper-Pearson bounds of a chance, together wrong with chance at most ``false_alarm``."""
    return (
        float(_at_least(np.array(hits), trials, false_alarm / 2)),
        float(_at_most(np.array(hits), trials, false_alarm / 2)),
    )


def least_trials(mu: float, *, false_alarm: float) -> int:
    """Outputs a data set below which even this mu could not be distinguished from 0.

    Half of them measure the test with equal errors ``Phi(-mu/2)``, each of which the interval
    makes larger by ``ndtri(1 - false_alarm / 2)`` deviations.
    """
    error = float(ndtr(-mu / 2))
    away = float(ndtri(1.0 - false_alarm / 2))
    return 2 * math.ceil(away**2 * error * (1.0 - error) / (0.5 - error) ** 2)


class _Event(NamedTuple):
    """Outputs of either data set in the measuring half, and how many of them are in an event."""

    likely: int
    unlikely: int
    sizes: tuple[int, int]

    def chances(self, level: float) -> tuple[float, float]:
        return (
            float(_at_least(np.array(self.likely), self.sizes[0], level)),
            float(_at_most(np.array(self.unlikely), self.sizes[1], level)),
        )


class _Family(NamedTuple):
    """Events "the statistic is at least a threshold", for one of the data sets against the other.

    The choosing halves are sorted.
    """

    choose: tuple[FloatArray, FloatArray]
    measure: tuple[FloatArray, FloatArray]
    thresholds: FloatArray

    def chances(self, level: float) -> tuple[FloatArray, FloatArray]:
        """Of the choosing half: at least so likely, at most so likely, for each threshold."""
        one, two = self.choose
        hits = one.size - np.searchsorted(one, self.thresholds, side="left")
        alarms = two.size - np.searchsorted(two, self.thresholds, side="left")
        return _at_least(hits, one.size, level), _at_most(alarms, two.size, level)

    def event(self, place: int) -> _Event:
        """The event of one threshold, as the measuring half sees it."""
        one, two = self.measure
        threshold = self.thresholds[place]
        return _Event(
            int(np.count_nonzero(one >= threshold)),
            int(np.count_nonzero(two >= threshold)),
            (one.size, two.size),
        )


def _families(first: FloatArray, second: FloatArray) -> list[_Family]:
    """Large and small values, for both roles of the data sets: four families of events."""
    families = []
    for one, two in ((first, second), (second, first)):
        for sign in (1.0, -1.0):
            choose_one, measure_one = np.array_split(sign * np.asarray(one), 2)
            choose_two, measure_two = np.array_split(sign * np.asarray(two), 2)
            pooled = np.sort(np.concatenate([choose_one, choose_two]))
            places = np.minimum((_LEVELS * pooled.size).astype(np.intp), pooled.size - 1)
            families.append(
                _Family(
                    (np.sort(choose_one), np.sort(choose_two)),
                    (measure_one, measure_two),
                    np.unique(pooled[places]),
                )
            )
    return families


def _at_least(hits: NDArray[np.int64], trials: int, level: float) -> FloatArray:
    """Clopper-Pearson lower bounds of chances."""
    some = np.maximum(hits, 1)
    return np.asarray(np.where(hits == 0, 0.0, beta.ppf(level, some, trials - some + 1)))


def _at_most(hits: NDArray[np.int64], trials: int, level: float) -> FloatArray:
    """Clopper-Pearson upper bounds of chances."""
    some = np.minimum(hits, trials - 1)
    return np.asarray(np.where(hits == trials, 1.0, beta.ppf(1.0 - level, some + 1, trials - some)))
