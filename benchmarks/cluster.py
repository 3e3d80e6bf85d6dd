"""What Dask's workers cost beside one machine: a pass over partitions, and one thread's speed.

Processor time, not time on a clock: it does not depend on what else the machine does.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import dask.array as da
import numpy as np

from benchmarks.data import power_law
from benchmarks.report import Report
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.moments.engine import accumulate
from eigenveil.moments.rows import RowRule
from eigenveil.moments.source import ArrayRows, RowSource
from eigenveil.tables.adapters import rows_of

distributed: Any = import_module("distributed")

OVERHEAD = "Dask: processor time of a partition beside its rows, 4 workers of one thread"
SPEED = "Dask: one thread's second moment of rows in memory, single precision"
WORKERS, ROWS_A_PART = 4, 500
FEW, MANY = 40, 240


def run(report: Report) -> None:
    """The speed that a plan on paper needs, and the overhead of a partition."""
    _speed(report)
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, memory_limit=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        for features in (20, 500):
            _overhead(report, client, features)


def _overhead(report: Report, client: Any, features: int) -> None:
    """The slope of a pass's time over its number of partitions, less the rows' own time."""
    _spent(client, FEW, features)  # what is loaded at the first pass
    few, many = _spent(client, FEW, features), _spent(client, MANY, features)
    here, there = 1e3 * (many - few) / (MANY - FEW)
    own = 1e3 * _processor_time(np.zeros((ROWS_A_PART, features), np.float32))
    report.note(OVERHEAD, f"{features} features: ms of client and scheduler", f"{here:.3g}")
    text = f"{there:.3g}, {own:.3g}"
    report.note(OVERHEAD, f"{features} features: ms of workers, of which the rows'", text)


def _spent(client: Any, parts: int, features: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Seconds of one pass: of the client, which holds the scheduler, and of all workers."""
    shape, chunks = (parts * ROWS_A_PART, features), (ROWS_A_PART, features)
    rows = rows_of(da.zeros(shape, dtype=np.float32, chunks=chunks))
    before = _clocks(client)
    _moment(rows)
    return _clocks(client) - before


def _clocks(client: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    there = sum(client.run(time.process_time).values())
    return np.array([time.process_time(), there])


def _speed(report: Report) -> None:
    for features in (100, 1000):
        rows = power_law(10_000, features, 1.0, dtype=np.float32)
        took = min(_processor_time(rows) for _ in range(2))
        text = f"{10_000 / took:,.0f}, {1e4 * 2 * features**2 / took / 1e9:.3g}"
        report.note(SPEED, f"{features} features: rows a second, GFLOP/s", text)


def _processor_time(rows: np.ndarray[Any, np.dtype[np.float32]]) -> float:
    """Seconds for the moment of an array; run with OMP_NUM_THREADS=1."""
    start = time.process_time()
    _moment(ArrayRows(rows))
    return time.process_time() - start


def _moment(rows: RowSource) -> None:
    rule = RowRule(precision="single")
    accumulate(rows, [SecondMoment(rule, features=rows.features)], most_workers=1)
