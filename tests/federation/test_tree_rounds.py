"""A tree over time: who is there changes, every row counts in one round, the result is refreshed.

Statistical tests state their chance of false alarm in ``statistics_tools``.
"""

import math
from unittest import mock

import numpy as np
import pytest
from tree_tools import KEYS

from eigenveil.errors import DataError, PrivacyError, ProtocolError
from eigenveil.federation.protocol.certificates import check
from eigenveil.federation.tree import nodes, private
from eigenveil.federation.tree.nodes import Node, TreeRounds
from eigenveil.federation.tree.private import Leaf, make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.noise.source import SecureSource
from eigenveil.privacy.certificate import ONE_BLOCK, SAME_BLOCKS
from eigenveil.privacy.views import mu_of_view
from refusal_tools import refuses
from statistics_tools import FALSE_ALARM, REJECTED, gaussian_variance, together

TREE = MergeTree(3, 2)
D = 4


def study_of(**fields):
    wanted = {
        "features": D,
        "n_components": 2,
        "epsilon": 1.0,
        "delta": 1e-6,
        "sketch_size": 3,
        "lost": 3,
        "publish": "blocks",
        "forgetting": 0.5,
    }
    return make_tree_study(TREE, **{**wanted, **fields})


def leaf_of(study, number, session):
    return Leaf(study, number, source=SecureSource(), session=session, keys=KEYS)


def climbed(study, session, leaves):
    """What the root has of a round in which these leaves send."""
    codec = study.codec(session, KEYS)
    nodes = {p: Node(codec, p) for level in range(1, TREE.depth + 1) for p in TREE.places(level)}
    for leaf in leaves:
        nodes[TREE.parent(leaf.place)].take(leaf.send())
    for place, node in nodes.items():
        if place != TREE.root and (message := node.send()) is not None:
            nodes[TREE.parent(place)].take(message)
    return nodes[TREE.root].result()


def played(study, there, rows=None, *, secure=True):
    """Rounds in which some leaves are there, each with new rows; the last outcome, and all."""
    root, found = TreeRounds(study), []
    leaves = {}
    for number, present in enumerate(there):
        session = f"round-{number}"
        for place in range(TREE.leaf_count):
            known = leaves.get(place)
            leaves[place] = known.again(session) if known else leaf_of(study, place, session)
            if rows is not None:
                leaves[place].partial_fit(rows(number, place))
        merged = climbed(study, session, [leaves[place] for place in present])
        found.append(root.add(session, merged, secure=secure))
    return root, found


EVERYONE = range(9)


# Rows count once


def test_every_row_is_in_exactly_one_round_whoever_is_away():
    """Integers, with the noise left out: all rounds' sums add up to that of all rows, once each."""
    study = study_of(forgetting=1.0)
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(4, 9, 5, D))
    there = [range(7), [0, *range(3, 9)], [1, 2, 3, 4, 5, 6, 8], EVERYONE]
    exact = [query.accumulator.empty() for query in study.queries]
    for sums in exact:
        sums.update(private.Block(rows.reshape(-1, D)))
    seen = [np.zeros(sums.size, dtype=np.uint64) for sums in exact]
    before = nodes.release_sums

    def noting(study, totals, leaves):
        for total, more in zip(seen, totals, strict=True):
            total += more
        return before(study, totals, leaves)

    def exactly(sums, record, source):
        del source
        shifted = sums.integers().astype(object) * 2 ** (sums.grid - record.noise.grid)
        return shifted.astype(np.int64).ravel()

    with (
        mock.patch.object(private, "noisy_integers", exactly),
        mock.patch.object(nodes, "release_sums", noting),
    ):
        played(study, there, lambda number, place: rows[number, place])
    for sums, total, query in zip(exact, seen, study.queries, strict=True):
        values = total.view(np.int64) * 2.0**query.record.noise.grid
        exact_values = np.ldexp(sums.integers().astype(float), sums.grid)
        np.testing.assert_array_equal(values, exact_values.ravel())


