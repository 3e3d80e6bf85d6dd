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
from sums_tools import SEEDS, corpus, python, random_basis, same

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
from eigenveil.moments.release import release_sum
from eigenveil.moments.rows import Block
from eigenveil.moments.source import ArrayRows, SparseRows
from eigenveil.noise.entries import tensor_size
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record
from soak_tools import times

D = 5
every_kind = pytest.mark.parametrize("kind", MADE)

SHORT = [
    [3, 0, 0, 0, 0],
    [0, 2, 0, 1, 0],
    [1, 1, 1, 0, 0],
    [1, 1, 1, 1, 1],
    [0, 4, 0, 2, 1],
    [0, 0, 9, 0, 0],
    [1, 0, 0, 0, 7],
]
# 2**14 is the longest for which pairs have a weight, 128 for which single words have
LONG = [
    [40, 30, 0, 1, 30],
    [100, 27, 1, 0, 0],
    [129, 0, 0, 0, 0],
    [500, 3, 0, 2, 800],
    [2**14, 0, 0, 0, 0],
    [2**14, 1, 0, 0, 0],
    [9999, 3, 1, 70_000, 12],
    [2**19, 2**19, 5, 1, 1],
    [MOST_WORDS - 2, 1, 1, 0, 0],
]


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
    for kind in [kind for kind in MADE if kind.startswith("triples")]:
        triples = added(kind, np.array([counts]))
        off = frobenius(python(triples) - exact_triples(triples, counts)) / 2**36
        assert off <= triples_error(triples.shape[0])


@settings(max_examples=times(75))
@given(SEEDS, st.sampled_from([1, 2, 5, 20]), st.integers(3, 200))
def test_the_rounding_of_triples_stays_below_its_bound(seed, columns, length):
    """Unit rows in all directions and of all lengths, through a basis that is not orthonormal."""
    rng = np.random.default_rng(seed)
    basis = rng.standard_normal((columns + 3, columns))
    if rng.random() < 0.5:
        basis /= np.linalg.norm(basis, axis=1)[:, None]
    made = DocumentTriples(basis)
    counts = rng.multinomial(length, rng.dirichlet(np.full(columns + 3, 0.2)))
    found = python(added(made, counts[None]))
    off = frobenius(found - exact_triples(made, counts)) / 2**36
    assert off <= triples_error(columns)


def test_the_rounding_bound_of_triples_is_no_more_than_told_and_not_idle():
    assert triples_error(1) < 0.0013
    assert triples_error(20) < 0.0051
    assert triples_error(50) < 0.0084
    assert all(triples_error(k) < triples_error(k + 1) for k in range(1, 60))
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

CLIPS = [0.6, 0.05, 2.0**-10, 2.0**-20]
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


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("counts", CLIPPED)
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


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("columns", [1, 9])
@pytest.mark.parametrize("counts", CLIPPED)
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


@settings(max_examples=times(100))
@given(SEEDS, st.sampled_from([1, 2, 5, 20]), st.integers(3, 2000), st.sampled_from(CLIPS))
def test_clipped_triples_are_near_the_exact_ones_made_shorter(seed, columns, length, clip):
    """Rows of all lengths, so that factors become large; also the ones that are all opposite."""
    rng = np.random.default_rng(seed)
    basis = rng.standard_normal((columns + 4, columns)) * 0.2 ** rng.integers(0, 6)
    basis[0] = rng.standard_normal(columns) / math.sqrt(columns)
    basis[1] = -basis[2]
    made = DocumentTriples(basis, clip=clip)
    counts = rng.multinomial(length, rng.dirichlet(np.full(columns + 4, 0.2)))
    if rng.random() < 0.5:  # without the longest row
        counts[1:] += 1
        counts[0] = 0
    exact = exact_triples(made, counts)
    norm = read(made, counts)
    assert frobenius(exact) / 2**36 <= norm <= 1.0
    found = python(added(made, counts[None]))
    off = frobenius(found - exact * (1 / Fraction(max(clip, norm)))) / 2**36
    assert off <= triples_error(columns, clip)
    assert frobenius(found) / 2**36 <= made.parameters["gain"]


