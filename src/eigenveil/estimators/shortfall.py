"""Fewer components above the noise than were asked for: what is left, and what would do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from eigenveil.estimators.tensor_settings import TensorPlan
from eigenveil.estimators.whitening import PairMoment, standing

NO_COMPONENT = (
    "No component stands above the noise. Give more rows, a larger epsilon, or features in which "
    "the groups differ more."
)
# More than so many times the rows is no advice.
_MOST = 1000.0


def leading_part(
    taken: Callable[..., PairMoment], plan: TensorPlan, *, keep_all: bool = False
) -> PairMoment | None:
    """As many components of a pair moment as stand above its noise, ``None`` for none.

    Parameters
    ----------
    taken : callable
        Makes the leading part; told how many ``components`` there are, or ``None``, and how many
        at ``most``.
    keep_all : bool
        Take as many as the plan has, whatever stands above the noise.
    """
    most = plan.n_components
    if keep_all:
        return taken(components=most, most=most)
    if plan.auto_components:
        pair = taken(components=None, most=most)
        return pair if pair.above >= 1 else None
    pair = taken(components=most, most=most)
    while 0 < (count := standing(pair)) < pair.core.shape[0]:
        # with fewer, what is left counts as noise variance
        pair = taken(components=count, most=most)
    return pair if count else None


def shortfall(pair: PairMoment, plan: TensorPlan, usable: NDArray[np.bool_]) -> str:
    """What would do where components are missing or not usable; empty where nothing is amiss."""
    found = usable.size
    short = not plan.auto_components and found < plan.n_components
    if not short and usable.all():
        return ""
    wanted = found if plan.auto_components else plan.n_components
    last = min(wanted, pair.strengths.size) - 1
    times = float(pair.floors[last]) / max(float(pair.strengths[last]), 1e-300)
    if times <= 1.0 or times >= _MOST:
        rows = "many more"
    else:
        rows = f"about {times:.1f} times as many" if times >= 1.1 else "a few more"
    above = int(np.count_nonzero(usable))
    stand = "stands" if 1 in (above, wanted) else "stand"
    fewer = f"; or ask for {above}" if 0 < above < wanted else ""
    return (
        f"{above or 'None'} of {wanted} component{'' if wanted == 1 else 's'} {stand} above the "
        f"noise. Give {rows} rows, or an epsilon larger by as much{fewer}."
    )
