"""Who shares masks with whom: symmetric, of the requested degree, as connected as that allows."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenveil.errors import PrivacyError
from eigenveil.federation.protocol.terms import settle
from eigenveil.federation.secagg.consistency import graph as graph_of
from eigenveil.federation.secagg.consistency import neighbours, threshold
from eigenveil.federation.study import checks
from eigenveil.federation.study.study import Study, StudySite, default_neighbours, make_study
from soak_tools import times


def graph(count, degree):
    names = [f"s{i}" for i in range(count)]
    found = graph_of(names, degree)
    assert found == {name: neighbours(name, names, degree) for name in names}
    return found


def connected(near, left):
    """Whether the sites that are left can all reach one another over each other."""
    left = set(left)
    if not left:
        return True
    seen, waiting = set(), [next(iter(left))]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += left & set(near[name])
    return seen == left


@given(st.integers(1, 40), st.integers(1, 45))
@settings(max_examples=times(500))
def test_neighbours_see_each_other_and_not_themselves(count, degree):
    near = graph(count, degree)
    for name, others in near.items():
        assert name not in others
        assert len(set(others)) == len(others)
        assert all(name in near[other] for other in others)


@given(st.integers(1, 40), st.integers(1, 45))
@settings(max_examples=times(500))
def test_everybody_has_the_degree_or_sees_all(count, degree):
    even = degree + degree % 2
    for others in graph(count, degree).values():
        assert len(others) == (even if even < count - 1 else count - 1)


@given(st.integers(2, 30), st.integers(1, 30), st.randoms())
@settings(max_examples=times(250))
def test_the_graph_does_not_depend_on_who_asks(count, degree, random):
    names = [f"s{i}" for i in range(count)]
    random.shuffle(names)
    near = {name: set(neighbours(name, names, degree)) for name in names}
    turned = names[1:] + names[:1]  # a ring has no beginning
    assert near == {name: set(neighbours(name, turned, degree)) for name in names}


@pytest.mark.parametrize("count", range(2, 10))
def test_without_any_few_sites_the_others_stay_connected(count):
    for degree in range(1, count + 1):
        near = graph(count, degree)
        least = min(len(others) for others in near.values())
        for gone in range(min(least, count)):  # one fewer than the degree, at most
            for out in itertools.combinations(near, gone):
                assert connected(near, set(near) - set(out)), (degree, out)


def test_as_many_as_the_degree_can_cut_a_site_off():
    near = graph(9, 4)
    assert not connected(near, set(near) - set(near["s0"]))


@given(st.integers(3, 60), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=times(300))
def test_the_usual_degree_survives_whoever_may_go(count, collusion, dropouts):
    degree = min(count - 1, default_neighbours(count, collusion, dropouts))
    assert degree >= min(count - 1, collusion + dropouts + 1)


@pytest.mark.parametrize(("protocol", "fewest"), [("cape", 4), ("full", 4), ("local", 1)])
def test_a_study_knows_how_many_must_be_left(protocol, fewest):
    sites = [{"name": f"s{i}"} for i in range(5)]
    study = make_study(
        name="t", features=3, components=1, protocol=protocol, dropouts=1, sites=sites
    )
    assert settle(study).fewest == fewest


def test_two_sets_cannot_both_be_signed():
    """Whoever honest signs one set; those who collude sign both; and no smaller number would do."""
    for sites in range(2, 40):
        for collusion in range(sites - 1):
            needed, honest = threshold(sites, collusion), sites - collusion
            for signed_one in range(honest + 1):
                both = collusion + signed_one, collusion + honest - signed_one
                assert min(both) < needed
            fewer = collusion + honest // 2
            assert fewer >= needed - 1


def test_every_study_that_can_be_made_has_enough_sites_to_sign():
    """Whatever remains of a study's sites can sign: no study is refused for that alone."""
    made = 0
    for sites in range(2, 24):
        names = tuple({"name": f"s{i}"} for i in range(sites))
        for collusion, dropouts, near in itertools.product(range(5), range(1, 8), (None, 2, 4, 8)):
            fields = {"collusion": collusion, "dropouts": dropouts, "neighbours": near}
            try:
                check_masks(names, fields)
            except PrivacyError:
                continue
            made += 1
            assert threshold(sites, collusion) <= sites - dropouts, (sites, fields)
            assert 2 * threshold(sites, collusion) - sites > collusion
    assert made > 300
    study = make_study(
        name="t", features=3, components=2, protocol="cape", sites=names, collusion=2, dropouts=3
    )
    assert study.signatures == threshold(23, 2) == 13


def check_masks(names, fields):
    """The checks of a study that are about masks, without the rest of it."""
    sites = tuple(StudySite(**each) for each in names)
    study = Study.model_construct(**fields, sites=sites, masks="modular")
    checks._check_crowd(study)
    checks._check_masks(study)