@pytest.mark.parametrize("counts", SHORT + LONG)
@pytest.mark.parametrize("clip", CLIPS)
def test_clipped_triples_of_any_length_stay_near_the_exact_ones(counts, clip):
    made = DocumentTriples(random_basis(D, 2), clip=clip)
    assert made.unit == clip * made.rho**3
    exact, norm = exact_triples(made, counts), read(made, counts)
    found = python(added(made, np.array([counts])))
    off = frobenius(found - exact * (1 / Fraction(max(clip, norm)))) / 2**36
    assert off <= triples_error(2, clip)


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


def test_the_rounding_bound_of_clipped_triples_is_no_more_than_told():
    for clip in [1.0, *CLIPS]:
        assert triples_error(20, clip) < 0.051
        assert all(triples_error(k, clip) < triples_error(k + 1, clip) for k in range(1, 60))
    assert triples_error(20, 0.5) < 0.0115
    assert triples_error(20, 0.1) < 0.027


@pytest.mark.parametrize("make", [DocumentPairs, lambda d, **k: DocumentSketch(d, 4, **k)])
def test_what_is_clipped_at_most_by_its_norm_is_as_long_as_the_clip(make):
    """A document of 100 different words fills a clip that is a hundredth."""
    counts = np.ones((1, 100), dtype=int)
    full, made = make(100), make(100, clip=2.0**-7)
    gain = made.parameters.get("gain", 1.0)
    long = np.linalg.norm(added(made, counts).integers() * 2.0**-36)
    assert 0.99 * gain < long <= gain
    # where the clip does not bite, the sum is that of no clip in other units
    wide = make(100, clip=0.5)
    expected = added(full, counts).integers() / 0.5
    assert np.abs(added(wide, counts).integers() - expected).max() <= np.abs(expected).max() * 1e-6


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


# -- how far a document moves them --


@every_kind
@settings(max_examples=times(60))
@given(SEEDS)
def test_no_document_moves_a_sum_further_than_its_gain(kind, seed):
    counts = np.concatenate([corpus(12, D, seed), np.array(SHORT + LONG)])
    for row in counts:
        made = added(kind, row[None])
        moved = python(made)
        gain = Fraction(made.parameters.get("gain", 2.0 if kind.startswith("norms") else 1.0))
        assert sum(int(m) ** 2 for m in moved.ravel()) <= (gain / unit(made)) ** 2
        if kind.endswith(" pairs"):  # or two could be further apart
            assert moved.min() >= 0
        if kind in ("pairs", "coarse pairs"):  # all entries add up to 1: their nuclear norm
            assert moved.sum() * unit(made) <= 1


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


NOISES = [
    ("pairs", "gaussian"),
    ("pairs", "vector"),
    ("coarse pairs", "wishart"),
    ("sketch", "gaussian"),
    ("sketch", "vector"),
    ("triples", "gaussian"),
    ("triples", "vector"),
]
every_noise = pytest.mark.parametrize(("kind", "noise"), NOISES)


def record_of(made, noise, adjacency="add-remove"):
    budget = StepBudget(mu=1.0) if noise == "gaussian" else StepBudget(epsilon=1.0)
    return calibrated_record(made, name="a", adjacency=adjacency, kind=noise, budget=budget)


def length(change, noise, grid):
    """Of a change, squared for the L2 norms; nuclear for Wishart noise, where it is at least."""
    if noise == "wishart":
        values = np.linalg.eigvalsh(change.astype(float) * 2.0**grid)
        return Fraction(float(np.abs(values).sum()) * (1 - 1e-12))
    return sum(int(c) ** 2 for c in change.ravel()) * Fraction(2) ** (2 * grid)


CLIPPED_NOISES = [
    ("clipped pairs", "gaussian"),
    ("nuclear pairs", "wishart"),
    ("nuclear pairs", "vector"),
    ("clipped sketch", "vector"),
    ("clipped triples", "gaussian"),
    ("norms of pairs", "gaussian"),
]


