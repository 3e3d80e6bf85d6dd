"""The grid of released values, and what noise alone shows in a spectrum."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eigenveil.errors import PrivacyError
from eigenveil.noise import draws, vector, wishart
from eigenveil.noise.sampler import sampler_of
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.calibration import grid_exponent
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.releases import Noise
from statistics_tools import FALSE_ALARM, OFF_BY_30_PERCENT, REJECTED

STEPS = 2.0**26  # in the noise of one coordinate
LARGEST = 2.0**16


@given(st.integers(-40, 0), st.floats(1e-9, LARGEST))
def test_grid_is_the_coarsest_that_holds_the_statistic_and_is_fine_for_the_noise(own, noise):
    grid = grid_exponent(own, noise)
    steps = math.ldexp(noise, -grid)
    assert grid <= own, "the statistic stays on the grid"
    assert steps >= STEPS * (1 - 1e-15)
    if grid < own:
        assert steps / 2 < STEPS
    assert grid_exponent(own, noise / 2) <= grid


@given(st.integers(-40, 0), st.floats(LARGEST, 1e300, exclude_min=True))
def test_noise_of_more_rows_than_can_be_is_refused(own, noise):
    with pytest.raises(PrivacyError) as caught:
        grid_exponent(own, noise)
    assert caught.value.code == "hopeless-noise"


DRAWN = {
    "gaussian": lambda n, scale, **k: draws.isometric_symmetric(n, sigma=scale, **k),
    "wishart": wishart.wishart_difference,
    "vector": lambda n, **k: vector.vector("symmetric", (n, n), **k),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_spread_is_the_size_of_an_entry(kind):
    """The root of the mean square off the diagonal, of 20 matrices, is within a third."""
    claimed = MECHANISMS[kind].spread(0.7, 30 * 31 // 2, 30) * (
        math.sqrt(0.5) if kind != "wishart" else 1.0
    )
    off = np.tril_indices(30, -1)
    source = SecureSource()
    seen = [DRAWN[kind](30, scale=0.7, grid=-30, source=source)[off] * 2.0**-30 for _ in range(20)]
    assert np.sqrt(np.mean(np.square(seen))) == pytest.approx(claimed, rel=0.33)


@pytest.mark.parametrize("kind", DRAWN)
def test_the_largest_noise_stays_in_64_bits(kind):
    """At the finest grid of a statistic in double precision, 2**-36, or the noise's own."""
    scale = LARGEST / MECHANISMS[kind].spread(1.0, 30 * 31 // 2, 30)
    grid = max(-36, MECHANISMS[kind].finest_grid(scale)) if kind == "wishart" else -36
    drawn = DRAWN[kind](30, scale=scale, grid=grid, source=SecureSource())
    assert np.abs(drawn.astype(float)).max() < 2.0**60


def mean_edge(draw, matrices):
    source = SecureSource()
    drawn = (draw(source) * 2.0**-30 for _ in range(matrices))
    return np.mean([math.sqrt(np.linalg.eigvalsh(noise.T @ noise)[-1]) for noise in drawn])


def drawn_matrix(kind, shape, source):
    if shape[0] == shape[1]:
        return DRAWN[kind](shape[0], scale=1.0, grid=-30, source=source)
    return draws.gaussian(shape, sigma=1.0, grid=-30, source=source)


CASES = [("gaussian", (250, 250)), ("gaussian", (400, 50)), ("wishart", (250, 250))]
CASES += [("vector", (250, 250))]


@pytest.mark.parametrize(("kind", "shape"), CASES)
def test_spectral_edge_is_what_noise_alone_shows(kind, shape):
    """The mean of 12 spectral norms, each spread by less than 2% (measured).

    A tenth is more than six deviations of the mean, also beyond the 2% by which the limit of large
    matrices is not yet reached. (Gaussian, proved: one deviates by sigma at most, which is 5%.)
    """
    rows, columns = shape
    size = rows * (rows + 1) // 2 if rows == columns else rows * columns
    edge = Noise(kind=kind, scale=1.0, size=size, grid=-30).edge(rows, columns)
    mean = mean_edge(lambda source: drawn_matrix(kind, shape, source), 12)
    assert mean == pytest.approx(edge, rel=0.1)
    for factor in OFF_BY_30_PERCENT:
        assert mean != pytest.approx(factor * edge, rel=0.1)


# a stated law of 200,000 coordinates in one draw: its only parameter is the scale
LENGTHS = {
    "gaussian": lambda x: stats.chi2(x.size).cdf(np.sum(x * x)),
    "laplace": lambda x: stats.gamma(x.size).cdf(np.sum(np.abs(x))),
    "vector": lambda x: stats.gamma(x.size).cdf(np.linalg.norm(x)),
}


@pytest.mark.parametrize("kind", LENGTHS)
def test_one_long_draw_has_the_recorded_scale(kind):
    """Five percent less or more noise is rejected."""
    noise = Noise(kind=kind, scale=0.7, size=200_000, grid=-30)
    drawn = sampler_of(kind).noise("vector", (200_000,), noise, SecureSource())

    def p_value(times):
        below = LENGTHS[kind](drawn * (2.0**-30 / 0.7 * times))
        return 2 * min(below, 1 - below)

    assert p_value(1.0) > FALSE_ALARM
    assert p_value(0.95) < REJECTED
    assert p_value(1.05) < REJECTED
