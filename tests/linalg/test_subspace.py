"""Merging subspaces, and how far apart two of them are (paper 002, algorithm 2, lemma 1)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import DataError
from eigenveil.linalg import subspace as module
from eigenveil.linalg.subspace import Subspace, append, merge, subspace_distance, subspace_of

EXACT = 1e-10


def rows_of_rank(rank, *, count, features, seed, decay=0.5):
    rng = np.random.default_rng(seed)
    strengths = np.arange(1, rank + 1) ** -decay
    return (rng.standard_normal((count, rank)) * strengths) @ rng.standard_normal((rank, features))


def plain(rows, rank):
    """Strengths and directions by numpy's SVD."""
    _, strengths, directions = np.linalg.svd(rows, full_matrices=False)
    return Subspace(directions[:rank].T, strengths[:rank])


def algorithm_2(first, second, rank, forgetting=1.0):
    """Merge_r, word for word."""
    between = first.basis.T @ second.basis
    outer, corner = np.linalg.qr(second.basis - first.basis @ between)
    core = np.block(
        [
            [np.diag(first.strengths * forgetting), between * second.strengths],
            [np.zeros((corner.shape[0], first.rank)), corner * second.strengths],
        ]
    )
    turn, values, _ = np.linalg.svd(core)
    return Subspace((np.hstack([first.basis, outer]) @ turn)[:, :rank], values[:rank])


def assert_same(found, wanted, tolerance=EXACT):
    size = min(found.rank, wanted.rank)
    scale = max(1.0, float(np.max(wanted.strengths, initial=0.0)))
    for rest in (found.strengths[size:], wanted.strengths[size:]):
        assert np.all(rest < tolerance * scale)
    assert np.allclose(
        found.strengths[:size], wanted.strengths[:size], rtol=0, atol=tolerance * scale
    )
    real = int(np.sum(wanted.strengths > 1e-9 * scale))
    assert subspace_distance(found.basis[:, :real], wanted.basis[:, :real]) < tolerance
    assert np.allclose(found.basis.T @ found.basis, np.eye(found.rank), atol=1e-12)


@pytest.mark.parametrize("count", [3, 25, 120])
@pytest.mark.parametrize("features", [1, 11, 40, 200])
@pytest.mark.parametrize("rank", [1, 5, 30])
@pytest.mark.parametrize("decay", [0.5, 3.0])
def test_leading_directions_are_those_of_the_singular_value_decomposition(
    count, features, rank, decay
):
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((count, features)) * np.arange(1, features + 1) ** -decay
    before = rows.copy()
    found = subspace_of(rows, rank=rank)
    assert np.array_equal(rows, before)
    assert found.rank == min(rank, count, features)
    assert_same(found, plain(rows, rank))
    for scale in (1e-200, 1e-140, 1e5, 1e140):
        found = subspace_of(rows * scale, rank=rank)
        assert_same(Subspace(found.basis, found.strengths / scale), plain(rows, rank))


def test_products_that_lack_precision_are_not_used(monkeypatch):
    """Two paths lead to the same; the quick one is taken only where it is as precise."""
    flat, steep = (
        np.random.default_rng(1).standard_normal((60, 50)) * np.arange(1, 51) ** -decay
        for decay in (0.5, 6.0)
    )
    taken = []
    triangle = module._from_triangle
    monkeypatch.setattr(module, "_from_triangle", lambda *args: taken.append(1) or triangle(*args))
    assert_same(subspace_of(flat, rank=6), plain(flat, 6))
    assert not taken
    assert_same(subspace_of(steep, rank=6), plain(steep, 6))
    assert taken


