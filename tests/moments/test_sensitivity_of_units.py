"""The real sums over units, of rows or of documents, against their recorded sensitivity."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_tools import (
    COUNT_WEIGHT,
    SEEDS,
    VARIANCE,
    by_block,
    by_unit,
    forgotten,
    nasty_rows,
    python,
    random_basis,
    record_of,
)

from eigenveil.moments.accumulators import ComponentEnergy, RowSum, SecondMoment, Sketch
from eigenveil.moments.documents import sums as document_sums
from eigenveil.moments.documents import triples as document_triples
from eigenveil.moments.documents.documents import DocumentBlock, as_documents
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import DocumentNorms, WordShares
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.em import EMSums, Mixture
from eigenveil.moments.engine import accumulate
from eigenveil.moments.histograms import NormHistogram, ObservedCounts, ObservedPairs
from eigenveil.moments.preparation import AS_IT_IS, Apart
from eigenveil.moments.rows import Block, RowRule, RowWeights
from eigenveil.moments.scores import ScoreHistogram
from eigenveil.moments.source import ArrayRows, SparseRows
from eigenveil.moments.third import ThirdMoment
from eigenveil.tables.units import LabelledRows, UnitRows
from soak_tools import seldom

D = 4
SEEN = random_basis(D, 3)
BASIS = random_basis(D, 2)
OPPOSITE = np.array([[1.0], [-1.0], [0.5], [0.0]]) / 1.5
LONGEST = st.sampled_from([6, 40, 3000, 10**6])
MIXTURE = Mixture(
    np.array([np.zeros(D), np.full(D, -0.5)]),
    np.zeros(2),
    np.full((2, 1), 20.0),
    np.full(2, 0.4),
)


def corpus(count, seed, longest=3000):
    """Documents of 3 words to about so many, some of one word and some not valid."""
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.uniform(np.log(3), np.log(longest), count)).astype(int)
    spread = rng.dirichlet(np.full(D, 0.3), count)
    found = np.array([rng.multinomial(n, p) for n, p in zip(lengths, spread, strict=True)])
    found[rng.random(count) < 0.1] = 0
    return found


@dataclass(frozen=True)
class Weighted:
    """A sum that takes weights, and the row that moves it farthest."""

    make: Callable
    farthest: np.ndarray
    documents: bool = False

    def rows(self, count, seed, longest=3000):
        return corpus(count, seed, longest) if self.documents else nasty_rows(count, D, seed)

    def alike(self, count):
        return np.tile(self.farthest, (count, 1))

    def total(self, rows, ids=None, most=1, step=3, weigh=by_unit):
        ids = [7] * len(rows) if ids is None else ids
        return self.over(weigh(rows, ids, most, step, documents=self.documents))

    def over(self, blocks):
        made = self.make()
        for block in blocks:
            made.update(block)
        return python(made)

    def moved(self, change, noise):
        """Length of a change in the norm that the noise is made for."""
        values = np.ldexp(change.astype(float), self.make().grid)
        if noise == "laplace":
            return np.abs(values).sum()
        if noise == "wishart":
            return np.abs(np.linalg.eigvalsh(values)).sum()
        return float(np.sqrt((values**2).sum()))

    def claimed(self, noise, adjacency="add-remove"):
        return record_of(self.make(), noise, adjacency).sensitivity()


FIRST = 9.0 * np.eye(D)[0]
APART, LEVEL = Apart(((2, 3),), 0.625), np.array([9.0, 0.0, 1.0, 0.0])
PREPARED = {
    "histogram": (lambda r: NormHistogram(None, precision="double", weighted=True), FIRST),
    "observed entries": (lambda r: ObservedCounts(D, weighted=True), FIRST),
    "observed pairs": (lambda r: ObservedPairs(D, weighted=True), FIRST),
    "row sum": (lambda r: RowSum(r(2), features=D, count_weight=COUNT_WEIGHT), FIRST),
    "second moment": (lambda r: SecondMoment(r(0), features=D), FIRST),
    "coarse moment": (lambda r: SecondMoment(r(-8), features=D), FIRST),
    "sketch": (lambda r: Sketch(r(0), SEEN, clip=0.5), 9.0 * SEEN[:, 0]),
    "products": (
        lambda r: SecondMoment(replace(r(0), basis=SEEN[:, :2], products=True), features=D),
        9.0 * SEEN[:, 0],
    ),
    "groups": (
        lambda r: SecondMoment(
            replace(r(0), preparation=APART.left_out(AS_IT_IS, D), apart=APART), features=D
        ),
        LEVEL,
    ),
    "scores": (
        lambda r: ScoreHistogram(replace(r(0), basis=SEEN[:, :2]), cells=5, weighted=True),
        FIRST,
    ),
    "energy": (lambda r: ComponentEnergy(r(0), SEEN.T, count_weight=COUNT_WEIGHT), 9 * SEEN[:, 0]),
    "third moment": (
        lambda r: ThirdMoment(r(0), SEEN, clip=0.5, variance=VARIANCE, weighted=True),
        9.0 * SEEN[:, 0],
    ),
    "em sums": (lambda r: EMSums(r(0), MIXTURE, squares="full", weighted=True), FIRST),
}


def prepared(kind, bound=0.0):
    make, farthest = PREPARED[kind]
    return Weighted(lambda: make(lambda bits: RowRule(bound=bound, extra_bits=bits)), farthest)


FOUR = 4 * np.eye(D, dtype=int)
LONG_WORD = FOUR[np.argmax(np.linalg.norm(BASIS, axis=1))]
DOCUMENTS = {
    "pairs": lambda: DocumentPairs(D),
    "coarse pairs": lambda: DocumentPairs(D, extra_bits=-9),
    "clipped pairs": lambda: DocumentPairs(D, clip=0.05),
    "nuclear pairs": lambda: DocumentPairs(D, clip=0.3, nuclear=True, extra_bits=-6),
    "word shares": lambda: WordShares(D),
    "clipped word shares": lambda: WordShares(D, clip=0.05),
    "document sketch": lambda: DocumentSketch(D, 3),
    "clipped sketch": lambda: DocumentSketch(D, 3, clip=0.05),
    "triples": lambda: DocumentTriples(BASIS, weighted=True),
    "opposite triples": lambda: DocumentTriples(OPPOSITE, weighted=True),
    "clipped triples": lambda: DocumentTriples(BASIS, clip=0.05, weighted=True),
    "norms": lambda: DocumentNorms(DocumentPairs(D), weighted=True),
}
SUMS = {kind: prepared(kind) for kind in PREPARED} | {
    kind: Weighted(make, LONG_WORD if kind in ("triples", "clipped triples") else FOUR[0], True)
    for kind, make in DOCUMENTS.items()
}
NOISE = dict.fromkeys(("coarse moment", "coarse pairs", "nuclear pairs"), "wishart")
CASES = [(kind, NOISE.get(kind, "gaussian")) for kind in SUMS]
CASES += [("histogram", "laplace"), ("energy", "laplace")]
every_case = pytest.mark.parametrize(("kind", "noise"), CASES)


@every_case
@settings(max_examples=seldom(125))
@given(
    seed=SEEDS,
    rows=st.integers(1, 40),
    most=st.sampled_from([1, 3, 100]),
    bound=st.sampled_from([0.0, 1.0, 1e3]),
    longest=LONGEST,
)
def test_a_unit_more_moves_a_sum_by_no_more_than_recorded(
    kind, noise, seed, rows, most, bound, longest
):
    summed = SUMS[kind] if kind in DOCUMENTS else prepared(kind, bound)
    rest = summed.rows(7, seed + 9, longest)
    base = summed.total(rest, [0] * 7, most)
    for number in range(3):
        more = np.concatenate([rest, summed.rows(rows, seed + number, longest)])
        change = summed.total(more, [0] * 7 + [7] * rows, most) - base
        assert summed.moved(change, noise) <= summed.claimed(noise) * (1 + 1e-12)


@every_case
@settings(max_examples=seldom(125))
@given(
    seed=SEEDS,
    rows=st.integers(1, 30),
    others=st.integers(1, 30),
    most=st.integers(1, 40),
    longest=LONGEST,
)
def test_a_unit_replaced_moves_a_sum_by_no_more_than_recorded(
    kind, noise, seed, rows, others, most, longest
):
    """By another one, with another number of rows, also of some that are left out."""
    summed = SUMS[kind]
    units = [summed.rows(count, seed + count, longest).astype(float) for count in (rows, others)]
    units[1][np.random.default_rng(seed).random(others) < 0.3, 0] = np.nan
    if summed.documents:  # the farthest are those of one word
        units += [np.tile(word, (rows, 1)) for word in (FOUR[0], FOUR[1] * longest, FOUR[2])]
    found = [summed.total(unit, most=most) for unit in units]
    for place, one in enumerate(found):
        for other in found[:place]:
            if noise == "wishart":  # a removal and an addition
                change = summed.moved(one, noise) + summed.moved(other, noise)
            else:
                change = summed.moved(one - other, noise)
            assert change <= summed.claimed(noise, "replace-one") * (1 + 1e-12)


@every_case
@pytest.mark.parametrize("rows", [1, 10, 300, 3000])
def test_rows_that_are_alike_nearly_reach_it(kind, noise, rows):
    """Also so many that their weights are coarse."""
    change = SUMS[kind].total(SUMS[kind].alike(rows), step=500)
    reached = SUMS[kind].moved(change, noise) / SUMS[kind].claimed(noise)
    assert reached <= 1 + 1e-12
    if noise != "wishart" or rows <= 300:
        assert reached >= (0.9 if noise == "wishart" and rows > 10 else 0.95)


@pytest.mark.parametrize("kind", ["pairs", "word shares", "document sketch", "opposite triples"])
def test_two_units_of_one_word_are_as_far_apart_as_claimed(kind):
    one, other = (SUMS[kind].total(np.tile(FOUR[word], (10, 1))) for word in (0, 1))
    apart = SUMS[kind].moved(one - other, "gaussian")
    assert apart >= 0.98 * SUMS[kind].claimed("gaussian", "replace-one")


@every_case
@pytest.mark.parametrize(("weigh", "times"), [(forgotten, 5), (by_block, 2)])
def test_forgotten_weights_and_weights_by_block_would_be_found(kind, noise, weigh, times):
    change = SUMS[kind].total(SUMS[kind].alike(10), weigh=weigh)
    assert SUMS[kind].moved(change, noise) > times * SUMS[kind].claimed(noise)


def test_a_sum_without_weights_takes_no_rows_that_have_some():
    (block,) = by_unit(np.eye(D), [1, 1, 2, 2], step=9)
    with pytest.raises(AssertionError, match="weights"):
        NormHistogram(None, precision="double").update(block)
    for other in (DocumentTriples(BASIS), DocumentNorms(DocumentPairs(D))):
        (block,) = by_unit(FOUR, [7] * D, step=9, documents=True)
        other.update(block)
        with pytest.raises(AssertionError, match="weights"):
            other.flush()


@given(seed=SEEDS, whole=st.sampled_from([1, 7, 2**8, 2**24, 2**30]), rows=st.integers(1, 4000))
def test_shares_of_a_unit_never_exceed_the_whole(seed, whole, rows):
    ranks = np.random.default_rng(seed).permutation(rows).astype(np.int64)
    shares = RowWeights(np.full(rows, rows), ranks).shares(whole)
    assert shares.min() >= 0
    assert shares.sum() == whole


@given(seed=SEEDS, step=st.integers(1, 30))
def test_how_rows_lie_in_blocks_and_what_units_are_called_change_no_sum(seed, step):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 6, 30)
    order = np.argsort(rng.permutation(6)[ids], kind="stable")  # within a unit as they were
    names = np.array(["b", "a", "x", "0", "zz", "12"])[ids]
    for summed in SUMS.values():
        rows = summed.rows(30, seed)
        whole = summed.total(rows, ids, 2, 30)
        assert np.array_equal(whole, summed.total(rows[order], names[order], 2, step))


def test_rows_without_weights_are_units_of_one_row():
    rows = nasty_rows(30, D, 1)
    for kind in ("row sum", "second moment", "sketch", "energy"):
        alone = SUMS[kind].over([Block(rows)])
        assert np.array_equal(alone, SUMS[kind].total(rows, range(30)))


@pytest.mark.parametrize("kind", ["row sum", "energy"])
def test_a_row_that_is_left_out_does_not_count_in_its_unit(kind):
    rows = np.eye(D)[:2]
    whole = SUMS[kind].total(rows)[-1]
    rows[1, 0] = np.nan
    assert SUMS[kind].total(rows)[-1] * 2 == whole


@pytest.mark.parametrize("kind", ["pairs", "clipped pairs", "document sketch", "clipped sketch"])
@given(seed=SEEDS)
def test_documents_without_weights_are_units_of_one(kind, seed):
    """Those that wait beside documents with weights, too."""
    counts = corpus(12, seed, 10**6)
    plain = SUMS[kind].over([DocumentBlock(counts)])
    assert np.array_equal(plain, SUMS[kind].total(counts, range(12)))
    mixed = [DocumentBlock(counts[:5]), *by_unit(counts[5:], range(7), documents=True)]
    assert np.array_equal(plain, SUMS[kind].over(mixed))


@given(seed=SEEDS)
def test_triples_are_those_of_each_document_times_its_share(seed):
    counts = corpus(20, seed, 200)
    ids = np.random.default_rng(seed).integers(0, 3, 20)
    blocks = list(by_unit(counts, ids, documents=True))
    shares = np.concatenate([block.weights.shares(1 << 8) for block in blocks])
    assert all(shares[ids == unit].sum() == 256 for unit in set(ids.tolist()))
    alone = Weighted(lambda: DocumentTriples(BASIS), FOUR[0], documents=True)
    each = [alone.over([DocumentBlock(row[None])]) for row in counts]
    expected = sum(share * one for share, one in zip(shares.tolist(), each, strict=True))
    assert np.array_equal(SUMS["triples"].over(blocks), expected)


@pytest.mark.parametrize(
    ("kind", "module", "limit", "small"),
    [
        ("triples", document_triples, "_MOST_TRIPLES", 600),
        ("triples", document_triples, "ROWS_A_PRODUCT", 2),
        ("triples", document_sums, "MOST_DOCUMENTS", 3),
        ("clipped sketch", document_sums, "MOST_DOCUMENTS", 3),
        ("norms", document_sums, "_MOST_WAITING", 5),
    ],
)
def test_how_much_is_done_at_once_changes_nothing(kind, module, limit, small, monkeypatch):
    counts, ids = corpus(40, 3, 500), np.arange(40) // 7
    whole = SUMS[kind].total(counts, ids)
    monkeypatch.setattr(module, limit, small)
    assert np.array_equal(SUMS[kind].total(counts, ids), whole)


def test_entries_are_rounded_one_by_one_only_where_that_cannot_add_up():
    """Four words in each of 2048 documents may be, in each of 2049 not."""
    counts = np.array([[300, 300, 300, 300]])
    for documents, whole in ((2048, False), (2049, True)):
        found = SUMS["document sketch"].total(np.repeat(counts, documents, axis=0), step=3000)
        weight = 2**36 / (1200 * 1199 * documents)
        assert 1 < weight < 256
        signs = DocumentSketch(D, 3).signs
        exact = 300 * (300 * signs.sum(axis=0) - signs)
        units = np.floor(weight) * exact if whole else np.trunc(weight * (1 - 2**-20) * exact)
        assert np.array_equal(found, (documents * units).astype(int))


def test_units_come_along_whatever_documents_are_read_from():
    counts, ids = corpus(30, 5, 50), np.arange(30) // 4
    expected = SUMS["pairs"].total(counts, ids)
    arrays = ArrayRows(counts.astype(float), rows_a_block=3)
    for source in (arrays, SparseRows(scipy.sparse.csr_array(counts))):
        labelled = LabelledRows(source, ids)
        for documents in (as_documents(labelled), labelled.read_by(as_documents)):
            made = DocumentPairs(D)
            accumulate(UnitRows(documents), [made])
            assert np.array_equal(python(made), expected)
    (block,) = by_unit(counts, ids, step=99, documents=True)
    plain = Block(counts.astype(float), weights=block.weights)
    assert np.array_equal(SUMS["pairs"].over([plain]), expected)


def test_a_sparse_matrix_with_units_is_never_made_dense(monkeypatch):
    monkeypatch.delattr(SparseRows, "blocks")  # which makes dense ones
    rows = LabelledRows(SparseRows(scipy.sparse.csr_array(corpus(9, 1, 9))), np.arange(9))
    (block,) = rows.read_by(as_documents).blocks()
    assert isinstance(block, DocumentBlock)
    assert block.units.tolist() == list(range(9))
