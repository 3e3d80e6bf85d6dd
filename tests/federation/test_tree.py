"""Merging up a tree: whatever the way up, every leaf counts once and the promise is kept.

Random tests of noise raise a false alarm with chance at most 1e-8 each; see statistics_tools.
"""

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tree_tools import (
    KEYS,
    WISH,
    arriving,
    chance_of,
    changed,
    climb,
    leaf_message,
    not_of_a_tree,
    study_of,
    totals_of,
    trees,
)

from eigenveil.errors import DataError, InvalidRowsWarning, PrivacyError, ProtocolError
from eigenveil.federation.protocol.certificates import check
from eigenveil.federation.tree import private
from eigenveil.federation.tree.messages import Sums, TreeCodec
from eigenveil.federation.tree.nodes import Merged, Node, publish
from eigenveil.federation.tree.private import Leaf, make_tree_study
from eigenveil.federation.tree.tree import MergeTree, TreePlace
from eigenveil.moments.rows import Block
from eigenveil.noise.entries import coordinates
from eigenveil.noise.source import SecureSource, SeededSource
from eigenveil.privacy import epsilon_of_mu
from eigenveil.privacy.certificate import Certificate
from eigenveil.privacy.tree_views import TreeRun, tree_guarantees
from eigenveil.privacy.views import mu_of_view
from noise_tools import silence
from refusal_tools import refuses
from soak_tools import times
from statistics_tools import FALSE_ALARM, REJECTED, gaussian_variance, together

SESSION = "monday"
TREE = MergeTree(fan_out=3, depth=2)


@pytest.fixture(scope="module")
def study():
    return study_of(TREE, lost=2)


def refused(node, data):
    """The code with which a node refuses a message; nothing has changed."""
    before = (node.leaves.copy(), node.waiting, node._least, dict(node._heard))
    state = None if node._value is None else [np.array(part) for part in node._value]
    with pytest.raises(ProtocolError) as error:
        node.take(data)
    assert np.array_equal(before[0], node.leaves)
    assert before[1:] == (node.waiting, node._least, node._heard)
    if state is not None:
        assert all(np.array_equal(a, b) for a, b in zip(state, node._value, strict=True))
    return error.value.code


# -- the tree


@given(st.data())
def test_every_leaf_has_one_way_up(data):
    tree = trees(data.draw, most=200)
    assert tree.nodes(0) == tree.leaf_count
    assert tree.nodes(tree.depth) == 1
    for level in range(1, tree.depth + 1):
        below = [child for place in tree.places(level) for child in tree.children(place)]
        assert below == list(tree.places(level - 1))
        leaves = [leaf for place in tree.places(level) for leaf in tree.under(place)]
        assert leaves == list(range(tree.leaf_count))
        for place in tree.places(level):
            assert 1 <= len(tree.children(place)) <= tree.fan_out
            assert all(tree.parent(child) == place for child in tree.children(place))
            assert TreePlace.of(place.name) == place
    assert tree.parent(tree.root) is None
    assert tree.children(TreePlace(0, 0)) == ()


@given(st.integers(1, 3000), st.integers(2, 9))
def test_the_flattest_tree_for_so_many_leaves(leaves, fan_out):
    tree = MergeTree.with_leaves(leaves, fan_out=fan_out)
    assert tree.leaf_count == leaves <= fan_out**tree.depth
    assert tree.depth == 1 or fan_out ** (tree.depth - 1) < leaves


@pytest.mark.parametrize(
    ("fan_out", "depth", "leaves"),
    [(1, 2, None), (2, 0, None), (2, 21, 5), (2, 3, 9), (2, 3, 0), (16, 6, None), (-3, 2, None)],
)
def test_trees_that_cannot_be(fan_out, depth, leaves):
    with pytest.raises(DataError) as error:
        MergeTree(fan_out, depth, leaves)
    assert error.value.code in ("out-of-range", "bad-leaves", "too-many-leaves")


