"""Lengths of rows: what unit rows, fixed lengths and ``row_norm="auto"`` capture, and what is said.

Everything is private but the fixed lengths, which are exact quantiles of the rows' norms: what
somebody who knew them could ask for. delta = 1e-5, add-remove. The noise of every fit has a seed of
its own, so that the numbers do not depend on how many processors there are.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from benchmarks.data import FILES, SHARED, real_data
from benchmarks.panels import draw_panels
from benchmarks.report import Report
from eigenveil import NoisyResultWarning, PrivatePCA
from eigenveil.linalg.eigen import leading_eigenpairs

Array = NDArray[np.float64]
Make = Callable[[], tuple[Array, int]]

EPSILONS, DELTA = (0.3, 1.0, 3.0), 1e-5
QUANTILES = (0.5, 0.8, 0.9, 0.95, 0.99)
# Rows as they are asked for: by name, with what mechanism.
CHOICES: dict[str, tuple[str | float, str]] = {
    "unit": ("unit", "auto"),
    "auto": ("auto", "auto"),
    **{f"q{quantile:g}": (quantile, "auto") for quantile in QUANTILES},
    **{f"q{quantile:g}, one release": (quantile, "gaussian") for quantile in QUANTILES},
}
_FITS, _FITS_WHERE_LARGE, _LARGE = 6, 2, 2_000_000
_IMAGE = Path(__file__).parents[1] / "docs" / "images" / "lengths.png"


def long_rows(part: float) -> tuple[Array, int]:
    """A part of the rows is ten times longer and lies in five other directions."""
    rng = np.random.default_rng(2)
    basis, _ = np.linalg.qr(rng.standard_normal((60, 10)))
    strength = np.zeros((20_000, 10))
    strength[:, :5] = 1.0
    strength[: int(part * 20_000)] = [0.0] * 5 + [10.0] * 5
    inside = strength * rng.standard_normal((20_000, 10))
    return inside @ basis.T + 0.1 * rng.standard_normal((20_000, 60)), 5


def lengths_of(draw: Callable[[np.random.Generator], Array]) -> Make:
    """Rows of variances 1/j^2, whose lengths say nothing about their directions."""

    def made() -> tuple[Array, int]:
        rng = np.random.default_rng(3)
        basis, _ = np.linalg.qr(rng.standard_normal((60, 60)))
        rows = (rng.standard_normal((20_000, 60)) / np.arange(1, 61)) @ basis
        return rows * draw(rng)[:, None], 5

    return made


CASES: dict[str, Make] = {
    "1 % long rows": lambda: long_rows(0.01),
    "5 % long rows": lambda: long_rows(0.05),
    "10 % long rows": lambda: long_rows(0.1),
    "t3": lengths_of(lambda rng: 1.0 / np.sqrt(rng.chisquare(3, 20_000) / 3)),
    "log-normal": lengths_of(lambda rng: np.exp(rng.standard_normal(20_000))),
    "breast cancer": lambda: (load_breast_cancer().data, 5),
    **{
        name: lambda name=name: real_data()[name]  # type: ignore[misc]
        for name in ("motes light", "motes volt", "digits", "wine", "covtype", "mnist")
    },
}


class Known(NamedTuple):
    """A case as every process has it."""

    rows: Array
    components: int
    norms: Array
    moment: Array
    best: float


class Fitted(NamedTuple):
    """One fit: captured energy, published over true ratio, and whether it warned of lengths.

    The ratio is of rows of the stated length, and of rows as they are.
    """

    energy: float
    ratio: float
    of_all: float
    warned: bool


Cell = tuple[str, float, str, int]


@lru_cache(maxsize=1)
def known(name: str) -> Known:
    """The rows, exactly centred."""
    rows, components = CASES[name]()
    rows = rows - rows.mean(axis=0)
    moment = rows.T @ rows
    best = float(np.sum(leading_eigenpairs(moment, components)[0]))
    return Known(rows, components, np.linalg.norm(rows, axis=1), moment, best)


def fitted(cell: Cell) -> Fitted:
    """The fit of this number."""
    name, epsilon, choice, _ = cell
    of = known(name)
    row_norm, mechanism = CHOICES[choice]
    if not isinstance(row_norm, str):
        row_norm = float(np.quantile(of.norms, row_norm))
    asked: dict[str, Any] = {"row_norm": row_norm, "mechanism": mechanism, "delta": DELTA}
    seed = zlib.crc32(repr(cell).encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NoisyResultWarning)
        model = PrivatePCA(of.components, epsilon=epsilon, random_state=seed, **asked).fit(of.rows)
    said = any("variance of rows" in str(w.message) for w in caught)
    said |= any("rows shortened to" in str(w.message) for w in caught)
    usable = model.usable_
    ratio = of_all = math.nan
    if usable.any():
        along = model.components_[usable]
        published = float(np.sum(model.explained_variance_ratio_[usable]))
        bound = model.variance_bound_ or math.inf
        short = of.rows * np.minimum(1.0, bound / np.maximum(of.norms, 1e-300))[:, None]
        ratio = published * float(np.sum(short**2)) / float(np.sum((short @ along.T) ** 2))
        of_all = published * float(np.trace(of.moment)) / _energy(of.moment, along)
    return Fitted(_energy(of.moment, model.components_) / of.best, ratio, of_all, said)


def _energy(moment: Array, components: Array) -> float:
    return float(np.sum((components @ moment) * components))


def cells(names: tuple[str, ...], most: int = _FITS) -> list[Cell]:
    """All fits, case by case."""
    found = []
    for name in names:
        fits = min(most, _FITS_WHERE_LARGE if known(name).rows.size > _LARGE else _FITS)
        found += [(name, e, c, n) for e in EPSILONS for c in CHOICES for n in range(fits)]
    return found


def run(report: Report) -> None:
    """The panel, on all processors, and its picture."""
    draw(measure(report, tuple(CASES)), _IMAGE)


def measure(
    report: Report, asked: tuple[str, ...], most: int = _FITS
) -> dict[tuple[str, float], dict[str, float]]:
    """Mean energies by case, epsilon and choice; at most so many fits of each."""
    section = "Lengths of rows: loss of captured energy (delta = 1e-5, everything private)"
    said = "Lengths of rows: published over true ratio"
    names = tuple(name for name in asked if SHARED.exists() or name not in FILES)
    for absent in sorted(set(asked) - set(names)):
        report.note(section, absent, "skipped: ../shared/data is absent")
    wanted = cells(names, most)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = list(zip(wanted, pool.map(fitted, wanted, chunksize=4), strict=True))
    of: dict[tuple[str, float, str], list[Fitted]] = {}
    for (name, epsilon, choice, _), fit in found:
        of.setdefault((name, epsilon, choice), []).append(fit)
    means: dict[tuple[str, float], dict[str, float]] = {}
    for name in names:
        for epsilon in EPSILONS:
            mean = {
                choice: float(np.mean([f.energy for f in of[name, epsilon, choice]]))
                for choice in CHOICES
            }
            means[name, epsilon] = mean
            best = max(energy for choice, energy in mean.items() if choice != "auto")
            which = max((c for c in mean if c != "auto"), key=mean.__getitem__)
            what = (
                f"{name}, epsilon={epsilon:g}: unit {mean['unit']:.3f}, best {best:.3f} ({which})"
            )
            least = 1.0 - (1.25 * (1.0 - best) + 0.005)
            report.add(section, f"{what}; auto", mean["auto"], round(least, 4))
            if name.endswith("long rows") and epsilon == 1.0 and best >= 0.85:
                report.add(section, f"{name}, epsilon=1, auto", mean["auto"], 0.85)
            for quantile in QUANTILES:
                choice = f"q{quantile:g}"
                less = mean[choice] - mean[f"{choice}, one release"]
                if less < -0.005:
                    what = f"{name}, epsilon={epsilon:g}, {choice}: two releases less one"
                    report.add(section, what, less, -0.005)
    for whose, place in (("rows of the stated length", 1), ("all rows", 2)):
        for choice in ("unit", "auto"):
            fits = [f for cell, f in found if cell[2] == choice and not math.isnan(f.ratio)]
            wrong = [not f.warned and not 0.8 < f[place] < 1.25 for f in fits]
            what = f"{choice}: outside .8 to 1.25 of {whose} without a warning, of {len(fits)} fits"
            report.add(said, what, float(np.mean(wrong)), 0.02, at_most=True)
    return means


def draw(means: dict[tuple[str, float], dict[str, float]], path: Path) -> None:
    """A panel a case: loss against epsilon, downwards."""
    of = {
        "unit rows": ("#56B4E9", "s", ("unit",)),
        "row_norm='auto'": ("#0072B2", "o", ("auto",)),
        "best quantile, known beforehand": ("#D55E00", "^", [f"q{q:g}" for q in QUANTILES]),
        "the same, one release": ("#999999", "v", [f"q{q:g}, one release" for q in QUANTILES]),
    }

    def lines(axes: Any, name: str) -> dict[str, Any]:
        found = {}
        for label, (color, marker, choices) in of.items():
            energy = [max(means[name, e][choice] for choice in choices) for e in EPSILONS]
            loss = [max(1e-4, 1.0 - each) for each in energy]
            (found[label],) = axes.loglog(EPSILONS, loss, "-", color=color, marker=marker)
        axes.set_ylim(1.2, 1e-4)
        return found

    names = list(dict.fromkeys(name for name, _ in means))
    draw_panels(names, lines, path, ticks=EPSILONS, what="loss of energy")


if __name__ == "__main__":  # named cases, two fits of each
    measure(Report(), tuple(sys.argv[1:]), 2)
