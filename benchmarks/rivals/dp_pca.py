"""DP-PCA: Liu, Kong, Jain & Oh 2022, Algorithm 1, and the direction that k-DP-PCA repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.rivals.budget import Array, Budget
from benchmarks.rivals.rival import Rival, Size, random_directions

Range = Callable[[Array, Array], tuple[Array, float]]
# Parts of the rows, one for each step of Oja's rule: the better number is told.
STEPS = (2, 4)
# Part of the gradients that is shortened to the range: 0 to 0.1 were tried, and this was best.
SHORTENED = 0.1
# With more components every further step only adds noise.
TUNED_COMPONENTS = 10


@dataclass(frozen=True)
class Known:
    """How many steps, and the ball that every row's gradient is in at a given direction."""

    steps: int
    range_of: Range
    rest: Deflated


class DpPca(Rival):
    """The first component: Oja's rule with a noisy mean of gradients ``x x' w``, one part a step.

    The noise is made for the spread of the gradients about their mean, which may be far less than
    the rows' norms. The paper finds centre and range privately in every step; here the true ones
    are told (gradients that are shortened are pulled to their true mean, which flatters the
    method), and steps are as long as they can be (``w`` becomes the gradient), which was best on
    all rows tried. The number of steps is tuned on the rows themselves.
    """

    name = "DP-PCA"
    paper = "Liu, Kong, Jain, Oh 2022"
    told = "centre, number of rows, number of steps, centre and range of the gradients in each"

    def suits(self, size: Size) -> bool:
        """One component."""
        return size.components == 1

    def tell(self, rows: Array, size: Size, budget: Budget) -> Known:
        """The number of steps that was best in one run each."""
        rest = Deflated(rows)

        def range_of(direction: Array, basis: Array) -> tuple[Array, float]:
            return gradient_range(rest.without(basis), direction)

        if size.components > TUNED_COMPONENTS:
            return Known(STEPS[0], range_of, rest)
        moment = rows.T @ rows
        found = []
        for steps in STEPS:
            known = Known(steps, range_of, rest)
            trial = Budget.of(budget.epsilon, budget.delta, np.random.default_rng(steps))
            vectors = self.components(rows, size, known, trial)
            energy = float(np.einsum("kd,de,ke->", vectors, moment, vectors, optimize=True))
            found.append((energy, known))
        return max(found, key=lambda pair: pair[0])[1]

    def components(self, rows: Array, size: Size, told: Known, budget: Budget) -> Array:
        """One direction."""
        basis = np.zeros((0, size.features))
        return private_direction(rows, basis, size, told, budget, 1.0)[None]


class Deflated:
    """Rows without their part in a growing basis: each new direction is taken off once."""

    def __init__(self, rows: Array) -> None:
        self.rows, self._rest, self._basis = rows, rows, np.zeros((0, rows.shape[1]))

    def without(self, basis: Array) -> Array:
        """What an orthonormal basis (k, D) leaves."""
        same = len(self._basis)
        if same > len(basis) or not np.array_equal(self._basis, basis[:same]):
            self._rest, same = self.rows, 0
        if same < len(basis):
            new = basis[same:]
            self._rest = self._rest - (self._rest @ new.T) @ new
        self._basis = basis
        return self._rest


def private_direction(
    rest: Array, basis: Array, size: Size, told: Known, budget: Budget, share: float
) -> Array:
    """The leading direction of what ``basis`` (k, D) leaves of rows, ``rest``.

    Every step has a part of the rows of its own. The mean of its gradients, each within ``radius``
    of a centre, has sensitivity ``radius / rows of the part``.
    """
    part_of = np.arange(len(rest)) * told.steps // size.rows
    direction = deflated(random_directions(1, size.features, budget.rng), basis)[0]
    direction /= np.linalg.norm(direction)
    for step, part in enumerate(budget.disjoint(told.steps, share)):
        own = rest[part_of == step]
        count = size.rows / told.steps
        center, radius = told.range_of(direction, basis)
        apart = own * (own @ direction)[:, None] - center
        far = np.linalg.norm(apart, axis=1)
        apart *= np.minimum(1.0, radius / np.maximum(far, 1e-300))[:, None]
        mean = part.gaussian(apart.sum(axis=0) / count, radius / count) + center
        direction = deflated(mean[None], basis)[0]
        direction /= np.linalg.norm(direction)
    return np.asarray(direction)


def deflated(rows: Array, basis: Array) -> Array:
    """Rows without their part in the span of orthonormal ``basis``."""
    return rows - (rows @ basis.T) @ basis if len(basis) else rows


def gradient_range(rest: Array, direction: Array) -> tuple[Array, float]:
    """Mean of all gradients ``x x' w``, and what all but some are away from it at most."""
    scores = rest @ direction
    center = scores @ rest / len(rest)
    squares = np.einsum("nd,nd->n", rest, rest) * scores**2 - 2 * scores * (rest @ center)
    far = float(np.quantile(squares, 1 - SHORTENED)) + float(center @ center)
    return center, float(np.sqrt(max(far, 0.0)))


class KDpPca(DpPca):
    """Components one after the other, each by DP-PCA in what the ones before leave.

    The paper gives each component rows of its own. All rows at a K-th of mu squared are better by
    ``sqrt(K)``, so that is what is done here.
    """

    name = "k-DP-PCA"
    paper = "Duengler, Sanyal 2025"
    told = DpPca.told

    def suits(self, size: Size) -> bool:
        """More than one component: one is DP-PCA."""
        return size.components > 1

    def components(self, rows: Array, size: Size, told: Known, budget: Budget) -> Array:
        """K directions."""
        basis = np.zeros((0, size.features))
        rest = told.rest if rows is told.rest.rows else Deflated(rows)
        for _ in range(size.components):
            share = 1.0 / size.components
            found = private_direction(rest.without(basis), basis, size, told, budget, share)
            basis = np.vstack([basis, found])
        return basis
