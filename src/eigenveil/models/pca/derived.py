"""What follows from a released PCA at no cost: how many components it has."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_Flags = NDArray[np.bool_]

# Sums of shares are compared with what was requested up to rounding.
_EQUAL = 1e-12


def fewest(ratio: Array, usable: _Flags, share: float) -> int:
    """The least number of components that explain a share of the variance, none below the noise.

    Parameters
    ----------
    ratio : array of shape (K,)
        Shares of the total variance, non-increasing.
    usable : array of bool, shape (K,)
        Which stand above the noise: the first ones.
    share : float
        In (0, 1]; with 1 all that stand above the noise are taken.

    Returns
    -------
    int
        At least 1, which is then not usable where no component is.
    """
    above = int(np.count_nonzero(usable))
    reached = np.flatnonzero(np.cumsum(ratio[:above]) >= share - _EQUAL)
    enough = int(reached[0]) + 1 if share < 1.0 and reached.size else above
    return max(1, enough)


def advice_for_more(ratio: Array, usable: _Flags, share: float) -> str:
    """What would do where usable components explain less than was requested; empty where not."""
    found = float(np.sum(ratio[usable]))
    if share >= 1.0 or found >= share - _EQUAL:
        return ""
    count = int(np.count_nonzero(usable))
    what = "component that stands" if count == 1 else "components that stand"
    if count < usable.size:
        why = "more of them would be noise. More rows or a larger epsilon show more"
    else:
        why = "there are no more than so many. Give the number of components instead"
    return (
        f"The {count} {what} above the noise explain {found:.1%} of the variance, not {share:.1%} "
        f"as requested: {why}."
    )
