"""The runs of bins that stand out from the noise of a released histogram."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

# The core must stand this many of its own noise deviations above zero: among the 50000 runs of a
# histogram of noise alone, the best does in one of a hundred (simulated).
CORE = 4.5
# It grows by windows of up to this many bins that stand out by this much.
_REACH, _TAIL = 8, 3.5


def run_strengths(counts: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Entries (i, j): what bins i to j - 1 hold, in deviations of the noise in so many bins."""
    below = np.concatenate([[0.0], np.cumsum(counts)]) / deviation
    factors, none = _widths(below.size)
    return np.asarray((below[None, :] - below[:, None]) * factors + none)


@lru_cache(maxsize=4)
def _widths(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """One over the roots of the widths of all runs; minus infinity where there is no run."""
    width = np.arange(size)[None, :] - np.arange(size)[:, None]
    return 1.0 / np.sqrt(np.maximum(width, 1)), np.where(width > 0, 0.0, -np.inf)


def exceeded(chance: float, *, pure: bool) -> float:
    """Deviations that noise exceeds with this chance: a normal, or where ``pure`` a Laplace one."""
    return -log(2.0 * chance) / sqrt(2.0) if pure else -float(ndtri(chance))


def standing_runs(
    strength: NDArray[np.float64], core: float, further: float
) -> Iterator[tuple[int, int]]:
    """Runs of bins that stand out, grown: the strongest first, then what lies away from it."""
    least = core
    while True:
        first, last = divmod(int(np.argmax(strength)), strength.shape[1])
        if not strength[first, last] >= least:
            return
        first, last = _grown(strength, first, last)
        yield first, last
        strength[:last, first + 1 :] = -np.inf  # what overlaps with it
        least = further


def _grown(strength: NDArray[np.float64], first: int, last: int) -> tuple[int, int]:
    """The run, grown on either side as long as one of the next few windows stands out too.

    So few rows or little budget give a coarser answer before they give none.
    """
    while (step := _next_step(strength[last, last + 1 : last + 1 + _REACH])) > 0:
        last += step
    while (step := _next_step(strength[max(0, first - _REACH) : first, first][::-1])) > 0:
        first -= step
    return first, last


def _next_step(strengths: NDArray[np.float64]) -> int:
    """Bins by which to grow, given the strengths of windows of 1, 2, ... bins; 0 to stop."""
    clear = np.flatnonzero(strengths > _TAIL)
    return int(clear[0]) + 1 if clear.size else 0
