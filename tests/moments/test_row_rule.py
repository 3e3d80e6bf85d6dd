"""Prepared rows: integer vectors no longer than the bound, each a function of its row alone."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sums_tools import PRECISIONS, SEEDS, nasty_rows, python, total

from eigenveil.moments.accumulators import RowSum
from eigenveil.moments.histograms import ColumnHistogram, NormHistogram
from eigenveil.moments.norms import integer_rows
from eigenveil.moments.preparation import Preparation
from eigenveil.moments.rows import DTYPE, Block, RowRule, row_norms, scaled_basis, seen_through
from soak_tools import times

WIDTHS = (1, 7, 64, 785)


def prepared(rule, rows):
    """Prepared rows and their squared norms, checked to be integers and exact."""
    q, squares = rule(Block(rows))
    whole = q.astype(object)
    exact = [sum(int(entry) ** 2 for entry in row) for row in whole]
    assert np.all(q == np.rint(q))
    assert [int(s) for s in squares] == exact, "the squared norms are exact"
    return q, exact


ENTRIES = {
    "double": st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, 1e300, -1e300, 1e-310, 5e-324, 1.0, float(np.finfo(np.float32).max)]),
    "single": st.floats(width=32, allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, float(np.finfo(np.float32).max), float(np.float32(1e-45)), 1.0]),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@given(data=st.data())
def test_no_prepared_row_is_longer_than_the_bound(precision, data):
    features = data.draw(st.integers(1, 12))
    entry = ENTRIES[precision]
    row = arrays(DTYPE[precision], features, elements=entry) | entry.map(
        lambda v: np.full(features, v, DTYPE[precision])
    )
    rows = np.stack(data.draw(st.lists(row, min_size=1, max_size=4)))
    bound = data.draw(st.sampled_from([0.0, 1.0, 1e-300, 1e300]) | st.floats(1e-5, 1e5))
    rule = RowRule(
        bound=bound, precision=precision, extra_bits=data.draw(st.sampled_from([0, 1, 2, -4]))
    )
    q, squares = prepared(rule, rows)
    assert max(squares) <= 4**rule.bits
    zero = ~rows.any(axis=1)
    assert not q[zero].any(), "a zero row stays zero"


@pytest.mark.parametrize(
    ("precision", "entry", "preparation"),
    [
        ("double", 2.0, Preparation(np.full(3, 2.0), np.full(3, 5e-324), 6.0)),  # 0 times infinite
        ("double", 1.7e308, Preparation(np.full(3, -4e307), np.zeros(3), 6.0)),
        ("single", 1e39, Preparation(scale=np.zeros(3))),
        ("single", 1e39, Preparation(scale=np.zeros(3), limit=6.0)),
    ],
    ids=str,
)
def test_a_row_that_overflows_to_no_number_is_left_out(precision, entry, preparation):
    """Whether or not entries are clipped; it is told to the owner as any that is not valid."""
    block = Block(np.array([[3.0, 1.0, 4.0], [entry, 1.0, 4.0]]))
    q, squares = RowRule(precision=precision, preparation=preparation)(block)
    assert np.isfinite(q).all()
    assert not q[1].any()
    assert squares[1] == 0.0
    assert (block.invalid, block.first_invalid.row) == (1, 1)
    histogram = ColumnHistogram(3, precision=precision, preparation=preparation)
    histogram.update(block)
    assert histogram.integers().sum() == 3  # a bin of each column, of the other row
    # beside another sum of the pass that can prepare the row, whichever comes first
    empty = [
        lambda: RowSum(RowRule(preparation=preparation), features=3, count_weight=0.25),
        lambda: RowSum(RowRule(bound=9.0, precision=precision), features=3, count_weight=0.25),
        lambda: ColumnHistogram(3, precision=precision),
        lambda: NormHistogram(None, precision=precision, preparation=preparation),
    ]
    alone = [total(make(), block.values) for make in empty]
    for order in permutations(range(4)):
        shared, sums = Block(block.values), [make() for make in empty]
        for place in (*order, *order):
            sums[place].update(shared)
        for one, each in zip(alone, sums, strict=True):
            assert np.array_equal(2 * one, python(each))


@pytest.mark.parametrize("features", WIDTHS)
@pytest.mark.parametrize("precision", PRECISIONS)
@given(seed=SEEDS)
def test_prepared_rows_are_close_to_the_rows(features, precision, seed):
    rows = nasty_rows(20, features, seed, precision)
    for bound in (0.0, 10.0):
        rule = RowRule(bound=bound, precision=precision)
        q, _ = prepared(rule, rows)
        wide = rows.astype(float)
        largest = np.maximum(np.abs(wide).max(axis=1, initial=0.0), 1e-323)[:, None]
        lengths = (largest * np.linalg.norm(wide / largest, axis=1)[:, None]).clip(1e-323)
        with np.errstate(over="ignore", under="ignore"):
            ideal = wide / largest / np.maximum(lengths / largest, bound / largest)
        step = 2.0**-rule.bits
        rounding = math.sqrt(features) * step / 2  # once, and as much again where it is mended
        margin = features * step**2 / 24 + step  # the public factor
        error = np.linalg.norm(q * step - ideal, axis=1)
        normal = lengths[:, 0] > 1e-300 if precision == "double" else lengths[:, 0] > 1e-36
        assert np.all(error[normal] <= 2 * rounding + 3 * margin + 1e-6)


@pytest.mark.parametrize("features", WIDTHS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("centered", [False, True])
@settings(max_examples=times(20))
@given(seed=SEEDS)
def test_a_row_does_not_depend_on_its_place_or_its_neighbours(features, precision, centered, seed):
    rows = nasty_rows(33, features, seed, precision)
    if centered:
        rows = np.clip(rows, -1e30, 1e30)  # a centre moves no finite entry beyond the range
    center = np.random.default_rng(seed).standard_normal(features) if centered else None
    given = rows.copy()
    for bound in (0.0, 2.5):
        rule = RowRule(center=center, bound=bound, precision=precision)
        whole, squares = rule(Block(rows))
        alone = [rule(Block(rows[i : i + 1])) for i in range(len(rows))]
        assert np.array_equal(whole, np.concatenate([q for q, _ in alone]))
        assert np.array_equal(squares, np.concatenate([s for _, s in alone]))
        for part in (slice(None, None, -1), slice(5, None), slice(1, 20, 3)):
            assert np.array_equal(rule(Block(rows[part]))[0], whole[part])
        assert np.array_equal(rule(Block(np.asfortranarray(rows)))[0], whole)
        out = np.full_like(whole, np.nan)
        assert np.array_equal(rule(Block(rows), out=out)[0], whole)
        assert np.array_equal(out, whole)
        assert np.array_equal(rows, given), "a block is left unchanged"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_of_equal_entries_keep_their_length(precision):
    """Rounding moves all entries of a binary row the same way: the hardest rows to mend."""
    rows = np.tri(784, dtype=DTYPE[precision])  # 1 to 784 ones
    rule = RowRule(precision=precision)
    _, squares = prepared(rule, rows)
    assert max(squares) <= 4**rule.bits
    assert math.sqrt(min(squares)) / 2**rule.bits > 1 - 28 * 2.0**-rule.bits


def test_rounding_alone_would_make_rows_too_long():
    """The mutant: rounding to the grid without mending."""
    rows = np.random.default_rng().standard_normal((2000, 64))
    q = np.rint(rows / np.linalg.norm(rows, axis=1)[:, None] * 2**9)
    assert np.sum(np.sum(q * q, axis=1) > 4**9) > 100
    mended, squares = integer_rows(rows, 2**9 / np.linalg.norm(rows, axis=1), 2.0**9)
    assert squares.max() <= 4**9
    assert np.array_equal(np.sum(mended**2, axis=1), squares)


@given(SEEDS)
def test_norms_are_right_beyond_the_range_of_squares(seed):
    for precision in PRECISIONS:
        rows = nasty_rows(30, 5, seed, precision)
        assert np.allclose(
            row_norms(rows), [math.hypot(*map(float, row)) for row in rows], rtol=2.0**-9
        )


NOT_FINITE = [np.nan, np.inf, -np.inf]


@given(st.integers(0, 6), st.integers(0, 3), st.sampled_from(NOT_FINITE), SEEDS)
def test_a_row_with_an_entry_that_is_no_number_is_a_zero_row_and_located(row, column, value, seed):
    for precision in PRECISIONS:
        rows = nasty_rows(7, 4, seed, precision)
        rows[row, column] = value
        given = rows.copy()
        block = Block(rows)
        q, squares = RowRule(precision=precision)(block)
        assert np.array_equal(rows, given, equal_nan=True), "the owner's rows are left as they are"
        zeroed = rows.copy()
        zeroed[row] = 0.0
        assert np.array_equal(q, RowRule(precision=precision)(Block(zeroed))[0])
        assert squares[row] == 0
        assert block.invalid == 1
        assert block.first_invalid[:2] == (row, column)
        assert block.first_invalid.what == f"is {value}"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_several_invalid_rows_are_counted_and_the_first_is_named(precision):
    rows = np.ones((6, 3), dtype=DTYPE[precision])
    rows[2, 1], rows[2, 2], rows[4, 0], rows[5] = np.nan, np.inf, -np.inf, np.nan
    block = Block(rows)
    block.check()
    assert (block.invalid, block.first_invalid[:2]) == (3, (2, 1))
    assert np.isnan(row_norms(rows)[[2, 4, 5]]).all()
    clean = Block(rows[:2])
    clean.check()
    assert (clean.invalid, clean.first_invalid) == (0, None)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_center_moves_no_finite_row_out_of_the_sum(precision):
    """The largest entries less a centre leave the range: such a row is shortened, not invalid."""
    largest = float(np.finfo(DTYPE[precision]).max)
    rows = np.array([[largest, 0.0], [-largest, largest], [1.0, 2.0]], dtype=DTYPE[precision])
    center = np.full(2, -largest / 4)
    block = Block(rows)
    q, squares = RowRule(center=center, precision=precision)(block)
    assert (block.invalid, block.first_invalid) == (0, None)
    assert np.isfinite(q).all()
    assert squares.min() > 0.9 * 4 ** RowRule(precision=precision).bits
    alone = [RowRule(center=center, precision=precision)(Block(row[None]))[0] for row in rows]
    assert np.array_equal(q, np.concatenate(alone))


def test_an_invalid_row_is_zero_about_any_center():
    rows = np.array([[1.0, 2.0], [np.nan, 2.0]])
    q, squares = RowRule(center=np.array([7.0, -3.0]))(Block(rows))
    assert squares[1] == 0
    assert not q[1].any()


@given(seed=SEEDS, shortest=st.integers(0, 30))
def test_what_is_seen_through_short_columns_has_as_many_digits(seed, shortest):
    """In single precision, where a unit of its own would leave columns below 2**-14 nothing."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    lengths = np.ldexp(rng.uniform(0.5, 1.0, 6), -rng.integers(0, shortest + 1, 6))
    lengths[0] = 0.0
    rule = RowRule(precision="single", basis=basis * lengths, clip=2.0**-20)
    block = Block(rng.standard_normal((50, 6)).astype(np.float32))
    plain = RowRule(precision="single")(block)[0]
    entries, units = scaled_basis(rule.basis, rule)
    assert np.abs(entries).max() <= 2**14
    seen, norms = seen_through(entries, units, RowRule(precision="single"), block)
    exact = plain.astype(np.float64) @ basis * lengths * 2.0**14
    most = np.linalg.norm(plain, axis=1)[:, None] * lengths * np.sqrt(6.0)
    assert np.all(np.abs(seen - exact) <= most), "half a unit an entry, of a column of at least 1/2"
    assert np.all(norms >= np.linalg.norm(seen.astype(np.float64), axis=1))
    prepared(rule, block.values)
