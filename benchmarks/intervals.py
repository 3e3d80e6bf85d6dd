"""Coverage of intervals: how often they hold what they are said to hold, where they are shown.

Whole fits, each with noise of its own seed. The exact numbers are those of the table's rows as that
fit prepared them (about its centre, in its scales, shortened at its length), computed with NumPy
alone. A cell is a table, an epsilon and a kind of number; wanted is a pooled coverage from 93 to
97 % of each kind (bounds: 93 % and above), and no cell below 90 % that shows 400 or more.

``python -m benchmarks.intervals --fits 100 wine digits`` fits some tables so many times. Cells that
are done are kept in ``--to FILE`` as they come, and are not fitted again while the code is the
same; ``--from FILE`` makes the page's section and the figure of such a file without any fit.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from threadpoolctl import threadpool_limits

from benchmarks.data import at_hand, real_rows
from benchmarks.interval_figure import draw
from benchmarks.interval_mixtures import MIXTURES, mixture_truths
from benchmarks.interval_sources import COLUMNS_A_SOURCE, SOURCES, source_truths
from benchmarks.interval_topics import TOPICS, topic_truths
from benchmarks.report import ROOT, Report, digest, state
from eigenveil import (
    FederatedGaussianMixture,
    FederatedPCA,
    NoisyResultWarning,
    PrivateCovariance,
    PrivateGaussianMixture,
    PrivateICA,
    PrivatePCA,
    PrivateTopicModel,
)
from eigenveil.models.pca.intervals import moment_of

Array = NDArray[np.float64]

FITS, EPSILONS, DELTA = 400, (0.5, 1.0, 3.0), 1e-5
_COMPONENTS, _FEW = 5, 400
_HIDDEN = "eigenvalue that noise hides"
_BOUNDS = ("angle", "subspace_angle", "lost_energy", _HIDDEN)
PAGE, FIGURE = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "images" / "intervals.png"


def _scaled(rows: Array) -> Array:
    deviation = rows.std(axis=0)
    return np.asarray(rows[:, deviation > 0] / deviation[deviation > 0])


def _power(rows: int, features: int, *, turned: bool, tail: int = 0) -> Array:
    """Variances 1/j, in a basis of its own, with the lengths of a t distribution."""
    rng = np.random.default_rng(rows + features)
    found = rng.standard_normal((rows, features)) / np.sqrt(np.arange(1, features + 1))
    if turned:
        found = found @ np.linalg.qr(rng.standard_normal((features, features)))[0]
    if tail:
        found = found / np.sqrt(rng.chisquare(tail, (rows, 1)) / tail)
    return np.asarray(found)


def _long(rows: int, features: int) -> Array:
    """Every twentieth row is five times longer, in other directions."""
    rng, found = np.random.default_rng(3), _power(rows, features, turned=False)
    found[::20] = 5.0 * found[::20][:, rng.permutation(features)]
    return found


def _columns(rows: int, features: int, draw: Callable[..., Any]) -> Array:
    rng = np.random.default_rng(4)
    mixed = rng.standard_normal((features, features)) * 0.4 + np.eye(features)
    return np.asarray(draw(rng, (rows, features)) @ mixed)


def _of(name: str) -> Callable[[], Array]:
    return lambda: real_rows(name)


TABLES: dict[str, Callable[[], Array]] = {
    "digits": lambda: load_digits().data,
    "wine": lambda: _scaled(real_rows("wine")),
    "motes volt": _of("motes volt"),
    "motes light": _of("motes light"),
    "covtype": lambda: _scaled(real_rows("covtype")[:, :10]),
    "1/j": lambda: _power(5000, 20, turned=False),
    "1/j, turned": lambda: _power(5000, 20, turned=True),
    "1/j, 50 columns": lambda: _power(20_000, 50, turned=True),
    "white": lambda: np.random.default_rng(0).standard_normal((5000, 10)),
    "uniform": lambda: _columns(4000, 12, lambda rng, size: rng.uniform(-1, 1, size)),
    # long or heavy-tailed rows
    "t3": lambda: _power(10_000, 20, turned=True, tail=3),
    "t5": lambda: _power(5000, 12, turned=True, tail=5),
    "long rows": lambda: _long(10_000, 20),
    "exponential": lambda: _columns(5000, 15, lambda rng, size: rng.exponential(1, size)),
    "log-normal": lambda: _columns(5000, 10, lambda rng, size: np.exp(rng.normal(0, 0.7, size))),
    # small
    "breast cancer": lambda: _scaled(load_breast_cancer().data),
    "diabetes": lambda: _scaled(load_diabetes().data),
    "iris": lambda: _scaled(load_iris().data),
    "wines": lambda: _scaled(load_wine().data),
    "1/j, 300 rows": lambda: _power(300, 8, turned=True),
}


@lru_cache(maxsize=2)
def _rows(name: str) -> Array:
    return np.asarray((TABLES | MIXTURES | TOPICS | SOURCES)[name](), dtype=np.float64)


class Fit(NamedTuple):
    """An estimator, and what it is told of the rows."""

    make: Callable[..., Any]
    options: Mapping[str, Any] = {}
    bounded: bool = False
    sites: int = 0
    truths: Callable[[Any, Array], Iterator[tuple[str, Array]]] | None = None
    tables: Mapping[str, Callable[[], Array]] = TABLES

    def fitted(self, rows: Array, epsilon: float, seed: int) -> Any:
        told: dict[str, Any] = {}
        if self.bounded:
            told["row_norm"] = float(np.quantile(np.linalg.norm(rows - rows.mean(0), axis=1), 0.9))
        if self.make is not PrivateCovariance:
            most = _COMPONENTS if self.tables is TABLES else 4
            told["n_components"] = min(most, rows.shape[1] - 1)
        if self.tables is SOURCES:
            told["n_components"] = rows.shape[1] // COLUMNS_A_SOURCE
        model = self.make(**self.options, epsilon=epsilon, delta=DELTA, random_state=seed, **told)
        parts = {f"site-{place}": part for place, part in enumerate(np.array_split(rows, 3))}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoisyResultWarning)
            return model.fit(parts if self.sites else rows)


FITTED = {
    "PCA": Fit(PrivatePCA),
    "PCA, one release of shortened rows": Fit(PrivatePCA, {"mechanism": "gaussian"}, bounded=True),
    "covariance": Fit(PrivateCovariance),
    "PCA of three sites": Fit(FederatedPCA, sites=3),
    **{
        f"mixture, {kind}": Fit(
            PrivateGaussianMixture,
            {"covariance_type": kind},
            truths=mixture_truths,
            tables=MIXTURES,
        )
        for kind in ("spherical", "diag", "full", "tied")
    },
    "mixture of three sites": Fit(
        FederatedGaussianMixture,
        {"covariance_type": "diag"},
        sites=3,
        truths=mixture_truths,
        tables=MIXTURES,
    ),
    "topics": Fit(PrivateTopicModel, truths=topic_truths, tables=TOPICS),
}
# Measured in a section of its own (benchmarks/ica.py).
OF_SOURCES = "independent components"
FITTED_BESIDE = {OF_SOURCES: Fit(PrivateICA, truths=source_truths, tables=SOURCES)}
# Of what the sums of mixtures are rounded to, in one of their intervals.
_ROUNDED = 1e-4


def _prepared(model: Any, rows: Array, bound: float) -> Array:
    """Rows about the centre, in scales, shortened to this length, 1 then; 0: all of length 1."""
    about = (
        rows - model.mean_ if hasattr(model, "mean_") else rows - model.location_
    ) / model.scale_
    length = np.linalg.norm(about, axis=1)
    longest = np.maximum(length, np.finfo(float).tiny)
    return np.asarray(about / (longest if bound == 0 else np.maximum(longest, bound))[:, None])


def truths(model: Any, rows: Array) -> Iterator[tuple[str, Array]]:
    """What each interval is to hold."""
    yield "rows", np.array(float(rows.shape[0]))
    bound, prepared = model.row_bound_, _prepared(model, rows, model.row_bound_)
    unit = bound or 1.0
    away = prepared - prepared.mean(axis=0)
    moment = away.T @ away / rows.shape[0]
    values, vectors = np.linalg.eigh(moment)
    values, vectors = np.maximum(values[::-1], 0.0), vectors.T[::-1]  # but for rounding
    count = model.intervals()["eigenvalue"].estimate.size
    yield "eigenvalue", values[:count] * unit**2
    if not hasattr(model, "components_"):
        scaled = moment * np.multiply.outer(model.scale_, model.scale_) * unit**2
        yield "covariance", scaled
        inverse = 1.0 / np.sqrt(np.diag(scaled))
        yield "correlation", scaled * np.multiply.outer(inverse, inverse)
        if values[-1] > 1e-9 * values[0]:
            yield "precision", np.linalg.inv(scaled)
        return
    found, exact = model.components_, vectors[:count]
    turned = exact * np.sign(np.vecdot(found, exact))[:, None]
    yield "component", turned
    deviations = np.sqrt(np.maximum(np.diag(moment), np.finfo(float).tiny))
    yield "loading", turned * np.sqrt(values[:count])[:, None] / deviations
    yield "angle", _degrees(np.abs(np.vecdot(found, exact)))
    together = np.linalg.svd(found @ exact.T, compute_uv=False)
    yield "subspace_angle", _degrees(together[-1])
    best = float(np.sum(values[:count]))
    lost = 1.0 - float(np.sum((found @ moment) * found)) / best
    yield "lost_energy", np.array(max(0.0, lost))
    if model.variance_bound_ > 0:
        longer = _prepared(model, rows, model.variance_bound_)
        along = np.mean((longer @ found.T) ** 2, axis=0)
        total = float(np.mean(np.sum(longer**2, axis=1)))
        yield "explained_variance", along * model.variance_bound_**2
        yield "explained_variance_ratio", along / total
        yield "cumulative_ratio", np.cumsum(along) / total


def _degrees(cosines: Any) -> Array:
    return np.asarray(np.degrees(np.arccos(np.minimum(cosines, 1.0))))


def _first_seed(*cell: object) -> int:
    return 1000 * (zlib.crc32(repr(cell).encode()) % 1_000_000)


Cell = tuple[str, str, float]  # Table, estimator, epsilon
Counts = dict[str, tuple[int, int, int]]


def counts_of(cell: Cell, fits: int) -> Counts:
    """Of each kind of number: how many intervals hold it, are shown, and there are."""
    table, fit, epsilon = cell
    rows, first = _rows(table), _first_seed(*cell)
    made = (FITTED | FITTED_BESIDE)[fit]
    exact = made.truths or truths
    rounding = 1e-9 if exact is truths else _ROUNDED  # rows and sums are rounded to grids
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    with threadpool_limits(1):
        for seed in range(first, first + fits):
            model = made.fitted(rows, epsilon, seed)
            if model.certificate_.stopped:
                continue
            intervals = model.intervals()
            for name, true in exact(model, rows):
                each = intervals[name]
                slack = rounding * np.abs(true)
                holds = (each.lower - slack <= true) & (true <= each.upper + slack)
                for kind, where in _kinds(model, name, each.shown):
                    found[kind][0] += int(np.count_nonzero(holds & where))
                    found[kind][1] += int(np.count_nonzero(where))
                    found[kind][2] += each.shown.size
    return {name: (one, two, three) for name, (one, two, three) in found.items()}


def _kinds(model: Any, name: str, shown: Any) -> Iterator[tuple[str, Any]]:
    """Which of a quantity's intervals are counted under which name: bounds by themselves."""
    if hasattr(model, "kurtosis_"):
        yield name, shown
        return
    if hasattr(model, "weights_"):
        yield f"{name} of {'topics' if hasattr(model, 'topics_') else 'mixtures'}", shown
        return
    if name != "eigenvalue" or not shown.any():
        yield name, shown
        return
    facts = moment_of(model._result)
    assert not isinstance(facts, str)
    clear = facts.spectrum.clear[: shown.size]
    yield name, shown & clear
    yield _HIDDEN, shown & ~clear


