"""Intervals of topics: the noise of both moments through the last fit of them, to first order.

What is held are the topics that the same fit makes of the moments without their noise.
Probabilities cannot be negative, so that noise adds to words that it hides, and all others are less
for it: what it adds on average is put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from eigenveil.models.driver import drive
from eigenveil.models.intervals.bars import Array, Bars, Flags, Kind, Quantity, deviations
from eigenveil.models.intervals.recorded import sharing_of
from eigenveil.models.intervals.replayed import replayed
from eigenveil.models.result import Result
from eigenveil.models.rounds import RoundState
from eigenveil.models.tensors.polish import TopicDistance, TopicMoments
from eigenveil.models.topics.fitted import joint_moments
from eigenveil.models.topics.plan import TopicPlan
from eigenveil.models.topics.rounds import released_moments

MIXED = "documents are of several topics, which words' frequencies tell apart"
SKETCHED = "topics of a sketch are not fitted to both moments"
ENDED = "no topic was found"
MANY = "of more than 2,000 probabilities none is worked out"
LEFT_OUT = "a topic was left out in the end"
NOT_USABLE = "the topic is not told apart from others or from noise"
ROUGH = "noise moves more than a quarter of the topic's words"
SMALL = "the probability is within four standard errors of zero"
OF_DOCUMENTS = "how far documents vary is not released"
# Probabilities in all that are worked out, and how far above zero one is that is shown.
_MOST, _SURE = 2000, 4.0
# Noise is small enough for the first order where all errors of a topic's words are no more than
# this together. And what noise adds to hidden words, of what the released probabilities say it is:
# these hold it already (measured: docs/intervals.md).
_ROUGH, _ADDED = 0.25, 0.5


@dataclass(frozen=True)
class NoisyTopics:
    """Topics, and how far noise moves them: standard errors of weights (K,) and of words (K, D)."""

    topics: Array
    weights: Array
    usable: Flags
    of_weights: Array
    of_words: Array

    @property
    def clear(self) -> Flags:
        return np.asarray(self.topics > _SURE * self.of_words)

    @property
    def unbiased(self) -> Array:
        """Without what noise adds to words that it hides: part of ``E max(0, t + e z) - t``."""
        errors = np.maximum(self.of_words, 1e-300)
        away = self.topics / errors
        density = np.exp(-0.5 * away**2) / np.sqrt(2.0 * np.pi)
        added = np.where(self.clear, 0.0, errors * (density - away * ndtr(-away)))
        return np.asarray(self.topics * (1.0 + _ADDED * np.sum(added, axis=1)[:, None]))


def topics_of(result: Result) -> NoisyTopics | str:
    """What is known of topics; or why it is not."""
    plan, factors = result.plan, result.factors
    assert isinstance(plan, TopicPlan)
    for reason, holds in {
        ENDED: bool(factors.stopped),
        SKETCHED: plan.pair != "full",
        MIXED: plan.alpha0 > 0,
        MANY: factors.topics.size > _MOST,
    }.items():
        if holds:
            return reason
    again = replayed(result)
    if isinstance(again, str):
        return again
    state = RoundState(plan, sharing=sharing_of(result))
    moments = joint_moments(plan, drive(released_moments(state), again))
    if moments.basis.shape[1] != factors.weights.size:
        return LEFT_OUT
    of_weights, of_words = _errors(moments, factors.topics, factors.weights)
    return NoisyTopics(factors.topics, factors.weights, factors.usable, of_weights, of_words)


def _errors(moments: TopicMoments, topics: Array, weights: Array) -> tuple[Array, Array]:
    """Standard errors of weights and probabilities, from the fit's slopes (Gauss and Newton)."""
    fit, rows = TopicDistance(moments, topics, weights), moments.rows
    count, size = topics.shape
    slopes, of_triples = _of_triples(fit, rows, topics), fit.of_triples.ravel()
    bend = rows**2 * _of_pairs(fit.of_pairs, topics) + (slopes.T * of_triples) @ slopes
    pushed = (moments.pair_noise * rows) ** 2 * _of_pairs(fit.of_pairs**2, topics)
    pushed += moments.triple_noise**2 * (slopes.T * of_triples**2) @ slopes
    bend += rows  # weights add up to 1
    turns = [
        (np.eye(size) - topic[:, None]) / weight
        for topic, weight in zip(topics, weights, strict=True)
    ]
    for k, turn in enumerate(turns):
        own = slice(k * size, (k + 1) * size)
        bend[own, own] += fit.pull * turn.T @ turn
    inverse = np.linalg.inv(bend)
    found = (inverse @ pushed @ inverse).reshape(count, size, count, size)
    words = [np.einsum("wi,ij,wj->w", turn, found[k, :, k], turn) for k, turn in enumerate(turns)]
    # weights add up to 1, whatever all joint probabilities together are
    turn = np.eye(count) - weights[:, None]
    whole = np.einsum("ki,ij,kj->k", turn, found.sum(axis=(1, 3)), turn)
    return np.sqrt(np.maximum(whole, 0.0)), np.sqrt(np.maximum(np.array(words), 0.0))


