"""Figure 4 of paper 002, what is measured: trackers of a stream, and what trees come to."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from eigenveil.linalg.eigen import leading_eigenpairs
from eigenveil.linalg.subspace import subspace_distance, subspace_of
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
from eigenveil_papers.reproduction.paper002_trees import LEAF_RANK

T = TypeVar("T")
STEP = 50
"""Positions are multiples of it, as in the authors' scripts."""
_SKETCH = 16  # a buffer of 32 rows, where FPCA has 6 directions and a block of 25
_SMALLEST = 1e-13  # errors below it are rounding, and are drawn there
EPSILON, DELTA = 1.0, 1e-6
"""Of the private tree."""


SCRIPTED = "-scripted"
"""Ends the panels of the settings of the authors' scripts."""
_SEED_RANK = {"mnist": 5, "wine": 5, "synth": 5}  # of the authors' scripts; 10 for the others

Makers = Mapping[str, Callable[[], Any]]


def even_handed(features: int, seed: int) -> tuple[int, Makers]:
    """The rank that all tell, and new trackers by series: all forget nothing.

    r = 6, and memory of about as many rows: FPCA's block and directions are 31, the sketch's
    buffer 32. With few features (11 of wine) both are less, so that no method holds as many rows as
    there are features and is exact for that reason.
    """
    rank, sketch = max(1, min(RANK, features // 4)), max(2, min(_SKETCH, features // 2))
    return rank, {
        "eigenveil": lambda: StreamingPCA(rank, n_oversamples=sketch - rank),
        "fpca-open": lambda: FPCA(n_components=rank, block=BLOCK, adapt=False),
        "frequent-directions": lambda: FrequentDirections(n_components=rank, sketch_rows=sketch),
        "spirit": lambda: Spirit(n_components=rank, forgetting=1.0),
        "grouse": lambda: Grouse(n_components=rank, random_state=seed),
        "block-power": lambda: BlockPower(n_components=rank, block=4 * BLOCK, random_state=seed),
        "incremental": lambda: Incremental(n_components=rank, block=BLOCK),
    }


def as_scripted(name: str, features: int, seed: int) -> tuple[int, Makers]:
    """The same with the settings of the authors' scripts: their seed rank r, and trackers.

    FPCA follows the rank from r on, with blocks of 2r rows and no more directions than a block has
    rows (of Synth: blocks of 50); so does SPIRIT, with lambda 0.9 and a change of rank at any row
    (of Synth: from 3 on, lambda 1). The sketch of frequent directions has r rows, the power
    method's blocks D, and GROUSE's step is 2, divided by the number of the row. Ours and
    incremental PCA, which are not in the scripts, have rank r and FPCA's blocks.
    """
    rank = min(_SEED_RANK.get(name, 10), features)
    synth = name == "synth"
    block = 2 * BLOCK if synth else 2 * rank
    spirit: dict[str, Any] = {"n_components": rank, "forgetting": 0.9}
    if synth:
        spirit = {"n_components": min(3, features), "forgetting": 1.0}
    return rank, {
        "eigenveil": lambda: StreamingPCA(rank, block_size=block),
        "fpca-open": lambda: FPCA(n_components=rank, block=block, most=min(block, features)),
        "frequent-directions": lambda: FrequentDirections(n_components=rank, sketch_rows=rank),
        "spirit": lambda: Spirit(adapt=True, hold_off=1, **spirit),
        "grouse": lambda: Grouse(n_components=rank, step=2.0, diminishing=True, random_state=seed),
        "block-power": lambda: BlockPower(n_components=rank, block=features, random_state=seed),
        "incremental": lambda: Incremental(n_components=rank, block=block),
    }


def _reported(tracker: Any) -> FloatArray:
    found = tracker.components_ if hasattr(tracker, "components_") else tracker.components
    return np.asarray(found, dtype=np.float64)


# Errors


class _Exact:
    """Offline PCA of the first rows of a stream."""

    def __init__(self, rows: FloatArray, *, centered: bool, most: int) -> None:
        about = rows - rows.mean(axis=0) if centered else rows
        self.moment = about.T @ about
        self.energies, self.directions = leading_eigenpairs(self.moment, most)
        self.total = float(np.trace(self.moment))

    def distance(self, components: FloatArray) -> float:
        """``|P - P_exact|_F / sqrt(2 r)``, 0 to 1, from the rank r subspace."""
        exact = self.directions[: len(components)]
        found = components.T @ components - exact.T @ exact
        return max(float(np.linalg.norm(found) / np.sqrt(2 * len(components))), _SMALLEST)

    def excess(self, components: FloatArray) -> float:
        """The reconstruction's root mean square error over the exact one's of that rank, less 1."""
        kept = np.einsum("kd,de,ke->", components, self.moment, components, optimize=True)
        exact = float(np.sum(self.energies[: len(components)]))
        rounding = (
            1e-20 * self.total + 1e-300
        )  # with as many directions as features nothing is left
        left, least = (max(self.total - float(of), rounding) for of in (kept, exact))
        return max(float(np.sqrt(left / least)) - 1.0, _SMALLEST)

    def entries(self, rows: FloatArray, *, signs: bool = True) -> float:
        """The scripts' error: mean squared difference of the absolute entries of directions."""
        exact = np.abs(self.directions[: len(rows)])
        return float(np.mean(np.square(exact - (np.abs(rows) if signs else rows))))


class _Told(NamedTuple):
    """What a tracker tells after so many rows."""

    rows: int
    components: FloatArray
    tracker: Any


def _read(X: FloatArray, ends: Sequence[int], makers: Makers) -> dict[str, list[_Told]]:
    """What every tracker tells at every end."""
    told: dict[str, list[_Told]] = {}
    for series, make in makers.items():
        tracker, start = make(), 0
        told[series] = []
        for end in ends:
            for at in range(start, end, BLOCK):
                tracker.partial_fit(X[at : min(at + BLOCK, end)])
            start = end
            told[series].append(_Told(end, _reported(tracker), tracker))
    return told


def _even(X: FloatArray, ends: Sequence[int], seed: int) -> Iterator[tuple[str, str, int, float]]:
    """Errors with even-handed settings: what, series, rows read, and the error.

    Rows are as they are. Incremental PCA subtracts the mean of what it has read, so it is held
    against centred rows.
    """
    rank, makers = even_handed(X.shape[1], seed)
    told = _read(X, ends, makers)
    for place, end in enumerate(ends):
        aims = [_Exact(X[:end], centered=c, most=rank) for c in (False, True)]
        for series, found in told.items():
            aim = aims[series == "incremental"]
            yield "distance", series, end, aim.distance(found[place].components)
            yield "excess", series, end, aim.excess(found[place].components)


def _scripted(
    name: str, X: FloatArray, ends: Sequence[int], seed: int
) -> Iterator[tuple[str, str, int, float]]:
    """The same with the scripts' settings, and more of what the scripts report.

    The whole stream is centred beforehand. Methods are compared by their first s directions, s the
    least of the ranks of SPIRIT, of FPCA and the seed; and (``own``) by all directions that each
    tells, against offline PCA's best of as many; not a number where that is more than half of the
    features, which is no summary. At the end there is the scripts' own error,
    also as they compute it: of the rows of the sketch, whose lengths are not 1, and of SPIRIT's
    directions with their signs.
    """
    X = X - X.mean(axis=0)
    rank, makers = as_scripted(name, X.shape[1], seed)
    told = _read(X, ends, makers)
    for place, end in enumerate(ends):
        own = {s: len(told[s][place].components) for s in ("fpca-open", "spirit")}
        shared = min(rank, *own.values())
        for series, directions in (*own.items(), ("compared", shared)):
            yield "rank", series, end, float(directions)
        aim = _Exact(X[:end], centered=False, most=max(rank, *own.values()))
        for series, found in told.items():
            components = found[place].components
            many = 2 * len(components) > X.shape[1]
            yield "own", series, end, math.nan if many else aim.excess(components)
            components = components[:shared]
            yield "distance", series, end, aim.distance(components)
            yield "excess", series, end, aim.excess(components)
            if place == len(ends) - 1:
                yield "entries", series, end, aim.entries(components)
    sketch = told["frequent-directions"][-1].tracker.sketch
    yield "entries", "frequent-directions as scripted", ends[-1], aim.entries(sketch[:shared])
    signed = aim.entries(told["spirit"][-1].components[:shared], signs=False)
    yield "entries", "spirit as scripted", ends[-1], signed
    turns = told["grouse"][-1].tracker.turns
    yield "turns", "grouse", ends[-1], turns / ends[-1]


def tracking(
    rng: np.random.Generator, *, name: str, data: Mapping[str, Any], rows: int | None
) -> Iterator[Point]:
    """Errors of all trackers while they read a data set in its order.

    Panels ``NAME-distance`` and ``NAME-excess``, over rows read, for even-handed settings, and with
    ``-scripted`` at the end for those of the authors' scripts.
    """
    X = np.array(load(Source.of(data)).X[:rows])
    last = len(X) - len(X) % STEP
    ends = sorted({end for end in (200, 500, 1000, 2000, 4000) if end < last} | {last})
    seed = int(rng.integers(2**32))
    kind = name.removeprefix("motes-")
    for what, series, end, error in _even(X[:last], ends, seed):
        yield Point(f"{name}-{what}", series, end, error)
    for what, series, end, error in _scripted(kind, X[:last], ends, seed):
        yield Point(f"{name}-{what}{SCRIPTED}", series, end, error)


def spectra(
    rng: np.random.Generator, *, alphas: Sequence[float], features: int, rows: int
) -> Iterator[Point]:
    """Errors after a whole stream of Synth(alpha), over alpha."""
    for alpha in alphas:
        X = synth(alpha, features=features, rows=rows, random_state=rng)
        seed = int(rng.integers(2**32))
        for what, series, _, error in _even(X, [rows], seed):
            yield Point(f"synth-{what}", series, alpha, error)
        for what, series, _, error in _scripted("synth", X, [rows], seed):
            yield Point(f"synth-{what}{SCRIPTED}", series, alpha, error)


# Time and memory


def speed(rng: np.random.Generator, *, features: Sequence[int], rows: int) -> Iterator[Point]:
    """Microseconds of processor time a row, blocks of 25 rows at a call; the least of three."""
    for count in features:
        X = _rows(rng, rows, count)
        for panel, (_, makers) in (
            ("speed", even_handed(count, 0)),
            (f"speed{SCRIPTED}", as_scripted("speed", count, 0)),
        ):
            for series, make in makers.items():
                _, seconds = _timed(lambda make=make, X=X: _feed(make(), X), turns=3)  # type: ignore[misc]
                yield Point(panel, series, count, 1e6 * seconds / rows)


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
        for series, make in even_handed(count, 0)[1].items():
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
    rng: np.random.Generator, *, features: int, rows: int, nodes: Sequence[int], alpha: float
) -> Iterator[Point]:
    """Error of the roots of binary trees over the number of leaves, on one stream of Synth(alpha).

    Of FPCA, of ours, and of our private sums. Panel ``tree-error``.
    """
    X = synth(alpha, features=features, rows=rows, random_state=rng)
    X *= np.sqrt(len(X))
    exact = _Exact(X, centered=False, most=LEAF_RANK)
    for count in nodes:
        parts = np.array_split(X, count)
        for series, root in _ROOTS.items():
            found = root(parts, int(rng.integers(2**32)))
            yield Point("tree-error", series, count, exact.distance(found))


def _fpca_root(parts: Sequence[FloatArray], seed: int) -> FloatArray:
    del seed
    leaves = [
        FPCA(n_components=LEAF_RANK, block=BLOCK, adapt=False).partial_fit(rows).finish().subspace
        for rows in parts
    ]
    return np.asarray(merge_up_tree(leaves, rank=LEAF_RANK).basis.T)


def _our_root(parts: Sequence[FloatArray], seed: int) -> FloatArray:
    del seed
    level = [StreamingPCA(LEAF_RANK).fit(rows) for rows in parts]
    while len(level) > 1:
        level = [
            StreamingPCA(LEAF_RANK).merge(first).merge(second)
            for first, second in zip(level[::2], level[1::2], strict=True)
        ]
    return np.asarray(level[0].components_)


def _private_root(parts: Sequence[FloatArray], seed: int) -> FloatArray:
    def empty() -> PrivateStreamingPCA:
        return PrivateStreamingPCA(LEAF_RANK, epsilon=EPSILON, delta=DELTA, random_state=seed)

    level = [empty().partial_fit(rows) for rows in parts]
    while len(level) > 1:
        level = [
            empty().merge(first).merge(second)
            for first, second in zip(level[::2], level[1::2], strict=True)
        ]
    level[0].release()
    return np.asarray(level[0].components_)


_ROOTS: Mapping[str, Callable[[Sequence[FloatArray], int], FloatArray]] = {
    "fpca-open": _fpca_root,
    "eigenveil": _our_root,
    "eigenveil-private": _private_root,
}


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
