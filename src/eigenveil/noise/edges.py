"""Largest eigenvalue that noise alone shows (random-matrix limits), to tell signal from it."""

from __future__ import annotations

import math

from eigenveil.privacy.releases import Noise

# Upper edge of the free difference of two Marchenko-Pastur laws of ratio 1.
_WISHART_EDGE = math.sqrt((11 + 5 * math.sqrt(5)) / 2)


def spectral_edge(noise: Noise, rows: int, columns: int) -> float:
    """Largest eigenvalue (square, symmetric) or singular value (rows > columns) of the noise.

    Gaussian: ``sigma sqrt(2 D)`` for a symmetric matrix, ``sigma (sqrt(D) + sqrt(R))`` for a tall
    one. Wishart difference: ``3.33 D scale``. Vector: a Gaussian matrix of the same length.
    """
    symmetric = rows == columns
    match noise.kind:
        case "wishart":
            return _WISHART_EDGE * rows * noise.scale
        case "vector":
            sigma = noise.scale * math.sqrt(noise.size)
        case _:
            sigma = noise.scale
    return sigma * (math.sqrt(2 * rows) if symmetric else math.sqrt(rows) + math.sqrt(columns))
