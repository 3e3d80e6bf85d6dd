"""Time against the limits (numpy's product, scikit-learn's fit) and memory, paired in one run."""

from __future__ import annotations

import gc
import os
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, LatentDirichletAllocation
from sklearn.mixture import GaussianMixture

from benchmarks.data import power_law
from benchmarks.report import ROOT, Report
from benchmarks.speed_figure import Timed, draw
from benchmarks.tensors import GAUSSIANS, gaussian_rows, large_documents
from eigenveil import PrivateGaussianMixture, PrivatePCA, PrivateTopicModel
from eigenveil.io import open_rows
from eigenveil.moments.compiled import in_use
from eigenveil.moments.rows import Precision

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
        _processor(report)
        _files(report)
    _memory(report)
    _sketch(report)
    _bingham(report)


# -- a private fit in units of scikit-learn's


@dataclass(frozen=True)
class Table:
    """Rows, and what a fit of them may take in units of scikit-learn's."""

    rows: Callable[[], NDArray[Any]]
    components: int
    wanted: tuple[float, float]  # Of one release, of the default's two
    pairs: int = 5
    precision: Precision = "double"


_TABLES = {
    "60000 x 784 float32": Table(
        lambda: _spread(60_000, 784, np.float32), 50, (1.5, 4.5), precision="single"
    ),
    "the same, default precision": Table(lambda: _spread(60_000, 784, np.float32), 50, (1.5, 4.5)),
    "60000 x 784 float64": Table(lambda: _spread(60_000, 784, np.float64), 50, (1.4, 3.0)),
    "200000 x 64 float64": Table(lambda: _spread(200_000, 64, np.float64), 10, (1.6, 2.5), PAIRS),
    "1000000 x 20 float64": Table(
        lambda: _spread(1_000_000, 20, np.float64), 10, (2.0, 2.5), PAIRS
    ),
    "digits, 1797 x 64": Table(lambda: load_digits().data, 10, (4.0, 8.0), 2 * PAIRS),
    "20000 x 2000 float32": Table(
        lambda: _spread(20_000, 2000, np.float32), 50, (1.4, 4.0), 3, precision="single"
    ),
}
_HEAD = (
    "| rows | X.T @ X | scikit-learn | one release | default (two) | limit of the default | "
    "ratio of one (wanted) | ratio of the default (wanted) |\n|---|---|---|---|---|---|---|---|"
)
# Passes of the default plan: norms, centre, norms about it, centre again, the moment, what is seen
# of rows through it, the variances. All but the last but one see rows as they are.
_PASSES = 7


def _spread(rows: int, features: int, dtype: Any) -> NDArray[Any]:
    return np.asarray(power_law(rows, features, 1.0, dtype=dtype) + dtype(1.0))


def _fits(report: Report) -> None:
    """The private fit in units of scikit-learn's, on the same rows, in turn."""
    section = "A private fit in units of scikit-learn's PCA (covariance_eigh), epsilon = 1"
    found, lines = [], [_HEAD]
    for name, table in _TABLES.items():
        found.append(_fit_of(f"{name}, K = {table.components}", table))
        lines.append(_line(found[-1]))
        print(lines[-1], flush=True)
        gc.collect()
    draw(found, ROOT / "docs" / "images" / "speed.png")
    report.text(
        section,
        "\n".join(lines) + f"\n\nMedians of seconds, and of ratios of calls in turn, on "
        f"{os.cpu_count()} processors, {in_use()} loops. *Limit*: bytes of {_PASSES} passes over "
        "the speed at which NumPy finds the largest entry, and the multiplications of two moments "
        "and of what is seen through D x D over the speed of X.T @ X; no eigendecomposition. "
        "Everything is private, centre and scale of norms among it.",
    )


