"""Subsample and aggregate: Singhal & Steinke 2021, the approximate case."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size, leading, random_directions

# Rows of a part, in components; that of least expected error is taken.
SIZES = (1, 4, 16, 64)
# Reference points beside two a component: too few may miss a direction by chance.
MORE = 10


@dataclass(frozen=True)
class Ball:
    """Parts, public reference points (D, q), and the ball that all parts' projections are in."""

    parts: int
    references: Array
    center: Array
    radius: float


class SubsampleAggregate(Rival):
    """Every part of the rows projects the same random points on its own subspace; their mean.

    The paper finds the ball of these projections privately. Here centre and radius are told, but
    the parts that finding a ball needs, ``2 ln(2/delta) / epsilon`` (a stable histogram), are
    asked for all the same: with fewer, nothing can be published.
    """

    name = "Subsample and aggregate"
    paper = "Singhal, Steinke 2021"
    told = "centre, number of rows, size of the parts, centre and radius of their projections"

    def tell(self, rows: Array, size: Size, budget: Budget) -> Ball | None:
        """The ball of the size of parts whose noise and bias are least."""
        rng = np.random.default_rng(1)
        references = rng.standard_normal((size.features, 2 * size.components + MORE))
        exact = projections(rows, size, 1, references)[0]
        least = 2 * math.log(2 / budget.delta) / budget.epsilon
        found = []
        for each in SIZES:
            parts = size.rows // (each * size.components)
            if parts < least:
                continue
            seen = projections(rows, size, parts, references)
            center = seen.mean(axis=0)
            radius = float(np.linalg.norm(seen - center, axis=1).max())
            # a ball of radius 0 is no ball: rounding errors of the projections are in it
            ball = Ball(parts, references, center, max(radius, 1e-9))
            noise = (2 * ball.radius / (parts * budget.mu)) ** 2 * references.size
            found.append((noise + float(np.sum((center - exact) ** 2)), parts, ball))
        return min(found, key=lambda item: item[:2])[2] if found else None

    def components(self, rows: Array, size: Size, told: Ball | None, budget: Budget) -> Array:
        """A row changes one part's point within the ball: ``2 radius / parts``."""
        if told is None:
            return random_directions(size.components, size.features, budget.rng)
        seen = projections(rows, size, told.parts, told.references) - told.center
        far = np.linalg.norm(seen, axis=1)
        seen *= np.minimum(1.0, told.radius / np.maximum(far, 1e-300))[:, None]
        mean = budget.gaussian(seen.mean(axis=0), 2 * told.radius / told.parts) + told.center
        points = mean.reshape(size.features, -1)
        return leading(points @ points.T, size.components)


def projections(rows: Array, size: Size, parts: int, references: Array) -> Array:
    """What each part makes of the references, (parts, D q)."""
    part_of = np.arange(len(rows)) * parts // size.rows
    found = np.zeros((parts, references.size))
    for part in range(parts):
        own = rows[part_of == part]
        if len(own):
            vectors = np.linalg.svd(own, full_matrices=False)[2][: size.components]
            found[part] = (vectors.T @ (vectors @ references)).ravel()
    return found
