"""Sums over documents: what they say, exactly, of documents of any length."""

import hashlib
import math
import os
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_tools import DOCUMENT_SUMS as MADE
from sums_tools import LONG, SEEDS, SHORT, corpus, python, random_basis, record_of, same

from eigenveil.errors import DataError
from eigenveil.moments.documents import pairs as document_pairs
from eigenveil.moments.documents import sums as document_sums
from eigenveil.moments.documents import triples as document_triples
from eigenveil.moments.documents.documents import (
    MOST_WORDS,
    DocumentBlock,
    DocumentRows,
    TableDocuments,
    as_documents,
)
from eigenveil.moments.documents.pairs import DocumentPairs, DocumentSketch, public_signs
from eigenveil.moments.documents.sums import DocumentNorms
from eigenveil.moments.documents.triples import DocumentTriples, triples_error
from eigenveil.moments.engine import accumulate
from eigenveil.moments.histograms import ABOVE_EDGE, BINS, bin_upper_edges
from eigenveil.moments.rows import Block
from eigenveil.moments.source import ArrayRows, SparseRows
from eigenveil.privacy.statistics import tensor_size
from soak_tools import times

D = 5
CLIPS = [0.6, 0.05, 2.0**-10, 2.0**-20]
every_kind = pytest.mark.parametrize("kind", MADE)


def added(kind, *blocks):
    made = MADE[kind](blocks[0].shape[1]) if isinstance(kind, str) else kind.empty()
    for counts in blocks:
        made.update(DocumentBlock(counts))
    return made


def rounded(triples):
    """The basis as it is used, within 2**-25 rho of the one given, but for long rows."""
    return triples._words * math.ldexp(triples.rho, -document_triples._WORD_BITS)


def unit(made):
    return Fraction(2) ** made.grid


# -- what they say --


def places(counts):
    return np.repeat(np.arange(len(counts)), counts)


def pairs_of(counts):
    """The mean over ordered pairs of distinct places, by looking at all of them."""
    total = np.zeros((len(counts),) * 2)
    for one, other in permutations(places(counts), 2):
        total[one, other] += 1
    return total / total.sum()


def triples_of(counts, basis):
    total = np.zeros((basis.shape[1],) * 3)
    number = 0
    for one, two, three in permutations(places(counts), 3):
        total += np.einsum("i,j,k", basis[one], basis[two], basis[three])
        number += 1
    return total / number


@pytest.mark.parametrize("counts", SHORT)
def test_short_documents_are_the_mean_over_pairs_and_triples_of_places(counts):
    pairs = added("pairs", np.array([counts]))
    assert np.abs(pairs.integers() * 2.0**-36 - pairs_of(counts)).max() < 1e-8
    sketch = added("sketch", np.array([counts]))
    seen = pairs_of(counts) @ sketch.signs
    assert np.abs(sketch.integers() * 2.0**-36 - seen).max() < 1e-8
    for kind in [kind for kind in MADE if kind.startswith("triples")]:
        triples = added(kind, np.array([counts]))
        found = triples.integers() * 2.0**-36
        expected = triples_of(counts, rounded(triples) / triples.rho)
        assert np.linalg.norm(found - expected) <= triples_error(triples.shape[0])
        # in the units that callers scale back to
        basis = triples_of(counts, triples.basis)
        off = triples.unit * (triples_error(triples.shape[0]) + 1e-6)
        assert np.linalg.norm(found * triples.unit - basis) <= off


# Documents without a weight are taken to be shorter by this; a little more for the arithmetic.
SHORTER = Fraction(1, 2**20) + Fraction(1, 2**48)


def exact_pairs(counts):
    whole = np.array(counts, dtype=object)
    length = int(sum(counts))
    top = np.outer(whole, whole) - np.diag(whole)
    return top * Fraction(1, length * (length - 1))


def exact_triples(made, counts):
    """In units of 2**-36, as fractions, through the integer basis that is used."""
    whole, u = np.array(counts, dtype=object), made._words.astype(int).astype(object)
    length = int(sum(counts))
    y = whole @ u
    q = (u * whole[:, None]).T @ u
    cubes = np.einsum("ni,nj,nk->ijk", u * whole[:, None], u, u)
    beside = np.multiply.outer(q, y)
    top = np.multiply.outer(np.outer(y, y), y) + 2 * cubes
    top = top - beside - beside.transpose(0, 2, 1) - beside.transpose(2, 0, 1)
    return top * Fraction(2**36, 2**72 * length * (length - 1) * (length - 2))


