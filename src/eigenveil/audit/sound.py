"""Worst-case neighbours of every release of this package: each statistic with each noise.

Rows are longer than their bound, so that preparation must shorten them, and the row that differs
moves the sum as far as it can.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from eigenveil.audit.case import Case
from eigenveil.audit.releases import Attack, Make, Rows
from eigenveil.audit.views import StreamAttack, TreeAttack, ViewAttack
from eigenveil.moments.accumulators import (
    Accumulator,
    ComponentEnergy,
    RowSum,
    SecondMoment,
    Sketch,
)
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import DocumentNorms, WordShares
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.em import EMSums, Mixture
from eigenveil.moments.histograms import (
    ColumnHistogram,
    NormHistogram,
    ObservedCounts,
    ObservedPairs,
)
from eigenveil.moments.preparation import AS_IT_IS, Apart
from eigenveil.moments.rows import RowRule
from eigenveil.moments.scores import ScoreHistogram
from eigenveil.moments.third import ThirdMoment
from eigenveil.privacy.guarantee import Adjacency
from eigenveil.privacy.mask_views import MaskKind
from eigenveil.privacy.mechanisms import MECHANISMS, NoiseKind, Norm
from eigenveil.privacy.tree_views import TreeRun
from eigenveil.privacy.views import Federation

FEATURES = 2
RULE = RowRule(bound=1.0)
# Longer than the bound, orthogonal to each other.
U, V = np.array([3.0, 3.0]), np.array([3.0, -3.0])
AXIS, OTHER_AXIS = np.array([5.0, 0.0]), np.array([0.0, 5.0])
LONGER = np.array([30.0, 30.0])  # in another bin of norms, and of each column
# A number, and one of two levels.
FIRST, SECOND = np.array([3.0, 1.0, 0.0]), np.array([-3.0, 0.0, 1.0])
# Documents: one word repeated, the other repeated, and both.
ONE_WORD, OTHER_WORD, BOTH = np.array([4.0, 0.0]), np.array([0.0, 7.0]), np.array([3.0, 3.0])

# Empty sums. Those of EM are about two components, one at the origin; the other is far from
# everything, and so rows count for the first.
second_moment = partial(SecondMoment, RULE, features=FEATURES)
row_sum = partial(RowSum, RULE, features=FEATURES, count_weight=0.25)
histogram = partial(NormHistogram, None, precision="double")
columns = partial(ColumnHistogram, FEATURES, precision="double")
categories = partial(  # a number, and a category of two levels
    ColumnHistogram, FEATURES + 1, precision="double", variables=np.array([0.0, 1.0, 1.0])
)
products = partial(
    SecondMoment, replace(RULE, basis=np.eye(FEATURES), products=True), features=FEATURES
)
_LEVELS = Apart(((1, 2),), 0.625)
groups = partial(  # the same, apart from the number
    SecondMoment,
    replace(RULE, preparation=_LEVELS.left_out(AS_IT_IS, FEATURES + 1), apart=_LEVELS),
    features=FEATURES + 1,
)
scores = partial(ScoreHistogram, replace(RULE, basis=np.eye(FEATURES)), cells=4)
sketch = partial(Sketch, RULE, np.eye(FEATURES), clip=1.0)
energy = partial(ComponentEnergy, RULE, np.eye(FEATURES)[:1], count_weight=0.25)
third_moment = partial(ThirdMoment, RULE, np.eye(FEATURES), clip=1.0, variance=0.05)
_ABOUT = Mixture(
    means=np.array([[0.0] * FEATURES, [4.0] * FEATURES]),
    logs=np.zeros(2),
    factors=np.full((2, 1), 20.0),
    reaches=np.full(2, 0.5),
)
em_sums = partial(EMSums, RULE, _ABOUT, squares="full")
means_alone = partial(EMSums, RULE, _ABOUT, squares="none")
pairs = partial(DocumentPairs, FEATURES)
word_shares = partial(WordShares, FEATURES)
document_sketch = partial(DocumentSketch, FEATURES, 2)
triples = partial(DocumentTriples, np.eye(FEATURES))
# of words whose rows are opposite: as far from each other as any
opposite_triples = partial(DocumentTriples, np.array([[1.0], [-1.0]]) / np.sqrt(2.0))
# every document's shortened to a quarter
clipped_pairs, clipped_word_shares = partial(pairs, clip=0.25), partial(word_shares, clip=0.25)
clipped_triples = partial(triples, clip=0.25)
column_counts = partial(ObservedCounts, FEATURES)
pair_counts = partial(ObservedPairs, FEATURES)
# of units' rows
weighted_em_sums, weighted_histogram, weighted_third_moment, weighted_triples, weighted_scores = (
    partial(each, weighted=True) for each in (em_sums, histogram, third_moment, triples, scores)
)


def norms_of_documents(*, weighted: bool = False) -> Accumulator:
    return DocumentNorms(pairs(), weighted=weighted)


_ADD: Adjacency = "add-remove"
_REPLACE: Adjacency = "replace-one"
_WITH_U, _WITHOUT, _V_AGAIN = [V, U], [V], [V, V]
_ONE, _OTHER = [BOTH, ONE_WORD], [BOTH, OTHER_WORD]
_EMPTY = np.array([np.nan, np.nan])  # nothing was observed
# Units: one of a single row, one of ten alike, and one of ten as long in other directions.
_SINGLE, _TEN, _TEN_ACROSS = V[None], np.tile(U, (10, 1)), np.tile(V, (10, 1))
_ALONG, _ACROSS, _AGAINST = np.tile(AXIS, (10, 1)), np.tile(OTHER_AXIS, (10, 1)), -_TEN
_WITH_TEN = [_SINGLE, _TEN]
_DOCUMENT, _TEN_OF_ONE, _TEN_OF_OTHER = (
    BOTH[None],
    np.tile(ONE_WORD, (10, 1)),
    np.tile(OTHER_WORD, (10, 1)),
)
_WITH_TEN_MORE = [_DOCUMENT, _TEN_OF_ONE]
# mechanism, what distinguishes it from others of the same name, sum, noise, adjacency, neighbours
_Line = tuple[str, str, Make, NoiseKind, Adjacency, Rows, Rows]
_LINES: list[_Line] = [
    ("second-moment", "", second_moment, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("second-moment", "", second_moment, "gaussian", _REPLACE, _WITH_U, _V_AGAIN),
    ("second-moment", "", second_moment, "wishart", _ADD, _WITH_U, _WITHOUT),
    ("second-moment", "", second_moment, "wishart", _REPLACE, _WITH_U, _V_AGAIN),
    ("second-moment", "", second_moment, "vector", _ADD, _WITH_U, _WITHOUT),
    ("second-moment", "", second_moment, "vector", _REPLACE, _WITH_U, _V_AGAIN),
    ("second-moment", "products", products, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("second-moment", "products", products, "gaussian", _REPLACE, [V, AXIS], [V, OTHER_AXIS]),
    ("second-moment", "groups", groups, "gaussian", _ADD, [SECOND, FIRST], [SECOND]),
    ("row-sum", "", row_sum, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("row-sum", "", row_sum, "gaussian", _REPLACE, _WITH_U, [V, -U]),
    ("row-sum", "", row_sum, "vector", _ADD, _WITH_U, _WITHOUT),
    ("sketch", "", sketch, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("sketch", "", sketch, "vector", _ADD, _WITH_U, _WITHOUT),
    ("norm-histogram", "", histogram, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("norm-histogram", "", histogram, "laplace", _ADD, _WITH_U, _WITHOUT),
    ("norm-histogram", "", histogram, "gaussian", _REPLACE, _WITH_U, [V, LONGER]),
    ("norm-histogram", "documents", norms_of_documents, "gaussian", _ADD, _ONE, [BOTH]),
    ("column-histogram", "", columns, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("column-histogram", "", columns, "laplace", _ADD, _WITH_U, _WITHOUT),
    ("column-histogram", "", columns, "gaussian", _REPLACE, _WITH_U, [V, LONGER]),
    ("column-histogram", "", columns, "laplace", _REPLACE, _WITH_U, [V, LONGER]),
    ("column-histogram", "levels", categories, "gaussian", _REPLACE, [FIRST], [SECOND]),
    ("score-histogram", "", scores, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("score-histogram", "", scores, "laplace", _ADD, _WITH_U, _WITHOUT),
    ("score-histogram", "", scores, "gaussian", _REPLACE, _WITH_U, _V_AGAIN),
    ("score-histogram", "", scores, "laplace", _REPLACE, _WITH_U, _V_AGAIN),
    ("component-energy", "", energy, "gaussian", _ADD, [V, AXIS], [V]),
    ("component-energy", "", energy, "laplace", _ADD, [V, AXIS], [V]),
    ("component-energy", "", energy, "gaussian", _REPLACE, [V, AXIS], [V, OTHER_AXIS]),
    ("component-energy", "", energy, "laplace", _REPLACE, [V, AXIS], [V, OTHER_AXIS]),
    ("third-moment", "", third_moment, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("third-moment", "", third_moment, "gaussian", _REPLACE, _WITH_U, [V, -U]),
    ("third-moment", "", third_moment, "vector", _ADD, _WITH_U, _WITHOUT),
    ("em-sums", "", em_sums, "gaussian", _ADD, _WITH_U, _WITHOUT),
    ("em-sums", "", em_sums, "gaussian", _REPLACE, [V, U], [V, -U]),
    ("em-sums", "means", means_alone, "vector", _ADD, _WITH_U, _WITHOUT),
    ("em-sums", "units", weighted_em_sums, "gaussian", _ADD, _WITH_TEN, [_SINGLE]),
    ("document-pairs", "", pairs, "gaussian", _REPLACE, _ONE, _OTHER),
    ("document-pairs", "clipped", clipped_pairs, "gaussian", _ADD, _ONE, [BOTH]),
    ("document-pairs", "", pairs, "wishart", _ADD, _ONE, [BOTH]),
    ("document-pairs", "", pairs, "vector", _ADD, _ONE, [BOTH]),
    ("word-shares", "", word_shares, "gaussian", _REPLACE, _ONE, _OTHER),
    ("word-shares", "clipped", clipped_word_shares, "gaussian", _ADD, _ONE, [BOTH]),
    ("word-shares", "", word_shares, "vector", _ADD, _ONE, [BOTH]),
    ("document-sketch", "", document_sketch, "gaussian", _ADD, _ONE, [BOTH]),
    ("document-sketch", "", document_sketch, "vector", _ADD, _ONE, [BOTH]),
    ("document-triples", "clipped", clipped_triples, "gaussian", _ADD, _ONE, [BOTH]),
    ("document-triples", "opposite", opposite_triples, "gaussian", _REPLACE, _ONE, _OTHER),
    ("document-triples", "", triples, "vector", _ADD, _ONE, [BOTH]),
    ("bingham-vectors", "", second_moment, "bingham", _ADD, [U], []),
    ("bingham-vectors", "", second_moment, "bingham", _REPLACE, [U], [V]),
    ("column-counts", "", column_counts, "gaussian", _ADD, [V, U], [V]),
    ("column-counts", "", column_counts, "laplace", _REPLACE, [V, U], [V, _EMPTY]),
    ("pair-counts", "", pair_counts, "gaussian", _REPLACE, [V, U], [V, _EMPTY]),
    ("pair-counts", "", pair_counts, "vector", _ADD, [V, U], [V]),
    ("second-moment", "units", second_moment, "gaussian", _ADD, _WITH_TEN, [_SINGLE]),
    ("second-moment", "units", second_moment, "gaussian", _REPLACE, [_TEN], [_TEN_ACROSS]),
    ("second-moment", "units", second_moment, "wishart", _ADD, _WITH_TEN, [_SINGLE]),
    ("row-sum", "units", row_sum, "gaussian", _ADD, _WITH_TEN, [_SINGLE]),
    ("row-sum", "units", row_sum, "gaussian", _REPLACE, _WITH_TEN, [_SINGLE, _AGAINST]),
    ("sketch", "units", sketch, "gaussian", _ADD, _WITH_TEN, [_SINGLE]),
    ("norm-histogram", "units", weighted_histogram, "gaussian", _ADD, _WITH_TEN, [_SINGLE]),
    ("norm-histogram", "units", weighted_histogram, "laplace", _ADD, _WITH_TEN, [_SINGLE]),
    ("score-histogram", "units", weighted_scores, "gaussian", _REPLACE, [_TEN], [_TEN_ACROSS]),
    ("component-energy", "units", energy, "gaussian", _REPLACE, [_ALONG], [_ACROSS]),
    ("third-moment", "units", weighted_third_moment, "gaussian", _ADD, _WITH_TEN, [_SINGLE]),
    ("document-pairs", "units", pairs, "gaussian", _REPLACE, [_TEN_OF_ONE], [_TEN_OF_OTHER]),
    ("document-pairs", "units", pairs, "wishart", _ADD, _WITH_TEN_MORE, [_DOCUMENT]),
    ("word-shares", "units", word_shares, "gaussian", _ADD, _WITH_TEN_MORE, [_DOCUMENT]),
    ("document-sketch", "units", document_sketch, "gaussian", _ADD, _WITH_TEN_MORE, [_DOCUMENT]),
    ("document-triples", "units", weighted_triples, "gaussian", _ADD, _WITH_TEN_MORE, [_DOCUMENT]),
    (
        *("norm-histogram", "docs-units", partial(norms_of_documents, weighted=True), "gaussian"),
        *(_ADD, _WITH_TEN_MORE, [_DOCUMENT]),
    ),
]


def _name(line: _Line) -> str:
    mechanism, which, _, kind, adjacency, *_ = line
    return "-".join(part for part in (mechanism, which, kind, adjacency) if part)


# Attacks by the names of their cases.
ATTACKS: dict[str, Attack] = {_name(line): Attack(*line[2:]) for line in _LINES}


def sound_cases() -> list[Case]:
    """A case for each attack, each stream, and each adversary of many parties."""
    return [
        *(
            _case(*line[:2], name, attack)
            for line, (name, attack) in zip(_LINES, ATTACKS.items(), strict=True)
        ),
        *(_view_case(name, attack) for name, attack in VIEWS.items()),
        *(_tree_case(name, attack) for name, attack in TREES.items()),
        *(_stream_case(name, attack) for name, attack in STREAMS.items()),
    ]


def _sound(name: str, attack: Attack | ViewAttack | TreeAttack | StreamAttack, **own: Any) -> Case:
    """The case of an attack on what this package claims; one row more or less, unless told."""
    given = {"adjacency": "add-remove", **own}
    return Case(name=name, group="sound", claim=attack.claim(), sample=attack.sample, **given)


def _case(mechanism: str, which: str, name: str, attack: Attack) -> Case:
    kind = attack.kind
    return _sound(
        name,
        attack,
        mechanism=mechanism,
        title=f"{mechanism}{' (' + which + ')' if which else ''}, {kind}",
        adjacency=attack.adjacency,
        test=attack.test,
        sampling="release_vectors on each data set"
        if not attack.mechanism.added
        else "release_sum on the grid" + ("" if attack.at_once else ", one by one"),
        share=attack.mechanism.audited,
        covers=(f"{attack.record().statistic}/{kind}",),
    )


# -- The cases of many parties: every adversary that this package makes a claim about.

_SITES = 4
_PROTOCOL = "shares of the noise, masks and sums modulo 2**64, without envelopes and transport"
_SUM = "the sum, along the direction in which the neighbours differ (likelihood ratio)"
_WEIGHED = "all messages together, each weighed by the known covariance of masks and noise"


def _federation(masks: MaskKind, collusion: int = 0) -> Federation:
    return Federation(
        protocol="cape", masks=masks, sites=_SITES, taking_part=_SITES, collusion=collusion
    )


def _of(view: str, masks: MaskKind, collusion: int = 0) -> ViewAttack:
    return ViewAttack(_federation(masks, collusion), view, row_sum, "gaussian", [U], [])


# Of each norm, a sum and neighbours that move it as far as they can.
_MOVED: dict[Norm, tuple[Make, Rows, Rows]] = {
    "l1": (energy, [V, AXIS], [V]),
    "l2": (row_sum, [U], []),
    "nuclear": (second_moment, [U], []),
}

VIEWS: dict[str, ViewAttack] = {
    "federated-modular-outsider": _of("outsider", "modular"),
    "federated-modular-site": _of("site", "modular"),
    "federated-modular-aggregator": _of("aggregator", "modular"),
    "federated-modular-aggregator-and-site": _of("aggregator with 1 sites", "modular", 1),
    "federated-pairwise-aggregator": _of("aggregator", "pairwise"),
    "federated-helper-aggregator": _of("aggregator", "helper"),
    "federated-helper-aggregator-and-site": _of("aggregator with 1 sites", "helper", 1),
    "federated-helper-and-site": _of("helper with 1 sites", "helper", 1),
    **{
        f"federated-{name}-aggregator": ViewAttack(
            _federation("modular"), "aggregator", make, name, rows, other
        )
        for name, mechanism in sorted(MECHANISMS.items())
        if mechanism.pure and mechanism.adds_up
        for make, rows, other in (_MOVED[mechanism.norm],)
    },
}
_RUN = TreeRun(leaves=8, fan_out=4, arrived=8, least=(1, 4, 8))
TREES: dict[str, TreeAttack] = {
    "tree-outsider": TreeAttack(_RUN, 6, "outsider", row_sum, [U], []),
    "tree-aggregator": TreeAttack(_RUN, 6, "aggregator at level 1", row_sum, [U], []),
}
STREAMS: dict[str, StreamAttack] = {
    "stream-3-blocks": StreamAttack(3, row_sum, U),
    "stream-32-blocks": StreamAttack(32, row_sum, U),
    "stream-8-blocks-forgetting": StreamAttack(8, row_sum, U, forgetting=0.5),
}


def _tree_case(name: str, attack: TreeAttack) -> Case:
    return _sound(
        name,
        attack,
        mechanism="tree",
        title=f"tree of 8 leaves, {attack.view}",
        view=attack.view,
        test=_SUM,
        sampling="each leaf's sum and share of the noise, added up",
    )


def _stream_case(name: str, attack: StreamAttack) -> Case:
    how, made = ("", "PrefixSum")
    if attack.forgetting is not None:
        how, made = (", each with its own noise", "DiscountedSum")
    return _sound(
        name,
        attack,
        mechanism="stream",
        title=f"stream of {attack.blocks} blocks{how}",
        test="all prefixes together, as the releases C g + z that they stand for, along "
        "what the row moves of them (likelihood ratio)",
        sampling=f"{made}, many streams side by side",
    )


def _view_case(name: str, attack: ViewAttack) -> Case:
    masks, mechanism = attack.federation.masks, MECHANISMS[attack.kind]
    seen = attack.view.startswith("aggregator") and not attack.federation.hidden.any_noise
    weighed = seen and not mechanism.pure
    view = attack.view.replace("1 sites", "1 site")
    return _sound(
        name,
        attack,
        mechanism="federated",
        title=f"{_SITES} sites, {attack.kind}, {masks} masks, {view}",
        view=attack.view,
        test=_WEIGHED if weighed else mechanism.test if mechanism.pure else _SUM,
        sampling=_PROTOCOL,
        share=1.0 if mechanism.audited == 1.0 else 0.1,
    )
