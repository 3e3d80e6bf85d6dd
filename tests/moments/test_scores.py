"""Cells of scores: which one a row is in, whatever rows are beside it."""

import contextlib
import dataclasses

import numpy as np
import pytest
from sums_tools import nasty_rows, random_basis

from eigenveil.moments.rows import Block, RowRule, RowWeights
from eigenveil.moments.scores import ScoreHistogram
from statistics_tools import mutant

FEATURES, CELLS = 4, 5


def histogram(precision="double", columns=2, *, cells=CELLS, **given):
    basis = random_basis(FEATURES, columns)
    rule = RowRule(np.full(FEATURES, 0.25), 2.0, precision, basis=basis, clip=0.5)
    return ScoreHistogram(rule, cells=cells, **given)


def wanted(total, rows):
    """By the definition: of each row alone, in floating point, of its prepared row."""
    found = np.zeros(total.shape)
    for row in rows:
        block = Block(row[None].copy())
        seen = np.ldexp(total.rule(block)[0][0].astype(float), -total.rule.bits)
        if block.left_out.size:
            continue
        parts = np.minimum(np.floor((seen + 1.0) / 2.0 * total.cells), total.cells - 1)
        found[int(parts @ total.cells ** np.arange(parts.size)[::-1])] += 1
    return found


def agrees(precision, columns):
    total, rows = histogram(precision, columns), nasty_rows(300, FEATURES, 3)
    rows[5, 2], rows[8] = np.nan, 0.0
    total.update(Block(rows.copy()))
    return np.array_equal(total.integers(), wanted(total, rows))


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("columns", [1, 2])
def test_a_row_is_in_the_cell_of_its_own_score(precision, columns):
    assert agrees(precision, columns)


@pytest.mark.parametrize(
    ("old", "new"),
    [("bits + 1)", "bits)"), ("self.cells - 1", "self.cells - 2"), ("along[:, 0]", "along[:, -1]")],
)
def test_other_cells_are_found_out(old, new, monkeypatch):
    monkeypatch.setattr(ScoreHistogram, "_places", mutant(ScoreHistogram._places, old, new))
    with contextlib.suppress(IndexError, ValueError):  # a cell that there is not
        assert not agrees("double", 2)


def by_groups():
    """Whether rows are in the cells of their own group: the first of its largest entries above a
    half, whatever rows are beside it."""
    plain, total = histogram(), histogram(groups=(1, 3))
    rows = nasty_rows(300, FEATURES, 3)
    rows[:, [1, 3]] = np.random.default_rng(5).choice([0.0, 0.5, 1.0, 2.0], (300, 2))
    rows[5, 2], rows[8] = np.nan, 0.0
    total.update(Block(rows.copy()))
    found = np.zeros((2, *plain.shape))
    for row in rows:
        own = row[1] if row[1] >= row[3] else row[3]
        if own > 0.5:
            found[int(row[3] > row[1])] += wanted(plain, row[None])
    return np.array_equal(total.integers(), found.ravel())


def test_a_row_is_in_the_cells_of_its_group():
    assert by_groups()


@pytest.mark.parametrize(
    ("old", "new"),
    [("> _PRESENT", ">= _PRESENT"), ("argmax", "argmin"), ("found, -1)", "found, 0)")],
)
def test_other_groups_are_found_out(old, new, monkeypatch):
    monkeypatch.setattr(ScoreHistogram, "_group", mutant(ScoreHistogram._group, old, new))
    assert not by_groups()


def test_both_ends_are_cells():
    """A row at the end of the range is in the last cell, one at the other end in the first."""
    rule = RowRule(bound=1.0, basis=np.eye(1))
    total = ScoreHistogram(rule, cells=3)
    whole = 1 << rule.bits
    assert total._places(np.array([[-whole], [-whole + 1], [0], [whole]])).tolist() == [0, 0, 1, 2]


def test_weighted_rows_of_a_unit_count_one_together():
    total = histogram(weighted=True)
    rows = np.tile(nasty_rows(1, FEATURES, 1), (7, 1))
    weights = RowWeights(np.full(7, 7), np.arange(7))
    total.update(Block(rows, weights=weights))
    assert total.integers().sum() == 1 << 24
    assert np.count_nonzero(total.integers()) == 1


def test_histograms_of_other_cells_do_not_merge():
    first = histogram()
    others = [histogram(cells=6), histogram(weighted=True), histogram(groups=(0, 1))]
    others.append(ScoreHistogram(dataclasses.replace(first.rule, clip=0.25), cells=CELLS))
    for other in others:
        with pytest.raises(Exception, match="merge") as caught:
            first.merge(other)
        assert caught.value.code == "merge-mismatch"