@given(
    seed=st.integers(0, 2**32 - 1),
    rank=st.integers(1, 6),
    features=st.integers(6, 60),
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_lemma_1_any_tree_of_merges_is_exact_where_the_rank_suffices(
    seed, rank, features, counts, order
):
    rows = rows_of_rank(rank, count=sum(counts), features=features, seed=seed)
    states = [subspace_of(part, rank=rank) for part in np.split(rows, np.cumsum(counts)[:-1])]
    while len(states) > 1:  # any two, until one is left: any tree, any order
        order.shuffle(states)
        states.append(merge(states.pop(), states.pop(), rank=rank))
    assert_same(states[0], plain(rows, rank))


@given(
    seed=st.integers(0, 2**32 - 1),
    features=st.integers(14, 50),
    ranks=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    kept=st.integers(1, 6),
    forgetting=st.floats(0.1, 1.0),
)
def test_merge_is_algorithm_2_also_where_the_rank_does_not_suffice(
    seed, features, ranks, kept, forgetting
):
    rng = np.random.default_rng(seed)
    first, second = (
        Subspace(np.linalg.qr(rng.standard_normal((features, rank)))[0], np.arange(rank, 0, -1.0))
        for rank in ranks
    )
    wanted = algorithm_2(first, second, kept + 1, forgetting)
    kept = min(kept, wanted.rank)
    if wanted.rank > kept and wanted.strengths[kept - 1] - wanted.strengths[kept] < 1e-3:
        return  # which direction comes last is not determined
    wanted = Subspace(wanted.basis[:, :kept], wanted.strengths[:kept])
    assert_same(merge(first, second, rank=kept, forgetting=forgetting), wanted)


@pytest.mark.parametrize("features", [11, 80])
def test_appending_rows_is_merging_columns_of_strength_1(features):
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((30, features))
    start = subspace_of(rows[:15], rank=6)
    found = append(start, rows[15:], rank=6, forgetting=0.5)
    kept = start.strengths[:, None] * start.basis.T
    assert_same(found, plain(np.vstack([0.5 * kept, rows[15:]]), 6))
    # forgetting the wrong half would not pass
    wrong = plain(np.vstack([kept, 0.5 * rows[15:]]), 6)
    assert np.max(np.abs(found.strengths - wrong.strengths)) > 0.1


def test_nothing_and_zeros():
    nothing = Subspace(np.zeros((4, 0)), np.zeros(0))
    assert merge(nothing, nothing, rank=3).basis.shape == (4, 0)
    one = subspace_of(np.array([[0.0, 3.0, 0.0, 4.0]]), rank=3)
    for both in (merge(nothing, one, rank=3), merge(one, nothing, rank=3)):
        assert_same(both, one)
    zeros = subspace_of(np.zeros((5, 4)), rank=2)
    assert np.array_equal(zeros.strengths, [0, 0])
    assert np.allclose(zeros.basis.T @ zeros.basis, np.eye(2))


def rotated(angle, features=5):
    basis = np.eye(features)[:, :2]
    basis[:, 1] = np.cos(angle) * np.eye(features)[1] + np.sin(angle) * np.eye(features)[3]
    return basis


@pytest.mark.parametrize("angle", [0.0, 1e-14, 1e-9, 1e-3, 0.7, np.pi / 2])
def test_distance_is_the_sine_of_the_largest_angle(angle):
    first, second = np.eye(5)[:, :2], rotated(angle)
    found = subspace_distance(first, second)
    assert found == pytest.approx(np.sin(angle), rel=1e-6)
    assert found == pytest.approx(subspace_distance(second, first))
    projections = first @ first.T - second @ second.T
    assert found == pytest.approx(np.linalg.norm(projections, 2), abs=1e-12)
    # of different ranks, of the smaller with the larger
    assert subspace_distance(first[:, :1], second) == 0.0
    assert subspace_distance(second, first[:, 1:]) == pytest.approx(found)
    assert subspace_distance(second, np.eye(5)[:, 4:]) == 1.0
    assert subspace_distance(second, np.zeros((5, 0))) == 0.0
    with pytest.raises(DataError) as caught:
        subspace_distance(second, np.eye(4)[:, :2])
    assert caught.value.code == "subspaces-differ"


@given(seed=st.integers(0, 2**32 - 1), ranks=st.tuples(st.integers(1, 5), st.integers(1, 5)))
def test_distance_does_not_depend_on_the_bases(seed, ranks):
    rng = np.random.default_rng(seed)
    first, second = (np.linalg.qr(rng.standard_normal((9, rank)))[0] for rank in ranks)
    turn = np.linalg.qr(rng.standard_normal((ranks[0], ranks[0])))[0]
    found = subspace_distance(first, second)
    assert 0.0 <= found <= 1.0
    assert found == pytest.approx(subspace_distance(first @ turn, second), abs=1e-12)
