"""Categories apart from a row's other entries: exact counts, and no row longer than one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from sums_tools import SEEDS, nasty_rows

from eigenveil.errors import ProtocolError
from eigenveil.moments.accumulators import RowSum, SecondMoment
from eigenveil.moments.describe import Description, describe, rebuild
from eigenveil.moments.preparation import AS_IT_IS, Apart
from eigenveil.moments.rows import Block, RowRule, RowWeights
from eigenveil.privacy.statistics import SQRT2
from soak_tools import seldom
from statistics_tools import mutant

D = 7
ONE = Apart(((2, 3, 4),), 0.625)
TWO = Apart(((2, 3), (5, 6)), 0.4375)


def rule_of(apart=ONE, precision="double", bound=1.0, **more):
    preparation = apart.left_out(AS_IT_IS, D)
    return RowRule(bound=bound, precision=precision, preparation=preparation, apart=apart, **more)


def rows_of(count, seed, apart=ONE):
    """Nasty rows, most of which have one level of each category."""
    rng = np.random.default_rng(seed)
    rows = nasty_rows(count, D, seed)
    for own in apart.categories:
        some = rng.random(count) < 0.8
        rows[np.ix_(some, own)] = np.eye(len(own))[rng.integers(len(own), size=int(some.sum()))]
    odd = rng.random((count, D)) < 0.02
    rows[odd] = rng.choice([np.nan, np.inf, 1.0, -1.0], int(odd.sum()))
    return rows


def made_of(rule, rows, weights=None, weighting="square"):
    ready, squares = rule(Block(rows.copy(), weights=weights), weighting=weighting)
    ready = ready.astype(np.float64)
    np.testing.assert_array_equal(np.sum(ready**2, axis=1), squares)
    return ready


@settings(max_examples=seldom(100))
@given(seed=SEEDS)
def test_no_row_is_longer_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    for apart, precision in ((ONE, "double"), (TWO, "double"), (ONE, "single")):
        rule = rule_of(apart, precision, bound=float(seed % 3))
        rows = rows_of(60, seed, apart)
        found = made_of(rule, rows)
        assert np.max(np.sum(found**2, axis=1)) <= 4**rule.bits
        divisors = rng.integers(0, 2000, len(rows))
        weights = RowWeights(divisors, np.zeros_like(divisors))
        for weighting, power in (("square", 1), ("linear", 2)):
            found = np.sum(made_of(rule, rows, weights, weighting) ** 2, axis=1)
            assert np.all(found <= 4**rule.bits // np.maximum(divisors, 1) ** power)
            assert not found[divisors == 0].any()


def test_a_row_is_prepared_alike_whatever_is_beside_it():
    rule, rows = rule_of(TWO), rows_of(64, 5, TWO)
    alone = np.concatenate([made_of(rule, row[None]) for row in rows])
    np.testing.assert_array_equal(made_of(rule, rows), alone)


def test_a_row_has_one_level_of_a_category():
    rows = np.zeros((5, D))
    rows[:, 2:5] = [[1, 0, 0], [1, 1, 1], [0, 0, 0], [0.5, 2, 1], [-1, np.nan, 1]]
    found = made_of(rule_of(), rows)[:, 2:5] / 2.0**18 / ONE.length
    wanted = [[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]  # the last is not valid
    np.testing.assert_array_equal(found, wanted)
    holes = replace(rule_of(), preparation=replace(rule_of().preparation, holes=True))
    assert made_of(holes, rows)[4, 4] > 0


@pytest.mark.parametrize("precision", ["single", "double"])
@pytest.mark.parametrize("apart", [ONE, TWO])
def test_counts_are_exact(apart, precision):
    """Of long rows, too: what is shortened is the other entries, to what is left."""
    rng = np.random.default_rng(2)
    rows = 50.0 * rng.standard_normal((400, D))
    rows[:, apart.columns] = 0.0
    levels = [rng.integers(len(own), size=400) for own in apart.categories]
    for own, level in zip(apart.categories, levels, strict=True):
        rows[np.arange(400), np.array(own)[level]] = 1.0
    rule = rule_of(apart, precision)
    total = SecondMoment(rule, features=D)
    total.update(Block(rows))
    moment = np.ldexp(total.integers().astype(float), total.grid)
    counts = np.concatenate(
        [
            np.bincount(level, minlength=len(own))
            for own, level in zip(apart.categories, levels, strict=True)
        ]
    )
    np.testing.assert_array_equal(np.diag(moment)[apart.columns], counts * apart.length**2)
    others = np.setdiff1d(np.arange(D), apart.columns)
    wanted = rows[:, others] / np.linalg.norm(rows[:, others], axis=1)[:, None]
    found = moment[np.ix_(apart.columns, others)] / (apart.length * np.sqrt(apart.kept))
    for at, own in enumerate(apart.categories):
        first = sum(len(each) for each in apart.categories[:at])
        for level in range(len(own)):
            sums = wanted[levels[at] == level].sum(axis=0)
            near = 0.02 * 400 if precision == "single" else 1e-3 * 400
            np.testing.assert_allclose(found[first + level], sums, atol=near)


def contribution(row, rule, kind):
    made = SecondMoment(rule, features=D)
    if kind == "row-sum":
        made = RowSum(rule, features=D, count_weight=0.0)
    made.update(Block(row[None].copy()))
    return np.ldexp(made.integers().astype(float), made.grid)


def farthest(adjacency, rule, kind):
    """Of many pairs of rows: along axes and between them, of each level, of none, of all."""
    rng = np.random.default_rng(0)
    axes = [9.0 * np.eye(D)[at] for at in range(2)]
    entries = [*axes, *(-each for each in axes), *(9.0 * rng.standard_normal(D) for _ in range(20))]
    rows = []
    for entry in entries:
        for levels in ([1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1], [7, -1, 1e9]):
            rows.append(entry.copy())
            rows[-1][2:5] = levels
    made = [contribution(row, rule, kind) for row in rows]
    if adjacency == "add-remove":
        return max(np.linalg.norm(each) for each in made)
    return max(np.linalg.norm(one - other) for one in made for other in made)


@pytest.mark.parametrize(
    ("kind", "adjacency", "claimed"),
    [
        ("second-moment", "add-remove", 1.0),
        ("second-moment", "replace-one", SQRT2),
        ("row-sum", "add-remove", 1.0),
        ("row-sum", "replace-one", 2.0),
    ],
)
def test_sums_move_as_far_as_claimed(kind, adjacency, claimed):
    found = farthest(adjacency, rule_of(), kind)
    assert found <= claimed
    # levels are never opposite, so that sums of rows come less far
    assert found > 0.999 * claimed or (kind, adjacency) == ("row-sum", "replace-one")


def test_two_levels_of_a_row_are_found_out(monkeypatch):
    wrong = mutant(Apart.levels, "some[:, 1:] &=", "some[:, 1:] |=")
    monkeypatch.setattr(Apart, "levels", wrong)
    assert farthest("add-remove", rule_of(), "second-moment") > 1.1


def test_wrong_lengths_are_found_out(monkeypatch):
    """Were the other entries not shortened for the levels', a row would be too long."""
    wrong = mutant(RowRule.__call__, "whole - len(self.apart.categories)", "whole - 0")
    monkeypatch.setattr(RowRule, "__call__", wrong)
    assert farthest("add-remove", rule_of(), "second-moment") > 1.1


