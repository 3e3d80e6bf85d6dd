"""One series held against another, position by position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eigenveil.experiments.numbers import Curve, Numbers

ERRORS = 3.0
"""Standard errors that a difference must be beyond to be clear."""


@dataclass(frozen=True)
class Comparison:
    """One series against another where both were measured.

    Attributes
    ----------
    panel : str
    x, gains, errors : arrays of shape (n,)
        Positions, means of the first less those of the second, and standard errors of that.
    least : float
        Smaller differences are none, whatever their error.
    """

    panel: str
    x: NDArray[np.float64]
    gains: NDArray[np.float64]
    errors: NDArray[np.float64]
    least: float

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Where the difference is beyond its error."""
        return np.asarray(np.abs(self.gains) > np.maximum(self.least, ERRORS * self.errors))

    @property
    def ahead(self) -> int:
        """At how many positions the first is clearly above."""
        return int(np.sum(self.clear & (self.gains > 0)))

    @property
    def behind(self) -> int:
        """At how many it is clearly below."""
        return int(np.sum(self.clear & (self.gains < 0)))

    @property
    def best(self) -> int:
        """Where the first is ahead most."""
        return int(np.argmax(self.gains))

    @property
    def worst(self) -> int:
        """Where it is behind most."""
        return int(np.argmin(self.gains))


def compared(
    numbers: Numbers, panel: str, first: str, second: str, *, least: float, floored: bool
) -> Comparison:
    """The first series against the second in a panel; empty where one is absent.

    Parameters
    ----------
    floored : bool
        Whether errors are as :func:`floored_errors` has them.
    """
    one, two = numbers.curve(panel, first), numbers.curve(panel, second)
    x, i, j = np.intersect1d(one.x, two.x, return_indices=True)
    one_error, two_error = (floored_errors(of) if floored else of.error for of in (one, two))
    errors = np.hypot(one_error[i], two_error[j])
    return Comparison(panel, x, one.mean[i] - two.mean[j], errors, least)


def floored_errors(curve: Curve) -> NDArray[np.float64]:
    """Standard errors, none below the median of its curve: a few runs may agree by chance."""
    return np.maximum(curve.error, np.median(curve.error)) if curve.error.size else curve.error
