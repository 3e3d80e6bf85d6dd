"""The noise of a stream's prefixes: the factor against the matrices that it means."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from eigenveil.privacy import streams
from eigenveil.privacy.releases import STREAM_UNIT, Noise, ReleaseRecord
from eigenveil.privacy.streams import PARTS, StreamFactor, best_factor, toeplitz_error


def matrix(factor):
    """C, entry by entry."""
    weights = np.array(factor.weights, dtype=float) / PARTS
    decays = 1.0 - np.array(factor.losses, dtype=float) / PARTS
    made = np.eye(factor.blocks)
    for k in range(1, factor.blocks):
        made += np.diag(np.full(factor.blocks - k, np.sum(weights * decays ** (k - 1))), -k)
    return made


def record(factor, *, statistic="second-moment", size=6, scale=1.0, adjacency="add-remove"):
    noise = Noise(kind="gaussian", scale=scale, size=size, grid=-36)
    return ReleaseRecord(
        name="a stream", statistic=statistic, adjacency=adjacency, noise=noise, stream=factor
    )


part = st.integers(1, PARTS - 1)
factors = st.integers(0, 3).flatmap(
    lambda d: st.builds(
        StreamFactor,
        blocks=st.integers(1, 40),
        weights=st.tuples(*[part] * d),
        losses=st.tuples(*[part] * d),
    )
)


@given(factor=factors)
def test_norm_and_spread_are_those_of_the_matrices(factor):
    made = matrix(factor)
    longest = np.linalg.norm(made, axis=0).max()
    assert longest <= factor.norm() <= longest * (1 + 1e-9)
    prefixes = np.tril(np.ones_like(made)) @ np.linalg.inv(made)
    for block in {1, (factor.blocks + 1) // 2, factor.blocks}:
        assert factor.spread(block) == pytest.approx(np.linalg.norm(prefixes[block - 1]), rel=1e-6)


@pytest.mark.parametrize("blocks", [1, 2, 7, 40, 300])
def test_no_neighbours_are_further_apart_than_the_record_says(blocks):
    """Every place of the row; any direction of it moves the whole release by the same length."""
    factor = best_factor(blocks)
    longest = np.linalg.norm(matrix(factor), axis=0).max()
    claimed = record(factor).sensitivity()
    assert longest <= claimed <= longest * (1 + 1e-4)
    assert record(factor, scale=2.0).mu() == pytest.approx(claimed / 2)
    replaced = record(factor, adjacency="replace-one").sensitivity()
    assert replaced == pytest.approx(math.sqrt(2) * claimed, rel=1e-4)


def test_a_row_without_the_factor_is_too_short():
    """What a record would claim that forgot the factor: the test above would see it."""
    factor = best_factor(40)
    assert record(None).sensitivity() < 0.8 * np.linalg.norm(matrix(factor), axis=0).max()


def test_rounding_is_in_the_sensitivity():
    factor = best_factor(1000)
    alone = factor.norm()
    entries = 2 * 500_000 * 1000
    extra = factor.rounding() * math.sqrt(entries) * 2.0**STREAM_UNIT
    assert record(factor, size=500_000).sensitivity() == pytest.approx(alone + extra, rel=1e-12)
    assert extra < 1e-4


@pytest.mark.parametrize("blocks", [2, 3, 10, 100, 1000, 10_000, 1_000_000])
def test_the_error_is_that_of_the_best_toeplitz_factor(blocks):
    factor = best_factor(blocks)
    error = factor.norm() * factor.spread(blocks)
    assert error <= 1.01 * toeplitz_error(blocks)
    assert len(factor.weights) <= 6


def test_the_error_grows_with_the_logarithm_and_beats_the_tree():
    horizons = [2**k for k in (6, 10, 14, 18)]
    errors = [
        best_factor(blocks).norm() * best_factor(blocks).spread(blocks) for blocks in horizons
    ]
    steps = np.diff(errors)
    assert np.all(steps < 4 * math.log(2) / math.pi * 1.05)
    for blocks, error in zip(horizons, errors, strict=True):
        levels = math.log2(blocks)
        # a binary tree: a row is in levels + 1 nodes, a prefix is the sum of half of them
        assert error < 0.6 * math.sqrt((levels + 1) * (levels / 2))


def test_more_terms_are_taken_only_where_they_help():
    one = best_factor(1)
    assert (len(one.weights), one.spread(1), one.rounding()) == (0, 1.0, 0.0)
    assert one.norm() == pytest.approx(1.0, rel=1e-9)
    assert len(best_factor(10).weights) == 1
    assert best_factor(500) is best_factor(500)
    assert streams._error(best_factor(500)) < streams._error(streams._fitted(500, 1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"blocks": 0},
        {"blocks": 5, "weights": (1,)},
        {"blocks": 5, "weights": (0,), "losses": (1,)},
        {"blocks": 5, "weights": (1,), "losses": (PARTS,)},
        {"blocks": 5, "weights": (-1,), "losses": (5,)},
    ],
)
def test_factors_outside_the_proof_are_refused(wrong):
    with pytest.raises(ValidationError):
        StreamFactor(**wrong)


def test_records_outside_the_proof_are_refused():
    fields = record(StreamFactor(blocks=4)).model_dump()
    with pytest.raises(ValidationError, match="not both"):
        ReleaseRecord(**fields | {"disjoint": True})
    fields["noise"]["kind"] = "wishart"
    with pytest.raises(ValidationError, match="of a stream's prefixes"):
        ReleaseRecord(**fields)


def test_the_sampling_error_counts_every_block():
    one = record(None).sampling_error()
    many = record(best_factor(100)).sampling_error()
    assert many.log_ratio == pytest.approx(100 * one.log_ratio)
    assert many.distance == pytest.approx(100 * one.distance)
