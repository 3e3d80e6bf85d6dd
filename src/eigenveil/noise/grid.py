"""The release grid: every released value is an integer multiple of a public power of two."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.errors import PrivacyError
from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.releases import Noise

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
    """
    if noise_spread > _LARGEST_SPREAD:
        raise PrivacyError(
            f"The noise of one release would be {noise_spread:.3g} times a row's largest "
            "contribution; nothing would be visible in it.",
            hint="Give a larger epsilon or delta, or a larger share of the budget to this step.",
            code="hopeless-noise",
        )
    return min(statistic_grid, math.floor(math.log2(noise_spread)) - _STEPS_A_SCALE)


# -- Largest eigenvalue that noise alone shows (random-matrix limits), to tell signal from it.


def spectral_edge(noise: Noise, rows: int, columns: int) -> float:
    """Largest eigenvalue (square, symmetric) or singular value (rows > columns) of the noise."""
    return MECHANISMS[noise.kind].edge(noise, rows, columns)


def deviation(noise: Noise, rows: int) -> float:
    """Standard deviation of a coordinate, isometric ones where the statistic is symmetric.

    ``rows`` is the statistic's side, on which it may depend.
    """
    return MECHANISMS[noise.kind].deviation(noise, rows)


def truncated_edge(noise: Noise, features: int, rank: int, parties: int) -> float:
    """Largest eigenvalue of a sum of noise matrices, each cut off to its ``rank`` largest.

    Each has a semicircle's upper eigenvalues in independent directions: their mean everywhere, and
    twice the root of ``parties`` times their variance on top (free central limit).
    """
    edge = spectral_edge(noise, features, features)
    middles = (np.arange(rank) + 0.5) / features  # shares of the eigenvalues that are above
    grid = np.linspace(-1.0, 1.0, 20001)
    above = 0.5 - (grid * np.sqrt(1 - grid**2) + np.arcsin(grid)) / np.pi
    kept = edge * np.maximum(0.0, np.interp(middles, above[::-1], grid[::-1]))
    mean, square = float(np.sum(kept)) / features, float(np.sum(kept**2)) / features
    free = parties * mean + 2.0 * math.sqrt(parties * max(0.0, square - mean * mean))
    return max(free, edge) if parties > 1 else edge