@pytest.mark.parametrize(
    "name", ["", "leaf", "leaf 07", "node 1", "leaf -1", "leaf \u0663", "root"]
)
def test_names_that_are_no_place(name):
    assert TreePlace.of(name) is None


def test_places_that_are_not_in_the_tree():
    for place in (TreePlace(0, 9), TreePlace(1, 3), TreePlace(3, 0)):
        assert not TREE.holds(place)
        for query in (TREE.parent, TREE.children, TREE.under):
            with pytest.raises(DataError, match="The tree has no"):
                query(place)


# -- laws of merging


def check_way_up(tree, data, *, node=Node):
    """Whatever the way, the root has the sum of those leaves that could arrive, each once."""
    agreed = study_of(tree)
    codec = agreed.codec(SESSION, KEYS)
    inner = [place for level in range(1, tree.depth) for place in tree.places(level)]
    lost = data.draw(st.sets(st.integers(0, tree.leaf_count - 1)), label="lost leaves")
    silent = data.draw(st.sets(st.sampled_from(inner), max_size=2) if inner else st.just(set()))
    values = [totals_of(agreed, leaf) for leaf in range(tree.leaf_count)]
    chance = chance_of(data)
    found = climb(codec, values, chance, node=node, lost=lost, silent=silent)
    there = arriving(tree, lost, silent)
    if not there:
        assert found.merged is None
        return
    assert set(np.flatnonzero(found.merged.arrived).tolist()) == there
    for index, total in enumerate(found.merged.value):
        exact = sum(int(values[leaf][index][0]) for leaf in there) % 2**64
        assert int(total[0]) == exact
        assert np.array_equal(total, np.sum([values[leaf][index] for leaf in there], axis=0))
    for level in range(1, tree.depth + 1):
        for one in there:  # a leaf is in one message of a level
            assert sum(one in leaves for leaves in found.taken[level]) == 1
        smallest = min(len(m) for m in found.taken[level] if m & there)
        assert found.merged.least[level - 1] == smallest


@settings(max_examples=times(300))
@given(st.data())
def test_any_way_up_gives_the_same_sum_and_the_same_leaves(data):
    check_way_up(trees(data.draw), data)


class Careless(Node):
    """Forgets what it has heard: a retry counts twice."""

    def take(self, data):
        self._heard.clear()
        self.leaves[:] = False
        return super().take(data)


class Hasty(Node):
    """Sends what it has, and keeps it too."""

    def send(self):
        kept = (self._value, self._new.copy(), self._least)
        data = super().send()
        if data is not None:
            self._value, self._new, self._least = kept
        return data


class Loose(Node):
    """Does not remember small messages."""

    def take(self, data):
        new = super().take(data)
        self._least = (*self._least[:-1], self.waiting)
        return new


@pytest.mark.parametrize("wrong", [Careless, Hasty, Loose])
def test_wrong_nodes_are_found_out(wrong):
    @settings(max_examples=times(300), phases=[Phase.generate], report_multiple_bugs=False)
    @given(st.data())
    def law(data):
        check_way_up(MergeTree(2, 3), data, node=wrong)

    with pytest.raises((AssertionError, ProtocolError)):
        law()


# -- what is refused


class Counts(Sums):
    kind = "count"


def test_states_of_other_kinds_are_refused_in_words(study):
    node = Node(study.codec(SESSION, KEYS), TreePlace(1, 0))
    ours = leaf_message(study.codec(SESSION, KEYS), 1, totals_of(study, 1))

    def other(**fields):
        theirs = study_of(TREE, **({"lost": 2} | fields))
        message = leaf_message(theirs.codec(SESSION, KEYS), 1, totals_of(theirs, 1))
        return theirs, changed(message, study=study.hash)

    assert refused(node, leaf_message(study.codec("tuesday", KEYS), 1, totals_of(study, 1))) == (
        "other-session"
    )
    assert refused(node, changed(ours, study="another")) == "other-study"
    assert refused(node, changed(ours, step="round 1")) == "other-step"
    for fields in (
        {"sketch_size": 3},
        {"features": 4},
        {"lost": 1},
        {"epsilon": 0.5},
        {"row_norm": 2.0},
        {"center": np.ones(3)},
        {"protect": "aggregators"},
    ):
        theirs, message = other(**fields)
        assert theirs.hash != study.hash
        assert refused(node, message) == "other-sketch", fields
    others = TreeCodec(TREE, Counts(study.queries), study.hash, SESSION, KEYS)
    mixed = leaf_message(others, 1, totals_of(study, 1))
    assert refused(node, mixed) == "other-kind"
    with pytest.raises(ProtocolError, match="leaf 1: its message carries a count state"):
        node.take(mixed)


