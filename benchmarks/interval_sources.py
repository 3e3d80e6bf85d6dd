"""What intervals of independent components are to hold: the same steps without noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.interval_topics import without_noise
from eigenveil.models.beside import matched

Array = NDArray[np.float64]

LAWS = ("Laplace", "uniform", "both")
COLUMNS_A_SOURCE = 5


def sources(law: str, rows: int, count: int, rng: np.random.Generator) -> Array:
    """Of variance 1; of both, every second one is uniform."""
    found = rng.laplace(scale=np.sqrt(0.5), size=(rows, count))
    flat = {"Laplace": slice(0), "uniform": slice(None), "both": slice(1, None, 2)}[law]
    found[:, flat] = rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), found[:, flat].shape)
    return found


def mixed(law: str, rows: int, count: int, features: int, seed: int = 0) -> tuple[Array, Array]:
    """Rows of so many columns, with maps of deviations 3 to 2, and these maps."""
    rng = np.random.default_rng((seed, rows, count))
    maps = np.linalg.qr(rng.standard_normal((features, count)))[0] * np.linspace(3.0, 2.0, count)
    drawn = sources(law, rows, count, rng)
    return drawn @ maps.T + 0.05 * rng.standard_normal((rows, features)), maps


def _rows(law: str, rows: int, count: int) -> Array:
    return mixed(law, rows, count, COLUMNS_A_SOURCE * count)[0]


SOURCES: dict[str, Callable[[], Array]] = {
    f"{count} {law} sources, {rows:,} rows": partial(_rows, law, rows, count)
    for count in (3, 5, 10)
    for law in LAWS
    for rows in (20_000, 100_000)
}


def source_truths(model: Any, rows: Array) -> Iterator[tuple[str, Array]]:
    """Maps, angles and kurtosis that the same steps find without noise.

    Kurtosis is that of the same rows, as they were shortened: the fourth moment alone is exact.
    """
    exact = without_noise(model, rows, ("second moment", "fourth moment"), left=1e-9)
    if exact.unmixing.shape != (model.n_components_, model.n_features_in_):
        return
    order, likeness, maps = _matched(model, exact)
    yield "mixing", maps[order] * np.sign(likeness)[:, None] * model.scale_
    yield "angle", np.degrees(np.arccos(np.minimum(np.abs(likeness), 1.0)))
    exact = without_noise(model, rows, ("fourth moment",))
    yield "kurtosis", exact.kurtosis[_matched(model, exact)[0]]


def _matched(model: Any, exact: Any) -> tuple[Array, Array, Array]:
    maps = np.linalg.pinv(exact.unmixing).T
    found = model.mixing_.T / model.scale_
    ways = [each / np.linalg.norm(each, axis=1)[:, None] for each in (found, maps)]
    cosines = ways[0] @ ways[1].T
    order = np.array([other for _, other in matched(np.abs(cosines))])
    return order, cosines[np.arange(order.size), order], maps
