"""What is wrong with published claims is found, measured and as large as the proofs say.

Measured losses are compared with predicted ones to six deviations or more, and bounds are wrong
with chance at most 1e-8.
"""

import itertools
import math

import numpy as np
import pytest

from eigenveil.audit import all_cases, epsilon_lower_bound, mu_lower_bound
from eigenveil.audit.case import Randomness
from eigenveil.privacy.accountant import classic_sigma, epsilon_of_mu
from eigenveil.privacy.views import published_cape_mu
from eigenveil_papers import published
from eigenveil_papers.audits import NOT_AUDITED, published_cases
from eigenveil_papers.audits.attacks import TENSOR_ROWS, GaussianView
from eigenveil_papers.published.cape_pca import (
    cape_messages,
    equal_plan,
    plan_of_sites,
    times_claimed,
)

CASES = {case.name: case for case in published_cases()}
PREDICTED = [case.name for case in CASES.values() if case.truth is not None]
UNEQUAL = plan_of_sites(3, [1 / 600, 1 / 300, 1 / 900], 1.0, 0.005, None)
# of correlated noise one of each protocol and layout; all of them are done in `make nightly`
SLOW = {name for name in PREDICTED if name.startswith(("capepca", "capeagn"))} - {
    *("capepca-5-sites", "capepca-10-sites-bisectors-symmetric", "capeagn-5-sites-pair-bisectors")
}


def distance(samples):
    """Standardised distance of the means: the mu of a Gaussian statistic."""
    first, second = samples
    return abs(first.mean() - second.mean()) / math.sqrt((first.var() + second.var()) / 2)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.thorough) if n in SLOW else n for n in PREDICTED]
)
def test_the_loss_is_what_is_predicted(name):
    case, n = CASES[name], 1500
    found = distance(case.sample(n, Randomness()))
    assert found == pytest.approx(case.truth, abs=6 * math.sqrt(2 / n) * (1 + case.truth / 2))


def test_cape_as_published_is_short_by_the_root_of_2s_over_s_plus_1():
    case, n = CASES["cape-10-sites"], 100_000
    samples = case.sample(n, Randomness())
    assert mu_lower_bound(*samples) > case.claim.mu
    ratio = distance(samples) / case.claim.mu
    assert ratio == pytest.approx(math.sqrt(20 / 11), abs=0.1)  # seven deviations


def test_colluding_sites_make_it_worse():
    case = CASES["cape-10-sites-8-colluding"]
    samples = case.sample(100_000, Randomness())
    assert mu_lower_bound(*samples) > 1.4 * CASES["cape-10-sites"].truth
    assert case.truth == pytest.approx(published_cape_mu(10, colluding=8, claimed_mu=case.claim.mu))


def root(numerator, denominator):
    return math.sqrt(numerator / denominator)


@pytest.mark.parametrize(
    ("name", "times"),
    [
        # along the axes the literal noise gives away what the symmetric one does
        ("capepca-5-sites", math.sqrt(2) * root(10, 6)),
        ("capepca-5-sites-symmetric", math.sqrt(2) * root(10, 6)),
        ("capeagn-5-sites-pair", math.sqrt(2) * root(10, 6)),
        ("capeagn-5-sites-pair-symmetric", math.sqrt(2) * root(10, 6)),
        # off the diagonal the aggregator averages an entry with its twin: 3S/(S+2), not 2S/(S+1)
        ("capepca-10-sites-bisectors", root(30, 12)),
        ("capepca-10-sites-bisectors-symmetric", root(20, 11)),
        ("capeagn-5-sites-pair-bisectors", root(15, 7)),
        ("capeagn-5-sites-pair-bisectors-symmetric", root(10, 6)),
        # section 3.1 for sites of 600, 300 and 900 rows, of the first
        ("capeagn-3-unequal-sites-pair", math.sqrt(2) * times_claimed(UNEQUAL)[0]),
        # the last 8 sites know the helper's noise but for that of 2, which adds up to 0
        ("cape-10-sites-8-listening", root(3, 4)),
        ("cape-10-sites-8-listening-without-f", published_cape_mu(10, colluding=8, claimed_mu=1)),
        ("cape-3-sites-weights", times_claimed(plan_of_sites(3, 1, 1, 0.01, [2, 3, 3]))[0]),
    ],
)
def test_the_view_of_correlated_noise_is_computed_from_the_messages(name, times):
    """The audit is told nothing about the noise: it probes the protocol draw by draw."""
    case = CASES[name]
    assert case.truth / case.claim.mu == pytest.approx(times, rel=1e-9)


