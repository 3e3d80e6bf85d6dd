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
from eigenveil.moments.rows import RowRule
from eigenveil.moments.scores import MOST_DIRECTIONS

Array = NDArray[np.float64]

# What a cell holds is seen that exceeds so many deviations of its noise; there are more cells by
# groups, most of them empty.
_SEEN, _SEEN_OF_GROUP = 2.0, 3.0


@dataclass(frozen=True)
class ScoreDensity:
    """A released histogram of scores along the first component, or the first two, by group.

    Attributes
    ----------
    counts : ndarray of shape (m,) or (m, m); of groups (n_groups, m) or (n_groups, m, m)
        Rows in each cell, with noise; groups first, then the first component.
    edges : tuple of ndarray of shape (m + 1,)
        Of the cells, along each component, in units of scores.
    noise : float
        Deviation of the noise in each cell.
    groups : tuple of str
        With ``scores_by``: what the groups are called.
    """

    counts: Array
    edges: tuple[Array, ...]
    noise: float
    groups: tuple[str, ...] = ()

    @property
    def least(self) -> float:
        """Rows from which a cell is seen: two deviations of the noise, by groups three."""
        return (_SEEN_OF_GROUP if self.groups else _SEEN) * self.noise

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Cells that hold more than that."""
        return np.asarray(self.counts > self.least)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        edges = [each.tolist() for each in self.edges]
        plain = {"counts": self.counts.tolist(), "edges": edges, "noise": self.noise}
        return plain | ({"groups": list(self.groups)} if self.groups else {})


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
    query = score_query(state, SCORES, rule, line=CELLS, plane=SIDES, groups=state.plan.scores_by)
    yield (query,)
    return replace(factors, score_range=clip * bound / factor)


def groups_expected(plan: Plan, rows: int) -> str:
    """How finely so many rows can be counted by group, and whether noise would hide most of it."""
    directions, groups = min(plan.n_components, MOST_DIRECTIONS), len(plan.scores_by)
    state = RoundState(plan, dict(plan.budgets))
    state.rows = float(rows)
    rule = RowRule(basis=np.eye(plan.features, directions))
    query = score_query(state, SCORES, rule, line=CELLS, plane=SIDES, groups=plan.scores_by)
    side = side_of(query.record.noise.size // groups, directions)
    least = _SEEN_OF_GROUP * query.record.noise.deviation(query.record.noise.size)
    cells, own = " x ".join([str(side)] * directions), rows / groups
    held = own / max(1.0, side**directions / 4.0)
    said = (
        f"scores by {groups} groups: {cells} cells each, of which one is seen from {least:.3g} "
        f"rows on; {own:,.0f} rows of a group, spread over a quarter of them, leave {held:.3g} in "
        "each."
    )
    hidden = " Noise would hide most of them: take fewer groups, more rows or a larger epsilon."
    return said + (hidden if held < least else "")


def density_of(result: Result) -> ScoreDensity | None:
    """The histogram of a result, where it released one."""
    factors: Any = result.factors
    values = factors.released.get(SCORES)
    if values is None or factors.score_range is None:
        return None
    record = next(each for each in result.certificate.releases if each.name == SCORES)
    count = factors.score_range.size
    columns = result.plan.scores_by if isinstance(result.plan, Plan) else ()
    groups = tuple(result.labels[column] for column in columns)
    groups = tuple(name.partition("=")[2] or name for name in groups)
    side = side_of(values.size // max(1, len(groups)), count)
    cuts = np.linspace(-1.0, 1.0, side + 1)
    edges = tuple(np.asarray(cuts * width) for width in factors.score_range)
    noise = record.noise.deviation(values.size) * drawn(record, result)
    shape = (len(groups),) * bool(groups) + (side,) * count
    return ScoreDensity(values.reshape(shape), edges, noise, groups)
