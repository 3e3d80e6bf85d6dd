"""Asking for a histogram of scores: along one released direction, or two."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from eigenveil.models.rounds import RoundState, SumQuery
from eigenveil.moments.rows import RowRule
from eigenveil.moments.scores import ScoreHistogram

# A cell holds so many deviations of its noise on average.
_ROWS_OF_A_CELL = 3.0
# Scores are shortened to so many of their deviations, and one direction is no wider than so many
# times another.
WIDTH, MOST_APART = 3.2, 8.0


def score_query(
    state: RoundState[Any],
    name: str,
    rule: RowRule,
    *,
    line: range,
    plane: range,
    groups: tuple[int, ...] = (),
) -> SumQuery:
    """Of rows that the rule sees, in as many cells as their noise does not hide.

    ``line`` are the numbers of cells that there may be along one direction, ``plane`` the sides of
    a square along two, of each group.
    """
    assert state.rows is not None
    assert rule.basis is not None
    directions, weighted = rule.basis.shape[1], state.plan.weighted
    counted = partial(ScoreHistogram, rule, weighted=weighted, groups=groups)
    one = state.query(name, counted(cells=1))
    wanted = state.rows / (_ROWS_OF_A_CELL * one.record.noise.deviation(1))
    sides = line if directions == 1 else plane
    side = int(np.clip(wanted ** (1.0 / directions), sides[0], sides[-1]))
    return state.query(name, counted(cells=side))


def side_of(cells: int, directions: int) -> int:
    """Cells along each direction."""
    side: int = round(cells ** (1.0 / directions))
    return side
