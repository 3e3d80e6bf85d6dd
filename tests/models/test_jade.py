"""Joint diagonalisation of fourth cumulants: exact where they are, and what noise becomes."""

import itertools
import math

import numpy as np
import pytest

from eigenveil.models.ica.jade import (
    cumulants,
    jointly_diagonal,
    separated,
    separation_error,
    symmetric_quartic,
    told_apart,
)

RNG = np.random.default_rng(2)


def products(tensor):
    """The matrix over pairs that a symmetric tensor is released as."""
    first, second = np.tril_indices(tensor.shape[0])
    root = np.where(first == second, 1.0, math.sqrt(2.0))
    return tensor[first, second][:, first, second] * np.multiply.outer(root, root)


def of_sources(kurtosis, turn):
    """Fourth moments of sources with these excess kurtoses, turned."""
    size = len(kurtosis)
    eye = np.eye(size)
    found = sum(
        np.einsum(pairs, eye, eye) for pairs in ("ij,kl->ijkl", "ik,jl->ijkl", "il,jk->ijkl")
    )
    for place, value in enumerate(kurtosis):
        found[place, place, place, place] += value
    return np.einsum("ijkl,pi,qj,rk,sl->pqrs", found, turn, turn, turn, turn)


def test_a_symmetric_tensor_comes_back():
    rows = RNG.standard_normal((50, 4))
    tensor = np.einsum("ni,nj,nk,nl->ijkl", rows, rows, rows, rows)
    np.testing.assert_allclose(symmetric_quartic(products(tensor), 4), tensor, rtol=1e-12)


def test_symmetric_noise_is_isometric():
    """Of 20,000 draws in K = 2, five coordinates of equal variance: each is off by less than 7
    deviations of its estimate, which one in 1e11 exceeds; a pairing left out is found."""
    draws, size = 20_000, 2
    noise = RNG.standard_normal((draws, 3, 3)) / math.sqrt(2.0)
    noise = np.tril(noise, -1) + np.tril(noise, -1).transpose(0, 2, 1)
    noise += np.eye(3) * RNG.standard_normal((draws, 3))[:, None, :]
    found = np.array([symmetric_quartic(each, size) for each in noise])
    multiplicity = {0: 1, 1: 4, 2: 6, 3: 4, 4: 1}
    for ones, times in multiplicity.items():
        place = (1,) * ones + (0,) * (size * 2 - ones)
        coordinate = found[(slice(None), *place)] * math.sqrt(times)
        assert abs(coordinate.var() - 1.0) < 7.0 * math.sqrt(2.0 / draws)
    for place in itertools.permutations((0, 0, 1, 1)):
        np.testing.assert_allclose(found[(slice(None), *place)], found[:, 0, 0, 1, 1])


@pytest.mark.parametrize("kurtosis", [[3.0, -1.2, 3.0], [0.5, 0.5, 0.5, 0.0], [3.0, -1.2]])
def test_sources_are_found_exactly(kurtosis):
    size = len(kurtosis)
    turn = np.linalg.qr(RNG.standard_normal((size, size)))[0]
    found = jointly_diagonal(cumulants(of_sources(kurtosis, turn), np.eye(size)))
    np.testing.assert_allclose(found.T @ found, np.eye(size), atol=1e-12)
    assert separation_error(found.T @ turn) < 1e-6


def test_the_index_is_0_of_permutations_and_1_of_what_is_all_alike():
    assert separation_error(np.eye(4)[[2, 0, 3, 1]] * [3.0, -1.0, 2.0, 0.5]) == 0.0
    assert separation_error(np.ones((4, 4))) == pytest.approx(1.0)
    assert separation_error(np.array([[2.0]])) == 0.0


def test_of_noise_alone_no_source_is_told_apart():
    """The largest of what a diagonaliser picks is beyond three deviations in most draws of eight.

    False in 1 of 100 at most: 8 of 40 are then seen with a probability below 1e-8.
    """
    size, pairs, rng = 8, 36, np.random.default_rng(9)
    plain, false = of_sources(np.zeros(size), np.eye(size)), 0
    for _ in range(40):
        noise = rng.standard_normal((pairs, pairs))
        noise = (noise + noise.T) / 2.0  # isometric: 1 on the diagonal, the root of 1/2 off it
        found = separated(plain + 1e-3 * symmetric_quartic(noise, size))
        false += bool(told_apart(found.kurtosis, 1e-3).any())
    assert false < 8


def test_sources_among_noise_are_told_apart():
    np.testing.assert_array_equal(told_apart(np.array([0.5, 9.0, -1.0, -3.1]), 1.0), [0, 1, 0, 1])
    assert told_apart(np.array([0.1, 9.0, -7.0]), 1.0).all()
    assert not told_apart(np.full(10, 4.0), 1.0).any()
