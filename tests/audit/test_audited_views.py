"""Views of many parties: under their claims, and the adversary's statistic is the best there is.

Each bound is wrong with chance at most 1e-8.
"""

import math

import numpy as np
import pytest

from eigenveil.audit import epsilon_lower_bound, mu_lower_bound
from eigenveil.audit.case import Randomness
from eigenveil.audit.sound import TREES, VIEWS
from soak_tools import times

QUICK = [name for name, attack in VIEWS.items() if attack.kind in ("gaussian", "laplace")]
SLOW = [name for name in VIEWS if name not in QUICK]
GAUSSIAN = [name for name, attack in VIEWS.items() if attack.kind == "gaussian"]
N = 12_000


def bound(attack, samples):
    if attack.kind == "gaussian":
        return mu_lower_bound(*samples)
    return epsilon_lower_bound(*samples, delta=0.0)


@pytest.mark.parametrize("name", QUICK)
def test_views_stay_under_their_claim(name):
    attack = VIEWS[name]
    claim = attack.claim()
    claimed = claim.mu if claim.mu is not None else claim.epsilon
    assert 0.3 * claimed < bound(attack, attack.sample(N, Randomness())) <= claimed


@pytest.mark.parametrize("name", SLOW)
def test_shared_pure_noise_stays_under_its_claim(name):
    attack = VIEWS[name]
    assert (
        bound(attack, attack.sample(max(200, times(500)), Randomness())) <= attack.claim().epsilon
    )


@pytest.mark.parametrize("name", GAUSSIAN)
def test_the_statistic_is_as_good_as_the_exact_loss_of_the_view(name):
    # standardised distance of the means is the claimed mu, to six deviations: nothing is left out
    attack = VIEWS[name]
    first, second = attack.sample(N, Randomness())
    spread = math.sqrt((first.var() + second.var()) / 2)
    found = abs(first.mean() - second.mean()) / spread
    claimed = attack.claim().mu
    assert found == pytest.approx(claimed, abs=6 * math.sqrt(2 / N) * (1 + claimed))


@pytest.mark.parametrize("name", GAUSSIAN)
def test_halved_shares_are_caught(name):
    attack = VIEWS[name]
    noise = attack.record.noise.model_copy(update={"scale": attack.record.noise.scale / 2})
    short = attack.record.model_copy(update={"noise": noise})
    assert bound(attack, attack.sample(N, Randomness(), record=short)) > attack.claim().mu


@pytest.mark.parametrize("name", TREES)
def test_a_tree_stays_under_its_claim(name):
    attack = TREES[name]
    claimed = attack.claim().mu
    assert 0.5 * claimed < mu_lower_bound(*attack.sample(N, Randomness())) <= claimed


def test_a_single_message_behind_a_modular_mask_says_nothing():
    # the aggregator's share of site 0 alone is uniform: its top bit is fair on both data sets
    attack = VIEWS["federated-modular-aggregator"]
    hidden = attack._masks(3 * N, attack.record, Randomness()).masks[0]
    top = (hidden >> np.uint64(63)).astype(float)
    assert top.mean() == pytest.approx(0.5, abs=6 * 0.5 / math.sqrt(3 * N))
    total = sum(attack._masks(10, attack.record, Randomness()).masks)
    assert not total.any()  # and all masks vanish from the sum