def frobenius(values):
    return math.sqrt(float(sum(v * v for v in values.ravel())))


@pytest.mark.parametrize("counts", SHORT + LONG)
def test_documents_of_any_length_are_near_the_exact_mean(counts):
    pairs = added("pairs", np.array([counts]))
    exact = exact_pairs(counts)
    found = python(pairs) * unit(pairs)
    length = sum(counts)
    if length <= 2**14:  # the weight is rounded down, and exactly that
        weight = Fraction(2**36 // (length * (length - 1)), 2**36)
        assert np.array_equal(found, exact * length * (length - 1) * weight)
        assert frobenius(found - exact) < 2.0**-8
    else:
        assert np.all(found <= exact)
        assert np.all(exact * (1 - SHORTER) - found < unit(pairs))
    sketch = added("sketch", np.array([counts]))
    signs = sketch.signs.astype(int).astype(object)
    seen = python(sketch) * unit(sketch)
    if length <= 2**14:
        assert np.array_equal(seen, found @ signs)
    else:
        assert np.all(abs(seen) <= abs(exact @ signs))
        assert np.all(abs(exact @ signs * (1 - SHORTER) - seen) < unit(sketch))


def test_the_rounding_bound_of_triples_is_no_more_than_told_and_not_idle():
    told = {(1, 1.0): 0.0013, (20, 1.0): 0.0051, (50, 1.0): 0.0084, (20, 0.5): 0.0115}
    for (columns, clip), most in told.items() | {((20, 0.1), 0.027)}:
        assert triples_error(columns, clip) < most
    for clip in [1.0, *CLIPS]:
        assert triples_error(20, clip) < 0.051
        assert all(triples_error(k, clip) < triples_error(k + 1, clip) for k in range(1, 60))
    rng = np.random.default_rng()
    worst = 0.0
    for _ in range(100):  # documents of one word, three times: the largest factor
        basis = rng.standard_normal((1, 3))
        made = DocumentTriples(basis)
        found = python(added(made, np.array([[3]])))
        worst = max(worst, frobenius(found - exact_triples(made, [3])) / 2**36)
    # reached where all three entries are rounded by 1/2, along y; a quarter of it one time in
    # three, and not once in a hundred times with a chance below 1e-15
    assert triples_error(3) / 4 < worst <= triples_error(3)


# -- clipped --

# of one word again and again, of many words, in between, and with one frequent word
CLIPPED = [
    *SHORT[::3],
    *LONG[::3],
    [1] * 40,
    [30, *[1] * 30],
    [2, 2, 1, *[0] * 20, 3],
    [7000, *[300] * 60],
    [1_000_000, *range(1, 50)],
]


def read(made, counts):
    """A document as sums see it, with what ``made`` finds its norm to be."""
    block = DocumentBlock(np.array([counts]))
    (norm,) = made.norms(document_sums.Documents(block.values, block.lengths))
    return float(norm)


def shortened(made, exact, norm):
    """What is to be added up of an exact contribution, given how long it is, in integer units."""
    return exact * (1 / Fraction(max(made.clip, norm)) / unit(made))


every_clip = pytest.mark.parametrize("clip", CLIPS)
every_clipped = pytest.mark.parametrize("counts", CLIPPED)


@every_clip
@every_clipped
def test_clipped_pairs_are_exact_pairs_made_shorter(counts, clip):
    exact = exact_pairs(counts)
    for made, longest in (
        (DocumentPairs(len(counts), clip=clip), frobenius(exact)),
        (
            DocumentPairs(len(counts), clip=clip, nuclear=True),
            np.abs(np.linalg.eigvalsh(exact.astype(float))).sum(),
        ),
    ):
        norm = read(made, counts)
        assert longest <= norm <= 1.0
        if not made.nuclear:
            assert norm <= longest * (1 + 2.0**-16)
        found, wanted = python(added(made, np.array([counts]))), shortened(made, exact, norm)
        assert np.all(found >= 0)
        assert np.all(found <= wanted)
        assert np.all(found >= wanted * (1 - Fraction(1, 255)) - 1)
        if made.nuclear:
            assert np.abs(np.linalg.eigvalsh(found.astype(float) * 2.0**-36)).sum() <= 1 + 1e-12
        else:
            assert sum(int(v) ** 2 for v in found.ravel()) <= 2**72


@every_clip
@pytest.mark.parametrize("columns", [1, 9])
@every_clipped
def test_a_clipped_sketch_is_the_exact_one_made_shorter(counts, columns, clip):
    made = DocumentSketch(len(counts), columns, clip=clip)
    exact = exact_pairs(counts) @ made.signs.astype(int).astype(object)
    longest = frobenius(exact) / math.sqrt(columns)
    norm = read(made, counts)
    assert longest <= norm <= 1.0
    assert norm <= longest * (1 + 2.0**-16)
    found, wanted = python(added(made, np.array([counts]))), shortened(made, exact, norm)
    assert np.all(abs(found) <= abs(wanted))
    assert np.all(found * wanted >= 0)
    assert np.all(abs(found) >= abs(wanted) * (1 - Fraction(1, 255)) - 1)
    assert sum(int(v) ** 2 for v in found.ravel()) <= columns * 2**72


@settings(max_examples=times(100))
@given(SEEDS, st.sampled_from([2.0**-3, 2.0**-10, 2.0**-18]), st.integers(2, 7))
def test_clipped_and_coarse_pairs_stay_within_the_nuclear_norm(seed, clip, bits):
    """Where entries are so coarse that rounding them down moves the matrix by much."""
    made = DocumentPairs(30, clip=clip, nuclear=True, extra_bits=bits - 18)
    for row in corpus(5, 30, seed, most=1000):
        found = python(added(made, row[None])) * 2.0**made.grid
        assert np.abs(np.linalg.eigvalsh(found.astype(float))).sum() <= 1 + 1e-12


def near_the_exact_ones_made_shorter(made, counts):
    exact, norm = exact_triples(made, counts), read(made, counts)
    assert frobenius(exact) / 2**36 <= norm <= 1.0
    found = python(added(made, np.array([counts])))
    off = frobenius(found - exact * (1 / Fraction(max(made.clip, norm)))) / 2**36
    assert off <= triples_error(made.shape[0], made.clip)
    assert frobenius(found) / 2**36 <= made.parameters["gain"]


WIDE = st.sampled_from([1, 2, 5, 20])


@settings(max_examples=times(100))
@given(SEEDS, WIDE, st.integers(3, 2000), st.sampled_from([1.0, *CLIPS]))
def test_triples_are_near_the_exact_ones_made_shorter(seed, columns, length, clip):
    """Rows of all lengths, so that factors become large; also the ones that are all opposite."""
    rng = np.random.default_rng(seed)
    basis = rng.standard_normal((columns + 4, columns)) * 0.2 ** rng.integers(0, 6)
    basis[0] = rng.standard_normal(columns) / math.sqrt(columns)
    basis[1] = -basis[2]
    if rng.random() < 0.3:
        basis /= np.linalg.norm(basis, axis=1)[:, None]
    counts = rng.multinomial(length, rng.dirichlet(np.full(columns + 4, 0.2)))
    if rng.random() < 0.5:  # without the longest row
        counts[1:] += 1
        counts[0] = 0
    near_the_exact_ones_made_shorter(DocumentTriples(basis, clip=clip), counts)


@pytest.mark.parametrize("counts", SHORT + LONG)
@pytest.mark.parametrize("columns", [1, 2, D])
def test_triples_of_any_length_stay_near_the_exact_ones(counts, columns):
    for clip in [1.0, *CLIPS]:
        made = DocumentTriples(random_basis(D, columns), clip=clip)
        assert made.unit == clip * made.rho**3
        near_the_exact_ones_made_shorter(made, counts)


@pytest.mark.parametrize("columns", [1, 2, 7])
def test_the_length_of_triples_of_few_words_is_worked_out(columns):
    """And rounded up by next to nothing; no less than an eighth of the bound of all documents."""
    rng = np.random.default_rng()
    for words in (1, 2, 3, 9, 24, 25):
        made = DocumentTriples(random_basis(30, columns), clip=0.05)
        counts = np.zeros(30, dtype=np.int64)
        counts[rng.permutation(30)[:words]] = rng.integers(1, 5, words)
        counts[np.argmax(counts)] += 3
        exact = frobenius(exact_triples(made, counts)) / 2**36
        found = read(made, counts)
        assert found >= exact
        bounds = document_sums.Documents.of([DocumentBlock(counts[None])])
        bound = np.minimum(1.0, made._bounds(bounds, bounds.counts @ made._words))[0]
        if words <= 24:
            assert found == pytest.approx(max(exact, bound / 8), abs=1e-5)
        else:
            assert found == bound


def test_documents_whose_one_entry_is_everything_add_up_exactly():
    """One word so often as all others together, with opposite signs: each is worth many."""
    made = DocumentSketch(700, 1, clip=2.0**-20)
    opposite = np.flatnonzero(made.signs[:, 0] != made.signs[0, 0])[:300]
    counts = np.zeros((1, 700))
    counts[0, opposite], counts[0, 0] = 1, 301
    one = python(added(made, counts))
    assert abs(one).sum() > 0
    many = 1 << 13
    block = DocumentBlock(scipy.sparse.csr_array(counts)[np.zeros(many, dtype=int)])
    documents = document_sums.Documents(block.values, block.lengths)
    weights = 2.0**36 / (documents.pairs * made.norms(documents))
    terms = made._terms(documents, documents.counts @ made.signs, weights)
    assert terms.min() > 1
    assert terms.sum() > 2**15, "in several products"
    made.update(block)
    assert np.array_equal(python(made), many * one)


def test_a_record_of_wishart_noise_takes_only_a_clip_of_the_nuclear_norm():
    assert record_of(DocumentPairs(D, clip=0.1, nuclear=True), "wishart").sensitivity() == 1.0
    assert record_of(DocumentPairs(D, clip=0.1), "vector").sensitivity() == 1.0
    with pytest.raises(ValueError, match="wishart"):
        record_of(DocumentPairs(D, clip=0.1), "wishart")


@pytest.mark.parametrize("kind", ["pairs", "nuclear pairs", "sketch", "triples"])
def test_norms_of_documents_are_counted_in_their_bins(kind):
    of = MADE[kind](D)
    counts = np.concatenate([corpus(300, D, 3), np.array(SHORT + LONG)])
    made = DocumentNorms(of)
    for block in np.split(counts, [0, 7, 200]):
        made.update(DocumentBlock(block))
    found = made.integers()
    assert found.shape == made.shape == (BINS + 1,)
    counts = counts[counts.sum(axis=1) >= 3]  # shorter ones are left out
    bins = np.searchsorted(ABOVE_EDGE * bin_upper_edges(), [read(of, row) for row in counts])
    assert np.array_equal(found[:BINS], np.bincount(bins, minlength=BINS))
    assert found[BINS] == len(counts)
    assert made.statistic == "norm-histogram"
    assert not of.integers().any(), "what is described stays empty"


# -- how far a document moves them (test_sensitivity_of_sums has the rest) --


@every_kind
def test_the_worst_document_nearly_reaches_the_gain(kind):
    made = MADE[kind](D)
    if kind.startswith("norms"):
        return
    longest = int(np.argmax(np.linalg.norm(getattr(made, "basis", np.eye(D)), axis=1)))
    for length in (3, 100, 10**6):
        counts = np.zeros((1, D), dtype=np.int64)
        counts[0, longest] = length
        moved = np.linalg.norm(added(made, counts).integers() * 2.0**made.grid)
        assert moved > 0.98 * made.parameters.get("gain", 1.0)


# -- however they are added up (test_monoid_laws has the laws of all sums) --


@every_kind
def test_how_much_is_done_at_once_changes_nothing(kind):
    counts = corpus(50, D, 2)
    whole = added(kind, counts).integers()
    for module, limit in (
        (document_sums, "MOST_DOCUMENTS"),
        (document_sums, "_MOST_WAITING"),
        (document_triples, "_TABLE_ENTRIES"),
    ):
        for small in (1, 7):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, limit, small)
                assert np.array_equal(added(kind, *np.split(counts, [3, 30])).integers(), whole)


