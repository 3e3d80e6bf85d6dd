"""From an exact sum to a release: the right scale, on the grid, and nothing but noise added."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sums_tools import DOCUMENT_SUMS, EVERY_SUM, KINDS, corpus, make, python, record_of

from eigenveil.moments import release
from eigenveil.moments.exact import modulo
from eigenveil.moments.release import noisy_integers, release_sum, release_vectors
from eigenveil.moments.rows import Block
from eigenveil.noise.entries import coordinates, tensor_copies
from eigenveil.noise.sampler import NoiseSampler
from eigenveil.noise.source import SecureSource, SeededSource
from eigenveil.privacy.releases import Sharing
from statistics_tools import (
    FALSE_ALARM,
    OFF_BY_30_PERCENT,
    REJECTED,
    isotropic,
    svec,
    together,
    uncorrelated,
)

D = 20
NOISES = [
    ("histogram", "gaussian"),
    ("histogram", "laplace"),
    ("row sum", "gaussian"),
    ("row sum", "vector"),
    ("second moment", "gaussian"),
    ("second moment", "wishart"),
    ("second moment", "vector"),
    ("sketch", "gaussian"),
    ("energy", "laplace"),
    ("third moment", "gaussian"),
    ("third moment", "vector"),
    ("pairs", "gaussian"),
    ("coarse pairs", "wishart"),
    ("document sketch", "vector"),
    ("triples", "vector"),
]
TURNS = list(permutations(range(3)))
every_noise = pytest.mark.parametrize(("kind", "noise"), NOISES)


def empty(kind, features=D):
    if kind in ("pairs", "coarse pairs", "document sketch", "triples"):
        return DOCUMENT_SUMS[kind.removeprefix("document ")](features)
    return make(kind, features, "single")


def filled(kind, features=D):
    accumulator = empty(kind, features)
    if accumulator.statistic.startswith("document"):
        accumulator.update(Block(corpus(300, features, 1).astype(float)))
    else:
        accumulator.update(Block(np.random.default_rng().standard_normal((300, features)) + 0.5))
    return accumulator


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@every_noise
@given(loss=st.floats(0.5, 10), noise_parts=st.sampled_from([1, 2, 100]))
def test_a_record_spends_the_budget_and_not_more(kind, noise, adjacency, loss, noise_parts):
    record = record_of(empty(kind), noise, adjacency, loss, sharing=Sharing(noise_parts))
    if noise == "gaussian":
        spent = record.mu()
    else:  # what the sampler's error costs is in it
        spent = record.epsilon() + 2 * record.sampling_error().log_ratio
    assert loss * (1 - 1e-4) <= spent <= loss
    assert record.sampling_error().log_ratio < 1e-4


def noise_of(accumulator, record, source=None):
    """Released values less the exact sum, without rounding, and their coordinates on the grid."""
    grid = record.noise.grid
    released = release_sum(accumulator, record, source or SecureSource())
    assert released.record == record
    unit = Fraction(2) ** grid
    steps = [Fraction(float(v)) / unit for v in released.values.ravel()]
    assert all(step.denominator == 1 for step in steps), "released values are on the grid"
    shift = accumulator.grid - grid
    assert shift >= 0, "the grid holds the exact sum"
    exact = python(accumulator).ravel()
    added = [int(step) - (int(e) << shift) for step, e in zip(steps, exact, strict=True)]
    return np.array([math.ldexp(float(a), grid) for a in added]).reshape(released.values.shape)


@every_noise
def test_a_sampler_gets_the_recorded_noise_and_what_it_gives_is_added(kind, noise, monkeypatch):
    """Exactly: laws of samplers are tested where they are."""
    accumulator = filled(kind)
    record = record_of(accumulator, noise, sharing=Sharing(noise_parts=3))
    given = np.arange(record.noise.size) - 7

    class Sampler(NoiseSampler):
        def entries(self, layout, shape, *, source, **how):
            assert (layout, shape) == (accumulator.layout, accumulator.shape)
            recorded = record.noise
            assert how == {
                name: getattr(recorded, name) for name in ("scale", "grid", "noise_parts")
            }
            assert isinstance(source, SecureSource)
            return given

    monkeypatch.setattr(release, "sampler_of", lambda kind: {record.noise.kind: Sampler()}[kind])
    found = noisy_integers(accumulator, record, SecureSource())
    exact = coordinates(accumulator.layout, accumulator.integers())
    assert np.array_equal(found - modulo(exact << accumulator.grid - record.noise.grid), given)


@every_noise
def test_what_is_added_to_the_exact_sum_is_noise_of_the_recorded_size(kind, noise):
    """Root mean square and mean of 6400 isometric coordinates.

    In the worst case (vector noise: the coordinates of a release share one radius) their deviation
    is 1/80 of the expected size, so that 13% is ten of them, and a scale 30% off 13 further.
    """
    accumulator = filled(kind)
    record = record_of(accumulator, noise)
    scale, size = record.noise.scale, record.noise.size
    count = math.ceil(6400 / size)
    drawn = np.array([noise_of(accumulator, record) for _ in range(count)])
    if accumulator.layout == "symmetric":
        assert np.array_equal(drawn, np.swapaxes(drawn, 1, 2))
        drawn = svec(drawn)
    if accumulator.layout == "tensor":
        assert all(np.array_equal(each, each.transpose(axes)) for each in drawn for axes in TURNS)
        each_entry = [coordinates("tensor", each) for each in drawn]
        drawn = each_entry * np.sqrt(tensor_copies(accumulator.shape[0]))
    assert drawn.size == count * size
    expected = {
        "gaussian": scale,
        "laplace": scale * math.sqrt(2),
        "vector": scale * math.sqrt(size + 1),
        "wishart": 2 * scale * math.sqrt(D + 1),
    }[noise]
    assert float(np.sqrt(np.mean(drawn**2))) == pytest.approx(expected, rel=0.13)
    assert abs(float(np.mean(drawn))) < 0.13 * expected


def test_gaussian_noise_of_a_moment_is_isometric_and_fresh_each_time():
    accumulator = filled("second moment", 6)
    record = record_of(accumulator)
    drawn = svec(np.array([noise_of(accumulator, record) for _ in range(1500)]))
    sigma = record.noise.scale
    successive = np.stack([drawn[0::2, 0], drawn[1::2, 0]], axis=1)
    assert together(isotropic(drawn, sigma), uncorrelated(successive)) > FALSE_ALARM
    for factor in OFF_BY_30_PERCENT:
        assert isotropic(drawn, factor * sigma) < REJECTED


@every_noise
def test_a_release_leaves_the_sum_as_it_was_and_a_seed_repeats_it(kind, noise):
    accumulator = filled(kind)
    record = record_of(accumulator, noise)
    before = python(accumulator)
    one, two = (release_sum(accumulator, record, SeededSource(5)).values for _ in range(2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, release_sum(accumulator, record, SecureSource()).values)
    assert np.array_equal(python(accumulator), before)


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_of_the_rows_is_in_a_record(kind):
    summed = EVERY_SUM[f"{kind}, double"]
    one, other = (record_of(summed.over(summed.rows(30, D, seed))) for seed in range(2))
    assert one == other


def test_chosen_directions_are_on_the_grid():
    """Not the doubles that were computed: those would give away the axes they came from."""
    sums = filled("second moment", 4)
    chosen = record_of(sums, "bingham", draws=2)
    values = release_vectors(sums, chosen, SecureSource()).values
    steps = np.ldexp(values, -chosen.noise.grid)
    assert np.array_equal(steps, np.rint(steps))
    assert np.allclose(values @ values.T, np.eye(2), atol=1e-6)
