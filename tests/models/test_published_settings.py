"""The estimators in the settings of paper 001's figures 3 to 5, beside the authors' own curves.

Ours protect a changed row, as theirs claim to; what theirs really protect is said in
published/orthogonal.py. Theirs are means of ten runs on one data set (with the rows of one site
only, test_orthogonal.py), ours medians over data sets. Noise is secure.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from eigenveil import PrivateGaussianMixture, PrivateTopicModel
from eigenveil_papers import reproduction
from eigenveil_papers.published.data import published_mixture, published_topics
from eigenveil_papers.reproduction.paper001_tensor_panels import component_error

REFERENCE = Path(reproduction.__file__).with_name("authors.json")
DELTA = 0.01


def published(figure, method, epsilon):
    content = json.loads(REFERENCE.read_text())["component_error"][figure]
    assert content["delta"] == DELTA
    return content[method][content["values"].index(epsilon)]


def asked(epsilon):
    return {"epsilon": epsilon, "delta": DELTA, "adjacency": "replace-one"}


def mixture_error(size, count, rows, epsilon, rng):
    mixture = published_mixture(size, count, rng)
    model = PrivateGaussianMixture(count, **asked(epsilon)).fit(mixture.rows(rows, rng))
    directions = model.means_ / np.linalg.norm(model.means_, axis=1, keepdims=True)
    return component_error(directions, mixture.means)


def topic_error(size, count, rows, epsilon, rng):
    topics = published_topics(size, count, rng)
    words = topics.documents(rows, rng)
    ones, places = np.ones(words.size), np.repeat(np.arange(rows), 3)
    shape = (rows, size)
    counts = scipy.sparse.coo_array((ones, (places, words.ravel())), shape=shape).tocsr()
    model = PrivateTopicModel(count, **asked(epsilon)).fit(counts)
    return component_error(model.topics_, topics.distributions)


@pytest.mark.parametrize(
    ("error", "figure", "size", "count", "epsilon"),
    [
        (mixture_error, "MOG_vs_epsilon_K_5_D_10_N_100k", 10, 5, 0.1),
        (mixture_error, "MOG_vs_epsilon_K_5_D_10_N_100k", 10, 5, 1.0),
        (mixture_error, "MOG_vs_epsilon_K_10_D_50_N_100k", 50, 10, 1.0),
        (topic_error, "STM_vs_epsilon_K_10_D_50_N_100k", 50, 10, 1.0),
    ],
)
@pytest.mark.thorough
def test_the_error_is_less_than_half_the_published_one(error, figure, size, count, epsilon):
    """Medians 0.05, 0.02, 0.11 and 0.03, largest of 16 to 60 data sets 0.12, 0.03, 0.15 and 0.04.

    Halves of theirs are 0.34, 0.05, 0.29 and 0.09: none of ours came near. A mixture of five that
    misses a component is off by 0.3; three of five data sets would have to be beyond the half.
    """
    rng = np.random.default_rng()
    ours = np.median([error(size, count, 100_000, epsilon, rng) for _ in range(5)])
    assert ours < published(figure, "capeAGN", epsilon) / 2
