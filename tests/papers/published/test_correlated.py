"""CAPE as published: its variances, its messages, and what they really show.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import PrivacyError
from eigenveil_papers.published import cape_pca as cape
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    gaussian_variance,
    mutant,
    together,
    uncorrelated,
)

SITES, TAU = 5, 0.7
DRAWS = 20_000


def messages(make=cape.cape_messages, sites=SITES):
    """Noise of independent runs: what was sent, and what of it the aggregator knows; (S, n)."""
    return make(np.zeros((sites, DRAWS)), TAU, np.random.default_rng())


def law(made):
    """P-value of the marginal law of a message, of the sum, and of what the aggregator drew."""
    sites = len(made.sent)
    e, f, g = cape.published_variances(sites, TAU)
    seen = made.sent - made.known
    return together(
        gaussian_variance(seen.T, e + g),
        gaussian_variance(made.known.T, f),
        gaussian_variance(seen.sum(axis=0), TAU**2),
        uncorrelated(made.known.T),
        uncorrelated(np.stack([seen.sum(axis=0), seen[0] - seen[1]], axis=1)),
    )


@pytest.mark.parametrize("sites", [2, 5, 12])
def test_the_marginal_noise_is_the_published_one(sites):
    """A message carries tau^2, the mean of S of them tau^2/S^2, which is the pooled noise."""
    e, f, g = cape.published_variances(sites, TAU)
    assert e + g == pytest.approx(TAU**2)
    assert f + g == pytest.approx(TAU**2)
    assert law(messages(sites=sites)) > FALSE_ALARM


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("drawn - drawn.mean(axis=0)", "drawn"),  # masks that do not cancel
        ("zero_sum + known + own", "known + own"),  # no masks
        ("zero_sum + known + own", "zero_sum + known"),  # nothing that stays
        ("np.sqrt(variances.g)", "tau"),  # as if sites did not share the noise
        ("np.sqrt(variances.f)", "variances.f"),
        *(("rng.normal(scale=tau,", f"rng.normal(scale={f} * tau,") for f in OFF_BY_30_PERCENT),
    ],
)
def test_wrong_messages_are_rejected(old, new):
    assert law(messages(mutant(cape.cape_messages, old, new))) < REJECTED


def test_the_sum_is_that_of_the_messages_without_what_the_aggregator_drew():
    rng = np.random.default_rng()
    statistics = rng.normal(size=(SITES, 4, 3))
    total, made = cape.cape_sum(statistics, 1e-9, rng)
    assert total.shape == (4, 3)
    assert made.sent.shape == made.known.shape == statistics.shape
    np.testing.assert_allclose(total, statistics.sum(axis=0), atol=1e-6)
    np.testing.assert_array_equal(total, (made.sent - made.known).sum(axis=0))


def test_the_noise_of_the_sum_is_the_pooled_noise():
    total, _ = cape.cape_sum(np.zeros((SITES, DRAWS)), TAU, np.random.default_rng())
    assert gaussian_variance(total, TAU**2) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert gaussian_variance(total, (factor * TAU) ** 2) < REJECTED


# Unequal sites


def check_solution(solution, weights, requirements, pooled):
    """All that section 3.1 asks for."""
    squares = np.square(weights)
    e, f, g = np.array(solution).T
    assert np.array(solution).min() >= 0
    np.testing.assert_allclose(e + g, np.square(requirements))
    np.testing.assert_allclose(f + g, np.square(requirements))
    assert squares @ g == pytest.approx(pooled**2)
    # the last site's mask is minus the sum of the others': their variances must agree
    assert squares[-1] * e[-1] == pytest.approx(squares[:-1] @ e[:-1])


@given(
    st.lists(st.tuples(st.floats(0.05, 1), st.floats(0.1, 10)), min_size=2, max_size=6),
    st.floats(0.01, 0.99),
)
def test_a_published_solution_solves_the_published_problem(sites, share):
    weights, requirements = np.array(sites).T
    weights = weights / weights.sum()
    pooled = math.sqrt(share * float(np.square(weights) @ np.square(requirements)))
    try:
        solution = cape.unequal_variances(weights, requirements, pooled)
    except PrivacyError:
        return
    check_solution(solution, weights, requirements, pooled)


def test_unequal_sites_that_can_be_served():
    weights, requirements, pooled = [0.3, 0.3, 0.4], [1.0, 1.2, 2.0], 0.8
    solution = cape.unequal_variances(weights, requirements, pooled)
    check_solution(solution, weights, requirements, pooled)


@pytest.mark.parametrize("sites", range(2, 13))
def test_equal_sites_have_a_solution_that_the_published_one_misses_beyond_three(sites):
    weights, requirements = np.full(sites, 1 / sites), np.full(sites, TAU)
    pooled = TAU / sites
    equal = [cape.published_variances(sites, TAU)] * sites
    squares = np.square(weights)
    e, f, g = np.array(equal).T
    np.testing.assert_allclose(e + g, TAU**2)
    np.testing.assert_allclose(f + g, TAU**2)
    assert squares @ g == pytest.approx(pooled**2)
    if sites <= 3:
        check_solution(
            cape.unequal_variances(weights, requirements, pooled),
            weights,
            requirements,
            pooled,
        )
        return
    with pytest.raises(PrivacyError) as caught:
        cape.unequal_variances(weights, requirements, pooled)
    missing = (3 - sites) * TAU**2 / 2
    assert caught.value.code == "cape-infeasible"
    assert f"Site {sites} of {sites} would need noise g of variance {missing:.6g}" in str(
        caught.value
    )


def test_another_site_can_be_the_one_that_fails():
    with pytest.raises(PrivacyError, match=r"Site 1 of 3 would need noise g of variance -"):
        cape.unequal_variances([0.1, 0.4, 0.5], [0.1, 1.0, 1.0], 0.3)


def test_a_pooled_noise_above_what_independent_noise_gives_needs_no_mask():
    with pytest.raises(PrivacyError, match=r"noise e of variance -"):
        cape.unequal_variances([0.5, 0.5], [1.0, 1.0], 2.0)


@pytest.mark.parametrize(
    ("weights", "requirements"), [([1.0], [1.0]), ([0.5, 0.5], [1.0]), ([1.0, 0.0], [1.0, 1.0])]
)
def test_senseless_sites_are_refused(weights, requirements):
    with pytest.raises(PrivacyError, match="cannot combine"):
        cape.unequal_variances(weights, requirements, 0.1)


# Gain


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30))
def test_the_gain_is_the_number_of_sites_or_more(rows):
    found = cape.gain(rows)
    assert found >= len(rows)
    # its largest value, for that many rows, when all sites but one have a single row
    most, sites = sum(rows) - len(rows) + 1, len(rows)
    assert found <= (sum(rows) / sites) ** 2 * (1 / most**2 + (sites - 1)) * (1 + 1e-12)


@given(st.integers(1, 10**9), st.integers(1, 50))
def test_equal_sites_gain_exactly_their_number(rows, sites):
    assert cape.gain([rows] * sites) == sites


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=10), st.randoms())
def test_the_gain_does_not_depend_on_the_order(rows, random):
    other = rows.copy()
    random.shuffle(other)
    assert cape.gain(rows) == cape.gain(other)
