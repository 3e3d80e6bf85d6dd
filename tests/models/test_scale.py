"""Quantiles from a released histogram: right where there is signal, none where there is not."""

import numpy as np
import pytest

from eigenveil.models.scale import NormScale, read_scale
from eigenveil.moments.accumulators import OCTAVE_PARTS, NormHistogram
from eigenveil.moments.release import calibrated_record, release_sum
from eigenveil.moments.rows import Block
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.budget import StepBudget


def released(rows, mu):
    histogram = NormHistogram(None, precision="double", with_count=True)
    histogram.update(Block(np.asarray(rows, dtype=float)))
    record = calibrated_record(
        histogram,
        name="scale",
        adjacency="add-remove",
        kind="gaussian",
        budget=StepBudget(mu=mu),
    )
    return read_scale(release_sum(histogram, record, SecureSource()), public_rows=None)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_quantiles_are_within_a_bin_or_two(size):
    rng = np.random.default_rng()
    norms = size * np.exp(rng.normal(0, 0.5, 20_000))
    scale = released(norms[:, None], mu=0.1)
    assert scale.found
    for share in (0.5, 0.9):
        exact = np.quantile(norms, share)
        assert exact / 1.5 < scale.quantile(share) < exact * 1.5
    assert scale.rows == pytest.approx(20_000, abs=200)


def test_two_groups_of_rows_keep_the_upper_one():
    rows = np.concatenate([np.full(5000, 1.0), np.full(5000, 3.0)])[:, None]
    assert 3.0 <= released(rows, mu=0.2).quantile(0.9) < 3.7


def test_far_away_noise_never_counts():
    # 200 histograms: the edge would leave the rows' octave by chance less than once in 1e4 of them
    rows = np.ones((2000, 1))
    for _ in range(200):
        assert released(rows, mu=0.05).quantile(0.99) < 16


def test_few_rows_are_not_found():
    found = sum(released(np.ones((3, 1)), mu=0.01).found for _ in range(200))
    assert found < 20  # about one in a hundred by chance; 20 or more below 1e-12


def test_an_offset_from_rows_that_lie_on_the_center():
    """Their squared distance may be no number that anything can be divided by."""
    center = np.array([4.0])
    for norms, bound, squared, wanted in (
        ([4.0], 0.0, 9.0, 1.0),
        ([4.0], 1e-160, 9.0, 1.0),
        ([4.0], 0.0, 0.0, 0.0),
        ([4.0, 5.0], 3.0, 1.8, 0.2),
    ):
        edges = np.array(norms) * 2 ** (0.5 / OCTAVE_PARTS)
        scale = NormScale(2.0, edges, np.ones(edges.size))
        with np.errstate(all="raise"):
            assert scale.share_of_offset(squared, bound, center) == pytest.approx(wanted)
