"""More epsilon is never worse, and axes do not matter silently: ten data sets, each also rotated.

Unit rows, exactly centred, delta = 1e-5 (the papers' rows .01), noise drawn in floating point. At
all epsilons of a run it is the same noise but for its size, so that curves are compared in pairs.
"""

from __future__ import annotations

import math
import os
import sys
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import isotonic_regression

from benchmarks import adaptive
from benchmarks.adaptive import fitted, second_moment
from benchmarks.data import power_law
from benchmarks.panels import draw_panels
from benchmarks.report import Report

Array = NDArray[np.float64]

EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
# By how much a mean may lie below a rising curve, beside so many of its standard errors.
_BELOW, _ERRORS = 0.003, 3.4
# Runs until the standard errors are no larger than this, and at most.
_CLOSE, _BATCH, _MOST = 0.0015, 8, 40
_WIDE, _MOST_WHERE_WIDE = 300, 4
_IMAGE = Path(__file__).parents[1] / "docs" / "images" / "epsilon.png"


def papers_rows() -> Array:
    """As of the papers' figures: 50 of 200 features have variances of 10 to 1."""
    rng = np.random.default_rng(1804)
    variances = np.concatenate([np.linspace(10.0, 1.0, 50), rng.uniform(0.0, 0.5, 150)])
    return np.asarray(rng.standard_normal((10_000, 200)) * np.sqrt(variances))


_OF_ADAPTIVE = (
    *("digits, K=10", "cancer, K=5", "diabetes, K=3", "wine standardised, K=3", "covtype, K=10"),
    *("motes light, K=5", "motes volt, K=5", "MNIST, K=50"),
)
NAMES = (*_OF_ADAPTIVE, "1/j^2 by columns, K=10", "papers' rows, K=50")


class Known(NamedTuple):
    """A case as every process has it."""

    units: NDArray[Any]
    exact: Array
    moment: Array
    components: int
    delta: float


@lru_cache(maxsize=1)
def known(name: str, rotated: bool) -> Known | None:
    """A case; ``None`` where the data is not at hand."""
    delta = 1e-5
    if name in adaptive.CASES:
        case = adaptive.CASES[name]
        rows, components = case.make(), case.components
        if rows is None:
            return None
    elif name.startswith("papers"):
        rows, components, delta = papers_rows(), 50, 0.01
    else:
        rows, components = power_law(20_000, 200, 2.0, rotate=False), 10
    return case_of(rows, components, delta, rotated=rotated)


def case_of(rows: Array, components: int, delta: float = 1e-5, *, rotated: bool) -> Known:
    """Unit rows about their centre, in their own axes or in axes drawn by chance."""
    rows = rows - rows.mean(axis=0)
    if rotated:
        size = rows.shape[1]
        rows = rows @ np.linalg.qr(np.random.default_rng(5).standard_normal((size, size)))[0]
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    units = rows / np.where(norms > 0, norms, 1.0)
    return Known(units, second_moment(units), second_moment(rows), components, delta)


def curve(of: Known, epsilons: tuple[float, ...], seed: int) -> Array:
    """One run: captured energy of one release, of that denoised, and of two, by epsilon."""
    return np.array(
        [fitted(*of[:4], epsilon, np.random.default_rng(seed), of.delta) for epsilon in epsilons]
    )


def dip(runs: Array) -> float:
    """By how much a mean, of runs x epsilons, is too far below the rising curve nearest to all."""
    means = runs.mean(axis=0)
    errors = runs.std(axis=0, ddof=1) / math.sqrt(runs.shape[0])
    rising = np.asarray(isotonic_regression(means))
    return float(np.max(rising - means - (_BELOW + _ERRORS * errors)))


def least(gains: Array) -> float:
    """The least mean gain, of runs x epsilons, if chance was against it by so many errors."""
    errors = gains.std(axis=0, ddof=1) / math.sqrt(gains.shape[0])
    return float(np.min(gains.mean(axis=0) + _ERRORS * errors))


def enough(runs: Array) -> bool:
    """Whether all means are known well enough."""
    errors = runs.std(axis=0, ddof=1) / math.sqrt(runs.shape[0])
    return bool(np.max(errors) <= _CLOSE)


Cell = tuple[str, bool, int]


def _run(cell: Cell) -> Array | None:
    name, rotated, number = cell
    of = known(name, rotated)
    if of is None or (of.units.shape[1] > _WIDE and number >= _MOST_WHERE_WIDE):
        return None
    return curve(of, EPSILONS, zlib.crc32(f"{name} {number}".encode()))


def run(report: Report) -> None:
    """All curves on all processors, and their picture."""
    draw(measure(report, NAMES), _IMAGE)


def measure(
    report: Report, names: tuple[str, ...], most: int = _MOST
) -> dict[tuple[str, bool], Array]:
    """Runs x epsilons x 3 by case; batches until the means are known, at most so many runs."""
    section = "More epsilon is never worse: unit rows, exactly centred"
    found: dict[tuple[str, bool], Array] = {}
    open_cases = [(name, rotated) for name in names for rotated in (False, True)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, most, _BATCH):
            numbers = range(start, min(start + _BATCH, most))
            asked = [(*case, number) for case in open_cases for number in numbers]
            for cell, one in zip(asked, pool.map(_run, asked), strict=True):
                if one is not None:
                    kept = [found[cell[:2]]] if cell[:2] in found else []
                    found[cell[:2]] = np.concatenate([*kept, one[None]])
            open_cases = [
                case
                for case in open_cases
                if case in found and not enough(found[case][:, :, 2]) and case[0] != "MNIST, K=50"
            ]
    for (name, rotated), runs in found.items():
        axes = "rotated" if rotated else "own axes"
        means = runs.mean(axis=0)
        said = ", ".join(f"{each:.3f}" for each in means[:, 2])
        what = f"{name}, {axes}, {runs.shape[0]} runs ({said}): "
        report.add(section, f"{what}below a rising curve by", dip(runs[:, :, 2]), 0.0, at_most=True)
        gain = runs[:, :, 2] - runs[:, :, 0]
        what = f"{name}, {axes}: least gain over one release that is not shrunk, but for chance"
        report.add(section, what, least(gain), -0.005)
    return found


def draw(found: dict[tuple[str, bool], Array], path: Path) -> None:
    """A panel a data set: captured energy against epsilon, with the rows' own axes and rotated."""

    def lines(axes: Any, name: str) -> dict[str, Any]:
        drawn = {}
        for rotated, color in ((False, "#0072B2"), (True, "#D55E00")):
            means = found[name, rotated].mean(axis=0)
            place = "rotated" if rotated else "own axes"
            for index, line, what in ((2, "o-", "two releases"), (0, "x:", "one, not shrunk")):
                label = f"{what}, {place}"
                (drawn[label],) = axes.semilogx(
                    EPSILONS, means[:, index], line, color=color, markersize=3.5
                )
        return drawn

    names = list(dict.fromkeys(name for name, _ in found))
    draw_panels(names, lines, path, ticks=(0.1, 0.3, 1.0, 3.0), what="captured energy")


if __name__ == "__main__":  # named cases, a few runs of each
    measure(Report(), tuple(sys.argv[1:]), 6)
