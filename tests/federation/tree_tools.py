"""Small trees whose every message a test can see, drop, repeat and change."""

import json
import random
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from eigenveil.federation.protocol.messages import Message, decode, encode
from eigenveil.federation.tree.messages import TreeKeys, TreeMessage
from eigenveil.federation.tree.nodes import Merged, Node
from eigenveil.federation.tree.private import make_tree_study
from eigenveil.federation.tree.tree import MergeTree, TreePlace

LIMIT = 1 << 24
KEYS = TreeKeys.in_one_process()
WISH = {"features": 3, "n_components": 1, "epsilon": 1.0, "delta": 1e-6, "sketch_size": 2}


def study_of(tree, **fields):
    return make_tree_study(tree, **(WISH | fields))


def chance_of(data):
    """An order of events, drawn as one number: a run has too many to draw each by itself."""
    return random.Random(data.draw(st.integers(0, 2**32), label="order of events"))


def totals_of(study, number):
    """Sums that no two leaves share; any 64-bit integers will do."""
    rng = np.random.default_rng([number, 7])
    sizes = study.content.sizes
    return tuple(rng.integers(0, 2**64, size=size, dtype=np.uint64) for size in sizes)


def leaf_message(codec, number, value, *, serial=0):
    return codec.write(TreeMessage(TreePlace(0, number), serial, np.ones(1, dtype=bool), (), value))


def signed(data, sender, receiver):
    """A message with the signature of its sender, who may say whatever it likes."""
    return data + KEYS.sign(data, sender, receiver)


def changed(data, *, to=TreePlace(1, 0), body=None, arrays=None, drop=(), **header):  # noqa: B008
    """A message with some fields of its body, arrays or header changed, signed again.

    Where it names nobody of a tree as its sender, the signature is that of the one before.
    """
    said = data[:-64]
    sender = json.loads(said[8 : 8 + int.from_bytes(said[4:8], "little")])["sender"]
    found = decode(said, sender=sender, limit=LIMIT)
    kept = {name: array for name, array in found.arrays.items() if name not in drop}
    made = replace(
        found, body={**found.body, **(body or {})}, arrays={**kept, **(arrays or {})}, **header
    )
    return signed(encode(made), TreePlace.of(made.sender) or TreePlace.of(sender), to)


def not_of_a_tree(body):
    return encode(Message("merge", "s", "s", "aggregator", body)) + bytes(64)


@dataclass
class Climb:
    """What went up a tree: the root's result, and every message that was taken, by level."""

    merged: Merged | None
    root: Node
    taken: dict[int, list[frozenset[int]]] = field(default_factory=dict)


def climb(codec, values, chance, *, node=Node, silent=(), lost=(), repeats=0.2):
    """Send leaves' states to the root in an order that ``chance`` (random.Random) makes up.

    Messages overtake one another and arrive twice; nodes send whenever they like, and at the end
    what they have left. Nodes in ``silent`` never send; leaves in ``lost`` are not heard.
    """
    tree = codec.tree
    nodes = {p: node(codec, p) for level in range(1, tree.depth + 1) for p in tree.places(level)}
    waiting = {place: set() for place in nodes}
    flying = [
        (TreePlace(0, leaf), leaf_message(codec, leaf, values[leaf]), frozenset([leaf]))
        for leaf in range(tree.leaf_count)
        if leaf not in lost
    ]
    taken, done = {level: [] for level in range(1, tree.depth + 1)}, set()

    def send(place):
        if place == tree.root or place in silent:
            return
        data = nodes[place].send()
        assert (data is None) == (not waiting[place])
        if data is not None:
            flying.append((place, data, frozenset(waiting[place])))
            waiting[place].clear()

    while True:
        while flying:
            sender, data, leaves = flying.pop(chance.randrange(len(flying)))
            receiver = tree.parent(sender)
            new = nodes[receiver].take(data)
            assert new == ((sender, data) not in done), "a retry is taken once"
            if new:
                done.add((sender, data))
                taken[receiver.level].append(leaves)
                waiting[receiver] |= leaves
            if chance.random() < repeats:
                flying.append((sender, data, leaves))
            if chance.random() < 0.4:
                send(receiver)
        for place in nodes:
            send(place)
        if not flying:
            break
    root = nodes[tree.root]
    return Climb(root.result() if waiting[tree.root] else None, root, taken)


def arriving(tree, lost, silent):
    """Leaves with nobody silent above them."""
    found = set()
    for leaf in set(range(tree.leaf_count)) - set(lost):
        place = TreePlace(0, leaf)
        while place is not None and place not in silent:
            place = tree.parent(place)
        if place is None:
            found.add(leaf)
    return found


def trees(draw, *, most=40):
    """A tree of any shape, with at most so many leaves."""
    fan_out = draw(st.integers(2, 4))
    depth = draw(st.integers(1, 3))
    room = min(most, fan_out**depth)
    return MergeTree(fan_out, depth, draw(st.integers(1, room)))
