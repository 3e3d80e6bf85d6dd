"""The real sums against their recorded sensitivity: no row, however nasty, moves one further.

A sum is that of each of its rows alone (test_monoid_laws), so that a row more moves it by what the
row alone adds, and a row replaced by the difference of two.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_tools import (
    COUNT_WEIGHT,
    DOCUMENT_SUMS,
    EVERY_SUM,
    LONG,
    PRECISIONS,
    SEEDS,
    SHORT,
    Summed,
    corpus,
    holed_rows,
    make,
    nasty_rows,
    random_basis,
    record_of,
    total,
)

from eigenveil.moments.accumulators import ComponentEnergy, Sketch
from eigenveil.moments.rows import DTYPE, RowRule
from soak_tools import seldom

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
    "scores": ("gaussian", "laplace"),
    "sketch": ("gaussian",),
    "energy": ("gaussian", "laplace"),
    "third moment": ("gaussian", "vector"),
    "em sums": ("gaussian", "vector"),
    "em sums, full": ("gaussian",),
    "em sums, tied": ("gaussian",),
    "em means": ("gaussian",),
}
OF_HOLED = {
    "observed entries": ("gaussian", "laplace"),
    "observed pairs": ("gaussian", "vector"),
    "histogram of what is observed": ("gaussian", "laplace"),
    "moment of what is observed": ("gaussian", "wishart"),
}
HOLED = [
    (kind, noise, precision)
    for kind, noises in OF_HOLED.items()
    for noise in noises
    for precision in PRECISIONS
]
CASES = [(kind, noise) for kind, noises in NOISE.items() for noise in noises]
OF_ROWS = [(*case, precision) for case in CASES for precision in PRECISIONS]
WISHART = ("coarse pairs", "nuclear pairs")
OF_DOCUMENTS = [(kind, "wishart" if kind in WISHART else "gaussian") for kind in DOCUMENT_SUMS]
OF_DOCUMENTS += [(kind, "vector") for kind in ("pairs", "sketch", "triples", "nuclear pairs")]
OF_DOCUMENTS += [("clipped sketch", "vector"), ("norms of pairs", "laplace")]
every_precision = pytest.mark.parametrize("precision", PRECISIONS)


def empty_sum(kind, noise, precision, bound=0.0):
    # Wishart noise lives on a coarser grid than rows in double precision
    extra_bits = -8 if (noise, precision) == ("wishart", "double") else 0
    return make(kind, D, precision, bound=bound, extra_bits=extra_bits)


def moved(change, noise, grid):
    """Length of a change of integers, squared for the L2 norms, as an exact fraction.

    The Frobenius norm of a symmetric matrix is the L2 norm of its isometric coordinates. Its trace
    is its nuclear norm where it is semidefinite, as what rows add is, and else no more than that.
    """
    unit = Fraction(2) ** grid
    if noise == "laplace":
        return sum(abs(int(c)) for c in change.ravel()) * unit
    if noise == "wishart":
        values = np.linalg.eigvalsh(change.astype(float) * 2.0**grid)
        nuclear = Fraction(float(np.abs(values).sum()) * (1 - 1e-12))
        return max(nuclear, abs(int(np.trace(change))) * unit)
    return sum(int(c) ** 2 for c in change.ravel()) * unit**2


def claimed(record):
    sensitivity = Fraction(record.sensitivity())
    return sensitivity if record.noise.kind in ("laplace", "wishart") else sensitivity**2


def no_row_moves_further(summed, noise, rows):
    empty = summed.make(rows.shape[1])
    alone = [summed.over(row[None]).integers().astype(object) for row in rows]
    # a square root such as that of 1 + c^2 is rounded: one part in 10^15 of leeway
    added, replaced = (
        claimed(record_of(empty, noise, adjacency)) * (1 + Fraction(1, 10**15))
        for adjacency in ("add-remove", "replace-one")
    )
    assert all(moved(one, noise, empty.grid) <= added for one in alone)
    for place, one in enumerate(alone):
        for other in alone[:place]:
            if noise == "wishart":  # a removal and an addition
                change = moved(one, noise, empty.grid) + moved(other, noise, empty.grid)
            else:
                change = moved(one - other, noise, empty.grid)
            assert change <= replaced


@pytest.mark.parametrize(("kind", "noise", "precision"), OF_ROWS)
@settings(max_examples=seldom(60))
@given(seed=SEEDS, bound=st.sampled_from([0.0, 1.0, 1e3]))
def test_a_row_moves_a_sum_by_no_more_than_recorded(kind, noise, precision, seed, bound):
    summed = Summed(lambda d: empty_sum(kind, noise, precision, bound), nasty_rows)
    left_out = np.full((1, D), np.nan, DTYPE[precision])
    assert not summed.over(left_out).integers().any()
    rows = nasty_rows(20, D, seed, precision)
    no_row_moves_further(summed, noise, np.concatenate([rows, left_out]))


@pytest.mark.parametrize(("kind", "noise", "precision"), HOLED)
@settings(max_examples=seldom(60))
@given(seed=SEEDS, bound=st.sampled_from([0.0, 1.0, 1e3]))
def test_a_row_with_missing_entries_moves_a_sum_by_no_more_than_recorded(
    kind, noise, precision, seed, bound
):
    summed = Summed(lambda d: empty_sum(kind, noise, precision, bound), holed_rows)
    whole, none, infinite = np.ones(D), np.full(D, np.nan), np.array([np.inf, *[np.nan] * (D - 1)])
    extremes = np.array([whole, none, infinite], DTYPE[precision])
    assert not summed.over(extremes[2:]).integers().any(), "an infinite entry leaves a row out"
    rows = holed_rows(20, D, seed, precision)
    no_row_moves_further(summed, noise, np.concatenate([rows, extremes]))


@pytest.mark.parametrize(("kind", "noise"), OF_DOCUMENTS)
@settings(max_examples=seldom(50))
@given(SEEDS)
def test_a_document_moves_a_sum_by_no_more_than_recorded(kind, noise, seed):
    words = np.eye(5, dtype=int)
    fixed = np.array(SHORT[::3] + LONG[::3])
    rows = np.concatenate([corpus(8, 5, seed), fixed, 3 * words, 3 + 70_000 * words])
    no_row_moves_further(EVERY_SUM[kind], noise, rows)


WORST = {
    "histogram": ([1, 0, 0, 0], [30, 0, 0, 0]),
    "column histogram": ([1, 1, 1, 1], [-1, 30, 0, 1e12]),
    "column ranges": ([1, 1, 1, 0], [-1e3, -1e3, 0, 1]),
    "row sum": ([1, 0, 0, 0], [-1, 0, 0, 0]),
    "second moment": ([1, 0, 0, 0], [0, 1, 0, 0]),
    "residual moment": ([0, 1, 0, 0], [0, 0, 1, 0]),
    "energy": random_basis(D, 3).T[:2],
    "third moment": random_basis(D, 3).T[0] * [[1], [-1]],
}


@every_precision
@pytest.mark.parametrize(("kind", "noise"), [c for c in CASES if c[0] in WORST])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_the_worst_rows_nearly_reach_it(kind, noise, adjacency, precision):
    """Prepared rows are a little shorter than their bound, by a share known beforehand."""
    empty = empty_sum(kind, noise, precision)
    one, other = (total(empty.empty(), np.array([row], dtype=float)) for row in WORST[kind])
    change = one
    if adjacency == "replace-one":
        change = one + other if noise == "wishart" else one - other
        assert kind != "row sum" or change[-1] == 0, "the count moves where one is left out"
    slack = 0.98 if precision == "single" or noise == "wishart" else 0.999
    most = claimed(record_of(empty, noise, adjacency))
    assert slack * most <= moved(change, noise, empty.grid) <= most * (1 + Fraction(1, 10**15))


@pytest.mark.parametrize("clip", [0.1, 0.5, 1.0])
@every_precision
def test_a_row_in_the_sketched_space_nearly_reaches_the_sketch_bound(clip, precision):
    basis = random_basis(D, 3)
    sketch = Sketch(RowRule(precision=precision), basis, clip=clip)
    change = total(sketch.empty(), 7 * basis.T[:1])
    assert 0.97 < float(moved(change, "gaussian", sketch.grid)) <= 1.0
    outside = np.linalg.svd(basis.T)[2][3:]
    inside = 0.5 * clip  # the sketched part is below the clip and stays as it is
    row = inside * basis.T[:1] + math.sqrt(1 - inside**2) * outside
    assert moved(total(sketch, row), "gaussian", sketch.grid) == pytest.approx(0.25, rel=0.05)


@given(seed=SEEDS, tilt=st.floats(0, 0.5))
def test_components_that_are_not_quite_orthonormal_pay_for_it(seed, tilt):
    """The gain is computed from the rounded components: here also from badly skewed ones."""
    rng = np.random.default_rng(seed)
    components = random_basis(D, 2).T + tilt * rng.standard_normal((2, D)) / 2
    for precision in PRECISIONS:
        energy = ComponentEnergy(RowRule(precision=precision), components, count_weight=0.0)
        most = claimed(record_of(energy, "laplace"))
        worst = np.linalg.svd(components)[2][:1]
        share = moved(total(energy, worst), "laplace", energy.grid)
        assert share <= most
        assert float(share) >= 0.97 * float(most)


def test_one_row_with_a_weight_beside_it_is_what_a_public_weight_says():
    energy = make("energy", D)
    assert total(energy, np.zeros((1, D)))[-1] == COUNT_WEIGHT * 2**-energy.grid