def test_the_same_study_has_the_same_hash(study):
    assert study_of(TREE, lost=2).hash == study.hash
    assert study_of(MergeTree(3, 2, 9), lost=2).hash == study.hash
    assert study_of(MergeTree(9, 1), lost=2).hash != study.hash


def test_who_is_no_child_is_refused(study):
    codec = study.codec(SESSION, KEYS)
    message = leaf_message(codec, 1, totals_of(study, 1))
    for place in (TreePlace(1, 1), TREE.root):
        assert refused(Node(codec, place), message) == "not-a-child"
    node = Node(codec, TreePlace(1, 0))
    for sender in ("leaf 9", "node 1.0", "node 2.0", "leaf 99"):
        assert refused(node, changed(message, sender=sender)) == "not-a-child"
    for sender in ("aggregator", "leaf 01", "", "leaf 1 "):
        assert refused(node, changed(message, sender=sender)) == "malformed"
    with pytest.raises(ProtocolError, match="no children"):
        Node(codec, TreePlace(0, 1))
    with pytest.raises(ProtocolError, match="not the root"):
        node.result()


def test_a_message_that_changes_under_its_number_is_refused(study):
    codec = study.codec(SESSION, KEYS)
    node = Node(codec, TreePlace(1, 0))
    assert node.take(leaf_message(codec, 1, totals_of(study, 1)))
    assert refused(node, leaf_message(codec, 1, totals_of(study, 2))) == "message-differs"
    assert refused(node, leaf_message(codec, 1, totals_of(study, 1), serial=1)) == "leaf-twice"
    assert node.take(leaf_message(codec, 1, totals_of(study, 1))) is False


def test_the_root_is_closed_once_it_has_said_what_arrived():
    codec = study_of(tree := MergeTree(2, 1)).codec(SESSION, KEYS)
    root = Node(codec, tree.root)
    messages = [leaf_message(codec, leaf, totals_of(study_of(tree), leaf)) for leaf in (0, 1)]
    with pytest.raises(ProtocolError, match="Nothing has arrived"):
        root.result()
    with pytest.raises(ProtocolError, match="no parent"):
        root.send()
    assert root.take(messages[0])
    result = root.result()
    assert refused(root, messages[1]) == "too-late"
    assert root.take(messages[0]) is False
    assert root.result() is result
    assert result.arrived.tolist() == [True, False]


MALFORMED_BODIES = [
    {"serial": -1},
    {"kind": "sum"},
    {"request_digest": "x"},
    {"least": [1]},
    {"least": [0]},
    {"least": "none"},
    {"more": 1},
]


@pytest.mark.parametrize("body", MALFORMED_BODIES, ids=str)
def test_malformed_bodies_are_refused(study, body):
    codec = study.codec(SESSION, KEYS)
    message = leaf_message(codec, 1, totals_of(study, 1))
    code = refused(Node(codec, TreePlace(1, 0)), changed(message, body=body))
    assert code in ("malformed", "other-kind", "other-sketch")


@pytest.mark.parametrize("least", [[], [1, 1], [2], [0], [-1]], ids=str)
def test_smallest_messages_that_cannot_be_are_refused(study, least):
    """A node with one leaf cannot have been sent two by one child."""
    codec = study.codec(SESSION, KEYS)
    node = Node(codec, TreePlace(1, 0))
    node.take(leaf_message(codec, 1, totals_of(study, 1)))
    message = node.send()
    assert (
        refused(Node(codec, TREE.root), changed(message, to=TREE.root, body={"least": least}))
        == "malformed"
    )


