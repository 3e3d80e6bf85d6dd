"""The real sums over units' documents against their recorded sensitivity.

Units of documents of any length: where weights of pairs are whole, where entries are rounded one by
one, and where next to nothing is left. Two mutants, weights that are forgotten and weights by block
in place of by unit, are shown to move a sum beyond what is recorded.
"""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_tools import SEEDS, by_block, by_unit, forgotten, python, random_basis

from eigenveil.moments.documents import sums as document_sums
from eigenveil.moments.documents import triples as document_triples
from eigenveil.moments.documents.documents import DocumentBlock, as_documents
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch
from eigenveil.moments.documents.sums import DocumentNorms, WordShares
from eigenveil.moments.documents.triples import DocumentTriples
from eigenveil.moments.engine import accumulate
from eigenveil.moments.rows import Block
from eigenveil.moments.source import ArrayRows, SparseRows
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record
from eigenveil.tables.units import LabelledRows, UnitRows
from soak_tools import times

D = 4
BASIS = random_basis(D, 2)
OPPOSITE = np.array([[1.0], [-1.0], [0.5], [0.0]]) / 1.5
MADE = {
    "pairs": lambda: DocumentPairs(D),
    "coarse pairs": lambda: DocumentPairs(D, extra_bits=-9),
    "clipped pairs": lambda: DocumentPairs(D, clip=0.05),
    "nuclear pairs": lambda: DocumentPairs(D, clip=0.3, nuclear=True, extra_bits=-6),
    "word shares": lambda: WordShares(D),
    "clipped word shares": lambda: WordShares(D, clip=0.05),
    "sketch": lambda: DocumentSketch(D, 3),
    "clipped sketch": lambda: DocumentSketch(D, 3, clip=0.05),
    "triples": lambda: DocumentTriples(BASIS, weighted=True),
    "opposite triples": lambda: DocumentTriples(OPPOSITE, weighted=True),
    "clipped triples": lambda: DocumentTriples(BASIS, clip=0.05, weighted=True),
    "norms": lambda: DocumentNorms(DocumentPairs(D), weighted=True),
}
NOISE = {"coarse pairs": "wishart", "nuclear pairs": "wishart"}
every_kind = pytest.mark.parametrize("kind", MADE)
LONGEST = st.sampled_from([6, 40, 3000, 10**6])


def corpus(count, seed, longest):
    """Documents of 3 words to about so many, some of one word and some not valid."""
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.uniform(np.log(3), np.log(longest), count)).astype(int)
    spread = rng.dirichlet(np.full(D, 0.3), count)
    found = np.array([rng.multinomial(n, p) for n, p in zip(lengths, spread, strict=True)])
    found[rng.random(count) < 0.1] = 0
    return found


def alike(rows, word=0, length=4):
    return np.tile(length * np.eye(D, dtype=int)[word], (rows, 1))


def farthest_word(kind):
    """The one whose documents contribute most."""
    of_basis = kind in ("triples", "clipped triples")
    return int(np.argmax(np.linalg.norm(BASIS, axis=1))) if of_basis else 0


def blocks_of(counts, ids=None, most=1, step=3, weigh=by_unit):
    ids = [7] * len(counts) if ids is None else ids
    return weigh(counts, ids, most, step, documents=True)


def total(kind, blocks):
    made = MADE[kind]() if isinstance(kind, str) else kind
    for block in blocks:
        made.update(block)
    return python(made)


def moved(kind, change):
    """Length of a change in the norm that the noise is made for."""
    values = np.ldexp(change.astype(float), MADE[kind]().grid)
    if NOISE.get(kind) == "wishart":
        return float(np.abs(np.linalg.eigvalsh(values)).sum())
    return float(np.sqrt((values**2).sum()))


