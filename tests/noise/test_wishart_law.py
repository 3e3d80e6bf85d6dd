"""The two-sided Wishart difference: its law, and what an adversary sees of it."""

import math

import numpy as np
import pytest
from scipy import special

from eigenveil.noise import draws, laplace, wishart
from eigenveil.noise.lattice import lattice_noise
from eigenveil.noise.source import SecureSource, SeededSource
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    chi_square,
    clopper_pearson,
    kolmogorov,
    together,
)

GRID = -30


def differences(count, size, *, scale=1.0):
    made = {"scale": scale, "grid": GRID, "source": SecureSource()}
    drawn = [wishart.wishart_difference(size, **made) for _ in range(count)]
    return np.ldexp(np.array(drawn).astype(float), GRID)


def one_sided(count, size, *, scale=1.0):
    """The published mechanism: ``scale G G'``."""
    g = draws.standard_normal(count * size * (size + 1), SecureSource())
    g = g.reshape(count, size, size + 1)
    return scale * g @ np.swapaxes(g, 1, 2)


def gamma_difference_cdf(shape):
    """Of X - Y, both Gamma(shape, 1): by quadrature that is exact but for rounding."""
    nodes, weights = special.roots_genlaguerre(80, shape - 1)
    weights = weights / np.sum(weights)

    def upper(x):  # x >= 0
        return np.array([weights @ special.gammaincc(shape, v + nodes) for v in x])

    return lambda x: np.where(x >= 0, 1 - upper(np.abs(x)), upper(np.abs(x)))


def law(noise, columns=None):
    """p-value of the entries' laws at unit scale.

    With n columns (one more than rows, unless given) a diagonal entry is the difference of two
    chi-squares with n degrees of freedom, an off-diagonal one that of two Gamma(n); entries that
    share no row are independent.
    """
    n = columns or noise.shape[1] + 1
    diagonal = np.diagonal(noise, axis1=1, axis2=2).ravel()
    off = np.diagonal(noise[:, 1::2, ::2], axis1=1, axis2=2).ravel()
    return together(
        kolmogorov(diagonal / 2, gamma_difference_cdf(n / 2)),
        kolmogorov(off, gamma_difference_cdf(n)),
    )


@pytest.mark.parametrize(("size", "count"), [(3, 4000), (40, 200)])
def test_entries_follow_their_law_which_is_symmetric_about_zero(size, count):
    noise = differences(count, size)
    assert np.array_equal(noise, np.swapaxes(noise, 1, 2))
    assert law(noise) > FALSE_ALARM
    assert law(one_sided(count // 2, size)) < REJECTED
    if size == 3:
        assert all(law(factor * noise) < REJECTED for factor in OFF_BY_30_PERCENT)


ANGLES = np.linspace(0, np.pi, 6, endpoint=False)
HALFSPACES = [
    sign * np.outer(u, u) for u in np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1) for sign in (1, -1)
] + [np.eye(2), -np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]]), np.diag([1.0, -1.0])]
THRESHOLDS = np.linspace(-4, 4, 33)


def proven_loss(first, second):
    """The largest epsilon that some halfspace proves, wrong with chance at most 1e-8."""
    level = FALSE_ALARM / (4 * len(HALFSPACES) * THRESHOLDS.size)
    best = 0.0
    for normal in HALFSPACES:
        for one, two in ((first, second), (second, first)):
            seen = [np.einsum("nij,ij->n", part, normal) for part in (one, two)]
            for threshold in THRESHOLDS:
                hits = [int(np.count_nonzero(s >= threshold)) for s in seen]
                low, _ = clopper_pearson(hits[0], len(one), level)
                _, high = clopper_pearson(hits[1], len(two), level)
                best = max(best, math.log(low / high) if low > 0 else 0.0)
    return best


@pytest.mark.thorough
def test_a_row_more_is_hidden_by_the_difference_but_not_by_the_one_sided_noise():
    """Two dimensions, epsilon = 1, a row of norm 1 more: the witness of the proof."""
    row = np.outer([1.0, 0.0], [1.0, 0.0])
    n, scale = 8000, 1 / 2
    loss = proven_loss(differences(n, 2, scale=scale), differences(n, 2, scale=scale) + row)
    assert 0.3 < loss < 1
    one = proven_loss(one_sided(n, 2, scale=scale), one_sided(n, 2, scale=scale) + row)
    assert one > 3
    # noise 30% too small, at one dimension, where the loss is largest and the noise is Laplace
    small = laplace.laplace((2, 40_000, 1, 1), scale=0.7, grid=GRID, source=SecureSource())
    one, two = np.pad(np.ldexp(small, GRID), ((0, 0), (0, 0), (0, 1), (0, 1)))
    assert proven_loss(one, two + row) > 1.1


@pytest.mark.parametrize("shape", [(1, 2), (2, 3), (7, 8), (7, 1), (60, 61)])
@pytest.mark.parametrize("deviation", [2.0**50, 2.0**50.49])
def test_gram_of_integers_is_exact(shape, deviation):
    """Against Python's own integers: rounded down to multiples of 2**54, nothing lost."""
    product = wishart._exact_gram(shape, deviation, SeededSource(5))
    g = lattice_noise(math.prod(shape), scale=deviation, power=2, source=SeededSource(5))
    g = g.astype(object).reshape(shape)
    # the one product of limbs that is left out is below 2**-17 of the unit
    assert np.all(abs((g @ g.T) - (product.astype(object) << 54)) < (1 << 54) + (1 << 37))


def test_no_grid_is_finer_than_the_noise():
    with pytest.raises(ValueError, match="finer"):
        wishart.wishart_difference(2, scale=1.0, grid=-47, source=SecureSource())


@pytest.mark.parametrize("size", [1, 3, 40])
def test_low_bits_of_a_release_are_uniform(size):
    """No comb shows through: the last three bits of every entry, at the finest grid."""
    source = SecureSource()
    draws_needed = 2000 // (size * (size + 1) // 2) + 1
    entries = np.tril_indices(size)
    bits = np.concatenate(
        [
            wishart.wishart_difference(size, scale=0.7, grid=-46, source=source)[entries] & 7
            for _ in range(draws_needed)
        ]
    )
    seen = np.bincount(bits, minlength=8)
    assert chi_square(seen, np.full(8, 1 / 8)) > FALSE_ALARM
