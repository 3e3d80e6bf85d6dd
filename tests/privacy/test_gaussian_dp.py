"""Gaussian differential privacy and (epsilon, delta): exact both ways, on the private side."""

import math

import mpmath
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import PrivacyError
from eigenveil.privacy import classic_sigma, delta_of_mu, epsilon_of_mu, mu_of_epsilon
from eigenveil.privacy.accountant import compose, mu_beside_pure, pure_epsilon_beside
from eigenveil.privacy.budget import caps_of, split_budget
from eigenveil.privacy.mechanisms.base import SamplingError
from refusal_tools import refuses

EPSILONS = st.floats(math.log(1e-3), math.log(50)).map(math.exp)
DELTAS = st.floats(-300, math.log10(0.4)).map(lambda e: 10.0**e)


def exact_delta(mu, epsilon):
    """Balle & Wang 2018, theorem 5, in 60 digits."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)

        def phi(x):
            return mpmath.erfc(-x / mpmath.sqrt(2)) / 2

        left, right = phi(-epsilon / mu + mu / 2), phi(-epsilon / mu - mu / 2)
        return left - mpmath.exp(epsilon) * right


def relative_error(mu, epsilon):
    true = exact_delta(mu, epsilon)
    return abs(float((delta_of_mu(mu, epsilon) - true) / true))


@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("shift", [-5.0, -1.0, 0.0, 1.0, 4.0, 20.0, 36.0])
def test_delta_is_the_textbook_formula_far_into_the_tail(mu, shift):
    epsilon = max(0.0, mu * mu / 2 + mu * shift)
    # of the digits of log Phi, near -shift^2 / 2, those count that are left in the difference
    assert relative_error(mu, epsilon) < 1e-14 * (1 + shift * shift) * (1 + abs(shift) / mu)


@given(EPSILONS, DELTAS)
def test_conversions_end_on_the_private_side_and_are_tight(epsilon, delta):
    mu = mu_of_epsilon(epsilon, delta)
    assert mu > 0
    assert delta_of_mu(mu, epsilon) <= delta
    assert delta_of_mu(mu * (1 + 1e-9), epsilon) > delta
    back = epsilon_of_mu(mu, delta)
    assert delta_of_mu(mu, back) <= delta
    assert back == pytest.approx(epsilon, rel=1e-8)
    # in exact arithmetic the rounding of log Phi is left: one part in a million of delta at most
    assert exact_delta(mu, epsilon) <= delta * (1 + 1e-6)
    assert exact_delta(mu, back) <= delta * (1 + 1e-6)


@given(EPSILONS, st.floats(-12, math.log10(0.4)).map(lambda e: 10.0**e))
def test_usual_deltas_are_met_to_nine_digits(epsilon, delta):
    mu = mu_of_epsilon(epsilon, delta)
    assert delta * (1 - 1e-8) < exact_delta(mu, epsilon) < delta * (1 + 1e-9)


@given(st.floats(0.01, 10), st.floats(1e-12, 0.4))
def test_epsilon_falls_with_delta_and_rises_with_mu(mu, delta):
    assert epsilon_of_mu(mu, delta / 2) >= epsilon_of_mu(mu, delta)
    assert epsilon_of_mu(mu * 1.1, delta) >= epsilon_of_mu(mu, delta)


@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_agrees_with_dp_accounting(mu):
    low, high = (
        pld.from_gaussian_mechanism(
            1 / mu, pessimistic_estimate=pessimistic, value_discretization_interval=1e-4
        )
        for pessimistic in (False, True)
    )
    for delta in (1e-10, 1e-5, 0.01):
        epsilon = epsilon_of_mu(mu, delta)
        bounds = [loss.get_epsilon_for_delta(delta) for loss in (low, high)]
        assert bounds[0] - 1e-9 <= epsilon <= bounds[1] + 1e-9
        assert bounds[1] - bounds[0] < 3e-4
        assert epsilon <= RdpAccountant().compose(GaussianDpEvent(1 / mu)).get_epsilon(delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, "1", None])
def test_bad_epsilon_is_refused_wherever_it_is_given(epsilon):
    for given_to in (
        lambda e: mu_of_epsilon(e, 1e-6),
        lambda e: classic_sigma(1.0, e, 1e-6, reproduction=True),
        lambda e: pure_epsilon_beside(0.1, epsilon=e, delta=1e-6),
        lambda e: mu_beside_pure(0.1, epsilon=e, delta=1e-6),
        lambda e: split_budget({"a": 1.0}, epsilon=e, delta=1e-6),
    ):
        with refuses("bad-epsilon", kind=PrivacyError):
            given_to(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2.0, math.nan, "0.1", None])
def test_bad_delta_is_refused_wherever_it_is_given(delta):
    for given_to in (
        lambda d: mu_of_epsilon(1.0, d),
        lambda d: epsilon_of_mu(1.0, d),
        lambda d: classic_sigma(1.0, 1.0, d, reproduction=True),
        lambda d: pure_epsilon_beside(0.1, epsilon=1.0, delta=d),
        lambda d: mu_beside_pure(0.1, epsilon=1.0, delta=d),
        lambda d: split_budget({"a": 1.0}, epsilon=1.0, delta=d),
        lambda d: caps_of(1.0, d, room=SamplingError(0.0, 0.0)),
        lambda d: compose([], delta=d, adjacency="add-remove"),
    ):
        with refuses("bad-delta", kind=PrivacyError):
            given_to(delta)


def test_no_gaussian_noise_is_pure():
    assert epsilon_of_mu(1.0, 0.0) == math.inf
    assert epsilon_of_mu(0.0, 0.0) == 0.0
    with refuses("pure-needs-pure-mechanism", kind=PrivacyError):
        mu_of_epsilon(1.0, 0.0)


def test_edges_of_the_range():
    for mu, epsilon in ((-1.0, 1.0), (1.0, -1.0)):
        with pytest.raises(PrivacyError):
            delta_of_mu(mu, epsilon)
    assert delta_of_mu(0.0, 1.0) == 0.0
    assert delta_of_mu(1e-3, 50.0) == 0.0
    assert delta_of_mu(1e5, 1.0) == 1.0
    assert epsilon_of_mu(0.1, 0.4) == 0.0, "delta alone covers it"


@given(st.floats(1e-3, 1.0), st.floats(1e-12, 0.3))
def test_classic_calibration_is_private_but_wasteful(epsilon, delta):
    sigma = classic_sigma(2.0, epsilon, delta, reproduction=False)
    assert sigma == pytest.approx(2.0 * math.sqrt(2 * math.log(1.25 / delta)) / epsilon)
    assert delta_of_mu(2.0 / sigma, epsilon) <= delta
    assert sigma > 2.0 / mu_of_epsilon(epsilon, delta)


def test_classic_calibration_beyond_its_proof_is_only_for_reproductions():
    for epsilon, delta in ((1.01, 1e-5), (0.5, 0.0)):
        with pytest.raises(PrivacyError):
            classic_sigma(1.0, epsilon, delta, reproduction=False)
    sigma = classic_sigma(1.0, 20.0, 1e-5, reproduction=True)
    assert delta_of_mu(1.0 / sigma, 20.0) > 1e-5, "it is not private there"
