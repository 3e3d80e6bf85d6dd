"""A target divided over the steps of a fit composes back to no more than the target."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from releases_tools import release

from eigenveil.checks import LARGEST_EPSILON
from eigenveil.errors import PrivacyError
from eigenveil.privacy.accountant import compose
from eigenveil.privacy.budget import StepBudget, split_budget
from eigenveil.privacy.mechanisms.base import lattice_error

EPSILONS = st.floats(math.log(0.01), math.log(30)).map(math.exp)
SHARES = st.dictionaries(
    st.sampled_from(["scale", "center", "moment", "variance"]), st.floats(0.01, 10), min_size=1
)
ERROR = lattice_error(500, steps_a_scale=2.0**26)


def spent(budgets, delta, pure_kind="wishart"):
    records = [
        release(pure_kind, b.epsilon) if b.mu is None else release("gaussian", b.mu)
        for b in budgets.values()
    ]
    return compose(records, delta=delta, adjacency="add-remove").epsilon


@given(SHARES, EPSILONS, st.floats(-12, -1))
def test_gaussian_shares_spend_the_wish_and_not_more(noise_parts, epsilon, log_delta):
    delta = 10.0**log_delta
    some = noise_parts | {"nothing": 0.0}
    budgets = split_budget(some, epsilon=epsilon, delta=delta, error=ERROR)
    assert set(budgets) == set(noise_parts)
    assert 0.999 * epsilon < spent(budgets, delta) <= epsilon
    first = next(iter(noise_parts))
    for step, share in noise_parts.items():
        ratio = budgets[step].mu / budgets[first].mu
        assert ratio**2 == pytest.approx(share / noise_parts[first], rel=1e-9)


@given(SHARES, EPSILONS)
def test_pure_shares_spend_the_wish_and_not_more(noise_parts, epsilon):
    budgets = split_budget(noise_parts, epsilon=epsilon, delta=0.0)
    # bingham: ideal arithmetic; the others pay their sampling error when they are calibrated
    assert 0.999 * epsilon < spent(budgets, 0.0, "bingham") <= epsilon
    total = math.fsum(noise_parts.values())
    for step, share in noise_parts.items():
        assert budgets[step].epsilon == pytest.approx(epsilon * share / total, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (2.0, 1e-3)])
def test_mixed_shares_spend_the_wish_and_not_more(epsilon, delta):
    noise_parts = {"scale": 0.02, "center": 0.08, "moment": 0.88, "variance": 0.02}
    budgets = split_budget(
        noise_parts, epsilon=epsilon, delta=delta, pure_steps=frozenset({"moment"}), error=ERROR
    )
    assert [step for step, b in budgets.items() if b.mu is None] == ["moment"]
    assert 0.99 * epsilon < spent(budgets, delta, "bingham") <= epsilon * (1 + 1e-6)


def test_without_the_sampling_error_the_shares_would_spend_more():
    noise_parts = {"moment": 1.0}
    honest = split_budget(
        noise_parts, epsilon=1.0, delta=1e-6, error=lattice_error(100, steps_a_scale=2e3)
    )
    careless = split_budget(noise_parts, epsilon=1.0, delta=1e-6)
    assert honest["moment"].mu < careless["moment"].mu


def test_a_wish_for_no_privacy_is_met_with_the_largest_budget_that_can_be_proved():
    for delta in (0.0, 1e-6):
        kind = {"pure_steps": frozenset({"a"})} if delta == 0 else {"error": ERROR}
        budgets = split_budget({"a": 1.0}, epsilon=1e9, delta=delta, **kind)
        assert spent(budgets, delta, "bingham") <= LARGEST_EPSILON


@pytest.mark.parametrize(
    ("epsilon", "delta", "code"),
    [(1.0, 1e-40, "delta-below-resolution"), (1e-40, 1e-6, "epsilon-below-resolution")],
)
def test_a_target_below_the_sampling_error_is_refused(epsilon, delta, code):
    with pytest.raises(PrivacyError) as caught:
        split_budget({"a": 1.0}, epsilon=epsilon, delta=delta, error=ERROR)
    assert caught.value.code == code


@given(st.floats(1e-3, 10), st.floats(1e-3, 1))
def test_parts_of_a_step_compose_back_to_the_step(loss, share):
    mu, epsilon = StepBudget(mu=loss), StepBudget(epsilon=loss)
    for whole in (mu, epsilon):
        parts = (whole.scaled(share), whole.scaled(1 - share))
        assert all((part.mu is None) == (whole.mu is None) for part in parts)
        if whole.mu is None:
            back = math.fsum(part.epsilon for part in parts)
        else:
            back = math.hypot(*(part.mu for part in parts))
        assert back == pytest.approx(loss, rel=1e-12)
