"""Masks vanish from the sum over sites, and have the law that the guarantees count on."""

import math
import os
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.federation import masks as kinds
from eigenveil.federation.masks import (
    MASKS,
    MODULAR,
    PairMask,
    Part,
    ZeroSum,
    gaussian,
    split,
    total_size,
)
from eigenveil.federation.secagg.consistency import neighbours
from eigenveil.federation.secagg.keys import Context, RoundFacts, SiteKeys, mask_key, round_key
from eigenveil.noise.entries import from_coordinates, tensor_indices
from eigenveil.noise.source import KeyedSource
from eigenveil.privacy.statistics import tensor_size
from soak_tools import times
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    chi_square,
    gaussian_variance,
    isotropic,
    mutant,
    svec,
    together,
    uncorrelated,
)

HERE = Context("study", "session")
FACTS = RoundFacts(1, "ab" * 32, "ff", "ff")
DEVIATION = 2.0**30
SIZES = st.lists(st.integers(1, 20), min_size=1, max_size=3)


def keys(count):
    return [os.urandom(32) for _ in range(count)]


def parts_of(sizes, deviation=0.0):
    return [Part(size, deviation) for size in sizes]


def graph_masks(count, degree, parts, masks):
    """Every site's mask, from keys that its own side of each pair agreed on."""
    names = [f"s{i}" for i in range(count)]
    sites = {name: SiteKeys(SiteKeys.new_master(), HERE) for name in names}

    def key(name, other):
        pair = sites[name].pair(other, sites[other].half(name), own=name)
        return mask_key(round_key(pair, HERE, 1, (name, other)), HERE, FACTS, (name, other))

    def mask(name):
        near = neighbours(name, names, degree)
        return masks.expanded([(key(name, other), name < other) for other in near], parts)

    return np.array([mask(name) for name in names])


@given(st.integers(1, 14), st.integers(1, 14), SIZES, st.sampled_from(["modular", "pairwise"]))
@settings(max_examples=times(60))
def test_pairwise_masks_cancel_over_every_graph(count, degree, sizes, kind):
    parts = parts_of(sizes, DEVIATION)
    found = graph_masks(count, degree, parts, MASKS[kind])
    assert found.dtype == np.uint64
    assert found.shape == (count, sum(sizes))
    assert not np.any(found.sum(axis=0, dtype=np.uint64))
    if count > 1:  # and not before: each word is zero with chance 2**-64, or 2**-31 if Gaussian
        assert all(np.any(mask) for mask in found)
        for missing in range(count):
            rest = np.delete(found, missing, axis=0).sum(axis=0, dtype=np.uint64)
            assert np.any(rest)


@given(st.integers(1, 12), SIZES, st.floats(2.0**20, 2.0**62))
@settings(max_examples=times(60))
def test_the_helpers_masks_cancel_exactly(count, sizes, deviation):
    zero_sum = ZeroSum(keys(count), parts_of(sizes, deviation))
    found = np.array([zero_sum.mask(place) for place in range(count)])
    assert not np.any(found.sum(axis=0, dtype=np.uint64))
    again = np.array([zero_sum.mask(place) for place in range(count)])
    assert np.array_equal(found, again)


def helper_masks(count, size, zero_sum=ZeroSum):
    """Masks of all sites, (count, size), in units of their deviation."""
    made = zero_sum(keys(count), parts_of([size], DEVIATION))
    return np.array([made.mask(i).view(np.int64) for i in range(count)]) / DEVIATION


def zero_sum_law(found):
    """p-value of masks against covariance I - 11'/S: unit variance in every direction but 1."""
    count = len(found)
    basis = np.linalg.svd(np.ones((1, count)))[2][1:]
    seen = (basis @ found).T
    return isotropic(seen, 1.0)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_helpers_masks_have_the_covariance_of_zero_sums(count):
    found = helper_masks(count, 5000)
    assert np.abs(found.sum(axis=0)).max() == 0.0
    assert zero_sum_law(found) > FALSE_ALARM
    single = together(*(gaussian_variance(mask, 1 - 1 / count) for mask in found))
    assert single > FALSE_ALARM


@pytest.mark.parametrize("factor", OFF_BY_30_PERCENT)
def test_another_covariance_is_rejected(factor):
    """30% off in variance everywhere, or twice the variance of one site."""
    found = helper_masks(4, 5000)
    assert zero_sum_law(found * math.sqrt(factor)) < REJECTED
    one = found.copy()
    one[0] *= math.sqrt(2.0)
    assert zero_sum_law(one) < REJECTED


def test_masks_that_are_not_spread_over_the_sites_are_rejected():
    class Wrong(ZeroSum):
        mask = mutant(ZeroSum.mask, "np.uint64(len(self._keys))", "np.uint64(1)")

    found = helper_masks(4, 5000, Wrong)
    assert zero_sum_law(found) < REJECTED


def test_gaussian_masks_have_their_deviation_and_are_independent():
    parts = [Part(4000, 2.0**12), Part(4000, 2.0**40), Part(4000, 2.0**61)]
    drawn = split(gaussian(KeyedSource(os.urandom(32)), parts).view(np.int64), parts)
    found = np.array([x / p.mask_deviation for x, p in zip(drawn, parts, strict=True)]).T
    assert isotropic(found, 1.0) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert isotropic(found, math.sqrt(factor)) < REJECTED


def symmetric_masks(features, draws):
    """Isometric coordinates of masks of a symmetric sum, (draws, D (D + 1) / 2)."""
    size = features * (features + 1) // 2
    part = Part(size, DEVIATION, layout="symmetric")
    found = [gaussian(KeyedSource(key), [part]).view(np.int64) for key in keys(draws)]
    whole = [from_coordinates("symmetric", (features, features), entries) for entries in found]
    return svec(np.array(whole) / DEVIATION)


