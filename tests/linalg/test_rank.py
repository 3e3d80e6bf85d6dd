"""AdjustRank: when a direction is added or dropped, and that it claims nothing the rows lack."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.linalg.subspace import (
    Subspace,
    adjust_rank,
    append,
    check_shares,
    last_share,
    subspace_of,
)
from refusal_tools import refuses


def along_axes(strengths, features=6):
    """A subspace along the first axes."""
    return Subspace(np.eye(features)[:, : len(strengths)], np.array(strengths, dtype=float))


@given(strength=st.floats(1e-3, 1e3))
def test_the_last_share_is_in_percent(strength):
    """That of a single direction is exactly 100, so that such a bound never asks for another."""
    assert last_share(along_axes([6, 3, 1])) == pytest.approx(10.0)
    assert last_share(along_axes([0, 0])) == 0.0
    assert last_share(along_axes([strength])) == 100.0


@pytest.mark.parametrize(
    ("strengths", "rank"),
    [
        ([6.0, 3.0, 1.0], 3),  # a share of 10 is not above 10
        ([6.0, 2.9, 1.1], 4),
        ([60.0, 39.0, 1.0], 3),  # a share of 1 is not below 1
        ([60.0, 39.1, 0.9], 2),
        ([5.0], 2),  # all of it
        ([0.0, 0.0], 2),  # no shares
        ([1.0, 0.0], 1),
    ],
)
def test_bounds_decide_about_the_last_direction(strengths, rank):
    assert adjust_rank(along_axes(strengths), alpha=1, beta=10).rank == rank


@pytest.mark.parametrize(("axes", "after"), [([0, 1], 2), ([3, 2], 0)])
def test_the_new_direction_is_the_next_axis_that_is_not_in_the_span_without_strength(axes, after):
    adjusted = adjust_rank(Subspace(np.eye(4)[:, axes], np.array([2.0, 1.0])))
    np.testing.assert_array_equal(adjusted.basis, np.eye(4)[:, [*axes, after]])
    np.testing.assert_array_equal(adjusted.strengths, [2.0, 1.0, 0.0])


@given(
    features=st.integers(1, 10),
    rank=st.integers(1, 10),
    most=st.one_of(st.none(), st.integers(1, 12)),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_basis_stays_orthonormal_and_the_rank_within_its_limits(features, rank, most, seed):
    rng = np.random.default_rng(seed)
    rank = min(rank, features)
    basis = np.linalg.qr(rng.standard_normal((features, rank)))[0]
    strengths = np.sort(rng.exponential(size=rank))[::-1]
    adjusted = adjust_rank(Subspace(basis, strengths), most=most)
    np.testing.assert_allclose(adjusted.basis.T @ adjusted.basis, np.eye(adjusted.rank), atol=1e-12)
    assert adjusted.strengths.shape == (adjusted.rank,)
    kept = min(rank, adjusted.rank)
    np.testing.assert_array_equal(adjusted.basis[:, :kept], basis[:, :kept])
    assert rank - 1 <= adjusted.rank <= rank + 1
    assert 1 <= adjusted.rank <= max(rank, min(features, most or features))


def test_an_axis_almost_in_the_span_is_made_orthonormal_or_passed_over():
    for tilt in (1e-3, 1e-5, 1e-7, 1e-9):
        first = np.array([0.0, 1.0, tilt])
        basis = (first / np.linalg.norm(first))[:, None]
        adjusted = adjust_rank(Subspace(basis, np.ones(1))).basis
        np.testing.assert_allclose(adjusted.T @ adjusted, np.eye(2), atol=1e-14)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_next_block_is_folded_as_if_the_placeholder_were_not_there(seed):
    rng = np.random.default_rng(seed)
    before = subspace_of(rng.standard_normal((9, 6)), rank=3)
    block = rng.standard_normal((5, 6))
    grown = adjust_rank(before)
    assert grown.rank == 4
    found, expected = append(grown, block, rank=4), append(before, block, rank=4)
    np.testing.assert_allclose(found.strengths, expected.strengths, rtol=1e-10)
    np.testing.assert_allclose(
        (found.basis * found.strengths) @ found.basis.T,
        (expected.basis * expected.strengths) @ expected.basis.T,
        atol=1e-8,
    )


def test_a_placeholder_that_no_row_fills_is_dropped_again():
    rows = np.outer(np.arange(1.0, 6.0), np.ones(4))
    tracked, ranks = subspace_of(rows, rank=1), []
    for _ in range(4):
        tracked = adjust_rank(append(tracked, rows, rank=tracked.rank))
        ranks.append(tracked.rank)
    assert ranks == [2, 1, 2, 1]


@pytest.mark.parametrize(("alpha", "beta"), [(10, 1), (1, 1), (-1, 10), (1, 101), (np.nan, 10)])
def test_bounds_that_are_no_interval_are_refused(alpha, beta):
    for refuse in (check_shares, lambda a, b: adjust_rank(along_axes([1.0]), alpha=a, beta=b)):
        with refuses("rank-bounds"):
            refuse(alpha, beta)


def test_a_limit_below_one_is_refused():
    with refuses("out-of-range"):
        adjust_rank(along_axes([1.0]), most=0)
