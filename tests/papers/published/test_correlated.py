"""CAPE as published: its variances, its messages, and what they really show.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import PrivacyError, number_text
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
    return make(np.zeros((sites, DRAWS)), cape.equal_plan(sites, TAU), np.random.default_rng())


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
        ("_zero_sum(plan, rng, theirs)", "0.7 * rng.normal(size=(sites, *theirs))"),  # no sum of 0
        ("exact + zero_sum + known + own", "exact + known + own"),  # no masks
        ("exact + zero_sum + known + own", "exact + zero_sum + known"),  # nothing that stays
        ("deviations[2].reshape", "deviations[1].reshape"),  # as if sites did not share the noise
        ("* deviations[1]", "* deviations[1] ** 2"),
        *(
            ("_zero_sum(plan, rng, theirs)", f"{f} * _zero_sum(plan, rng, theirs)")
            for f in OFF_BY_30_PERCENT
        ),
    ],
)
def test_wrong_messages_are_rejected(old, new):
    assert law(messages(mutant(cape.cape_messages, old, new))) < REJECTED


def test_the_mean_is_that_of_the_messages_without_what_the_aggregator_drew():
    rng = np.random.default_rng()
    statistics = rng.normal(size=(SITES, 4, 3))
    plan = cape.equal_plan(SITES, 1e-9)
    made = cape.cape_messages(statistics, plan, rng)
    assert made.sent.shape == made.known.shape == made.helper.shape == statistics.shape
    mean = cape.weighted_mean(made, plan.weights)
    np.testing.assert_allclose(mean, statistics.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(mean, (made.sent - made.known).mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(made.helper.sum(axis=0), 0, atol=1e-20)


# What the text of capePCA and capeAGN draws: independent entries of the helper and the aggregator

SIZE = 3


def triangle_law(layout, runs=3000):
    """P-value of the law of a message's entries, of an entry and its twin, and of the mean."""
    rng = np.random.default_rng()
    plan = cape.equal_plan(SITES, TAU)
    nothing = np.zeros((SITES, SIZE, SIZE))
    drawn = [cape.cape_messages(nothing, plan, rng, layout=layout) for _ in range(runs)]
    seen = np.array([made.sent - made.known for made in drawn])[:, 0]
    known = np.array([made.known[0] for made in drawn]).reshape(runs, -1)
    mean = np.array([cape.weighted_mean(made, plan.weights) for made in drawn])
    if np.abs(mean - mean.swapaxes(1, 2)).max() > 1e-12:
        return 0.0
    e, f, g = cape.published_variances(SITES, TAU)
    upper, lower = seen[:, 0, 1], seen[:, 1, 0]
    return together(
        gaussian_variance(seen.reshape(runs, -1), e + g),
        gaussian_variance((upper + lower) / 2, e / 2 + g),  # the helper's noise is averaged off
        gaussian_variance((upper - lower) / 2, e / 2),
        gaussian_variance(known, f),
        gaussian_variance(known[:, 1] - known[:, SIZE], 2 * f),  # an entry and its twin
        gaussian_variance(mean[:, *np.tril_indices(SIZE)], TAU**2 / SITES**2),
    )


def test_the_literal_noise_of_others_has_independent_entries():
    assert triangle_law("literal") > FALSE_ALARM
    assert triangle_law("symmetric") < REJECTED
    assert triangle_law("entries") < REJECTED  # the sites' own noise is symmetric


def test_symmetric_noise_is_symmetric_in_every_message():
    plan = cape.equal_plan(SITES, TAU)
    statistics = np.zeros((SITES, SIZE, SIZE, SIZE))
    made = cape.cape_messages(statistics, plan, np.random.default_rng(), layout="symmetric")
    for part in made:
        np.testing.assert_array_equal(part, part.swapaxes(1, 3))
        np.testing.assert_array_equal(part, part.swapaxes(1, 2))
        assert np.count_nonzero(part[0] != part[0, 0, 0, 0]) > 0


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
            cape.unequal_variances(weights, requirements, pooled), weights, requirements, pooled
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