@pytest.mark.parametrize("threads", [1, 3])
@settings(max_examples=3)
@given(seed=SEEDS, step=st.integers(1, 80))
def test_any_number_of_threads_and_any_source_give_the_same_integers(threads, seed, step):
    counts = corpus(200, D, seed)
    sources = [
        DocumentRows(counts, documents_a_block=step),
        DocumentRows(scipy.sparse.csc_array(counts), documents_a_block=step),
        as_documents(ArrayRows(counts.astype(np.float32), rows_a_block=step)),
        ArrayRows(counts.astype(float), rows_a_block=step),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: set(range(threads)))
        for source in sources:
            sums = [make(D) for make in MADE.values()]
            assert accumulate(source, sums).rows == 200
            for kind, found in zip(MADE, sums, strict=True):
                assert same(found, added(kind, counts))


@pytest.mark.parametrize("features", [3, 40])
@given(seed=SEEDS)
@settings(max_examples=times(100))
def test_sparse_and_dense_products_are_the_same(features, seed):
    counts = corpus(60, features, seed)
    found = []
    for cost in (0.0, math.inf):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(document_pairs, "_SPARSE_COST", cost)
            found.append(added("pairs", counts))
    assert same(*found)


def test_the_largest_sums_are_exact():
    """2**36 and more a document, of as many as are multiplied at once, and then past 2**53."""
    counts = np.zeros((1 << 17, 3), dtype=np.int64)
    counts[:, 1] = 3
    sums = {
        "pairs": 6 * (2**36 // 6),
        "sketch": 6 * (2**36 // 6),
        "triples": python(added("triples", counts[:1])).ravel()[-1],
    }
    for kind, one in sums.items():
        whole = python(added(kind, counts))
        assert abs(whole).max() >= (1 << 17) * abs(one)
        assert np.array_equal(whole, (1 << 17) * python(added(kind, counts[:1])))


@given(SEEDS)
def test_sums_of_more_documents_than_64_bits_hold_are_exact(seed):
    """After each 2**26 documents the total moves on; here it is made to after each few."""
    blocks = [corpus(5, D, seed + index) for index in range(6)]
    exact = sum(python(added("triples", block)) for block in blocks)
    for order in (1, -1):
        whole = MADE["triples"](D)
        for index, block in enumerate(blocks[::order]):
            part = added("triples", block)
            part.flush()
            if index % 2:
                part._count(1 << 26)  # full: the next merge folds it
                part._documents = 1 << 26
            whole.merge(part)
        found = whole.integers()
        assert np.array_equal(found.astype(object), exact)


def test_triples_beyond_64_bits():
    one = added("triples", np.array(SHORT))
    part = python(one)
    one.flush()
    whole = MADE["triples"](D)
    times = 1 << 30
    scaled = one._open_entries()
    for _ in range(times >> 25):
        whole._whole.add(scaled << 25, (1 << 25) * len(SHORT))
    assert np.array_equal(whole.integers().astype(object), part * times)
    assert max(abs(int(value)) for value in (part * times).ravel()) > 2**63


def test_parts_that_leave_64_bits_leave_the_sum_right():
    """Only the total has to fit; the second part is taken off once for each permutation."""
    made = added("triples", np.array(SHORT))
    expected = made.integers()
    for _ in range(3):
        made._cubes += np.int64(2**62)
    made._products += np.int64(2**62)
    assert np.array_equal(made.integers(), expected)


def test_an_empty_sum_holds_no_matrix():
    assert DocumentPairs(50_000)._sum._pending is None
    sketch = DocumentSketch(50_000, 80)
    assert sketch._sum._pending is None
    assert "signs" not in vars(sketch)
    assert DocumentTriples(np.eye(3)).size == tensor_size(3)


# -- the public signs --


def test_signs_are_the_same_for_ever():
    signs = public_signs(7, 3)
    octets = hashlib.shake_256(b"eigenveil signs 7 3").digest(3)
    bits = "".join(f"{octet:08b}" for octet in octets)[:21]
    assert [int(s) for s in signs.ravel()] == [1 if bit == "0" else -1 for bit in bits]
    assert signs.dtype == np.float64
    # written down when it was made
    assert hashlib.sha256(public_signs(1000, 80).astype(np.int8).tobytes()).hexdigest() == SIGNS
    assert np.array_equal(DocumentSketch(7, 3).signs, signs)
    sketch = DocumentSketch(7, 3)
    assert sketch.empty().signs is sketch.signs


SIGNS = "9a5e2d8316bffc98c1db30f7d6cad989041232c92fa46f239238e961914f623e"


# -- the basis of triples --


def test_the_basis_is_rounded_in_units_of_its_longest_row():
    basis = random_basis(2000, 4)
    made = DocumentTriples(basis)
    longest = np.linalg.norm(basis, axis=1).max()
    assert longest <= made.rho <= longest * (1 + 2.0**-11)
    assert math.ldexp(math.frexp(made.rho)[0], 12).is_integer()
    assert np.abs(rounded(made) - basis).max() <= made.rho * 2.0**-25 * (1 + 1e-9)
    assert np.linalg.norm(rounded(made), axis=1).max() <= made.rho
    assert made.unit == made.rho**3
    assert DocumentTriples(np.eye(3)).rho == 1.0
    assert np.array_equal(rounded(DocumentTriples(np.eye(3))), np.eye(3))


@pytest.mark.parametrize("basis", [np.zeros((3, 2)), np.full((3, 2), 5e-324), np.eye(3) * 1e-200])
def test_a_basis_of_nothing_adds_nothing_or_no_more_than_the_gain(basis):
    made = DocumentTriples(basis)
    moved = added(made, np.array([[4, 1, 1]])).integers() * 2.0**-36
    assert np.linalg.norm(moved) <= made.parameters["gain"]


# -- what is read --


def test_counts_of_any_kind_are_read_alike_and_left_unchanged():
    counts = np.array(SHORT)
    expected = added("pairs", counts)
    for dtype in (np.uint8, np.int16, np.int64, np.float32, np.float64, np.uint64):
        assert same(added("pairs", counts.astype(dtype)), expected)
    for form in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia"):
        for make in (scipy.sparse.csr_array, scipy.sparse.csr_matrix):
            matrix = make(counts).asformat(form)
            made = DocumentPairs(D)
            accumulate(DocumentRows(matrix), [made])
            assert same(made, expected)
            assert matrix.format == form
    assert same(added("pairs", np.ones((4, 4), bool)), added("pairs", np.ones((4, 4))))


def test_entries_at_one_place_add_up_and_stored_zeros_go():
    # 200 in parts that fit 8 bits, a 0 that is stored, words out of order
    data = np.array([100, 3, 100, 0, 2, -1, 2], dtype=np.int8)
    parts = (data, np.array([1, 0, 1, 2, 2, 0, 0]), np.array([0, 4, 7]))
    matrix = scipy.sparse.csr_array(parts, shape=(2, 3))
    before = [part.copy() for part in (matrix.data, matrix.indices, matrix.indptr)]
    turned = matrix.tocoo(copy=True)
    turned.data = turned.data.astype(np.int8)
    for given_ in (matrix, turned):
        (block,) = DocumentRows(given_).blocks()
        assert block.values.toarray().tolist() == [[3, 200, 0], [1, 0, 2]]
        assert block.lengths.tolist() == [203, 3]
        assert block.entries == 4
    for mine, theirs in zip(before, (matrix.data, matrix.indices, matrix.indptr), strict=True):
        assert np.array_equal(mine, theirs)


WORDS = ["apple", "pear", "plum", "fig", "quince"]


@given(
    st.integers(0, 99),
    st.integers(0, D - 1),
    st.integers(1, 60),
    st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.5]),
    st.booleans(),
    st.booleans(),
)
def test_an_unusable_count_is_named_by_document_and_word(row, column, step, value, named, sparse):
    counts = np.ones((100, D))
    counts[row, column] = value
    names = WORDS if named else None
    if sparse:
        matrix = scipy.sparse.csr_array(counts)
        source = DocumentRows(matrix, names=names, origin="shop.npz", documents_a_block=step)
    else:
        source = TableDocuments(
            ArrayRows(counts, names=names, origin="shop.npz", rows_a_block=step)
        )
    made = DocumentPairs(D)
    found = accumulate(source, [made])
    word = f" (from 0), column {WORDS[column]!r}" if named else f", column index {column} (from 0)"
    place = f"shop.npz: row index {row}{word} is counted {value:.15g} times"
    assert (found.rows, found.invalid.count, found.invalid.first) == (100, 1, place)
    assert same(made, added("pairs", np.delete(counts, row, axis=0)))


