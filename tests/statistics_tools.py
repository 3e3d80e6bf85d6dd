"""Tests of distributions with a stated chance of false alarm, and mutants they must reject.

Each function returns a p-value: under the law that is claimed, it is below p with chance at most p.
A test passes when its p-value is above ``FALSE_ALARM``; so a correct program fails one with chance
at most 1e-8, and all of them together (fewer than 500) with chance at most 5e-6. Nothing is
seeded and nothing is tried twice. ``REJECTED`` is what wrong noise must stay below: far enough that
a mutant does not slip through by luck either.
"""

import inspect
import itertools
import math
import textwrap

import numpy as np
from scipy import special, stats

FALSE_ALARM = 1e-8
REJECTED = 1e-12
OFF_BY_30_PERCENT = (0.7, 1.3)


def ended_early(fit, ended):
    """What nine calls of ``fit`` gave where ``ended`` is true of it; five at least.

    For data so small that the noise alone decides: a histogram of noise passes for rows in one of
    a hundred (:data:`eigenveil.tables.scales.CORE`), five of nine do with chance below 2e-8.
    """
    found = [each for each in (fit() for _ in range(9)) if ended(each)]
    assert len(found) >= 5, f"{len(found)} of 9 fits ended early"
    return found


def at_least(wanted, outcomes):
    """Whether so many of the outcomes are true: drawn one by one until it is certain."""
    return sum(1 for _ in itertools.islice(filter(None, outcomes), wanted)) == wanted


def together(*p_values):
    """The p-value of several tests as one (Bonferroni)."""
    every = np.concatenate([np.ravel(p) for p in p_values])
    return min(1.0, every.size * float(every.min()))


def chi_square(counts, probabilities):
    """Counts of independent draws against bin probabilities; give bins of 100 or more expected."""
    expected = np.sum(counts) * np.asarray(probabilities) / np.sum(probabilities)
    assert expected.min() >= 100, "too few draws in a bin for the chi-square law"
    statistic = np.sum((counts - expected) ** 2 / expected)
    return float(stats.chi2.sf(statistic, expected.size - 1))


def kolmogorov(sample, cdf):
    """Independent draws against a continuous law: Massart's bound, valid for every sample size."""
    at = cdf(np.sort(sample))
    n = len(sample)
    distance = max(np.max(np.arange(1, n + 1) / n - at), np.max(at - np.arange(n) / n))
    return min(1.0, 2 * math.exp(-2 * n * distance * distance))


def gaussian_variance(values, variance):
    """Independent centred Gaussians, along the first axis, against their variance: exact."""
    values = np.asarray(values)
    statistic = np.sum(values * values, axis=0) / variance
    n = len(values)
    return 2 * np.minimum(stats.chi2.cdf(statistic, n), stats.chi2.sf(statistic, n))


def uncorrelated(values):
    """Independent coordinates (n, d) of mean zero, one of each pair Gaussian: exact."""
    n, d = values.shape
    lengths = np.sqrt(np.sum(values * values, axis=0))
    r = (values.T @ values / np.outer(lengths, lengths))[np.triu_indices(d, 1)]
    return 2 * stats.t.sf(np.abs(r) * np.sqrt((n - 1) / (1 - r * r)), n - 1)


def isotropic(values, sigma):
    """Rows of independent N(0, sigma^2) coordinates: every variance and every correlation."""
    return together(gaussian_variance(values, sigma * sigma), uncorrelated(values))


def better_than_random(squares, features):
    """Squared overlaps of directions with a fixed one, against uniformly random directions.

    A random one's is Beta(1/2, (features - 1)/2). Chernoff's bound of their sum from above.
    """
    rates = np.geomspace(0.01, 1000, 200)
    one = np.log(special.hyp1f1(0.5, features / 2, rates))
    return float(np.exp(np.minimum(0.0, len(squares) * one - rates * np.sum(squares)).min()))


def clopper_pearson(hits, trials, false_alarm):
    """Bounds of a chance; each of the two is wrong with chance at most ``false_alarm``."""
    low = stats.beta.ppf(false_alarm, hits, trials - hits + 1) if hits else 0.0
    high = stats.beta.isf(false_alarm, hits + 1, trials - hits) if hits < trials else 1.0
    return float(low), float(high)


def svec(matrix):
    """Isometric coordinates of symmetric matrices (..., D, D)."""
    size = matrix.shape[-1]
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    rows, columns = np.triu_indices(size, 1)
    return np.concatenate([diagonal, math.sqrt(2) * matrix[..., rows, columns]], axis=-1)


def mutant(function, old, new):
    """The function with one piece of its source changed: what a careful test must reject."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} is not (once) in {function.__name__}: write it anew"
    scope = dict(function.__globals__)
    exec(source.replace(old, new), scope)
    return scope[function.__name__]
