"""PPCA as published: its Gibbs sampler against the exact Bingham law, where that is known.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import numpy as np
import pytest
from scipy import integrate, special

from eigenveil.errors import DataError
from eigenveil_papers.published import ppca, second_moment
from eigenveil_papers.published.gibbs import bingham_gibbs
from statistics_tools import FALSE_ALARM, REJECTED, kolmogorov

ENERGIES = np.array([6.0, 2.0, 0.0])


def square_of_the_third(energies, sign=1.0):
    """The law of u_3^2 for u on the sphere of R^3 with density exp(sign * sum a_i u_i^2).

    With u_3 = z uniform on [-1, 1] and an angle for the rest, the angle integrates to a Bessel
    function: ``exp(a_3 z^2 + (1 - z^2)(a_1 + a_2)/2) I_0((1 - z^2)(a_1 - a_2)/2)``.
    """
    first, second, third = sign * np.asarray(energies)

    def density(z):
        rest = 1 - z * z
        swing = abs(rest * (first - second) / 2)
        shape = third * z * z + rest * (first + second) / 2 + swing
        return np.exp(shape) * special.i0e(swing)

    grid = np.linspace(0.0, 1.0, 20001)
    below = integrate.cumulative_simpson(density(grid), x=grid, initial=0.0)
    return lambda squares: np.interp(np.sqrt(squares), grid, below / below[-1])


def draws(count, *, energies=ENERGIES, sweeps=5, runs=1000):
    rng = np.random.default_rng()
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    exponent = (turn * energies) @ turn.T  # in no special basis
    return np.array(
        [turn.T @ bingham_gibbs(exponent, count, sweeps=sweeps, rng=rng) for _ in range(runs)]
    )


def test_one_component_is_drawn_from_the_exact_law():
    squares = draws(1)[:, 2, 0] ** 2
    assert kolmogorov(squares, square_of_the_third(ENERGIES)) > FALSE_ALARM
    for wrong in (3 * ENERGIES, ENERGIES / 4, -ENERGIES):
        assert kolmogorov(squares, square_of_the_third(wrong)) < REJECTED


def test_two_of_three_are_drawn_so_that_what_is_left_out_has_the_exact_law():
    # V V' = I - w w', so that w has density exp(-w' A w)
    made = draws(2)
    left_out = 1 - np.sum(made[:, 2, :] ** 2, axis=1)
    assert kolmogorov(left_out, square_of_the_third(ENERGIES, sign=-1.0)) > FALSE_ALARM
    for wrong in (3 * ENERGIES, ENERGIES / 4, -ENERGIES):
        assert kolmogorov(left_out, square_of_the_third(wrong, sign=-1.0)) < REJECTED


def test_a_chain_that_is_cut_off_at_once_has_another_law():
    # far from flat: the first sweep draws a column in the complement of one that is still random
    cold = 30 * ENERGIES
    exact = square_of_the_third(cold, sign=-1.0)
    early, late = (
        1 - np.sum(draws(2, energies=cold, sweeps=sweeps, runs=300)[:, 2, :] ** 2, axis=1)
        for sweeps in (1, 8)
    )
    assert kolmogorov(early, exact) < REJECTED
    assert kolmogorov(late, exact) > FALSE_ALARM


def test_all_components_are_a_basis():
    made = draws(3, runs=1)[0]
    np.testing.assert_allclose(made.T @ made, np.eye(3), atol=1e-12)


def test_the_exponent_is_half_of_epsilon_times_the_sum_over_rows(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((30, 4))
    asked = []

    def spy(exponent, count, **others):
        asked.append((exponent, count, others["sweeps"]))
        return bingham_gibbs(exponent, count, **others)

    monkeypatch.setattr("eigenveil_papers.published.gibbs.bingham_gibbs", spy)
    made = ppca(rows, n_components=2, epsilon=0.8, row_bound=10.0, burn_in=3, random_state=0)
    exponent, count, sweeps = asked[0]
    np.testing.assert_allclose(exponent, 0.4 * rows.T @ rows / 100, rtol=1e-12)
    assert (count, sweeps) == (2, 3)
    assert np.all(np.isnan(made.strengths))
    assert made.released is None
    assert made.deviation is None


def test_a_row_replaced_moves_the_log_density_by_half_of_epsilon():
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((5, 2)))[0].T
    one, other = rng.standard_normal((2, 20, 5))
    other[1:] = one[1:]
    first, second = (second_moment(rows, row_bound=10.0).total for rows in (one, other))
    assert abs(np.trace(basis @ (first - second) @ basis.T)) <= 1.0


def test_a_large_budget_gives_the_exact_directions():
    rows = np.random.default_rng(0).standard_normal((200, 8)) * np.linspace(3, 0.2, 8)
    made = ppca(rows, n_components=3, epsilon=1e7, random_state=0)
    exact = np.linalg.svd(rows)[2][:3]
    np.testing.assert_allclose(np.linalg.svd(made.components @ exact.T)[1], 1.0, atol=1e-3)


def test_a_chain_without_sweeps_is_refused():
    with pytest.raises(DataError, match="burn_in"):
        ppca(np.eye(3), n_components=1, epsilon=1.0, burn_in=0)