@dataclass
class Measured:
    """Cells that were fitted, and of which code."""

    fits: int
    state: str  # What the page says: when, and of which code
    code: str
    cells: dict[Cell, Counts] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Measured:
        plain = json.loads(file.read_text(encoding="utf-8"))
        cells = {
            (each["table"], each["fit"], each["epsilon"]): {
                name: tuple(counts) for name, counts in each["counts"].items()
            }
            for each in plain.pop("cells")
        }
        return cls(**plain, cells=cells)

    def write(self, file: Path) -> None:
        """In one step: a run that is cut leaves a whole file of what was done."""
        head = json.dumps({"fits": self.fits, "state": self.state, "code": self.code})[:-1]
        cells = ",\n".join(
            json.dumps({"table": table, "fit": fit, "epsilon": epsilon, "counts": counts})
            for (table, fit, epsilon), counts in self.cells.items()
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".part")
        partial.write_text(f'{head}, "cells": [\n{cells}\n]}}\n', encoding="utf-8")
        partial.replace(file)


def measure(tables: list[str], fits: int, file: Path, processes: int) -> Measured:
    """Fit the cells that the file has not, the large ones first and those of sites last."""
    code = digest()
    found = Measured(fits, state(code), code)
    if file.exists():
        before = Measured.read(file)
        if (before.fits, before.code) == (fits, code):
            found = before
    wanted = [
        (table, fit, epsilon)
        for fit in sorted(FITTED, key=lambda name: FITTED[name].sites)
        for table in sorted(tables, key=lambda name: -_rows(name).size)
        if table in FITTED[fit].tables
        for epsilon in EPSILONS
    ]
    with ProcessPoolExecutor(processes) as pool:
        running = {
            pool.submit(counts_of, cell, fits): cell for cell in wanted if cell not in found.cells
        }
        for number, done in enumerate(as_completed(running), 1):
            cell, error = running[done], done.exception()
            if error is None:
                found.cells[cell] = done.result()
                found.write(file)
            print(f"{number} of {len(running)}: {said_of(cell)} {error or ''}".rstrip(), flush=True)
    return found


