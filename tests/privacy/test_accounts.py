"""Accounts: what adaptive choices cost, and that the caps bound them (docs/proofs/accounts.md)."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import norm

from eigenveil.errors import PrivacyError
from eigenveil.privacy.accountant import (
    Loss,
    delta_of_mu,
    delta_of_product,
    gaussian_equivalent,
    mu_beside_pure,
    mu_of_epsilon,
    pure_epsilon_beside,
)
from eigenveil.privacy.budget import (
    as_gaussian,
    caps_of,
    counted,
    pure_of_gaussian,
    replaced,
    usual_room,
)
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.mechanisms.base import SamplingError
from eigenveil.privacy.releases import Noise, ReleaseRecord
from eigenveil.privacy.statistics import STATISTICS
from refusal_tools import refuses
from soak_tools import times

EPSILON, DELTA = 1.0, 1e-5
FIRST, SECOND, PURE = 0.0268, 0.2667, 0.9217
NONE = SamplingError(0.0, 0.0)


def adaptive_delta(first, second, pure, epsilon=EPSILON):
    """Exact delta of a Gaussian release, then the costlier of two for the loss that came out."""

    def then(y):
        rest = epsilon - (first * y - first * first / 2)
        after_gaussian = delta_of_product(second, 0.0, rest)
        after_pure = delta_of_product(0.0, pure, rest)
        return norm.pdf(y, first) * max(after_gaussian, after_pure)

    where = [(epsilon - pure + first * first / 2) / first]
    return quad(then, -12.0, 12.0, points=where, limit=1000, epsabs=1e-13)[0]


def joint_epsilon(mus, pure):
    """What the joint privacy-loss distribution of one branch says."""
    mu = math.hypot(*mus)
    low, high = 0.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        over = delta_of_product(mu, pure, middle) > DELTA
        low, high = (middle, high) if over else (low, middle)
    return high


def test_the_joint_distribution_is_no_filter():
    """Both branches pass by themselves; chosen by the first outcome they cost twice delta."""
    assert joint_epsilon([FIRST, SECOND], 0.0) <= EPSILON
    assert joint_epsilon([FIRST], PURE) <= EPSILON * (1 + 1e-4)  # the design rounds to 4 digits
    assert adaptive_delta(FIRST, SECOND, PURE) == pytest.approx(1.996e-5, rel=1e-3)
    # with either branch alone nothing is gained by the choice
    assert adaptive_delta(FIRST, SECOND, 0.0) <= DELTA
    assert adaptive_delta(FIRST, 0.0, PURE) <= DELTA * 1.01


@pytest.mark.parametrize("aside", [0.0, 0.5, PURE])
def test_an_account_covers_one_branch_at_most(aside):
    caps = caps_of(EPSILON, DELTA, pure=aside, room=NONE)
    first = Loss(mu_squared=FIRST**2 * (1 - 1e-3))
    branches = [Loss(mu_squared=SECOND**2 * (1 - 1e-3)), Loss(pure=PURE * (1 - 1e-3))]
    covered = [
        any(Loss.total([first, way]).within(caps) for way in (branch, as_gaussian(branch)))
        for branch in branches
    ]
    assert covered == [aside == 0.0, aside == PURE]


@given(st.floats(1e-8, 38.0))
@settings(deadline=None)
def test_randomised_response_is_dominated(pure):
    """Their trade-off functions at levels on both sides of the corner; no smaller mu would do."""
    mu = gaussian_equivalent(pure)
    corner = 1.0 / (1.0 + math.exp(pure))
    for level in np.concatenate([np.geomspace(corner * 1e-3, corner, 20), [0.3, 0.5, 0.9]]):
        gaussian = ndtr(-ndtri(level) - mu)
        response = max(1.0 - math.exp(pure) * level, math.exp(-pure) * (1.0 - level), 0.0)
        assert gaussian <= response + 1e-15
    # at the corner itself: Phi(-mu/2) = 1 / (1 + e^pure), to a hair on the private side
    excess = log_ndtr(-mu / 2) + np.logaddexp(0.0, pure)
    assert -1e-10 * (1 + pure) <= excess <= 1e-15


def test_the_equivalent_grows_fast_enough():
    """mu(eps)^2 / eps does not decrease, so pieces cost no more than their sum is counted at."""
    pure = np.geomspace(1e-6, 39.0, 4000)
    each = np.array([gaussian_equivalent(e) ** 2 / e for e in pure])
    assert (np.diff(each) > 0).all()
    assert gaussian_equivalent(0.0) == 0.0


@given(st.floats(1e-4, 60.0))
def test_the_largest_pure_of_a_mu(mu_squared):
    pure = pure_of_gaussian(mu_squared)
    assert gaussian_equivalent(pure) ** 2 <= mu_squared
    assert gaussian_equivalent(pure * (1 + 1e-9)) ** 2 > mu_squared


@pytest.mark.parametrize(("mu", "pure"), [(0.27, 0.0), (0.2, 0.5), (1.0, 1.0), (0.03, 0.92)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0])
def test_the_product_s_delta(mu, pure, epsilon):
    """By quadrature of max(0, p - e^eps p'), and beside the pessimistic library's."""

    def excess(y):
        p, q = norm.pdf(y, mu), norm.pdf(y)
        likely = 1.0 / (1.0 + math.exp(-pure))
        e = math.exp(epsilon)
        return max(0.0, likely * p - e * (1 - likely) * q) + max(
            0.0, (1 - likely) * p - e * likely * q
        )

    corners = [(epsilon + s * pure + mu * mu / 2) / mu for s in (1, -1)]
    inside = sorted(c for c in corners if -14 < c < 14)
    exact = quad(excess, -14, 14, points=inside or None, limit=1000, epsabs=1e-13)[0]
    found = delta_of_product(mu, pure, epsilon)
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-11)
    if pure == 0:
        assert found == pytest.approx(delta_of_mu(mu, epsilon), rel=1e-12)
        return
    gaussian = privacy_loss_distribution.from_gaussian_mechanism(1.0 / mu)
    response = privacy_loss_distribution.from_privacy_parameters(
        common.DifferentialPrivacyParameters(pure, 0.0)
    )
    assert found <= gaussian.compose(response).get_delta_for_epsilon(epsilon) * (1 + 1e-9)


def test_what_is_left_beside_pure_is_the_inverse():
    assert mu_beside_pure(0.0, epsilon=1.0, delta=1e-6) == mu_of_epsilon(1.0, 1e-6)
    for pure in (1e-3, 0.3, 0.9, 0.999):
        mu = mu_beside_pure(pure, epsilon=1.0, delta=1e-6)
        assert delta_of_product(mu, pure, 1.0) <= 1e-6
        assert delta_of_product(mu * (1 + 1e-9), pure, 1.0) > 1e-6
    # the other way it is pessimistic, so a study that is divided by it fits
    pure = pure_epsilon_beside(0.1, epsilon=1.0, delta=1e-6)
    assert mu_beside_pure(pure, epsilon=1.0, delta=1e-6) >= 0.1


@given(
    st.floats(0.01, 60.0),
    st.sampled_from([1e-9, 1e-6, 1e-2]),
    st.floats(0.0, 0.9),
    st.floats(0.1, 30.0),
)
@settings(deadline=None)
def test_caps_meet_the_budget(epsilon, delta, share, times):
    """Samplers' errors included, whatever room they are given."""
    room = usual_room(epsilon, delta)
    room = SamplingError(room.log_ratio * times, room.distance * times)
    effective = min(epsilon, 40.0)
    caps = caps_of(epsilon, delta, pure=share * effective, room=room)
    inner = effective - 2 * caps.log_ratio
    ideal = delta_of_product(math.sqrt(caps.mu_squared), caps.pure, inner)
    together = ideal * math.exp(caps.log_ratio) + (1 + math.exp(effective)) * caps.distance
    assert together <= delta
    assert caps.mu_squared > 0
    if share == 0:
        assert caps.epsilon(delta) <= epsilon
        whole = mu_of_epsilon(effective, delta) ** 2
        assert caps.mu_squared >= whole * (1 - 0.02 * max(times, 1.0))


def test_every_part_of_losses_adds_up():
    """The sampler's log-ratio adds twice to epsilon."""
    one = Loss(mu_squared=0.25, pure=0.5, log_ratio=0.125, distance=2.0**-40)
    assert Loss.total([one] * 3) == Loss(0.75, 1.5, 0.375, 3 * 2.0**-40)
    assert replace(one, mu_squared=0.0).as_pure() == Loss(pure=0.75, distance=2.0**-40)


def test_an_account_needs_room_for_every_part():
    caps = Loss(0.25, 0.5, 0.125, 2.0**-40)
    assert caps.within(caps)
    assert caps.covers(caps)
    for place in range(4):
        more = Loss(*(part * (1.001 if i == place else 1.0) for i, part in enumerate(caps.parts)))
        assert not more.within(caps)
        assert not caps.covers(more)
        assert caps.minus(more) == Loss()
        assert caps.joined(more) == more


def test_a_pure_account_has_no_gaussian_cap():
    caps = caps_of(1.0, 0.0, room=NONE)
    assert caps.mu_squared == 0
    assert caps.log_ratio == 0
    assert 1 - 1e-10 < caps.pure <= 1
    assert caps_of(0.0, 1e-6, room=NONE) == Loss()


@pytest.mark.parametrize(
    ("epsilon", "delta", "pure"), [(1, 1e-6, 1.0), (1, 1e-6, -0.1), (1, 0.0, 0.5), (0, 1e-6, 0.1)]
)
def test_what_is_set_aside_is_a_part(epsilon, delta, pure):
    with refuses("pure-not-a-part", kind=PrivacyError):
        caps_of(epsilon, delta, pure=pure, room=NONE)


# -- one row changed


@pytest.mark.parametrize("statistic", sorted(STATISTICS))
@pytest.mark.parametrize("kind", sorted(MECHANISMS))
@given(
    st.floats(0.1, 4.0),
    st.floats(0.5, 2.0),
    st.floats(0.0, 2.0),
    st.floats(0.0, 2.0),
    st.sampled_from([1, 10, 220]),
)
@settings(max_examples=times(20))
def test_no_ratio_is_larger_than_said(statistic, kind, clip, gain, weight, variance, size):
    try:
        record = ReleaseRecord(
            name="r",
            statistic=statistic,
            adjacency="add-remove",
            noise=Noise(kind=kind, scale=3.0, size=size, grid=-30),
            clip=clip,
            gain=gain,
            count_weight=weight,
            variance=variance,
        )
    except ValidationError:  # noise that is not proved for it
        return
    before, after = Loss.of(record), Loss.of(counted(record, "replace-one"))
    ratio = STATISTICS[statistic].replacing_ratio(MECHANISMS[kind].norm)
    assert ratio <= 2
    assert after.mu_squared <= before.mu_squared * ratio**2 * (1 + 1e-12)
    assert after.pure <= before.pure * ratio * (1 + 1e-12)
    assert (after.log_ratio, after.distance) == (before.log_ratio, before.distance)
    assert counted(record, "add-remove") is record
    with refuses("replaced-rows-not-counted", kind=PrivacyError):
        counted(replaced(record), "add-remove")
