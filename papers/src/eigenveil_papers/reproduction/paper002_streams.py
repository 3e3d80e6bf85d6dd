"""Figure 4 of paper 002, what is measured: trackers of a stream, and merging up a tree."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.linalg.subspace import Subspace, merge, subspace_distance, subspace_of
from eigenveil.models.streaming.private import PrivateStreamingPCA
from eigenveil.models.streaming.tracker import StreamingPCA
from eigenveil_papers.published.data import synth
from eigenveil_papers.published.federated_pca import FPCA, merge_up_tree
from eigenveil_papers.published.frequent_directions import FrequentDirections
from eigenveil_papers.published.spirit import Spirit
from eigenveil_papers.published.trackers import BlockPower, Grouse, Incremental
from eigenveil_papers.reproduction.data import Source, load
from eigenveil_papers.reproduction.experiment import Point
from eigenveil_papers.reproduction.paper002 import BLOCK, RANK, FloatArray

T = TypeVar("T")
STEP = 100
"""Positions are multiples of it: then no tracker has a block that is not full."""
_SKETCH = 16  # a buffer of 32 rows, where FPCA has 6 directions and a block of 25
_SMALLEST = 1e-13  # errors below it are rounding, and are drawn there
LEAF_RANK = 10
EPSILON, DELTA = 1.0, 1e-6
"""Of the private tree."""


def _trackers(seed: int) -> Mapping[str, Callable[[], Any]]:
    """New trackers by series; all tell RANK directions, and forget nothing."""
    return {
        "eigenveil": lambda: StreamingPCA(RANK),
        "fpca-open": lambda: FPCA(n_components=RANK, block=BLOCK, adapt=False),
        "frequent-directions": lambda: FrequentDirections(n_components=RANK, sketch_rows=_SKETCH),
        "spirit": lambda: Spirit(n_components=RANK, forgetting=1.0),
        "grouse": lambda: Grouse(n_components=RANK, random_state=seed),
        "block-power": lambda: BlockPower(n_components=RANK, block=STEP, random_state=seed),
        "incremental": lambda: Incremental(n_components=RANK, block=BLOCK),
    }


def _reported(tracker: Any) -> FloatArray:
    found = tracker.components_ if hasattr(tracker, "components_") else tracker.components
    return np.asarray(found, dtype=np.float64)


# Errors


class _Exact(NamedTuple):
    """Offline PCA of the first rows of a stream: moment, its trace, and components."""

    moment: FloatArray
    components: FloatArray

    def distance(self, components: FloatArray) -> float:
        """``|P - P_exact|_F / sqrt(2 r)``, 0 to 1."""
        found = components.T @ components - self.components.T @ self.components
        return float(np.linalg.norm(found) / np.sqrt(2 * len(self.components)))

    def excess(self, components: FloatArray) -> float:
        """The reconstruction's root mean square error over the exact one's, less 1."""
        return float(np.sqrt(self._left(components) / self._left(self.components))) - 1.0

    def _left(self, components: FloatArray) -> float:
        kept = float(np.einsum("kd,de,ke->", components, self.moment, components, optimize=True))
        return max(float(np.trace(self.moment)) - kept, 1e-300)


def _exact(rows: FloatArray, *, centered: bool) -> _Exact:
    about = rows - rows.mean(axis=0) if centered else rows
    moment = about.T @ about
    return _Exact(moment, leading_eigenpairs(moment, RANK)[1])


def _errors(
    rows: FloatArray, ends: Sequence[int], seed: int
) -> Iterator[tuple[str, int, float, float]]:
    """Series, rows read, and both errors against offline PCA of the rows until then.

    Incremental PCA subtracts the mean of what it has read, so it is held against centred rows.
    """
    exact = {c: [_exact(rows[:end], centered=c) for end in ends] for c in (False, True)}
    for series, make in _trackers(seed).items():
        tracker = make()
        start = 0
        for place, end in enumerate(ends):
            for at in range(start, end, BLOCK):
                tracker.partial_fit(rows[at : at + BLOCK])
            start = end
            aim = exact[series == "incremental"][place]
            found = _reported(tracker)
            distance = max(aim.distance(found), _SMALLEST)
            yield series, end, distance, max(aim.excess(found), _SMALLEST)


def tracking(
    rng: np.random.Generator, *, name: str, data: Mapping[str, Any], rows: int | None
) -> Iterator[Point]:
    """Errors of all trackers while they read a data set in its order.

    Panels ``NAME-distance`` and ``NAME-excess``, over rows read.
    """
    X = np.array(load(Source.of(data)).X[:rows])
    last = len(X) - len(X) % STEP
    ends = sorted({end for end in (200, 500, 1000, 2000, 4000) if end < last} | {last})
    for series, end, distance, excess in _errors(X, ends, int(rng.integers(2**32))):
        yield Point(f"{name}-distance", series, end, distance)
        yield Point(f"{name}-excess", series, end, excess)


def spectra(
    rng: np.random.Generator, *, alphas: Sequence[float], features: int, rows: int
) -> Iterator[Point]:
    """Errors after a whole stream of Synth(alpha), over alpha."""
    for alpha in alphas:
        X = synth(alpha, features=features, rows=rows, random_state=rng)
        for series, _, distance, excess in _errors(X, [rows], int(rng.integers(2**32))):
            yield Point("synth-distance", series, alpha, distance)
            yield Point("synth-excess", series, alpha, excess)


# Time and memory


def speed(rng: np.random.Generator, *, features: Sequence[int], rows: int) -> Iterator[Point]:
    """Microseconds of processor time a row, blocks of 25 rows at a call; the least of three."""
    for count in features:
        X = _rows(rng, rows, count)
        for series, make in _trackers(0).items():
            _, seconds = _timed(lambda make=make, X=X: _feed(make(), X), turns=3)  # type: ignore[misc]
            yield Point("speed", series, count, 1e6 * seconds / rows)


def memory(
    rng: np.random.Generator, *, features: Sequence[int], rows: Sequence[int]
) -> Iterator[Point]:
    """Peak of the arrays that a tracker makes, in MiB: over D, and over the rows read.

    ``features`` with the fewest ``rows``, and ``rows`` with the fewest features.
    """
    shapes = [(count, rows[0]) for count in features]
    shapes += [(features[0], length) for length in rows[1:]]
    for count, length in shapes:
        X = _rows(rng, length, count)
        for series, make in _trackers(0).items():
            _feed(make(), X[:STEP])  # what is imported or made once
            tracemalloc.start()
            try:
                _feed(make(), X)
                used = tracemalloc.get_traced_memory()[1] / 2**20
            finally:
                tracemalloc.stop()
            if length == rows[0]:
                yield Point("memory", series, count, used)
            if count == features[0]:
                yield Point("memory-rows", series, length, used)


def _rows(rng: np.random.Generator, count: int, features: int) -> FloatArray:
    """Gaussian rows with the spectrum of Synth(1), along the axes."""
    return rng.standard_normal((count, features)) / np.arange(1, features + 1)


def _feed(tracker: Any, rows: FloatArray) -> Any:
    for at in range(0, len(rows), BLOCK):
        tracker.partial_fit(rows[at : at + BLOCK])
    return tracker


def _timed(do: Callable[[], T], *, turns: int = 2) -> tuple[T, float]:
    """What it gives, and its processor time in seconds: the least of a few turns."""
    least = np.inf
    for _ in range(turns):
        start = time.process_time()
        found = do()
        least = min(least, time.process_time() - start)
    return found, float(least)


# Trees


def trees(
    rng: np.random.Generator,
    *,
    features: int,
    sizes: Sequence[int],
    nodes: Sequence[int],
    alpha: float,
) -> Iterator[Point]:
    """Time and error of binary trees over the number of leaves, on one stream of Synth(alpha).

    Nodes do their work one after the other; the time of the slowest path is that of the slowest
    leaf, and of the slowest merge of each level above it. Panels ``tree-total``,
    ``tree-computing``, ``tree-merging`` in seconds, ``tree-error``. Series ``rows=N`` are FPCA's;
    the largest size is done by ours as well.
    """
    whole = synth(alpha, features=features, rows=max(sizes), random_state=rng)
    whole *= np.sqrt(len(whole))
    for size in sorted(sizes):
        X = whole[:size]
        largest = size == max(sizes)
        exact = _Exact(X.T @ X, leading_eigenpairs(X.T @ X, LEAF_RANK)[1])
        for count in nodes:
            for series in ("fpca-open", "eigenveil", "eigenveil-private"):
                if series != "fpca-open" and not largest:
                    continue
                parts = np.array_split(X, count)
                found, computing, merging = _TREES[series](parts, int(rng.integers(2**32)))
                shown = f"rows={size}" if series == "fpca-open" else series
                yield Point("tree-total", shown, count, computing + merging)
                yield Point("tree-computing", shown, count, computing)
                if count > 1:
                    yield Point("tree-merging", shown, count, merging)
                if largest:
                    yield Point("tree-error", series, count, exact.distance(found.T))


def _fpca_tree(parts: Sequence[FloatArray], seed: int) -> tuple[FloatArray, float, float]:
    del seed

    def leaf(rows: FloatArray) -> Subspace:
        tracker = FPCA(n_components=LEAF_RANK, block=BLOCK, adapt=False)
        return tracker.partial_fit(rows).finish().subspace

    leaves, seconds = _each(leaf, parts)
    root, merging = _up(leaves, lambda a, b: merge(a, b, rank=LEAF_RANK))
    return root.basis, max(seconds), merging


def _our_tree(parts: Sequence[FloatArray], seed: int) -> tuple[FloatArray, float, float]:
    del seed
    leaves, seconds = _each(lambda rows: StreamingPCA(LEAF_RANK).fit(rows), parts)

    def both(first: StreamingPCA, second: StreamingPCA) -> StreamingPCA:
        return StreamingPCA(LEAF_RANK).merge(first).merge(second)

    root, merging = _up(leaves, both)
    return root.components_.T, max(seconds), merging


def _private_tree(parts: Sequence[FloatArray], seed: int) -> tuple[FloatArray, float, float]:
    def empty() -> PrivateStreamingPCA:
        return PrivateStreamingPCA(LEAF_RANK, epsilon=EPSILON, delta=DELTA, random_state=seed)

    leaves, seconds = _each(lambda rows: empty().partial_fit(rows), parts)
    # a stream that was merged is spent: one turn
    root, merging = _up(leaves, lambda a, b: empty().merge(a).merge(b), turns=1)
    start = time.process_time()
    root.release()
    return root.components_.T, max(seconds), merging + time.process_time() - start


_TREES: Mapping[str, Callable[[Sequence[FloatArray], int], tuple[FloatArray, float, float]]] = {
    "fpca-open": _fpca_tree,
    "eigenveil": _our_tree,
    "eigenveil-private": _private_tree,
}


def _each(
    do: Callable[[FloatArray], T], parts: Sequence[FloatArray]
) -> tuple[list[T], list[float]]:
    done = [_timed(lambda part=part: do(part)) for part in parts]  # type: ignore[misc]
    return [found for found, _ in done], [seconds for _, seconds in done]


def _up(level: list[T], both: Callable[[T, T], T], *, turns: int = 2) -> tuple[T, float]:
    """The root of a binary tree, and the slowest merges of all levels together."""
    total = 0.0
    while len(level) > 1:
        done = [
            _timed(lambda a=a, b=b: both(a, b), turns=turns)  # type: ignore[misc]
            for a, b in zip(level[::2], level[1::2], strict=True)
        ]
        level = [found for found, _ in done]
        total += max(seconds for _, seconds in done)
    return level[0], total


def lemma_1(
    rng: np.random.Generator, *, features: int, rows: int, rank: int, nodes: Sequence[int]
) -> Iterator[Point]:
    """Error of merged subspaces where r is the rank of all rows, and where it is less.

    ``exact`` and ``truncated``; ``order`` is the distance between the results of two orders of the
    same nodes, r being the rank. Over the number of nodes.
    """
    X = (
        rng.standard_normal((rows, rank))
        * np.arange(rank, 0, -1)
        @ rng.standard_normal((rank, features))
    )
    for count in nodes:
        parts = np.array_split(X, count)
        for series, kept in (("exact", rank), ("truncated", rank // 2)):
            leaves = [
                FPCA(n_components=kept, block=BLOCK, adapt=False)
                .partial_fit(part)
                .finish()
                .subspace
                for part in parts
            ]
            root = merge_up_tree(leaves, rank=kept)
            aim = subspace_of(X, rank=kept)
            yield Point("lemma-1", series, count, subspace_distance(aim.basis, root.basis))
            if kept == rank:
                strengths = np.abs(root.strengths / aim.strengths - 1.0)
                yield Point("lemma-1", "strengths", count, float(np.max(strengths)))
                turned = [leaves[place] for place in rng.permutation(count)]
                other = merge_up_tree(turned, rank=kept)
                yield Point("lemma-1", "order", count, subspace_distance(other.basis, root.basis))