def claimed(kind, adjacency="add-remove"):
    noise = NOISE.get(kind, "gaussian")
    budget = StepBudget(mu=1.0) if noise == "gaussian" else StepBudget(epsilon=1.0)
    record = calibrated_record(
        MADE[kind](), name="a", adjacency=adjacency, kind=noise, budget=budget
    )
    return record.sensitivity()


@every_kind
@settings(max_examples=times(125))
@given(seed=SEEDS, rows=st.integers(1, 40), most=st.sampled_from([1, 3, 100]), longest=LONGEST)
def test_a_unit_more_moves_a_sum_by_no_more_than_recorded(kind, seed, rows, most, longest):
    rest = corpus(7, seed + 9, longest)
    base = total(kind, blocks_of(rest, [0] * 7, most))
    for number in range(3):
        counts = np.concatenate([rest, corpus(rows, seed + number, longest)])
        ids = [0] * 7 + [7] * rows
        change = total(kind, blocks_of(counts, ids, most)) - base
        assert moved(kind, change) <= claimed(kind) * (1 + 1e-12)


@every_kind
@settings(max_examples=times(125))
@given(seed=SEEDS, rows=st.integers(1, 30), most=st.integers(1, 40), longest=LONGEST)
def test_a_unit_replaced_moves_a_sum_by_no_more_than_recorded(kind, seed, rows, most, longest):
    """By another one, with another number of documents; the farthest are those of one word."""
    units = [corpus(1 + (rows * number) % 30, seed + number, longest) for number in range(3)]
    units += [alike(rows), alike(1, 1), alike(rows, 1, longest), alike(rows, 2, longest)]
    found = [total(kind, blocks_of(unit, most=most)) for unit in units]
    most_moved = max(moved(kind, one - other) for one in found for other in found)
    assert most_moved <= claimed(kind, "replace-one") * (1 + 1e-12)


@every_kind
@pytest.mark.parametrize("rows", [1, 10, 300, 3000])
def test_a_units_documents_nearly_reach_it(kind, rows):
    """Also one that has so many that their weights are coarse."""
    change = total(kind, blocks_of(alike(rows, farthest_word(kind)), step=500))
    reached = moved(kind, change) / claimed(kind)
    assert 0.95 <= reached <= 1 + 1e-12 or (NOISE.get(kind) and rows > 300)


@pytest.mark.parametrize("kind", ["pairs", "word shares", "sketch", "opposite triples"])
def test_two_units_of_one_word_are_as_far_apart_as_claimed(kind):
    one, other = (total(kind, blocks_of(alike(10, word))) for word in (0, 1))
    assert moved(kind, one - other) >= 0.98 * claimed(kind, "replace-one")


@every_kind
def test_forgotten_weights_would_be_found(kind):
    change = total(kind, blocks_of(alike(10, farthest_word(kind)), weigh=forgotten))
    assert moved(kind, change) > 5 * claimed(kind)


@every_kind
def test_weights_by_block_would_be_found(kind):
    change = total(kind, blocks_of(alike(10, farthest_word(kind)), weigh=by_block))
    assert moved(kind, change) > 2 * claimed(kind)


@pytest.mark.parametrize("kind", ["triples", "norms"])
def test_a_sum_without_weights_takes_no_documents_that_have_some(kind):
    made = MADE[kind]()
    other = DocumentTriples(BASIS) if kind == "triples" else DocumentNorms(DocumentPairs(D))
    for block in blocks_of(alike(4)):
        made.update(block)
        other.update(block)
    made.flush()
    with pytest.raises(AssertionError, match="weights"):
        other.flush()


@pytest.mark.parametrize("kind", ["pairs", "clipped pairs", "sketch", "clipped sketch"])
@given(seed=SEEDS)
def test_documents_without_weights_are_units_of_one(kind, seed):
    """Those that wait beside documents with weights, too."""
    counts = corpus(12, seed, 10**6)
    plain = total(kind, [DocumentBlock(counts)])
    assert np.array_equal(plain, total(kind, blocks_of(counts, range(12))))
    mixed = [DocumentBlock(counts[:5]), *blocks_of(counts[5:], range(7))]
    assert np.array_equal(plain, total(kind, mixed))


