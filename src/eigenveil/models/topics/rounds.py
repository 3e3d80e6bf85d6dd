"""A private topic model as a generator of rounds: pair moment, triple moment.

A document's contributions are bounded whatever its length; but only one that repeats a single word
reaches the bound, and one of a hundred different words stays a hundred times below it. So how far
they reach is released first, and contributions are clipped there: the noise is that of what real
documents contribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.tensor import multilinear
from eigenveil.models.plan import Step
from eigenveil.models.rounds import Answers, Factors, Round, RoundState
from eigenveil.models.shapes import SMALLEST_CLIP
from eigenveil.models.tensors.polish import TopicMoments, polished_topics, triples_off
from eigenveil.models.tensors.whitening import (
    NO_COMPONENT,
    REPEATS,
    Bulk,
    PairMoment,
    Recovered,
    full_pair,
    leading_part,
    recover,
    shortfall,
    sketched_pair,
    usable,
)
from eigenveil.models.topics.dirichlet import Frequencies, clipped_alike, frequencies, of_one_topic
from eigenveil.models.topics.plan import NO_TOPICS, TopicPlan
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import ClippedSum, DocumentNorms, WordShares
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.histograms import BINS, bin_upper_edges
from eigenveil.moments.release import Release
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.releases import Sharing
from eigenveil.privacy.statistics import tensor_size

# Contributions above one of these quantiles of their norms are clipped, if that takes off half or
# more.
_QUANTILES, _WORTH_IT = np.append(np.arange(0.3, 0.99, 0.05), [0.97, 0.99]), 0.5
# What reaches less is a document without words.
_NOTHING = SMALLEST_CLIP / 16.0
# A topic is left out whose part of the pair moment is less than this of what noise alone shows.
_LEFT = 0.5
# Whitened, noise may be this part of a component's eigenvalue.
_DROWNED = 0.5
# Deviations of noise that about one in a hundred values exceeds.
_AT_MOST = 2.33
# The largest value of a symmetric noise tensor of three modes, over the root of its rows.
_TENSOR_EDGE = 2.0
# Deviations of noise by which a sum is clearly another.
_CLEARLY = 4.0
# Values of alpha0 that are tried where it is to be found.
_ALPHA0 = (0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 25.0, 50.0)
# Half the weighted squares of a triple moment's entries, one half each where noise is all there is,
# are no reason to refuse topics up to so much an entry; beyond, if they are so many times what a
# smaller alpha0 leaves.
_OFF_ANYWAY, _FAR_MORE = 2.0, 3.0
# Mean squared norm of the pairs of documents of three different words.
_OF_THREE_WORDS = 1.0 / 6.0

_State = RoundState[TopicPlan]


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


def private_topics(
    plan: TopicPlan,
    *,
    public_center: None = None,
    budgets: Mapping[Step, StepBudget] | None = None,
    sharing: Mapping[Step, Sharing] | None = None,
    keep_all: bool = False,
) -> Generator[Round, Answers, TopicFactors]:
    """The rounds of a fit; ``keep_all`` takes all topics, below the noise as well: for forecasts.

    Where fewer topics stand above the noise the result has fewer; where none does, the fit ends
    early and leaves the rest of its budget unspent. Counts are whole numbers about no centre:
    ``public_center`` is as of the other tasks and changes nothing.
    """
    del public_center
    state = _State(plan, dict(budgets or {}), dict(sharing or {}))
    pairs = yield from _pairs(state)
    pair = _leading(plan, pairs, keep_all=keep_all)
    if pair is None:
        return _without_topics(plan, pairs)
    whole = DocumentTriples(pair.basis, weighted=plan.weighted)
    error = partial(_off_triples, state, whole, pair)
    clip, _ = yield from _clip(state, "norms of triples", whole, error)
    triples = DocumentTriples(pair.basis, clip=clip, weighted=plan.weighted)
    answers = yield (state.query("triple moment", triples),)
    triple = _Moment(answers["triple moment"], triples.unit)
    seen = _Triples(triple.values, triple.noise.deviation(pair.core.shape[0]), clip, state.rows)
    alpha0 = _found_alpha0(plan, pairs, pair, seen) if plan.auto_alpha0 else plan.alpha0
    return _fitted(plan, pairs, pair, seen, alpha0, keep_all=keep_all)


@dataclass(frozen=True)
class _Triples:
    """A released triple moment through the pair moment's basis, its noise, clip and documents."""

    values: NDArray[np.float64]
    noise: float
    clip: float
    rows: float | None


