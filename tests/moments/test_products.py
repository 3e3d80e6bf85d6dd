"""Products of what is seen of rows: what they are, how long, and how far their moment moves."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from sums_tools import SEEDS, by_unit, nasty_rows, random_basis

from eigenveil.errors import ProtocolError
from eigenveil.moments import rows as module
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.moments.describe import describe, rebuild
from eigenveil.moments.rows import BITS, Block, RowRule, products_of
from eigenveil.privacy.statistics import SQRT2
from soak_tools import seldom
from statistics_tools import mutant

FEATURES, COLUMNS = 6, 3


def rule_of(precision="double", bound=1.0, clip=0.5, columns=COLUMNS):
    basis = random_basis(FEATURES, columns)
    return RowRule(bound=bound, precision=precision, basis=basis, clip=clip, products=True)


def made_of(rule, rows):
    return np.ldexp(rule(Block(rows.copy()))[0].astype(float), -rule.bits)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_products_are_those_of_the_seen_row(precision):
    rule, rows = rule_of(precision), nasty_rows(300, FEATURES, 3)
    rows[5, 2], rows[8] = np.nan, 0.0
    seen = made_of(replace(rule, products=False), rows)
    first, second = np.tril_indices(COLUMNS)
    wanted = seen[:, first] * seen[:, second] * np.where(first == second, 1.0, SQRT2)
    # the margin that keeps rounding from lengthening rows, and rounding
    near = 2.0 ** (3 - BITS[precision])
    np.testing.assert_allclose(made_of(rule, rows), wanted, atol=near)


@settings(max_examples=seldom(100))
@given(seed=SEEDS)
def test_no_products_are_longer_than_the_bound(seed):
    for precision in ("single", "double"):
        rule = rule_of(precision, bound=float(seed % 3))
        found = rule(Block(nasty_rows(50, FEATURES, seed)))[0].astype(np.float64)
        assert np.max(np.sum(found**2, axis=1)) <= 4**rule.bits


def contribution(row, rule):
    total = SecondMoment(rule, features=FEATURES)
    total.update(Block(row[None].copy()))
    return np.ldexp(total.integers().astype(float), total.grid)


def farthest(adjacency, rule, seed=0):
    """Of many pairs of rows, along axes of the basis and between them."""
    rng = np.random.default_rng(seed)
    axes = [9.0 * column for column in rule.basis.T]
    rows = [*axes, *(9.0 * rule.basis @ rng.standard_normal(COLUMNS) for _ in range(40))]
    made = [contribution(row, rule) for row in rows]
    if adjacency == "add-remove":
        return max(np.linalg.norm(each) for each in made)
    return max(np.linalg.norm(one - other) for one in made for other in made)


@pytest.mark.parametrize(("adjacency", "claimed"), [("add-remove", 1.0), ("replace-one", SQRT2)])
def test_fourth_moments_move_as_far_as_claimed(adjacency, claimed):
    found = farthest(adjacency, rule_of())
    assert 0.999 * claimed < found <= claimed


@pytest.mark.parametrize("count", [2, 5, 20])
def test_a_persons_weight_multiplies_fourth_powers_once(count):
    """What rows of one person add up to is the mean of what each alone would be: z is seen without
    the root of the weight, which would count squared."""
    rule, rows = rule_of(bound=3.0), nasty_rows(count, FEATURES, count)
    alone = np.mean([contribution(row, rule) for row in rows], axis=0)
    together = SecondMoment(rule, features=FEATURES)
    for block in by_unit(rows, [7] * count, 1, 3):
        together.update(block)
    found = np.ldexp(together.integers().astype(float), together.grid)
    np.testing.assert_allclose(found, alone, atol=2.0**-10)
    assert np.linalg.norm(found) > 0.1


@pytest.mark.parametrize(("old", "new"), [("math.sqrt(2.0)", "2.0"), ("1.0, math", "1.5, math")])
def test_longer_products_are_found_out(old, new, monkeypatch):
    """Were products longer, rows would only be shortened more: no contribution is beyond 1, but the
    moment is another one."""
    monkeypatch.setattr(module, "products_of", mutant(products_of, old, new))
    rule, rows = rule_of(), nasty_rows(100, FEATURES, 3)
    seen = made_of(replace(rule, products=False), rows)
    lengths = np.linalg.norm(made_of(rule, rows), axis=1)
    assert np.max(lengths) <= 1.0
    assert np.max(np.abs(lengths - np.sum(seen**2, axis=1))) > 0.01


@pytest.mark.parametrize(
    "wrong", [{"kind": "row-sum"}, {"columns": 0}, {"columns": 21, "features": 30}]
)
def test_products_of_other_sums_are_refused(wrong):
    description, arrays = describe(SecondMoment(rule_of(), features=FEATURES), FEATURES)
    other = description.model_copy(update=wrong)
    columns, features = other.columns, other.features
    arrays = {"basis": np.eye(features)[:, :columns]} if columns else {}
    with pytest.raises(ProtocolError):
        rebuild(other, arrays)


def test_sums_with_and_without_products_do_not_merge():
    one = SecondMoment(rule_of(columns=1), features=FEATURES)
    other = SecondMoment(replace(rule_of(columns=1), products=False), features=FEATURES)
    with pytest.raises(Exception, match="merge") as caught:
        one.merge(other)
    assert caught.value.code == "merge-mismatch"
