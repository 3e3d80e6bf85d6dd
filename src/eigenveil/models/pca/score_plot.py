"""A private score plot: how many rows are where along the first two components, with noise."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.models.intervals.recorded import drawn
from eigenveil.models.pca.plan import CELLS, SCORES, SIDES, Plan
from eigenveil.models.pca.variances import PCAFactors
from eigenveil.models.result import Result
from eigenveil.models.rounds import Answers, Round, RoundState
from eigenveil.models.score_query import MOST_APART, WIDTH, score_query, side_of
from eigenveil.moments.exact import SHORTEST_SEEN
from eigenveil.moments.scores import MOST_DIRECTIONS

Array = NDArray[np.float64]

# What a cell holds is seen that exceeds so many deviations of its noise.
_SEEN = 2.0


@dataclass(frozen=True)
class ScoreDensity:
    """A released histogram of scores along the first component, or the first two.

    Attributes
    ----------
    counts : ndarray of shape (m,) or (m, m)
        Rows in each cell, with noise; the first component along the first axis.
    edges : tuple of ndarray of shape (m + 1,)
        Of the cells, along each component, in units of scores.
    noise : float
        Deviation of the noise in each cell.
    """

    counts: Array
    edges: tuple[Array, ...]
    noise: float

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Cells that hold more than two deviations of the noise."""
        return np.asarray(self.counts > _SEEN * self.noise)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        edges = [each.tolist() for each in self.edges]
        return {"counts": self.counts.tolist(), "edges": edges, "noise": self.noise}


def with_scores(
    state: RoundState[Plan], factors: PCAFactors
) -> Generator[Round, Answers, PCAFactors]:
    """Ask for the histogram of scores, where the plan has one."""
    if SCORES not in state.plan.fractions or factors.stopped:
        return factors
    directions = factors.components[:MOST_DIRECTIONS]
    variances = factors.explained_variance[: len(directions)]
    variances = np.where(np.isnan(variances), factors.noise_floor, variances)
    spreads = np.sqrt(np.maximum(variances, np.finfo(float).tiny))
    # the wider ones are drawn together, so that cells are as fine along each
    narrowest = float(max(spreads.min(), spreads.max() / MOST_APART))
    factor = np.minimum(narrowest / spreads, 1.0)
    bound = factors.variance_bound
    clip = float(np.clip(WIDTH * narrowest / bound, SHORTEST_SEEN, 1.0))
    basis = np.ascontiguousarray((directions * factor[:, None]).T)
    rule = state.rule(bound, precision="double", basis=basis, clip=clip)
    query = score_query(state, SCORES, rule, line=CELLS, plane=SIDES)
    yield (query,)
    return replace(factors, score_range=clip * bound / factor)


def density_of(result: Result) -> ScoreDensity | None:
    """The histogram of a result, where it released one."""
    factors: Any = result.factors
    values = factors.released.get(SCORES)
    if values is None or factors.score_range is None:
        return None
    record = next(each for each in result.certificate.releases if each.name == SCORES)
    count = factors.score_range.size
    side = side_of(values.size, count)
    cuts = np.linspace(-1.0, 1.0, side + 1)
    edges = tuple(np.asarray(cuts * width) for width in factors.score_range)
    noise = record.noise.deviation(values.size) * drawn(record, result)
    return ScoreDensity(values.reshape((side,) * count), edges, noise)
