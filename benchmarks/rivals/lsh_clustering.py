"""Clustering by a tree of random hyperplanes: Google's private LSH clustering (2021, 2022).

Written from the description and the defaults of google/differential-privacy, learning/clustering
(README.md, default_clustering_params.py, clustering_params.py, privacy_calculator.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from sklearn.cluster import KMeans

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import clipped, largest_norm

# Levels of the tree below its root, as its authors set them, and their least useful noise: a leaf
# has so many rows that an average's noise is about a tenth of the radius; a node that branches has
# three times as many.
DEPTH, LOW_NOISE, BRANCHING = 20, 10.0, 3.0
# Noise of a count over that of a sum of rows within a radius of 1 (its authors' multiplier 20 is of
# Laplace noise, of variance 2 b**2).
COUNT_NOISE = 20.0 * math.sqrt(2.0)


@dataclass(frozen=True)
class Known:
    """The middle of the rows, and how far the farthest is from it."""

    center: Array
    radius: float


@dataclass(frozen=True)
class LshClustering:
    """Nodes are halved by random hyperplanes while they have rows; k-means of the leaves' averages.

    A row is in one node a level, so that the counts of a level cost as much as one, and in one leaf
    at the most. Counts have Gaussian noise here, in place of Laplace noise: composed exactly with
    the averages' it costs less. ``DEPTH + 1`` levels are charged, whatever is used of them.
    ``depth`` 0 takes the authors' depth; fewer levels leave more for the averages.
    """

    depth: int = DEPTH
    paper = "Chang, Kamath 2021 (google/differential-privacy, learning/clustering)"
    told = "centre, largest norm"

    @property
    def name(self) -> str:
        """With the number of levels."""
        return f"LSH tree, {self.depth} levels"

    def tell(self, rows: Array) -> Known:
        """Both, exactly."""
        center = rows.mean(axis=0)
        return Known(center, largest_norm(rows - center))

    def centers(self, rows: Array, count: int, told: Known, budget: Budget) -> Array:
        """At most ``count`` centres, in the rows' own units."""
        inside = clipped(rows - told.center, told.radius) / told.radius
        sums, counts = self._shares()
        deviation = 1.0 / (budget.mu * math.sqrt(sums))
        planes = budget.rng.standard_normal((self.depth, rows.shape[1]))
        whole = float(budget.gaussian(np.array([len(inside)], float), 1.0, counts)[0])
        low = LOW_NOISE * math.sqrt(rows.shape[1]) * deviation
        least = max(1.0, min(low, whole / (2 * count)))
        nodes, leaves = [(inside, max(1.0, whole))], []
        for plane in planes:
            grown = [node for node in nodes if node[1] >= BRANCHING * least]
            leaves += [node for node in nodes if node[1] < BRANCHING * least]
            halves = [(own, own @ plane >= 0) for own, _ in grown]
            parts = [own[side] for own, up in halves for side in (up, ~up)]
            exact = np.array([len(part) for part in parts], float)
            seen = budget.gaussian(exact, 1.0, counts)
            nodes = []
            for place, (own, number) in enumerate(grown):
                both = slice(2 * place, 2 * place + 2)
                kept = [
                    (part, float(size))
                    for part, size in zip(parts[both], seen[both], strict=True)
                    if size >= least
                ]
                nodes += kept
                leaves += [] if kept else [(own, number)]
        leaves += nodes
        weights = np.array([number for _, number in leaves])
        exact = np.array([own.sum(axis=0) for own, _ in leaves])
        points = clipped(budget.gaussian(exact, 1.0, sums) / weights[:, None], 1.0)
        few = min(count, len(points))
        found = KMeans(few, n_init=10, random_state=0).fit(points, sample_weight=weights)
        return np.asarray(found.cluster_centers_ * told.radius + told.center)

    def _shares(self) -> tuple[float, float]:
        """Parts of mu squared: of the sums, and of each level's counts."""
        counts = 1.0 / COUNT_NOISE**2
        total = 1.0 + (self.depth + 1) * counts
        return 1.0 / total, counts / total


LSH = (LshClustering(DEPTH), LshClustering(8))
