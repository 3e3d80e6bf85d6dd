"""The real sums over units against their recorded sensitivity: no unit moves one further.

A wrong weight would be found here: each of two mutants, weights that are forgotten and weights by
block in place of by unit, is shown to move a sum beyond what is recorded.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sums_tools import (
    COUNT_WEIGHT,
    SEEDS,
    VARIANCE,
    by_block,
    by_unit,
    forgotten,
    nasty_rows,
    random_basis,
)

from eigenveil.moments.accumulators import ComponentEnergy, RowSum, SecondMoment, Sketch
from eigenveil.moments.em import EMSums, Mixture
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import Block, RowRule, RowWeights
from eigenveil.moments.third import ThirdMoment
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record

D = 4
KINDS = ("histogram", "row sum", "second moment", "sketch", "energy", "third moment", "em sums")
NOISE = {"histogram": "laplace", "second moment": "wishart", "energy": "laplace"}
CASES = [(kind, "gaussian") for kind in KINDS] + list(NOISE.items())
every_case = pytest.mark.parametrize(("kind", "noise"), CASES)


def make(kind, noise="gaussian", bound=0.0):
    rule = RowRule(bound=bound, extra_bits=-8 if noise == "wishart" else 0)
    match kind:
        case "histogram":
            return NormHistogram(None, precision="double", weighted=True)
        case "row sum":
            finer = RowRule(bound=bound, extra_bits=2)
            return RowSum(finer, features=D, count_weight=COUNT_WEIGHT)
        case "second moment":
            return SecondMoment(rule, features=D)
        case "sketch":
            return Sketch(rule, random_basis(D, 3), clip=0.5)
        case "energy":
            return ComponentEnergy(rule, random_basis(D, 3).T, count_weight=COUNT_WEIGHT)
        case "third moment":
            basis = random_basis(D, 3)
            return ThirdMoment(rule, basis, clip=0.5, variance=VARIANCE, weighted=True)
        case "em sums":
            mixture = Mixture(
                np.array([np.zeros(D), np.full(D, -0.5)]),
                np.zeros(2),
                np.full((2, 1), 20.0),
                np.full(2, 0.4),
            )
            return EMSums(rule, mixture, squares="full", weighted=True)


def total(accumulator, blocks):
    for block in blocks:
        accumulator.update(block)
    return accumulator.integers().astype(object)


def moved(change, noise, grid):
    """Length of a change in the norm that the noise is made for."""
    values = np.ldexp(change.astype(float), grid)
    match noise:
        case "laplace":
            return np.abs(values).sum()
        case "wishart":
            return np.abs(np.linalg.eigvalsh(values)).sum()
    return float(np.sqrt((values**2).sum()))


def claimed(accumulator, noise, adjacency="add-remove"):
    budget = StepBudget(mu=1.0) if noise == "gaussian" else StepBudget(epsilon=1.0)
    record = calibrated_record(
        accumulator, name="a", adjacency=adjacency, kind=noise, budget=budget
    )
    return record.sensitivity()


def farthest(kind, noise, weigh, units, *, most=1, bound=0.0, rest=None):
    """How far the farthest of some units moves a sum, over what is recorded."""
    rest = np.empty((0, D)) if rest is None else rest
    base = total(make(kind, noise, bound), weigh(rest, [0] * len(rest), most))
    found = 0.0
    for unit in units:
        rows, ids = np.concatenate([rest, unit]), [0] * len(rest) + [7] * len(unit)
        change = total(make(kind, noise, bound), weigh(rows, ids, most)) - base
        found = max(found, moved(change, noise, make(kind, noise).grid))
    return found / claimed(make(kind, noise, bound), noise)


@every_case
@given(
    seed=SEEDS,
    rows=st.integers(1, 40),
    most=st.sampled_from([1, 3, 100]),
    bound=st.sampled_from([0.0, 1.0, 1e3]),
)
def test_a_unit_more_moves_a_sum_by_no_more_than_recorded(kind, noise, seed, rows, most, bound):
    units = [nasty_rows(rows, D, seed + number) for number in range(3)]
    rest = nasty_rows(7, D, seed + 9)
    found = farthest(kind, noise, by_unit, units, most=most, bound=bound, rest=rest)
    assert found <= 1 + 1e-12


@every_case
@given(seed=SEEDS, rows=st.integers(1, 30), others=st.integers(1, 30), most=st.integers(1, 40))
def test_a_unit_replaced_moves_a_sum_by_no_more_than_recorded(
    kind, noise, seed, rows, others, most
):
    """Also the sum of weights, of the rows that are not left out."""
    first, second = nasty_rows(rows, D, seed), nasty_rows(others, D, seed + 1)
    second[np.random.default_rng(seed).random(others) < 0.3, 0] = np.nan
    one = total(make(kind, noise), by_unit(first, [1] * rows, most))
    two = total(make(kind, noise), by_unit(second, [1] * others, most))
    grid = make(kind, noise).grid
    if noise == "wishart":  # a removal and an addition
        change = moved(one, noise, grid) + moved(two, noise, grid)
    else:
        change = moved(one - two, noise, grid)
    assert change <= claimed(make(kind, noise), noise, "replace-one") * (1 + 1e-12)


ALIKE = {"energy": random_basis(D, 3).T[0], "third moment": random_basis(D, 3).T[0]}


def alike(kind, rows):
    row = random_basis(D, 3)[:, 0] if kind == "sketch" else ALIKE.get(kind, np.eye(D)[0])
    return np.tile(9.0 * row, (rows, 1))


@every_case
@pytest.mark.parametrize("rows", [1, 10, 3000])
def test_rows_that_are_alike_nearly_reach_it(kind, noise, rows):
    found = farthest(kind, noise, by_unit, [alike(kind, rows)])
    assert found >= (0.9 if noise == "wishart" and rows > 10 else 0.96)


@every_case
def test_forgotten_weights_would_be_found(kind, noise):
    assert farthest(kind, noise, forgotten, [alike(kind, 10)]) > 5


@every_case
def test_weights_by_block_would_be_found(kind, noise):
    assert farthest(kind, noise, by_block, [alike(kind, 10)]) > 2


def test_a_sum_without_weights_takes_no_rows_that_have_some():
    (block,) = by_unit(np.eye(D), [1, 1, 2, 2], step=9)
    histogram = NormHistogram(None, precision="double")
    with pytest.raises(AssertionError, match="weights"):
        histogram.update(block)


@given(seed=SEEDS, whole=st.sampled_from([1, 7, 2**8, 2**24, 2**30]), rows=st.integers(1, 4000))
def test_shares_of_a_unit_never_exceed_the_whole(seed, whole, rows):
    ranks = np.random.default_rng(seed).permutation(rows).astype(np.int64)
    shares = RowWeights(np.full(rows, rows), ranks).shares(whole)
    assert shares.min() >= 0
    assert shares.sum() == whole


def sums_of(rows, ids, step):
    return [total(make(kind), by_unit(rows, ids, 2, step)) for kind in KINDS]


@given(seed=SEEDS, step=st.integers(1, 30))
def test_how_rows_lie_in_blocks_changes_no_sum(seed, step):
    rng = np.random.default_rng(seed)
    rows, ids = nasty_rows(30, D, seed), rng.integers(0, 6, 30)
    for one, other in zip(sums_of(rows, ids, 30), sums_of(rows, ids, step), strict=True):
        assert np.array_equal(one, other)


@given(seed=SEEDS)
def test_the_order_of_units_and_their_names_change_no_sum(seed):
    rng = np.random.default_rng(seed)
    rows, ids = nasty_rows(30, D, seed), rng.integers(0, 6, 30)
    order = np.argsort(rng.permutation(6)[ids], kind="stable")  # within a unit as they were
    names = np.array(["b", "a", "x", "0", "zz", "12"])[ids]
    for one, other in zip(
        sums_of(rows, ids, 9), sums_of(rows[order], names[order], 9), strict=True
    ):
        assert np.array_equal(one, other)


def test_rows_without_weights_are_units_of_one_row():
    rows = nasty_rows(30, D, 1)
    for kind in ("row sum", "second moment", "sketch", "energy"):
        alone = make(kind)
        alone.update(Block(rows))
        assert np.array_equal(alone.integers(), total(make(kind), by_unit(rows, range(30))))