def _corrected(
    plan: TopicPlan, pairs: _Moment, pair: PairMoment, triples: _Triples, alpha0: float
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
    pairs: _Moment,
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


def _found_alpha0(plan: TopicPlan, pairs: _Moment, pair: PairMoment, triples: _Triples) -> float:
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


def _fitted(
    plan: TopicPlan,
    pairs: _Moment,
    pair: PairMoment,
    triples: _Triples,
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


def _documents(pairs: _Moment, rows: float | None) -> float:
    """How many documents a pair moment adds up: all, but for what has no pairs or was clipped.

    Every document's pairs add up to 1.
    """
    size = pairs.values.shape[0]
    mass = max(1.0, float(np.sum(pairs.values)))
    clear = _CLEARLY * size * pairs.noise.deviation(size)
    return mass if rows is None or (abs(mass - rows) > clear and mass > clear) else rows


def _of_one_topic(pairs: _Moment, basis: NDArray[np.float64], alpha0: float) -> NDArray[np.float64]:
    """The pair moment D x D, of documents of one topic each."""
    if pairs.known is None:
        return pairs.values
    mean = basis @ (pairs.known.shares @ basis)
    known = alpha0 * pairs.known.rows * np.outer(mean, mean)
    return np.asarray((alpha0 + 1.0) * pairs.values - known)


def _without_topics(plan: TopicPlan, pairs: _Moment) -> TopicFactors:
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


class _Moment:
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


def _clip(
    state: _State, name: str, contributions: ClippedSum, error: Callable[[float, float], float]
) -> Generator[Round, Answers, tuple[float, float]]:
    """Where contributions are to be clipped, and their mean square; 1 where nothing is released.

    ``error`` gives the noise on contributions that are not clipped, as a part of what a component
    shows, for so many rows that reach so far. Clipping takes noise off, and something off the
    documents that reach farther: it is best where what both make wrong together is least.
    """
    if not state.plan.clip_documents:
        return 1.0, _OF_THREE_WORDS
    norms = DocumentNorms(contributions, weighted=state.plan.weighted)
    answers = yield (state.query(name, norms),)
    # documents without words reach nothing, and lose nothing
    values = answers[name].values.copy()
    values[:BINS][bin_upper_edges() < _NOTHING] = 0.0
    scale = state.read(replace(answers[name], values=values))
    if not scale.found:
        return 1.0, _OF_THREE_WORDS
    noise = error(state.rows or 1.0, scale.quantile(0.5))

    def off(clip: float) -> float:
        kept = scale.kept(clip)
        return noise * clip / kept + 1.0 - kept

    clip = min({scale.quantile(float(share)) for share in _QUANTILES}, key=off)
    clip = min(1.0, max(SMALLEST_CLIP, clip))
    square = clip**2 * scale.mean_energy(clip)
    # for less gain the bias is not worth it: repeated words would count for less
    return (clip if clip <= _WORTH_IT else 1.0), square


def _pairs(state: _State) -> Generator[Round, Answers, _Moment]:
    plan = state.plan
    if plan.pair == "full":
        options: dict[str, Any] = {
            "nuclear": plan.noises["moment"].norm == "nuclear",
            "extra_bits": state.coarser("double"),
        }
        whole = DocumentPairs(plan.features, **options)
        clip, square = yield from _clip(state, "norms of pairs", whole, partial(_off, state, whole))
        pairs = DocumentPairs(plan.features, clip=clip, **options)
        return (yield from _with_shares(state, pairs, square))
    sketch = DocumentSketch(plan.features, plan.sketch_columns)
    clip, square = yield from _clip(state, "norms of pairs", sketch, partial(_off, state, sketch))
    sketch = DocumentSketch(plan.features, plan.sketch_columns, clip=clip)
    return (yield from _with_shares(state, sketch, square, test=sketch.signs))


def _off(state: _State, pairs: ClippedSum, rows: float, reach: float) -> float:
    """Half the edge of a pair moment's noise, over what one of equal components has at the most."""
    plan, noise = state.plan, state.query("pair moment", pairs).record.noise
    columns = plan.features if plan.pair == "full" else plan.sketch_columns
    edge = noise.edge(plan.features, columns)
    if plan.pair == "sketch":
        edge /= math.sqrt(columns)
    return 0.5 * edge * plan.n_components / (rows * reach)


def _off_triples(
    state: _State, triples: DocumentTriples, pair: PairMoment, rows: float, reach: float
) -> float:
    """The edge of a whitened triple moment's noise, over the eigenvalue of equal components."""
    del reach
    count, noise = pair.core.shape[0], state.query("triple moment", triples).record.noise
    energies = np.linalg.eigvalsh(pair.core)
    usual = math.exp(1.5 * float(np.mean(np.log(energies))))
    edge = _TENSOR_EDGE * math.sqrt(count) * noise.deviation(count) * triples.rho**3
    return edge * math.sqrt(rows / count) / usual


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


def _with_shares(
    state: _State,
    pairs: ClippedSum,
    square: float,
    *,
    test: NDArray[np.float64] | None = None,
) -> Generator[Round, Answers, _Moment]:
    """The pair moment, and beside it how frequent words are, where the plan has that."""
    queries, shares = [state.query("pair moment", pairs)], None
    if state.plan.alpha0 > 0:
        # |c| / L is about the root of the norm of a document's pairs
        shares = WordShares(state.plan.features, clip=math.sqrt(pairs.clip))
        queries.append(state.query("word frequencies", shares))
    answers = yield tuple(queries)
    beside = None if shares is None else (answers["word frequencies"], shares.clip)
    return _Moment(answers["pair moment"], pairs.clip, square=square, test=test, shares=beside)


def _leading(plan: TopicPlan, pairs: _Moment, *, keep_all: bool) -> PairMoment | None:
    """The leading part of the pair moment; ``None`` where nothing stands above its noise."""
    if pairs.test is not None:
        taken = partial(sketched_pair, pairs.values, pairs.test, pairs.noise, Bulk(0.0))
    else:
        bulk = Bulk(0.0, sampling=_sampling(pairs))
        taken = partial(full_pair, pairs.values, pairs.noise, bulk)
    return leading_part(taken, plan, keep_all=keep_all)


def _words(square: float) -> float:
    """Length of documents of different words whose pairs have this mean squared norm."""
    return max(3.0, 0.5 + math.sqrt(0.25 + 1.0 / max(square, 1e-12)))


def _sampling(pairs: _Moment) -> float:
    """Variance that sampling gives to an entry of the pair moment, as if to all alike.

    All entries together have at most the squared norms of the documents' parts; frequent words
    count for what they weigh.
    """
    frequencies = pairs.values.sum(axis=1)
    size, total = frequencies.size, float(np.sum(frequencies))
    if total <= 0:
        return 0.0
    own = size * size * pairs.noise.deviation(size) ** 2 / 2.0  # what the noise adds to squares
    squares = float(np.sum(frequencies**2)) - own
    uneven = max(1.0, squares * size / total**2)
    return float(pairs.square * total * uneven / (size * size))


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
        directions = np.where((lengths > 0)[:, None], _on_simplex(scaled), directions)
    topics = np.maximum(directions, 0.0)
    sums = topics.sum(axis=1)
    uniform = np.full(topics.shape[1], 1.0 / topics.shape[1])
    topics = np.where(sums[:, None] > 0, topics / np.where(sums > 0, sums, 1.0)[:, None], uniform)
    shares = np.where(lengths > 0, lengths**2, 1.0) * found.counts
    order = np.argsort(-shares, kind="stable")
    return topics[order], shares[order] / float(np.sum(shares)), order


def _on_simplex(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest probability vector to each row (Duchi et al. 2008)."""
    descending = -np.sort(-rows, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    number = np.arange(1, rows.shape[1] + 1)
    last = np.sum(descending - excess / number > 0, axis=1) - 1
    level = excess[np.arange(rows.shape[0]), last] / (last + 1)
    return np.asarray(np.maximum(rows - level[:, None], 0.0))