def test_a_leaf_that_was_away_takes_its_rows_with_it_and_one_that_sent_does_not():
    study = study_of()
    leaf = leaf_of(study, 0, "one").partial_fit(np.ones((3, D)))
    further = leaf.again("two")
    with refuses("rows-in-other-round", kind=ProtocolError):
        leaf.send()
    with pytest.raises(ProtocolError):
        leaf.partial_fit(np.ones((1, D)))
    assert any(np.any(sums.integers()) for sums in further._sums)
    message = further.send()
    third = further.again("three")
    assert not any(np.any(sums.integers()) for sums in third._sums)
    assert further.send() is message  # a retry is the same bytes
    with refuses("one-round", kind=ProtocolError):
        leaf_of(make_tree_study(TREE, **ONCE), 0, "one").again("two")


ONCE = {"features": D, "n_components": 2, "epsilon": 1.0, "delta": 1e-6, "sketch_size": 3}


# What is promised


THERE = [EVERYONE, [0, 1, 2, 3, 4, 5], [0, 1, 3, 4, 6, 7, 8]]


def test_the_guarantee_is_that_of_the_poorest_round_and_holds():
    study = study_of()
    root, outcomes = played(study, THERE)
    whole = math.sqrt(math.fsum(query.record.mu() ** 2 for query in study.queries))
    counts = [9, 6, 6]
    for outcome, fewest in zip(outcomes, counts, strict=True):
        assert outcome.guarantee_.mu == pytest.approx(whole * math.sqrt(6 / fewest), rel=1e-9)
        assert outcome.guarantee_.certified
        assert SAME_BLOCKS in outcome.guarantee_.caveats
        assert ONE_BLOCK in outcome.guarantee_.assumptions
        assert check(outcome.certificate).holds
        assert "streams.md" in outcome.certificate.proofs
    assert outcomes[-1].certificate.tree.arrived == 6
    assert outcomes[-1].least == (1, 2)
    assert root.rounds == ("round-0", "round-1", "round-2")