@pytest.mark.parametrize(("kind", "noise"), NOISES + CLIPPED_NOISES)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@settings(max_examples=times(50))
@given(SEEDS)
def test_documents_move_a_sum_by_no_more_than_recorded(kind, noise, adjacency, seed):
    counts = np.concatenate([corpus(8, D, seed), np.array(SHORT[::3] + LONG[::3])])
    counts = np.concatenate([counts, 3 * np.eye(D, dtype=int), 3 + 70_000 * np.eye(D, dtype=int)])
    made = MADE[kind](D)
    recorded = Fraction(record_of(made, noise, adjacency).sensitivity())
    most = (recorded if noise == "wishart" else recorded**2) * (1 + Fraction(1, 10**15))
    alone = [python(added(kind, row[None])) for row in counts]
    for one in alone:
        assert length(one, noise, made.grid) <= most
        if adjacency == "replace-one":
            for other in alone:
                assert length(one - other, noise, made.grid) <= most


@every_noise
def test_a_release_is_the_sum_and_noise_of_the_recorded_size_on_the_grid(kind, noise):
    made = added(kind, corpus(300, 12, 1))
    exact = made.integers() * 2.0**made.grid
    record = record_of(made, noise)
    drawn = [release_sum(made, record, SecureSource()).values - exact for _ in range(400)]
    steps = np.array(drawn) / 2.0**record.noise.grid
    assert np.abs(steps - np.rint(steps)).max() < 1e-3
    # the squared length of the noise; 11 deviations of the mean of 400 draws for vector noise of 4
    # coordinates, whose length varies most, and half of what a scale off by sqrt(2) would show
    scale, size = record.noise.scale, record.noise.size
    expected = {
        "gaussian": scale**2 * size,
        "vector": scale**2 * size * (size + 1),
        "wishart": 2 * scale**2 * 12 * 13 * 13,
    }[noise]
    found = np.mean([np.sum(each**2) for each in drawn])
    assert found == pytest.approx(expected, rel=0.6)
    assert record.noise.size == made.size


# -- however they are added up (test_monoid_laws has the laws of all sums) --


@every_kind
@pytest.mark.parametrize(
    ("module", "limit"),
    [
        (document_sums, "MOST_DOCUMENTS"),
        (document_sums, "_MOST_WAITING"),
        (document_triples, "_TABLE_ENTRIES"),
    ],
)
@pytest.mark.parametrize("small", [1, 7])
def test_how_much_is_done_at_once_changes_nothing(kind, module, limit, small, monkeypatch):
    counts = corpus(50, D, 2)
    whole = added(kind, counts).integers()
    monkeypatch.setattr(module, limit, small)
    assert np.array_equal(added(kind, *np.split(counts, [3, 30])).integers(), whole)


@pytest.mark.parametrize("threads", [1, 2, 5])
@settings(max_examples=5)
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


def test_signs_are_all_but_orthogonal():
    """Columns of independent signs: 3160 products, deviation sqrt(D), none beyond 8 of them."""
    signs = public_signs(4000, 80)
    assert np.all(np.abs(signs) == 1)
    products = signs.T @ signs - 4000 * np.eye(80)
    assert np.abs(products).max() < 8 * math.sqrt(4000)
    assert 0.9 < np.std(products[np.triu_indices(80, 1)]) / math.sqrt(4000) < 1.1


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
    for counts in SHORT:
        moved = added(made, np.array([counts[:3]]) + 1).integers() * 2.0**-36
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
            rows = DocumentRows(matrix)
            made = DocumentPairs(D)
            accumulate(rows, [made])
            assert same(made, expected)
            assert matrix.format == form
    words = (np.tri(4, dtype=bool) | np.ones((4, 4), bool))[:, :]
    assert same(added("pairs", words), added("pairs", np.ones((4, 4))))