def test_malformed_arrays_are_refused(study):
    codec = study.codec(SESSION, KEYS)
    node = Node(codec, TreePlace(1, 0))
    message = leaf_message(codec, 1, totals_of(study, 1))
    bits = {"none": [0], "beyond": [0b01000000], "both": [0b11000000], "long": [0b10000000, 0]}
    for name, packed in bits.items():
        arrays = {"leaves": np.array(packed, dtype=np.uint8)}
        assert refused(node, changed(message, arrays=arrays)) == "malformed", name
    for name in ("leaves", "sum 0", "sum 1"):
        assert refused(node, changed(message, drop=[name])) == "malformed"
    size = study.content.sizes[0]
    for wrong in (np.zeros(size), np.zeros(size + 1, np.uint64), np.zeros((1, size), np.uint64)):
        assert refused(node, changed(message, arrays={"sum 0": wrong})) == "malformed"
    large = changed(message, arrays={"more": np.zeros(1 << 16)})
    assert refused(node, large) == "too-large"
    with pytest.raises(ProtocolError, match="shorter"):
        study.codec("x" * 201, KEYS)


@settings(max_examples=times(750))
@given(st.data())
def test_no_bytes_crash_a_node(data):
    """Whatever arrives is taken, or refused with nothing changed."""
    agreed = study_of(TREE, lost=2)
    codec = agreed.codec(SESSION, KEYS)
    node = Node(codec, TreePlace(1, 0))
    node.take(leaf_message(codec, 0, totals_of(agreed, 0)))
    message = bytearray(leaf_message(codec, 1, totals_of(agreed, 1)))
    end = 8 + int.from_bytes(message[4:8], "little") + 8
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(end, len(message) - 1)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "noise"])):
            case "flip":
                message[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del message[at : at + data.draw(st.integers(1, 9))]
            case "insert":
                message[at:at] = data.draw(st.binary(min_size=1, max_size=9))
            case "noise":
                message = bytearray(data.draw(st.binary(max_size=60)))
                break
    try:
        node.take(bytes(message))
    except ProtocolError:
        refused(node, bytes(message))


@pytest.mark.parametrize("header", ["[]", '{"sender": 3}', "null", '{"sender"', "[" * 5000])
def test_headers_of_nobody_are_refused(study, header):
    text = header.encode()
    data = b"EVM1" + len(text).to_bytes(4, "little") + text
    assert refused(Node(study.codec(SESSION, KEYS), TreePlace(1, 0)), data) == "malformed"
    assert (
        refused(Node(study.codec(SESSION, KEYS), TreePlace(1, 0)), not_of_a_tree({})) == "malformed"
    )


# -- leaves


def _leaf(study, number=0, source=None):
    return Leaf(study, number, source=source or SecureSource(), session=SESSION, keys=KEYS)


def test_a_leaf_draws_its_noise_once(study):
    leaf = _leaf(study).partial_fit(np.eye(3))
    message = leaf.send()
    assert leaf.send() is message
    with refuses("already-sent", kind=ProtocolError):
        leaf.partial_fit(np.eye(3))
    assert leaf.send() is message
    assert _leaf(study).partial_fit(np.eye(3)).send() != message
    seeded = [_leaf(study, source=SeededSource(1)).partial_fit(np.eye(3)).send() for _ in "ab"]
    assert seeded[0] == seeded[1]


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (np.ones((2, 4)), "rows-features"),
        (np.ones(3), "rows-features"),
    ],
)
def test_rows_that_cannot_be_used_add_nothing(study, rows, code):
    leaf = _leaf(study, source=SeededSource(1)).partial_fit(np.eye(3))
    with refuses(code):
        leaf.partial_fit(rows)
    same = _leaf(study, source=SeededSource(1)).partial_fit(np.eye(3))
    assert leaf.send() == same.send()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_that_is_not_valid_is_left_out_of_a_leaf(study, value):
    leaf = _leaf(study, source=SeededSource(1))
    with pytest.warns(InvalidRowsWarning, match="row index 1, column index 1 .from 0."):
        leaf.partial_fit([[1.0, 0.5, 2.0], [1.0, value, 2.0]])
    same = _leaf(study, source=SeededSource(1)).partial_fit([[1.0, 0.5, 2.0]])
    assert leaf.send() == same.send()


