"""The lower bounds stay under the truth, and come close to it."""

import numpy as np
import pytest

from eigenveil.audit import epsilon_lower_bound, mu_lower_bound
from eigenveil.privacy import epsilon_of_mu

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


def test_epsilon_bound_subtracts_delta():
    rng = np.random.default_rng()
    bound = epsilon_lower_bound(rng.normal(1, 1, N), rng.normal(0, 1, N), delta=0.05)
    assert 0.3 < bound <= epsilon_of_mu(1.0, 0.05)


def test_equal_distributions_give_next_to_nothing():
    rng = np.random.default_rng()
    assert epsilon_lower_bound(rng.normal(size=N), rng.normal(size=N), delta=0.0) < 1e-3
    assert mu_lower_bound(rng.normal(size=N), rng.normal(size=N)) < 1e-3
