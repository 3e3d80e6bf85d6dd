"""CAPE and capePCA as published: real messages, the pooled noise, and the view that is overlooked.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math

import numpy as np
import pytest

from eigenveil.errors import DataError, PrivacyError
from eigenveil_papers.published import cape, capepca, pooled
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    gaussian_variance,
    together,
    uncorrelated,
)

SITES = list(np.random.default_rng(0).standard_normal((5, 20, 3)))
EXACT = np.concatenate(SITES).T @ np.concatenate(SITES) / 100 / 36
BUDGET = {"epsilon": 0.5, "delta": 0.05}
TAU = math.sqrt(2 * math.log(25)) / 0.5
LOWER = np.tril_indices(3)


# capePCA


def runs(count=1500):
    rng = np.random.default_rng()
    return [
        capepca(SITES, n_components=2, row_bound=6.0, random_state=rng, **BUDGET)
        for _ in range(count)
    ]


def law(matrices, deviation):
    entries = matrices[:, LOWER[0], LOWER[1]]
    return together(gaussian_variance(entries, deviation**2), uncorrelated(entries))


def test_the_mean_has_the_noise_of_analyze_gauss_on_all_rows():
    made = runs()
    noise = np.array([each.released for each in made]) - EXACT
    curator = pooled(SITES, n_components=2, row_bound=6.0, **BUDGET).deviation
    assert made[0].deviation == pytest.approx(curator)
    assert law(noise, curator) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert law(noise, factor * curator) < REJECTED
    # each message: of the claimed deviation when the aggregator's part is taken off
    for site, rows in enumerate(SITES):
        seen = np.array([each.messages[site] - each.known[site] for each in made])
        assert np.abs(seen - seen.swapaxes(1, 2)).max() > TAU / 20  # literal: not symmetric
        assert law(seen - rows.T @ rows / 20 / 36, TAU / 20) > FALSE_ALARM


def test_the_mean_is_that_of_the_messages():
    made = runs(1)[0]
    np.testing.assert_allclose(
        made.released, np.mean(np.array(made.messages) - np.array(made.known), axis=0)
    )


def test_without_noise_it_is_the_exact_answer():
    made = capepca(SITES, n_components=2, epsilon=1e12, delta=0.05, random_state=0)
    exact = np.linalg.svd(np.concatenate(SITES))[2][:2]
    assert np.abs(np.sum(made.components * exact, axis=1)) == pytest.approx(1, abs=1e-9)


def test_symmetric_noise_gives_symmetric_messages_and_the_same_law_of_the_result():
    rng = np.random.default_rng()
    made = [
        capepca(SITES, n_components=2, row_bound=6.0, noise="symmetric", random_state=rng, **BUDGET)
        for _ in range(1500)
    ]
    assert law(np.array([each.released for each in made]) - EXACT, TAU / 100) > FALSE_ALARM
    for part in (made[0].messages, made[0].known, made[0].helper):
        np.testing.assert_array_equal(part, np.swapaxes(part, 1, 2))


# Unequal sites (section 3.1)

UNEQUAL = [SITES[0], SITES[1], SITES[2][:10]]


def test_unequal_sites_are_served_where_section_3_1_has_a_solution():
    """Three sites, weights by rows: the noise of Analyze Gauss on all rows, from real messages."""
    rng = np.random.default_rng()
    pooled_tau = TAU / 50
    made = [
        capepca(UNEQUAL, n_components=2, row_bound=6.0, random_state=rng, **BUDGET)
        for _ in range(1500)
    ]
    exact = np.concatenate(UNEQUAL).T @ np.concatenate(UNEQUAL) / 50 / 36
    noise = np.array([each.released for each in made]) - exact
    assert made[0].deviation == pytest.approx(pooled_tau)
    assert law(noise, pooled_tau) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert law(noise, factor * pooled_tau) < REJECTED
    weights = np.array([0.4, 0.4, 0.2])
    np.testing.assert_allclose(np.tensordot(weights, made[0].helper, axes=1), 0, atol=1e-12)
    assert "times the claimed" in str(made[0].claim)


def test_unequal_sites_beyond_three_are_refused_and_told_what_there_is_instead():
    with pytest.raises(PrivacyError, match="solution does not exist") as raised:
        capepca([*SITES[:4], SITES[4][:19]], n_components=1, **BUDGET)
    assert raised.value.code == "cape-infeasible"
    assert "FederatedPCA" in raised.value.hint


def test_the_aggregator_may_weigh_sites_by_their_quality():
    given = [[1.0], [2.0], [4.0]]
    options = {"sensitivity": 1e-9, **BUDGET}
    made = cape(given, weights=[3, 3, 4], random_state=0, **options)
    assert made.mean == pytest.approx(0.3 * 1 + 0.3 * 2 + 0.4 * 4, abs=1e-6)
    np.testing.assert_allclose(made.plan.weights, [0.3, 0.3, 0.4])
    # the same weights and targets are equation 2; a site with a stricter target is not
    assert cape(given, weights=[5, 5, 5], random_state=0, **options).plan.equal
    targets = {"epsilon": [0.5, 0.5, 0.4], "delta": 0.05}
    strict = cape(given, sensitivity=1e-9, random_state=0, **targets)
    assert not strict.plan.equal
    assert strict.claim.epsilon == 0.5
    assert strict.deviation == pytest.approx(1e-9 / 3 * TAU * 0.5 / 0.4)


@pytest.mark.parametrize(
    "options", [{"weights": [1, 2]}, {"weights": [1, 2, 0]}, {"epsilon": [0.5, 0.5]}]
)
def test_weights_and_targets_that_fit_no_sites_are_refused(options):
    with pytest.raises(DataError):
        cape([1.0, 2.0, 3.0], **({"sensitivity": 1.0} | BUDGET | options))


# CAPE


def test_the_mean_of_any_statistic_has_the_pooled_noise():
    made = cape(np.zeros((4, 20_000)), sensitivity=0.1, random_state=None, **BUDGET)
    assert made.deviation == pytest.approx(0.1 * TAU / 4)
    assert gaussian_variance(made.mean, (0.1 * TAU / 4) ** 2) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert gaussian_variance(made.mean, (factor * 0.1 * TAU / 4) ** 2) < REJECTED
    assert made.messages.sent.shape == made.messages.known.shape == (4, 20_000)
    np.testing.assert_allclose(
        made.mean, (made.messages.sent - made.messages.known).mean(axis=0), atol=1e-12
    )


@pytest.mark.parametrize("count", [3, 10])
def test_without_the_aggregators_noise_who_knows_the_helpers_finds_a_sites_own(count):
    for used, known in ((False, 0.0), (True, 1 - 1 / count)):
        made = cape(np.zeros((count, 20_000)), sensitivity=1.0, aggregator_noise=used, **BUDGET)
        sent, taken, helper = (part.T for part in made.messages)
        for seen, variance in (
            (sent, 1 + known),
            (sent - taken, 1.0),
            (sent - helper, known + 1 / count),
        ):
            assert together(gaussian_variance(seen, variance * TAU**2)) > FALSE_ALARM
        assert used or not taken.any()
        assert gaussian_variance(made.mean, (TAU / count) ** 2) > FALSE_ALARM


def test_statistics_may_have_any_shape():
    given = np.random.default_rng(0).standard_normal((3, 2, 5))
    for statistics in (given, list(given)):
        made = cape(statistics, sensitivity=1e-9, random_state=0, **BUDGET)
        np.testing.assert_allclose(made.mean, given.mean(axis=0), atol=1e-6)
    assert cape([1.0, 2.0, 6.0], sensitivity=1e-9, **BUDGET).mean == pytest.approx(3.0, abs=1e-6)


def test_the_claims_name_the_factor_and_the_view():
    for made, sites in ((runs(1)[0], 5), (cape(np.zeros((10, 2)), sensitivity=1.0, **BUDGET), 10)):
        factor = math.sqrt(2 * sites / (sites + 1))
        assert made.claim.view == "aggregator"
        assert f"{factor:.3g} times the claimed" in str(made.claim)
        assert not made.claim.certified
        assert made.as_published


@pytest.mark.parametrize(
    ("statistics", "options", "error"),
    [
        ([], {}, DataError),
        (3.0, {}, DataError),
        ([[1.0, 2.0], [3.0]], {}, DataError),
        ([np.nan, 1.0], {}, DataError),
        ([1.0, 2.0], {"sensitivity": 0.0}, DataError),
        ([1.0, 2.0], {"sensitivity": math.inf}, DataError),
        ([1.0, 2.0], {"epsilon": 0.0}, PrivacyError),
        ([1.0, 2.0], {"delta": 0.0}, PrivacyError),
        ([1.0, 2.0], {"delta": 1.0}, PrivacyError),
    ],
)
def test_bad_input_is_refused(statistics, options, error):
    with pytest.raises(error) as raised:
        cape(statistics, **({"sensitivity": 1.0} | BUDGET | options))
    assert raised.value.hint
