"""A private topic model as a generator of rounds: pair moment, triple moment.

A document's contributions are bounded whatever its length; but only one that repeats a single word
reaches the bound, and one of a hundred different words stays a hundred times below it. So how far
they reach is released first, and contributions are clipped there: the noise is that of what real
documents contribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.rounds import Answers, Round, RoundState
from eigenveil.models.shapes import SMALLEST_CLIP
from eigenveil.models.tensors.whitening import (
    Bulk,
    PairMoment,
    full_pair,
    leading_part,
    sketched_pair,
)
from eigenveil.models.topics.fitted import (
    ReleasedMoment,
    TopicFactors,
    TopicReleases,
    Triples,
    fitted,
    found_alpha0,
    without_topics,
)
from eigenveil.models.topics.plan import TopicPlan
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import ClippedSum, DocumentNorms, WordShares
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.histograms import BINS, bin_upper_edges

# Contributions above one of these quantiles of their norms are clipped, if that takes off half or
# more.
_QUANTILES, _WORTH_IT = np.append(np.arange(0.3, 0.99, 0.05), [0.97, 0.99]), 0.5
# What clipping takes off the pairs of documents of several topics is much alike for all topics: so
# much of it counts as an error (of .1 to 1, and of the triples', this was best).
_BIAS_OF_SEVERAL = 0.1
# What reaches less is a document without words.
_NOTHING = SMALLEST_CLIP / 16.0
# The largest value of a symmetric noise tensor of three modes, over the root of its rows.
_TENSOR_EDGE = 2.0
# Mean squared norm of the pairs of documents of three different words.
_OF_THREE_WORDS = 1.0 / 6.0

_State = RoundState[TopicPlan]


def private_topics(
    plan: TopicPlan,
    *,
    public_center: None = None,
    keep_all: bool = False,
    **begun: Any,
) -> Generator[Round, Answers, TopicFactors]:
    """The rounds of a fit; ``keep_all`` takes all topics, below the noise as well: for forecasts.

    Where fewer topics stand above the noise the result has fewer; where none does, the fit ends
    early and leaves the rest of its budget unspent. Counts are whole numbers about no centre:
    ``public_center`` is as of the other tasks and changes nothing.
    """
    del public_center
    state = _State(plan, **begun)
    found = yield from released_moments(state, keep_all=keep_all)
    if found.pair is None or found.triples is None:
        return without_topics(plan, found.pairs)
    return fitted(plan, found.pairs, found.pair, found.triples, found.alpha0, keep_all=keep_all)


def released_moments(
    state: RoundState[TopicPlan], *, keep_all: bool = False
) -> Generator[Round, Answers, TopicReleases]:
    """The rounds, and all that topics are made of."""
    plan = state.plan
    pairs = yield from _pairs(state)
    pair = _leading(plan, pairs, keep_all=keep_all)
    if pair is None:
        return TopicReleases(pairs)
    whole = DocumentTriples(pair.basis, weighted=plan.weighted)
    error = partial(_off_triples, state, whole, pair)
    clip, _ = yield from _clip(state, "norms of triples", whole, error)
    triples = DocumentTriples(pair.basis, clip=clip, weighted=plan.weighted)
    answers = yield (state.query("triple moment", triples),)
    triple = ReleasedMoment(answers["triple moment"], triples.unit)
    seen = Triples(triple.values, triple.noise.deviation(pair.core.shape[0]), clip, state.rows)
    alpha0 = found_alpha0(plan, pairs, pair, seen) if plan.auto_alpha0 else plan.alpha0
    return TopicReleases(pairs, pair, seen, alpha0)


def _clip(
    state: _State,
    name: str,
    contributions: ClippedSum,
    error: Callable[[float, float], float],
    bias: float = 1.0,
) -> Generator[Round, Answers, tuple[float, float]]:
    """Where contributions are to be clipped, and their mean square; 1 where nothing is released.

    ``error`` gives the noise on contributions that are not clipped, as a part of what a component
    shows, for so many rows that reach so far. Clipping takes noise off, and something off the
    documents that reach farther, of which ``bias`` counts as an error: it is best where what both
    make wrong together is least.
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
        return noise * clip / kept + bias * (1.0 - kept)

    clip = min({scale.quantile(float(share)) for share in _QUANTILES}, key=off)
    clip = min(1.0, max(SMALLEST_CLIP, clip))
    square = clip**2 * scale.mean_energy(clip)
    # for less gain the bias is not worth it: repeated words would count for less
    return (clip if clip <= _WORTH_IT else 1.0), square


def _pairs(state: _State) -> Generator[Round, Answers, ReleasedMoment]:
    plan = state.plan
    bias = _BIAS_OF_SEVERAL if plan.alpha0 > 0 else 1.0
    if plan.pair == "full":
        options: dict[str, Any] = {
            "nuclear": plan.noises["moment"].norm == "nuclear",
            "extra_bits": state.coarser("double"),
        }
        whole = DocumentPairs(plan.features, **options)
        off = partial(_off, state, whole)
        clip, square = yield from _clip(state, "norms of pairs", whole, off, bias)
        pairs = DocumentPairs(plan.features, clip=clip, **options)
        return (yield from _with_shares(state, pairs, square))
    sketch = DocumentSketch(plan.features, plan.sketch_columns)
    off = partial(_off, state, sketch)
    clip, square = yield from _clip(state, "norms of pairs", sketch, off, bias)
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


def _with_shares(
    state: _State,
    pairs: ClippedSum,
    square: float,
    *,
    test: NDArray[np.float64] | None = None,
) -> Generator[Round, Answers, ReleasedMoment]:
    """The pair moment, and beside it how frequent words are, where the plan has that."""
    queries, shares = [state.query("pair moment", pairs)], None
    if state.plan.alpha0 > 0:
        # |c| / L is about the root of the norm of a document's pairs
        shares = WordShares(state.plan.features, clip=math.sqrt(pairs.clip))
        queries.append(state.query("word frequencies", shares))
    answers = yield tuple(queries)
    beside = None if shares is None else (answers["word frequencies"], shares.clip)
    return ReleasedMoment(
        answers["pair moment"], pairs.clip, square=square, test=test, shares=beside
    )


def _leading(plan: TopicPlan, pairs: ReleasedMoment, *, keep_all: bool) -> PairMoment | None:
    """The leading part of the pair moment; ``None`` where nothing stands above its noise."""
    if pairs.test is not None:
        taken = partial(sketched_pair, pairs.values, pairs.test, pairs.noise, Bulk(0.0))
    else:
        bulk = Bulk(0.0, sampling=_sampling(pairs))
        taken = partial(full_pair, pairs.values, pairs.noise, bulk)
    return leading_part(taken, plan, keep_all=keep_all)


def _sampling(pairs: ReleasedMoment) -> float:
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
