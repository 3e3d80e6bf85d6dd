"""Figure 4 d to f of paper 002: time of federated FPCA over nodes, streams that are never held.

Leaves are real processes, as many at a time as this machine has processors; what as many processors
as nodes would take is computed from the leaves' own times, and called simulated.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from eigenveil.linalg.subspace import Subspace, merge, subspace_distance
from eigenveil_papers.published.federated_pca import FPCA
from eigenveil_papers.reproduction.experiment import Point
from eigenveil_papers.reproduction.paper002 import BLOCK
from eigenveil_papers.reproduction.runner import processes

LEAF_RANK = 10
"""r of leaves and nodes, as in the authors' scripts."""
_PIECE = 1000  # rows of a stream that exist at a time


class TrackedLeaf(NamedTuple):
    """What a leaf has after a share of its rows."""

    subspace: Subspace
    elapsed: float  # Seconds spent in FPCA until then; not in drawing rows
    processor: float


def leaf(seed: Sequence[int], shares: Sequence[int], features: int) -> list[TrackedLeaf]:
    """Read a stream of Synth(1) rows that is drawn while it is read.

    The directions are the axes: FPCA takes as long for them as for any others, and rows need not be
    turned. Memory is that of a piece of 1000 rows.
    """
    rng = np.random.default_rng(list(seed))
    spectrum = 1.0 / np.arange(1, features + 1)
    tracker = FPCA(n_components=LEAF_RANK, block=BLOCK, adapt=False)
    found: list[TrackedLeaf] = []
    read, elapsed, processor = 0, 0.0, 0.0
    for share in shares:
        while read < share:
            rows = rng.standard_normal((min(_PIECE, share - read), features)) * spectrum
            read += len(rows)
            start, start_processor = time.perf_counter(), time.process_time()
            tracker.partial_fit(rows)
            elapsed += time.perf_counter() - start
            processor += time.process_time() - start_processor
        found.append(TrackedLeaf(tracker.subspace, elapsed, processor))
    return found


def leaves(
    seeds: Sequence[Sequence[int]], shares: Sequence[int], features: int
) -> list[list[TrackedLeaf]]:
    """One process's leaves, one after the other."""
    return [leaf(seed, shares, features) for seed in seeds]


def processors() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # pragma: no cover


class MergedTree(NamedTuple):
    """The root of a binary tree, and the seconds that its merges took."""

    root: Subspace
    all: float  # One merge after the other, as the authors' script does them
    path: float  # The slowest merge of each level: with a processor for each node


def merged(level: list[Subspace]) -> MergedTree:
    """Merge up a binary tree of a power of two of leaves."""
    everything = path = 0.0
    while len(level) > 1:
        upper, seconds = [], []
        for first, second in zip(level[::2], level[1::2], strict=True):
            start = time.perf_counter()
            upper.append(merge(first, second, rank=LEAF_RANK))
            seconds.append(time.perf_counter() - start)
        level = upper
        everything += sum(seconds)
        path += max(seconds)
    return MergedTree(level[0], everything, path)


def streamed_tree(
    rng: np.random.Generator, *, features: int, sizes: Sequence[int], nodes: int
) -> Iterator[Point]:
    """Times of one tree, for streams of several numbers of rows.

    Each node reads its part of the longest stream, and tells what it has after its parts of the
    shorter ones, so that all sizes take one pass. Panels ``tree-total``, ``tree-computing`` and
    ``tree-merging``, in seconds over nodes; ``tree-far``, the distance of the root from the true
    directions. Series ``rows=N`` are elapsed time of real processes, ``simulated`` is of the
    longest stream with as many processors as nodes: the slowest leaf and the slowest merges.
    """
    shares = [size // nodes for size in sorted(sizes)]
    stem = int(rng.integers(2**62))
    seeds = [[stem, number] for number in range(nodes)]
    count = min(processors(), nodes)
    if count == 1:
        told = [leaves(seeds, shares, features)]
    else:
        with processes(count) as pool:
            # all have started and have loaded what they need before any is timed
            list(pool.map(leaves, [[]] * count, [[]] * count, [1] * count))
            parts = [seeds[first::count] for first in range(count)]
            told = list(pool.map(leaves, parts, [shares] * count, [features] * count))
    aim = np.eye(features)[:, :LEAF_RANK]
    for place, size in enumerate(sorted(sizes)):
        here = [[found[place] for found in of] for of in told]
        # node i is of process i modulo their number: the tree is the same for any number of them
        up = merged([here[node % count][node // count].subspace for node in range(nodes)])
        computing = max(sum(found.elapsed for found in of) for of in here)
        name = f"rows={size}"
        yield Point("tree-computing", name, nodes, computing)
        yield Point("tree-total", name, nodes, computing + up.all)
        yield Point("tree-far", name, nodes, subspace_distance(aim, up.root.basis))
        if nodes > 1:
            yield Point("tree-merging", name, nodes, up.all)
        if size == max(sizes):
            slowest = max(found.processor for of in here for found in of)
            yield Point("tree-computing", "simulated", nodes, slowest)
            yield Point("tree-total", "simulated", nodes, slowest + up.path)
            if nodes > 1:
                yield Point("tree-merging", "simulated", nodes, up.path)
    yield Point("tree-processors", "here", nodes, float(processors()))
