"""What an adversary provably learns who sees outputs on two neighbouring data sets.

Both bounds are one-sided: a sound mechanism stays under its claim but for the stated chance, and a
broken one is shown broken. Half of the outputs choose the adversary's test, the other half measure
it, so choosing costs nothing (Clopper & Pearson 1934; Nasr et al. 2023 for the Gaussian form).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta

# Thresholds that the choosing half tries.
_THRESHOLDS = 400


def epsilon_lower_bound(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    *,
    delta: float,
    false_alarm: float = 1e-8,
) -> float:
    """A lower bound on epsilon at ``delta``, wrong with chance at most ``false_alarm``.

    Parameters
    ----------
    first, second : arrays of shape (n,)
        One statistic of independent outputs on the two data sets; any function of the output will
        do, the likelihood ratio is best.
    delta : float
        Of the claim ``Pr[first in S] <= exp(epsilon) Pr[second in S] + delta``.
    """
    best = -math.inf
    # events of both directions, for both roles of the data sets: four candidate families
    for one, two, sign in (
        (first, second, 1.0),
        (first, second, -1.0),
        (second, first, 1.0),
        (second, first, -1.0),
    ):
        choose_one, measure_one = np.array_split(sign * one, 2)
        choose_two, measure_two = np.array_split(sign * two, 2)
        level = false_alarm / 8  # four families, two intervals each
        threshold, found = 0.0, -math.inf
        for candidate in _candidates(choose_one, choose_two):
            bound = _epsilon_of_event(choose_one, choose_two, candidate, delta, level)
            if bound > found:
                threshold, found = candidate, bound
        if found > -math.inf:
            best = max(best, _epsilon_of_event(measure_one, measure_two, threshold, delta, level))
    return max(0.0, best)


def mu_lower_bound(
    first: NDArray[np.float64], second: NDArray[np.float64], *, false_alarm: float = 1e-8
) -> float:
    """A lower bound on mu, wrong with chance at most ``false_alarm``.

    Any test between neighbours of a mu-GDP mechanism has errors ``alpha, beta`` with
    ``Phi^-1(1 - alpha) - Phi^-1(beta) <= mu``.
    """
    if np.mean(first) < np.mean(second):
        first, second = second, first
    choose_one, measure_one = np.array_split(first, 2)
    choose_two, measure_two = np.array_split(second, 2)
    candidates = _candidates(choose_one, choose_two)
    bounds = [_mu_of_event(choose_one, choose_two, c, false_alarm / 2) for c in candidates]
    threshold = candidates[int(np.argmax(bounds))]
    return max(0.0, _mu_of_event(measure_one, measure_two, threshold, false_alarm / 2))


def _candidates(one: NDArray[np.float64], two: NDArray[np.float64]) -> NDArray[np.float64]:
    levels = np.linspace(0.001, 0.999, _THRESHOLDS)
    return np.asarray(np.quantile(np.concatenate([one, two]), levels))


def _epsilon_of_event(
    one: NDArray[np.float64], two: NDArray[np.float64], threshold: float, delta: float, level: float
) -> float:
    likely = _at_least(int(np.count_nonzero(one >= threshold)), one.size, level)
    unlikely = _at_most(int(np.count_nonzero(two >= threshold)), two.size, level)
    return math.log((likely - delta) / unlikely) if likely > delta else -math.inf


def _mu_of_event(
    one: NDArray[np.float64], two: NDArray[np.float64], threshold: float, level: float
) -> float:
    missed = _at_most(int(np.count_nonzero(one < threshold)), one.size, level)
    alarm = _at_most(int(np.count_nonzero(two >= threshold)), two.size, level)
    return float(ndtri(1.0 - alarm) - ndtri(missed))


def _at_least(hits: int, trials: int, level: float) -> float:
    """Clopper-Pearson lower bound of a chance."""
    return 0.0 if hits == 0 else float(beta.ppf(level, hits, trials - hits + 1))


def _at_most(hits: int, trials: int, level: float) -> float:
    """Clopper-Pearson upper bound of a chance."""
    return 1.0 if hits == trials else float(beta.ppf(1.0 - level, hits + 1, trials - hits))
