"""An aggregator that lies: no query that a site accepts is moved by one person beyond its record.

A study's honest queries, with any of their numbers replaced by what a hostile aggregator may send:
tiny, huge, infinite, none. What the site still takes (its own checks decide) has a recorded
sensitivity, and a search for the worst person, made of the query's own numbers, must not exceed it;
nor may a row stop the sum, or be changed by another. It would have found scales so small that a row
at their column's middle was no number any more, limits beyond the arithmetic, and effects of
entries that are missing (docs/proofs/views.md, claim 9).

500 queries in every run, 20,000 in make nightly (soak_tools.py).
"""

import math
from itertools import product

import numpy as np
import pytest
import query_tools
from hypothesis import given, settings
from hypothesis import strategies as st
from query_tools import NUMBERS, STUDIES, accepted, changed, honest, places, worst

import soak_tools
from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol import sums, validation
from eigenveil.moments import describe
from eigenveil.moments.exact import Description
from eigenveil.moments.preparation import Apart
from eigenveil.moments.rows import Block
from statistics_tools import mutant

# Numbers that a site refuses overflow before they are seen: nobody is to hear of it.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
CHANGE = st.tuples(st.integers(0, 99), st.integers(0, 3), st.sampled_from(NUMBERS))


@pytest.mark.parametrize("study", STUDIES)
def test_a_site_accepts_what_an_honest_aggregator_asks(study):
    """So that the search below begins with queries that are accepted, all of a study's schedule."""
    queries = honest(study)
    assert [each.planned for each in queries] == list(queries[0].terms.plan.schedule)
    for query in queries:
        found = accepted(query, query.fields, query.arrays)
        assert found is not None
        assert worst(query, query.fields, *found, np.random.default_rng(0)) <= 1.0


@settings(max_examples=soak_tools.seldom(20_000))
@given(
    study=st.sampled_from(sorted(STUDIES)),
    number=st.integers(0, 11),
    changes=st.lists(CHANGE, min_size=1, max_size=4),
    seed=st.integers(0, 1 << 30),
)
def test_no_person_moves_an_accepted_query_beyond_its_record(study, number, changes, seed):
    rng = np.random.default_rng(seed)
    query = honest(study)[number % len(honest(study))]
    fields, arrays, all_places = query.fields, query.arrays, places(query)
    found = accepted(query, fields, arrays)
    for which, how, value in changes:  # those that are refused are left out
        place = all_places[which % len(all_places)]
        other = changed(fields, arrays, place, how, value, rng)
        if (taken := accepted(query, *other)) is not None:
            (fields, arrays), found = other, taken
    shift = worst(query, fields, *found, rng)
    soak_tools.count("queried", f"queries of {study}", tried=1, accepted=int(shift > 1.0))
    assert shift <= 1.0


def search(study, name, place, before=None):
    """The largest shift of an honest query with one number replaced, or the first above 1."""
    query = next(each for each in honest(study) if each.planned.name == name)
    fields, arrays, found = query.fields, query.arrays, 0.0
    rng = np.random.default_rng(0)
    if before is not None:
        fields, arrays = changed(fields, arrays, *before, rng)
    for how, value in product(range(4 if place.startswith("[") else 1), NUMBERS):
        other = changed(fields, arrays, place, how, value, rng)
        if (taken := accepted(query, *other)) is not None:
            found = max(found, worst(query, other[0], *taken, rng))
        if found > 1.0:
            break
    return found


def forget_the_rule(patch):
    """A row that is no number any more when it was prepared is kept, as entries overflow."""
    kept = mutant(Block._mended, "& ~np.isnan(rows[broken]) | empty", "| empty")
    patch.setattr(Block, "_mended", kept)
    patch.setattr(Block, "residuals", mutant(Block.residuals, "hidden | np.isnan(norms)", "hidden"))


def test_a_row_that_is_no_number_when_it_was_prepared_must_be_left_out(monkeypatch):
    forget_the_rule(monkeypatch)
    assert search("single, scales", "center", "[scale]") > 1.0


MIDDLE, SHARES = "second moment", "sums 1"
BOUNDS = {
    # with the rule above left out, so that each is seen to hold by itself
    "SMALLEST_ASKED": (True, 0.0, "scales", MIDDLE, "[scale]"),
    "LARGEST_ASKED": (True, math.inf, "scales", MIDDLE, "[offset]", ("[scale]", 1, 0.0)),
    "LARGEST_LIMIT": (True, math.inf, "single, ranges", "explained variance", "limit"),
    "LARGEST_EFFECT": (True, math.inf, "covariates", MIDDLE, "[effects]"),
    # nothing else stands behind these
    "_LONGEST_COLUMN": (False, math.inf, "bounded", "explained variance", "[basis]"),
    "FARTHEST_MEAN": (False, math.inf, "diagonal persons", SHARES, "[means]"),
    "LARGEST_FACTOR": (False, math.inf, "diagonal persons", SHARES, "[factors]"),
    "SMALLEST_REACH": (False, 0.0, "ellipses", SHARES, "[reaches]"),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_that_is_left_out_is_found(name, monkeypatch):
    without_rule, value, *where = BOUNDS[name]
    if without_rule:
        forget_the_rule(monkeypatch)
        assert search(*where) <= 1.0
    monkeypatch.setattr(describe, name, value)
    assert search(*where) > 1.0


CHECKS = {
    "bits": (describe.rebuild, "rule.bits >= 1 and ", "", "single", MIDDLE, "extra_bits"),
    "weights": (
        validation.check_query,
        "asked.weighted == (plan.weighted and SHAPES[asked.kind].counts_shares)", "True",
        "persons", "scale", "weighted",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_that_is_left_out_is_found(name, monkeypatch):
    function, old, new, *where = CHECKS[name]
    without = mutant(function, old, new)
    for each in (validation, sums, query_tools):
        monkeypatch.setattr(each, function.__name__, without, raising=False)
    assert search(*where) > 1.0


def test_a_row_of_two_levels_that_both_count_is_found(monkeypatch):
    query = next(each for each in honest("groups") if each.planned.name == MIDDLE)
    found = accepted(query, query.fields, query.arrays)
    assert worst(query, query.fields, *found, np.random.default_rng(0)) <= 1.0
    monkeypatch.setattr(Apart, "levels", mutant(Apart.levels, "some[:, 1:] &=", "some[:, 1:] |="))
    assert worst(query, query.fields, *found, np.random.default_rng(0)) > 1.0


@pytest.mark.parametrize(
    "fields",
    [{"holes": True}, {"kind": "column-histogram"}],
)
def test_effects_are_of_columns_that_all_have_entries(fields):
    """No plan has both; a site refuses such a sum whatever its study is."""
    query = next(each for each in honest("covariates") if each.fields["covariates"])
    described = Description.model_validate(query.fields | fields)
    with pytest.raises(ProtocolError, match="covariates"):
        describe.rebuild(described, query.arrays)


def test_a_site_makes_room_for_no_more_cells_than_its_study_has():
    """Groups that come again and again would be gigabytes, before they are compared."""
    query = next(each for each in honest("scores by group") if each.planned.name == "scores")
    described = Description.model_validate(query.fields | {"groups": (0,) * 5000, "cells": 32})
    with pytest.raises(ProtocolError, match="score-histogram"):
        validation.check_query(query.terms.plan, described)
