"""Recorded releases composed into one guarantee."""

import math

import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from releases_tools import release

from eigenveil.errors import PrivacyError
from eigenveil.privacy import delta_of_mu, epsilon_of_mu
from eigenveil.privacy.accountant import compose, pure_epsilon_beside

MIXED = [release("gaussian", 0.5), release("gaussian", 0.7), release("laplace", 0.2)]


@given(st.lists(st.floats(0.05, 1.5), min_size=1, max_size=5), st.floats(-9, -1))
def test_gaussian_releases_compose_exactly(mus, log_delta):
    delta = 10.0**log_delta
    guarantee = compose([release("gaussian", m) for m in mus], delta=delta, adjacency="add-remove")
    exact = epsilon_of_mu(math.hypot(*mus), delta)
    assert guarantee.mu == pytest.approx(math.hypot(*mus), rel=1e-12)
    assert guarantee.delta == delta
    # the sampler's error comes on top: never less, and a billionth more at most
    assert exact * (1 - 1e-12) <= guarantee.epsilon <= exact + 1e-9 * (1 + exact)


@given(
    st.lists(st.sampled_from(["laplace", "vector", "wishart", "bingham"]), min_size=1, unique=True),
    st.data(),
)
def test_pure_releases_add_up(kinds, data):
    losses = [data.draw(st.floats(0.01, 2)) for _ in kinds]
    records = [release(kind, loss) for kind, loss in zip(kinds, losses, strict=True)]
    guarantee = compose(records, delta=0.0, adjacency="add-remove")
    assert (guarantee.delta, guarantee.mu) == (0.0, None)
    errors = math.fsum(record.sampling_error().log_ratio for record in records)
    assert errors < 1e-4
    assert guarantee.epsilon == pytest.approx(math.fsum(losses) + 2 * errors, rel=1e-12)


def test_a_mixture_agrees_with_a_direct_composition():
    delta = 1e-6
    ours = compose([*MIXED, release("wishart", 0.1)], delta=delta, adjacency="add-remove")
    assert ours.mu is None
    gaussian, fine = math.hypot(0.5, 0.7), {"value_discretization_interval": 2e-5}
    direct = pld.from_gaussian_mechanism(1 / gaussian, **fine)
    response = direct.compose(
        pld.from_privacy_parameters(common.DifferentialPrivacyParameters(0.3, 0), **fine)
    )
    laplace = direct.compose(pld.from_laplace_mechanism(5.0, **fine)).compose(
        pld.from_laplace_mechanism(10.0, **fine)
    )
    # theirs is pessimistic by a step of its grid or two; ours is exact
    pessimistic = response.get_epsilon_for_delta(delta)
    assert pessimistic - 1e-4 < ours.epsilon <= pessimistic + 1e-6
    # the response dominates every pure release, also the Laplace noise that was used
    assert laplace.get_epsilon_for_delta(delta) < ours.epsilon
    # and no worse than adding up
    assert ours.epsilon < epsilon_of_mu(gaussian, delta) + 0.3 + 5e-4
    assert epsilon_of_mu(gaussian, delta) + 0.1 < ours.epsilon


def test_order_does_not_matter_and_more_costs_more():
    one = compose(MIXED, delta=1e-5, adjacency="add-remove")
    assert compose(MIXED[::-1], delta=1e-5, adjacency="add-remove").epsilon == one.epsilon
    more = compose([*MIXED, release("laplace", 0.01)], delta=1e-5, adjacency="add-remove")
    assert more.epsilon > one.epsilon
    assert compose(MIXED, delta=1e-6, adjacency="add-remove").epsilon > one.epsilon


def test_what_is_left_beside_gaussian_releases_fits_and_is_not_wasteful():
    mu, delta = 0.3, 1e-5
    epsilon = epsilon_of_mu(mu, delta) + 0.8
    left = pure_epsilon_beside(mu, epsilon=epsilon, delta=delta)
    records = [release("gaussian", mu), release("laplace", left * (1 - 1e-9))]
    total = compose(records, delta=delta * (1 + 1e-7), adjacency="add-remove").epsilon
    assert epsilon * (1 - 1e-6) < total <= epsilon * (1 + 1e-9)


def test_nothing_is_left_beside_too_much():
    with pytest.raises(PrivacyError, match="leave nothing"):
        pure_epsilon_beside(3.0, epsilon=1.0, delta=1e-6)
    assert pure_epsilon_beside(0.0, epsilon=1.0, delta=1e-6) == 1.0


def test_one_adjacency_only():
    with pytest.raises(PrivacyError, match="replace-one"):
        compose(MIXED, delta=1e-6, adjacency="replace-one")


def test_a_delta_below_the_sampling_error_is_refused():
    for delta in (0.0, 1e-40):
        with pytest.raises(PrivacyError) as caught:
            compose(MIXED[:1], delta=delta, adjacency="add-remove")
        assert caught.value.code == "delta-below-resolution"


def test_the_sampling_error_is_in_the_guarantee():
    """A coarse grid costs epsilon; one that the proof does not cover gives no guarantee."""
    fine = release("gaussian", 1.0, size=10_000)
    noise = fine.noise
    coarse = fine.model_copy(update={"noise": noise.model_copy(update={"grid": -11})})
    error = coarse.sampling_error()
    assert error.log_ratio > 1e-3
    guarantee = compose([coarse], delta=1e-5, adjacency="add-remove")
    assert guarantee.epsilon > epsilon_of_mu(1.0, 1e-5) + 2 * error.log_ratio
    assert delta_of_mu(1.0, guarantee.epsilon - 2 * error.log_ratio) < 1e-5
    for grid in (None, -8):
        unproved = fine.model_copy(update={"noise": noise.model_copy(update={"grid": grid})})
        with pytest.raises(PrivacyError):
            compose([unproved], delta=1e-5, adjacency="add-remove")
