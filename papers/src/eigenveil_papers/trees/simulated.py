"""A simulated tree of sites in one process, on synthetic rows or on given ones."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.federation.tree.contents import Totals
from eigenveil.federation.tree.messages import TreeCodec, TreeKeys, TreeMessage
from eigenveil.federation.tree.nodes import Node, publish
from eigenveil.federation.tree.private import Leaf, TreeStudy
from eigenveil.federation.tree.rounds import TreeRounds
from eigenveil.federation.tree.tree import TreePlace
from eigenveil.linalg.eigen import single_threaded_blas
from eigenveil.linalg.subspace import Subspace, subspace_of
from eigenveil.moments.engine import check_block
from eigenveil.moments.independence import dependence
from eigenveil.moments.rows import Block
from eigenveil.noise.source import RandomSource, SecureSource, SeededSource
from eigenveil.privacy.tree_views import check_arrived
from eigenveil_papers.trees.faults import Errors, FaultPlan
from eigenveil_papers.trees.report import TreeLevel, TreeReport, TreeRound
from eigenveil_papers.trees.subspaces import Subspaces

# Of a row's energy, what lies along the strong directions.
_SIGNAL = 0.5


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

    def count(self, number: int) -> int:
        """How many rows a leaf has."""
        del number
        return self.rows

    def leaf(self, number: int) -> NDArray[np.float64]:
        """The rows of a leaf, shape (rows, features)."""
        rng = np.random.default_rng([self._seed, number])
        scores = rng.standard_normal((self.rows, self._directions.shape[0]), dtype=np.float32)
        rows = rng.standard_normal((self.rows, self.features), dtype=np.float32)
        rows *= np.float32(np.sqrt((1.0 - _SIGNAL) / self.features))
        rows += scores @ self._directions
        rows /= np.sqrt(np.vecdot(rows, rows))[:, None]
        return rows.astype(np.float64)


NEEDS_ALL = "Fill or drop such rows first: what a simulation measures needs all of them."


class DealtRows:
    """Given rows, dealt to the leaves at random: of each as many as of any other, or one less."""

    def __init__(self, rows: NDArray[np.floating[Any]], *, leaves: int, seed: int) -> None:
        if rows.ndim != 2 or len(rows) < leaves:
            raise DataError("too-few-rows-for-leaves", rows=len(rows), leaves=leaves)
        check_block(Block(rows), None, hint=NEEDS_ALL)
        self.features = rows.shape[1]
        self._rows = rows
        order = np.random.default_rng([seed, 3]).permutation(len(rows))
        self._of_leaf = np.array_split(order, leaves)

    def count(self, number: int) -> int:
        """How many rows a leaf has."""
        return self._of_leaf[number].size

    def leaf(self, number: int) -> NDArray[np.float64]:
        """The rows of a leaf, shape (count, features)."""
        return self._rows[np.sort(self._of_leaf[number])].astype(np.float64)


# -- A whole tree in one process: leaves, lost ones, late ones, and what each level costs.
#
# The roles are those of a real tree; only the rows may be made up, and messages are handed over
# rather than carried. Beside the private sums the leaves' subspaces go up too, without noise, for
# comparison (paper 002, algorithm 1).


TreeProgress = Callable[[int, int], None]


@dataclass
class _Tally:
    """What a level has done so far."""

    sent: int = 0
    messages: int = 0
    bytes: int = 0
    merged_bytes: int = 0
    merged_seconds: float = 0.0


class _Pair:
    """A party of the tree that merges the private sums, and one that merges the subspaces."""

    def __init__(
        self, codec: TreeCodec[Totals], plain: TreeCodec[Subspace], place: TreePlace
    ) -> None:
        self.sums, self.subspaces = Node(codec, place), Node(plain, place)
        self.seconds, self.sent = 0.0, 0


def simulate_tree(
    study: TreeStudy,
    *,
    rows: int | NDArray[np.floating[Any]],
    lost: float = 0.0,
    late: float = 0.0,
    lost_subtrees: int = 0,
    rounds: int = 1,
    seed: int | None = None,
    rank: int | None = None,
    workers: int | None = None,
    progress: TreeProgress | None = None,
) -> TreeReport:
    """Play every party of a tree, on made-up rows or on given ones.

    What is measured of given rows, such as errors, is as private as they are.
    """
    if isinstance(rows, int) and rows < 1:
        raise DataError("out-of-range", name="rows", value=rows, wanted="1 or more")
    if rounds < 1:
        raise DataError("out-of-range", name="rounds", value=rounds, wanted="1 or more")
    refreshed = TreeRounds(study) if rounds > 1 else None
    entropy = int(np.random.SeedSequence(seed).generate_state(2, np.uint64)[0])
    given: TreeRows | DealtRows
    if isinstance(rows, int):
        given = TreeRows(
            features=study.plan.features,
            components=study.plan.n_components,
            rows=rows,
            seed=entropy,
        )
    else:
        given = DealtRows(rows, leaves=study.tree.leaf_count * rounds, seed=entropy)
    workers = workers or _processors()
    played: list[TreeRound] = []
    with single_threaded_blas(), ThreadPoolExecutor(workers) as pool:
        for turn in range(rounds):
            rng = np.random.default_rng([entropy, 1, turn])
            fault_plan = FaultPlan.drawn(
                study.tree, lost=lost, late=late, lost_subtrees=lost_subtrees, rng=rng
            )
            arriving = sum(
                fault_plan.arrives(study.tree, leaf) for leaf in range(study.tree.leaf_count)
            )
            for query in study.queries:  # known now: nothing has to be played for it
                check_arrived(query.record, arriving)
            run = _Run(study, fault_plan, rng, given, turn, refreshed, seed=seed, rank=rank)
            report = run.play(pool, workers, progress)
            played.append(TreeRound(arriving, report.rows, report.levels[-1].error))
    return replace(report, rounds=tuple(played))


class _Run:
    def __init__(
        self,
        study: TreeStudy,
        fault_plan: FaultPlan,
        rng: np.random.Generator,
        rows: TreeRows | DealtRows,
        turn: int,
        refreshed: TreeRounds | None,
        *,
        seed: int | None,
        rank: int | None,
    ) -> None:
        plan = study.plan
        kept = min(plan.features, rank or max(plan.sketch_columns, plan.n_components))
        self.study, self.tree, self.fault_plan, self.rng = study, study.tree, fault_plan, rng
        self.session, self.keys = os.urandom(12).hex(), TreeKeys.in_one_process()
        self.codec = study.codec(self.session, self.keys)
        plain = Subspaces(features=plan.features, rank=kept)
        self.plain = TreeCodec(self.tree, plain, study.hash, self.session, self.keys)
        self.rows, self.turn, self.refreshed = rows, turn, refreshed
        self.seed, self.rank = seed, kept
        self.errors = Errors(study, rng)
        self.pairs: dict[TreePlace, _Pair] = {}
        self.tallies = [_Tally() for _ in range(self.tree.depth + 1)]
        self.leaf_seconds: list[float] = []

    def play(
        self, pool: ThreadPoolExecutor, workers: int, progress: TreeProgress | None
    ) -> TreeReport:
        """Everything that happens, in order."""
        start = time.perf_counter()
        steps = list(self._order())
        leaves = [step.number for step in steps if step.level == 0]
        made = self._made([*leaves, *self.fault_plan.late], pool, 2 * workers, progress)
        for step in steps:
            if step.level == 0:
                self._deliver(TreePlace(0, step.number), *next(made))
            else:
                self._send(step)
        for leaf in self.fault_plan.late:
            self._deliver(TreePlace(0, leaf), *next(made))
        for level in range(1, self.tree.depth):  # supplements
            for place in self.tree.places(level):
                self._send(place)
        root = self._pair(self.tree.root)
        merged = root.sums.result()
        self.tallies[-1].sent = 1
        secure, dependent = self.seed is None, dependence()
        if self.refreshed is None:
            outcome = publish(self.study, merged, secure=secure, dependent=dependent)
        else:
            outcome = self.refreshed.add(self.session, merged, secure=secure, dependent=dependent)
        plain = root.subspaces.result().value
        seconds = time.perf_counter() - start
        self.errors.keep(self.tree.root, outcome.factors.components, plain)
        return TreeReport(
            tree=self.tree,
            levels=self._levels(outcome.least),
            outcome=outcome,
            late=len(self.fault_plan.late),
            lost_subtrees=len(self.fault_plan.silent),
            rows=sum(
                self.rows.count(self._place(leaf))
                for leaf in np.flatnonzero(merged.arrived).tolist()
            ),
            made_up=isinstance(self.rows, TreeRows),
            seconds=seconds,
            workers=workers,
        )

    def _order(self) -> Iterator[TreePlace]:
        """Leaves that arrive in time, and nodes when they send, sub-tree by sub-tree at random.

        A node sends once all of its children have had their time; so only the nodes on one way up
        hold anything.
        """
        late = frozenset(self.fault_plan.late)

        def below(place: TreePlace) -> Iterator[TreePlace]:
            if place.level == 0:
                if place.number not in self.fault_plan.lost and place.number not in late:
                    yield place
                return
            children = self.tree.children(place)
            for child in self.rng.permutation(len(children)).tolist():
                yield from below(children[child])
            if place != self.tree.root:
                yield place

        return below(self.tree.root)

    def _made(
        self,
        leaves: Sequence[int],
        pool: ThreadPoolExecutor,
        ahead: int,
        progress: TreeProgress | None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """The leaves' messages, in order, a few of them made ahead."""
        waiting: deque[Future[tuple[bytes, bytes, float, float]]] = deque()
        left = iter(leaves)
        for done in range(len(leaves)):
            while len(waiting) < ahead and (leaf := next(left, None)) is not None:
                waiting.append(pool.submit(self._leaf, leaf))
            sums, subspace, seconds, merged_seconds = waiting.popleft().result()
            self.leaf_seconds.append(seconds)
            self.tallies[0].sent += 1
            self.tallies[0].merged_seconds += merged_seconds
            if progress is not None:
                progress(done + 1, len(leaves))
            yield sums, subspace

    def _leaf(self, number: int) -> tuple[bytes, bytes, float, float]:
        """A leaf's messages, and the processor time that each took."""
        rows = self.rows.leaf(self._place(number))
        started = time.thread_time()
        leaf = Leaf(
            self.study,
            number,
            source=self._source(number),
            session=self.session,
            keys=self.keys,
        )
        sums = leaf.partial_fit(rows).send()
        added = time.thread_time()
        subspace = subspace_of(rows, rank=self.rank)
        message = TreeMessage(TreePlace(0, number), 0, np.ones(1, dtype=bool), (), subspace)
        plain = self.plain.write(message)
        merged = time.thread_time()
        if self.fault_plan.arrives(self.tree, number):
            self.errors.add(rows)
        return sums, plain, added - started, merged - added

    def _place(self, number: int) -> int:
        """Of a leaf's rows of this round among those of all rounds."""
        return self.turn * self.tree.leaf_count + number

    def _source(self, number: int) -> RandomSource:
        if self.seed is None:
            return SecureSource()
        return SeededSource(np.random.default_rng([self.seed, 2, self._place(number)]))

    def _pair(self, place: TreePlace) -> _Pair:
        if place not in self.pairs:
            self.pairs[place] = _Pair(self.codec, self.plain, place)
        return self.pairs[place]

    def _deliver(self, sender: TreePlace, sums: bytes, subspace: bytes) -> None:
        """Hand a party's messages to its parent."""
        parent = self.tree.parent(sender)
        assert parent is not None
        pair, tally = self._pair(parent), self.tallies[parent.level]
        started = time.thread_time()
        pair.sums.take(sums)
        middle = time.thread_time()
        pair.subspaces.take(subspace)
        tally.merged_seconds += time.thread_time() - middle
        pair.seconds += middle - started
        below = self.tallies[sender.level]
        below.messages += 1
        below.bytes += len(sums)
        below.merged_bytes += len(subspace)
        if sender.level == 0 or self._pair(sender).sent == 1:
            self._measure(sender, sums, subspace)

    def _send(self, place: TreePlace) -> None:
        """Let a node send what it has, if it has anything."""
        pair = self._pair(place)
        if place in self.fault_plan.silent or pair.sums.waiting == 0:
            return
        started = time.thread_time()
        sums = pair.sums.send()
        middle = time.thread_time()
        subspace = pair.subspaces.send()
        self.tallies[place.level].merged_seconds += time.thread_time() - middle
        pair.seconds += middle - started
        assert sums is not None
        assert subspace is not None
        pair.sent += 1
        self.tallies[place.level].sent += pair.sent == 1
        self._deliver(place, sums, subspace)

    def _measure(self, sender: TreePlace, sums: bytes, subspace: bytes) -> None:
        """Keep a message's result for the components, of some of the parties of a level."""
        if not self.errors.wants(sender):
            return
        parent = self.tree.parent(sender)
        assert parent is not None
        message = self.codec.read(sums, receiver=parent)
        plain = self.plain.read(subspace, receiver=parent).value
        count = int(np.count_nonzero(message.leaves))
        self.errors.keep(sender, self.errors.private_basis(message.value, count), plain)

    def _levels(self, least: tuple[int, ...]) -> tuple[TreeLevel, ...]:
        found = self.errors.by_level()
        times: list[list[float]] = [self.leaf_seconds]
        times += [
            [pair.seconds for place, pair in self.pairs.items() if place.level == level]
            for level in range(1, self.tree.depth + 1)
        ]
        return tuple(
            TreeLevel(
                level=level,
                parties=self.tree.nodes(level),
                sent=tally.sent,
                least=least[level - 1] if level else None,
                messages=tally.messages,
                bytes=tally.bytes,
                seconds=sum(seconds),
                slowest=max(seconds, default=0.0),
                merged_bytes=tally.merged_bytes,
                merged_seconds=tally.merged_seconds,
                error=error,
                merged_error=merged_error,
            )
            for level, (tally, seconds, (error, merged_error)) in enumerate(
                zip(self.tallies, times, found, strict=True)
            )
        )


def _processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
