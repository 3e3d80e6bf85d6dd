"""Noise of density exp(-|z|/scale): a Gamma radius, a uniform direction."""

import numpy as np
import pytest
from scipy import stats
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    kolmogorov,
    mutant,
    svec,
    together,
)

from eigenveil.noise import draws
from eigenveil.noise.source import SecureSource

GRID = -30


def vectors(count, size, *, scale=1.0, draw=draws.vector):
    source = SecureSource()
    drawn = [draw(size, scale=scale, grid=GRID, source=source) for _ in range(count)]
    return np.ldexp(np.array(drawn).astype(float), GRID)


def matrices(count, size, *, draw=draws.vector_symmetric):
    return svec(vectors(count, size, draw=draw))


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
    assert law(vectors(20_000, 3)) > FALSE_ALARM
    assert law(matrices(20_000, 2)) > FALSE_ALARM


@pytest.mark.parametrize("factor", OFF_BY_30_PERCENT)
def test_another_scale_is_rejected(factor):
    assert law(vectors(5000, 3, scale=factor)) < REJECTED


def test_mutants_are_rejected():
    for draw in (draws.vector, draws.vector_symmetric):  # a chi-square of one degree less, or more
        fewer = mutant(draw, " + 1, source)", ", source)")
        more = mutant(draw, " + 1, source)", " + 2, source)")
        for wrong in (fewer, more):
            z = vectors(5000, 3, draw=wrong)
            assert law(z if z.ndim == 2 else svec(z)) < REJECTED

    def same_everywhere(size, *, scale, grid, source):  # Gaussian of one variance on the triangle
        z = draws.vector(size * (size + 1) // 2, scale=scale, grid=grid, source=source)
        return draws.symmetric_from_triangle(z[:size], z[size:])

    assert law(matrices(5000, 2, draw=same_everywhere)) < REJECTED

    def cube(size, *, scale, grid, source):  # uniform in the cube, not on the sphere
        u = 2 * draws.open_uniform(size, source) - 1
        radius = -np.sum(np.log(draws.open_uniform(size, source)))
        return np.rint(np.ldexp(u * (scale * radius / np.linalg.norm(u)), -grid))

    assert law(vectors(20_000, 3, draw=cube)) < REJECTED


def test_large_vectors_have_the_radius_of_their_dimension():
    z = vectors(400, 500)
    radii = np.linalg.norm(z, axis=1)
    assert kolmogorov(radii, stats.gamma(500).cdf) > FALSE_ALARM
    assert kolmogorov(radii, stats.gamma(500 * 1.3).cdf) < REJECTED


def test_laplace_coordinates_have_the_stated_scale():
    source = SecureSource()
    z = np.ldexp(draws.laplace((40_000,), scale=0.4, grid=GRID, source=source), GRID)
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
