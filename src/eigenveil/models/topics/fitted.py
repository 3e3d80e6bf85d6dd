"""Topics of released moments (post-processing)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.tensor import multilinear
from eigenveil.models.rounds import Factors
from eigenveil.models.tensors.polish import (
    TopicMoments,
    on_simplex,
    polished_topics,
    stepped_topics,
    triples_off,
)
from eigenveil.models.tensors.whitening import (
    NO_COMPONENT,
    REPEATS,
    PairMoment,
    Recovered,
    recover,
    shortfall,
    usable,
)
from eigenveil.models.topics.dirichlet import Frequencies, clipped_alike, frequencies, of_one_topic
from eigenveil.models.topics.plan import NO_TOPICS, TopicPlan
from eigenveil.moments.release import Release
from eigenveil.privacy.statistics import tensor_size

# A topic is left out whose part of the pair moment is less than this of what noise alone shows.
_LEFT = 0.5

# Whitened, noise may be this part of a component's eigenvalue.
_DROWNED = 0.5

# Deviations of noise that about one in a hundred values exceeds.
_AT_MOST = 2.33

# Deviations of noise by which a sum is clearly another.
_CLEARLY = 4.0

# Values of alpha0 that are tried where it is to be found.
_ALPHA0 = (0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 25.0, 50.0)

# Half the weighted squares of a triple moment's entries, one half each where noise is all there is,
# are no reason to refuse topics up to so much an entry; beyond, if they are so many times what a
# smaller alpha0 leaves.
_OFF_ANYWAY, _FAR_MORE = 2.0, 3.0


@dataclass(frozen=True)
class TopicFactors(Factors):
    """The result: everything in it is computed from releases."""

    topics: NDArray[np.float64]  # Probabilities of the words, a row a topic
    # Shares of the documents, or of their words where these are of several topics; they add up to
    # 1, the largest first
    weights: NDArray[np.float64]
    # Of the Dirichlet law of a document's topics: `alpha0`, as it was given or found, times the
    # weights; 0 where a document has one topic
    concentration: NDArray[np.float64]
    # Leading eigenvalues of the pair moment (singular values of a sketch)
    strengths: NDArray[np.float64]
    noise_floor: float  # What of these noise alone would show
    # Which topics can be distinguished from the others in spite of the noise
    usable: NDArray[np.bool_]
    converged: bool
    # Why the fit ended before it had spent everything: nothing was found, and the one topic, the
    # released frequencies of the words, stands in
    stopped: str | None = None
    advice: str = ""  # What would do, where a topic is missing or not usable


@dataclass(frozen=True)
class Triples:
    """A released triple moment through the pair moment's basis, its noise, clip and documents."""

    values: NDArray[np.float64]
    noise: float
    clip: float
    rows: float | None


@dataclass(frozen=True)
class TopicReleases:
    """What topics are made of; the pair moment's leading part only where something stands out."""

    pairs: ReleasedMoment
    pair: PairMoment | None = None
    triples: Triples | None = None
    alpha0: float = 0.0


def _corrected(
    plan: TopicPlan, pairs: ReleasedMoment, pair: PairMoment, triples: Triples, alpha0: float
) -> tuple[PairMoment, NDArray[np.float64], float, float | None]:
    """Both moments as documents of one topic would have them, the triples' noise, and documents."""
    seen, rows, noise = triples.values, triples.rows, triples.noise
    if pairs.known is not None:
        pair, seen, factor = of_one_topic(pair, seen, pairs.known, alpha0)
        return pair, seen, factor * noise, pairs.known.rows
    if triples.clip < 1.0:
        # what clipping took off would count as more rows of shorter components: with less noise
        factor = clipped_alike(pair, seen)
        seen, noise = factor * seen, factor * noise
    return pair, seen, noise, _documents(pairs, rows) if plan.pair == "full" else rows


def _joint(
    pairs: ReleasedMoment,
    pair: PairMoment,
    seen: NDArray[np.float64],
    noise: float,
    rows: float | None,
    alpha0: float,
) -> TopicMoments:
    """What is fitted once more, all topics together."""
    return TopicMoments(
        pair=_of_one_topic(pairs, pair.basis, alpha0),
        basis=pair.basis,
        triple=seen,
        pair_noise=pair.deviation,
        triple_noise=noise,
        rows=rows or max(1.0, float(np.sum(pairs.values))),
        words=_words(pairs.square),
    )


