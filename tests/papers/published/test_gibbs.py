"""PPCA as published: its Gibbs sampler against the exact Bingham law, where that is known.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import numpy as np
import pytest
from scipy import integrate, special

from eigenveil.errors import DataError
from eigenveil_papers.published import ppca, second_moment
from eigenveil_papers.published.gibbs import DirectionProposals, best_envelope, bingham_gibbs
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


def draws(count, *, energies=ENERGIES, sweeps=5, runs=500):
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
        1 - np.sum(draws(2, energies=cold, sweeps=sweeps, runs=200)[:, 2, :] ** 2, axis=1)
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


# One step of the chain: a column given the others

# of R^5; with t = 2 max(e) + 1 no entry of M is below 1, with less some are below 0
STEEP = np.array([40.0, 30.0, 5.0, 1.0, 0.0])


def complement_of(energies, fixed, rng):
    """Columns to be orthogonal to, a basis of what is left, and the exponent there."""
    size = len(energies)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    left = basis[:, fixed:]
    return basis[:, :fixed], left, left.T @ (energies[:, None] * left)


@pytest.mark.parametrize("fixed", [0, 1, 3, 4])
@pytest.mark.parametrize("scale", [0.0, 0.05, 1.0, 200.0])
def test_the_envelope_is_the_gaussian_of_the_complement(fixed, scale):
    rng = np.random.default_rng(fixed)
    energies = scale * STEEP
    others, left, inside = complement_of(energies, fixed, rng)
    top = np.linalg.eigvalsh(inside)[-1]
    for above in (0.5, 3.0, 2 * np.max(energies) + 9):  # above the level where M is singular
        envelope = DirectionProposals(energies, others, 2 * top + above)
        small = np.linalg.inv(envelope.level * np.eye(5 - fixed) - 2 * inside)
        covariance = left @ small @ left.T
        # linear in the normal numbers: of the identity it gives the matrix itself
        made = envelope.linear(np.eye(5))
        np.testing.assert_allclose(made.T @ made, covariance, atol=1e-9 * np.max(covariance))
        np.testing.assert_allclose(envelope.trace, np.trace(small), rtol=1e-9)
        np.testing.assert_allclose(envelope.squared, np.sum(small**2), rtol=1e-8)
    if fixed < 4:
        below = DirectionProposals(energies, others, 2 * top - 1e-3)
        assert below.trace == np.inf
        assert below.level < below.above() <= 2 * top + 1 + 1e-9


@pytest.mark.parametrize("scale", [0.0, 1.0, 1000.0])
def test_the_best_level_is_found_and_refuses_few(scale):
    rng = np.random.default_rng(7)
    energies = scale * np.linspace(0, 1, 60) ** 4
    others, _, inside = complement_of(energies, 20, rng)
    values = np.linalg.eigvalsh(inside)
    for held in (values[0], np.mean(values), values[-1]):
        level = best_envelope(energies, others, held).level

        def refused(t):  # the logarithm of one over the chance that a proposal is kept, and more
            return 0.5 * t - 0.5 * np.sum(np.log(t - 2 * values))

        grid = np.linspace(2 * values[-1] + 0.01, 2 * values[-1] + 80, 4000)
        assert refused(level) < min(map(refused, grid)) + 0.06
        with pytest.MonkeyPatch.context() as patch:  # and a search from far off ends there too
            patch.setattr("eigenveil_papers.published.gibbs._LOSS", 1e-8)
            exact = best_envelope(energies, others, held)
        np.testing.assert_allclose(exact.trace, 1.0, rtol=1e-3)


@pytest.mark.parametrize("above", [0.3, 1.5, 8.0])
def test_a_step_draws_the_exact_law_of_the_complement_at_any_level(above):
    rng = np.random.default_rng()
    others, left, inside = complement_of(STEEP[1:], 1, np.random.default_rng(3))
    values, turn = np.linalg.eigh(inside)
    envelope = DirectionProposals(STEEP[1:], others, 2 * values[-1] + above)
    drawn = np.array([envelope.accepted(rng) for _ in range(1000)])
    np.testing.assert_allclose(drawn @ others, 0.0, atol=1e-12)
    squares = (drawn @ left @ turn)[:, 0] ** 2
    law = square_of_the_third(values[::-1])
    assert kolmogorov(squares, law) > FALSE_ALARM
    # what is proposed, none refused, has another law, and so have other energies
    loose = DirectionProposals(STEEP[1:], others, 2 * values[-1] + 30.0)
    proposed = loose.proposals(rng.standard_normal((1000, 4))) @ left @ turn
    assert kolmogorov(proposed[:, 0] ** 2, law) < REJECTED
    assert kolmogorov(squares, square_of_the_third(values[::-1] / 4)) < REJECTED
