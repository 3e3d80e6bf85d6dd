"""A person with many rows in a leaf of a tree."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eigenveil import PrivateStreamingPCA
from eigenveil.federated.tree_fit import fit_tree
from eigenveil.federation.tree.messages import TreeKeys
from eigenveil.federation.tree.private import Leaf, make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.certificate import AT_ONE_SITE
from eigenveil.tables.adapters.base import array_rows
from noise_tools import silence
from refusal_tools import refuses

KEYS = TreeKeys.in_one_process()
SESSION = "0" * 24
TREE = MergeTree.with_leaves(3, fan_out=2)
FEATURES = 3


def study_of(**fields):
    usual = {"features": FEATURES, "n_components": 1, "epsilon": 1.0, "delta": 1e-6}
    return make_tree_study(TREE, **(usual | fields))


def leaf_of(study):
    return Leaf(study, 0, source=SecureSource(), session=SESSION, keys=KEYS)


def moved(study, rows, groups, person):
    """How far a person moves each sum of a leaf, over what its noise is made for."""
    kept = groups != person
    with_them = leaf_of(study).partial_fit(rows, groups=groups)
    without = leaf_of(study).partial_fit(rows[kept], groups=groups[kept])
    found = {}
    for query, one, other in zip(study.queries, with_them._sums, without._sums, strict=True):
        change = (one.integers() - other.integers()).astype(float)
        length = np.linalg.norm(np.ldexp(change, query.accumulator.grid))
        found[query.name] = float(length / query.record.sensitivity())
    return found


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 40))
def test_no_person_moves_a_sum_further_than_its_noise_is_made_for(seed, most, count):
    rng = np.random.default_rng(seed)
    study = study_of(unit="person", max_rows_per_unit=most)
    rows = np.concatenate([np.tile(rng.standard_normal(FEATURES), (count, 1)), np.eye(FEATURES)])
    groups = np.array(["heavy"] * count + ["b", "c", "d"], dtype=object)
    for name, ratio in moved(study, rows, groups, "heavy").items():
        assert ratio <= 1.0 + 1e-9, (name, ratio)


def test_rows_that_count_by_themselves_would_be_found():
    study = study_of(unit="person", max_rows_per_unit=1)
    rows, groups = np.ones((40, FEATURES)), np.array(["heavy"] * 40, dtype=object)
    assert max(moved(study, rows, groups, "heavy").values()) <= 1.0 + 1e-9
    each = np.array([f"p{number}" for number in range(40)], dtype=object)  # as the leaves had it
    alone = leaf_of(study).partial_fit(rows, groups=each)
    query, total = study.queries[0], alone._sums[0]
    length = np.linalg.norm(np.ldexp(total.integers().astype(float), query.accumulator.grid))
    assert length / query.record.sensitivity() > 30


def test_a_leaf_needs_the_units_that_its_study_protects():
    with refuses("no-units"):
        leaf_of(study_of(unit="person")).partial_fit(np.eye(FEATURES))
    with refuses("units-not-protected"):
        leaf_of(study_of()).partial_fit(np.eye(FEATURES), groups=["a", "b", "c"])


def test_the_certificate_says_that_a_person_is_at_one_site():
    study = study_of(unit="person")
    rng = np.random.default_rng(0)
    sites = {
        name: array_rows(
            rng.standard_normal((50, FEATURES)), None, [f"{name}{k}" for k in range(50)]
        )
        for name in "abc"
    }
    model = fit_tree(study, sites)
    assert AT_ONE_SITE.format("unit") in model.guarantee_.assumptions
    assert math.isclose(model.guarantee_.epsilon, 1.0, rel_tol=1e-3)
    assert model.guarantee_.unit == "person"


def test_a_tree_of_sites_gives_what_one_stream_of_all_rows_gives():
    """Without noise, bit by bit, whatever the number of levels."""
    rng = np.random.default_rng(5)
    parts = [rng.standard_normal((60, FEATURES)) for _ in range(3)]
    with silence():
        found = fit_tree(
            study_of(), dict(zip("abc", map(array_rows, parts, [None] * 3), strict=True))
        )
        whole = PrivateStreamingPCA(1).fit(np.concatenate(parts))
    np.testing.assert_array_equal(found.components_, whole.components_)
    np.testing.assert_array_equal(found.explained_variance_, whole.explained_variance_)


def test_a_public_centre_is_among_the_parameters_of_the_model(tmp_path):
    """They said that nothing was taken off the rows."""
    center = np.array([1.0, 2.0, 3.0])
    rng = np.random.default_rng(7)
    sites = {name: array_rows(center + rng.standard_normal((40, FEATURES)), None) for name in "abc"}
    model = fit_tree(study_of(center=center), sites)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(PrivateStreamingPCA.load(tmp_path / "model.npz").center, center)
    np.testing.assert_allclose(model.mean_, center)