def joint_moments(plan: TopicPlan, found: TopicReleases) -> TopicMoments:
    """What topics of a whole pair moment were fitted to in the end."""
    assert found.pair is not None
    assert found.triples is not None
    pairs, alpha0 = found.pairs, found.alpha0
    pair, seen, noise, rows = _corrected(plan, pairs, found.pair, found.triples, alpha0)
    pair, seen = _without_weak(pair, seen, noise, rows)
    return _joint(pairs, pair, seen, noise, rows, alpha0)


def found_alpha0(
    plan: TopicPlan, pairs: ReleasedMoment, pair: PairMoment, triples: Triples
) -> float:
    """The largest alpha0 that both moments allow.

    With one too small, mixtures of topics are taken for topics and fit as well; with one too large
    no topics fit the triple moment, which then is far more off than before. Where that happens with
    none, noise hides what would tell, and it is the usual one.
    """
    least, chosen = math.inf, _ALPHA0[0]
    for alpha0 in _ALPHA0:
        corrected, seen, noise, rows = _corrected(plan, pairs, pair, triples, alpha0)
        corrected, seen = _without_weak(corrected, seen, noise, rows)
        found = recover(corrected, seen, rows=rows)
        topics, weights, _ = _as_probabilities(found, corrected, sparse=False)
        joint = _joint(pairs, corrected, seen, noise, rows, alpha0)
        off = triples_off(joint, topics, weights)
        least = min(least, off)
        if off > max(_OFF_ANYWAY * tensor_size(weights.size), _FAR_MORE * least):
            return chosen
        chosen = alpha0
    return plan.alpha0


def fitted(
    plan: TopicPlan,
    pairs: ReleasedMoment,
    pair: PairMoment,
    triples: Triples,
    alpha0: float,
    *,
    keep_all: bool,
) -> TopicFactors:
    """The topics that the released moments have with this alpha0."""
    pair, seen, triple_noise, rows = _corrected(plan, pairs, pair, triples, alpha0)
    if not keep_all:
        pair, seen = _without_weak(pair, seen, triple_noise, rows)
    found = recover(pair, seen, rows=rows)
    topics, weights, order = _as_probabilities(found, pair, sparse=plan.pair == "sketch")
    can_be_used = usable(
        pair, found, triple_noise=triple_noise, repeats=0 if keep_all else REPEATS
    )[order]
    if plan.pair == "full":
        joint = _joint(pairs, pair, seen, triple_noise, rows, alpha0)
        topics, weights = polished_topics(joint, topics, weights)
        if alpha0 > 0:
            # here the noise is most of the error; of documents of one topic sampling is
            topics = stepped_topics(joint, topics, weights)
        order = np.argsort(-weights, kind="stable")
        topics, weights, can_be_used = topics[order], weights[order], can_be_used[order]
    if not keep_all and rows is not None:
        gain = 1.0 if pairs.test is None else math.sqrt(plan.sketch_columns)
        floor = (alpha0 + 1.0) * pair.floor / gain
        left = _left(topics, weights, rows) > _LEFT * floor
        topics, weights, can_be_used = topics[left], weights[left], can_be_used[left]
        weights = weights / float(np.sum(weights))
    return TopicFactors(
        topics=topics,
        weights=weights,
        concentration=alpha0 * weights,
        strengths=pair.strengths,
        noise_floor=pair.floor,
        usable=can_be_used,
        converged=found.converged,
        advice=shortfall(plan, can_be_used),
    )


def _left(
    topics: NDArray[np.float64], weights: NDArray[np.float64], rows: float
) -> NDArray[np.float64]:
    """What each topic makes of the pair moment; the most in any case counts as infinite.

    The fit of both moments may leave next to nothing of one that noise alone had made.
    """
    parts = rows * weights * np.sum(topics**2, axis=1)
    return np.asarray(np.where(parts == parts.max(), np.inf, parts))


def _documents(pairs: ReleasedMoment, rows: float | None) -> float:
    """How many documents a pair moment adds up: all, but for what has no pairs or was clipped.

    Every document's pairs add up to 1.
    """
    size = pairs.values.shape[0]
    mass = max(1.0, float(np.sum(pairs.values)))
    clear = _CLEARLY * size * pairs.noise.deviation(size)
    return mass if rows is None or (abs(mass - rows) > clear and mass > clear) else rows


