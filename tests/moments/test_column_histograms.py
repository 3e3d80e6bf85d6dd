"""Histograms of columns: every entry in its bin, levels of a category in one, holes in none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import DataError
from eigenveil.moments.accumulators import WEIGHT_BITS
from eigenveil.moments.histograms import (
    EQUAL_BINS,
    MAGNITUDE_BINS,
    RANGE_BINS,
    ColumnHistogram,
    magnitude_edges,
    range_of,
)
from eigenveil.moments.preparation import AS_IT_IS, Preparation
from eigenveil.moments.rows import Block, RowWeights

EXTREMES = [0.0, -0.0, 1.0, -1.0, 1.5, -1.5, 1e-300, -1e300, 2.0**30, 2.0**-30, -(2.0**-30)]


def counts(rows, *, precision="double", preparation=AS_IT_IS, variables=None, weights=None):
    histogram = ColumnHistogram(
        np.shape(rows)[1],
        precision=precision,
        preparation=preparation,
        variables=variables,
        weighted=weights is not None,
    )
    histogram.update(Block(np.asarray(rows, dtype=float), weights=weights))
    return histogram.integers().reshape(np.shape(rows)[1], -1)


@given(
    st.lists(
        st.one_of(st.sampled_from(EXTREMES), st.floats(-(2.0**40), 2.0**40, width=32)), min_size=1
    )
)
def test_an_entry_is_in_the_bin_of_its_magnitude_and_sign(values):
    found = counts(np.array(values)[:, None])[0]
    edges = magnitude_edges()
    wanted = np.zeros(MAGNITUDE_BINS, dtype=int)
    for value in values:  # intervals are closed towards 0's other side, and open at 0's bin
        smallest = 2.0**-30
        if abs(value) < smallest:
            place = MAGNITUDE_BINS // 2
        elif value > 0:
            place = int(np.searchsorted(edges, value, side="right")) - 1
        else:
            place = int(np.searchsorted(edges, value, side="left")) - 1
        wanted[place] += 1
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_bins_are_closed_towards_zero(precision):
    kind = np.float32 if precision == "single" else np.float64
    for edge in (1.0, 1.5, 2.0**-30, 2.0**30):
        below = np.float32(np.nextafter(np.float32(edge), np.float32(0)))
        for sign in (1, -1):
            histogram = ColumnHistogram(1, precision=precision)
            histogram.update(Block(sign * np.array([[below], [edge]], dtype=kind)))
            lower, upper = np.flatnonzero(histogram.integers())
            assert upper == lower + 1


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30), st.floats(-5, 5), st.floats(0.01, 9))
def test_ranges_have_equal_bins_and_one_on_each_side(values, middle, half):
    rows = np.array(values)[:, None]
    found = counts(rows, preparation=range_of(np.array([middle]), np.array([half]), holes=False))[0]
    assert found.size == RANGE_BINS
    z = (rows[:, 0] - middle) * (1.0 / half)
    place = np.where(z >= 1, RANGE_BINS - 1, np.where(z < -1, 0, 1 + np.floor((z + 1) * 16)))
    near = np.abs(z * 16 - np.rint(z * 16)) < 1e-9  # on an edge, rounding decides
    if not near.any():
        assert np.array_equal(found, np.bincount(place.astype(int), minlength=RANGE_BINS))
    assert found.sum() == len(values)


def test_a_column_of_scale_zero_is_in_one_bin():
    rows = np.random.default_rng(0).standard_normal((50, 2))
    found = counts(rows, preparation=range_of(np.zeros(2), np.array([0.0, 3.0]), holes=False))
    assert np.flatnonzero(found[0]).tolist() == [1 + EQUAL_BINS // 2]


def test_a_rows_levels_share_one_histogram():
    """The first level that a row has counts, whatever else it has; a row without one does not."""
    rows = [[9, 1, 0, 0], [9, 0, 1, 0], [9, 0, 1, 1], [9, 0, 0, 0], [9, 0.4, 7, 1]]
    variables = np.array([0.0, 5.0, 5.0, 5.0])
    for preparation in (AS_IT_IS, range_of(np.full(4, 3.0), np.full(4, 0.5), holes=False)):
        found = counts(rows, preparation=preparation, variables=variables)
        assert found[:, 0].tolist()[1:] == [1, 3, 0]
        assert not found[1:, 1:].any()
        assert found[0].sum() == 5


def test_each_row_counts_in_one_bin_of_each_variable_only():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((200, 6)) * 3
    variables = np.array([2.0, 0.0, 1.0, 1.0, 0.0, 7.0])
    for row in rows:
        found = counts(row[None], variables=variables)
        assert found.max() == 1
        assert found.sum() <= 4


def test_what_was_not_observed_is_in_no_bin_and_an_invalid_row_in_none():
    rows = np.array([[np.nan, 2.0, 1.0], [3.0, np.nan, np.nan], [np.inf, 1.0, 1.0]])
    holes = Preparation(holes=True)
    found = counts(rows, preparation=holes, variables=np.array([0.0, 1.0, 2.0]))
    assert found.sum(axis=1).tolist() == [1, 1, 1]
    levels = counts(rows, preparation=holes, variables=np.array([0.0, 1.0, 1.0]))
    assert levels[:, 0].tolist() == [0, 1, 0]
    assert not counts(rows).any()


def test_rows_count_with_their_weights():
    """Three rows of one unit count 1 together, exactly; a fourth that came too late does not."""
    rows = np.array([[1.0, 1.0], [1.0, 0.0], [5.0, 0.0], [5.0, 1.0]])
    weights = RowWeights(np.array([3, 3, 3, 0]), np.array([0, 1, 2, 3]))
    found = counts(rows, weights=weights)
    assert found.sum(axis=1).tolist() == [2**WEIGHT_BITS] * 2
    assert found.max() <= 2 * (2**WEIGHT_BITS // 3 + 1)
    level = counts(rows, weights=weights, variables=np.array([0.0, 0.0]))
    assert level[:, 0].sum() == 2**WEIGHT_BITS


def test_histograms_over_other_ranges_or_categories_do_not_merge():
    def made(half=1.0, variables=None, weighted=False):
        return ColumnHistogram(
            2,
            precision="double",
            preparation=range_of(np.zeros(2), np.full(2, half), holes=False),
            variables=variables,
            weighted=weighted,
        )

    for other in (made(2.0), made(variables=np.zeros(2)), made(weighted=True)):
        with pytest.raises(DataError) as caught:
            made().merge(other)
        assert caught.value.code == "merge-mismatch"
    made().merge(made())
