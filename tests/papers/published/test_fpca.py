"""Federated-PCA as published: folding, the rank, the tree, and what its masks leave of a stream.

Random tests raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eigenveil.errors import DataError, PrivacyError
from eigenveil.linalg.subspace import Subspace, subspace_distance, subspace_of
from eigenveil_papers.published.data import synth
from eigenveil_papers.published.federated_pca import (
    FPCA,
    FPCAEdge,
    merge_up_tree,
    streaming_mod_sulq,
)
from eigenveil_papers.published.result import LARGEST_NORM
from eigenveil_papers.published.sulq import omega, smallest_batch
from statistics_tools import FALSE_ALARM, OFF_BY_30_PERCENT, REJECTED, better_than_random

PRIVATE = {"epsilon": 0.1, "delta": 0.1}


def rows_of_rank(rank, *, rows=200, features=10, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, features))


# Streaming MOD-SuLQ


@given(
    features=st.integers(1, 12),
    rows=st.integers(1, 12),
    columns=st.integers(1, 15),
    seed=st.integers(0, 2**32 - 1),
)
def test_folded_slices_are_the_full_noisy_matrix_when_no_rank_is_lost(
    features, rows, columns, seed
):
    block = np.random.default_rng(seed).standard_normal((rows, features))
    rng = np.random.default_rng(seed)
    slices = [
        rng.normal(scale=0.3, size=(features, min(columns, features - start)))
        for start in range(0, features, columns)
    ]
    whole = block.T @ block / rows + np.hstack(slices)  # the same mask, drawn slice by slice
    found = streaming_mod_sulq(
        block, rank=features, deviation=0.3, columns=columns, rng=np.random.default_rng(seed)
    )
    np.testing.assert_allclose(
        (found.basis * found.strengths**2) @ found.basis.T, whole @ whole.T, atol=1e-9
    )


def test_without_a_mask_a_block_of_low_rank_is_exact_in_as_little_memory():
    block = rows_of_rank(2, rows=25)
    found = streaming_mod_sulq(
        block, rank=2, deviation=0.0, columns=3, rng=np.random.default_rng(0)
    )
    exact = subspace_of(block, rank=2)
    assert subspace_distance(found.basis, exact.basis) < 1e-10
    np.testing.assert_allclose(found.strengths, exact.strengths**2 / 25, rtol=1e-10)


def test_every_entry_of_the_mask_is_drawn_once_with_the_deviation_asked_for():
    rng = np.random.default_rng()
    block = np.zeros((5, 4))
    squares = 0.0  # of all entries of 500 masks, 16 each
    for _ in range(500):
        found = streaming_mod_sulq(block, rank=4, deviation=0.7, columns=3, rng=rng)
        squares += float(np.sum(found.strengths**2))

    def p_value(deviation):
        law = stats.chi2(16 * 500)
        return 2 * min(law.cdf(squares / deviation**2), law.sf(squares / deviation**2))

    assert p_value(0.7) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert p_value(factor * 0.7) < REJECTED


# One client without a mask


@given(
    rank=st.integers(1, 4),
    block=st.integers(1, 30),
    rows=st.integers(8, 120),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_of_low_rank_are_folded_exactly_whatever_the_blocks(rank, block, rows, seed):
    stream = rows_of_rank(rank, rows=rows, seed=seed)
    client = FPCA(n_components=rank, block=block, adapt=False).partial_fit(stream).finish()
    exact = subspace_of(stream, rank=rank)
    np.testing.assert_allclose(client.strengths, exact.strengths, rtol=1e-8)
    np.testing.assert_allclose(
        (client.subspace.basis * client.strengths**2) @ client.subspace.basis.T,
        stream.T @ stream,
        atol=1e-8 * exact.strengths[0] ** 2,
    )


def test_a_block_is_folded_when_it_is_full_and_the_rest_when_asked():
    stream = rows_of_rank(3, rows=60)
    client = FPCA(n_components=3, block=25, adapt=False).partial_fit(stream[:24])
    assert client.subspace.rank == 0
    with pytest.raises(DataError, match="24 rows wait"):
        _ = client.components
    client.partial_fit(stream[24:])
    assert client.blocks_folded == 2
    np.testing.assert_allclose(
        client.strengths, np.linalg.svd(stream[:50], compute_uv=False)[:3], rtol=1e-10
    )
    assert client.finish().finish().blocks_folded == 3
    np.testing.assert_allclose(
        client.strengths, np.linalg.svd(stream, compute_uv=False)[:3], rtol=1e-10
    )
    assert client.claim is None


def test_forgetting_weighs_older_blocks_less():
    first, second = np.diag([2.0, 0.0, 0.0]), np.diag([0.0, 1.5, 0.0])
    for forgetting, expected in ((1.0, [2.0, 1.5]), (0.5, [1.5, 1.0])):
        client = FPCA(n_components=2, block=3, adapt=False, forgetting=forgetting)
        client.partial_fit(first).partial_fit(second)
        np.testing.assert_allclose(client.strengths, expected, atol=1e-12)


def test_the_rank_grows_to_what_the_rows_have():
    stream = rows_of_rank(4, rows=400)
    client = FPCA(n_components=1, block=20, beta=5.0).partial_fit(stream)
    ranks = []
    for block in np.split(stream, 20):
        client.partial_fit(block)
        ranks.append(client.subspace.rank)
    # four directions matter; the fifth is tried and dropped again
    assert set(ranks[10:]) <= {4, 5}
    assert subspace_distance(client.components[:4].T, subspace_of(stream, rank=4).basis) < 0.02


def test_the_rank_falls_to_what_the_rows_have():
    client = FPCA(n_components=6, block=20, beta=60.0).partial_fit(rows_of_rank(2))
    assert client.subspace.rank == 2


def test_most_limits_the_rank_and_too_few_rows_do_not_change_it():
    client = FPCA(n_components=2, block=1, most=3).partial_fit(rows_of_rank(8, rows=1))
    assert client.subspace.rank == 1
    client.partial_fit(rows_of_rank(8, rows=50))
    assert client.subspace.rank == 3


# One client with masks


def test_the_first_block_has_the_rows_of_lemma_2_and_those_after_it_b():
    least = smallest_batch(5.0, features=10, **PRIVATE)
    assert least > 100
    client = FPCA(n_components=2, block=25, omega_0=5.0, **PRIVATE)
    client.partial_fit(rows_of_rank(2, rows=least - 1))
    assert client.blocks_folded == 0
    assert client.partial_fit(rows_of_rank(2, rows=1)).blocks_folded == 1
    assert client.partial_fit(rows_of_rank(2, rows=50)).blocks_folded == 3


def test_a_private_block_gets_the_mask_for_its_own_rows(monkeypatch):
    asked = []

    def spy(block, *, deviation, **others):
        asked.append((len(block), float(np.abs(block).max()), deviation))
        return streaming_mod_sulq(block, deviation=deviation, **others)

    monkeypatch.setattr("eigenveil_papers.published.federated_pca.streaming_mod_sulq", spy)
    client = FPCA(n_components=2, block=25, omega_0=5.0, row_bound=100.0, **PRIVATE)
    least = client.first_block(10)
    client.partial_fit(np.ones((least + 30, 10))).finish()
    expected = [(rows, 0.01, omega(0.1, 0.1, 10, rows)) for rows in (least, 25, 5)]
    assert asked == [pytest.approx(each) for each in expected]


def test_a_private_block_folds_its_basis_with_strengths_of_one():
    edge = FPCAEdge(n_components=3, adapt=False, random_state=0, **PRIVATE)
    edge.fold(rows_of_rank(4, rows=25))
    np.testing.assert_allclose(edge.subspace.strengths, 1.0)
    edge.fold(rows_of_rank(4, rows=25))
    assert np.sum(edge.subspace.strengths**2) <= 6 + 1e-9
    assert edge.subspace.strengths[0] <= math.sqrt(2) + 1e-9


def test_with_a_large_budget_a_private_stream_is_learnt():
    stream = rows_of_rank(2, rows=200)
    client = FPCA(n_components=2, adapt=False, epsilon=1e12, delta=0.1, random_state=0)
    exact = subspace_of(stream, rank=2).basis
    assert subspace_distance(client.partial_fit(stream).components.T, exact) < 1e-6


def test_the_claim_is_never_certified_and_says_why():
    for bound, named in ((None, True), (50.0, False)):
        claim = FPCA(n_components=2, row_bound=bound, **PRIVATE).claim
        assert not claim.certified
        assert (claim.epsilon, claim.delta, claim.adjacency) == (0.1, 0.1, "replace-one")
        assert (LARGEST_NORM in claim.caveats) is named
        assert "floating point" in str(claim)


def test_masks_of_blocks_of_25_rows_leave_a_random_direction():
    # Synth(1), D = 20, n = 5000, delta = 0.05, epsilon = 4, rows divided by the largest of a block
    assert better_than_random(squared_overlaps(4.0, runs=16), 20) > FALSE_ALARM


def test_the_same_test_rejects_a_mask_that_is_too_small():
    # as in the authors' code: a mask for the whole stream, 200 times smaller
    assert better_than_random(squared_overlaps(4.0 * 200, runs=6), 20) < REJECTED


def squared_overlaps(epsilon, *, runs):
    rng = np.random.default_rng()
    squares = []
    for _ in range(runs):
        rows = synth(1.0, features=20, rows=5000, random_state=rng)
        first = np.linalg.eigh(rows.T @ rows)[1][:, -1]
        client = FPCA(
            n_components=6, adapt=False, columns=20, epsilon=epsilon, delta=0.05, random_state=rng
        )
        squares.append(float(client.partial_fit(rows).components[0] @ first) ** 2)
    return squares


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"n_components": 0}, DataError),
        ({"n_components": 2, "columns": 0}, DataError),
        ({"n_components": 2, "alpha": 10, "beta": 1}, DataError),
        ({"n_components": 2, "forgetting": 0.0}, DataError),
        ({"n_components": 2, "most": 0}, DataError),
        ({"n_components": 2, "epsilon": 0.1}, DataError),
        ({"n_components": 2, "delta": 0.1}, DataError),
        ({"n_components": 2, "omega_0": 0.1}, DataError),
        ({"n_components": 2, "epsilon": -0.1, "delta": 0.1}, PrivacyError),
        ({"n_components": 2, "epsilon": 0.1, "delta": 0.0}, PrivacyError),
    ],
)
def test_bad_settings_are_refused_before_any_row(settings, error):
    with pytest.raises(error):
        FPCA(**settings)


def test_an_empty_block_and_rows_above_the_bound_are_refused():
    with pytest.raises(DataError, match="empty"):
        FPCAEdge(n_components=2).fold(np.zeros((0, 5)))
    with pytest.raises(DataError, match="longer"):
        FPCAEdge(n_components=2, row_bound=1.0, **PRIVATE).fold(np.ones((3, 5)))


# The tree


@given(
    clients=st.integers(1, 9),
    leaves=st.integers(2, 4),
    rank=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_tree_of_clients_is_exact_in_any_order_when_no_rank_is_lost(clients, leaves, rank, seed):
    stream = rows_of_rank(rank, rows=20 * clients, seed=seed)
    subspaces = [
        FPCA(n_components=rank, block=10, adapt=False).partial_fit(part).subspace
        for part in np.split(stream, clients)
    ]
    order = np.random.default_rng(seed).permutation(clients)
    merged = merge_up_tree([subspaces[i] for i in order], rank=rank, leaves=leaves)
    np.testing.assert_allclose(
        (merged.basis * merged.strengths**2) @ merged.basis.T,
        stream.T @ stream,
        atol=1e-8 * merged.strengths[0] ** 2,
    )


def test_clients_without_rows_do_not_block_the_others():
    stream = rows_of_rank(3)
    silent = FPCA(n_components=3).subspace
    with_silent = merge_up_tree([silent, subspace_of(stream, rank=3), silent], rank=3)
    np.testing.assert_allclose(
        with_silent.strengths, np.linalg.svd(stream, compute_uv=False)[:3], rtol=1e-10
    )


def test_one_client_is_cut_to_the_rank_asked_for():
    assert merge_up_tree([subspace_of(rows_of_rank(5), rank=5)], rank=2).rank == 2


@pytest.mark.parametrize(
    ("subspaces", "options"),
    [
        ([], {"rank": 2}),
        ([Subspace(np.zeros((5, 0)), np.zeros(0))], {"rank": 2}),
        ([Subspace(np.eye(5), np.ones(5)), Subspace(np.eye(4), np.ones(4))], {"rank": 2}),
        ([Subspace(np.eye(5), np.ones(5))], {"rank": 0}),
        ([Subspace(np.eye(5), np.ones(5))], {"rank": 6}),
        ([Subspace(np.eye(5), np.ones(5))], {"rank": 2, "leaves": 1}),
    ],
)
def test_what_cannot_be_merged_is_refused(subspaces, options):
    with pytest.raises(DataError):
        merge_up_tree(subspaces, **options)
