"""DPdisPCA, djICA and the baselines as published: their noise and what they are without it.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math

import numpy as np
import pytest

from eigenveil.errors import DataError
from eigenveil_papers.published import (
    analyze_gauss,
    dispca,
    djica,
    dpdispca,
    full,
    local,
    pooled,
    second_moments,
)
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    gaussian_variance,
    together,
    uncorrelated,
)

RNG = np.random.default_rng(0)
SITES = [RNG.standard_normal((n, 6)) * np.linspace(3, 0.5, 6) for n in (30, 30, 60)]
BOUND = 15.0
MOMENTS = [rows.T @ rows / len(rows) / BOUND**2 for rows in SITES]
BUDGET = {"epsilon": 0.5, "delta": 0.05, "row_bound": BOUND}
NO_NOISE = {"epsilon": 1e12, "delta": 0.05, "row_bound": BOUND}
LOWER = np.tril_indices(6)


def tau(rows):
    return math.sqrt(2 * math.log(25)) / (rows * 0.5)


def law(matrices, deviation):
    entries = matrices[:, LOWER[0], LOWER[1]]
    return together(gaussian_variance(entries, deviation**2), uncorrelated(entries))


def test_each_site_of_full_has_the_noise_for_its_own_rows():
    rng = np.random.default_rng()
    made = [full(SITES, n_components=2, random_state=rng, **BUDGET) for _ in range(800)]
    for site, (moment, rows) in enumerate(zip(MOMENTS, SITES, strict=True)):
        drawn = np.array([each.messages[site] for each in made]) - moment
        assert law(drawn, tau(len(rows))) > FALSE_ALARM
        for factor in OFF_BY_30_PERCENT:
            assert law(drawn, factor * tau(len(rows))) < REJECTED
    mean = np.array([each.released for each in made]) - np.mean(MOMENTS, axis=0)
    assert law(mean, math.sqrt(2 * tau(30) ** 2 + tau(60) ** 2) / 3) > FALSE_ALARM
    assert made[0].deviation == pytest.approx(tau(30))


def test_a_message_of_all_columns_is_the_root_of_the_absolute_noisy_moment():
    # P P' = |A + E|: squared it is (A + E)^2, the noise of which is that of full with one seed
    made = dpdispca(SITES, n_components=2, intermediate=6, random_state=5, **BUDGET)
    noisy = full(SITES, n_components=2, random_state=5, **BUDGET).messages
    for message, matrix in zip(made.messages, noisy, strict=True):
        assert message.shape == (6, 6)
        assert np.linalg.eigvalsh(matrix)[0] < 0  # the absolute value matters
        np.testing.assert_allclose((message @ message.T) @ (message @ message.T), matrix @ matrix)
    np.testing.assert_allclose(
        made.released, np.mean([each @ each.T for each in made.messages], axis=0)
    )


def test_messages_have_the_leading_columns_only_by_magnitude_or_by_value():
    wide = full(SITES, n_components=2, random_state=5, **BUDGET).messages[0]
    for rank_by in ("magnitude", "value"):
        made = dpdispca(
            SITES, n_components=2, intermediate=4, random_state=5, rank_by=rank_by, **BUDGET
        )
        values = np.linalg.eigvalsh(wide)
        kept = np.sort(np.abs(values))[::-1] if rank_by == "magnitude" else values[::-1]
        squares = np.sum(made.messages[0] ** 2, axis=0)
        np.testing.assert_allclose(squares, np.maximum(kept[:4], 0.0), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("intermediate", [2, 3, 6])
def test_without_noise_dpdispca_is_dispca(intermediate):
    options = {"n_components": 2, "intermediate": intermediate}
    exact = dispca(SITES, row_bound=BOUND, **options)
    noisy = dpdispca(SITES, random_state=0, **options, **NO_NOISE)
    np.testing.assert_allclose(noisy.released, exact.released, atol=1e-9)
    np.testing.assert_allclose(noisy.components, exact.components, atol=1e-6)
    assert exact.claim is None


def test_without_noise_and_with_all_columns_nothing_is_lost():
    expected = np.linalg.eigh(np.mean(MOMENTS, axis=0))[1][:, ::-1][:, :2]
    for made in (
        dispca(SITES, n_components=2, intermediate=6, row_bound=BOUND),
        full(SITES, n_components=2, random_state=0, **NO_NOISE),
    ):
        assert np.abs(np.sum(made.components.T * expected, axis=0)) == pytest.approx(1, abs=1e-9)


def test_djica_without_noise_and_with_all_columns_is_the_pooled_sum():
    made = djica(SITES, n_components=3, intermediate=6, random_state=0, **NO_NOISE)
    total = np.concatenate(SITES).T @ np.concatenate(SITES) / BOUND**2
    np.testing.assert_allclose(made.released, total, atol=1e-8)
    np.testing.assert_allclose(made.strengths, np.linalg.eigvalsh(total)[::-1][:3], rtol=1e-8)


def test_djica_hands_on_from_site_to_site():
    made = djica(SITES, n_components=2, intermediate=3, random_state=0, **NO_NOISE)
    carried = np.zeros((6, 0))
    for message, rows in zip(made.messages, SITES, strict=True):
        left, values, _ = np.linalg.svd(rows.T / BOUND, full_matrices=False)
        both = np.hstack([left[:, :3] * values[:3], carried])
        left, values, _ = np.linalg.svd(both, full_matrices=False)
        carried = left[:, :3] * values[:3]
        np.testing.assert_allclose(message @ message.T, carried @ carried.T, atol=1e-8)
    with pytest.raises(DataError, match="handed on"):
        djica(SITES, n_components=3, intermediate=2, **BUDGET)


def test_djica_adds_the_noise_of_a_sum():
    # one site and all columns: P P' = |A n + E n|
    one = [SITES[0]]
    made = djica(one, n_components=2, intermediate=6, random_state=4, **BUDGET)
    noisy = full(one, n_components=2, random_state=4, **BUDGET).released * 30
    np.testing.assert_allclose(made.released @ made.released, noisy @ noisy, rtol=1e-8)
    assert made.deviation == pytest.approx(30 * tau(30))


def test_pooled_is_analyze_gauss_of_all_rows_and_local_that_of_one_site():
    every = analyze_gauss(np.concatenate(SITES), n_components=2, random_state=3, **BUDGET)
    made = pooled(SITES, n_components=2, random_state=3, **BUDGET)
    np.testing.assert_allclose(made.released, every.released, atol=1e-12)
    assert made.claim == every.claim
    assert made.deviation == pytest.approx(tau(120))
    for options, site in (({}, 2), ({"site": 0}, 0)):
        alone = analyze_gauss(SITES[site], n_components=2, random_state=3, **BUDGET)
        made = local(SITES, n_components=2, random_state=3, **options, **BUDGET)
        np.testing.assert_array_equal(made.released, alone.released)
    with pytest.raises(DataError, match="no site 3"):
        local(SITES, n_components=2, site=3, **BUDGET)


def test_local_rows_are_divided_by_the_largest_norm_of_all_sites():
    options = {"n_components": 1, "epsilon": 1.0, "delta": 0.1}
    assert local(SITES, **options).row_bound == second_moments(SITES)[0].row_bound


def test_by_value_more_is_captured_under_much_noise():
    # measured: 0.08 more by value; the difference of 200 fits each has a deviation of 0.006
    rng = np.random.default_rng()
    exact = np.diag(np.r_[np.ones(5), np.zeros(15)])
    rows = np.repeat(np.eye(20)[:5], 40, axis=0)
    energies = {"magnitude": 0.0, "value": 0.0}
    for rank_by in energies:
        for _ in range(200):
            made = analyze_gauss(
                rows,
                n_components=5,
                epsilon=0.12,
                delta=0.1,
                row_bound=1.0,
                rank_by=rank_by,
                random_state=rng,
            )
            energies[rank_by] += np.trace(made.components @ exact @ made.components.T) / 5 / 200
    assert energies["value"] > energies["magnitude"] + 0.03
