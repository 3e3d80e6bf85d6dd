"""Time against the limits (numpy's product, scikit-learn's fit) and memory, paired in one run."""

from __future__ import annotations

import gc
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from benchmarks.data import power_law
from benchmarks.report import Report
from eigenveil import PrivatePCA
from eigenveil.io import open_rows
from eigenveil.linalg.eigen import single_threaded_blas
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few rows: only time is measured
        _fits(report)
        _files(report)
    _fit(report)
    _sketch(report)
    _bingham(report)


# Rows, features, type, the wanted ratio, and pairs that are run.
_TABLES: dict[str, tuple[Callable[[], NDArray[Any]], float, int]] = {
    "60000 x 784 float32": (lambda: _spread(60_000, 784, np.float32), 1.2, 7),
    "60000 x 784 float64": (lambda: _spread(60_000, 784, np.float64), 1.2, 5),
    "200000 x 64 float64": (lambda: _spread(200_000, 64, np.float64), 1.5, PAIRS),
    "1000000 x 20 float64": (lambda: _spread(1_000_000, 20, np.float64), 1.5, 7),
    "digits, 1797 x 64 float64": (lambda: load_digits().data, 4.0, PAIRS),
}
_ADAPTIVE_AT_MOST = 3.0


def _spread(rows: int, features: int, dtype: Any) -> NDArray[Any]:
    return np.asarray(power_law(rows, features, 1.0, dtype=dtype) + dtype(1.0))


def _model(kind: Any = np.float64, mechanism: str = "gaussian") -> PrivatePCA:
    """The fit that ratios are of, in the rows' precision: by default one release of the moment."""
    precision = "single" if kind == np.float32 else "double"
    return PrivatePCA(10, epsilon=1.0, delta=1e-6, mechanism=mechanism, precision=precision)


def _fits(report: Report) -> None:
    """The private fit in units of scikit-learn's, on the same rows."""
    for name, (make, wanted, pairs) in _TABLES.items():
        _fit_of(report, name, make(), wanted, pairs)
        gc.collect()


def _fit_of(report: Report, name: str, rows: NDArray[Any], wanted: float, pairs: int) -> None:
    section = "Fit over scikit-learn's covariance_eigh, K = 10, epsilon = 1 (median of pairs)"
    once, twice = _model(rows.dtype), _model(rows.dtype, "adaptive")
    plain = PCA(10, svd_solver="covariance_eigh")
    for model in (once, twice, plain):
        model.fit(rows)
    mine, theirs, ratio = paired(lambda: once.fit(rows), lambda: plain.fit(rows), pairs=pairs)
    report.note(section, f"{name}, ms of both", f"{mine * 1e3:.1f} and {theirs * 1e3:.1f}")
    report.add(section, f"{name}: one release", ratio, wanted, at_most=True)
    few = max(3, pairs // 2)
    *_, ratio = paired(lambda: twice.fit(rows), lambda: once.fit(rows), pairs=few)
    what = f"{name}: adaptive, in units of one release"
    report.add(section, what, ratio, _ADAPTIVE_AT_MOST, at_most=True)
    report.note(section, f"{name}: passes of reading alone", f"{_passes(rows) * 1e3:.1f} ms")


# Of one release: norms, centre, norms about it, centre again, the moment, the variances.
_PASSES = 6


def _passes(rows: NDArray[Any]) -> float:
    """Seconds that the passes of a fit take if each does no more than to read every entry."""
    return _PASSES * min(timed(lambda: rows.max()) for _ in range(3))


_ROWS_OF_TEXT = 60_000


def _files(report: Report) -> None:
    """From a file to the result, over the fit in memory and a scan of the file a pass."""
    section = "From a file to the result (median of pairs)"
    with tempfile.TemporaryDirectory() as folder:
        wide, tall = Path(folder, "wide.parquet"), Path(folder, "tall.parquet")
        _write(wide, _spread(60_000, 784, np.float32))
        _from_file(report, section, "Parquet 60000 x 784 float32", wide, _scan, 1.5)
        text = wide.with_suffix(".csv")
        pyarrow.csv.write_csv(pyarrow.parquet.read_table(wide), text)
        _from_file(report, section, "CSV 60000 x 784", text, _read_text, 1.3)
        text.unlink()
        _write(tall, _spread(10_000_000, 20, np.float32))
        _from_file(report, section, "Parquet 10000000 x 20 float32", tall, _scan, 1.5)


def _write(file: Path, rows: NDArray[Any]) -> None:
    table = pa.table({f"c{j}x": np.ascontiguousarray(rows[:, j]) for j in range(rows.shape[1])})
    pyarrow.parquet.write_table(table, file)


def _scan(file: Path) -> None:
    """As pyarrow reads rows one batch after the other, in bounded memory."""
    with pyarrow.parquet.ParquetFile(file, memory_map=True) as opened:
        for _ in opened.iter_batches(1 << 16):
            pass


def _read_text(file: Path) -> None:
    with pyarrow.csv.open_csv(file) as batches:
        for _ in batches:
            pass


def _from_file(
    report: Report,
    section: str,
    name: str,
    file: Path,
    scan: Callable[[Path], None],
    wanted: float,
) -> None:
    source = open_rows([file])
    rows = np.concatenate([block.values for block in source.blocks()])
    model = _model(rows.dtype)
    pairs = []
    for _ in range(3):
        whole = timed(lambda: model.fit_rows(open_rows([file])))
        memory, one = timed(lambda: model.fit(rows)), timed(lambda: scan(file))
        pairs.append((whole, memory, one, whole / (memory + _PASSES * one)))
    whole, memory, one, ratio = np.median(np.array(pairs), axis=0)
    report.note(
        section,
        f"{name}: seconds of all, of the fit in memory, of one scan",
        f"{whole:.2f}, {memory:.2f}, {one:.2f}",
    )
    report.add(section, name, float(ratio), wanted, at_most=True)


def _fit(report: Report) -> None:
    section = "Time, 60000 x 784 float32, K = 50 (median of pairs)"
    rows = power_law(60_000, 784, 1.0, dtype=np.float32) + np.float32(1.0)
    model = PrivatePCA(50, epsilon=1.0, delta=1e-5, precision="single")
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
    sketch = PrivatePCA(50, mechanism="sketch", sketch_size=200, precision="single")
    whole = PrivatePCA(50, mechanism="gaussian", precision="single")
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