def test_gaussian_masks_of_a_symmetric_sum_are_isometric():
    assert isotropic(symmetric_masks(4, 4000), 1.0) > FALSE_ALARM


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("part.mask_deviation / math.sqrt(2.0)", "part.mask_deviation"),
        ("row * (row + 3) // 2", "row"),
    ],
)
def test_masks_that_are_not_isometric_are_rejected(monkeypatch, old, new):
    monkeypatch.setattr(kinds, "_gaussian_part", mutant(kinds._gaussian_part, old, new))
    assert isotropic(symmetric_masks(4, 4000), 1.0) < REJECTED


def tensor_masks(rows, draws):
    """Isometric coordinates of masks of a tensor's sum, (draws, K (K + 1) (K + 2) / 6)."""
    part = Part(tensor_size(rows), DEVIATION, layout="tensor")
    found = [gaussian(KeyedSource(key), [part]).view(np.int64) for key in keys(draws)]
    # laid out as the entries of every tensor are
    copies = np.array(
        [
            np.unique(list(permutations(place)), axis=0).shape[0]
            for place in zip(*tensor_indices(rows), strict=True)
        ]
    )
    return np.sqrt(copies) * np.array(found) / DEVIATION


def test_gaussian_masks_of_a_tensor_are_isometric():
    assert isotropic(tensor_masks(3, 4000), 1.0) > FALSE_ALARM


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("part.mask_deviation / math.sqrt(count)", "part.mask_deviation"),
        ("part.mask_deviation / math.sqrt(count)", "part.mask_deviation / count"),
        ("copies == count", "np.sort(copies) == count"),
    ],
)
def test_masks_that_are_not_isometric_on_tensors_are_rejected(monkeypatch, old, new):
    monkeypatch.setattr(kinds, "_gaussian_part", mutant(kinds._gaussian_part, old, new))
    assert isotropic(tensor_masks(3, 4000), 1.0) < REJECTED


def test_masks_of_no_tensor_are_refused():
    with pytest.raises(ValueError, match="no symmetric tensor"):
        gaussian(KeyedSource(os.urandom(32)), [Part(5, DEVIATION, layout="tensor")])


def test_symmetric_gaussian_masks_cancel_too():
    parts = [
        Part(6, DEVIATION, layout="symmetric"),
        Part(10, DEVIATION, layout="tensor"),
        Part(5, 1e6),
    ]
    found = graph_masks(5, 4, parts, MASKS["pairwise"])
    assert not np.any(found.sum(axis=0, dtype=np.uint64))
    made = ZeroSum(keys(5), parts)
    assert not np.any(sum(made.mask(place) for place in range(5)))


def bits_of(words):
    return np.unpackbits(np.asarray(words).view(np.uint8))


@pytest.mark.parametrize("kind", ["uniform", "own", "pairs", "hidden"])
def test_modular_masks_are_uniform(kind):
    """Bytes of a mask; of one that hides numbers that are all the same too."""
    parts = [Part(3000), Part(1000)]
    key = os.urandom(32)
    if kind == "uniform":
        words = KeyedSource(key).words(total_size(parts))
    elif kind == "own":
        words = MODULAR.expanded([(key, True)], parts)
    else:
        words = MODULAR.expanded([(k, bool(i % 2)) for i, k in enumerate(keys(3))], parts)
        if kind == "hidden":
            words = words + np.uint64(12345)
    counts = np.bincount(words.view(np.uint8), minlength=256)
    assert chi_square(counts, [1 / 256] * 256) > FALSE_ALARM
    ones = int(bits_of(words).sum())
    assert chi_square([ones, bits_of(words).size - ones], [0.5, 0.5]) > FALSE_ALARM


def test_masks_of_different_keys_are_uncorrelated():
    found = np.array([gaussian(KeyedSource(k), [Part(4000, DEVIATION)]) for k in keys(4)])
    assert together(uncorrelated(found.view(np.int64).T / DEVIATION)) > FALSE_ALARM


def test_both_sides_of_a_pair_draw_the_same():
    key, parts = os.urandom(32), [Part(7, DEVIATION), Part(6, DEVIATION, layout="symmetric")]
    parts.append(Part(10, DEVIATION, layout="tensor"))
    for masks in (each for each in MASKS.values() if isinstance(each, PairMask)):
        adds, subtracts = (masks.expanded([(key, side)], parts) for side in (True, False))
        assert np.array_equal(adds, -subtracts)


def test_a_stream_that_is_added_piece_by_piece_is_the_key_s_own():
    """As ``words`` draws it at once, whatever was there before, and on both sides of a pair."""
    key, begun = os.urandom(32), os.urandom(8)
    for size in (1, 5, (1 << 13) - 1, 1 << 13, (1 << 13) + 1, 40_001):
        total = np.full(size, int.from_bytes(begun, "little"), dtype=np.uint64)
        before, stream = total.copy(), KeyedSource(key).words(size)
        MODULAR.add([(key, True)], [Part(size)], total)
        assert np.array_equal(total, before + stream)
        MODULAR.add([(key, False)], [Part(size)], total)
        assert np.array_equal(total, before)


def test_a_round_is_split_into_its_parts():
    parts = parts_of([3, 1, 4])
    pieces = split(np.arange(8), parts)
    assert [piece.tolist() for piece in pieces] == [[0, 1, 2], [3], [4, 5, 6, 7]]
    assert total_size(parts) == 8
    # what comes before in a round does not depend on what comes after
    key = os.urandom(32)
    short, long = (MODULAR.expanded([(key, True)], parts_of(sizes)) for sizes in ([3], [3, 5]))
    assert np.array_equal(short, long[:3])
