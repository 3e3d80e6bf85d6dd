"""The release grid: every released value is an integer multiple of a public power of two."""

from __future__ import annotations

import math

from eigenveil.errors import PrivacyError

# Grid steps in one noise scale: 2**26 makes the rounded and the discrete Gaussian the same to a
# factor of exp(2**-48).
_STEPS_A_SCALE = 26
# A coordinate's noise in rows' largest contributions; also keeps every value within 64 bits.
_LARGEST_SPREAD = 2.0**16


def grid_exponent(statistic_grid: int, noise_spread: float) -> int:
    """Exponent of the coarsest grid that holds the statistic exactly and is fine for the noise.

    Parameters
    ----------
    statistic_grid : int
        The statistic is an integer multiple of ``2**statistic_grid``.
    noise_spread : float
        Size of a coordinate's noise, in units of one row's largest contribution.

    Raises
    ------
    PrivacyError
        When the noise is that of 65536 rows: no result could come of it.
    """
    if noise_spread > _LARGEST_SPREAD:
        raise PrivacyError(
            f"The noise of one release would be {noise_spread:.3g} times a row's largest "
            "contribution; nothing could be seen in it.",
            hint="Give a larger epsilon or delta, or a larger share of the budget to this step.",
            code="hopeless-noise",
        )
    return min(statistic_grid, math.floor(math.log2(noise_spread)) - _STEPS_A_SCALE)
