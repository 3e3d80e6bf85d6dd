"""What paper 002 says of streams that change and of trees whose parties differ, and draws nowhere.

Forgetting (equation 2), the first batch of T rows (algorithm 1, lemma 2), nodes that fail, merges
that do not wait, and batches of different sizes (section 3); rows with holes are its future work.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from eigenveil.federation.tree.messages import TreeKeys
from eigenveil.federation.tree.nodes import Node, publish
from eigenveil.federation.tree.private import Leaf, make_tree_study
from eigenveil.federation.tree.tree import MergeTree
from eigenveil.linalg.subspace import Subspace, merge, subspace_distance, subspace_of
from eigenveil.models.streaming.private import PrivateStreamingPCA
from eigenveil.models.streaming.tracker import StreamingPCA
from eigenveil.noise.source import SeededSource
from eigenveil_papers.published.federated_pca import FPCA, FPCAEdge, merge_up_tree
from eigenveil_papers.published.sulq import smallest_batch
from eigenveil_papers.reproduction import given
from eigenveil_papers.reproduction.experiment import (
    Claim,
    Experiment,
    Point,
    RunSettings,
    RunTask,
    Work,
)
from eigenveil_papers.reproduction.figure import Panel, Role, SeriesStyle, panel_grid
from eigenveil_papers.reproduction.numbers import FloatArray, Numbers, random_directions
from eigenveil_papers.reproduction.paper002 import BLOCK, RANK, leaf_of, overlap
from eigenveil_papers.reproduction.rule import Measure
from eigenveil_papers.reproduction.tables import Place, about, claims_of

_D, _K, _SIGNAL = 20, 3, 0.8  # columns, directions, and their share of a row's energy
_SHARES = np.array([4.0, 2.5, 1.0])
_DELTA, _LAMBDA = 0.01, 0.9
_LAMBDAS = (1.0, 0.98, 0.9, 0.6)
_JUMP = 80  # blocks before the jump of the stream without noise
_BLOCK_ROWS, _BEFORE, _AFTER = 500, 20, 10  # of private streams
_LEAVES, _LEAF_ROWS, _UNEQUAL = 32, 100, (8, 40_000)
_OMEGA_0, _TREE_EPSILON, _EPSILON = 0.01, 0.3, 4.0  # of the last: first batch, unequal leaves
_REGIONS, _ADJACENCY = 4, "replace-one"  # as the paper's masks
_ALIKE = Measure(unit="in the mean squared cosine", margin=0.02, most=1.0)
_FAR = Measure(unit="times in the distance of subspaces", margin=1.1, ratio=True, less=True)


def _rows(rng: np.random.Generator, count: int, directions: FloatArray) -> FloatArray:
    """Rows of norm 1, shape (count, D), with most of their energy along directions (k, D)."""
    shares = _SHARES[: len(directions)] / _SHARES[: len(directions)].sum()
    X = rng.standard_normal((count, len(directions))) * np.sqrt(_SIGNAL * shares) @ directions
    X += rng.standard_normal((count, _D)) * np.sqrt((1 - _SIGNAL) / _D)
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _tracker(forgetting: float = 1.0, **options: Any) -> FPCAEdge:
    # Directions of one masked batch weigh the same: which of more than k lead would be chance
    rank = _K if options else RANK
    return FPCAEdge(n_components=rank, adapt=False, forgetting=forgetting, **options)


def _private(epsilon: float, seed: int, **options: Any) -> PrivateStreamingPCA:
    options |= {"delta": _DELTA, "adjacency": _ADJACENCY}
    return PrivateStreamingPCA(_K, epsilon=epsilon, random_state=seed, **options)


def _mask(epsilon: float, rng: np.random.Generator) -> dict[str, Any]:
    return {"epsilon": epsilon, "delta": _DELTA, "row_bound": 1.0, "random_state": rng}


# Streams


def jump(rng: np.random.Generator, *, blocks: int, every: int) -> Iterator[Point]:
    """Blocks of 25 rows, without noise; all directions are others from the middle on."""
    old, new = (random_directions(_D, _K, rng) for _ in range(2))
    trackers = {f"lambda-{of:g}": _tracker(of) for of in _LAMBDAS}
    ours = StreamingPCA(_K, block_size=BLOCK, forgetting=_LAMBDA)
    for block in range(1, blocks + 1):
        aim = old if 2 * block <= blocks else new
        X = _rows(rng, BLOCK, aim)
        ours.partial_fit(X)
        for tracker in trackers.values():
            tracker.fold(X)
        if block % every == 0:
            for series, tracker in trackers.items():
                yield Point("jump", series, block, overlap(aim, tracker.subspace.basis.T))
            yield Point("jump", "eigenveil-open", block, overlap(aim, ours.components_))


def drift(rng: np.random.Generator, *, speeds: Sequence[float], blocks: int) -> Iterator[Point]:
    """The mean over the second half of streams whose directions turn by an angle at each block."""
    for speed in speeds:
        plane = random_directions(_D, 2 * _K, rng)
        trackers = {f"lambda-{of:g}": _tracker(of) for of in _LAMBDAS}
        found: dict[str, list[float]] = {series: [] for series in trackers}
        for block in range(blocks):
            aim = np.cos(speed * block) * plane[:_K] + np.sin(speed * block) * plane[_K:]
            X = _rows(rng, BLOCK, aim)
            for series, tracker in trackers.items():
                tracker.fold(X)
                if 2 * block >= blocks:
                    found[series].append(overlap(aim, tracker.subspace.basis.T))
        for series, values in found.items():
            yield Point("drift", series, speed, float(np.mean(values)))


def private_jump(rng: np.random.Generator, *, epsilons: Sequence[float]) -> Iterator[Point]:
    """The same jump under privacy, ten blocks after it; and block by block at epsilon 1."""
    old, new = (random_directions(_D, _K, rng) for _ in range(2))
    aims = [old] * _BEFORE + [new] * _AFTER
    stream = [_rows(rng, _BLOCK_ROWS, aim) for aim in aims]
    seed = int(rng.integers(2**32))
    for epsilon in epsilons:
        streams = {
            "eigenveil": _private(epsilon, seed, publish="blocks", forgetting=_LAMBDA**2),
            "eigenveil-1": _private(epsilon, seed, publish="continual", horizon=len(stream)),
        }
        trackers = {
            "fpca": _tracker(_LAMBDA, **_mask(epsilon, rng)),
            "fpca-1": _tracker(**_mask(epsilon, rng)),
        }
        for block, (aim, X) in enumerate(zip(aims, stream, strict=True), 1):
            found = {of: each.partial_fit(X).components_ for of, each in streams.items()}
            found |= {of: each.fold(X).subspace.basis.T for of, each in trackers.items()}
            for series, components in found.items():
                value = overlap(aim, components)
                if epsilon == 1.0 and (block % 5 == 0 or block > _BEFORE):
                    yield Point("private-jump", series, block, value)
                if block == len(stream):
                    yield Point("private-epsilon", series, epsilon, value)


def first_batch(rng: np.random.Generator, *, omega_0: float) -> Iterator[Point]:
    """Algorithm 1 as it is, with T rows first; blocks of b rows only; and blocks of T rows only."""
    aim = random_directions(_D, _K, rng)
    T = smallest_batch(omega_0, epsilon=_EPSILON, delta=_DELTA, features=_D)
    options: Any = {"n_components": _K, "adapt": False, **_mask(_EPSILON, rng)}
    trackers = {
        "first-T": FPCA(omega_0=omega_0, block=BLOCK, **options),
        "fpca-1": FPCA(block=BLOCK, **options),
        "all-T": FPCA(block=T, **options),
    }
    shares = (1.0, 1.02, 1.1, 1.5, 2.0)
    X = _rows(rng, int(shares[-1] * T), aim)
    for series, tracker in trackers.items():
        start = 0
        for share in shares:
            tracker.partial_fit(X[start : int(share * T)])
            start = int(share * T)
            yield Point("first-batch", series, share, overlap(aim, tracker.components))


# Trees


def _private_root(
    parts: Sequence[FloatArray],
    places: Iterable[int],
    components: int,
    epsilon: float,
    rng: np.random.Generator,
    lost: int = 0,
    **options: Any,
) -> FloatArray:
    """Eigenveil's root of the leaves at these places, one after the other as they come."""
    tree = MergeTree.with_leaves(len(parts), fan_out=len(parts))
    options |= {"epsilon": epsilon, "delta": _DELTA, "adjacency": _ADJACENCY, "lost": lost}
    study = make_tree_study(tree, features=_D, n_components=components, **options)
    session, keys, source = os.urandom(12).hex(), TreeKeys.in_one_process(), SeededSource(rng)
    root = Node(study.codec(session, keys), tree.root)
    for place in places:
        leaf = Leaf(study, place, source=source, session=session, keys=keys)
        root.take(leaf.partial_fit(parts[place]).send())
    return publish(study, root.result(), secure=False).factors.components