def test_a_leaf_that_is_not_in_the_tree(study):
    with pytest.raises(DataError, match="The tree has no leaf 9"):
        _leaf(study, 9)


@given(st.data())
def test_without_noise_the_root_has_the_sum_over_all_rows(data):
    """Rows in any split over leaves and blocks, on any way up: the sum of one accumulator."""
    tree = trees(data.draw, most=9)
    agreed = study_of(tree)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = rng.standard_normal((data.draw(st.integers(0, 30)), 3))
    of = rng.integers(tree.leaf_count, size=len(rows))
    codec = agreed.codec(SESSION, KEYS)
    messages = []
    with silence():
        for number in range(tree.leaf_count):
            leaf = _leaf(agreed, number)
            for part in np.array_split(rows[of == number], data.draw(st.integers(1, 3))):
                leaf.partial_fit(part)
            messages.append(leaf.send())
    values = [
        codec.read(message, receiver=tree.parent(TreePlace(0, number))).value
        for number, message in enumerate(messages)
    ]
    merged = climb(codec, values, chance_of(data)).merged
    for query, total in zip(agreed.queries, merged.value, strict=True):
        sums = query.accumulator.empty()
        sums.update(Block(rows))
        exact = coordinates(sums.layout, sums.integers())
        exact <<= sums.grid - query.record.noise.grid
        assert np.array_equal(total, exact.view(np.uint64))


# -- noise and what is promised


def _run(study, numbers, rows=None):
    """Leaves without rows, or with these, straight up; what the root has."""
    tree, codec = study.tree, study.codec(SESSION, KEYS)
    nodes = {p: Node(codec, p) for level in range(1, tree.depth + 1) for p in tree.places(level)}
    for number in numbers:
        leaf = _leaf(study, number)
        if rows is not None:
            leaf.partial_fit(rows)
        nodes[tree.parent(leaf.place)].take(leaf.send())
    for place, node in nodes.items():
        if place != tree.root and (message := node.send()) is not None:
            nodes[tree.parent(place)].take(message)
    return nodes[tree.root].result()


def _noise_p_value(study, numbers):
    """Of the noise that the root's sums carry, against what is recorded of so many parts."""
    merged = _run(study, numbers)
    found = []
    for query, total in zip(study.queries, merged.value, strict=True):
        noise = query.record.noise
        scale = noise.scale * math.sqrt(len(numbers) / noise.noise_parts)
        values = total.view(np.int64) * 2.0**noise.grid / scale
        assert query.accumulator.layout != "symmetric"
        found.append(gaussian_variance(values, 1.0))
    return together(np.array(found))


@pytest.mark.parametrize("protect", ["outsider", "aggregators"])
def test_the_noise_at_the_root_is_as_large_as_recorded(protect):
    """False alarm 1e-8; noise of half the size is rejected."""
    agreed = study_of(TREE, lost=3, features=50, sketch_size=40, protect=protect)
    numbers = [0, 1, 3, 4, 5, 7, 8]
    assert _noise_p_value(agreed, numbers) > FALSE_ALARM
    drawn = private.noisy_integers

    def halved(sums, record, source):
        noise = record.noise.model_copy(update={"scale": record.noise.scale / 2})
        return drawn(sums, record.model_copy(update={"noise": noise}), source)

    with mock.patch.object(private, "noisy_integers", halved):
        assert _noise_p_value(agreed, numbers) < REJECTED


def _guarantees(study, arrived, least):
    return tree_guarantees(
        [query.record for query in study.queries],
        TreeRun(
            leaves=study.tree.leaf_count, fan_out=study.tree.fan_out, arrived=arrived, least=least
        ),
        delta=study.plan.delta,
        adjacency="add-remove",
    )