def test_entries_at_one_place_add_up_and_stored_zeros_go():
    # 200 in parts that fit 8 bits, a 0 that is stored, words out of order
    data = np.array([100, 3, 100, 0, 2, -1, 2], dtype=np.int8)
    indices = np.array([1, 0, 1, 2, 2, 0, 0])
    pointers = np.array([0, 4, 7])
    matrix = scipy.sparse.csr_array((data, indices, pointers), shape=(2, 3))
    before = [part.copy() for part in (matrix.data, matrix.indices, matrix.indptr)]
    (block,) = DocumentRows(matrix).blocks()
    assert block.values.toarray().tolist() == [[3, 200, 0], [1, 0, 2]]
    assert block.lengths.tolist() == [203, 3]
    assert block.entries == 4
    for mine, theirs in zip(before, (matrix.data, matrix.indices, matrix.indptr), strict=True):
        assert np.array_equal(mine, theirs)
    made = DocumentTriples(random_basis(3, 2))
    accumulate(DocumentRows(matrix), [made])
    assert same(made, added(made, np.array([[3, 200, 0], [1, 0, 2]])))
    turned = matrix.tocoo(copy=True)
    turned.data = turned.data.astype(np.int8)
    (block,) = DocumentRows(turned).blocks()
    assert block.lengths.tolist() == [203, 3]


def test_blocks_know_where_they_start():
    counts = corpus(50, 4, 3)
    rows = DocumentRows(scipy.sparse.csr_array(counts), origin="here", documents_a_block=20)
    blocks = list(rows.blocks())
    assert [b.first_row for b in blocks] == [0, 20, 40]
    assert {b.origin.name for b in blocks} == {"here"}
    assert np.array_equal(np.concatenate([b.values.toarray() for b in blocks]), counts)
    assert rows.features == 4


WORDS = ["apple", "pear", "plum", "fig", "quince"]


def read_all(source):
    for _ in source.blocks():
        pass


@given(
    st.integers(0, 99),
    st.integers(0, D - 1),
    st.integers(1, 60),
    st.sampled_from([np.nan, np.inf, -np.inf, -1.0, 0.5, 2.0**53 - 0.5]),
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
    if value == np.rint(value) and value > 0 and np.isfinite(value):
        return  # 2**53 - 0.5 is a whole number in floats
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


@pytest.mark.parametrize("kind", MADE)
def test_a_short_document_is_valid_and_counts_as_one_without_words(kind):
    short = np.array([[0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 2, 0, 0, 0]])
    made, kept = MADE[kind](D), MADE[kind](D)
    found = accumulate(DocumentRows(np.vstack([SHORT, short])), [made])
    assert found.invalid is None
    accumulate(DocumentRows(np.vstack([SHORT, np.zeros_like(short)])), [kept])
    assert np.array_equal(made.integers(), kept.integers())
    if not isinstance(made, DocumentNorms):
        assert np.array_equal(made.integers(), added(kind, np.array(SHORT)).integers())


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


@pytest.mark.parametrize(
    "counts", [np.ones(3), np.array([["a", "b"]]), np.ones((2, 2), complex), np.ones((2, 2, 2))]
)
def test_what_is_no_matrix_of_numbers_is_refused(counts):
    with pytest.raises(DataError) as caught:
        DocumentRows(counts, origin="a.npy")
    assert caught.value.code == "not-numeric"
    assert str(caught.value).startswith("a.npy: ")


def test_a_damaged_matrix_is_refused():
    matrix = scipy.sparse.csr_array(np.array(SHORT))
    matrix.indices[3] = 77
    with pytest.raises(DataError) as caught:
        read_all(DocumentRows(matrix, origin="b.npz"))
    assert caught.value.code == "damaged-matrix"


def test_rows_are_documents_once():
    counts = np.array(SHORT, dtype=float)
    plain = ArrayRows(counts, names=WORDS)
    table = as_documents(plain)
    assert isinstance(table, TableDocuments)
    assert as_documents(table) is table
    assert table.names == WORDS
    assert table.features == D
    sparse = as_documents(SparseRows(scipy.sparse.csr_array(counts), names=WORDS, origin="x"))
    assert isinstance(sparse, DocumentRows)
    assert sparse.names == WORDS
    assert as_documents(sparse) is sparse
    assert next(iter(sparse.blocks())).origin.name == "x"


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
