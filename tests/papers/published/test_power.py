"""The private power method as published: its rounds, its noise, and what the noise is short of.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math

import numpy as np
import pytest
from scipy import stats

from eigenveil.errors import DataError
from eigenveil.privacy.accountant import delta_of_mu
from eigenveil_papers.published import power, private_power, second_moment
from statistics_tools import FALSE_ALARM, OFF_BY_30_PERCENT, REJECTED, kolmogorov

SIZE, COUNT = 12, 2


def test_scales_agree_with_numbers_worked_out_by_hand():
    # 4 * 2 * 3 * ln(1/delta) with ln = 1.5: sqrt(36) / 0.5 = 12
    assert power.noise_scale(100, 2, rounds=3, epsilon=0.5, delta=math.exp(-1.5)) == pytest.approx(
        12
    )
    assert power.noise_scale(100, 2, rounds=3, epsilon=0.5, delta=0.0) == pytest.approx(240)


def test_rounds_come_from_the_singular_values_of_the_rows():
    moment = second_moment(np.diag([1.0, 0.9, 0.6, 0.1]), row_bound=1.0)
    assert power.rounds(moment, 2) == math.ceil(0.9 / 0.3 * math.log(4))
    assert power.rounds(moment, 4) == math.ceil(math.log(4))  # after the last comes 0
    with pytest.raises(DataError, match="too close"):
        power.rounds(second_moment(np.eye(4)), 2)


class Spy(np.random.Generator):
    """A generator that keeps the noise it draws, and its scale."""

    def __init__(self):
        super().__init__(np.random.PCG64())
        self.drawn = []

    def normal(self, *, scale, size):
        self.drawn.append((scale, super().normal(scale=scale, size=size)))
        return self.drawn[-1][1]

    def laplace(self, *, scale, size):
        self.drawn.append((scale, super().laplace(scale=scale, size=size)))
        return self.drawn[-1][1]


@pytest.mark.parametrize("delta", [0.01, 0.0])
def test_one_round_is_the_moment_times_a_basis_and_the_published_noise(delta):
    """With rows of zero but one, Q R is the noise: its law is seen in the result."""
    found = []
    moment = second_moment(np.full((1, SIZE), 1e-150), row_bound=1.0)
    for _ in range(300):
        spy = Spy()
        made = private_power(
            moment, n_components=COUNT, epsilon=0.5, delta=delta, n_iter=1, random_state=spy
        )
        (scale, noise), *more = spy.drawn
        assert not more
        largest = scale / made.deviation if delta else 1.0
        assert 1 / math.sqrt(SIZE) < largest <= 1.0
        assert made.strengths[0] == pytest.approx(np.linalg.norm(noise[:, 0]))
        found.append(noise / (largest * made.deviation))
    values = np.ravel(found)
    exact = stats.norm.cdf if delta else stats.laplace.cdf
    assert kolmogorov(values, exact) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert kolmogorov(values * factor, exact) < REJECTED


def test_with_a_large_budget_the_rounds_find_the_exact_directions():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((300, 6)) * [5.0, 4.0, 3.0, 0.2, 0.2, 0.1]
    made = private_power(rows, n_components=3, epsilon=1e9, delta=0.01, random_state=1)
    exact = np.linalg.svd(rows)[2][:3]
    np.testing.assert_allclose(np.linalg.svd(made.components @ exact.T)[1], 1.0, atol=1e-4)
    assert made.released is None


def test_the_gaussian_noise_does_not_hide_a_row_where_directions_have_no_large_entry():
    # Directions of a Hadamard matrix: every entry is 1/8. A row along the first moves each round's
    # product by 1, and noise has deviation max|V| times the scale.
    rounds, epsilon, delta, count = 5, 0.5, 0.01, 4
    scale = power.noise_scale(64, count, rounds=rounds, epsilon=epsilon, delta=delta)
    assert delta_of_mu(math.sqrt(rounds) / (scale / 8), epsilon) > 3 * delta
    # with the largest entry at its largest, 1, it would
    assert delta_of_mu(math.sqrt(2 * rounds) / scale, epsilon) <= delta


def test_the_laplace_noise_hides_a_row_whatever_the_directions():
    # u u' - w w' moves V, (D, K), by at most 2 in Frobenius norm: 2 sqrt(D K) in absolute sum
    rng = np.random.default_rng(0)
    for _ in range(200):
        size = int(rng.integers(2, 20))
        count = int(rng.integers(1, size + 1))
        basis = np.linalg.qr(rng.standard_normal((size, count)))[0]
        u, w = (each / np.linalg.norm(each) for each in rng.standard_normal((2, size)))
        moved = np.abs((np.outer(u, u) - np.outer(w, w)) @ basis).sum()
        scale = power.noise_scale(size, count, rounds=7, epsilon=0.5, delta=0.0)
        assert 7 * moved / scale <= 0.5


def test_rounds_that_are_given_are_public():
    rows = np.random.default_rng(0).standard_normal((50, 4))
    found = private_power(rows, n_components=2, epsilon=1.0, random_state=0)
    given = private_power(rows, n_components=2, epsilon=1.0, n_iter=4, random_state=0)
    assert any("rounds" in each for each in found.claim.caveats)
    assert not any("rounds" in each for each in given.claim.caveats)
    with pytest.raises(DataError, match="n_iter"):
        private_power(rows, n_components=2, epsilon=1.0, n_iter=0)
