"""Data sets that come with the package's dependencies, or are made up: always at hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eigenveil.errors import DataError
from eigenveil.experiments.data_files import Rows

TITLES = {
    "digits": "digits",
    "breast-cancer": "breast cancer",
    "cultivars": "wine cultivars",
    "made-up-sensors": "made-up sensors",
}


def make(name: str) -> Rows:
    """The rows of a shipped data set; the same at every call.

    Raises
    ------
    DataError
        For a name that is not of :data:`TITLES`.
    """
    from sklearn import datasets  # takes longer to import than all of this room

    if name == "made-up-sensors":
        return Rows(X=_sensors(), title=TITLES[name])
    loaders = {
        "digits": datasets.load_digits,
        "breast-cancer": datasets.load_breast_cancer,
        "cultivars": datasets.load_wine,
    }
    if name not in loaders:
        raise DataError(f"There is no data set {name!r} that is shipped.", code="unknown-data-set")
    found = loaders[name]()
    columns = tuple(str(column) for column in found.feature_names)
    return Rows(X=found.data, y=found.target, columns=columns, title=TITLES[name])


def _sensors(rows: int = 3000, sensors: int = 48, day: int = 288) -> NDArray[np.float64]:
    """Readings of light sensors in a building: days, lamps that are switched, and noise.

    Low rank and changing with time, as real ones are; shape (rows, sensors).
    """
    rng = np.random.default_rng(48)
    time = np.arange(rows)
    sun = np.clip(np.sin(2.0 * np.pi * (time / day - 0.25)), 0.0, None)
    clouds = np.convolve(rng.standard_normal(rows), np.ones(24) / 24, mode="same")
    hour = (time % day) / day
    lamps = [(hour > start) & (hour < end) for start, end in ((0.33, 0.75), (0.4, 0.9), (0.3, 0.5))]
    factors = np.column_stack([sun, sun * clouds, *lamps]).astype(np.float64)
    loadings = rng.gamma(2.0, 100.0, (factors.shape[1], sensors))
    loadings *= rng.random(loadings.shape) < 0.6
    return np.asarray(factors @ loadings + 5.0 * rng.standard_normal((rows, sensors)) + 40.0)
