"""Rows that eigenveil and its rivals are compared on: real ones, and three where rivals win."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer

from benchmarks.data import real_data
from benchmarks.rivals.budget import Array

REAL = ("digits", "covtype", "mnist", "motes light", "motes volt")


@dataclass(frozen=True)
class Case:
    """Exactly centred rows, components, and runs to average."""

    name: str
    rows: Array
    components: int
    runs: int

    def __str__(self) -> str:
        """As a heading."""
        n, features = self.rows.shape
        return f"{self.name}, {n} x {features}, K = {self.components}"


def cases(*, fast: bool = False) -> tuple[list[Case], list[str]]:
    """The cases, and the names of those whose data is absent; ``fast``: small ones, few runs."""
    found = real_data()
    absent = [name for name in REAL if name not in found]
    wanted = {
        "digits": (*found["digits"], 12),
        "breast cancer": (load_breast_cancer().data, 5, 20),
        **{name: (*found[name], 4) for name in REAL[1:] if name in found},
        "little noise about one direction": (*one_direction(), 10),
        "fewer rows than columns, exactly of rank 2": (*wide(), 2),
        "5 % of rows ten times longer in other directions": (*long_rows(), 5),
        "the same, rotated": (*long_rows(rotated=True), 5),
    }
    if "mnist" in wanted:
        wanted["mnist"] = (*found["mnist"], 2)
        if fast:
            del wanted["mnist"]
    return [
        Case(name, rows - rows.mean(axis=0), components, 2 if fast else runs)
        for name, (rows, components, runs) in wanted.items()
    ], absent


def one_direction() -> tuple[Array, int]:
    """Rows v or -v, and noise of a tenth of its length."""
    rng = np.random.default_rng(1)
    n, features = 5_000, 100
    direction = rng.standard_normal(features)
    direction /= np.linalg.norm(direction)
    signs = rng.choice([-1.0, 1.0], n)
    noise = rng.standard_normal((n, features)) * (0.1 / np.sqrt(features))
    return signs[:, None] * direction + noise, 1


def wide() -> tuple[Array, int]:
    """Gaussian rows in a plane, half as many as there are columns."""
    rng = np.random.default_rng(2)
    n, features = 500, 1_000
    plane = np.linalg.qr(rng.standard_normal((features, 2)))[0]
    return rng.standard_normal((n, 2)) @ plane.T, 2


def long_rows(*, rotated: bool = False) -> tuple[Array, int]:
    """95 % of rows in five directions, 5 % ten times longer in five others: columns, or others."""
    rng = np.random.default_rng(3)
    n, features = 20_000, 50
    rows = rng.standard_normal((n, features)) * np.repeat([1.0, 0.0, 0.05], [5, 5, features - 10])
    far = rng.random(n) < 0.05
    rows[far] = rng.standard_normal((int(far.sum()), features)) * 10.0
    rows[far] *= np.repeat([0.0, 1.0, 0.0], [5, 5, features - 10])
    if rotated:
        rows = rows @ np.linalg.qr(rng.standard_normal((features, features)))[0]
    return rows, 5