@pytest.mark.parametrize(
    ("counts", "reported"),
    [
        ([MOST_WORDS, 0, 1], f"row index 2 (from 0) is a document of {MOST_WORDS + 1} words; "),
        (
            [0, MOST_WORDS + 1, 0],
            f"row index 2, column index 1 (from 0) is counted {MOST_WORDS + 1} times",
        ),
        ([1e308, 1e308, 0], "row index 2, column index 0 (from 0) is counted 1e+308 times"),
        ([np.inf, -np.inf, 3], "row index 2, column index 0 (from 0) is counted inf times"),
    ],
)
def test_a_document_too_long_is_named_with_its_length(counts, reported):
    rows = np.array([[1, 1, 1], [3, 0, 0], counts, [0, 0, 0]], dtype=float)
    for source in (DocumentRows(rows), as_documents(SparseRows(scipy.sparse.csr_array(rows)))):
        made = DocumentPairs(3)
        found = accumulate(source, [made]).invalid
        assert found.count == 1
        assert found.first.startswith(reported)
        assert same(made, added("pairs", rows[:2]))


@every_kind
def test_a_short_document_is_valid_and_counts_as_one_without_words(kind):
    short = np.array([[0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 2, 0, 0, 0]])
    made, kept = MADE[kind](D), MADE[kind](D)
    assert accumulate(DocumentRows(np.vstack([SHORT, short])), [made]).invalid is None
    accumulate(DocumentRows(np.vstack([SHORT, np.zeros_like(short)])), [kept])
    assert same(made, kept)
    if not isinstance(made, DocumentNorms):
        assert same(made, added(kind, np.array(SHORT)))


