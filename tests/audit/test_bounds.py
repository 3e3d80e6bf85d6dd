"""The lower bounds stay under the truth, and come close to it.

Every bound is computed with a false alarm of 1e-8, so that a sound mechanism fails here less than
once in 1e6 runs; closeness leaves six deviations of room or more.
"""

import math

import numpy as np
import pytest

from eigenveil.audit import delta_lower_bounds, epsilon_lower_bound, mu_lower_bound
from eigenveil.audit.bounds import chance_bounds, least_trials
from eigenveil.privacy import epsilon_of_mu
from eigenveil.privacy.accountant import delta_of_mu

N = 40_000


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.0])
def test_mu_bound_is_below_the_truth_and_close(mu):
    rng = np.random.default_rng()
    bound = mu_lower_bound(rng.normal(mu, 1, N), rng.normal(0, 1, N))
    assert mu - 0.3 < bound <= mu  # six deviations and more, for each mu


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_epsilon_bound_of_laplace_noise_is_below_the_truth_and_close(epsilon):
    rng = np.random.default_rng()
    one = rng.laplace(1, 1 / epsilon, N)
    two = rng.laplace(0, 1 / epsilon, N)
    assert epsilon - 0.35 < epsilon_lower_bound(one, two, delta=0.0) <= epsilon


def responses(epsilon, n, rng):
    """Randomised response about a true and a false answer: exactly epsilon, in two events."""
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    return (rng.random(n) < honest).astype(float), (rng.random(n) > honest).astype(float)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_epsilon_bound_of_randomised_response_is_below_the_truth_and_close(epsilon):
    yes, no = responses(epsilon, N, np.random.default_rng())
    assert epsilon - 0.35 < epsilon_lower_bound(yes, no, delta=0.0) <= epsilon


def test_the_curve_of_randomised_response_is_below_the_truth_and_close():
    yes, no = responses(1.0, N, np.random.default_rng())
    epsilons = np.linspace(0, 2, 9)
    top = math.e
    truth = np.maximum(0.0, (top - np.exp(epsilons)) / (1 + top))
    found = delta_lower_bounds(yes, no, epsilons)
    assert np.all(found <= truth)
    assert found[0] > truth[0] - 0.06
    assert np.all(found[epsilons > 1] == 0)


def test_the_curve_of_gaussian_noise_is_below_the_truth_and_close():
    rng = np.random.default_rng()
    epsilons = np.linspace(0, 4, 9)
    truth = np.array([delta_of_mu(1.0, float(e)) for e in epsilons])
    found = delta_lower_bounds(rng.normal(1, 1, N), rng.normal(0, 1, N), epsilons)
    assert np.all(found <= truth)
    assert found[0] > truth[0] - 0.08


@pytest.mark.parametrize("times", [0.5, 0.7])
def test_less_noise_than_claimed_is_caught(times):
    rng = np.random.default_rng()
    claimed_mu = 1.0
    first, second = rng.normal(1, times, N), rng.normal(0, times, N)
    assert mu_lower_bound(first, second) > claimed_mu
    curve = delta_lower_bounds(first, second, [1.0])
    assert curve[0] > delta_of_mu(claimed_mu, 1.0)
    first, second = rng.laplace(1, times, N), rng.laplace(0, times, N)
    assert epsilon_lower_bound(first, second, delta=0.0) > 1.0


def test_epsilon_bound_subtracts_delta():
    rng = np.random.default_rng()
    bound = epsilon_lower_bound(rng.normal(1, 1, N), rng.normal(0, 1, N), delta=0.05)
    assert 0.3 < bound <= epsilon_of_mu(1.0, 0.05)


def test_equal_distributions_give_next_to_nothing():
    rng = np.random.default_rng()
    assert epsilon_lower_bound(rng.normal(size=N), rng.normal(size=N), delta=0.0) < 1e-3
    assert mu_lower_bound(rng.normal(size=N), rng.normal(size=N)) < 1e-3
    assert np.all(delta_lower_bounds(rng.normal(size=N), rng.normal(size=N), [0.0, 1.0]) < 1e-3)


def test_the_same_noise_on_both_sides_costs_no_soundness():
    # the statistics of a release may share its noise: each side's errors are bounded by themselves
    noise = np.random.default_rng().normal(size=N)
    assert mu_lower_bound(noise + 1.0, noise) <= 1.0


def test_the_stated_confidence_is_kept():
    # with a false alarm of 0.2, more than 34 of 60 wrong bounds happen with chance below 1e-9
    rng = np.random.default_rng()
    wrong = sum(
        mu_lower_bound(rng.normal(0.5, 1, 400), rng.normal(0, 1, 400), false_alarm=0.2) > 0.5
        for _ in range(60)
    )
    assert wrong <= 34


def test_statistics_that_never_vary_separate_the_data_sets():
    assert epsilon_lower_bound(np.ones(2000), np.zeros(2000), delta=0.0) > 3.0
    assert mu_lower_bound(np.ones(2000), np.ones(2000)) == 0.0


def test_chances_have_bounds_on_both_sides():
    low, high = chance_bounds(0, 100, false_alarm=1e-3)
    assert low == 0.0
    assert 0 < high < 0.1
    assert chance_bounds(100, 100, false_alarm=1e-3)[1] == 1.0
    low, high = chance_bounds(630, 1000, false_alarm=1e-3)
    assert low < 0.63 < high


def test_fewer_trials_than_needed_show_nothing():
    needed = least_trials(1.0, false_alarm=1e-4)
    assert least_trials(0.1, false_alarm=1e-4) > needed
    rng = np.random.default_rng(1)  # its outcome does not hang on chance
    few = needed // 3
    first, second = rng.normal(1, 1, few), rng.normal(0, 1, few)
    assert mu_lower_bound(first, second, false_alarm=1e-4) == 0.0
