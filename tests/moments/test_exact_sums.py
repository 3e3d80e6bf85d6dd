"""Sums against Python's integers, where floats would round and where they would overflow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_tools import COUNT_WEIGHT, PRECISIONS, SEEDS, make, nasty_rows, random_basis, total

from eigenveil.moments.accumulators import Sketch
from eigenveil.moments.exact import ExactSum, IntegerSum, gram_parts, modulo, product_parts
from eigenveil.moments.histograms import ABOVE_EDGE, BINS, bin_upper_edges
from eigenveil.moments.rows import DTYPE, Block, RowRule
from soak_tools import times

every_precision = pytest.mark.parametrize("precision", PRECISIONS)


@every_precision
@pytest.mark.parametrize("columns", [1, 7, 33, 64])
@settings(max_examples=times(50))
@given(seed=SEEDS)
def test_a_sketch_of_a_row_does_not_depend_on_its_neighbours(columns, precision, seed):
    """The squares of its projection are not exact: they must round alike wherever it stands."""
    rows = nasty_rows(30, 65, seed, precision)

    def sketch():
        return Sketch(RowRule(precision=precision), random_basis(65, columns), clip=0.4)

    alone = [total(sketch(), row[None]) for row in rows]
    assert np.array_equal(total(sketch(), rows), sum(alone))
    assert np.array_equal(total(sketch(), rows[::-1]), sum(alone))


@every_precision
@given(seed=SEEDS)
def test_what_one_row_adds_is_what_the_statistic_says(precision, seed):
    row = nasty_rows(1, 6, seed, precision)
    q, _ = RowRule(precision=precision)(Block(row))
    q = q[0].astype(object)
    assert np.array_equal(total(make("second moment", 6, precision), row), np.outer(q, q))
    fine, _ = RowRule(precision=precision, extra_bits=2)(Block(row))
    sum_ = total(make("row sum", 6, precision), row)
    assert np.array_equal(sum_[:-1], fine[0].astype(object))
    assert sum_[-1] == COUNT_WEIGHT * 2 ** RowRule(precision=precision, extra_bits=2).bits
    histogram = total(make("histogram", 6, precision), row)
    norm = float(np.linalg.norm(row[0].astype(np.longdouble)))
    assert histogram.sum() == 2
    assert histogram[-1] == 1
    place = int(np.flatnonzero(histogram[:-1])[0])
    edges = bin_upper_edges()
    assert norm <= edges[place] * ABOVE_EDGE * (1 + 1e-6)
    assert place == 0 or norm >= edges[place - 1] * (1 - 1e-6)


def test_norm_bins_hold_their_edges():
    edges = bin_upper_edges()
    assert edges.size == BINS
    assert edges[0] == 2.0**-40
    assert np.isinf(edges[-1])
    for place in (0, 7, 160, BINS - 2):
        norms = edges[place] * np.array([1 - 1e-9, 1.0, 1 + 1e-6, ABOVE_EDGE * (1 + 1e-6)])
        for precision in ("double", "single"):
            rows = norms[:, None].astype(DTYPE[precision])
            found = [
                total(make("histogram", 1, precision), row[None])[:-1].argmax() for row in rows
            ]
            assert found == [place, place, place, place + 1]


def object_gram(rows):
    whole = rows.astype(object)
    return whole.T @ whole


@pytest.mark.parametrize("signs", [(1,), (1, -1)], ids=["one sign", "mixed signs"])
def test_one_feature_with_all_energy_is_summed_without_rounding(signs):
    """Single precision holds 64 such squares: the rows must be halved again and again."""
    rng = np.random.default_rng()
    rows = np.zeros((5000, 3), dtype=np.float32)
    rows[:, 0] = 511 * rng.choice(signs, 5000)
    rows[:, 1] = rng.integers(-20, 21, 5000)
    rows[::2, 2] = 31 * rng.choice(signs, 2500)
    parts = list(gram_parts(rows, 2.0**24))
    assert len(parts) > 64
    assert sum(count for _, count in parts) == 5000
    exact = object_gram(rows)
    assert np.array_equal(sum(part.astype(object) for part, _ in parts), exact)
    # the mutant, one product in single precision, rounds (unless the library sums in a luckier way)
    running = np.float32(0)
    for square in rows[:, 0] ** 2:
        running += square
    assert int(running) != exact[0, 0]
    moment = make("second moment", 3, "single")
    for part in np.split(rows, 7 * [0] + [3000]):
        moment.update(Block(part))
    assert (
        moment.integers()[0, 0] == 5000 * 4**9 or abs(int(moment.integers()[0, 0])) <= 5000 * 4**9
    )


@every_precision
def test_unit_rows_along_one_axis_add_up_exactly(precision):
    for sign in (1.0, -1.0):
        rows = np.zeros((20_000, 4), dtype=np.float64)
        rows[:, 2] = 5.0 * sign
        for kind in ("second moment", "row sum", "sketch", "energy"):
            one = total(make(kind, 4, precision), rows[:1])
            assert np.array_equal(total(make(kind, 4, precision), rows), 20_000 * one)
        one = total(make("second moment", 4, precision), rows[:1])
        assert one[2, 2] >= 0.99 * 4 ** RowRule(precision=precision).bits


@given(seed=SEEDS, size=st.integers(0, 400))
def test_products_of_two_matrices_are_exact(seed, size):
    rng = np.random.default_rng(seed)
    left = rng.integers(-512, 513, (size, 3)).astype(np.float32)
    right = rng.integers(-512, 513, (size, 2)).astype(np.float32)
    parts = list(product_parts(left, right, 2.0**24))
    assert sum(count for _, count in parts) == size
    exact = left.astype(object).T @ right.astype(object)
    assert np.array_equal(sum(part.astype(object) for part, _ in parts), exact)
    assert sum(count for _, count in gram_parts(left, 2.0**24)) == size


TERM = 2.0**40


@given(st.lists(st.tuples(st.integers(1, 3000), SEEDS), max_size=30), st.integers(0, 30))
def test_sums_beyond_the_floats_move_to_integers(additions, cut):
    """Terms of 2^40: 2^13 rows fill a float. Near the largest they can be, with odd low digits."""
    one, other = (ExactSum((3,), largest_term=TERM) for _ in range(2))
    exact = np.zeros(3, dtype=object)
    for index, (rows, seed) in enumerate(additions):
        rng = np.random.default_rng(seed)
        values = [int(v) for v in rng.integers(-(2**40), 2**40 + 1, 3)]
        part = np.array([v * rows if rows * abs(v) < 2**53 else v for v in values], dtype=float)
        (one if index < cut else other).add(part, rows)
        exact += [int(p) for p in part]
    theirs = other.integers()
    one.merge(other)
    assert np.array_equal(one.integers().astype(object), exact)
    assert np.array_equal(other.integers(), theirs)


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.booleans()), max_size=40))
def test_sums_beyond_64_bits_are_exact(parts):
    """Parts of the size that 2**26 rows of a second moment have; no test can add so many rows."""
    one, other = (IntegerSum((2,), largest_term=TERM) for _ in range(2))
    exact = np.zeros(2, dtype=object)
    for value, here in parts:
        part = np.array([value, -(value // 3)])
        (one if here else other).add(part, 2**22)
        exact += part.astype(object)
    theirs = other.integers()
    one.merge(other)
    assert np.array_equal(one.integers().astype(object), exact)
    assert np.array_equal(other.integers(), theirs)
    assert (one.integers().dtype == object) == (len(parts) > 1)
    assert [int(v) % 2**64 for v in modulo(one.integers())] == [v % 2**64 for v in exact]


def test_the_largest_sums_and_larger_ones_are_exact():
    sum_ = ExactSum((1,), largest_term=TERM)
    rows = 2**13
    for _ in range(2**9):  # 2^62 in all
        sum_.add(np.array([float(2**53 - 1)]), rows)
    assert sum_.integers().dtype == np.int64
    assert int(sum_.integers()[0]) == 2**9 * (2**53 - 1)
    for _ in range(2**11):
        sum_.add(np.array([float(2**53 - 1)]), rows)
    assert int(sum_.integers()[0]) == (2**9 + 2**11) * (2**53 - 1) > 2**63
    small = ExactSum((1,), largest_term=TERM)
    small.add(np.array([-5.0]), 1)
    small.merge(sum_)
    assert int(small.integers()[0]) == (2**9 + 2**11) * (2**53 - 1) - 5