def test_a_description_makes_the_same_sum_and_merges_with_no_other():
    for made in (
        SecondMoment(rule_of(), features=D),
        RowSum(rule_of(), features=D, count_weight=0),
    ):
        description, arrays = describe(made, D)
        again = rebuild(Description.model_validate_json(description.model_dump_json()), arrays)
        for each in (made, again):
            each.update(Block(rows_of(40, 1)))
        np.testing.assert_array_equal(made.integers(), again.integers())
        again.merge(made)
    plain, _ = describe(SecondMoment(RowRule(bound=1.0), features=D), D)
    assert not {"apart", "level"} & plain.model_dump().keys()  # as if there were none
    with pytest.raises(Exception, match="merge") as caught:
        SecondMoment(rule_of(), features=D).merge(SecondMoment(rule_of(TWO), features=D))
    assert caught.value.code == "merge-mismatch"


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "sketch", "columns": 1},
        {"apart": ((2, 3, 9),)},
        {"apart": ((2, 3), (3, 4))},
        {"apart": ((2, 2, 4),)},
        {"apart": ((2, 3, 4), ())},
        {"apart": ((1, 2),)},
        {"level": 0.9},
        {"scaled": False},
    ],
)
def test_other_sums_and_columns_are_refused(wrong):
    description, arrays = describe(SecondMoment(rule_of(), features=D), D)
    other = description.model_copy(update=wrong)
    with pytest.raises(ProtocolError):
        rebuild(other, dict(arrays) | {"basis": np.eye(D)[:, :1]})