def test_each_view_costs_what_its_messages_noise_says(study):
    """Of 9 leaves 7 make the noise: mu of m parts is sqrt(7 / m) that of 7."""
    whole = math.sqrt(math.fsum(query.record.mu() ** 2 for query in study.queries))
    found = _guarantees(study, 8, (1, 2))
    parts = {
        "outsider": 8,
        "leaf": 7,
        "aggregator at level 1": 1,
        "aggregator at level 2": 2,
        "aggregators, of a leaf that did not arrive": 1,
    }
    assert list(found) == list(parts)
    for view, count in parts.items():
        mu = whole * math.sqrt(7 / count)
        assert found[view].mu == pytest.approx(mu, rel=1e-12)
        assert found[view].epsilon == pytest.approx(epsilon_of_mu(mu, 1e-6), rel=1e-5)
        assert found[view].view == view
        assert found[view].certified
    assert found["leaf"].epsilon <= WISH["epsilon"]
    assert found["leaf"].epsilon > 0.999 * WISH["epsilon"]
    # by the numbers themselves: epsilon 1 at delta 1e-6 is mu 0.2367, which 7 parts have
    assert found["leaf"].mu == pytest.approx(0.2367, abs=5e-5)
    assert found["aggregator at level 1"].mu == pytest.approx(0.6262, abs=2e-4)
    assert "did not arrive" in " ".join(found["aggregator at level 2"].caveats)
    everybody = _guarantees(study, 9, (1, 3))
    assert "aggregators, of a leaf that did not arrive" not in everybody
    assert "did not arrive" not in " ".join(everybody["aggregator at level 2"].caveats)


def test_what_no_finite_epsilon_follows_for_is_not_claimed():
    """One part of 4096 is too little noise for any claim; the result keeps its own."""
    found = _guarantees(study_of(MergeTree(64, 2)), 4096, (1, 64))
    assert list(found) == ["outsider", "leaf", "aggregator at level 2"]
    for guarantee in found.values():
        assert "nothing is claimed against this view: aggregator at level 1" in (
            " ".join(guarantee.caveats)
        )
    assert found["outsider"].epsilon <= WISH["epsilon"]


def test_where_aggregators_are_protected_a_single_message_keeps_the_wish():
    agreed = study_of(TREE, protect="aggregators")
    assert agreed.noise_parts == 1
    found = _guarantees(agreed, 1, (1, 1))
    assert set(found) == {
        "outsider",
        "aggregator at level 1",
        "aggregator at level 2",
        "aggregators, of a leaf that did not arrive",
    }
    assert all(0.999 < view.epsilon <= 1.0 for view in found.values())
    assert _guarantees(agreed, 9, (1, 3))["outsider"].mu == pytest.approx(0.2367 / 3, abs=5e-5)


def test_pure_noise_is_drawn_whole_or_refused():
    with refuses("tree-needs-gaussian", kind=PrivacyError):
        study_of(TREE, delta=0.0, sketch_size=None)
    agreed = study_of(TREE, delta=0.0, sketch_size=None, protect="aggregators")
    found = _guarantees(agreed, 5, (1, 2))
    assert {view.epsilon for view in found.values()} == {found["outsider"].epsilon}
    assert found["outsider"].epsilon == pytest.approx(1.0, rel=1e-3)
    outcome = publish(agreed, _run(agreed, range(5), np.eye(3)), secure=True)
    assert check(outcome.certificate).holds


