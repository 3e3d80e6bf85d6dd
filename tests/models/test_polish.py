"""The joint fit of released moments: slopes, fixed points, limits, nothing random."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil.linalg.tensor import cubes
from eigenveil.models.tensors import polish
from eigenveil.models.tensors.polish import (
    MeanMoments,
    TopicMoments,
    polished_means,
    polished_topics,
    stepped_topics,
)
from matching_tools import matched_error
from soak_tools import times

ROWS = 100_000.0


class Means:
    """Exact moments of K means in K dimensions, seen through a basis."""

    def __init__(self, count=4):
        rng = np.random.default_rng()
        self.means = np.linalg.qr(rng.standard_normal((count, count)))[0]
        self.means *= rng.uniform(0.3, 1.0, (count, 1))
        self.weights = np.linspace(2, 1, count) / np.linspace(2, 1, count).sum()
        self.core = ROWS * (self.means.T * self.weights) @ self.means
        self.triple = cubes(ROWS * self.weights, self.means)

    def polished(self, seen, weights, **changed):
        said = {
            "core": self.core,
            "triple": self.triple,
            "core_noise": 30.0,
            "triple_noise": 60.0,
            "noise_variance": 0.05,
            "rows": ROWS,
        }
        return polished_means(MeanMoments(**said | changed), seen, weights)

    def beside(self, part):
        rng = np.random.default_rng()
        seen = self.means + part * rng.standard_normal(self.means.shape)
        return seen, self.weights * rng.uniform(1 - part, 1 + part, len(seen))


class Topics:
    """Exact moments of K topics of D words, most of them a topic's own."""

    def __init__(self, count=3, words=12):
        rng = np.random.default_rng()
        own = words // count
        self.topics = rng.uniform(0.02, 0.06, (count, words))
        for k in range(count):
            self.topics[k, k * own : (k + 1) * own] += rng.uniform(0.5, 1.5, own)
        self.topics /= self.topics.sum(axis=1, keepdims=True)
        self.weights = np.linspace(2, 1, count) / np.linspace(2, 1, count).sum()
        self.pair = ROWS * (self.topics.T * self.weights) @ self.topics
        self.basis = np.linalg.eigh(self.pair)[1][:, -count:]
        self.triple = cubes(ROWS * self.weights, self.topics @ self.basis)

    def moments(self, **changed):
        said = {
            "pair": self.pair,
            "basis": self.basis,
            "triple": self.triple,
            "pair_noise": 20.0,
            "triple_noise": 10.0,
            "rows": ROWS,
        }
        return TopicMoments(**{**said, **changed})

    def beside(self, part):
        rng = np.random.default_rng()
        other = rng.dirichlet(np.ones(self.topics.shape[1]), len(self.topics))
        weights = self.weights * rng.uniform(1 - part, 1 + part, len(other))
        return (1 - part) * self.topics + part * other, weights / weights.sum()


@pytest.fixture
def asked(monkeypatch):
    """What was minimised: value and slope, start and limits, and what was found."""
    calls = []
    original = polish._minimum

    def spy(value, start, limits, *most):
        found = original(value, start, limits, *most)
        calls.append(SimpleNamespace(value=value, start=start, limits=limits, found=found))
        return found

    monkeypatch.setattr(polish, "_minimum", spy)
    return calls


def assert_slope_is_right(value, at):
    """Differences of the value agree with the slope, but for a ten thousandth of its length."""
    _, slope = value(at)
    step = 1e-5 * float(np.sqrt(np.mean(at * at)))
    differences = np.empty_like(at)
    for place in range(at.size):
        ahead, behind = at.copy(), at.copy()
        ahead[place] += step
        behind[place] -= step
        differences[place] = (value(ahead)[0] - value(behind)[0]) / (2 * step)
    assert np.linalg.norm(differences - slope) < 1e-4 * np.linalg.norm(slope)


# Means


@pytest.mark.parametrize("count", [1, 2, 5])
def test_slopes_in_means_and_weights(asked, count):
    data = Means(count)
    data.polished(*data.beside(0.2))
    (call,) = asked
    assert_slope_is_right(call.value, call.start)
    rng = np.random.default_rng()
    assert_slope_is_right(call.value, call.start * rng.uniform(0.5, 1.5, call.start.size))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_exact_means_stay_where_they_are(asked, count):
    data = Means(count)
    means, weights = data.polished(data.means, data.weights)
    assert np.allclose(means, data.means, atol=1e-9)
    assert np.allclose(weights, data.weights, atol=1e-9)
    assert asked[0].found.fun < 1e-12


def test_means_beside_the_exact_ones_are_drawn_to_them(asked):
    """From .01 beside them, where the nearest two are .42 apart (from .1: 6 of 500 strayed)."""
    data = Means()
    start, shares = data.beside(0.01)
    means, weights = data.polished(start, shares)
    assert np.all(np.linalg.norm(means - data.means, axis=1) < 3e-3)
    assert np.allclose(weights, data.weights, atol=3e-3)
    assert asked[0].found.fun < 1e-3 * asked[0].value(asked[0].start)[0]


