"""MOD-SuLQ as published: its masks, worked out by hand and drawn, and what they do to Synth.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eigenveil.errors import DataError, PrivacyError
from eigenveil.privacy.accountant import delta_of_mu
from eigenveil_papers.published.data import synth
from eigenveil_papers.published.sulq import (
    mod_sulq,
    omega,
    smallest_batch,
    sulq_omega,
    symmetric_omega,
)
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    better_than_random,
    gaussian_variance,
    together,
    uncorrelated,
)

# Deviations


def test_deviations_agree_with_the_formulas_worked_out_by_hand():
    # D = 3, n = 10, epsilon = 4; delta so that the logarithms are 2: sqrt(2 * 2) = 2
    root = math.sqrt(2 * math.pi)
    # (3+1)/(10*4) * 2 + 1/(10*2) = 0.2 + 0.05
    assert symmetric_omega(4, 6 / (root * math.e**2), 3, 10) == pytest.approx(0.25, rel=1e-12)
    # 4*3/(4*10) * 2 + sqrt(2)/(2*10) = 0.6 + 0.0707...
    assert omega(4, 9 / (root * math.e**2), 3, 10) == pytest.approx(0.6707106781186548, rel=1e-12)
    # sqrt(8) * 3 * ln(3/delta) / (10*4), the logarithm being 5
    assert sulq_omega(4, 3 / math.e**5, 3, 10) == pytest.approx(1.0606601717798212, rel=1e-12)


def test_deviations_of_figure_3_agree_with_numbers_worked_out_apart():
    # delta 0.05, d = 20, n = 5000, epsilon 1: sqrt(2 ln(400/.1253314)) = 4.0170283...
    assert omega(1, 0.05, 20, 5000) == pytest.approx(80 / 5000 * 4.01702833 + 1.41421356 / 5000)
    # sqrt(2 ln(420/.2506628)) = 3.8532846...
    assert symmetric_omega(1, 0.05, 20, 5000) == pytest.approx(21 / 5000 * 3.85328464 + 1 / 5000)


guarantees = {
    "epsilon": st.floats(0.001, 50),
    "delta": st.floats(1e-12, 0.9),
    "features": st.integers(2, 500),
}


@given(**guarantees, rows=st.integers(1, 10**6))
def test_the_masks_are_large_enough_for_their_claims(epsilon, delta, features, rows):
    # replacing a row of norm at most 1 moves X'X / n by at most sqrt(2)/n in Frobenius norm
    for deviation in (omega, symmetric_omega):
        mu = math.sqrt(2) / rows / deviation(epsilon, delta, features, rows)
        assert delta_of_mu(mu, epsilon) <= delta


def test_the_mask_is_larger_than_the_gaussian_mechanism_needs_by_four_times_the_features():
    classic = math.sqrt(2) / 5000 * math.sqrt(2 * math.log(1.25 / 0.01)) / 0.5
    ratio = omega(0.5, 0.01, 50, 5000) / classic
    assert 0.8 * 4 * 50 < ratio < 1.2 * 4 * 50


@given(**guarantees, omega_0=st.floats(1e-4, 10))
def test_the_smallest_batch_reaches_the_deviation_and_one_row_less_does_not(
    epsilon, delta, features, omega_0
):
    least = smallest_batch(omega_0, epsilon=epsilon, delta=delta, features=features)
    assert omega(epsilon, delta, features, least) <= omega_0
    assert least == 1 or omega(epsilon, delta, features, least - 1) > omega_0


def test_more_privacy_needs_a_larger_batch_which_the_printed_inverse_denies():
    few, many = (smallest_batch(0.1, epsilon=e, delta=0.05, features=20) for e in (4.0, 0.1))
    assert few < many
    printed = [1 / (0.1 * omega(e, 0.05, 20, 1)) for e in (4.0, 0.1)]
    assert printed[0] > printed[1]


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 0.1), (-1, 0.1), (math.inf, 0.1), (1, 0), (1, 1), (math.nan, 0.1)]
)
@pytest.mark.parametrize("deviation", [omega, symmetric_omega, sulq_omega])
def test_no_mask_for_what_is_no_guarantee(deviation, epsilon, delta):
    with pytest.raises(PrivacyError, match="no guarantee"):
        deviation(epsilon, delta, 3, 10)


def test_no_mask_where_the_published_logarithm_is_negative_or_nothing_is_there():
    with pytest.raises(PrivacyError, match="too large"):
        symmetric_omega(1, 0.5, 1, 10)
    with pytest.raises(DataError, match="no second moment"):
        omega(1, 0.1, 3, 0)
    with pytest.raises(PrivacyError, match="no deviation"):
        smallest_batch(0.0, epsilon=1, delta=0.1, features=3)


# What is released

ROWS = np.random.default_rng(0).standard_normal((40, 4))
BOUND = 10.0
BUDGET = {"epsilon": 0.5, "delta": 0.05}
LOWER = np.tril_indices(4)


def masks(symmetric, runs=1000):
    exact = ROWS.T @ ROWS / BOUND**2 / len(ROWS)
    rng = np.random.default_rng()
    return np.array(
        [
            mod_sulq(
                ROWS,
                n_components=2,
                symmetric=symmetric,
                row_bound=BOUND,
                random_state=rng,
                **BUDGET,
            ).released
            - exact
            for _ in range(runs)
        ]
    )


def law(entries, deviation):
    return together(gaussian_variance(entries, deviation**2), uncorrelated(entries))


def test_every_entry_of_the_full_mask_has_the_published_variance_and_is_independent():
    drawn = masks(symmetric=False).reshape(-1, 16)
    deviation = omega(0.5, 0.05, 4, len(ROWS))
    assert law(drawn, deviation) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert law(drawn, factor * deviation) < REJECTED


def test_the_symmetric_mask_is_symmetric_and_its_triangle_has_the_published_variance():
    drawn = masks(symmetric=True)
    np.testing.assert_allclose(drawn, drawn.swapaxes(1, 2), atol=1e-15)
    deviation = symmetric_omega(0.5, 0.05, 4, len(ROWS))
    triangle = drawn[:, LOWER[0], LOWER[1]]
    assert law(triangle, deviation) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert law(triangle, factor * deviation) < REJECTED
    averaged = ((drawn + masks(symmetric=False).swapaxes(1, 2)) / 2)[:, LOWER[0], LOWER[1]]
    assert law(averaged, deviation) < REJECTED  # the wrong way to make a mask symmetric


@pytest.mark.parametrize("symmetric", [True, False])
def test_components_are_the_leading_directions_of_what_is_released(symmetric):
    made = mod_sulq(
        ROWS, n_components=3, symmetric=symmetric, random_state=3, **(BUDGET | {"epsilon": 50.0})
    )
    np.testing.assert_allclose(made.components @ made.components.T, np.eye(3), atol=1e-9)
    image = made.components @ made.released
    if symmetric:
        expected = np.sort(np.linalg.eigvalsh(made.released))[::-1][:3]
        np.testing.assert_allclose(image, made.strengths[:, None] * made.components, atol=1e-6)
    else:
        expected = np.linalg.svd(made.released, compute_uv=False)[:3]
        np.testing.assert_allclose(np.linalg.norm(image, axis=1), expected, rtol=1e-9)
    np.testing.assert_allclose(made.strengths, expected, rtol=1e-6)


def test_a_large_budget_gives_the_exact_directions():
    rows = synth(1.0, features=6, rows=500, random_state=1)
    exact = np.linalg.svd(rows)[2]
    for symmetric in (True, False):
        made = mod_sulq(
            rows, n_components=2, epsilon=1e12, delta=0.01, symmetric=symmetric, random_state=0
        )
        overlaps = np.abs(np.sum(made.components * exact[:2], axis=1))
        assert np.all(overlaps > 1 - 1e-6)


# Figure 3


def overlaps(runs, *, symmetric, row_bound, epsilon=4.0):
    """|<v1, v1^>| of independent streams and masks: Synth(1), D = 20, n = 5000, delta = 0.05."""
    rng = np.random.default_rng()
    found = []
    for _ in range(runs):
        rows = synth(1.0, features=20, rows=5000, random_state=rng)
        first = np.linalg.eigh(rows.T @ rows)[1][:, -1]
        made = mod_sulq(
            rows,
            n_components=1,
            epsilon=epsilon,
            delta=0.05,
            symmetric=symmetric,
            row_bound=row_bound,
            random_state=rng,
        )
        found.append(abs(float(made.components[0] @ first)))
    return np.array(found)


@pytest.mark.parametrize("symmetric", [True, False])
def test_rows_as_they_come_give_a_random_direction_at_every_budget_of_figure_3(symmetric):
    # the rows of Synth are short; the text's norm of 1 is a bound that needs no scaling
    found = overlaps(30, symmetric=symmetric, row_bound=1.0)
    assert better_than_random(found**2, 20) > FALSE_ALARM


def test_rows_divided_by_their_largest_norm_show_the_direction_to_the_symmetric_mask():
    # measured means at epsilon 4: 0.95 symmetric, 0.38 not, 0.18 a random vector
    found = overlaps(10, symmetric=True, row_bound=None)
    assert better_than_random(found**2, 20) < REJECTED


# Synth


@given(
    alpha=st.floats(0, 2),
    features=st.integers(1, 12),
    rows=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_synth_has_the_spectrum_it_is_named_for(alpha, features, rows, seed):
    made = synth(alpha, features=features, rows=rows, random_state=seed)
    assert made.shape == (rows, features)
    expected = np.arange(1, min(rows, features) + 1) ** -alpha
    np.testing.assert_allclose(np.linalg.svd(made, compute_uv=False), expected, rtol=1e-9)


def test_the_directions_of_synth_are_not_the_axes():
    rng = np.random.default_rng()
    firsts = np.array(
        [np.linalg.svd(synth(1.0, features=8, rows=8, random_state=rng))[2][0] for _ in range(400)]
    )
    squares = firsts**2  # uniform directions: each square is Beta(1/2, 7/2)
    p_values = [stats.kstest(column, stats.beta(0.5, 3.5).cdf).pvalue for column in squares.T]
    assert together(p_values) > FALSE_ALARM


@pytest.mark.parametrize(
    ("alpha", "features", "rows"), [(-1, 3, 3), (math.nan, 3, 3), (1, 0, 3), (1, 3, 0)]
)
def test_synth_refuses_what_it_cannot_make(alpha, features, rows):
    with pytest.raises(DataError, match="no Synth"):
        synth(alpha, features=features, rows=rows)