@given(SEEDS, st.integers(1, 30))
def test_an_invalid_document_is_left_out(seed, step):
    """To every sum over documents, wherever it stands."""
    rng = np.random.default_rng(seed)
    counts = corpus(60, D, seed).astype(float)
    broken = rng.random(60) < 0.3
    counts[broken, 0] = rng.choice([np.nan, np.inf, -1.0, 0.5, 2.0**25], np.count_nonzero(broken))
    for kind in MADE:
        made, kept = MADE[kind](D), MADE[kind](D)
        accumulate(DocumentRows(counts, documents_a_block=step), [made])
        accumulate(DocumentRows(counts[~broken]), [kept])
        assert np.array_equal(made.integers(), kept.integers())


def damaged():
    matrix = scipy.sparse.csr_array(np.array(SHORT))
    matrix.indices[3] = 77
    return matrix


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        (np.ones(3), "not-numeric"),
        (np.array([["a", "b"]]), "not-numeric"),
        (np.ones((2, 2), complex), "not-numeric"),
        (np.ones((2, 2, 2)), "not-numeric"),
        (damaged(), "damaged-matrix"),
    ],
)
def test_what_is_no_matrix_of_numbers_is_refused(counts, code):
    with pytest.raises(DataError) as caught:
        list(DocumentRows(counts, origin="a.npy").blocks())
    assert caught.value.code == code
    assert str(caught.value).startswith("a.npy: ")


