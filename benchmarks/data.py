"""Rows that the benchmarks run on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

SHARED = Path(os.environ.get("EIGENVEIL_SHARED", Path(__file__).parents[2] / "shared")) / "data"
FILES = {
    "mnist": ("mnist_10k.npz", 50),
    "covtype": ("covtype_15k.npz", 10),
    "wine": ("wine_red.npz", 3),
    "motes light": ("motes_light.npz", 5),
    "motes volt": ("motes_volt.npz", 5),
}


def at_hand(name: str) -> bool:
    """Whether the rows of this name are there."""
    return (SHARED / FILES[name][0]).exists()


def real_rows(name: str) -> NDArray[np.float64]:
    """The rows of one file."""
    return np.asarray(np.load(SHARED / FILES[name][0])["X"], dtype=np.float64)


def real_data() -> dict[str, tuple[NDArray[np.float64], int]]:
    """Name to rows and components; the sets that are not at hand are left out."""
    found: dict[str, tuple[NDArray[np.float64], int]] = {"digits": (load_digits().data, 10)}
    for name, (_, components) in FILES.items():
        if at_hand(name):
            found[name] = (real_rows(name), components)
    return found


def power_law(
    rows: int, features: int, exponent: float, *, dtype: Any = np.float64, rotate: bool = True
) -> NDArray[Any]:
    """Gaussian rows with covariance eigenvalues j**-exponent, in a random basis."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, features), dtype=dtype)
    x *= (np.arange(1, features + 1) ** (-exponent / 2)).astype(dtype)
    if rotate:
        basis, _ = np.linalg.qr(rng.standard_normal((features, features)))
        x = x @ basis.astype(dtype)
    return x


def second_moment(rows: NDArray[Any]) -> NDArray[np.float64]:
    """Of the exactly centred rows."""
    centered = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    return np.asarray(centered.T @ centered)
