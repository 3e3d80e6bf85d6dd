"""Third moments of rows seen through a basis: exact, of the stated length, and what they say."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_tools import PRECISIONS, SEEDS, nasty_rows, python, random_basis, total

from eigenveil.errors import DataError
from eigenveil.moments.histograms import NormHistogram, bin_upper_edges
from eigenveil.moments.norms import integer_rows
from eigenveil.moments.rows import Block, RowRule, basis_bits, integer_basis
from eigenveil.moments.third import ROWS_A_PRODUCT, ThirdMoment, cube_sums, whole_cube
from eigenveil.privacy import statistics
from eigenveil.privacy.statistics import tensor_size
from soak_tools import times

every_precision = pytest.mark.parametrize("precision", PRECISIONS)
# features and columns, one column and as many as features among them
SHAPES = [(1, 1), (5, 1), (6, 3), (4, 4)]
every_shape = pytest.mark.parametrize(("features", "columns"), SHAPES)


def moment(features, columns, precision="double", *, bound=2.0, clip=0.5, variance=0.1):
    rule = RowRule(bound=bound, precision=precision)
    return ThirdMoment(rule, random_basis(features, columns), clip=clip, variance=variance)


def python_moment(moment, rows):
    """The sum in Python's integers, from rows projected in Python's integers."""
    rule, bits = moment.rule, basis_bits(moment.rule.precision)
    basis = integer_basis(moment.basis, rule).astype(object)
    unit = math.ldexp(moment.clip, rule.bits + bits)
    columns = basis.shape[1]
    less = round(moment.variance * 2**24)
    sum_ = np.zeros((columns,) * 3, dtype=object)
    eye = np.eye(columns, dtype=int).astype(object)
    for row in rows:
        q, _ = rule(Block(row[None]))
        seen = (q.astype(object) @ basis).astype(float)
        longest = np.maximum(np.sqrt(np.vecdot(seen, seen)), unit)
        y, squares = integer_rows(seen, 4096.0 / longest, 4096.0**2)
        assert squares[0] <= 4096**2
        y = y[0].astype(object)
        cube = y[:, None, None] * y[None, :, None] * y[None, None, :]
        beside = y[:, None, None] * eye
        sum_ = sum_ + cube - less * (beside + beside.transpose(1, 0, 2) + beside.transpose(1, 2, 0))
    return sum_


@every_shape
@every_precision
@settings(max_examples=times(60))
@given(seed=SEEDS, bound=st.sampled_from([0.0, 1.0, 1e3]))
def test_a_moment_is_the_sum_in_pythons_integers(features, columns, precision, seed, bound):
    rows = nasty_rows(12, features, seed, precision)
    third = moment(features, columns, precision, bound=bound)
    assert third.shape == (columns,) * 3
    assert third.size == tensor_size(columns)
    assert np.array_equal(total(third, rows), python_moment(third, rows))


@every_shape
@every_precision
def test_a_moment_is_that_of_clipped_rows_seen_through_the_basis(features, columns, precision):
    rows = 2.0 * np.random.default_rng().standard_normal((400, features))
    third = moment(features, columns, precision)
    third.update(Block(rows))
    x = rows / np.maximum(np.linalg.norm(rows, axis=1), 2.0)[:, None]
    y = x @ third.basis
    y /= np.maximum(np.linalg.norm(y, axis=1), third.clip)[:, None]
    beside = np.multiply.outer(y.sum(axis=0), np.eye(columns))
    expected = np.einsum("ni,nj,nk->ijk", y, y, y) - third.variance * (
        beside + beside.transpose(1, 0, 2) + beside.transpose(1, 2, 0)
    )
    found = third.integers() * 2.0**third.grid
    # a row's y is off by its rounding to 2**-12, and by the preparation's rounding in units of clip
    off = math.sqrt(columns) * 2.0**-12 + math.sqrt(features) * 2.0**-third.rule.bits / third.clip
    assert np.linalg.norm(found - expected) <= 400 * 4 * off


@given(st.floats(0, 1))
def test_the_variance_is_rounded_and_what_is_used_is_what_is_recorded(variance):
    third = moment(3, 2, variance=variance)
    used = third.parameters["variance"]
    assert used == third.variance == third.empty().variance
    assert abs(used - variance) <= 2.0**-25
    assert float(used * 2**24).is_integer()


@pytest.mark.parametrize("variance", [0.0, 0.01, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("columns", [1, 2, 4])
@settings(max_examples=times(100))
@given(seed=SEEDS)
def test_no_row_moves_it_further_than_stated(columns, variance, seed):
    third = moment(5, columns, clip=0.4, variance=variance)
    farthest = statistics.third_moment("add-remove", rows=columns, variance=third.variance)
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [
            nasty_rows(10, 5, seed),
            third.basis.T * 10,  # the longest there are
            (rng.uniform(0, 0.8, (30, 1)) * rng.standard_normal((30, columns))) @ third.basis.T,
        ]
    )
    for row in rows:
        change = total(third.empty(), row[None])
        length = sum(int(c) ** 2 for c in change.ravel())
        assert length <= Fraction(farthest) ** 2 * 4**36 * (1 + Fraction(1, 10**14))


@pytest.mark.parametrize(
    ("columns", "variance"), [(1, 0.0), (1, 0.5), (2, 0.3), (4, 1.0), (4, 0.0)]
)
def test_the_stated_length_is_nearly_reached(columns, variance):
    third = moment(5, columns, clip=0.4, variance=variance)
    farthest = statistics.third_moment("add-remove", rows=columns, variance=third.variance)
    length = math.sqrt(variance) if columns == 1 and 0.25 < variance < 1 else 1.0
    row = 2.0 * 0.4 * length * third.basis.T[:1]
    third.update(Block(row))
    assert np.linalg.norm(third.integers() * 2.0**third.grid) > 0.99 * farthest


@settings(max_examples=times(75))
@given(st.lists(st.integers(0, 3 * ROWS_A_PRODUCT), max_size=5), SEEDS)
def test_rows_that_wait_change_nothing(cuts, seed):
    rows = np.random.default_rng(seed).standard_normal((3 * ROWS_A_PRODUCT, 3))
    one, other = moment(3, 2), moment(3, 2)
    one.update(Block(rows))
    parts = np.split(rows, sorted(cuts))
    for part in parts[:-1]:
        other.update(Block(part))
    last = moment(3, 2)
    last.update(Block(parts[-1]))
    other.merge(last)
    assert np.array_equal(one.integers(), other.integers())


@every_precision
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rows_along_one_axis_add_up_exactly(precision, sign):
    """The largest sums there are: 2**36 a row, past where floats hold them."""
    rows = np.zeros((140_000, 3))
    rows[:, 1] = 9.0 * sign
    rule = RowRule(precision=precision)
    third = ThirdMoment(rule, np.eye(3), clip=0.99, variance=1.0)
    one = total(third.empty(), rows[:1])
    assert one[1, 1, 1] == -2 * sign * 2**36
    assert np.array_equal(total(third, rows), 140_000 * one)


def test_sums_of_cubes_are_exact_where_floats_are_full():
    rng = np.random.default_rng()
    columns = rng.integers(4090, 4097, (3, ROWS_A_PRODUCT)).astype(float)
    whole = columns.astype(object)
    expected = sum(np.multiply.outer(np.outer(c, c), c) for c in whole.T)
    found = whole_cube(cube_sums(columns).astype(np.int64))
    assert np.array_equal(found.astype(object), expected)


def test_moments_of_other_clips_variances_or_bases_do_not_merge():
    for other in (
        moment(4, 2, clip=0.6),
        moment(4, 2, variance=0.2),
        moment(4, 3),
        moment(4, 2, bound=1.0),
    ):
        with pytest.raises(DataError) as caught:
            moment(4, 2).merge(other)
        assert caught.value.code == "merge-mismatch"
    moment(4, 2).merge(moment(4, 2, variance=0.1 + 2.0**-30))  # rounded to the same


# -- histograms of what is seen of rows --


@every_precision
@given(seed=SEEDS)
def test_a_histogram_through_a_basis_counts_norms_in_the_datas_units(precision, seed):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((1, 6)) * 10.0 ** rng.integers(-2, 3)
    center = 0.1 * rng.standard_normal(6)
    basis = random_basis(6, 2)
    histogram = NormHistogram(center, precision=precision, basis=basis, bound=30.0)
    counts = total(histogram, rows)
    assert counts.sum() == 2
    assert counts[-1] == 1
    place = int(np.flatnonzero(counts[:-1])[0])
    away = rows[0] - center
    away *= min(1.0, 30.0 / np.linalg.norm(away))  # as a third moment shortens it
    norm = float(np.linalg.norm(basis.T @ away))
    off = 30.0 * 3.0 * 2.0**-histogram._rule.bits  # rounding, which is absolute
    edges = bin_upper_edges()
    assert norm - off <= edges[place] * (1 + 2.0**-9)
    assert place == 0 or norm + off >= edges[place - 1] * (1 - 2.0**-8)


def test_without_a_bound_rows_count_as_unit_rows():
    basis = np.eye(4)[:, :2]
    histogram = NormHistogram(None, precision="double", basis=basis)
    counts = total(histogram, np.array([[300.0, 400.0, 0.0, 0.0], [3e-9, 0.0, 4e-9, 0.0]]))
    places = np.flatnonzero(counts[:-1])
    assert counts.sum() == 2 + counts[-1] == 2 + 2  # in bins, and counted
    edges = bin_upper_edges()
    for place, norm in zip(places, (0.6, 1.0), strict=True):
        assert edges[place - 1] * 0.999 <= norm <= edges[place]


def test_a_zero_row_is_in_the_lowest_bin():
    histogram = NormHistogram(None, precision="single", basis=np.eye(2), bound=1.0)
    assert total(histogram, np.zeros((3, 2)))[0] == 3
    assert python(histogram).sum() == 3 + 3  # and counted
