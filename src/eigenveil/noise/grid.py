"""The largest eigenvalue that noise alone shows (random-matrix limits), to tell signal from it."""

from __future__ import annotations

import math

import numpy as np

from eigenveil.privacy.mechanisms import MECHANISMS
from eigenveil.privacy.releases import Noise


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
