"""One pass over the rows: where rows come from, and what is said when one is unusable."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sums_tools import SEEDS, make

from eigenveil.errors import DataError
from eigenveil.moments.engine import accumulate
from eigenveil.moments.source import ArrayRows, SparseRows, block_rows

D = 4
NAMES = ["age", "height", "weight", "blood pressure"]


@given(
    st.integers(0, 400),
    st.integers(0, D - 1),
    st.integers(1, 100),
    st.sampled_from([np.nan, np.inf]),
)
def test_an_invalid_row_is_named_by_origin_row_and_column(row, column, rows_a_block, value):
    rows = np.ones((401, D))
    rows[row, column] = value
    source = ArrayRows(rows, names=NAMES, origin="clinic.csv", rows_a_block=rows_a_block)
    found = accumulate(source, [make("second moment", D), make("histogram", D)])
    place = f"clinic.csv: row index {row} (from 0), column {NAMES[column]!r} is {value}"
    assert found.rows == 401
    assert (found.invalid.count, found.invalid.first) == (1, place)
    assert str(found.invalid).endswith(place)


def test_without_names_the_place_is_numbered():
    rows = np.ones((10, D))
    rows[7, 2] = -np.inf
    assert accumulate(ArrayRows(rows), [make("row sum", D)]).invalid.first == (
        "row index 7, column index 2 (from 0) is -inf"
    )


@given(SEEDS, st.integers(1, 40))
def test_the_first_of_many_is_named_whichever_worker_met_it(seed, rows_a_block):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((200, D))
    broken = rng.random(200) < 0.3
    rows[broken, rng.integers(D)] = np.nan
    found = accumulate(ArrayRows(rows, rows_a_block=rows_a_block), [make("second moment", D)])
    if not broken.any():
        assert found.invalid is None
        return
    assert found.invalid.count == broken.sum()
    assert found.invalid.first.startswith(f"row index {np.argmax(broken)}, ")


def test_valid_rows_are_checked_and_nothing_is_said():
    assert accumulate(ArrayRows(np.ones((10, D))), [make("row sum", D)]).invalid is None


def test_an_error_of_the_source_comes_through():
    class Torn(ArrayRows):
        def blocks(self):
            yield from super().blocks()
            raise DataError.relayed("the file ends early", code="problem")

    source = Torn(np.ones((50, D)), rows_a_block=10)
    with pytest.raises(DataError, match="ends early"):
        accumulate(source, [make("row sum", D)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_and_dense_rows_give_the_same_sums(dtype):
    matrix = scipy.sparse.random(3000, D, 0.3, format="csc", dtype=dtype)
    sums = [make("second moment", D), make("second moment", D)]
    for rows, accumulator in zip(
        (SparseRows(matrix), ArrayRows(matrix.toarray())), sums, strict=True
    ):
        assert rows.features == D
        assert accumulate(rows, [accumulator]).rows == 3000
    assert np.array_equal(sums[0].integers(), sums[1].integers())


@given(SEEDS, st.integers(1, 50))
def test_blocks_are_consecutive_views_that_know_where_they_start(seed, step):
    rows = np.random.default_rng(seed).standard_normal((123, 3))
    blocks = list(ArrayRows(rows, origin="here", rows_a_block=step).blocks())
    assert np.array_equal(np.concatenate([b.values for b in blocks]), rows)
    assert all(np.shares_memory(b.values, rows) for b in blocks)
    assert [b.first_row for b in blocks] == list(range(0, 123, step))
    assert {b.origin.name for b in blocks} == {"here"}


@pytest.mark.parametrize("features", [1, 10, 784, 5000, 10**6])
def test_blocks_are_a_power_of_two_of_bounded_size(features):
    rows = block_rows(features)
    assert rows & (rows - 1) == 0
    assert 512 <= rows <= 1 << 16
    assert rows * features <= 1 << 20 or rows == 512


def test_no_rows_are_no_error():
    moment = make("second moment", D)
    assert accumulate(ArrayRows(np.zeros((0, D))), [moment]).rows == 0
    assert not moment.integers().any()