@given(st.data())
def test_the_joint_law_of_all_that_a_level_sees_costs_no_more(data):
    """The exact loss of everything that aggregators of a level and above see, and the result.

    One row a thing seen, one column a leaf's noise; a row of one leaf moves what its message is in.
    """
    tree = trees(data.draw, most=9)
    agreed = study_of(tree)
    values = [totals_of(agreed, leaf) for leaf in range(tree.leaf_count)]
    chance = chance_of(data)
    lost = data.draw(st.sets(st.integers(0, tree.leaf_count - 1), max_size=tree.leaf_count - 1))
    found = climb(agreed.codec(SESSION, KEYS), values, chance, lost=lost)
    there = set(np.flatnonzero(found.merged.arrived).tolist())
    for level in range(1, tree.depth + 1):
        seen = [m for above in range(level, tree.depth + 1) for m in found.taken[above]]
        seen.append(frozenset(there))
        inside = np.array([[leaf in m for leaf in range(tree.leaf_count)] for m in seen], int)
        covariance = (inside @ inside.T).astype(object)
        losses = [mu_of_view(covariance, inside[:, leaf]) for leaf in there]
        worst = math.sqrt(1.0 / found.merged.least[level - 1])
        assert max(losses) == pytest.approx(worst, rel=1e-12)


def test_too_few_leaves_are_not_published(study):
    with refuses("too-many-lost", kind=PrivacyError) as error:
        publish(study, _run(study, range(6)), secure=True)
    assert "6 leaves arrived" in str(error.value)
    outcome = publish(study, _run(study, range(7), np.eye(3)), secure=True)
    assert outcome.guarantee_.certified
    assert outcome.guarantee_.epsilon <= WISH["epsilon"]
    assert outcome.least == (1, 1)


def test_the_result_is_certified_and_holds():
    tree = MergeTree(4, 2)
    agreed = make_tree_study(
        tree, features=6, n_components=2, epsilon=2.0, delta=1e-6, sketch_size=5, lost=5
    )
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3000, 6)) * np.array([5, 4, 0.2, 0.2, 0.2, 0.2])
    merged = _run(agreed, [*range(6), *range(10, 16)], rows)
    outcome = publish(agreed, merged, secure=True)
    assert check(outcome.certificate).holds
    assert "tree.md" in outcome.certificate.proofs
    assert np.abs(outcome.factors.components[:, :2]).max(axis=1).min() > 0.9
    assert outcome.factors.rows == pytest.approx(36000, rel=0.05)
    assert np.flatnonzero(~outcome.arrived).tolist() == [6, 7, 8, 9]
    seeded = publish(agreed, merged, secure=False)
    assert not seeded.guarantee_.certified
    assert check(seeded.certificate).word == "NOT CERTIFIED"
    fewer = Merged(merged.value, merged.arrived & (np.arange(16) < 9), merged.least)
    with pytest.raises(PrivacyError):
        publish(agreed, fewer, secure=True)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"lost": -1}, "bad-lost"),
        ({"lost": 9}, "bad-lost"),
        ({"protect": "nobody"}, "bad-protect"),
        ({"n_components": 4}, "too-many-components"),
    ],
)
def test_studies_that_cannot_be(fields, code):
    with refuses(code):
        study_of(TREE, **fields)


def test_numbers_that_no_tree_has():
    TreeRun(leaves=9, fan_out=3, arrived=9, least=(1, 3))
    numbers = ((10, (1, 1)), (0, (1, 1)), (9, ()), (9, (10, 10)), (9, (0, 1)), (9, (1,)))
    # messages of leaves are of one; no node has more than three; 8 are in no two parts of 3 or more
    for arrived, least in (*numbers, (9, (2, 3)), (9, (1, 4)), (8, (1, 3)), (9, (1, 3, 2))):
        with pytest.raises(ValueError, match="validation error for TreeRun"):
            TreeRun(leaves=9, fan_out=3, arrived=arrived, least=least)


def test_a_certificate_says_what_every_view_costs(study):
    """Recomputed from the file alone; a run with more leaves than arrived is found out."""
    outcome = publish(study, _run(study, range(9)), secure=True)
    read = Certificate.model_validate_json(outcome.certificate.model_dump_json())
    assert check(read).holds
    assert dict(check(read).views) == outcome.guarantees_
    fewer = read.model_copy(update={"tree": TreeRun(leaves=9, fan_out=3, arrived=3, least=(1, 1))})
    assert not check(fewer).holds
