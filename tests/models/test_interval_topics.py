"""Intervals of topics hold those of a fit without noise, and say where they cannot.

Seeds are fixed. Errors of one topic's words are not independent: those of topics of different fits
are, so that bounds are six standard errors of the fits' own parts.
"""

import json
import time

import numpy as np
import pytest
from benchmarks.interval_topics import topic_truths

from eigenveil import FederatedTopicModel, PrivateTopicModel
from eigenveil.models.topics import intervals as released
from soak_tools import SOAK

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
pytestmark = pytest.mark.filterwarnings("ignore::eigenveil.NoisyResultWarning")


def documents(count=10_000, features=25, words=12, topics=3):
    rng = np.random.default_rng(1)
    themes = rng.dirichlet(np.full(features, 0.15), topics)
    found = [rng.multinomial(words, themes[own]) for own in rng.integers(topics, size=count)]
    return np.array(found, dtype=np.float64)


def test_they_hold_the_topics_of_a_fit_without_noise():
    counts, parts, squares = documents(), [], []
    for seed in range(16 if SOAK >= 1 else 8):
        model = PrivateTopicModel(3, random_state=seed, **BUDGET).fit(counts)
        found = model.intervals()
        for name, true in topic_truths(model, counts):
            each = found[name]
            if name == "word":
                assert each.shown.sum() > 12
                parts.append(np.mean(((each.lower <= true) & (true <= each.upper))[each.shown]))
                off = (true - each.estimate) / (each.upper - each.lower)
                squares.append(np.mean(off[each.shown] ** 2) * 3.92**2)
    spread = 6.0 * np.std(parts) / np.sqrt(len(parts))
    assert abs(np.mean(parts) - 0.95) < max(spread, 0.02)
    # as wide as they need be: the errors have the deviations that are said
    assert abs(np.mean(squares) - 1.0) < 6.0 * np.std(squares) / np.sqrt(len(squares))
    assert np.std(squares) < 1.0


def test_they_follow_from_the_saved_result_alone_in_little_time(tmp_path):
    model = PrivateTopicModel(3, random_state=0, **BUDGET).fit(documents())
    start = time.process_time()
    found = model.intervals()
    assert time.process_time() - start < 2.0
    model.save(tmp_path / "model.npz")
    again = PrivateTopicModel.load(tmp_path / "model.npz").intervals()
    assert json.dumps(again.as_dict()) == json.dumps(found.as_dict())
    assert (found["weight"].upper - found["weight"].lower > 0).all()
    assert found["word"].axes == ("topic", "word")
    assert released.SMALL in found["word"].not_shown()


def test_sites_have_them_too():
    counts = documents()
    sites = {str(place): part for place, part in enumerate(np.array_split(counts, 3))}
    for more in ({}, {"dropouts": 1}):
        found = FederatedTopicModel(3, random_state=0, **BUDGET, **more).fit(sites).intervals()
        assert found["word"].shown.sum() > 12


@pytest.mark.parametrize(
    ("options", "count", "reason"),
    [
        ({"alpha0": 1.0}, 10_000, released.MIXED),
        ({"sketch_size": 12, "pair": "sketch"}, 10_000, released.SKETCHED),
        ({"epsilon": 0.02, "random_state": 1}, 300, released.ENDED),
    ],
)
def test_why_there_are_none(options, count, reason):
    options = {"random_state": 0} | BUDGET | options
    model = PrivateTopicModel(3, **options).fit(documents(count))
    assert model.intervals()["word"].why(0, 0) == reason


def test_of_the_population_nothing_is_shown_nor_of_what_noise_moves_far():
    model = PrivateTopicModel(3, random_state=0, **BUDGET).fit(documents())
    assert model.intervals(of="population")["weight"].why(0) == released.OF_DOCUMENTS
    weak = PrivateTopicModel(3, random_state=0, epsilon=0.5, delta=1e-5).fit(documents(1500))
    reasons = weak.intervals()["word"].not_shown()
    assert {released.ROUGH, released.NOT_USABLE} & reasons.keys()
