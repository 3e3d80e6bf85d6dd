"""Noise of density exp(-|z|/scale): a Gamma radius, a uniform direction."""

import math

import numpy as np
import pytest
from scipy import stats

from eigenveil.noise import draws, laplace, vector
from eigenveil.noise.source import SecureSource
from statistics_tools import FALSE_ALARM, OFF_BY_30_PERCENT, REJECTED, kolmogorov, svec, together

GRID = -30


def flat(size, **options):
    return vector.vector("vector", (size,), **options)


def symmetric(size, **options):
    return vector.vector("symmetric", (size, size), **options)


def vectors(count, size, *, scale=1.0, draw=flat):
    source = SecureSource()
    drawn = [draw(size, scale=scale, grid=GRID, source=source) for _ in range(count)]
    z = np.ldexp(np.array(drawn).astype(float), GRID)
    return z if z.ndim == 2 else svec(z)


def law(z):
    """p-value of radius, direction, and their independence, in d dimensions at unit scale."""
    d = z.shape[1]
    radius = np.linalg.norm(z, axis=1)
    direction = z / radius[:, None]
    coordinate = stats.beta((d - 1) / 2, (d - 1) / 2, loc=-1, scale=2).cdf
    turned = direction @ np.linalg.qr(np.random.default_rng().standard_normal((d, d)))[0]
    far = radius > stats.gamma(d).median()
    return together(
        kolmogorov(radius, stats.gamma(d).cdf),
        [kolmogorov(u, coordinate) for u in direction.T],
        [kolmogorov(u, coordinate) for u in turned.T],
        [kolmogorov(u, coordinate) for u in direction[far].T],
    )


def test_radius_and_direction_follow_their_laws():
    radius = np.linalg.norm(vectors(500, 60, scale=0.7), axis=1) / 0.7
    assert kolmogorov(radius, stats.gamma(60).cdf) > FALSE_ALARM
    assert law(vectors(5000, 2, draw=symmetric)) > FALSE_ALARM
    drawn = vectors(5000, 3)
    assert law(drawn) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert kolmogorov(factor * radius, stats.gamma(60).cdf) < REJECTED
        assert law(factor * drawn) < REJECTED


@pytest.mark.thorough
@pytest.mark.parametrize(("draw", "size"), [(flat, 3), (symmetric, 2)])
@pytest.mark.parametrize("more", [-1, 1])
def test_another_number_of_degrees_is_rejected(draw, size, more, monkeypatch):
    """The normals behind the random scale, one fewer or one more."""
    normal = draws.standard_normal
    monkeypatch.setattr(draws, "standard_normal", lambda n, source: normal(n + more, source))
    assert law(vectors(6000, size, draw=draw)) < REJECTED


def test_a_scale_too_small_for_the_grid_is_drawn_again():
    """At a thousandth of the usual number of steps, every seventh scale is; none raises."""
    z = vectors(2000, 1, scale=4096 * 2.0**GRID)
    assert np.all(np.isfinite(z))
    assert np.abs(z).max() < 100 * 4096 * 2.0**GRID


@pytest.mark.parametrize("smallest", [0.0, 0.01, 0.3, 1.0, 3.0])
def test_refusing_small_scales_costs_no_privacy(smallest):
    """The mixture over Gaussian scales is exp(-r), and falls no faster where small ones raise."""
    sigma = np.geomspace(max(smallest, 1e-4), 60, 200_001)
    r = np.linspace(0.05, 30, 60)
    slope = []
    for radius in r:
        weight = np.exp(radius - (radius / sigma) ** 2 / 2 - sigma**2 / 2)
        slope.append(radius * np.trapezoid(weight / sigma**2, sigma) / np.trapezoid(weight, sigma))
    assert max(slope) < 1 + 1e-6
    if smallest == 0:
        assert min(slope) > 1 - 1e-6


def gaussian(size, *, scale, grid, source):
    """The same mean square, without the random radius."""
    sigma = scale * math.sqrt(size + 1)
    return draws.gaussian((size,), sigma=sigma, grid=grid, source=source)


def cube(size, *, scale, grid, source):
    """The right radius, but uniform in the cube."""
    u = 2 * draws.open_uniform(size, source) - 1
    radius = -np.sum(np.log(draws.open_uniform(size, source)))
    return np.rint(np.ldexp(u * (scale * radius / np.linalg.norm(u)), -grid))


def same_everywhere(size, *, scale, grid, source):
    """Symmetric, but with one variance for all of the triangle."""
    z = flat(size * (size + 1) // 2, scale=scale, grid=grid, source=source)
    return draws.symmetric_from_triangle(z[:size].copy(), z[size:].copy())


@pytest.mark.thorough
@pytest.mark.parametrize(("wrong", "size"), [(gaussian, 3), (cube, 6), (same_everywhere, 2)])
def test_mutants_are_rejected(wrong, size):
    assert law(vectors(20_000, size, draw=wrong)) < REJECTED


def test_laplace_coordinates_have_the_stated_scale():
    source = SecureSource()
    z = np.ldexp(laplace.laplace((40_000,), scale=0.4, grid=GRID, source=source), GRID)
    assert kolmogorov(z, stats.laplace(scale=0.4).cdf) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert kolmogorov(z * factor, stats.laplace(scale=0.4).cdf) < REJECTED


def test_uniform_deviates_never_reach_their_ends():
    class Extreme:
        secure = False

        def words(self, count):
            return np.array([0, 2**64 - 1], dtype=np.uint64)[:count]

    low, high = draws.open_uniform(2, Extreme())
    assert 0 < low < high < 1
    low, high = draws.log_uniform(2, Extreme())
    assert math.log(2.0**-108) < low < high <= 0


def test_logarithms_of_uniform_deviates_are_exponential():
    log_u = draws.log_uniform(100_000, SecureSource())
    assert kolmogorov(-log_u, stats.expon.cdf) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert kolmogorov(-factor * log_u, stats.expon.cdf) < REJECTED