def test_the_joint_law_of_all_rounds_costs_what_is_promised():
    """The exact loss of all that level-2 aggregators see in all rounds, for a row of any leaf.

    One column a leaf's noise in a round. A row that was in two rounds would cost more.
    """
    study = study_of()
    _, outcomes = played(study, THERE)
    views, column = [], {}
    for number, present in enumerate(THERE):
        for leaf in present:
            column[number, leaf] = len(column)
        parts = [[leaf for leaf in present if leaf // 3 == node] for node in range(3)]
        views += [(number, part) for part in (*parts, list(present)) if part]
    inside = np.zeros((len(views), len(column)), dtype=int)
    for at, (number, part) in enumerate(views):
        inside[at, [column[number, leaf] for leaf in part]] = 1
    covariance = (inside @ inside.T).astype(object)
    losses = {key: mu_of_view(covariance, inside[:, at]) for key, at in column.items()}
    one_part = math.sqrt(math.fsum(q.record.mu() ** 2 for q in study.queries) * study.noise_parts)
    claimed = outcomes[-1].guarantees_["aggregator at level 2"].mu
    assert max(losses.values()) * one_part == pytest.approx(claimed, rel=1e-9)
    twice = inside[:, column[1, 0]] + inside[:, column[2, 0]]
    assert mu_of_view(covariance, twice) * one_part > claimed * 1.05


def test_a_root_that_forgets_its_poorest_round_promises_too_much():
    with mock.patch.object(nodes, "worst", lambda first, second: second):
        _, outcomes = played(study_of(), [[0, 1, 2, 3, 4, 5], EVERYONE])
    honest = played(study_of(), [[0, 1, 2, 3, 4, 5], EVERYONE])[1]
    assert outcomes[-1].guarantee_.mu < 0.9 * honest[-1].guarantee_.mu


def holds(certificate):
    try:
        return check(certificate).holds
    except (PrivacyError, DataError):
        return False


@pytest.mark.parametrize("change", ["arrived", "disjoint", "publish"])
def test_a_certificate_of_rounds_that_was_changed_does_not_hold(change):
    certificate = played(study_of(), THERE)[1][-1].certificate
    match change:
        case "arrived":
            forged = {"tree": certificate.tree.model_copy(update={"arrived": 9})}
        case "disjoint":
            releases = [r.model_copy(update={"disjoint": False}) for r in certificate.releases]
            forged = {"releases": tuple(releases)}
        case _:
            forged = {"plan": {**certificate.plan, "publish": "end"}}
    assert holds(certificate)
    assert not holds(certificate.model_copy(update=forged))


def test_a_seeded_round_takes_the_certificate_of_all_that_follow():
    study = study_of()
    root = TreeRounds(study)
    for number, secure in enumerate((False, True)):
        session = f"s{number}"
        leaves = [leaf_of(study, place, session) for place in EVERYONE]
        outcome = root.add(session, climbed(study, session, leaves), secure=secure)
    assert not outcome.guarantee_.certified


# The noise, and what it is for


def noise_p_value(study, there):
    """Of the discounted sums' noise after these rounds without rows, against what is recorded."""
    found = []
    real = nodes.outcome_of

    def noting(study, answers, *rest, **named):
        found.append(answers)
        return real(study, answers, *rest, **named)

    with mock.patch.object(nodes, "outcome_of", noting):
        played(study, there)
    return together(
        *(
            gaussian_variance(release.values.ravel() / release.record.noise.scale, 1.0)
            for release in found[-1].values()
        )
    )


def test_the_noise_of_the_refreshed_sums_is_as_recorded():
    study = study_of(features=60, sketch_size=50, forgetting=0.9)
    assert noise_p_value(study, THERE) > FALSE_ALARM
    drawn = private.noisy_integers

    def halved(sums, record, source):
        noise = record.noise.model_copy(update={"scale": record.noise.scale / 2})
        return drawn(sums, record.model_copy(update={"noise": noise}), source)

    with mock.patch.object(private, "noisy_integers", halved):
        assert noise_p_value(study, THERE) < REJECTED


def test_the_global_subspace_follows_a_change_while_leaves_come_and_go():
    """Overlaps differ by more than 1, their deviations are below .01."""
    spread = np.array([8.0, 5.0, 1.0, 1.0])

    def rows(number, place):
        rng = np.random.default_rng([number, place])
        found = rng.normal(size=(2000, D)) * spread
        return found if number < 2 else found[:, ::-1]

    there = [range(7), range(2, 9), [0, 1, 2, 3, 6, 7], EVERYONE]
    _, outcomes = played(study_of(forgetting=0.2, epsilon=4.0), there, rows)
    first = [np.linalg.norm(o.factors.components[:, :2]) ** 2 for o in outcomes]
    assert min(first[:2]) > 1.95
    assert first[-1] < 0.6  # some rows of leaves that were away are of before the change


def test_a_round_of_too_few_leaves_changes_nothing_and_none_is_added_twice():
    study = study_of()
    root = TreeRounds(study)
    first = climbed(study, "one", [leaf_of(study, place, "one") for place in EVERYONE])
    root.add("one", first, secure=True)
    few = climbed(study, "two", [leaf_of(study, place, "two") for place in range(5)])
    with refuses("too-many-lost", kind=PrivacyError):
        root.add("two", few, secure=True)
    assert root.rounds == ("one",)
    # nodes have seen rows of that round: whoever reads the result is told what they are held to
    unheard = "aggregators, of a leaf that did not arrive"
    third = climbed(study, "three", [leaf_of(study, place, "three") for place in EVERYONE])
    outcome = root.add("three", third, secure=True)
    assert unheard in outcome.guarantees_
    assert outcome.certificate.tree.refused == 1
    assert holds(outcome.certificate)
    assert unheard not in played(study, [EVERYONE])[1][-1].guarantees_
    with refuses("round-twice", kind=ProtocolError):
        root.add("one", first, secure=True)


def test_a_message_of_an_earlier_round_is_refused_in_a_later_one():
    study = study_of()
    message = leaf_of(study, 0, "one").send()
    node = Node(study.codec("two", KEYS), TREE.parent(leaf_of(study, 0, "two").place))
    with pytest.raises(ProtocolError):
        node.take(message)


def test_a_study_of_one_round_has_no_further_ones():
    with refuses("one-round", kind=ProtocolError):
        TreeRounds(make_tree_study(TREE, **ONCE))
    with pytest.raises(DataError, match="publish='blocks'"):
        make_tree_study(TREE, **ONCE, publish="continual", horizon=3)


@pytest.mark.parametrize(
    "option", [{"whiten": True}, {"scale": np.ones(5)}, {"ranges": [(0.0, 1.0)]}]
)
def test_what_leaves_do_not_apply_is_refused(option):
    with refuses("not-of-a-tree", "is of one stream"):
        make_tree_study(TREE, **ONCE, **option)