def _fit_of(name: str, table: Table) -> Timed:
    rows = table.rows()
    kinds = ("gaussian", "adaptive")
    once, twice = (
        PrivatePCA(
            table.components, epsilon=1.0, delta=1e-5, mechanism=each, precision=table.precision
        )
        for each in kinds
    )
    plain = PCA(table.components, svd_solver="covariance_eigh")
    calls = (lambda: rows.T @ rows, *(partial(each.fit, rows) for each in (plain, once, twice)))
    for call in calls:
        call()
    times = np.array([[timed(call) for call in calls] for _ in range(table.pairs)])
    product, *others = np.median(times, axis=0)
    one, two = np.median(times[:, 2:] / times[:, 1:2], axis=0)
    read = min(timed(lambda: rows.max()) for _ in range(5))
    # in units of X.T @ X, of which half the entries are made: it, twice, and a whole product
    limit = _PASSES * read + 4.0 * float(product)
    return Timed(
        name,
        product=float(product),
        plain=float(others[0]),
        once=float(others[1]),
        twice=float(others[2]),
        limit=limit,
        ratios=(float(one), float(two)),
        wanted=table.wanted,
    )


def _line(of: Timed) -> str:
    seconds = (of.product, of.plain, of.once, of.twice, of.limit)
    ratios = (
        f"{ratio:.2f} ({'<=' if ratio <= wanted else 'NOT <='} {wanted:g})"
        for ratio, wanted in zip(of.ratios, of.wanted, strict=True)
    )
    return f"| {' | '.join([of.name, *(f'{each:.3g}' for each in seconds), *ratios])} |"


def _processor(report: Report) -> None:
    """What no idle thread may blur: a wide table, a mixture and topics, in processor seconds."""
    section = "Processor seconds in units of scikit-learn's, which is not private; epsilon = 1"
    cases: dict[str, tuple[Callable[[], Any], Any, Any]] = {
        "300 x 5000 float32, default PCA over covariance_eigh": (
            lambda: _spread(300, 5000, np.float32),
            PrivatePCA(),
            PCA(2, svd_solver="covariance_eigh"),
        ),
        "800000 x 50 float64, 10 spheres over EM by default": (
            lambda: gaussian_rows(GAUSSIANS[0], 0)[0],
            PrivateGaussianMixture(10, delta=1e-2),
            GaussianMixture(10, covariance_type="spherical", random_state=0),
        ),
        "20000 documents x 20000 words, 20 topics over one pass of online LDA": (
            lambda: large_documents(20_000, 20_000),
            PrivateTopicModel(20),
            LatentDirichletAllocation(20, learning_method="online", max_iter=1, random_state=0),
        ),
    }
    for name, (make, private, plain) in cases.items():
        rows = make()
        ours, theirs = (_processor_seconds(partial(each.fit, rows)) for each in (private, plain))
        report.note(section, f"{name}: seconds", f"{ours:.3g} and {theirs:.3g}")
        report.add(section, name, ours / theirs, 1.0, at_most=True)


def _processor_seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


# Of one release: norms, centre, norms about it, centre again, the moment, the variances.
_PASSES_OF_ONE = 6


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
    model = PrivatePCA(
        10,
        epsilon=1.0,
        delta=1e-6,
        mechanism="gaussian",
        precision="single" if rows.dtype == np.float32 else "double",
    )
    pairs = []
    for _ in range(3):
        whole = timed(lambda: model.fit_rows(open_rows([file])))
        memory, one = timed(lambda: model.fit(rows)), timed(lambda: scan(file))
        pairs.append((whole, memory, one, whole / (memory + _PASSES_OF_ONE * one)))
    whole, memory, one, ratio = np.median(np.array(pairs), axis=0)
    report.note(
        section,
        f"{name}: seconds of all, of the fit in memory, of one scan",
        f"{whole:.2f}, {memory:.2f}, {one:.2f}",
    )
    report.add(section, name, float(ratio), wanted, at_most=True)


def _memory(report: Report) -> None:
    """Beyond the input, of the default plan."""
    section = "Memory of a fit beyond its rows"
    for rows, features in ((20_000, 784), (10_000, 2000)):
        table = power_law(rows, features, 1.0, dtype=np.float32) + np.float32(1.0)
        model = PrivatePCA(50, epsilon=1.0, delta=1e-5, precision="single")
        peak, square = peak_memory(partial(model.fit, table)), 8 * features**2
        wanted = 90.0 if features == 784 else (8 * square + (64 << 20)) / 2**20
        what = f"D = {features}, MiB ({peak / square:.1f} D x D arrays of 8 bytes)"
        report.add(section, what, peak / 2**20, wanted, at_most=True)


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
