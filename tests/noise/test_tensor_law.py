"""Noise on symmetric tensors of three modes: isotropic in isometric coordinates."""

import math
from itertools import combinations_with_replacement, permutations

import numpy as np
import pytest
from test_vector_law import law as vector_law

from eigenveil.noise import draws, vector
from eigenveil.noise.entries import tensor_copies, tensor_from_entries, tensor_indices
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.mechanisms.base import lattice_error
from eigenveil.privacy.releases import Noise, ReleaseRecord
from eigenveil.privacy.statistics import tensor_size
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    gaussian_variance,
    isotropic,
    mutant,
    together,
    uncorrelated,
)

GRID = -30


def places(rows):
    """Indices of each unique entry, and how often it stands in the tensor, by counting."""
    unique = list(combinations_with_replacement(range(rows), 3))
    return np.array(unique).T, np.array([len(set(permutations(place))) for place in unique])


def isometric(tensors):
    """Isometric coordinates of tensors (..., K, K, K)."""
    (i, j, k), copies = places(tensors.shape[-1])
    return np.sqrt(copies) * tensors[..., i, j, k]


def through(matrix, tensors):
    """Tensors (n, D, D, D) seen through a matrix of shape (D, K)."""
    return np.einsum("nabc,ai,bj,ck->nijk", tensors, matrix, matrix, matrix, optimize=True)


def orthonormal(rows, columns):
    return np.linalg.qr(np.random.default_rng().standard_normal((rows, columns)))[0]


def tensors(count, rows, *, sigma=1.0, draw=draws.isometric_tensor):
    source = SecureSource()
    drawn = [draw(rows, sigma=sigma, grid=GRID, source=source) for _ in range(count)]
    return np.ldexp(np.array(drawn).astype(float), GRID)


def published(size, *, sigma, grid, source):
    """As in the papers: every unique entry N(0, sigma^2)."""
    entries = draws.gaussian((tensor_size(size),), sigma=sigma, grid=grid, source=source)
    return tensor_from_entries(size, entries)


# The shape


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_unique_entries_are_listed_once_in_order_and_stand_in_their_places(rows):
    found = list(zip(*(index.tolist() for index in tensor_indices(rows)), strict=True))
    (i, j, k), counted = places(rows)
    assert found == sorted(zip(k.tolist(), j.tolist(), i.tolist(), strict=True))
    assert len(found) == tensor_size(rows)
    assert sum(tensor_copies(rows)) == sum(counted) == rows**3
    tensor = tensor_from_entries(rows, np.arange(len(found)))
    for value, place in enumerate(found):
        orders = set(permutations(place))
        assert tensor_copies(rows)[value] == len(orders)
        assert {int(tensor[order]) for order in orders} == {value}


# Gaussian


def entry_by_entry(noise):
    """p-value of every entry's variance against 1, 1/3 or 1/6, and of every correlation."""
    (i, j, k), copies = places(noise.shape[-1])
    entries = noise[:, i, j, k]
    return together(gaussian_variance(entries, 1.0 / copies), uncorrelated(entries))


def test_entries_are_independent_with_the_stated_variances():
    noise = tensors(2500, 4)
    assert entry_by_entry(noise) > FALSE_ALARM
    assert entry_by_entry(tensors(2500, 4, draw=published)) < REJECTED
    for factor in OFF_BY_30_PERCENT:
        assert entry_by_entry(math.sqrt(factor) * noise) < REJECTED


def test_coordinates_are_isotropic_in_any_basis():
    noise = through(orthonormal(4, 4), tensors(2500, 4))
    assert isotropic(isometric(noise), 1.0) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert isotropic(isometric(factor * noise), 1.0) < REJECTED


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sigma / math.sqrt(count)", "sigma"),
        ("sigma / math.sqrt(count)", "sigma / count"),
        ("sigma / math.sqrt(count)", "sigma / math.sqrt(min(count, 3))"),
        ("tensor_copies(size)", "1 + 0 * tensor_copies(size)"),
    ],
)
def test_mutants_of_the_tensor_are_rejected(old, new):
    wrong = mutant(draws.isometric_tensor, old, new)
    assert isotropic(isometric(tensors(4000, 3, draw=wrong)), 1.0) < REJECTED


def symmetrised(size, *, sigma, grid, source):
    """Of an i.i.d. tensor, the mean over the orders of its modes; rounded."""
    del source
    whole = np.random.default_rng().normal(scale=sigma, size=(size,) * 3)
    mean = sum(whole.transpose(order) for order in permutations(range(3))) / 6
    return np.rint(np.ldexp(mean, -grid))


def test_it_is_the_symmetrised_tensor_of_independent_entries():
    """The definition in docs/proofs/third-moment.md; the drawn one has the same law (above)."""
    assert isotropic(isometric(tensors(6000, 3, draw=symmetrised)), 1.0) > FALSE_ALARM


def projected(draw, scale=1.0):
    """Noise of 6 features seen through 3 orthonormal columns."""
    return through(scale * orthonormal(6, 3), tensors(2500, 6, draw=draw))


def test_noise_of_many_features_seen_through_few_is_the_noise_of_few():
    assert entry_by_entry(projected(draws.isometric_tensor)) > FALSE_ALARM
    for other in (projected(published), projected(draws.isometric_tensor, 1.15)):
        assert entry_by_entry(other) < REJECTED