def _of_pairs(weighting: Array, topics: Array) -> Array:
    """Products of the pair moment's slopes in all joint probabilities, over the rows squared.

    The moment of joint probabilities q_k with sums s_k is ``sum q_k q_k' / s_k``, whose slope in
    word i of topic k is ``e_i t_k' + t_k e_i' - t_k t_k'``.
    """
    count, size = topics.shape
    through = np.einsum("im,km,lm->kli", weighting, topics, topics)
    found = np.zeros((count, size, count, size))
    for k, one in enumerate(topics):
        for j, other in enumerate(topics):
            block = np.diag(through[k, j]) + weighting * np.outer(other, one)
            block -= (other * through[k, j])[:, None] + (one * through[j, k])[None]
            found[k, :, j] = 2.0 * block + float((one * other) @ weighting @ (one * other))
    return found.reshape(count * size, count * size)


def _of_triples(fit: TopicDistance, rows: float, topics: Array) -> Array:
    """Slopes of the triple moment's entries in all joint probabilities, (R^3, K D)."""
    seen, found = topics @ fit.basis, []
    for one in seen:
        first = np.einsum("ia,b,c->iabc", fit.basis, one, one)
        cube = np.einsum("a,b,c->abc", one, one, one)
        all_three = first + first.transpose(0, 2, 1, 3) + first.transpose(0, 2, 3, 1)
        found.append(rows * (all_three - 2.0 * cube).reshape(topics.shape[1], -1).T)
    return np.concatenate(found, axis=1)


def of_topics(result: Result, level: float, of: Kind) -> Iterator[Quantity]:
    """All that topics have intervals of."""
    width, (count, size) = deviations(level), result.factors.topics.shape
    facts: NoisyTopics | str = OF_DOCUMENTS if of == "population" else topics_of(result)
    topics = tuple(str(number) for number in range(1, count + 1))
    words = result.labels
    if isinstance(facts, str):
        weights, found = Bars.none((count,), facts), Bars.none((count, size), facts)
    else:
        hidden = ~facts.usable
        weights = Bars.about(facts.weights, width * facts.of_weights, within=(0.0, 1.0))
        rough = facts.of_words.sum(axis=1) > _ROUGH
        weights = weights.but(hidden, NOT_USABLE).but(rough, ROUGH)
        found = Bars.about(facts.unbiased, width * facts.of_words, within=(0.0, 1.0))
        found = found.but(np.broadcast_to(hidden[:, None], (count, size)), NOT_USABLE)
        found = found.but(np.broadcast_to(rough[:, None], (count, size)), ROUGH)
        found = found.but(~facts.clear, SMALL)
    about = "of the topics that the same fit makes of both moments without their noise"
    yield Quantity("weight", f"weights {about}", ("topic",), (topics,), weights)
    about = f"probabilities {about}"
    yield Quantity("word", about, ("topic", "word"), (topics, words), found)
