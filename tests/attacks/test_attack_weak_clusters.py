"""Clusters and topics that noise made, called usable.

A component was usable where the pair moment showed enough directions; the noise of the triple
moment, which says where the components lie, did not count. With few rows every second fit of a
mixture called a mean usable that lay nearer to nothing than half of the way between two clusters.

Then topics' weak directions were left out before the noise of the triple moment was looked at: the
mean of all topics, which nothing was left to tell apart, was usable in 19 of 20 fits.

That is wanted of at most 1 fit in 100; 20 such fits have 8 or more with chance 1e-11.
"""

import warnings

import numpy as np
import pytest

from eigenveil import (
    FederatedGaussianMixture,
    NoisyResultWarning,
    PrivateGaussianMixture,
    PrivateTopicModel,
)
from eigenveil.models.tensors import whitening

FITS, MOST = 20, 7


def clusters(rows, apart):
    rng = np.random.default_rng(0)
    means = np.linalg.qr(rng.standard_normal((20, 20)))[0][:4] * apart / np.sqrt(2)
    return means[rng.integers(4, size=rows)] + rng.standard_normal((rows, 20)), means


def documents(rows, words):
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(30, 0.05), 4)
    drawn = [rng.multinomial(words, topics[k]) for k in rng.integers(4, size=rows)]
    return np.array(drawn, dtype=float), topics


def errs(found, usable, true, norm):
    def apart(a, b):
        return np.linalg.norm(a[:, None] - b[None], ord=norm, axis=2)

    between = apart(true, true) + np.diag(np.full(len(true), np.inf))
    return bool(np.any(usable & (apart(found, true).min(axis=1) > between.min() / 2)))


def fits_that_err(model, rows, true, given=None, fits=FITS):
    topics = isinstance(model, PrivateTopicModel)
    wrong = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyResultWarning)
        for _ in range(fits):
            model.fit(rows if given is None else given)
            found = model.topics_ if topics else model.means_
            wrong += errs(found, model.usable_, true, 1 if topics else 2)
    return wrong


@pytest.mark.parametrize(("rows", "apart", "epsilon"), [(300, 6, 1.0), (2000, 4, 0.3)])
def test_what_is_usable_of_a_mixture_is_a_cluster(rows, apart, epsilon):
    table, means = clusters(rows, apart)
    assert fits_that_err(PrivateGaussianMixture(4, epsilon=epsilon), table, means) <= MOST


@pytest.mark.thorough
def test_likewise_where_more_are_asked_for_than_there_are():
    table, means = clusters(5000, 6)
    assert fits_that_err(PrivateGaussianMixture(6, epsilon=1.0), table, means) <= MOST


@pytest.mark.parametrize(("rows", "words", "epsilon"), [(300, 20, 1.0), (2000, 5, 0.3)])
def test_what_is_usable_of_topics_is_one(rows, words, epsilon):
    table, topics = documents(rows, words)
    assert fits_that_err(PrivateTopicModel(4, epsilon=epsilon), table, topics) <= MOST


def test_likewise_of_many_sites():
    """6 of 8 such fits err with chance 3e-11."""
    table, means = clusters(2000, 4)
    model = FederatedGaussianMixture(4, epsilon=0.3)
    assert fits_that_err(model, table, means, np.array_split(table, 3), fits=8) < 6


@pytest.mark.thorough
def test_the_pair_moment_alone_would_be_found(monkeypatch):
    """Nearly half of such fits err (112 of 240): of 120 no more than 20 do with chance 5e-12."""
    for name in ("_found_again", "_of_one"):
        monkeypatch.setattr(
            whitening, name, lambda pair, found, *_: np.ones(found.counts.size, dtype=bool)
        )
    table, means = clusters(2000, 4)
    assert fits_that_err(PrivateGaussianMixture(4, epsilon=0.3), table, means, fits=120) > 20


@pytest.mark.parametrize("model", [PrivateGaussianMixture(4, epsilon=1.0), PrivateTopicModel(4)])
def test_clear_components_stay_usable(model):
    """All four; of 363 and 385 such fits none missed one. Five of six do with chance 3e-10."""
    table, _ = (
        documents(20_000, 20) if isinstance(model, PrivateTopicModel) else clusters(20_000, 6)
    )
    assert sum(model.fit(table).usable_.sum() == 4 for _ in range(6)) >= 2
