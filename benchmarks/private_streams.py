"""Private streams: utility beside paper 002 as published, the growth of the error, time a block."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import real_data
from benchmarks.report import Report
from eigenveil import PrivateStreamingPCA
from eigenveil.linalg.subspace import captured_energy
from eigenveil.privacy.streams import best_factor, toeplitz_error
from eigenveil_papers.published.data import synth
from eigenveil_papers.published.federated_pca import FPCA

Rows = NDArray[np.float64]
K, BLOCK = 6, 25
PUBLISHED_EPSILON = 0.1
_REAL = ("mnist", "wine", "motes light", "motes volt")
# Blocks of a continual stream, at the most: a basis is made after each.
_BLOCKS = 320


def run(report: Report) -> None:
    """All numbers of private streams."""
    _utility(report)
    _horizons(report)
    _blocks(report)


def _utility(report: Report) -> None:
    """Captured energy and <v1, v1^> at a twentieth of the published form's epsilon."""
    section = f"private streams: K={K}, uncentred, epsilon {PUBLISHED_EPSILON / 20:g} against 0.1"
    real = real_data()
    cases = {name: (real[name][0], 0.1) for name in _REAL if name in real}
    if len(cases) < len(_REAL):
        report.note(section, "MNIST, wine, motes", "skipped: ../shared/data is absent")
    for alpha in (0.01, 0.1, 0.5, 1.0):
        rows = synth(alpha, features=20, rows=5000, random_state=1)
        cases[f"Synth({alpha:g}) 5000x20"] = (rows, 0.05)
    for name, (rows, delta) in cases.items():
        turns = 1 if name == "mnist" else 20
        published = _mean(rows, turns, lambda turn: _published(rows, delta, turn))  # noqa: B023
        for form in ("end", "continual", "sketch of 4 K columns"):
            few = 3 if form == "continual" else 20
            ours = _mean(rows, few, lambda turn: _ours(rows, delta, form))  # noqa: ARG005, B023
            report.add(section, f"{name}, {form}: captured energy", ours[0], published[0])
            report.add(section, f"{name}, {form}: <v1, v1^>", ours[1], published[1])


def _mean(rows: Rows, turns: int, fit: Callable[[int], Rows]) -> NDArray[np.float64]:
    moment = rows.T @ rows
    first = np.linalg.eigh(moment)[1][:, -1]
    found = [
        (captured_energy(moment, components), abs(float(components[0] @ first)))
        for components in map(fit, range(turns))
    ]
    return np.asarray(np.mean(found, axis=0))


def _published(rows: Rows, delta: float, turn: int) -> Rows:
    tracker = FPCA(
        n_components=K,
        block=BLOCK,
        omega_0=1e9,
        epsilon=PUBLISHED_EPSILON,
        delta=delta,
        adapt=False,
        random_state=turn,
    )
    return tracker.partial_fit(rows).finish().components


def _ours(rows: Rows, delta: float, form: str) -> Rows:
    target: dict[str, Any] = {"epsilon": PUBLISHED_EPSILON / 20, "delta": delta}
    if form.startswith("sketch"):
        target["sketch_size"] = min(4 * K, rows.shape[1])
    if form != "continual":
        return PrivateStreamingPCA(K, **target).fit(rows).components_
    if rows.shape[1] > 100:  # a basis of so many features after every block takes minutes
        blocks = np.array_split(rows, 40)
    else:
        blocks = np.array_split(rows, min(_BLOCKS, -(-len(rows) // BLOCK)))
    stream = PrivateStreamingPCA(K, publish="continual", horizon=len(blocks), **target)
    for block in blocks:
        stream.partial_fit(block)
    return stream.components_


def _horizons(report: Report) -> None:
    """Noise of the last prefix over that of one release: ours, the best Toeplitz's, a tree's."""
    section = "continual release: noise of the last prefix, in that of a single release"
    for blocks in (10, 100, 1000, 10_000, 1_000_000):
        factor = best_factor(blocks)
        error = factor.norm() * factor.spread(blocks)
        levels = int(np.ceil(np.log2(blocks))) + 1
        tree = np.sqrt(levels * bin(blocks).count("1"))
        what = f"{blocks} blocks, {2 * len(factor.weights) + 2} sums held"
        report.add(section, what, error, 1.01 * toeplitz_error(blocks), at_most=True)
        report.note(section, f"{blocks} blocks by a binary tree, {levels} sums held", f"{tree:.3g}")


def _blocks(report: Report) -> None:
    """Seconds a block beside those of adding the block up and of one basis."""
    section = "continual release: time a block of 25 rows"
    rng = np.random.default_rng(0)
    for features, sketch in ((100, None), (784, None), (1000, 50)):
        rows = rng.normal(size=(20, BLOCK, features))
        stream = PrivateStreamingPCA(
            K, epsilon=1.0, publish="continual", horizon=1000, sketch_size=sketch
        ).partial_fit(rows[0])
        start = time.perf_counter()
        for block in rows:
            stream.partial_fit(block)
        taken = (time.perf_counter() - start) / len(rows)
        shape = f"D={features}" + (f", R={sketch}" if sketch else "")
        report.note(section, shape, f"{1000 * taken:.2f} ms")
