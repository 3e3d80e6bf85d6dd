"""How far the noise that is drawn is from the noise that is proved (docs/proofs/release-grid.md).

What the mechanisms have in common: the error of anything that is drawn on a lattice, and of parts
that are misplaced beside lattice noise that hides it.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class SamplingError(NamedTuple):
    """Bounds on drawn against proved noise, over all coordinates (docs/proofs/release-grid.md).

    Every event has ``P~(S) <= exp(log_ratio) P(S) + distance``, and the same the other way.
    """

    log_ratio: float
    distance: float

    def cost(self, epsilon: float) -> float:
        """What the distance adds to delta at ``epsilon``; the log-ratio adds twice to epsilon.

        ``P~(S) <= e^r P(S) + d <= e^r (e^eps P'(S) + delta) + d``, and the same once more for P'.
        """
        return (1.0 + math.exp(min(epsilon, 700.0))) * self.distance if self.distance else 0.0


# Grid steps in the deviation of anything that is drawn, at the least.
FEWEST_STEPS = 1024.0
# Steps in the spread of noise on a grid that is fine for it: those of ``noise.grid``.
STEPS_A_SPREAD = 2.0**26
# The variance of Laplace and vector noise over that of the noise added to all parts together.
SHARE_SMOOTHING = 2048.0
UNPROVED = SamplingError(math.inf, math.inf)


def lattice_error(
    size: int, *, steps_a_scale: float, draws: int = 1, copies: int = 2
) -> SamplingError:
    """Of ``size`` coordinates on a grid with this many steps in a noise scale.

    Per coordinate: a factor ``exp(2**-44)`` for the arithmetic and ``8 copies / steps**2`` between
    the Gaussian on the grid and the rounded Gaussian; ``2**-120`` for table rounding and the cut
    tail. The arithmetic and the tail count for each of the ``draws`` whose sum a coordinate is.
    Each must have 1024 steps in its deviation, which is smaller by ``sqrt(copies)`` than the scale
    where it is smallest: a coordinate may stand for so many entries of the whole array.
    """
    if steps_a_scale < FEWEST_STEPS * math.sqrt(copies * draws):
        return UNPROVED
    return SamplingError(
        size * (draws * 2.0**-44 + 8.0 * copies / steps_a_scale**2), draws * size * 2.0**-120
    )


def _longest(size: int) -> float:
    """What so many squared deviations together stay below, but for a chance of 2**-131."""
    return size + 2.0 * math.sqrt(91.0 * size) + 182.0


def hidden_error(size: int, *, off: float, smoothing: float, noise_parts: int) -> float:
    """Log-ratio of misplaced noise beside lattice Gaussian noise (docs/proofs/shares.md, claim 2).

    Each of ``noise_parts`` parts was rounded to the grid at random without bias, and ``off`` is
    how far the sum is misplaced beyond that: the length over ``size`` coordinates, in deviations of
    the Gaussian noise, which has ``smoothing`` grid steps or more.
    """
    far = _longest(size)
    return (
        off * math.sqrt(far) + 0.5 * off * off + noise_parts * far / (8.0 * smoothing * smoothing)
    )