def large(draw):
    noise = tensors(1, 50, draw=draw)[0]
    i, j, k = tensor_indices(50)
    alike = (i == j).astype(int) + (j == k)
    groups = [noise[i, j, k][alike == count] for count in (2, 1, 0)]
    sums = groups[2][::2][:9000] + groups[2][1::2][:9000]  # no entry occurs twice
    return noise, together(
        *(gaussian_variance(g, 1 / c) for g, c in zip(groups, (1, 3, 6), strict=True)),
        gaussian_variance(sums, 2 / 6),
    )


def test_a_large_tensor_is_exactly_symmetric_with_the_right_variances():
    noise, p = large(draws.isometric_tensor)
    assert np.array_equal(noise, noise.transpose(1, 0, 2))
    assert np.array_equal(noise, noise.transpose(0, 2, 1))
    assert p > FALSE_ALARM
    assert large(published)[1] < REJECTED


# Vector noise


def vector_tensor(size, **options):
    return vector.vector("tensor", (size,) * 3, **options)


def vector_tensors(count, *, draw=vector_tensor, noise_parts=1):
    """Isometric coordinates of sums of as many shares as make the noise, two rows, unit scale."""
    source = SecureSource()
    whole = [
        sum(
            draw(2, scale=1.0, grid=GRID, source=source, noise_parts=noise_parts)
            for _ in range(noise_parts)
        )
        for _ in range(count)
    ]
    return isometric(np.ldexp(np.array(whole).astype(float), GRID))


def test_vector_noise_has_the_radius_and_direction_of_its_dimension():
    assert vector_law(vector_tensors(3000)) > FALSE_ALARM


@pytest.mark.thorough
def test_shares_of_vector_noise_add_up_to_it():
    for noise_parts in (2, 5):
        assert vector_law(vector_tensors(2000, noise_parts=noise_parts)) > FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("_mixed_sigma(size,", "_mixed_sigma(size - 1,"),
        ("sigma=sigma,", "sigma=1.3 * sigma,"),
        ("draws.isometric(layout, shape,", "published(shape[0],"),
    ],
    ids=["degrees", "scale", "i.i.d."],
)
def test_other_vector_noise_is_rejected(old, new, monkeypatch):
    monkeypatch.setattr(vector, "published", published, raising=False)
    monkeypatch.setattr(vector, "vector", mutant(vector.vector, old, new))
    assert vector_law(vector_tensors(4000)) < REJECTED


def drawn_at(steps):
    """Vector noise of three rows, often, at so few grid steps in its scale."""
    source = SecureSource()
    for _ in range(1500):
        vector_tensor(3, scale=float(steps), grid=0, source=source)


def test_a_scale_too_small_for_any_entry_is_drawn_again(monkeypatch):
    """At some 4000 steps in the usual scale; 1 in 40 scales is too small for the entries ijk."""
    drawn_at(1200)
    monkeypatch.setattr(vector, "_COARSEST_TENSOR", vector._COARSEST)
    with pytest.raises(ValueError, match="lattice units"):
        drawn_at(1200)


# What is recorded


def error(kind, steps, *, statistic="third-moment", noise_parts=1, size=10):
    noise = Noise(kind=kind, scale=float(steps), size=size, grid=0, noise_parts=noise_parts)
    return ReleaseRecord(
        name="a", statistic=statistic, adjacency="add-remove", noise=noise
    ).sampling_error()


def test_entries_of_a_tensor_count_with_their_smaller_deviations():
    steps = 2.0**13
    tensor, matrix = error("gaussian", steps), error("gaussian", steps, statistic="second-moment")
    assert matrix == lattice_error(10, steps_a_scale=steps)
    assert tensor.log_ratio == 10 * (2.0**-44 + 48 / steps**2)
    assert tensor.distance == matrix.distance
    assert error("gaussian", steps, statistic="document-triples") == tensor
    assert error("gaussian", steps, statistic="document-pairs") == matrix


@pytest.mark.parametrize("noise_parts", [1, 4])
def test_a_grid_too_coarse_for_the_smallest_entries_is_not_proved(noise_parts):
    fewest = 1024 * math.sqrt(6 * noise_parts)
    source = SecureSource()
    for steps, proved in ((1.001 * fewest, True), (0.999 * fewest, False)):
        found = error("gaussian", steps, noise_parts=noise_parts)
        assert (found.log_ratio < math.inf) == proved
        share = steps / math.sqrt(noise_parts)
        if proved:
            draws.isometric_tensor(3, sigma=share, grid=0, source=source)
        else:
            with pytest.raises(ValueError, match="lattice units"):
                draws.isometric_tensor(3, sigma=share, grid=0, source=source)


def test_a_grid_too_coarse_for_shares_of_vector_noise_is_not_proved():
    """Where the Gamma variable is next to nothing, what smooths it is all the deviation."""
    fewest = 1024 * math.sqrt(6 * 3) / math.sqrt((10 + 1) / 2048)
    assert error("vector", 1.001 * fewest, noise_parts=3).log_ratio < 1e-9
    assert error("vector", 0.999 * fewest, noise_parts=3).log_ratio == math.inf
    coarse = error("vector", 0.999 * fewest, noise_parts=3, statistic="document-pairs")
    assert coarse.log_ratio < 1e-9
