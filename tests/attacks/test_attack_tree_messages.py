"""Messages of a tree that are not their sender's."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "federation"))

from tree_tools import LIMIT, leaf_message, study_of, totals_of

from eigenveil.errors import ProtocolError
from eigenveil.federation.protocol.messages import decode, encode
from eigenveil.federation.tree.messages import TreeKeys
from eigenveil.federation.tree.nodes import Node
from eigenveil.federation.tree.tree import MergeTree, TreePlace

TREE = MergeTree(fan_out=3, depth=2)
NODE = TreePlace(1, 0)


@pytest.fixture
def study():
    return study_of(TREE, lost=2)


def refused(node, data):
    """The code of a refusal that has changed nothing."""
    before = node.waiting, node.leaves.copy()
    with pytest.raises(ProtocolError) as caught:
        node.take(data)
    assert node.waiting == before[0]
    assert (node.leaves == before[1]).all()
    return caught.value.code


def rewritten(data, signed_by, **header):
    """A message with another header under the old signature."""
    found = decode(data[:-64], sender=signed_by, limit=LIMIT)
    return encode(replace(found, **header)) + data[-64:]


def test_swapped_messages_are_refused(study):
    """Leaf 0's sums under leaf 1's name, with leaf 0's signature or with that of leaf 1's own."""
    codec = study.codec("monday", TreeKeys.in_one_process())
    node = Node(codec, NODE)
    first, second = (leaf_message(codec, number, totals_of(study, number)) for number in (0, 1))
    renamed = rewritten(first, "leaf 0", sender="leaf 1")
    assert refused(node, renamed) == "not-signed-by-sender"
    assert refused(node, renamed[:-64] + second[-64:]) == "not-signed-by-sender"
    assert refused(node, first[:-64] + second[-64:]) == "not-signed-by-sender"
    assert node.take(first)
    assert refused(node, renamed) == "not-signed-by-sender"
    assert node.take(second)


def test_a_party_signs_for_its_own_place_alone(study):
    """A leaf with a key of its own, which is not that of the place it claims."""
    keys = TreeKeys.in_one_process()
    codec = study.codec("monday", keys)
    node = Node(codec, NODE)
    another = study.codec("monday", TreeKeys.in_one_process())
    forged = leaf_message(another, 1, totals_of(study, 1))
    assert refused(node, forged) == "not-signed-by-sender"
    mine = TreeKeys(keys._public, {TreePlace(0, 0): keys._private[TreePlace(0, 0)]})
    leaf = study.codec("monday", mine)
    assert node.take(leaf_message(leaf, 0, totals_of(study, 0)))
    with pytest.raises(ProtocolError) as caught:
        leaf_message(leaf, 1, totals_of(study, 1))
    assert caught.value.code == "no-key"


def test_replayed_messages_are_refused(study):
    """Of another run, renamed or not; of a run with the same name, which has other keys."""
    keys = TreeKeys.in_one_process()
    monday, tuesday = (study.codec(day, keys) for day in ("monday", "tuesday"))
    old = leaf_message(monday, 0, totals_of(study, 0))
    node = Node(tuesday, NODE)
    assert refused(node, old) == "other-session"
    assert refused(node, rewritten(old, "leaf 0", session="tuesday")) == "not-signed-by-sender"
    assert refused(node, rewritten(old, "leaf 0", study="another")) == "not-signed-by-sender"
    again = Node(study.codec("monday", TreeKeys.in_one_process()), NODE)
    assert refused(again, old) == "not-signed-by-sender"


def test_a_message_is_for_one_parent(study):
    """Signed for one node, it is nothing to another that has the sender under it in its tree."""
    keys = TreeKeys.in_one_process()
    codec = study.codec("monday", keys)
    data = leaf_message(codec, 0, totals_of(study, 0))
    said = data[:-64]
    elsewhere = said + keys.sign(said, TreePlace(0, 0), TreePlace(1, 1))
    assert refused(Node(codec, NODE), elsewhere) == "not-signed-by-sender"
    assert refused(Node(codec, TreePlace(1, 1)), data) == "not-a-child"
    for place in range(0, len(data), 97):
        changed = bytearray(data)
        changed[place] ^= 1
        assert refused(Node(codec, NODE), bytes(changed)) in (
            "not-signed-by-sender",
            "malformed",
            "not-a-child",
        )