def feasible():
    """Sites of different weights and requirements that section 3.1 has a solution for."""
    return cape.unequal_plan([0.3, 0.3, 0.4], [1.0, 1.2, 2.0], 0.8)


def unequal_law(make, runs=DRAWS):
    plan = feasible()
    made = make(np.zeros((3, runs)), plan, np.random.default_rng())
    seen = made.sent - made.known
    np.testing.assert_allclose(plan.weights @ made.helper, 0, atol=1e-12)
    e, f, _ = np.array(plan.variances).T
    return together(
        gaussian_variance(seen.T, plan.requirements**2),
        gaussian_variance(made.helper.T, e),
        gaussian_variance(made.known.T, f),
        gaussian_variance(plan.weights @ seen, 0.8**2),
    )


def test_unequal_messages_carry_what_each_site_requires_and_their_mean_the_pooled_noise():
    assert unequal_law(cape.cape_messages) > FALSE_ALARM


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("deviations[2].reshape(-1,", "deviations[2][::-1].reshape(-1,"),
        ("* deviations[1]", "* deviations[2]"),
    ],
)
def test_wrong_unequal_messages_are_rejected(old, new):
    assert unequal_law(mutant(cape.cape_messages, old, new)) < REJECTED


def test_what_the_aggregator_sees_of_unequal_sites_is_computed():
    """Against the covariance of 60,000 draws of messages, to 5 %: over ten of its deviations."""
    plan = feasible()
    made = cape.cape_messages(np.zeros((3, 60_000)), plan, np.random.default_rng())
    inverse = np.linalg.inv(np.cov(made.sent - made.known))
    measured = np.sqrt(np.diag(inverse)) * plan.requirements
    np.testing.assert_allclose(cape.times_claimed(plan), measured, rtol=0.05)
    assert np.all(cape.times_claimed(plan) > 1.0)


@pytest.mark.parametrize("sites", [1, 2, 5])
def test_equal_sites_have_the_closed_form(sites):
    plan = cape.equal_plan(sites, TAU)
    np.testing.assert_allclose(
        cape.times_claimed(plan), math.sqrt(2 * sites / (sites + 1)), rtol=1e-12
    )
    if 1 < sites <= 3:  # where the other solution exists too, it is another one
        other = cape.unequal_plan(plan.weights, plan.requirements, plan.pooled)
        assert cape.times_claimed(other).max() >= cape.times_claimed(plan).max() - 1e-12


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.1, 10)), min_size=4, max_size=8))
def test_weights_by_rows_and_one_target_are_never_served_beyond_three_sites(sites):
    """Every weight times its requirement is the pooled noise then, whatever the sizes are."""
    rows = np.array([n for n, _ in sites], dtype=float)
    with pytest.raises(PrivacyError) as caught:
        cape.unequal_plan(rows / rows.sum(), 1 / rows, 1 / rows.sum())
    assert caught.value.code == "cape-infeasible"
    # and the masked sum that the hint names gives every site its requirement with that very noise
    wanted = number_text(1 / rows.sum(), 4)
    told = f"a deviation of {wanted} of the mean, where {wanted} was"
    assert told in caught.value.hint


def test_the_masked_sum_of_the_hint_meets_every_requirement():
    weights, requirements = np.array([0.1, 0.4, 0.5]), np.array([0.1, 1.0, 1.0])
    with pytest.raises(PrivacyError, match="Site 1 of 3") as caught:
        cape.unequal_variances(weights, requirements, 0.3)
    masked = float(re.search(r"deviation of (\S+) of", caught.value.hint)[1])
    # a row of site s moves the masked sum by weight_s Delta_s: its mu is that over the deviation
    assert np.all(weights / masked <= (1 / requirements) * (1 + 1e-4))
    assert np.any(weights / masked >= (1 / requirements) * (1 - 1e-4))


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
