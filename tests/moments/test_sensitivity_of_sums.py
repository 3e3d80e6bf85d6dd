"""The real sums against their recorded sensitivity: no row, however nasty, moves one further."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sums_tools import COUNT_WEIGHT, PRECISIONS, SEEDS, make, nasty_rows, random_basis, total

from eigenveil.moments.accumulators import ComponentEnergy, Sketch
from eigenveil.moments.rows import DTYPE, RowRule
from eigenveil.privacy.budget import StepBudget
from eigenveil.privacy.calibration import calibrated_record

D = 4
NOISE = {
    "histogram": ("gaussian", "laplace"),
    "column histogram": ("gaussian", "laplace"),
    "column ranges": ("gaussian", "laplace"),
    "row sum": ("gaussian", "vector"),
    "second moment": ("gaussian", "wishart"),
    "residual moment": ("gaussian", "wishart"),
    "seen moment": ("gaussian", "wishart"),
    "seen sum": ("gaussian", "vector"),
    "sketch": ("gaussian",),
    "energy": ("gaussian", "laplace"),
    "third moment": ("gaussian", "vector"),
    "em sums": ("gaussian", "vector"),
    "em sums, full": ("gaussian",),
    "em sums, tied": ("gaussian",),
    "em means": ("gaussian",),
}
CASES = [(kind, noise) for kind, noises in NOISE.items() for noise in noises]
every_case = pytest.mark.parametrize(("kind", "noise"), CASES)
every_precision = pytest.mark.parametrize("precision", PRECISIONS)


def empty_sum(kind, noise, precision, adjacency="add-remove", bound=0.0):
    # Wishart noise lives on a coarser grid than rows in double precision
    extra_bits = -8 if (noise, precision) == ("wishart", "double") else 0
    return make(kind, D, precision, bound=bound, extra_bits=extra_bits)


def record_of(accumulator, noise, adjacency):
    budget = StepBudget(mu=1.0) if noise == "gaussian" else StepBudget(epsilon=1.0)
    return calibrated_record(accumulator, name="a", adjacency=adjacency, kind=noise, budget=budget)


def moved(change, noise, grid):
    """Length of a change of integers, squared for the L2 norms, as an exact fraction.

    The Frobenius norm of a symmetric matrix is the L2 norm of its isometric coordinates. For
    Wishart noise a change by one row has rank one: its trace is its nuclear norm.
    """
    unit = Fraction(2) ** grid
    if noise == "laplace":
        return sum(abs(int(c)) for c in change.ravel()) * unit
    if noise == "wishart":
        return abs(int(np.trace(change))) * unit
    return sum(int(c) ** 2 for c in change.ravel()) * unit**2


def claimed(record, noise):
    sensitivity = Fraction(record.sensitivity())
    return sensitivity if noise in ("laplace", "wishart") else sensitivity**2


@every_case
@every_precision
@given(seed=SEEDS, bound=st.sampled_from([0.0, 1.0, 1e3]))
def test_one_row_more_moves_a_sum_by_no_more_than_recorded(kind, noise, precision, seed, bound):
    def empty():
        return empty_sum(kind, noise, precision, bound=bound)

    rows = nasty_rows(12, D, seed, precision)
    base = total(empty(), rows)
    record = record_of(empty(), noise, "add-remove")
    # a square root such as that of 1 + c^2 is rounded: one part in 10^15 of leeway
    most = claimed(record, noise) * (1 + Fraction(1, 10**15))
    for row in nasty_rows(20, D, seed + 1, precision):
        more = total(empty(), np.concatenate([rows, row[None]]))
        assert moved(more - base, noise, empty().grid) <= most


@every_case
@every_precision
@given(seed=SEEDS)
def test_a_row_replaced_moves_a_sum_by_no_more_than_recorded(kind, noise, precision, seed):
    def empty():
        return empty_sum(kind, noise, precision, "replace-one")

    record = record_of(empty(), noise, "replace-one")
    most = claimed(record, noise) * (1 + Fraction(1, 10**15))
    contributions = [total(empty(), row[None]) for row in nasty_rows(12, D, seed, precision)]
    contributions.append(total(empty(), np.full((1, D), np.nan, DTYPE[precision])))  # left out
    assert not contributions[-1].any()
    for one in contributions:
        for other in contributions:
            if noise == "wishart":  # a removal and an addition
                change = moved(one, noise, empty().grid) + moved(other, noise, empty().grid)
            else:
                change = moved(one - other, noise, empty().grid)
            assert change <= most


WORST = {
    "histogram": ([1, 0, 0, 0], [30, 0, 0, 0]),
    "column histogram": ([1, 1, 1, 1], [-1, 30, 0, 1e12]),
    "column ranges": ([1, 1, 1, 0], [-1e3, -1e3, 0, 1]),
    "row sum": ([1, 0, 0, 0], [-1, 0, 0, 0]),
    "second moment": ([1, 0, 0, 0], [0, 1, 0, 0]),
    "residual moment": ([0, 1, 0, 0], [0, 0, 1, 0]),
    "energy": ("first component", "second component"),
    "third moment": ("first component", "the opposite"),
}


@every_precision
@pytest.mark.parametrize(("kind", "noise"), [c for c in CASES if c[0] in WORST])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_worst_rows_nearly_reach_it(kind, noise, adjacency, precision):
    """Prepared rows are a little shorter than their bound, by a share known beforehand."""
    one, other = WORST[kind]
    if kind in ("energy", "third moment"):
        one, other = random_basis(D, 3).T[:2]
    if kind == "third moment":
        other = -one
    sums = [empty_sum(kind, noise, precision, adjacency) for _ in range(2)]
    change = total(sums[0], np.array([one], dtype=float))
    if adjacency == "replace-one":
        second = total(sums[1], np.array([other], dtype=float))
        change = change + second if noise == "wishart" else change - second
        assert kind != "row sum" or change[-1] == 0, "the count moves where one is left out"
    record = record_of(sums[0], noise, adjacency)
    slack = 0.98 if precision == "single" or noise == "wishart" else 0.999
    assert moved(change, noise, sums[0].grid) >= slack * claimed(record, noise)


@pytest.mark.parametrize("clip", [0.1, 0.5, 1.0])
@every_precision
def test_a_row_in_the_sketched_space_nearly_reaches_the_sketch_bound(clip, precision):
    basis = random_basis(D, 3)
    sketch = Sketch(RowRule(precision=precision), basis, clip=clip)
    change = total(sketch, 7 * basis.T[:1])
    assert 0.97 < float(moved(change, "gaussian", sketch.grid)) <= 1.0
    short = Sketch(RowRule(precision=precision), basis, clip=clip)
    outside = np.linalg.svd(basis.T)[2][3:]
    inside = 0.5 * clip  # the sketched part is below the clip and stays as it is
    row = inside * basis.T[:1] + math.sqrt(1 - inside**2) * outside
    assert moved(total(short, row), "gaussian", short.grid) == pytest.approx(0.25, rel=0.05)


@given(seed=SEEDS, tilt=st.floats(0, 0.5))
def test_components_that_are_not_quite_orthonormal_pay_for_it(seed, tilt):
    """The gain is computed from the rounded components: here also from badly skewed ones."""
    rng = np.random.default_rng(seed)
    components = random_basis(D, 2).T + tilt * rng.standard_normal((2, D)) / 2
    for precision in PRECISIONS:
        energy = ComponentEnergy(RowRule(precision=precision), components, count_weight=0.0)
        record = record_of(energy, "laplace", "add-remove")
        worst = np.linalg.svd(components)[2][:1]
        share = moved(total(energy, worst), "laplace", energy.grid)
        assert share <= claimed(record, "laplace")
        assert float(share) >= 0.97 * float(claimed(record, "laplace"))


def test_one_row_with_a_weight_beside_it_is_what_a_public_weight_says():
    energy = make("energy", D)
    assert total(energy, np.zeros((1, D)))[-1] == COUNT_WEIGHT * 2**-energy.grid
