"""What a pass over Spark's partitions and Dask's costs, for rows that are made inside partitions.

Processor time of this process and of all that it started: the driver, Java, and Python's workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
import dask.array as da

from benchmarks.report import Report
from eigenveil import PrivatePCA
from eigenveil.moments.accumulators import RowSum, SecondMoment
from eigenveil.moments.engine import accumulate
from eigenveil.moments.rows import RowRule
from eigenveil.moments.spark_tasks import SparkTasks
from eigenveil.tables.adapters import rows_of

COST = "Clusters: processor seconds for 1,000,000 rows of 100 columns, made inside partitions"
COLUMNS, ROWS_A_PART = 100, 100_000
ROWS = {"Dask": 100_000_000, "Spark": 10_000_000}
"""Of a pass: what some minutes of a processor allow; a fit has a tenth of them."""
_TICKS = os.sysconf("SC_CLK_TCK")


def run(report: Report) -> None:
    """Both kinds of clusters, here on one processor: 12 minutes of it."""
    with dask.config.set(scheduler="sync"):
        _measure(report, "Dask", _of_dask, lambda rows: rows.sum().compute())
    if find_spec("pyspark") is None:
        report.note(COST, "Spark", "pyspark is not installed")
        return
    spark = SparkTasks("local[1]").session
    nowhere = {"format": "noop", "mode": "overwrite"}
    _measure(report, "Spark", partial(_of_spark, spark), lambda rows: rows.write.save(**nowhere))
    spark.stop()


def _measure(
    report: Report, name: str, made: Callable[[int], Any], read: Callable[[Any], object]
) -> None:
    rule, count = RowRule(bound=1.0), ROWS[name]
    sums = {
        "sums": RowSum(rule, features=COLUMNS, count_weight=0.5),
        "second moments": SecondMoment(rule, features=COLUMNS),
    }
    accumulate(rows_of(made(ROWS_A_PART)), [sums["sums"].empty()])  # what is loaded at first
    rows, of = made(count), f"{name}, {count:,} rows"
    report.note(COST, f"{of}: making them", f"{_seconds(partial(read, rows), count):.3g}")
    for what, empty in sums.items():
        took = _seconds(partial(accumulate, rows_of(rows), [empty]), count)
        report.note(COST, f"{of}: a pass of {what}, making included", f"{took:.3g}")
    fit = PrivatePCA(10, epsilon=1.0, random_state=0)
    few = count // 10
    took = _seconds(partial(fit.fit, made(few)), few)
    report.note(COST, f"{name}, {few:,} rows: a fit by default", f"{took:.3g}")


def _of_dask(count: int) -> Any:
    source: Any = da.random
    shape = (count, COLUMNS)
    return source.default_rng(0).uniform(-1.0, 1.0, shape, chunks=(ROWS_A_PART, -1))


def _of_spark(spark: Any, count: int) -> Any:
    """Numbers that are functions of the row's and the column's number."""
    spark.conf.set("spark.sql.codegen.maxFields", 2 * COLUMNS)  # compiled, as a table's reading is
    odd = (2654435761 + 2 * column for column in range(COLUMNS))
    made = [f"double((id * {each}) & 65535) as v{place}" for place, each in enumerate(odd)]
    return spark.range(0, count, 1, max(1, count // ROWS_A_PART)).selectExpr(*made)


def _seconds(work: Callable[[], Any], rows: int) -> float:
    """Processor seconds for 1,000,000 rows of so many."""
    before = _spent()
    work()
    return (_spent() - before) * 1e6 / rows


def _spent() -> float:
    """Of this process and of those that it started, and these, ended or not."""
    parents, ticks = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        number = int(place.parent.name)
        parents[number], ticks[number] = int(words[1]), sum(map(int, words[11:15]))
    mine = {os.getpid()}
    while more := {each for each, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks[each] for each in mine) / _TICKS
