"""A simulated tree: who arrives, what each level does, and how far its components are off."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenveil.errors import DataError, PrivacyError
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree, TreePlace
from eigenveil.linalg.subspace import captured_energy
from eigenveil_papers.trees import simulated
from eigenveil_papers.trees.simulated import FaultPlan, TreeRows, simulate_tree
from refusal_tools import refuses

TREE = MergeTree(3, 3, 20)


def study_of(tree=TREE, **fields):
    usual = {
        "features": 15,
        "n_components": 2,
        "epsilon": 3.0,
        "delta": 1e-6,
        "sketch_size": 6,
        "lost": 10,
    }
    return make_tree_study(tree, **(usual | fields))


@given(st.floats(0, 0.9), st.floats(0, 0.9), st.integers(0, 10), st.integers(0, 2**32))
def test_fates_are_as_many_as_asked_for(lost, late, silent, seed):
    rng = np.random.default_rng(seed)
    fault_plan = FaultPlan.drawn(TREE, lost=lost, late=late, lost_subtrees=silent, rng=rng)
    assert len(fault_plan.lost) == round(lost * 20)
    assert len(fault_plan.late) == round(late * (20 - len(fault_plan.lost)))
    assert not fault_plan.lost & set(fault_plan.late)
    assert len(fault_plan.silent) == silent
    assert all(1 <= place.level < TREE.depth and TREE.holds(place) for place in fault_plan.silent)
    assert fault_plan.arriving(TREE) == {
        leaf
        for leaf in set(range(20)) - fault_plan.lost
        if not {TreePlace(1, leaf // 3), TreePlace(2, leaf // 9)} & fault_plan.silent
    }


@pytest.mark.parametrize(
    "fields", [{"lost": 1.0}, {"late": -0.1}, {"lost_subtrees": 11}, {"lost_subtrees": -1}], ids=str
)
def test_fates_that_cannot_be(fields):
    with refuses("out-of-range"):
        simulate_tree(study_of(), rows=5, **fields)
    with pytest.raises(DataError, match="rows = 0"):
        simulate_tree(study_of(), rows=0)


def test_rows_are_unit_rows_that_a_seed_repeats():
    made = TreeRows(features=30, components=3, rows=500, seed=1)
    rows = made.leaf(4)
    assert np.array_equal(rows, TreeRows(features=30, components=3, rows=500, seed=1).leaf(4))
    assert not np.array_equal(rows, made.leaf(5))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-6)
    values = np.linalg.svd(rows, compute_uv=False) ** 2 / 500
    assert values[:3].sum() == pytest.approx(0.5, abs=0.1)
    assert values[2] > 1.5 * values[3]


def test_every_level_is_told():
    reported = []
    report = simulate_tree(
        study_of(),
        rows=40,
        lost=0.2,
        late=0.25,
        lost_subtrees=1,
        seed=3,
        progress=lambda *done: reported.append(done),
    )
    leaves, low, high, root = report.levels
    arrived = int(report.outcome.arrived.sum())
    assert reported == [(done, 16) for done in range(1, 17)]
    assert (leaves.parties, leaves.sent, leaves.messages) == (20, 16, 16)
    assert report.rows == 40 * arrived < 40 * 16
    assert report.late == 4
    assert (low.parties, high.parties, root.parties) == (7, 3, 1)
    assert low.messages >= low.sent
    assert root.messages == root.bytes == 0
    numbers = 8 * (15 * 6 + 323)
    for level in (leaves, low, high):
        assert numbers * level.messages < level.bytes < (numbers + 1000) * level.messages
    assert all(0 <= level.slowest <= level.seconds for level in report.levels)
    assert report.critical_seconds > 0
    assert not report.outcome.guarantee_.certified


def test_errors_are_those_of_all_rows_that_arrived():
    """The root's against a computation of its own from the same rows; the leaves' are larger."""
    agreed = study_of(epsilon=200.0, sketch_size=15)
    report = simulate_tree(agreed, rows=60, lost=0.3, seed=4)
    entropy = int(np.random.SeedSequence(4).generate_state(2, np.uint64)[0])
    rows = TreeRows(features=15, components=2, rows=60, seed=entropy)
    there = np.flatnonzero(report.outcome.arrived)
    pooled = np.concatenate([rows.leaf(number) for number in there])
    moment = pooled.T @ pooled
    missed = 1.0 - captured_energy(moment, report.outcome.factors.components)
    assert report.levels[-1].error == pytest.approx(missed, abs=1e-5)
    assert report.levels[-1].error < report.levels[0].error


def test_what_is_too_large_to_measure_is_left_out(monkeypatch):
    monkeypatch.setattr(simulated, "_MOST_FEATURES", 10)
    report = simulate_tree(study_of(), rows=5)
    assert [level.error for level in report.levels] == [None] * 4
    assert report.outcome.guarantee_.certified


def test_nobody_plays_what_cannot_be_released():
    reported = []
    with refuses("too-many-lost", kind=PrivacyError):
        simulate_tree(study_of(), rows=5, lost=0.7, progress=lambda *done: reported.append(done))
    assert reported == []


@pytest.mark.parametrize("tree", [MergeTree(2, 1), MergeTree(5, 1, 3), MergeTree(2, 4, 1)])
def test_trees_of_odd_shapes(tree):
    report = simulate_tree(study_of(tree, lost=0), rows=30)
    assert report.outcome.arrived.all()
    assert len(report.levels) == tree.depth + 1
    assert ("leaf" in report.outcome.guarantees_) == (tree.leaf_count > 1)
