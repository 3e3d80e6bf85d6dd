"""How many times more epsilon is needed for the same result."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil_papers.reproduction.numbers import Curve
from eigenveil_papers.reproduction.rule import matched_utility

EPSILONS = np.geomspace(0.01, 100.0, 13)


def curve(x, mean):
    x, mean = np.asarray(x, dtype=float), np.asarray(mean, dtype=float)
    return Curve(x, mean, np.zeros(x.size), np.zeros(x.size), np.ones(x.size, dtype=np.int64))


def utility(epsilon):
    return np.log10(epsilon) / 4.0 + 0.5  # a line in log epsilon: interpolation is exact


@given(st.floats(1.0, 50.0), st.floats(0.55, 0.95))
def test_a_curve_that_is_moved_by_a_factor_needs_that_factor(factor, level):
    ours, theirs = curve(EPSILONS, utility(EPSILONS * factor)), curve(EPSILONS, utility(EPSILONS))
    found = matched_utility(ours, theirs, level)
    if found.bound == "exact":
        assert found.ratio == pytest.approx(factor, rel=1e-9)
    else:  # ours is there from the start
        assert found.bound == "lower"
        assert found.ratio <= factor * (1 + 1e-9)
    assert matched_utility(theirs, ours, level).ratio == pytest.approx(1.0 / found.ratio, rel=1e-9)


def test_errors_are_compared_when_lower_is_better():
    ours, theirs = curve(EPSILONS, 1.0 / (4.0 * EPSILONS)), curve(EPSILONS, 1.0 / EPSILONS)
    found = matched_utility(ours, theirs, 1.0, higher=False)
    assert found.level == 1.0
    assert found.ratio == pytest.approx(4.0, rel=0.25)  # between points, as lines


def test_by_default_the_level_is_that_of_the_lower_end():
    ours, theirs = curve([0.1, 1, 10], [0.2, 0.6, 1.0]), curve([0.1, 1, 10], [0.1, 0.2, 0.6])
    assert matched_utility(ours, theirs) == (10.0, 0.6, "exact")
    assert matched_utility(theirs, ours).ratio == pytest.approx(0.1)


def test_a_dip_is_noise():
    ours, theirs = curve([0.1, 1, 10], [0.2, 0.6, 0.59]), curve([0.1, 1, 10], [0.0, 0.1, 0.6])
    assert matched_utility(ours, theirs).ratio == pytest.approx(10.0)


def test_bounds_are_said_to_be_bounds():
    ours, theirs = curve([0.1, 1, 10], [0.7, 0.8, 0.9]), curve([0.1, 1, 10], [0.1, 0.2, 0.6])
    found = matched_utility(ours, theirs)
    assert (found.ratio, found.bound) == (pytest.approx(100.0), "lower")
    never = matched_utility(ours, theirs, 0.8)
    assert (never.ratio, never.bound) == (pytest.approx(10.0), "lower")
    other = matched_utility(theirs, ours, 0.8)
    assert (other.ratio, other.bound) == (pytest.approx(0.1), "upper")
    assert matched_utility(theirs, ours)[::2] == (pytest.approx(0.01), "upper")


def test_what_cannot_be_compared_is_no_number():
    some, none = curve([1, 10], [0.5, 0.6]), curve([], [])
    for found in (
        matched_utility(some, none),
        matched_utility(none, some),
        matched_utility(some, some, 0.9),  # neither gets there
        matched_utility(some, some, 0.1),  # both are there from the start
    ):
        assert math.isnan(found.ratio)
