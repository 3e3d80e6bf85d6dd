"""Time against the limits (numpy's product, scikit-learn's fit) and memory, paired in one run."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from benchmarks.data import power_law
from benchmarks.report import Report
from eigenveil import PrivatePCA
from eigenveil.linalg.threads import single_threaded_blas
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.moments.engine import accumulate
from eigenveil.moments.rows import RowRule
from eigenveil.moments.source import ArrayRows
from eigenveil.noise import draws
from eigenveil.noise.source import SecureSource

PAIRS = 11
# The linear-algebra library's idle threads spin for some time after a call and would slow down
# whatever is timed next.
SETTLE = 0.25


def timed(call: Callable[[], Any]) -> float:
    """Seconds of one call, after other calls' threads have come to rest."""
    time.sleep(SETTLE)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def paired(
    first: Callable[[], Any], second: Callable[[], Any], *, pairs: int = PAIRS
) -> tuple[float, float, float]:
    """Median seconds of both, and the median ratio of pairs run in turn."""
    times = np.array([(timed(first), timed(second)) for _ in range(pairs)])
    ratio = float(np.median(times[:, 0] / times[:, 1]))
    return float(np.median(times[:, 0])), float(np.median(times[:, 1])), ratio


def peak_memory(call: Callable[[], Any]) -> int:
    """Largest number of bytes of arrays at one time beyond what there was before."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def run(report: Report) -> None:
    """All numbers of time and memory."""
    _fit(report)
    _sketch(report)
    _bingham(report)


def _fit(report: Report) -> None:
    section = "Time, 60000 x 784 float32, K = 50 (median of pairs)"
    rows = power_law(60_000, 784, 1.0, dtype=np.float32) + np.float32(1.0)
    model = PrivatePCA(50, epsilon=1.0, delta=1e-5)
    plain = PCA(50, svd_solver="covariance_eigh")
    mine, theirs, ratio = paired(lambda: model.fit(rows), lambda: plain.fit(rows))
    report.note(section, "fit, everything private", f"{mine:.3f} s")
    report.note(section, "scikit-learn's PCA, not private", f"{theirs:.3f} s")
    report.add(section, "ratio of the two", ratio, 1.2, at_most=True)
    rule = RowRule(precision="single")

    def gram() -> None:
        accumulate(ArrayRows(rows), [SecondMoment(rule, features=784)])

    mine, theirs, ratio = paired(gram, lambda: rows.T @ rows)
    flops = 60_000 * 784 * 785
    report.note(section, "numpy's X.T @ X", f"{theirs:.3f} s, {flops / theirs / 1e9:.0f} Gflop/s")
    report.add(
        section, "exact Gram accumulation against numpy's X.T @ X", ratio, 1.25, at_most=True
    )
    source = SecureSource()

    def noise() -> None:
        with single_threaded_blas():
            draws.isometric_symmetric(784, sigma=4.0, grid=-24, source=source)

    fit_seconds = timed(lambda: model.fit(rows))
    report.add(
        section, "noise as a share of the fit", timed(noise) / fit_seconds, 0.05, at_most=True
    )
    square = 8 * 784 * 784
    peak = peak_memory(lambda: model.fit(rows))
    report.note(section, "peak memory beyond the input", f"{peak / 2**20:.1f} MiB")
    report.note(section, "the same in D x D arrays of 8 bytes", f"{peak / square:.1f}")


def _sketch(report: Report) -> None:
    section = "Sketch against D x D at 20000 x 5000 float32, R = 200, K = 50"
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((200, 5000), dtype=np.float32)
    scores = rng.standard_normal((20_000, 200), dtype=np.float32)
    rows: NDArray[Any] = scores / np.arange(1, 201, dtype=np.float32) @ loadings
    rows += np.float32(0.1) * rng.standard_normal((20_000, 5000), dtype=np.float32)
    sketch = PrivatePCA(50, mechanism="sketch", sketch_size=200)
    whole = PrivatePCA(50, mechanism="gaussian")
    quick, slow = timed(lambda: sketch.fit(rows)), timed(lambda: whole.fit(rows))
    report.note(section, "seconds", f"{quick:.2f} and {slow:.2f}")
    report.add(section, "ratio of times", quick / slow, 0.2, at_most=True)
    small, large = peak_memory(lambda: sketch.fit(rows)), peak_memory(lambda: whole.fit(rows))
    report.note(section, "MiB beyond the input", f"{small / 2**20:.0f} and {large / 2**20:.0f}")
    report.add(section, "ratio of memory", small / large, 0.2, at_most=True)


def _bingham(report: Report) -> None:
    section = "Exact Bingham vectors"
    rows = power_law(20_000, 64, 1.0)
    model = PrivatePCA(10, delta=0.0, mechanism="bingham")
    seconds = timed(lambda: model.fit(rows))
    report.add(section, "whole fit at D = 64, K = 10, in seconds", seconds, 5.0, at_most=True)
