"""What an experiment measured: points of many runs, and their means as curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eigenveil.linalg.eigen import orthonormal_basis

FloatArray = NDArray[np.float64]


class Measured(NamedTuple):
    panel: str
    series: str
    x: float
    value: float
    run: int


@dataclass(frozen=True)
class Curve:
    """A series over its horizontal positions, ascending; all arrays of shape (n,)."""

    x: FloatArray
    mean: FloatArray
    error: FloatArray  # Standard error of the mean; 0 where there is one run only
    deviation: FloatArray  # Standard deviation over the runs
    runs: NDArray[np.int64]  # How many there are; those that gave no number (nan) are left out

    def at(self, x: float) -> float:
        """The mean at a measured position; nan elsewhere."""
        near = np.flatnonzero(np.isclose(self.x, x, rtol=1e-9, atol=0.0))
        return float(self.mean[near[0]]) if near.size else float("nan")


class Numbers:
    """Everything that was measured, by panel and series in the order in which they came."""

    def __init__(self, measured: Iterable[Measured] = ()) -> None:
        self.measured = tuple(measured)
        self._found: dict[tuple[str, str], list[Measured]] = defaultdict(list)
        for row in self.measured:
            self._found[row.panel, row.series].append(row)

    @property
    def panels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(panel for panel, _ in self._found))

    def series(self, panel: str) -> tuple[str, ...]:
        return tuple(series for of, series in self._found if of == panel)

    def points(self, panel: str, series: str) -> FloatArray:
        """All runs' points as they came, (n, 2): position and value. For scatter plots."""
        found = [(row.x, row.value) for row in self._found.get((panel, series), ())]
        return np.array(found, dtype=np.float64).reshape(-1, 2)

    def by_run(self, panel: str, series: str) -> dict[float, dict[int, float]]:
        """Position to run to value; without those that gave no number."""
        found: dict[float, dict[int, float]] = {}
        for row in self._found.get((panel, series), ()):
            if not np.isnan(row.value):
                found.setdefault(row.x, {})[row.run] = row.value
        return found

    def complete(
        self, panel: str, series: str, within: Container[float] | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Positions, and the values of the runs that have all of them, (runs, positions)."""
        found = self.by_run(panel, series)
        x = sorted(at for at in found if within is None or at in within)
        runs = sorted(set.intersection(*(set(found[at]) for at in x))) if x else []
        values = np.array([[found[at][run] for at in x] for run in runs])
        return np.array(x), values.reshape(len(runs), len(x))

    def together(self, names: Mapping[tuple[str, str], str]) -> Numbers:
        """Series of several panels as those of one, which has no name, under other names."""
        return Numbers(
            row._replace(panel="", series=names[row.panel, row.series])
            for row in self.measured
            if (row.panel, row.series) in names
        )

    def exponents(
        self, panel: str, series: str, within: Container[float] | None = None
    ) -> FloatArray:
        """Slopes of the logarithms, of each run that has all positions; none of one position."""
        x, values = self.complete(panel, series, within)
        if len(x) < 2 or not len(values):
            return np.zeros(0)
        return np.asarray(np.polyfit(np.log(x), np.log(np.maximum(values, 1e-300)).T, 1)[0])

    def worst(
        self, panel: str, series: str, of: Callable[[Iterable[float]], float] = max
    ) -> dict[float, float]:
        """The largest of all runs (or the smallest), at each position."""
        return {x: of(runs.values()) for x, runs in sorted(self.by_run(panel, series).items())}

    def curve(self, panel: str, series: str) -> Curve:
        """Means over the runs; empty when there is no such series."""
        values: dict[float, list[float]] = defaultdict(list)
        for row in self._found.get((panel, series), ()):
            if not np.isnan(row.value):
                values[row.x].append(row.value)
        x = sorted(values)
        deviation = [float(np.std(values[at], ddof=1)) if len(values[at]) > 1 else 0.0 for at in x]
        runs = np.array([len(values[at]) for at in x], dtype=np.int64)
        return Curve(
            np.array(x, dtype=np.float64),
            np.array([np.mean(values[at]) for at in x], dtype=np.float64),
            np.array(deviation, dtype=np.float64) / np.sqrt(np.maximum(runs, 1)),
            np.array(deviation, dtype=np.float64),
            runs,
        )

    def at(self, panel: str, series: str, x: float) -> float:
        """The mean of a series at a measured position; nan where there is none."""
        return self.curve(panel, series).at(x)


# -- The rows that papers 000 and 001 made up for their PCA experiments, and directions by chance.


def made_up_variances(
    rng: np.random.Generator, *, features: int = 200, components: int = 50
) -> FloatArray:
    """Variances of the features, shape (D,): K from 10 down to 1, the others uniform up to 0.5.

    The papers say "a pre-determined covariance matrix" and no more. That K of them are large, and
    not 20 whatever K is, follows from the authors' stored curves: a random subspace of 50 of 200
    dimensions holds 0.286 of the best one's energy there, which is what these variances give (with
    20 large ones it would be 0.31), and the first 13, 25 and 38 directions hold what these do.
    """
    leading = np.linspace(10.0, 1.0, components)
    return np.concatenate([leading, rng.uniform(0.0, 0.5, features - components)])


def made_up_rows(
    *, rows: int, features: int = 200, components: int = 50, rotated: bool = False
) -> FloatArray:
    """Gaussian rows of mean zero, shape (n, D): one data set, the same at every call.

    Its axes are the features' own, as those of the Cholesky factor of a diagonal matrix are; or
    drawn evenly, if ``rotated``.
    """
    rng = np.random.default_rng(1804)
    deviations = np.sqrt(made_up_variances(rng, features=features, components=components))
    drawn = rng.standard_normal((rows, features)) * deviations
    return np.asarray(drawn @ random_directions(features, features, rng) if rotated else drawn)


def random_directions(features: int, count: int, rng: np.random.Generator) -> FloatArray:
    """Orthonormal rows (count, features) that know nothing of the data.

    They stand for the answer of a private fit that finds too few rows and returns nothing.
    """
    return np.asarray(orthonormal_basis(rng.standard_normal((features, count))).T)
