"""Quantiles from a released histogram: right where there is signal, none where there is not."""

import numpy as np
import pytest

from eigenveil.models.scale import NormScale, read_scale
from eigenveil.moments.histograms import OCTAVE_PARTS, NormHistogram
from eigenveil.moments.release import release_sum
from eigenveil.moments.rows import Block
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record


def released(rows, mu):
    histogram = NormHistogram(None, precision="double")
    histogram.update(Block(np.asarray(rows, dtype=float)))
    record = calibrated_record(
        histogram, name="scale", adjacency="add-remove", kind="gaussian", budget=StepBudget(mu=mu)
    )
    return read_scale(release_sum(histogram, record, SecureSource()))


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
    """None of 25,650 histograms was wrong; five of 200 are with chance below 1e-10."""
    rows = np.ones((2000, 1))
    wrong = sum(released(rows, mu=0.05).quantile(0.99) >= 16 for _ in range(200))
    assert wrong < 5


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


def long_ones(rows, part, times=10.0):
    """Rows of lengths about 1, and a part of them so many times longer."""
    norms = np.abs(np.random.default_rng(0).normal(1.0, 0.15, rows)) + 0.1
    norms[: int(part * rows)] *= times
    return norms


@pytest.mark.parametrize("part", [0.01, 0.05, 0.1])
def test_long_rows_beyond_a_gap_are_read(part):
    """They hold half the energy and more; their bins' noise is less than a fifth of a percent.

    A thousandth of the mean square is six deviations of it.
    """
    norms = long_ones(200_000, part)
    scale = released(norms[:, None], mu=0.5)
    assert scale.mean_square() == pytest.approx(np.mean(norms**2), rel=0.2)
    assert np.max(norms) / 1.2 < scale.edges[-1] < np.max(norms) * 1.5
    assert scale.quantile(0.5) < 1.5


def test_what_a_known_scale_rules_out_is_not_read():
    near = released(np.ones((20_000, 1)), mu=0.1)
    norms = long_ones(20_000, 0.2, times=50.0)[:, None]
    histogram = NormHistogram(None, precision="double")
    histogram.update(Block(norms))
    record = calibrated_record(
        histogram, name="s", adjacency="add-remove", kind="gaussian", budget=StepBudget(mu=0.1)
    )
    release = release_sum(histogram, record, SecureSource())
    assert read_scale(release).edges[-1] > 40.0
    assert read_scale(release, known=near).edges[-1] < 4.0


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_noise_beyond_all_rows_is_read_as_rows_hardly_ever(kind):
    """Half of the rows are spread so thin that they are looked for in vain.

    Noise shows a run of its own in one of some thousand histograms: 8 of 300 by chance, less than
    1e-8.
    """
    rng = np.random.default_rng()
    norms = np.concatenate([np.ones(2000), np.exp(rng.uniform(-25, 0, 600))])[:, None]
    histogram = NormHistogram(None, precision="double")
    histogram.update(Block(norms))
    budget = StepBudget(mu=0.05) if kind == "gaussian" else StepBudget(epsilon=0.05)
    record = calibrated_record(
        histogram, name="scale", adjacency="add-remove", kind=kind, budget=budget
    )
    far = 0
    for _ in range(300):
        scale = read_scale(release_sum(histogram, record, SecureSource()))
        far += bool(scale.found and scale.edges[-1] > 16)
    assert far < 8