def test_weights_need_not_add_up_to_one():
    data = Means()
    means, weights = data.polished(data.means, 7.0 * data.weights * ROWS)
    assert np.allclose(means, data.means, atol=1e-9)
    assert np.allclose(weights, data.weights, atol=1e-9)


@pytest.mark.parametrize("drowned", ["core", "triple"])
def test_a_moment_under_much_noise_says_little(drowned):
    """With one entry of it far off, the other moment keeps what it alone can tell."""
    data = Means()
    wrong = getattr(data, drowned).copy()
    wrong[(0,) * wrong.ndim] *= 1.5
    trusted = data.polished(data.means, data.weights, **{drowned: wrong})
    ignored = data.polished(data.means, data.weights, **{drowned: wrong, f"{drowned}_noise": 1e9})
    assert np.allclose(ignored[0], data.means, atol=1e-4)
    assert not np.allclose(trusted[0], data.means, atol=1e-3)


@settings(max_examples=times(300))
@given(
    count=st.integers(1, 4),
    core_scale=st.sampled_from([0.0, 1e-6, 1.0, 1e6]),
    triple_scale=st.sampled_from([0.0, 1.0, 1e6]),
    noise=st.sampled_from([1e-6, 1.0, 1e4]),
    rows=st.sampled_from([1.0, 1e3, 1e9]),
    seed=st.integers(0, 2**32),
)
def test_means_of_any_moments_are_finite(count, core_scale, triple_scale, noise, rows, seed):
    """Also where nothing holds a component: its weight would go to zero, its mean to infinity."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((count, count))
    core = core_scale * root @ root.T
    triple = triple_scale * cubes(rng.standard_normal(6), rng.standard_normal((6, count)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moments = MeanMoments(core, triple, noise, noise, 1e-3, rows)
        seen = rng.standard_normal((count, count))
        means, weights = polished_means(moments, seen, rng.uniform(0, 1, count))
    assert np.isfinite(means).all()
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1.0)


# Topics


@pytest.mark.parametrize(("count", "words"), [(1, 5), (2, 6), (4, 4), (3, 12)])
def test_slopes_in_topics_and_weights(asked, count, words):
    data = Topics(count, words)
    polished_topics(data.moments(), *data.beside(0.3))
    assert len(asked) >= 2
    rng = np.random.default_rng()
    for call in asked:  # with the variances of the start, and of what was found
        inside = np.maximum(call.start, 1e-3) * rng.uniform(0.5, 1.5, call.start.size)
        assert_slope_is_right(call.value, inside)


@pytest.mark.parametrize(("count", "words"), [(1, 5), (2, 6), (4, 4), (3, 12)])
def test_exact_topics_stay_where_they_are(count, words):
    """But for the pull towards even topics, which is that of a few documents of 100000."""
    data = Topics(count, words)
    topics, weights = polished_topics(data.moments(), data.topics, data.weights)
    assert np.allclose(topics, data.topics, atol=1e-3)
    assert np.allclose(weights, data.weights, atol=1e-3)


def test_topics_beside_the_exact_ones_are_drawn_to_them(asked):
    data = Topics()
    start, shares = data.beside(0.3)
    topics, weights = polished_topics(data.moments(), start, shares)
    assert np.abs(start - data.topics).max() > 0.01
    assert np.allclose(topics, data.topics, atol=1e-3)
    assert np.allclose(weights, data.weights, atol=1e-3)
    for call in asked:
        assert call.found.fun <= call.value(call.start)[0]


def test_a_topic_that_was_missed_is_looked_for_elsewhere():
    """Two of the starts are the same topic, and the third is nowhere."""
    data = Topics()
    start = data.topics[[0, 1, 1]]
    topics, weights = polished_topics(data.moments(), start, np.array([0.45, 0.45, 0.1]))
    assert matched_error(start, data.topics) > 0.1
    assert matched_error(topics, data.topics) < 1e-2
    assert np.allclose(np.sort(weights), np.sort(data.weights), atol=1e-2)


def test_more_words_a_document_are_less_sampling():
    """Only the weights of entries change: a disturbed pair moment counts for more."""
    short, long = Topics().moments(words=3.0), Topics().moments(words=30.0)
    assert short.pair_sampling == pytest.approx(1 / 3)
    assert short.triple_sampling == pytest.approx(1.0)
    assert long.pair_sampling == pytest.approx(2 / (30 * 29))
    assert long.triple_sampling == pytest.approx(6 / (30 * 29 * 28))


def test_topics_that_are_no_probabilities_are_made_some():
    data = Topics()
    start = np.vstack([2.5 * data.topics[0], np.zeros(12), data.topics[2]])
    topics, weights = polished_topics(data.moments(), start, np.array([0.0, 0.5, 0.5]))
    assert np.allclose(topics.sum(axis=1), 1.0)
    assert weights.sum() == pytest.approx(1.0)


@settings(max_examples=times(200))
@given(
    count=st.integers(1, 3),
    pair=arrays(np.float64, (4, 4), elements=st.floats(-1e4, 1e4, allow_subnormal=False)),
    noise=st.sampled_from([1e-6, 1.0, 1e4]),
    rows=st.sampled_from([1.0, 1e3, 1e9]),
    seed=st.integers(0, 2**32),
)
def test_topics_of_any_moments_are_probabilities(count, pair, noise, rows, seed):
    rng = np.random.default_rng(seed)
    moments = TopicMoments(
        pair=pair + pair.T,
        basis=np.linalg.qr(rng.standard_normal((4, count)))[0],
        triple=cubes(rows * rng.standard_normal(3), rng.standard_normal((3, count))),
        pair_noise=noise,
        triple_noise=noise,
        rows=rows,
    )
    start = np.maximum(rng.standard_normal((count, 4)), 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        topics, weights = polished_topics(moments, start, rng.uniform(0, 1, count))
    assert topics.shape == (count, 4)
    assert (topics >= 0).all()
    assert np.allclose(topics.sum(axis=1), 1.0, atol=1e-9)
    assert (weights > 0).all()
    assert weights.sum() == pytest.approx(1.0)


# Both


def test_nothing_is_drawn_and_nothing_given_is_changed():
    means, topics = Means(), Topics()
    for data, polished, start in (
        (means, means.polished, means.beside(0.1)),
        (topics, lambda *at: polished_topics(topics.moments(), *at), topics.beside(0.3)),
    ):
        arrays_ = [*start, *vars(data).values()]
        before = [each.copy() for each in arrays_]
        state = np.random.get_state()[1].copy()
        first, second = polished(*start), polished(*start)
        assert np.array_equal(first[0], second[0])
        assert np.array_equal(first[1], second[1])
        assert np.array_equal(state, np.random.get_state()[1])
        assert all(np.array_equal(*pair) for pair in zip(arrays_, before, strict=True))


def test_noisy_moments_are_fitted_far_better_than_the_start():
    """Of a start's error 0.16 is left, with a deviation of 0.025 over data sets (simulated): .3 is
    twelve deviations of the mean of five."""
    rng = np.random.default_rng()
    kept = []
    for _ in range(5):
        data = Topics()
        noise = rng.standard_normal(data.pair.shape)
        pair = data.pair + 100.0 * (noise + noise.T) / 2
        start, shares = data.beside(0.2)
        moments = data.moments(pair=pair, pair_noise=100.0)
        topics, _ = polished_topics(moments, start, shares)
        kept.append(matched_error(topics, data.topics) / matched_error(start, data.topics))
    assert np.mean(kept) < 0.3


def sparse_topics(seed=0, count=4, words=200):
    """Topics whose words are mostly next to nothing, and the moment of documents with noise."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(words, 0.1), count)
    pair = ROWS * (topics.T / count) @ topics
    noise = 30.0 * rng.standard_normal(pair.shape)
    return topics, pair, (noise + noise.T) / 2


