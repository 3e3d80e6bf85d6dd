"""The papers' error of components, whatever their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil.errors import DataError
from eigenveil_papers.reproduction.paper001_tensor_panels import component_error

ROWS = st.integers(1, 5).flatmap(
    lambda columns: st.tuples(
        *(
            st.integers(1, 4).flatmap(
                lambda count: arrays(np.float64, (count, columns), elements=st.floats(-9, 9))
            )
            for _ in range(2)
        )
    ).map(lambda pair: sorted(pair, key=len))
)


def apart(a, b):
    return float(np.sqrt(np.sum((a - b) ** 2)))


@given(ROWS)
def test_the_papers_error_is_the_mean_distance_to_the_nearest(rows):
    for found, true in (rows, rows[::-1]):
        nearest = [min(apart(f, t) for t in true) for f in found]
        assert component_error(found, true) == pytest.approx(np.mean(nearest), abs=1e-9)


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 2**32))
def test_order_does_not_count_and_distances_are_lengths(count, columns, seed):
    rng = np.random.default_rng(seed)
    true = rng.standard_normal((count + 2, columns))
    assert component_error(true[rng.permutation(count + 2)[:count]], true) == 0.0
    found = rng.standard_normal((count, columns))
    error, again = component_error(found, true), rng.permutation(count)
    assert component_error(found[again], true[::-1]) == pytest.approx(error)
    turn = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    assert component_error(3 * found @ turn, 3 * true @ turn) == pytest.approx(3 * error)


def test_a_component_that_was_found_twice_costs_nothing():
    true = np.eye(3)
    assert component_error(true[[0, 0, 1]], true) == 0.0
    assert component_error(true, true[:2]) == pytest.approx(np.sqrt(2) / 3)


TWO = np.eye(2)


@pytest.mark.parametrize(
    ("found", "true", "code"),
    [
        (np.ones(2), TWO, "component-shape"),
        (TWO, np.eye(3), "component-shape"),
        (np.empty((0, 2)), TWO, "component-values"),
        (TWO, np.empty((0, 2)), "component-values"),
        (TWO * np.nan, TWO, "component-values"),
        (TWO, np.full((2, 2), np.inf), "component-values"),
    ],
)
def test_rows_that_cannot_be_compared_are_refused(found, true, code):
    with pytest.raises(DataError) as refused:
        component_error(found, true)
    assert refused.value.code == code
    assert refused.value.hint