def test_rows_are_documents_once():
    counts = np.array(SHORT, dtype=float)
    matrix = scipy.sparse.csr_array(counts)
    for plain, kind in (
        (ArrayRows(counts, names=WORDS, origin="x"), TableDocuments),
        (SparseRows(matrix, names=WORDS, origin="x"), DocumentRows),
    ):
        table = as_documents(plain)
        assert isinstance(table, kind)
        assert as_documents(table) is table
        assert (table.names, table.features) == (WORDS, D)
        assert next(iter(table.blocks())).origin.name == "x"


def test_a_source_of_sparse_blocks_is_never_made_dense():
    class Sparse(ArrayRows):
        def blocks(self):
            raise AssertionError("made dense")

        def sparse_blocks(self):
            yield Block(scipy.sparse.csr_array(np.array(SHORT[:3])), origin="s", first_row=0)
            yield Block(scipy.sparse.csr_array(np.array(SHORT[3:])), origin="s", first_row=3)

    made = DocumentPairs(D)
    assert accumulate(as_documents(Sparse(np.array(SHORT, dtype=float))), [made]).rows == len(SHORT)
    assert same(made, added("pairs", np.array(SHORT)))


def test_documents_are_no_rows():
    with pytest.raises(AssertionError, match="a defect"):
        DocumentBlock(np.array(SHORT)).residuals(None, "double")


def test_no_documents_are_no_error():
    for make in MADE.values():
        made = make(D)
        assert accumulate(DocumentRows(scipy.sparse.csr_array((0, D))), [made]).rows == 0
        assert not made.integers().any()
