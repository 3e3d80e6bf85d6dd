"""Weighted points in clusters: k-means, which costs nothing where points were released."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_RESTARTS, _STEPS = 30, 30


def averages(points: Array, counts: Array, own: NDArray[np.intp]) -> tuple[Array, Array]:
    size = int(own.max()) + 1
    held = np.bincount(own, counts, minlength=size)
    sums = np.zeros((size, points.shape[1]))
    np.add.at(sums, own, points * counts[:, None])
    return sums / held[:, None], held / held.sum()


def clusters(
    points: Array, counts: Array, count: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """The cluster of each point, of the best of many restarts of k-means with these weights."""
    best, lowest = np.zeros(points.shape[0], dtype=np.intp), math.inf
    squares = np.sum(points**2, axis=1)
    for _ in range(_RESTARTS if count > 1 else 1):
        chosen = [int(rng.choice(counts.size, p=counts / counts.sum()))]
        nearest = np.full(counts.size, np.inf)
        while len(chosen) < count:
            last = points[chosen[-1]]
            nearest = np.minimum(nearest, np.sum((points - last) ** 2, axis=1))
            far = nearest * counts
            if far.sum() <= 0:
                break
            chosen.append(int(rng.choice(counts.size, p=far / far.sum())))
        centers = points[chosen]
        for _ in range(_STEPS):
            distances = squares[:, None] - 2 * points @ centers.T + np.sum(centers**2, axis=1)
            own = np.unique(np.argmin(distances, axis=1), return_inverse=True)[1]
            again, _ = averages(points, counts, own)
            if again.shape == centers.shape and np.allclose(again, centers, rtol=0, atol=1e-9):
                break
            centers = again
        cost = float(counts @ np.sum((points - centers[own]) ** 2, axis=1))
        if cost < lowest:
            best, lowest = own, cost
    return best