def failing(rng: np.random.Generator, *, shares: Sequence[float]) -> Iterator[Point]:
    """Overlap with all four regions' directions of a root that some leaves never reach.

    Leaves fail at random, or region by region; a region's leaves have a direction of their own.
    """
    aim = random_directions(_D, _REGIONS, rng)
    parts = [_rows(rng, _LEAF_ROWS, aim[[leaf * _REGIONS // _LEAVES]]) for leaf in range(_LEAVES)]
    subspaces = [leaf_of(X) for X in parts]
    most = round((1 - min(shares)) * _LEAVES)
    for ending, order in (("", rng.permutation(_LEAVES)), ("-region", np.arange(_LEAVES))):
        for share in shares:
            came = order[: round(share * _LEAVES)].tolist()
            root = merge_up_tree([subspaces[place] for place in came], rank=RANK)
            yield Point("failing", f"fpca-open{ending}", share, overlap(aim, root.basis.T))
            found = _private_root(parts, came, _REGIONS, _TREE_EPSILON, rng, lost=most)
            yield Point("failing", f"eigenveil{ending}", share, overlap(aim, found))


def arriving(rng: np.random.Generator, *, leaves: int) -> Iterator[Point]:
    """Distance of the root's directions from those of all rows that have arrived, over time."""
    aim = random_directions(_D, _REGIONS, rng)
    parts = [_rows(rng, _LEAF_ROWS, aim[[leaf % _REGIONS]]) for leaf in range(leaves)]
    order = rng.permutation(leaves).tolist()
    subspaces = [leaf_of(parts[place]) for place in order]
    chains = {"fpca-open": 1.0, f"lambda-{_LAMBDA:g}": _LAMBDA}
    roots = dict.fromkeys(chains, subspaces[0])
    for count in range(2, leaves + 1):
        for series, kept in chains.items():
            roots[series] = merge(roots[series], subspaces[count - 1], rank=RANK, forgetting=kept)
        if count & (count - 1) == 0 and count > _REGIONS:
            exact = subspace_of(np.vstack([parts[of] for of in order[:count]]), rank=_REGIONS)
            waited = merge_up_tree(subspaces[:count], rank=RANK)
            for series, root in (*roots.items(), ("tree", waited)):
                far = subspace_distance(exact.basis, root.basis[:, :_REGIONS])
                yield Point("arriving", series, count, far)


def unequal(rng: np.random.Generator, *, ratios: Sequence[float]) -> Iterator[Point]:
    """A batch a leaf, of as many rows as it has: the largest has so many times the smallest's."""
    aim, (leaves, rows) = random_directions(_D, _K, rng), _UNEQUAL
    for ratio in ratios:
        sizes = ratio ** np.linspace(0.0, 1.0, leaves)
        counts = np.maximum(RANK, rows * sizes / sizes.sum()).astype(int).tolist()
        parts = [_rows(rng, count, aim) for count in counts]
        plain = [_tracker().fold(X).subspace for X in parts]
        masked = [_tracker(**_mask(_EPSILON, rng)).fold(X).subspace for X in parts]
        weighed = [
            Subspace(of.basis, of.strengths * np.sqrt(count))
            for of, count in zip(masked, counts, strict=True)
        ]
        told = (("fpca-open", plain), ("fpca-1", masked), ("weighed", weighed))
        for series, subspaces in told:
            root = merge_up_tree(subspaces, rank=RANK)
            yield Point("unequal", series, ratio, overlap(aim, root.basis.T))
        found = _private_root(parts, range(leaves), _K, _EPSILON, rng)
        yield Point("unequal", "eigenveil", ratio, overlap(aim, found))


def holes(rng: np.random.Generator, *, shares: Sequence[float]) -> Iterator[Point]:
    """Entries missing at random: private streams that forget, and a private tree."""
    aim = random_directions(_D, _K, rng)
    blocks = [_rows(rng, _BLOCK_ROWS, aim) for _ in range(_AFTER)]
    seed = int(rng.integers(2**32))
    for share in shares:
        seen = [np.where(rng.random(X.shape) < share, np.nan, X) for X in blocks]
        for series, missing in (("eigenveil-zero", "zero"), ("eigenveil", "independent")):
            options: Any = {"forgetting": _LAMBDA**2, "missing": missing, "publish": "blocks"}
            stream = _private(1.0, seed, **options)
            for X in seen:
                stream.partial_fit(X)
            yield Point("holes", series, share, overlap(aim, stream.components_))
        found = _private_root(seen, range(_AFTER), _K, 1.0, rng, missing="independent")
        yield Point("holes", "eigenveil-tree", share, overlap(aim, found))


# Claims and panels


def _tasks(settings: RunSettings) -> list[RunTask]:
    pick = settings.pick
    each: list[tuple[Work, dict[str, Any], float]] = [
        (jump, {"blocks": 2 * _JUMP, "every": 10}, 0.1),
        (drift, {"speeds": [0.001, 0.003, 0.01, 0.03, 0.1], "blocks": 200}, 0.4),
        (private_jump, {"epsilons": pick([0.1, 1.0, 10.0, 100.0], [1.0, 100.0], [1.0])}, 4.0),
        (first_batch, {"omega_0": pick(_OMEGA_0, _OMEGA_0, 0.03)}, 0.8),
        (failing, {"shares": pick([1.0, 0.75, 0.5, 0.25], [1.0, 0.5], [1.0, 0.5])}, 0.4),
        (arriving, {"leaves": pick(64, 64, 16)}, 0.1),
        (unequal, {"ratios": pick([1.0, 4.0, 16.0, 64.0, 256.0], [1.0, 64.0], [1.0, 64.0])}, 1.0),
        (holes, {"shares": pick([0.0, 0.1, 0.2, 0.3, 0.5], [0.0, 0.3], [0.0, 0.3])}, 1.5),
    ]
    return [RunTask(*task[:2], run, task[2]) for task in each for run in settings.repetitions(20)]


def _within(numbers: Numbers, panel: str, low: float, high: float = math.inf) -> Numbers:
    """Positions of a panel above one and up to another."""
    return Numbers(of for of in numbers.measured if of.panel == panel and low < of.x <= high)


def _anchored(numbers: Numbers, panel: str, first: float) -> Numbers:
    """All but one position of a panel; beside each series its value there, as ``SERIES-first``."""
    rows = [of for of in numbers.measured if of.panel == panel]
    there = {(of.series, of.run): of.value for of in rows if of.x == first}
    kept = [of for of in rows if of.x != first and (of.series, of.run) in there]
    others = [
        of._replace(series=f"{of.series}-first", value=there[of.series, of.run]) for of in kept
    ]
    return Numbers([*kept, *others])


def _claims(numbers: Numbers, settings: RunSettings) -> list[Claim]:
    del settings
    places: dict[str, Place] = {key: (key,) for key, *_ in _TOLD}
    places["still"] = (_within(numbers, "jump", 0, _JUMP), ("jump",))
    places["jumped"] = (_within(numbers, "jump", _JUMP), ("jump",))
    places["private, jumped"] = (_within(numbers, "private-jump", _BEFORE + 1), ("private-jump",))
    for key, first in (("failing", 1.0), ("unequal", 1.0), ("holes", 0.0)):
        places[f"{key}, beside none"] = (_anchored(numbers, key, first), (key,))
    return claims_of(
        "002-changing",
        numbers,
        _ALIKE,
        places,
        {},
        others={"arriving": _FAR},
        less=_LAMBDA,
        after=_AFTER,
    )


_LABELS: dict[str, tuple[str, Role]] = {
    "lambda-1": ("FPCA without mask, λ=1", "level-4"),
    "lambda-0.98": ("FPCA without mask, λ=0.98", "level-3"),
    "lambda-0.9": ("FPCA without mask, λ=0.9", "level-2"),
    "lambda-0.6": ("FPCA without mask, λ=0.6", "level-1"),
    "eigenveil-open": ("Eigenveil without noise, λ=0.9", "ours-sketch"),
    "eigenveil": ("Eigenveil, private (streams: λ=0.9)", "ours"),
    "eigenveil-1": ("Eigenveil, continual (λ=1)", "ours-2"),
    "fpca": ("FPCA with mask, λ=0.9", "paper"),
    "fpca-1": ("FPCA with mask, λ=1", "baseline"),
    "first-T": ("FPCA with mask, T rows first", "repaired"),
    "all-T": ("FPCA with mask, T rows a batch", "repaired-2"),
    "fpca-open": ("FPCA without mask, as leaves come", "paper-2"),
    "fpca-open-region": ("FPCA without mask, failing by region", "baseline-2"),
    "eigenveil-region": ("Eigenveil, failing by region", "ours-curator"),
    "tree": ("FPCA without mask, binary tree", "baseline-4"),
    "weighed": ("masked bases weighed by rows", "baseline-5"),
    "eigenveil-zero": ("Eigenveil, missing entries are 0", "baseline-3"),
    "eigenveil-tree": ("Eigenveil, tree", "ours-pure"),
}
_STYLES = {series: SeriesStyle(*style) for series, style in _LABELS.items()}
_SIZE, _FAR_FROM = f"D={_D}, δ={_DELTA:g}", "distance from PCA of their rows"
_OPEN, _BIG = f"no noise, D={_D}, b={BLOCK}", f"{_SIZE}, b={_BLOCK_ROWS}"
_UNLIKE = f"{_UNEQUAL[0]} leaves, {_UNEQUAL[1]:,} rows"
_TOLD = (
    ("jump", f"(a) jump after block {_JUMP}\n{_OPEN}", "blocks read"),
    ("drift", f"(b) directions that turn\n{_OPEN}", "radians a block"),
    ("private-jump", f"(c) jump after block {_BEFORE}, ε=1\n{_BIG}", "blocks read"),
    ("private-epsilon", f"(d) {_AFTER} blocks after the jump\n{_BIG}", "epsilon"),
    ("first-batch", f"(e) first batch of T rows\nε={_EPSILON:g}, {_SIZE}", "rows read, in T"),
    (
        "failing",
        f"(f) {_LEAVES} leaves of {_LEAF_ROWS} rows\nprivate: ε={_TREE_EPSILON:g}, {_SIZE}",
        "leaves that come, share",
    ),
    (
        "arriving",
        f"(g) merged as they come\nno noise, D={_D}, {_LEAF_ROWS} rows each",
        "leaves that have come",
    ),
    ("unequal", f"(h) {_UNLIKE}\nprivate: ε={_EPSILON:g}, {_SIZE}", "largest over smallest leaf"),
    ("holes", f"(i) {_AFTER} blocks or leaves, ε=1\n{_BIG}", "share of entries missing"),
)
_PANELS = [
    Panel(
        key,
        title,
        axis,
        _FAR_FROM if key == "arriving" else "mean cos² to true directions",
        xscale="log" if key in ("drift", "private-epsilon", "arriving", "unequal") else "linear",
        yscale="log" if key == "arriving" else "linear",
    )
    for key, title, axis in _TOLD
]


def _draw(numbers: Numbers, settings: RunSettings) -> Figure:
    del settings
    return panel_grid(numbers, _PANELS, _STYLES, title=CHANGING.title)


CHANGING = Experiment(
    name="002-changing",
    title="Streams that change, trees whose parties differ",
    about=about(
        "002-changing", signal=_SIGNAL, directions=_K, regions=_REGIONS, rank=RANK, omega_0=_OMEGA_0
    ),
    tasks=_tasks,
    draw=_draw,
    claims=_claims,
    given=given.changing,
    runs="none: not drawn",
)