@given(seed=SEEDS, step=st.integers(1, 30))
def test_how_documents_lie_in_blocks_and_what_units_are_called_change_no_sum(seed, step):
    rng = np.random.default_rng(seed)
    counts, ids = corpus(30, seed, 3000), rng.integers(0, 6, 30)
    order = np.argsort(rng.permutation(6)[ids], kind="stable")  # within a unit as they were
    names = np.array(["b", "a", "x", "0", "zz", "12"])[ids]
    for kind in MADE:
        whole = total(kind, blocks_of(counts, ids, 2, 30))
        assert np.array_equal(whole, total(kind, blocks_of(counts[order], names[order], 2, step)))


@given(seed=SEEDS)
def test_triples_are_those_of_each_document_times_its_share(seed):
    counts = corpus(20, seed, 200)
    rng = np.random.default_rng(seed)
    expected = np.zeros((2, 2, 2), dtype=object)
    alone = DocumentTriples(BASIS)
    ids = rng.integers(0, 3, 20)
    blocks = list(blocks_of(counts, ids))
    shares = np.concatenate([block.weights.shares(1 << 8) for block in blocks])
    assert all(shares[ids == unit].sum() == 256 for unit in set(ids.tolist()))
    for row, share in zip(counts, shares.tolist(), strict=True):
        expected = expected + share * total(alone.empty(), [DocumentBlock(row[None])])
    assert np.array_equal(total("triples", blocks), expected)


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
    whole = total(kind, blocks_of(counts, ids))
    monkeypatch.setattr(module, limit, small)
    assert np.array_equal(total(kind, blocks_of(counts, ids)), whole)


def test_entries_are_rounded_one_by_one_only_where_that_cannot_add_up():
    """Four words in each of 2048 documents may be, in each of 2049 not."""
    counts = np.array([[300, 300, 300, 300]])
    few, many = np.repeat(counts, 2048, axis=0), np.repeat(counts, 2049, axis=0)
    for unit, whole in ((few, False), (many, True)):
        found = total("sketch", blocks_of(unit, step=3000))
        weight = 2**36 / (1200 * 1199 * len(unit))
        assert 1 < weight < 256
        signs = DocumentSketch(D, 3).signs
        exact = 300 * (300 * signs.sum(axis=0) - signs)
        units = np.floor(weight) * exact if whole else np.trunc(weight * (1 - 2**-20) * exact)
        assert np.array_equal(found, (len(unit) * units).astype(int))


def sources(counts):
    yield ArrayRows(counts.astype(float), rows_a_block=3)
    yield SparseRows(scipy.sparse.csr_array(counts))


def test_units_come_along_whatever_documents_are_read_from():
    counts, ids = corpus(30, 5, 50), np.arange(30) // 4
    expected = total("pairs", blocks_of(counts, ids))
    for source in sources(counts):
        labelled = LabelledRows(source, ids)
        for documents in (as_documents(labelled), labelled.read_by(as_documents)):
            made = MADE["pairs"]()
            accumulate(UnitRows(documents), [made])
            assert np.array_equal(python(made), expected)
    (block,) = blocks_of(counts, ids, step=99)
    made = MADE["pairs"]()
    made.update(Block(counts.astype(float), weights=block.weights))
    assert np.array_equal(python(made), expected)


def test_a_sparse_matrix_with_units_is_never_made_dense(monkeypatch):
    monkeypatch.delattr(SparseRows, "blocks")  # which makes dense ones
    rows = LabelledRows(SparseRows(scipy.sparse.csr_array(corpus(9, 1, 9))), np.arange(9))
    (block,) = rows.read_by(as_documents).blocks()
    assert isinstance(block, DocumentBlock)
    assert block.units.tolist() == list(range(9))
