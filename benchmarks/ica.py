"""Independent components: how well they are found, when none should be, intervals, and costs.

Fresh rows and noise for every fit. Wanted is a Moreau-Amari index of .02 at 20,000 rows and .005 at
100,000, epsilon 1, all private, of a table and of ten sites.
"""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta
from threadpoolctl import threadpool_limits

from benchmarks.interval_sources import LAWS, mixed
from benchmarks.intervals import OF_SOURCES, Cell, counts_of, pooled
from benchmarks.report import Report
from eigenveil import FederatedICA, NoisyResultWarning, PrivateICA
from eigenveil.models.ica.jade import separation_error

Array = NDArray[np.float64]

DELTA, FITS, SITES = 1e-5, 8, 10
WANTED = {20_000: 0.02, 100_000: 0.005}
SIZES = ((5, 20), (10, 50))
_FOUND = "Independent components: Moreau-Amari index (Laplace and uniform sources, epsilon 1)"
_NONE = "Independent components of Gaussian sources: fits that tell some apart"
_HELD = "Independent components: coverage of 95 % intervals"
_LARGE = "Twenty independent components"
GAUSSIAN_FITS, COVERED_FITS = 300, 30


def fitted(kind: Callable[..., Any], rows: Any, count: int, seed: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyResultWarning)
        groups = {"groups": options.pop("groups")} if "groups" in options else {}
        given = {"epsilon": 1.0, "delta": DELTA, "random_state": seed} | options
        return kind(count, **given).fit(rows, **groups)


def index(model: Any, maps: Array) -> float:
    """1 where fewer sources than there are have been found."""
    if model.n_components_ != maps.shape[1]:
        return 1.0
    return separation_error(model.components_ @ maps)


def run(report: Report) -> None:
    with threadpool_limits(1):
        _index(report)
        _persons(report)
        _twenty(report)
        _gaussian(report)
        _covered(report)


def _index(report: Report) -> None:
    for count, features in SIZES:
        for rows, wanted in WANTED.items():
            found: dict[str, list[float]] = defaultdict(list)
            for seed in range(FITS):
                x, maps = mixed("both", rows, count, features, seed)
                found["a table"].append(index(fitted(PrivateICA, x, count, seed), maps))
                parts = np.array_split(x, SITES)
                found[f"{SITES} sites"].append(
                    index(fitted(FederatedICA, parts, count, seed), maps)
                )
            for where, each in found.items():
                said = f"{where}, {rows:,} rows, {count} of {features} columns ({spread(each)})"
                report.add(_FOUND, said, float(np.mean(each)), wanted, at_most=True)


def _persons(report: Report) -> None:
    """As many rows of each person, 100,000 in all."""
    count, features, rows = 5, 20, 100_000
    for each in (1, 5, 20):
        found = []
        for seed in range(FITS):
            x, maps = mixed("both", rows, count, features, seed)
            options = {"unit": "person", "max_rows_per_unit": each}
            groups = np.arange(rows) // each
            model = fitted(PrivateICA, x, count, seed, groups=groups, **options)
            found.append(index(model, maps))
        persons = f"{rows // each:,} persons with {each} rows each, {count} of {features} columns"
        report.note(_FOUND, persons, spread(found))


def spread(found: list[float]) -> str:
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    return f"{np.mean(found):.4f} ± {error:.4f}, of {len(found)} fits"


def _twenty(report: Report) -> None:
    """What 20 sources take: a site sends each number in 8 bytes."""
    count, features = 20, 60
    for rows in WANTED:
        x, maps = mixed("both", rows, count, features)
        started = time.process_time()
        model = fitted(PrivateICA, x, count, 0)
        report.note(_LARGE, f"{rows:,} rows: index", f"{index(model, maps):.4f}")
        report.note(_LARGE, f"{rows:,} rows: seconds", f"{time.process_time() - started:.2f}")
    started = time.process_time()
    model.intervals()
    report.add(_LARGE, "seconds of intervals", time.process_time() - started, 2.0, at_most=True)
    tracemalloc.start()
    fitted(PrivateICA, x, count, 0)
    most = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    report.note(_LARGE, f"{rows:,} rows: MiB beside the rows", f"{most:.0f}")
    started = time.process_time()
    sites = fitted(FederatedICA, np.array_split(x, SITES), count, 0)
    took = f"{time.process_time() - started:.1f}"
    report.note(_LARGE, f"{SITES} sites in one process: seconds", took)
    report.note(_LARGE, f"{SITES} sites: index", f"{index(sites, maps):.4f}")
    sent = sites.certificate_.releases[-1].noise.size
    report.note(_LARGE, "numbers of the fourth moment; bytes of a site", f"{sent:,}; {8 * sent:,}")


def _gaussian(report: Report) -> None:
    for count in (2, 5, 10):
        false = 0
        for seed in range(GAUSSIAN_FITS):
            rng = np.random.default_rng((seed, count))
            x = rng.standard_normal((20_000, 2 * count))
            x[:, :count] *= 3.0
            false += bool(fitted(PrivateICA, x, count, seed).usable_.any())
        most = float(beta.ppf(0.95, false + 1, GAUSSIAN_FITS - false))
        said = f"{count} sources, {false} of {GAUSSIAN_FITS} fits; at 95 % no more than"
        report.add(_NONE, said, most, 0.01, at_most=True)


def _covered(report: Report) -> None:
    """Of 20,000 rows at three epsilons, of 100,000 at one."""
    kinds: dict[str, dict[Cell, Any]] = defaultdict(dict)
    section = f"{_HELD} ({COVERED_FITS} fits a cell, delta = 1e-5)"
    for rows, epsilons in ((20_000, (0.5, 1.0, 3.0)), (100_000, (1.0,))):
        for count in (3, 5, 10):
            for law in LAWS:
                for epsilon in epsilons:
                    cell = (f"{count} {law} sources, {rows:,} rows", OF_SOURCES, epsilon)
                    for name, each in counts_of(cell, COVERED_FITS).items():
                        kinds[name][cell] = each
    for name, parts in kinds.items():
        pooled(report, section, name, parts)
