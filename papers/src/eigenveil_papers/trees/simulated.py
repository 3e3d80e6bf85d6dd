"""A tree of sites in one process, on made-up rows: what every level does, costs and misses.

The parties are those of a real tree; messages are handed over rather than carried.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from eigenveil.app.parts import Part, TablePart, bytes_text, strongly
from eigenveil.app.results import view_parts
from eigenveil.errors import DataError
from eigenveil.federation.tree.messages import Totals, TreeKeys
from eigenveil.federation.tree.nodes import Node, TreeOutcome, publish, release_sums
from eigenveil.federation.tree.private import Leaf, TreeStudy
from eigenveil.federation.tree.tree import MergeTree, TreePlace
from eigenveil.linalg.eigen import leading_eigenpairs, left_singular, single_threaded_blas
from eigenveil.moments.independence import dependence
from eigenveil.noise.source import noise_source
from eigenveil.privacy.tree_views import check_arrived

_SIGNAL = 0.5  # Of a row's energy, what lies along the strong directions
_MOST_PARTIES = 128  # Of a level that are looked at, chosen at random
_MOST_FEATURES = 4096  # Beyond, the rows' exact second moment is too large to hold


class TreeRows:
    """Rows of norm 1, made anew for each leaf whenever they are requested.

    Half of a row's energy lies along ``components`` orthonormal directions, with variances that
    fall from 4 to 1; the other half is spread evenly over all features.
    """

    def __init__(self, *, features: int, components: int, rows: int, seed: int) -> None:
        self.features, self.rows, self._seed = features, rows, seed
        rng = np.random.default_rng([seed])
        basis, _ = np.linalg.qr(rng.standard_normal((features, components)))
        shares = np.linspace(4.0, 1.0, components)
        deviations = np.sqrt(_SIGNAL * shares / shares.sum())
        self._directions: NDArray[np.float32] = (basis * deviations).T.astype(np.float32)

    def leaf(self, number: int) -> NDArray[np.float64]:
        """The rows of a leaf, shape (rows, features)."""
        rng = np.random.default_rng([self._seed, number])
        scores = rng.standard_normal((self.rows, len(self._directions)), dtype=np.float32)
        rows = rng.standard_normal((self.rows, self.features), dtype=np.float32)
        rows *= np.float32(np.sqrt((1.0 - _SIGNAL) / self.features))
        rows += scores @ self._directions
        rows /= np.sqrt(np.vecdot(rows, rows))[:, None]
        return rows.astype(np.float64)


def check_share(name: str, value: float) -> None:
    """Raise unless it is from 0 to below 1."""
    if not 0 <= value < 1:
        wanted = "from 0 to below 1, a share of the leaves"
        raise DataError("out-of-range", name=name, value=value, wanted=wanted)


@dataclass(frozen=True)
class FaultPlan:
    """What happens to whom: leaves that never send, leaves that are late, nodes that never send."""

    lost: frozenset[int]
    late: tuple[int, ...]
    silent: frozenset[TreePlace]

    @classmethod
    def drawn(
        cls,
        tree: MergeTree,
        *,
        lost: float,
        late: float,
        lost_subtrees: int,
        rng: np.random.Generator,
    ) -> Self:
        """At random: so many of all leaves lost, so many of the others late."""
        check_share("lost", lost)
        check_share("late", late)
        inner = [place for level in range(1, tree.depth) for place in tree.places(level)]
        if not 0 <= lost_subtrees <= len(inner):
            wanted = f"between 0 and {len(inner)}, the nodes between leaves and root"
            raise DataError(
                "out-of-range", name="lost_subtrees", value=lost_subtrees, wanted=wanted
            )
        order = rng.permutation(tree.leaf_count).tolist()
        rest = order[(gone := round(lost * tree.leaf_count)) :]
        silent = rng.permutation(len(inner))[:lost_subtrees].tolist()
        return cls(
            frozenset(order[:gone]),
            tuple(rest[: round(late * len(rest))]),
            frozenset(inner[i] for i in silent),
        )

    def arriving(self, tree: MergeTree) -> frozenset[int]:
        """The leaves whose rows are in the result."""
        missing = self.lost.union(*(tree.under(place) for place in self.silent))
        return frozenset(range(tree.leaf_count)) - missing


@dataclass
class TreeLevel:
    """What one level did."""

    level: int  # 0: the leaves
    parties: int
    sent: int = 0  # Parties that sent anything; of the root: 1
    messages: int = 0  # Supplements too, and their size
    bytes: int = 0
    # Processor time of all parties, and of the one that took longest: adding up rows and drawing
    # noise (leaves), or reading, adding up and writing messages
    seconds: float = 0.0
    slowest: float = 0.0
    # Share of the best possible energy that K components of a party's first message miss, on
    # average over the level
    error: float | None = None


@dataclass(frozen=True, eq=False)
class TreeReport:
    """What a simulated tree did."""

    tree: MergeTree
    levels: tuple[TreeLevel, ...]  # From the leaves to the root
    outcome: TreeOutcome  # What the root may publish
    late: int  # Leaves that came after their node had sent
    rows: int  # In the result

    @property
    def critical_seconds(self) -> float:
        """Processor time on the longest way up, were every party a computer of its own (s)."""
        return sum(level.slowest for level in self.levels)

    def as_json(self) -> dict[str, Any]:
        return {
            "leaves": self.tree.leaf_count,
            "fan_out": self.tree.fan_out,
            "arrived": int(np.count_nonzero(self.outcome.arrived)),
            "late": self.late,
            "rows": self.rows,
            "critical_seconds": self.critical_seconds,
            "levels": self.levels,
            "guarantees": {view: of.as_dict() for view, of in self.outcome.guarantees_.items()},
        }

    def parts(self) -> Iterator[Part]:
        names = {0: "leaves", self.tree.depth: "root"}
        numbers = ("parties", "sent", "messages", "bytes", "all (s)", "slowest (ms)", "missed")
        rows = [
            (
                names.get(each.level, f"level {each.level}"),
                *(f"{count:,}" for count in (each.parties, each.sent, each.messages)),
                bytes_text(each.bytes),
                f"{each.seconds:.3f}",
                f"{1000 * each.slowest:.2f}",
                "-" if each.error is None else f"{100 * each.error:.3g} %",
            )
            for each in self.levels
        ]
        title = f"{self.tree.leaf_count} leaves, {self.tree.fan_out} children a node"
        yield TablePart(title, ("level", *numbers), rows, right=numbers)
        yield (
            "missed: share of the energy of the best components of all rows that arrived, on "
            "average over the level. Times are of a processor; were every party a computer of its "
            f"own: {self.critical_seconds:.3f} s of work on the longest way up."
        )
        yield (
            f"{np.count_nonzero(self.outcome.arrived):,} of {self.tree.leaf_count:,} leaves "
            f"arrived ({self.late} late), {self.rows:,} made-up rows."
        )
        views, own = self.outcome.guarantees_, self.outcome.guarantee_
        yield from view_parts(views)
        yield strongly("guarantee of the result:", own)
        notes = dict.fromkeys(note for of in views.values() for note in of.caveats)
        yield from (f"note: {note}." for note in notes if note not in own.caveats)


def simulate_tree(
    study: TreeStudy,
    *,
    rows: int,
    lost: float = 0.0,
    late: float = 0.0,
    lost_subtrees: int = 0,
    seed: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> TreeReport:
    """Play every party of a tree, with so many made-up rows a leaf."""
    if rows < 1:
        raise DataError("out-of-range", name="rows", value=rows, wanted="1 or more")
    plan, tree = study.plan, study.tree
    entropy = int(np.random.SeedSequence(seed).generate_state(2, np.uint64)[0])
    rng = np.random.default_rng([entropy, 1])
    faults = FaultPlan.drawn(tree, lost=lost, late=late, lost_subtrees=lost_subtrees, rng=rng)
    arriving = faults.arriving(tree)
    for query in study.queries:  # known now: nothing has to be played for it
        check_arrived(query.record, len(arriving))
    made = TreeRows(features=plan.features, components=plan.n_components, rows=rows, seed=entropy)
    run = _Run(study, made, faults, arriving, rng, seed, progress)
    with single_threaded_blas():
        outcome = run.play()
        run.judge(outcome)
    late_ones = len(faults.late)
    return TreeReport(tree, tuple(run.levels), outcome, late_ones, rows * len(arriving))


@dataclass
class _Run:
    study: TreeStudy
    rows: TreeRows
    faults: FaultPlan
    arriving: frozenset[int]
    rng: np.random.Generator
    seed: int | None
    progress: Callable[[int, int], None] | None
    nodes: dict[TreePlace, Node[Totals]] = field(default_factory=dict)
    heard: set[TreePlace] = field(default_factory=set)
    seconds: dict[TreePlace, float] = field(default_factory=dict)
    bases: dict[TreePlace, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tree, size = self.study.tree, self.study.plan.features
        self.session, self.keys = os.urandom(12).hex(), TreeKeys.in_one_process()
        self.codec = self.study.codec(self.session, self.keys)
        self.levels = [TreeLevel(of, tree.nodes(of)) for of in range(tree.depth + 1)]
        self.moment = np.zeros((size, size) if size <= _MOST_FEATURES else (0, 0))
        self.chosen = {
            TreePlace(level, number)
            for level in range(tree.depth)
            for number in self.rng.permutation(tree.nodes(level))[:_MOST_PARTIES].tolist()
        }

    def play(self) -> TreeOutcome:
        """Everything that happens, in order."""
        tree = self.study.tree
        self._climb(tree.root)
        for leaf in self.faults.late:
            self._leaf(leaf)
        for level in range(1, tree.depth):  # supplements
            for place in tree.places(level):
                self._send(place)
        self.levels[-1].sent = 1
        merged = self._node(tree.root).result()
        secure = self.seed is None
        return publish(self.study, merged, secure=secure, dependent=dependence())

    def _climb(self, place: TreePlace) -> None:
        """Who comes in time, in any order; a node sends once its children have had theirs.

        So only the nodes on one way up hold anything.
        """
        children = self.study.tree.children(place)
        for child in self.rng.permutation(len(children)).tolist():
            self._climb(children[child])
        if place.level:
            self._send(place)
        elif place.number not in self.faults.lost.union(self.faults.late):
            self._leaf(place.number)

    def _leaf(self, number: int) -> None:
        """Let a leaf read its rows and send."""
        rows, place = self.rows.leaf(number), TreePlace(0, number)
        source = noise_source(None if self.seed is None else [self.seed, 2, number])
        started = time.thread_time()
        leaf = Leaf(self.study, number, source=source, session=self.session, keys=self.keys)
        message = leaf.partial_fit(rows).send()
        self.seconds[place] = time.thread_time() - started
        if number in self.arriving and self.moment.size:
            single = rows.astype(np.float32)  # a millionth is enough here, and half the time
            self.moment += single.T @ single
        self._deliver(place, message)
        if self.progress is not None:
            total = self.study.tree.leaf_count - len(self.faults.lost)
            self.progress(self.levels[0].sent, total)

    def _send(self, place: TreePlace) -> None:
        """Let a node send what it has, if it has anything."""
        if place in self.faults.silent or place == self.study.tree.root:
            return
        started = time.thread_time()
        message = self._node(place).send()
        self._took(place, started)
        if message is not None:
            self._deliver(place, message)

    def _deliver(self, sender: TreePlace, message: bytes) -> None:
        """Hand a party's message to its parent."""
        receiver = self.study.tree.parent(sender)
        assert receiver is not None
        started = time.thread_time()
        self._node(receiver).take(message)
        self._took(receiver, started)
        level = self.levels[sender.level]
        level.messages += 1
        level.bytes += len(message)
        if sender in self.heard:
            return
        self.heard.add(sender)
        level.sent += 1
        if sender in self.chosen and self.moment.size:
            read = self.codec.read(message, receiver=receiver)
            self.bases[sender] = self._components(read.value, int(np.count_nonzero(read.leaves)))

    def _took(self, place: TreePlace, started: float) -> None:
        self.seconds[place] = self.seconds.get(place, 0.0) + time.thread_time() - started

    def _node(self, place: TreePlace) -> Node[Totals]:
        if place not in self.nodes:
            self.nodes[place] = Node(self.codec, place)
        return self.nodes[place]

    def _components(self, totals: Totals, leaves: int) -> NDArray[np.float64]:
        """Of so many leaves' noisy sums, as rows."""
        plan = self.study.plan
        releases = release_sums(self.study, totals, leaves)
        moment = next(r for r in releases.values() if r.record.statistic == plan.way.statistic)
        decompose = leading_eigenpairs if plan.way.columns(plan) is None else left_singular
        return decompose(moment.values, plan.n_components)[1]

    def judge(self, outcome: TreeOutcome) -> None:
        """Tell each level's times, and what it misses of the best energy."""
        if self.moment.size:
            self.bases[self.study.tree.root] = outcome.factors.components
            best = float(np.sum(leading_eigenpairs(self.moment, self.study.plan.n_components)[0]))
        for level in self.levels:
            spent = [of for place, of in self.seconds.items() if place.level == level.level]
            level.seconds, level.slowest = sum(spent), max(spent, default=0.0)
            held = [
                float(np.einsum("kd,kd->", basis @ self.moment, basis)) / best
                for place, basis in self.bases.items()
                if place.level == level.level
            ]
            if held:
                level.error = float(np.mean([max(0.0, 1.0 - share) for share in held]))  # rounding
