"""Gaussian noise on symmetric matrices: independent N(0, sigma^2) in isometric coordinates."""

import numpy as np
import pytest

from eigenveil.noise import draws
from eigenveil.noise.entries import coordinates, from_coordinates
from eigenveil.noise.source import SecureSource, SeededSource
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    gaussian_variance,
    isotropic,
    svec,
    together,
)

GRID = -26


def matrices(count, size, *, sigma=1.0, draw=draws.isometric_symmetric):
    source = SecureSource()
    drawn = [draw(size, sigma=sigma, grid=GRID, source=source) for _ in range(count)]
    return np.ldexp(np.array(drawn).astype(float), GRID)


def same_everywhere(size, *, sigma, grid, source):
    """As in the papers: every entry of the triangle N(0, sigma^2)."""
    z = draws.gaussian((size * (size + 1) // 2,), sigma=sigma, grid=grid, source=source)
    return draws.symmetric_from_triangle(z[:size], z[size:])


def rotated(noise):
    turn, _ = np.linalg.qr(np.random.default_rng().standard_normal(noise.shape[1:]))
    return turn @ noise @ turn.T


def test_coordinates_are_independent_with_one_variance_in_any_basis():
    noise = matrices(10_000, 4, sigma=0.7) / 0.7
    for given in (noise, rotated(noise)):
        assert isotropic(svec(given), 1.0) > FALSE_ALARM
        for factor in OFF_BY_30_PERCENT:
            assert isotropic(svec(factor * given[:4000]), 1.0) < REJECTED
    assert isotropic(svec(matrices(4000, 4, draw=same_everywhere)), 1.0) < REJECTED


def test_one_variance_for_all_entries_is_not_the_same_in_every_basis():
    noise = matrices(10_000, 2, draw=same_everywhere)
    half = np.sqrt(0.5)
    turn = np.array([[half, half], [half, -half]])
    before, after = noise[:, 0, 0], (turn @ noise @ turn)[:, 0, 0]
    assert gaussian_variance(before, 1.0) > FALSE_ALARM
    assert gaussian_variance(after, 1.0) < REJECTED


def large(draw):
    noise = matrices(1, 300, draw=draw)[0]
    off = noise[np.tril_indices(300, -1)]
    return noise, together(
        gaussian_variance(np.diagonal(noise), 1.0),
        gaussian_variance(off, 0.5),
        gaussian_variance(np.add(off[::2], off[1::2]), 1.0),  # no entry occurs twice
    )


def test_a_large_matrix_is_exactly_symmetric_with_the_right_variances():
    noise, p = large(draws.isometric_symmetric)
    assert np.array_equal(noise, noise.T)
    assert p > FALSE_ALARM
    assert large(same_everywhere)[1] < REJECTED


@pytest.mark.parametrize("shape", [(7,), (5, 3)])
def test_plain_gaussian_has_its_shape_and_scale(shape):
    source = SecureSource()
    drawn = [draws.gaussian(shape, sigma=0.3, grid=-30, source=source).ravel() for _ in range(5000)]
    z = np.ldexp(np.array(drawn).astype(float), -30)
    assert isotropic(z, 0.3) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert isotropic(z, 0.3 * factor) < REJECTED


@pytest.mark.parametrize("layout", ["symmetric", "tensor", "vector"])
def test_entries_are_those_of_the_whole_array(layout):
    """Word for word of the source: what parties send is the noise whose law is tested above."""
    shape = {"symmetric": (7, 7), "tensor": (5, 5, 5), "vector": (9,)}[layout]
    options = {"sigma": 1.5, "grid": -20}
    whole = draws.isometric(layout, shape, source=SeededSource(3), **options)
    entries = draws.isometric_entries(layout, shape, source=SeededSource(3), **options)
    assert np.array_equal(coordinates(layout, whole), entries)
    assert np.array_equal(from_coordinates(layout, shape, entries), whole)
