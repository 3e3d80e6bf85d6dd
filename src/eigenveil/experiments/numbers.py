"""What an experiment measured: points of many runs, and their means as curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Measured(NamedTuple):
    """One number of one run."""

    panel: str
    series: str
    x: float
    value: float
    run: int


@dataclass(frozen=True)
class Curve:
    """A series over its horizontal positions, ascending; all arrays of shape (n,).

    Attributes
    ----------
    x, mean : arrays
    error : array
        Standard error of the mean; 0 where there is one run only.
    deviation : array
        Standard deviation over the runs.
    runs : array of int
        How many there are; those that gave no number (nan) are left out.
    """

    x: FloatArray
    mean: FloatArray
    error: FloatArray
    deviation: FloatArray
    runs: NDArray[np.int64]

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
        """Names of the panels."""
        return tuple(dict.fromkeys(panel for panel, _ in self._found))

    def series(self, panel: str) -> tuple[str, ...]:
        """Names of a panel's series."""
        return tuple(series for of, series in self._found if of == panel)

    def points(self, panel: str, series: str) -> FloatArray:
        """All runs' points as they came, (n, 2): position and value. For scatter plots."""
        found = [(row.x, row.value) for row in self._found.get((panel, series), ())]
        return np.array(found, dtype=np.float64).reshape(-1, 2)

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