def _of_one_topic(
    pairs: ReleasedMoment, basis: NDArray[np.float64], alpha0: float
) -> NDArray[np.float64]:
    """The pair moment D x D, of documents of one topic each."""
    if pairs.known is None:
        return pairs.values
    mean = basis @ (pairs.known.shares @ basis)
    known = alpha0 * pairs.known.rows * np.outer(mean, mean)
    return np.asarray((alpha0 + 1.0) * pairs.values - known)


def without_topics(plan: TopicPlan, pairs: ReleasedMoment) -> TopicFactors:
    """What is left where no topic stands above the noise: how frequent words are, where known."""
    size = pairs.values.shape[0]
    shares = np.ones(size)
    if pairs.known is not None:
        shares = np.maximum(pairs.known.shares, 0.0)
    elif pairs.test is None:
        shares = np.maximum(pairs.values.sum(axis=1), 0.0)
    total = float(np.sum(shares))
    topic = shares / total if total > 0 else np.full(size, 1.0 / size)
    return TopicFactors(
        topics=topic[None],
        weights=np.ones(1),
        concentration=np.full(1, plan.alpha0),
        strengths=np.zeros(1),
        noise_floor=0.0,
        usable=np.zeros(1, dtype=bool),
        converged=True,
        stopped=NO_TOPICS,
        advice=NO_COMPONENT,
    )


class ReleasedMoment:
    """A released moment in documents: the units in which it was released are taken out.

    ``square`` is the mean squared norm of a document's part, ``test`` the public matrix that a
    sketch was multiplied by, and ``known`` what was released beside it.
    """

    def __init__(
        self,
        release: Release,
        unit: float,
        *,
        square: float = 0.0,
        test: NDArray[np.float64] | None = None,
        shares: tuple[Release, float] | None = None,
    ) -> None:
        self.values = release.values * unit
        noise = release.record.noise
        self.noise = noise.model_copy(update={"scale": noise.scale * unit})
        self.square, self.test = square, test
        self.known: Frequencies | None = None
        if shares is not None:
            of_shares, unit = shares
            error = of_shares.record.noise.deviation(self.values.shape[0]) * unit
            self.known = frequencies(of_shares.values * unit, error, self.values, test)


def _without_weak(
    pair: PairMoment, triple: NDArray[np.float64], noise: float, rows: float | None
) -> tuple[PairMoment, NDArray[np.float64]]:
    """Both moments in the directions that whitening does not drown in the triple moment's noise.

    Whitening divides that of a direction by its energy's power 3/2. Where it is then as large as
    what components have, all of them come out wrong, and not only one more. What is left out still
    tells components apart, and counts as hidden.
    """
    energies, turn = np.linalg.eigh(pair.core)
    if rows is None:
        return pair, triple
    least = (noise * math.sqrt(rows / energies.size) / _DROWNED) ** (2 / 3)
    kept = energies >= min(least, energies[-1])
    if kept.all():
        return pair, triple
    turn = turn[:, kept]
    core = np.diag(energies[kept])
    left_out = float(energies[~kept].max()) + _AT_MOST * pair.deviation
    pair = replace(pair, basis=pair.basis @ turn, core=core, hidden=max(pair.hidden, left_out))
    return pair, multilinear(triple, turn)


def _words(square: float) -> float:
    """Length of documents of different words whose pairs have this mean squared norm."""
    return max(3.0, 0.5 + math.sqrt(0.25 + 1.0 / max(square, 1e-12)))


def _as_probabilities(
    found: Recovered, pair: PairMoment, *, sparse: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Topics as probability vectors, their shares of the documents, and where they were found.

    A topic's entries add up to 1, which gives its length without the triple moment's eigenvalue
    and, with the pair moment, its share. Where there are many more words than a topic has
    (``sparse``), what noise adds to all others is taken off by projecting onto the probabilities;
    otherwise what is negative becomes 0, as in paper 001.
    """
    directions = found.seen @ pair.basis.T
    lengths = directions.sum(axis=1)
    if sparse:
        scaled = directions / np.where(lengths > 0, lengths, 1.0)[:, None]
        directions = np.where((lengths > 0)[:, None], on_simplex(scaled), directions)
    topics = np.maximum(directions, 0.0)
    sums = topics.sum(axis=1)
    uniform = np.full(topics.shape[1], 1.0 / topics.shape[1])
    topics = np.where(sums[:, None] > 0, topics / np.where(sums > 0, sums, 1.0)[:, None], uniform)
    shares = np.where(lengths > 0, lengths**2, 1.0) * found.counts
    order = np.argsort(-shares, kind="stable")
    return topics[order], shares[order] / float(np.sum(shares)), order