def stepped(pair, topics):
    count = len(topics)
    given = TopicMoments(pair, np.zeros((len(pair), 1)), np.zeros((1, 1, 1)), 1.0, 1.0, ROWS)
    return stepped_topics(given, topics, np.full(count, 1.0 / count))


def test_true_topics_stay_where_the_moment_is_exact():
    topics, pair, _ = sparse_topics()
    assert np.allclose(stepped(pair, topics), topics, atol=1e-12)


def test_a_step_leaves_less_of_the_noise_than_what_is_not_negative():
    """Fixed draws: .85 times and less the error of the same, cut off at zero, in each of eight."""
    for seed in range(8):
        topics, pair, noise = sparse_topics(seed)
        found = stepped(pair + noise, topics)
        assert np.allclose(found.sum(axis=1), 1.0)
        assert found.min() >= 0
        parts = ROWS / len(topics) * topics
        linear = np.maximum(np.linalg.solve(parts @ parts.T, parts @ (pair + noise)), 0.0)
        linear /= linear.sum(axis=1, keepdims=True)
        assert np.abs(found - topics).sum() < 0.85 * np.abs(linear - topics).sum()


def test_topics_that_the_moment_does_not_hold_stay_as_they_were():
    topics, pair, _ = sparse_topics()
    assert np.array_equal(stepped(0.1 * pair, topics), topics)
    assert np.array_equal(stepped(np.zeros_like(pair), topics), topics)
    twice = np.vstack([topics, topics[:1]])  # one of them is there twice: no inverse
    assert np.allclose(stepped(pair, twice).sum(axis=1), 1.0)
