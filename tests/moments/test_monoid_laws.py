"""All sums are monoids, bit for bit: no split, order, merge or thread changes an integer."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sums_tools import EVERY_SUM, KINDS, PRECISIONS, SEEDS, make, nasty_rows, python, same

from eigenveil.errors import DataError
from eigenveil.moments.accumulators import RowSum, SecondMoment
from eigenveil.moments.engine import accumulate
from eigenveil.moments.histograms import NormHistogram
from eigenveil.moments.rows import Block, RowRule
from eigenveil.moments.source import ArrayRows
from soak_tools import seldom, times

D = 5
every_sum = pytest.mark.parametrize("summed", EVERY_SUM.values(), ids=EVERY_SUM)
every_kind = pytest.mark.parametrize("kind", KINDS)
every_precision = pytest.mark.parametrize("precision", PRECISIONS)


def cut_up(data, summed, most=20):
    """Rows, and the same rows cut into blocks."""
    count = data.draw(st.integers(0, most))
    rows = summed.rows(count, D, data.draw(SEEDS))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=6)))
    return rows, np.split(rows, cuts)


@every_sum
@settings(max_examples=times(100))
@given(data=st.data())
def test_a_sum_is_that_of_its_rows_in_any_blocks_and_order(summed, data):
    rows, blocks = cut_up(data, summed)
    whole = summed.over(rows)
    assert same(whole, summed.over(*data.draw(st.permutations(blocks))))
    shuffled = rows[np.random.default_rng(data.draw(SEEDS)).permutation(len(rows))]
    assert same(whole, summed.over(shuffled))
    if len(rows):
        alone = sum(python(summed.over(row[None])) for row in rows)
        assert np.array_equal(python(whole), alone), "each row alone, in Python's integers"


@every_sum
@settings(max_examples=times(100))
@given(data=st.data())
def test_merge_is_associative_and_commutative_with_fresh_as_identity(summed, data):
    parts = [cut_up(data, summed, 8)[0] for _ in range(3)]
    whole = summed.over(*parts)
    a, b, c = map(summed.over, parts)
    b.merge(c)
    a.merge(b)
    assert same(a, whole)
    assert same(b, summed.over(*parts[1:])), "what is merged is left unchanged"
    a, b, c = map(summed.over, parts)
    c.merge(a)
    c.merge(b)
    assert same(c, whole)
    empty = whole.empty()
    assert not empty.integers().any()
    empty.merge(whole)
    whole.merge(whole.empty())
    assert same(empty, whole)
    # and a sum goes on after it has been merged and read
    whole.update(summed.block(parts[0]))
    assert same(whole, summed.over(*parts, parts[0]))


@every_sum
@settings(max_examples=times(50))
@given(data=st.data())
def test_reading_and_settling_change_nothing(summed, data):
    rows, blocks = cut_up(data, summed)
    found = summed.make(D)
    for block in blocks:
        found.update(summed.block(block))
        found.flush()
        found.integers()[...] = 7  # a copy
    assert same(found, summed.over(rows))


@every_precision
@settings(max_examples=seldom(60))
@given(threads=st.sampled_from([1, 2, 3, 8]), seed=SEEDS, rows_a_block=st.integers(1, 60))
def test_any_number_of_threads_gives_the_same_integers(threads, precision, seed, rows_a_block):
    rows = nasty_rows(150, D, seed, precision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: set(range(threads)))
        sums = [make(kind, D, precision) for kind in KINDS]
        reported = []
        source = ArrayRows(rows, rows_a_block=rows_a_block)
        assert accumulate(source, sums, progress=reported.append).rows == 150 == sum(reported)
    for kind, parallel in zip(KINDS, sums, strict=True):
        assert same(parallel, EVERY_SUM[f"{kind}, {precision}"].over(rows))


@every_kind
def test_sums_with_a_center_are_order_free_too(kind):
    rows = np.random.default_rng().standard_normal((60, D)) + 3
    center = rows.mean(axis=0)
    sums = [make(kind, D, center=center, bound=1.5) for _ in range(2)]
    sums[0].update(Block(rows))
    for row in rows[::-1]:
        sums[1].update(Block(row[None]))
    assert same(*sums)


def test_more_rows_than_wait_for_a_product():
    rows = np.random.default_rng().standard_normal((9000, 3))
    one, other = (make("second moment", 3) for _ in range(2))
    one.update(Block(rows))
    for part in np.split(rows, [1, 4095, 4096, 4097, 8500]):
        other.update(Block(part))
    assert same(one, other)
    assert same(one, other), "reading twice"


def refuses(mine, theirs):
    before = python(mine)
    with pytest.raises(DataError) as caught:
        mine.merge(theirs)
    assert caught.value.code == "merge-mismatch"
    assert np.array_equal(python(mine), before)


def merges(name, other, features):
    """Whether a sum over D features merges with another kind's over so many."""
    if name == other:
        return features == D or name.startswith("histogram")
    return name.startswith("energy, ") and other.startswith("energy, ") and features == D


@pytest.mark.parametrize("name", EVERY_SUM)
def test_sums_of_different_kinds_sizes_or_grids_do_not_merge(name):
    for other, summed in EVERY_SUM.items():
        for features in (4, D):  # at 4 the sizes of two kinds agree
            if not merges(name, other, features):
                refuses(EVERY_SUM[name].make(D), summed.make(features))


PREPARED_OTHERWISE = {
    "bound": lambda kind: make(kind, D, bound=2.0),
    "center": lambda kind: make(kind, D, center=np.ones(D)),
}


@pytest.mark.parametrize("kind", [k for k in KINDS if k == "seen histogram" or "histo" not in k])
@pytest.mark.parametrize("otherwise", PREPARED_OTHERWISE)
def test_sums_of_rows_prepared_otherwise_do_not_merge(kind, otherwise):
    if kind != "column ranges":  # which have no bound and no centre
        refuses(make(kind, D), PREPARED_OTHERWISE[otherwise](kind))


def test_sums_of_another_count_weight_do_not_merge():
    rule = RowRule()
    refuses(*(RowSum(rule, features=D, count_weight=w) for w in (0.25, 1.0)))


def test_histograms_of_what_is_seen_through_another_basis_do_not_merge():
    def histogram(basis):
        return NormHistogram(None, precision="double", basis=basis, bound=1.0)

    refuses(histogram(np.eye(D)), histogram(np.eye(D)[::-1]))
    refuses(histogram(np.eye(D)), histogram(None))


def test_an_empty_moment_holds_no_matrix():
    moment = make("second moment", 5000)
    assert isinstance(moment, SecondMoment)
    assert moment._sum._pending is None