@pytest.mark.parametrize(("entry", "m"), [((0, 0, 0), 1), ((0, 0, 1), 3), ((0, 1, 2), 6)])
@pytest.mark.parametrize("layout", ["literal", "symmetric"])
def test_an_entry_of_a_literal_tensor_is_averaged_over_its_places(entry, m, layout):
    sites = 4
    first = np.zeros((sites, 3, 3, 3))
    second = first.copy()
    for places in set(itertools.permutations(entry)):
        second[(0, *places)] = 1.0

    def run(data, rng):
        made = cape_messages(data, equal_plan(sites, 1.0), rng, layout=layout)
        return np.stack([made.sent, made.known])

    places = m if layout == "literal" else 1
    squared = (places + 1) * sites / (sites + places)  # 1/g of the sum, and of the rest e/m + g
    assert GaussianView(run, first, second).mu == pytest.approx(math.sqrt(squared), rel=1e-9)


def test_a_view_without_noise_is_seen_for_certain():
    made = GaussianView(lambda data, rng: data + 0 * rng.normal(size=2), np.zeros(2), np.ones(2))
    assert made.mu == math.inf


def test_the_wishart_mechanism_has_a_witness_against_pure_epsilon():
    case, n = CASES["wishart-sn"], 1500
    first, second = case.sample(n, Randomness())
    assert np.count_nonzero(second < -1e-9) == 0  # what cannot happen on the neighbour
    frequency = np.mean(first < -1e-9)
    assert frequency == pytest.approx(1 - math.exp(-1), abs=6 * 0.5 / math.sqrt(n))
    assert epsilon_lower_bound(first, second, delta=0.0) > 2.0 > case.claim.epsilon


def test_pure_noise_for_the_spectral_norm_hides_a_row_at_the_root_of_two_times_epsilon():
    case, n = CASES["avn-pure-pair"], 1500
    first, second = (case.claim.epsilon * TENSOR_ROWS * of for of in case.sample(n, Randomness()))
    # the log ratio of the two laws ends at the real epsilon; 2 % of outputs are within 0.06 of it
    for ratios in (first, -second):
        assert 1.35 < ratios.max() < math.sqrt(2) + 1e-9


def test_analyze_gauss_under_replace_one_is_short_by_the_root_of_two():
    case = CASES["analyze-gauss-10-replace-one"]
    samples = case.sample(4000, Randomness())
    assert case.truth / case.claim.mu == pytest.approx(math.sqrt(2))
    found = mu_lower_bound(*samples)
    assert found > case.claim.mu
    assert epsilon_of_mu(found, 0.01) > 10.0


def test_the_noise_of_a_round_of_the_power_method_does_not_hide_a_row():
    case = CASES["private-power-gaussian"]
    samples = case.sample(4000, Randomness())
    # the last product moves by 1, its noise is max|V| = 1/8 of s = sqrt(4 K L ln(1/delta)) / eps;
    # medians, because a start at right angles to the rows leads far away once in some thousands
    expected = 8 / math.sqrt(4 * 2 * math.log(100))
    middles = [np.median(each) for each in samples]
    spreads = [np.subtract(*np.quantile(each, [0.841345, 0.158655])) / 2 for each in samples]
    assert abs(middles[0] - middles[1]) / np.mean(spreads) == pytest.approx(expected, abs=0.3)
    # 0.87 with a deviation of 0.04; mu 0.53 is what (1, 0.01) allows
    assert mu_lower_bound(*samples) > 0.6
    assert epsilon_of_mu(0.6, 0.01) > case.claim.epsilon


@pytest.mark.parametrize("name", ["mod-sulq", "mod-sulq-symmetric"])
def test_mod_sulq_has_far_more_noise_than_it_needs(name):
    case = CASES[name]
    assert case.truth < 0.3 * case.claim.mu


def test_the_classic_calibration_at_epsilon_10():
    mu = 1 / classic_sigma(1.0, 10.0, 0.01, reproduction=True)
    assert epsilon_of_mu(mu, 0.01) == pytest.approx(11.9, abs=0.05)
    assert epsilon_of_mu(math.sqrt(2) * mu, 0.01) == pytest.approx(20.1, abs=0.05)


def test_everything_published_has_a_case_or_a_reason():
    covered = {name for case in all_cases().values() for name in case.covers}
    names = set(published.__all__)
    assert names <= covered | set(NOT_AUDITED)
    assert set(NOT_AUDITED) <= names
    assert not covered & set(NOT_AUDITED)
