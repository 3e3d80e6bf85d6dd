"""Errors of components in whatever order, against all pairings tried."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenveil.errors import DataError
from eigenveil_papers.reproduction.matching import component_error, matched, matched_error

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


def best_pairing(found, true):
    choices = permutations(range(len(true)), len(found))
    return min(sum(apart(f, true[i]) for f, i in zip(found, c, strict=True)) for c in choices)


@given(ROWS)
def test_no_other_pairing_is_closer(rows):
    found, true = rows
    order, distances = matched(found, true)
    assert order.shape == distances.shape == (len(found),)
    assert len(set(order.tolist())) == len(found)
    assert np.allclose(distances, [apart(f, true[i]) for f, i in zip(found, order, strict=True)])
    assert np.sum(distances) == pytest.approx(best_pairing(found, true), abs=1e-9)
    assert matched_error(found, true) == pytest.approx(np.mean(distances), abs=1e-12)


@given(ROWS)
def test_the_papers_error_is_the_mean_distance_to_the_nearest(rows):
    for found, true in (rows, rows[::-1]):
        nearest = [min(apart(f, t) for t in true) for f in found]
        assert component_error(found, true) == pytest.approx(np.mean(nearest), abs=1e-9)
    assert component_error(*rows) <= matched_error(*rows) + 1e-9


@given(st.integers(1, 8), st.integers(1, 6), st.integers(0, 2**32))
def test_order_is_recovered_and_does_not_count(count, columns, seed):
    rng = np.random.default_rng(seed)
    true = rng.standard_normal((count + 2, columns))
    mixed = rng.permutation(count + 2)[:count]
    order, distances = matched(true[mixed], true)
    assert np.array_equal(order, mixed)
    assert not np.any(distances)
    assert component_error(true[mixed], true) == 0.0
    found = rng.standard_normal((count, columns))
    again = rng.permutation(count)
    assert matched_error(found[again], true[::-1]) == pytest.approx(matched_error(found, true))
    assert component_error(found[again], true[::-1]) == pytest.approx(component_error(found, true))
    # distances are lengths: nothing changes in other axes, and they scale
    turn = np.linalg.qr(rng.standard_normal((columns, columns)))[0]
    assert matched_error(3 * found @ turn, 3 * true @ turn) == pytest.approx(
        3 * matched_error(found, true)
    )


def test_a_component_found_twice_costs_only_where_rows_are_matched():
    true = np.eye(3)
    found = true[[0, 0, 1]]
    assert component_error(found, true) == 0.0
    assert matched_error(found, true) == pytest.approx(np.sqrt(2) / 3)


def test_taking_the_nearest_left_row_by_row_would_not_do():
    """The mutant that the comparison with all pairings is there for."""
    found, true = np.array([[0.0], [1.0]]), np.array([[0.9], [-2.0]])
    left, greedy = [0, 1], 0.0
    for row in found:
        nearest = min(left, key=lambda i: apart(row, true[i]))
        left.remove(nearest)
        greedy += apart(row, true[nearest])
    assert greedy == pytest.approx(3.9)
    order, distances = matched(found, true)
    assert order.tolist() == [1, 0]
    assert distances.tolist() == pytest.approx([2.0, 0.1])


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
    for measure in (component_error, matched, matched_error):
        with pytest.raises(DataError) as refused:
            measure(found, true)
        assert refused.value.code == code
        assert refused.value.hint


def test_more_found_than_true_rows_have_no_matching():
    with pytest.raises(DataError) as refused:
        matched(np.eye(3), np.eye(3)[:2])
    assert refused.value.code == "too-few-rows"
    assert "3 rows" in refused.value.message
    assert component_error(np.eye(3), np.eye(3)[:2]) == pytest.approx(np.sqrt(2) / 3)