def said_of(cell: Cell) -> str:
    table, fit, epsilon = cell
    return f"{table}, {fit}, epsilon {epsilon:g}"


def pooled(report: Report, section: str, name: str, parts: Mapping[Cell, list[int]]) -> None:
    held, shown, there = np.sum(list(parts.values()), axis=0)
    if not shown:
        return
    at_least = f"{name} (shown {shown / there:.0%} of {there:,})"
    report.add(section, f"{at_least}, pooled", held / shown, 0.93)
    if name not in _BOUNDS:
        text = f"{at_least}, pooled, no wider than needed"
        report.add(section, text, held / shown, 0.97, at_most=True)
    enough = [(part[0] / part[1], cell) for cell, part in parts.items() if part[1] >= _FEW]
    if enough:
        coverage, cell = min(enough)
        report.add(section, f"{name}, worst cell: {said_of(cell)}", coverage, 0.90)


def reported(found: Measured, report: Report) -> None:
    """Each kind of number, pooled, and its worst cell; and the figure of all cells."""
    section = f"Coverage of 95 % intervals of a table ({found.fits} fits a cell, delta = 1e-5)"
    kinds: dict[str, dict[Cell, Any]] = defaultdict(dict)
    for cell, counts in found.cells.items():
        for name, each in counts.items():
            kinds[name][cell] = each
    for name, parts in kinds.items():
        pooled(report, section, name, parts)
    report.measured[section] = found.state
    draw(kinds, _BOUNDS, _FEW, FIGURE)


def run(report: Report) -> None:
    """Every table, estimator and epsilon, where the rows are at hand."""
    file = ROOT / "build" / "intervals.json"
    reported(measure(_there(), FITS, file, os.cpu_count() or 1), report)


_AT_HAND = ("wine", "motes volt", "motes light", "covtype")


def _there() -> list[str]:
    return [name for name in TABLES | MIXTURES | TOPICS if name not in _AT_HAND or at_hand(name)]


def main(words: list[str]) -> None:
    """Measure into a file, or make the page's section of one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.intervals")
    parser.add_argument("tables", nargs="*", help="all that are at hand, if none is named")
    parser.add_argument("--fits", type=int, default=FITS)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "intervals.json")
    parser.add_argument("--from", dest="file", type=Path, help="a file of an earlier run")
    given = parser.parse_args(words)
    if given.file is None:
        measure(given.tables or _there(), given.fits, given.to, given.processes)
        return
    report = Report()
    reported(Measured.read(given.file), report)
    report.write(PAGE, whole=False)


if __name__ == "__main__":
    main(sys.argv[1:])
